`peerStatement` of an outbound listener sets conditions on the peer's workload statement: its central issuer, and namespace,
service account, security level and compartment as rules of policies have them.

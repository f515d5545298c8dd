`twistd svc-agent`: the CSI driver `csi.svc.internal` mounts the SPIFFE Workload API into pods of the profile `restricted`; metrics of its own SVID ([agent](docs/agent.md)).
The PQ issuer serves its roots at `GET /v1/pq-bundle`, and `svc-agent` keeps them in the `pq-bundle.json` of its node.

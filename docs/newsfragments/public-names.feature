Each public package exports its names (`from svc.transport import peer_evidence`), listed in `docs/api.md`; importing one loads no other.

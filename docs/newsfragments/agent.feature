`twistd svc-agent`: the CSI driver `csi.svc.internal` mounts the SPIFFE Workload API into pods of the profile `restricted`; metrics of its own SVID ([agent](docs/agent.md)).

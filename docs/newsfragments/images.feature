`bin/image`: the OCI images `svc`, `svc-manager`, `spire-server` and `spire-agent` without Docker and without a registry, each with its SPDX document; the same sources give the same digests.

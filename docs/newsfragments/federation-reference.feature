`svc federation connect` with a reference alone completes: `SvcForeignCluster` takes `expectedFingerprint` and `m2mEndpoint` without a package, and
`svc-manager` fetches the package and pins it if it has that fingerprint ([federation](docs/federation.md#by-fingerprint)). An endpoint without
a port has port 443.

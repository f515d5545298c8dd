`svc-manager` makes the federation roots and the bootstrap package of its cluster, publishes them in the custom resource `SvcCluster`, and serves
bundle and package to peers as a bundle endpoint of the profile `https_spiffe` ([federation](docs/federation.md#on-kubernetes)). Peers are
objects of the kind `SvcForeignCluster`: their packages are pinned and polled, their bundles are written to SPIRE and given to
the pods of enabled namespaces, and the limit `federatedPeers` of a license counts
them.

The custom resources `SvcCluster` and `SvcForeignCluster`: what other trust domains need of a cluster to federate with it, and the trust domains
that it federates with ([federation](docs/federation.md)).

The Helm chart `svc-core` installs the platform on a cluster of Kubernetes; `svc files chart` prints where it is.

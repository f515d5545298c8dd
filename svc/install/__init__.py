"""What ``svc install`` does: registries, releases, and the deployment of a release on a cluster."""

`svc license status` prints the license status of a cluster, and tells apart that there is none, that it is stale, and that no manager runs ([command line](docs/cli.md#svc-license-status-flags)).

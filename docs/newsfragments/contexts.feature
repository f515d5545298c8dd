`svc context` keeps compartments with their Kubernetes contexts in `~/.svc/config.yaml`, and `svc identity` prints which one is in effect and who works in it ([compartments](docs/compartments.md)).

`auditLog` of `~/.svc/config.yaml` records the commands of kubectl and what was decided about them, in a chain of digests, without secrets.

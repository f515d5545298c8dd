A wheel has the systemd units, JSON Schemas, alert rules, completion scripts and a man page for each command of
`svc`, in `svc/data`; `svc files` prints where each kind is and how it is used. `docs/schemas` and `docs/examples/alerts.yaml` moved
there.

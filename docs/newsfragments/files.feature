A wheel has the JSON Schemas, alert rules and completion scripts, in `svc/data`; `svc files`
prints where each kind is and how it is used. `docs/schemas` and `docs/examples/alerts.yaml` moved there.

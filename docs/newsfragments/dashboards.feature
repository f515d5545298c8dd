Dashboards for Grafana come with the package: `svc files dashboards`. They are generated from the metrics that the processes
have, and a test asks a real Prometheus for every panel.

The chart has a PrometheusRule with the alerts and `monitoring.labels`, and its monitors give the jobs that the alerts name (`svc-proxy`, `svc-manager` …).

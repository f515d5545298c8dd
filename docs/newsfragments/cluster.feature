`bin/cluster up|down|status|kubectl|load`: a real Kubernetes of one node in namespaces of its own, or its API server alone (`--api-only`); `bin/tools` builds its programs, and Helm.

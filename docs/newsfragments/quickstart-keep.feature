`bin/quickstart --keep` prints the addresses of metrics and readiness and three next commands to paste.

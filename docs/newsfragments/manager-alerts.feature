Alerts on the manager's configuration, Workload API, webhook and polls of peers; a controller that cannot read what it follows counts as one that fails.

`kubectl mls` is `svc`: the program is also installed as the plugin `kubectl-mls`.

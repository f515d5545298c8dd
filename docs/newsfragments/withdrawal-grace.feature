Programs that embed choose how long answers without an identity have to persist (`Workload.open(withdrawal_grace="5m")`).

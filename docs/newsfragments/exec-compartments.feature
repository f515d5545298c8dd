`svc exec` refuses pods of another compartment unless `--force` is given and permitted, and `svc logs`, `cp` and `port-forward` warn of them ([compartments](docs/compartments.md#exec)).

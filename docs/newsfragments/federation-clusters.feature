`svc federation connect` lets clusters trust each other, by two kubeconfigs or by a reference; `export`, `import` and `info` work on a cluster
(`-K`, `--context`, `--endpoint-host`, `--name`, `--tunnel`) as on an authority.

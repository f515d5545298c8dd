With `--log-format json` errors, warnings and notices of `svc` are records too (`svc.cli.failed`, `svc.cli.warning`, `svc.cli.notice`).
`--log-devel` shows no stack trace for a refused connection any more; `--log-stacktrace` does.

Flags of curl that `svc curl` does not have are refused with what to do here, `--max-time 3` (`-m 3`) means seconds, and `-v` without
its number says how it is written.

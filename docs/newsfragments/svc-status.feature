`svc status` shows the proxies, brokers and authorities that run on this machine: whether they are ready, identities and when they
expire, listeners, rates, the database, the last error; `--watch` again and again, `-o json` for programs.

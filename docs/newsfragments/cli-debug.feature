`svc curl --log-devel` shows what was sent (request line and names of fields, no secrets), to which address and identity, and which
certificate chains were verified.

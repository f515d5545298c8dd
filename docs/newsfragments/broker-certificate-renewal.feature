A renewed server certificate of the broker is taken over without a restart, within 5 s or on `SIGHUP`, and
`svc_broker_certificate_not_after_seconds` shows when it ends. `SIGHUP` ended the broker before.

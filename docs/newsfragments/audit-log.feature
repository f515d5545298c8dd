Access attempts are audit records: refused connections and denied requests by default, with `auditLog: all` every exchange with a
record as well, with identity, listener, method, path and outcome; `off` leaves them out. A reload writes an operational record
(`svc.config.reloaded`) beside its audit record, which names the keys that changed.

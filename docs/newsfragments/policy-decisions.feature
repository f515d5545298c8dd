A 403 has `decision`, an id under which the log has the refusal; access log and audit records have `policy` and `rule`.

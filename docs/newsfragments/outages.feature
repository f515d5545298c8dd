`/readyz` has the condition `workloadApi` (not required), with the beginning and the cause of an outage, at proxy and broker;
`svc_proxy_workload_api_last_contact_timestamp_seconds` and its like of the broker can be alerted on. `pqIssuer` fails when the issuer
takes no connection, which is tried every ten seconds, and not at the next renewal only.

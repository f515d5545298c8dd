The proxy shows metrics, named health conditions and log records of schema `svc.log/1`; see `docs/telemetry.md`.
`/readyz` names the conditions `credentials`, `store`, `listeners` and `pqIssuer`, and asks only for those that new work
needs. Drains, policies in force, post-quantum leaves and refused identities leave log records of their own.
Log lines are written by a thread of their own: a reader that stops, a full disk or a paused terminal holds nobody up, and
what was dropped is told. Standard output holds records only, whatever libraries print. Records carry the identity, namespace,
pod and node of the proxy.
`python -m svc.telemetry.audit` verifies the chain of audit records. The documentation lists every event and every reason,
and what to do about each.

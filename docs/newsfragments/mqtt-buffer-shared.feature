Identities share the last tenth of sessions, octets and dead letters of `mqttBuffer`: who holds most is refused first, and is named in the log. A message
that is refused for that has the reason `share` in `svc.proxy.buffer.full`, where it was `octets`. A session whose credentials the broker refuses takes nothing of
the last tenth of octets.

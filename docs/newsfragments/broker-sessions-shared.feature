Identities share the last tenth of the sessions of `svc-broker`: who holds most is refused first, and is named in the log. The fixed
`limits.sessionsOfIdentity` is off by default.

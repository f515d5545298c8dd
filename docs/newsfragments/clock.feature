Proxy and authority notice that the clock of their machine was set and log `svc.runtime.clock_stepped`. SVIDs and roots are renewed
at once where the new time asks for it, a step back revokes no connection, and the notary forgets records only by a clock that has run evenly.

SIGUSR1 ends a daemon after `drainDelay` (2 s), in which it goes on accepting, is not ready, and the proxy's responses have `Connection: close`; SIGTERM does not shorten that.

After a change of SVID, bundles, policies or deny lists open connections are decided on again for at most 5 ms of a reactor turn, so that 10,000
of them hold up nobody; a request on a connection that is not reached yet is decided on by what is in force. `svc.proxy.connections.reauthorized`
and, of the broker, `svc.broker.connections.reauthorized` report the end. Idle connections to peers that are not refused stay open when bundles or policies change.

Connections that say nothing, or stop in the middle of a handshake, keep no client out: a place among `limits.handshakes` is taken by
the first octet, at most `limits.waiting` connections wait for theirs, and the longest silence of the busiest address gives way.

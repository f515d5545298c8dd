Requests of HTTP/1.0 without Host, as health checks send them, are forwarded with the upstream's own address as Host, unless rules look at hosts; they were 400.

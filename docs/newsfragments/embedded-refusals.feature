Servers of `svc.embedding` log refused connections with the events of svc-proxy.

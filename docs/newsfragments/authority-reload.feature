The authority has `GET /config`, logs `svc.process.started` and `svc.process.stopped`, and reads its files at once on SIGHUP, which ended it.

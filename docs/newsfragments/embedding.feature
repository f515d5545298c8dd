`svc.embedding`: `Workload` (endpoints, statements, verified answers in one object), `NotarySite` (the notary before an
unmodified `twisted.web` site of the same process) and `spiffe:` endpoint strings for any Twisted program.

`twistd svc-registrar` keeps the registration entries of a SPIRE server as a file says ([SPIRE](docs/spire.md#entries-from-a-file)).

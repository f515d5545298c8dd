`svc-manager` keeps the registration entries of a SPIRE server equal to the service accounts of namespaces with the label
`svc.internal/injection: enabled` ([docs/manager.md](docs/manager.md#identities-of-service-accounts)).

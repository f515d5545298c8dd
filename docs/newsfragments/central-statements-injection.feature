Injected pods have a service account token of the audience `svc-manager` for the proxy alone, by which the manager knows them and issues their statement.

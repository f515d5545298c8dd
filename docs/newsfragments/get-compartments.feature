`svc get` shows the compartment of each object, and filters by it ([compartments](docs/compartments.md#get)).

`svc` lets kubectl work in the groups of the compartment where the API server permits that (`impersonate: auto`), always or never; `svc identity`
says which.

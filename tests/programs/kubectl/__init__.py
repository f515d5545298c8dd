"""``svc`` as a process, and programs in place of kubectl."""

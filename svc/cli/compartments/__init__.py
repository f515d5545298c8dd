"""``svc context``, ``svc identity`` and the kubectl commands that work in a compartment."""

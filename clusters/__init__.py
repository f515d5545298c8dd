"""A real Kubernetes on this machine: ``bin/cluster``, and what the tests and ``bin/tools`` need of it."""

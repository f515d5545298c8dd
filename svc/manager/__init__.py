"""
The process ``svc-manager``: the controllers of a cluster, on replicas of which one leads.

Each concern is a package with what is decided, without I/O, and a controller that reads and writes: ``admission``,
which is a server too, ``identities``, ``issuer``, ``licenses``, ``networkpolicies`` and ``policies``. They do not
import each other, and have a ``context.ClusterContext``; what the webhook needs of several is in ``reviews``.
``hotconfig`` is the configuration that may change while the process runs; ``control`` runs the controllers and the
election; ``service`` composes the process. Nothing imports it, and Kubernetes is reached through ``svc.kube`` alone.
"""

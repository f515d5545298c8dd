"""
The process ``svc-manager``: the controllers of a cluster, on replicas of which one leads.

``licensestatus`` is the status of licenses, computed without I/O; ``licenses`` the controller that writes it;
``hotconfig`` the configuration that may change while the process runs; ``control`` runs the controllers and the
election; ``service`` composes the process. Nothing imports it, and Kubernetes is reached through ``svc.kube`` alone.
"""

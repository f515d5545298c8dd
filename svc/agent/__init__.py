"""
The process ``svc-agent``, one on each node: it mounts the Workload API into pods, and keeps an SVID of its own.

Nothing imports it.
"""

"""
What operators see of a running process: metrics, health and log records.

``metrics`` owns the metric families and ``labels`` the values of their labels, ``health`` the conditions of readiness.
``events`` has the kinds of events and the registry of their names, ``records`` builds log records of schema
``svc.log/1``, ``logs`` emits them, ``log_limits`` limits their rate and ``log_writer`` writes them; ``audit`` verifies
the chain of audit records.
"""

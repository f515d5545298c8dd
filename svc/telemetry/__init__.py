"""
What an operator sees of a running process: metrics, health, log records.

``metrics`` and ``labels`` own the metric families, ``resources`` their page, ``health`` the named conditions, ``admin``
the operator's pages, ``server`` the listeners for both; ``events`` is the registry of event names, ``records`` builds
log records of schema ``svc.log/1``, ``logs`` writes them and ``denials`` keeps repeated ones apart.
"""

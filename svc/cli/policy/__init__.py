"""
``svc policy``: the decisions of policy files, explained and tested without a proxy.

``command`` has the flags, ``check`` and ``cases`` what the commands do, ``files`` what both read.
"""

"""
What can be wrong between a workload and its identity, and what to do about it.

``model`` makes results of a table of checks and of facts; ``preflight``, ``cluster`` and ``local`` are the tables,
which are pure; ``reading`` reads the facts of a cluster.
"""

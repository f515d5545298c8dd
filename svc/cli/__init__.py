"""
The command line: one module or package a command, imported only when that command runs.

:mod:`svc.cli.main` is the entry point and the only place that exits. Nothing that ``svc --help`` needs imports Twisted,
cryptography or the Workload API client.
"""

"""
The command line: one module or package a command, imported only when that command runs.

:mod:`svc.cli.entry` passes commands of kubectl on and leaves all others to :mod:`svc.cli.main`, the only place that
exits. Nothing that ``svc --help`` needs imports Twisted, cryptography or the Workload API client.
"""

"""
The command ``svc status``: the processes of this machine, by their addresses for operators.

``fetch`` asks one process, ``document`` reads its answer, which is not trusted, ``rendering`` makes lines of it without
I/O, and ``run`` prints them, once or again and again. Nothing here imports Twisted.
"""

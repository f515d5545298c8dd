"""
The broker's database: sessions, messages and retained messages that survive a restart.

``opening`` opens it in a thread, where ``loading`` reads its content. ``journal`` implements
:class:`svc.broker.journal.Journal`; ``operations`` are what it records, and ``writer`` executes them in the groups of
:mod:`svc.sqlite.groups`. ``schema`` holds the tables. Nothing else in the broker uses SQL.
"""

"""
The broker's database: sessions, messages and retained messages that outlive the process.

``opening`` is where to begin. ``journal`` implements :class:`svc.broker.journal.Journal`, ``operations`` are what it
records, ``groups`` brings them to the thread in which ``writer`` makes them durable, ``loading`` gives them back at a
start, ``schema`` are the tables, ``errors`` what can go wrong. Nothing else in the broker speaks SQL.
"""

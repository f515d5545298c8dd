"""
The broker's database: sessions, messages and retained messages that outlive the process.

``opening`` is where to begin; in its thread ``database`` judges and opens the file and ``loading`` gives back what is
in it. ``journal`` implements :class:`svc.broker.journal.Journal`, ``operations`` are what it records, ``groups`` brings
them to the thread in which ``writer`` makes them durable, ``schema`` are the tables, ``errors`` what can go wrong.
Nothing else in the broker speaks SQL.
"""

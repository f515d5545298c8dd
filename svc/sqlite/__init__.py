"""
SQLite databases that survive crashes, full disks and damage; the notary store and the broker's journal are on it.

``kind`` describes a caller's database, ``database`` opens the file, ``quarantine`` renames a damaged one, ``reserve``
locks it and keeps space on the disk, ``writer`` commits groups, ``threads`` run the blocking work, ``disk`` explains
what the disk refused. Contains no table of its callers.
"""

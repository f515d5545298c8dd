"""
SQLite databases that survive crashes, full disks and damage: those of the notary, the broker and the MQTT buffer.

``kind`` describes a caller's database, ``connection`` opens connections, ``database`` the file, ``quarantine`` renames
a damaged one, ``reserve`` locks it and keeps space on the disk, ``writer`` commits groups, ``operations`` are what
groups consist of where ``groups`` hands them over, ``threads`` run the blocking work, ``disk`` explains what the disk
refused. Contains no table of its callers.
"""

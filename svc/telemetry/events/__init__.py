"""
The kinds of events, and the registry of their names.

``base`` says what an event is; each process, and each part that several of them have, has an enumeration in a module
of its name; ``registry`` knows all.
"""

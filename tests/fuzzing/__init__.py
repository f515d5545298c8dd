"""
Coverage-guided fuzzing of what peers and administrators send, with atheris (libFuzzer).

``targets`` are functions of octets that fail by raising, with inputs to begin with: an input for which one was found to
fail is added there. ``python -m tests.fuzzing TARGET`` runs libFuzzer on one.
"""

"""
Writes what the documentation says of the code: tables, schemas and diagrams that nobody has to keep by hand.

    python -m docs.generator             # refresh docs/
    python -m docs.generator --check     # status 1 and the names of what is stale

A page holds each generated part between two comments, ``<!-- generated: NAME -->`` and ``<!-- end: NAME -->``; the rest
of it is written by people.
"""

from __future__ import annotations

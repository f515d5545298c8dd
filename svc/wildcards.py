"""Patterns in which ``*`` stands for any characters, or none."""

from __future__ import annotations

from collections.abc import Sequence


def fits(pieces: Sequence[str], text: str) -> bool:
    """
    Whether a text is these pieces with anything between them: ``fits(pattern.split("*"), text)``.

    It takes one pass, however many pieces there are: each is taken where it is found first.
    """
    first, *middle = pieces
    if not middle:
        return text == first
    last = middle.pop()
    position, end = len(first), len(text) - len(last)
    if position > end or not text.startswith(first) or not text.endswith(last):
        return False
    for piece in middle:
        found = text.find(piece, position, end)
        if found < 0:
            return False
        position = found + len(piece)
    return True

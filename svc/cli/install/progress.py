"""How far transfers are, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def shown(what: str, size: int) -> Iterator[Callable[[int], object]]:
    """
    Show a bar on standard error where it is a terminal; gives what takes the octets that have been added.

    Args:
        what: is done, in a word or two.
        size: octets in all.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _octets: None
        return
    with click.progressbar(length=max(1, size), label=what, file=sys.stderr) as bar:
        yield bar.update


def amount(octets: int) -> str:
    """Write a number of octets for people, such as ``213.2 MiB``."""
    number, units = float(octets), ["octets", "KiB", "MiB", "GiB"]
    while number >= 1024 and len(units) > 1:
        number /= 1024
        units.pop(0)
    return f"{number:.0f} {units[0]}" if units[0] == "octets" else f"{number:.1f} {units[0]}"

"""Lazy exports of packages: importing a public name loads only the module that defines it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """
    Create the ``__getattr__`` of a package (PEP 562).

    Args:
        package: its ``__name__``.
        homes: for each module the names that it defines, separated by spaces; the module is named relative to the
            package, ``.other.module`` for one of a neighbour.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    def find(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f".{home[name]}", package), name)

    return find

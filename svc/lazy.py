"""
Exports of packages: a public name loads the module it lives in when it is asked for, and no other.

So a program takes ``from svc.transport import peer_evidence`` without the rest, and the command line stays fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """
    Make the ``__getattr__`` of a package (PEP 562).

    Args:
        package: its ``__name__``.
        homes: the names that each module gives, separated by spaces, by the module's name in the package.

    Returns:
        The function.

    Raises:
        AttributeError: the function does, for a name that is not exported.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    def find(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home[name]}"), name)

    return find

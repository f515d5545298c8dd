"""The public names: what each public package exports, with its summary."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from types import ModuleType
from typing import TypeGuard

from docs.generator.pages import PageBroken, table
from svc.errors import SvcError

#: Public packages, the most wanted first.
PACKAGES = (
    "svc.embedding",
    "svc.client",
    "svc.transport",
    "svc.workload",
    "svc.identity",
    "svc.notary",
    "svc.reports",
    "svc.broker",
    "svc.policy",
    "svc.wire",
    "svc.wire.http1",
    "svc.testing",
)


def public(package: str) -> list[tuple[str, object]]:
    """
    List what a package exports.

    Args:
        package: its name.

    Returns:
        Names and objects, in alphabetical order without regard to case.
    """
    module: ModuleType = import_module(package)
    return [(name, getattr(module, name)) for name in sorted(module.__all__, key=str.lower)]


def names(package: str) -> str:
    """
    Write the tables of one package.

    Args:
        package: its name.

    Returns:
        Its purpose and its names; errors are in a table of their own, with their reasons.
    """
    found = public(package)
    things = [(f"`{name}`", summary(name, thing)) for name, thing in found if not _is_error(thing)]
    errors = [row for name, thing in found if _is_error(thing) for row in _error_rows(name, thing)]
    text = f"{first_paragraph(import_module(package).__doc__ or '')}\n\n"
    text += table(("name", "is"), things) if things else ""
    return text + ("\n" + table(("error", "reason", "says"), errors) if errors else "")


def _error_rows(name: str, error: type[SvcError]) -> list[tuple[str, str, str]]:
    """The reason of the class and those of its table."""
    rows = ((f"`{name}`", f"`{reason}`", row.sentence) for reason, row in error.__dict__.get("reasons", {}).items())
    return [(f"`{name}`", f"`{error.reason}`", summary(name, error)), *rows]


def first_paragraph(text: str) -> str:
    """
    Take the first paragraph of a docstring.

    Args:
        text: the docstring.

    Returns:
        It, in one line.
    """
    paragraph = " ".join(inspect.cleandoc(text).split("\n\n")[0].split())
    return re.sub(r":[a-z]+:(?=`)", "", paragraph).replace("``", "`")


def summary(name: str, thing: object) -> str:
    """
    Say what a public name is.

    Args:
        name: the name.
        thing: its value.

    Returns:
        The first paragraph of its docstring; a value that has none is shown.

    Raises:
        PageBroken: a class or function has none.
    """
    if inspect.isclass(thing) or inspect.isfunction(thing):
        if not thing.__doc__:
            raise PageBroken(f"{name} has no docstring")
        return first_paragraph(thing.__doc__)
    if isinstance(thing, int | str):
        return f"`{thing!r}`"
    return f"a value of type `{type(thing).__name__}`" if not _is_alias(thing) else f"`{_alias(thing)}`"


def _is_error(thing: object) -> TypeGuard[type[SvcError]]:
    return inspect.isclass(thing) and issubclass(thing, SvcError)


def _is_alias(thing: object) -> bool:
    return hasattr(thing, "__args__")


def _alias(thing: object) -> str:
    parts = getattr(thing, "__args__", ())
    return " | ".join(getattr(each, "__name__", str(each)) for each in parts)

"""What the source says below an attribute, which Python itself forgets."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache


@cache
def attribute_docstrings(of: type) -> dict[str, str]:
    """
    Read the strings below the attributes of a class.

    Args:
        of: the class; what it inherits is read as well.

    Returns:
        The text by the name of the attribute, line breaks read as spaces.
    """
    found: dict[str, str] = {}
    for base in reversed(of.__mro__):
        if base.__module__.split(".")[0] == "svc":
            found.update(_own(base))
    return found


@cache
def attribute_comments(of: type) -> dict[str, str]:
    """
    Read the comments that begin with ``#:`` above the members of an enumeration.

    Args:
        of: the class.

    Returns:
        The text by the name of the member, line breaks read as spaces.
    """
    found: dict[str, str] = {}
    said: list[str] = []
    for line in inspect.getsource(of).splitlines():
        text = line.strip()
        if text.startswith("#: "):
            said.append(text[3:])
            continue
        name, assigned, _ = text.partition(" = ")
        if assigned and name.isidentifier() and said:
            found[name] = " ".join(said)
        said = []
    return found


def _own(of: type) -> dict[str, str]:
    tree = ast.parse(inspect.getsource(sys.modules[of.__module__]))
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == of.__name__]
    found: dict[str, str] = {}
    for statement, following in zip(classes[0].body, classes[0].body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            found[statement.target.id] = " ".join(following.value.value.split())
    return found

"""
The gate against growth: the largest classes and files of ``svc`` may only become smaller.

``sizes.txt`` beside this module has a line for each class and file above the limits; ``python -m tests.runner.growth``
fails where one has grown or another has passed a limit, and with ``--write`` it writes what has become smaller.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_LISTED: Final = Path(__file__).with_name("sizes.txt")
_PRINTED: Final = 10


class Size(NamedTuple):
    """Of a class or a file; a file has no flags."""

    lines: int
    flags: int = 0

    def exceeds(self, other: Size) -> bool:
        """Tell whether either figure is above the other's."""
        return self.lines > other.lines or self.flags > other.flags


#: What needs no line in the list.
FREE_CLASS: Final = Size(lines=300, flags=3)
FREE_FILE: Final = Size(lines=500)


def sizes_of(name: str, source: str) -> dict[str, Size]:
    """
    Measure a module.

    Args:
        name: its path from the checkout.
        source: its text.

    Returns:
        The size of the file by its path, and of each class by ``PATH:CLASS``; a flag is an attribute of ``self`` that
        is given a literal ``True`` or ``False`` somewhere.
    """
    sizes = {name: Size(source.count("\n"))}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            sizes[f"{name}:{node.name}"] = Size(lines, len(set(_flags(node))))
    return sizes


def _flags(node: ast.ClassDef) -> Iterator[str]:
    for each in ast.walk(node):
        if not isinstance(each, ast.Assign | ast.AnnAssign):
            continue
        if not isinstance(each.value, ast.Constant) or not isinstance(each.value.value, bool):
            continue
        for target in each.targets if isinstance(each, ast.Assign) else [each.target]:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                yield target.attr


def grown(sizes: dict[str, Size], listed: dict[str, Size]) -> list[str]:
    """Say what is above its line in the list, or above the limits without one."""
    found = []
    for name, size in sizes.items():
        free = FREE_CLASS if ":" in name else FREE_FILE
        # What is listed for its flags has as many lines as any other, and the other way round.
        bound = Size(*map(max, listed.get(name, free), free))
        if size.exceeds(bound):
            flags = f" and {size.flags} flags, at most {bound.flags}" if ":" in name else ""
            found.append(f"{name} has {size.lines} lines, at most {bound.lines}{flags}: split it")
    return found


def read_list(text: str) -> dict[str, Size]:
    """Read lines of the form ``NAME LINES FLAGS``."""
    rows = (line.split() for line in text.splitlines())
    return {name: Size(int(lines), int(flags)) for name, lines, flags in rows}


def fallen(sizes: dict[str, Size], listed: dict[str, Size]) -> str:
    """Give the text of the list with what is smaller now; what is gone or within the limits has no line any more."""
    kept = {}
    for name, bound in listed.items():
        size = sizes.get(name)
        if size and size.exceeds(FREE_CLASS if ":" in name else FREE_FILE):
            kept[name] = Size(min(size.lines, bound.lines), min(size.flags, bound.flags))
    return "".join(f"{name} {size.lines} {size.flags}\n" for name, size in sorted(kept.items()))


def _measured(checkout: Path) -> dict[str, Size]:
    sizes: dict[str, Size] = {}
    for path in sorted((checkout / "svc").rglob("*.py")):
        sizes |= sizes_of(str(path.relative_to(checkout)), path.read_text())
    return sizes


def main(arguments: list[str]) -> int:
    """Print the largest classes and files, and fail where one has grown."""
    sizes = _measured(_LISTED.parents[2])
    listed = read_list(_LISTED.read_text())
    for title, is_class in (("classes", True), ("files", False)):
        print(f"the largest {title}:")
        largest = sorted(((size, name) for name, size in sizes.items() if (":" in name) == is_class), reverse=True)
        for size, name in largest[:_PRINTED]:
            print(f"  {size.lines:5} lines  {f'{size.flags:2} flags  ' if is_class else ''}{name}")
    if "--write" in arguments:
        _LISTED.write_text(fallen(sizes, listed))
    found = grown(sizes, listed)
    for each in found:
        print(each, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

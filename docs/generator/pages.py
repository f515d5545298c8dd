"""Pages and their generated parts: what is there, and what should be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"
COMMAND = ".venv/bin/python -m docs.generator"

_PART = re.compile(
    r"(?P<open><!-- generated: (?P<name>[^\n]+?) -->\n)(?P<body>.*?)(?P<close><!-- end: (?P=name) -->)", re.DOTALL
)


class PageBroken(Exception):
    """A page names a part without a generator, or a generated part is on no page."""


#: Makes the text of a part, lines with a line feed at the end.
Maker = Callable[[], str]


def part_names(text: str) -> list[str]:
    """
    Find the generated parts of a page.

    Args:
        text: the page.

    Returns:
        Their names in order.
    """
    return [match["name"] for match in _PART.finditer(text)]


def filled(text: str, makers: Mapping[str, Maker]) -> str:
    """
    Make the parts of a page anew.

    Args:
        text: the page as it is.
        makers: what makes each part.

    Returns:
        The page as it should be.

    Raises:
        PageBroken: the page has a part without a generator, or a comment without its counterpart.
    """
    names = part_names(text)
    if len(names) * 2 != len(re.findall(r"<!-- (?:generated|end): ", text)):
        raise PageBroken("a generated part has no end, or an end no beginning")

    def made(match: re.Match[str]) -> str:
        maker = makers.get(match["name"])
        if maker is None:
            raise PageBroken(f"there is no generator of the part {match['name']!r}")
        return f"{match['open']}{maker()}{match['close']}"

    return _PART.sub(made, text)


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """
    Write a Markdown table.

    Args:
        titles: of the columns.
        rows: the cells; a vertical bar in one is escaped.

    Returns:
        The lines.
    """
    head = list(titles)
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)

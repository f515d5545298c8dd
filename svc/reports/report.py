"""
Reports as people read them on a terminal: a title and lines, which a caller may style when it renders them.

Owns how a report is written, and nothing of what is in one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

#: Shown for an absent fact.
ABSENT: Final = "-"
_INDENT: Final = "  "


class Part(Enum):
    """What a piece of a rendered line is, for a caller that styles it."""

    TITLE = "title"
    LABEL = "label"
    VALUE = "value"
    MARK = "mark"


Style = Callable[[Part, str], str]


def _plain(_part: Part, text: str) -> str:
    return text


class CheckResult(Enum):
    """The result of one check of a verification."""

    PASSED = "passed"
    NOT_DONE = "not checked"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ReportLine:
    """
    One line of a report.

    ``label`` is empty for an item of a list or a line of JSON; ``value`` is already escaped; ``mark`` is a remark on
    the value, for example ``self-asserted``; ``item`` is set for an item of a list, ``check`` for the result of a
    check.
    """

    label: str
    value: str = ""
    depth: int = 0
    mark: str = ""
    item: bool = False
    check: CheckResult | None = None

    def render(self, style: Style) -> str:
        """Write the line without its end; ``style`` wraps each piece."""
        pieces = [style(Part.LABEL, f"{self.label}:")] if self.label else []
        pieces += [style(Part.VALUE, f"- {self.value}" if self.item else self.value)] if self.value else []
        pieces += [style(Part.MARK, f"({self.mark})")] if self.mark else []
        return _INDENT * (self.depth + 1) + " ".join(pieces)


@dataclass(frozen=True, slots=True)
class Report:
    """A report: a title and its lines."""

    title: str
    lines: tuple[ReportLine, ...]

    def render(self, style: Style = _plain) -> str:
        """
        Write the report, each line with its end; ``style`` wraps titles, labels, values and marks, for example in
        colours.
        """
        lines = [style(Part.TITLE, self.title), *(line.render(style) for line in self.lines)]
        return "".join(f"{line}\n" for line in lines)

    def __str__(self) -> str:
        return self.render()

"""
Writes the table of statements into ``docs/mqtt.md``: ``python -m tests.wire.mqtt.page``.

The tables of the tests are the source; a test fails while the page differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.wire.mqtt import statements5, statements311
from tests.wire.mqtt.rows import Statement

PAGE = Path(__file__).parents[3] / "docs" / "mqtt.md"
BEGIN, END = "<!-- generated: statements -->\n", "<!-- end -->\n"


def table(statements: Sequence[Statement]) -> str:
    """Write one version's table, one row a statement and sender."""
    lines = ["| statement | demands | packets that keep it | that break it | refused with |", "|---|---|---:|---:|---|"]
    for each in sorted(statements, key=lambda one: [int(part) for part in one.number.replace("-", ".").split(".")]):
        codes = sorted({f"{error.__name__} 0x{error.mqtt_reason:02X}" for _, error in each.breaks})
        who = "" if each.sender == "client" else " (server)"
        refused = ", ".join(codes)
        lines.append(f"| {each.number} | {each.gist}{who} | {len(each.keeps)} | {len(each.breaks)} | {refused} |")
    return "\n".join(lines) + "\n"


def generated() -> str:
    """Write the text between the markers."""
    new, old = table(statements5.statements()), table(statements311.statements())
    return f"{BEGIN}\n## MQTT 5.0\n\n{new}\n## MQTT 3.1.1\n\n{old}\n{END}"


def refreshed(text: str) -> str:
    """Replace the tables in a page by the current ones."""
    before, rest = text.split(BEGIN)
    return before + generated() + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text()))

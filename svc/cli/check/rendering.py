"""Results of checks as lines of text and as a document. Pure; all texts of results are printable already."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from svc.checks.model import Level, Result, Results

SCHEMA: Final = "svc.check/1"
#: Findings of one check that are shown as text; the document has all.
MOST_SHOWN: Final = 20
#: On a terminal, and elsewhere.
_SIGNS: Final = {Level.OK: "√", Level.WARNING: "‼", Level.FAILED: "×"}
_WORDS: Final = {Level.OK: "ok  ", Level.WARNING: "warn", Level.FAILED: "fail"}
_COLOURS: Final = {Level.OK: "\x1b[32m", Level.WARNING: "\x1b[33m", Level.FAILED: "\x1b[31m"}
_PLAIN: Final = "\x1b[0m"


def as_text(results: Results, target: str, *, terminal: bool, colour: bool) -> str:
    """
    Write a line for each check, below it what was found with its remedy, and a summary.

    Args:
        target: what was checked.
        terminal: whether signs stand for the levels, else words.
        colour: whether signs and words have colours.
    """
    lines = [target, ""]
    for result in results.results:
        lines += _lines(result, terminal=terminal, colour=colour)
    lines += ["", summary(results)]
    return "".join(f"{line}\n" for line in lines)


def _lines(result: Result, *, terminal: bool, colour: bool) -> Iterator[str]:
    sign = (_SIGNS if terminal else _WORDS)[result.level]
    indent = " " * (len(sign) + 1)
    if colour:
        sign = f"{_COLOURS[result.level]}{sign}{_PLAIN}"
    yield f"{sign} {result.name}: {result.title}"
    # The worst first, of which none may be hidden behind warnings.
    ordered = sorted(result.findings, key=lambda each: each.level is not Level.FAILED)
    for finding in ordered[:MOST_SHOWN]:
        yield f"{indent}{finding.sentence} ({finding.code})"
        yield f"{indent}  {finding.remedy}"
    if (more := len(ordered) - MOST_SHOWN) > 0:
        yield f"{indent}and {more} more, which -o json has"


def summary(results: Results) -> str:
    """Return how many checks ended how."""
    ok, warnings, failed = map(results.count, (Level.OK, Level.WARNING, Level.FAILED))
    made = len(results.results)
    text = f"{made} check{'' if made == 1 else 's'}: {ok} ok, {warnings} with warnings, {failed} failed"
    return text + (f"; {len(results.not_made)} were not made" if results.not_made else "")


def as_document(results: Results, target: dict[str, Any]) -> dict[str, Any]:
    """
    Return the document of ``-o json``.

    Args:
        target: what was checked.
    """
    return {
        "v": 1,
        "schema": SCHEMA,
        "target": target,
        "level": results.level.value,
        "checks": [
            {
                "name": result.name,
                "title": result.title,
                "level": result.level.value,
                "findings": [
                    {"code": each.code, "level": each.level.value, "message": each.sentence, "remedy": each.remedy}
                    for each in result.findings
                ],
            }
            for result in results.results
        ],
        "notMade": list(results.not_made),
    }

"""The checks of ``svc check``: what each can find, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from docs.generator.pages import table
from svc.checks.model import Check


def checks(found: Sequence[Check[Any]]) -> str:
    """
    Write the table of some checks.

    Args:
        found: the checks.

    Returns:
        Its lines.
    """
    rows = []
    for check in found:
        rows.append((f"`{check.name}`", "", "", check.title, ""))
        rows += [
            ("", f"`{code}`", defect.level.value, _placeholders(defect.sentence), _placeholders(defect.remedy))
            for code, defect in check.defects.items()
        ]
    return table(("check", "code", "level", "what holds, or what is found", "what to do"), rows)


def _placeholders(text: str) -> str:
    return text.replace("{version!r}", "{version}").replace("{", "*").replace("}", "*")

"""Sections of ``CHANGELOG.md``."""

from __future__ import annotations

import re
from typing import Final

_HEADING: Final = re.compile(r"^## ([0-9]\S*) \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$", re.MULTILINE)


def newest_section(text: str) -> tuple[str, str]:
    """
    The first section of a changelog.

    Args:
        text: of the file.

    Returns:
        Its version, and the section without its ``##``; two empty texts where there is none.
    """
    headings = list(_HEADING.finditer(text))
    if not headings:
        return "", ""
    end = headings[1].start() if len(headings) > 1 else len(text)
    return headings[0][1], text[headings[0].start() : end].removeprefix("## ").strip() + "\n"

"""Versions of releases: three numbers, each release higher than all before (https://semver.org)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_VERSION: Final = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")


def _numbers(version: str) -> tuple[int, ...] | None:
    found = _VERSION.fullmatch(version)
    return tuple(map(int, found.groups())) if found else None


def newer_than_tags(version: str, tags: Iterable[str]) -> str:
    """
    What speaks against releasing a version; empty where nothing does.

    Args:
        version: of the sources.
        tags: of earlier releases, as ``v0.1.0``; others are passed over.
    """
    wanted = _numbers(version)
    if wanted is None:
        return f"the version {version} is not of the form 1.2.3"
    released = [numbers for tag in tags if (numbers := _numbers(tag.removeprefix("v"))) is not None]
    if released and wanted <= max(released):
        newest = ".".join(map(str, max(released)))
        return f"the version {version} is not newer than {newest}, which is tagged"
    return ""

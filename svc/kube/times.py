"""Times as objects have them: RFC 3339, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def to_time(moment: datetime) -> str:
    """Write a ``Time``: to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_time(text: object) -> datetime | None:
    """Read a ``Time`` or ``MicroTime``; None for what is none."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return None if moment is None or moment.tzinfo is None else moment


def to_micro_time(moment: datetime) -> str:
    """Write a ``MicroTime``, as leases and Events have it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

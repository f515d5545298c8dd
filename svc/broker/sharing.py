"""
What clients of the broker share by identity: who may have more, and who has most.

The rule is in :mod:`svc.shares`; here are its errors and reports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from svc.shares import SCARCE_PART, Holdings, fits_left


class LargestShare(NamedTuple):
    """Who has most of something, and what; an empty name where nobody has anything."""

    owner: str
    octets: int
    messages: int | None = None


#: Called with a reason of :data:`svc.broker.statistics.DROPS`, with the owner for which there is no room, and with what
#: finds who has most.
NoRoomObserver: TypeAlias = Callable[[str, str, Callable[[], LargestShare]], None]


def exceeded(holdings: Holdings[str], owner: str, limit: int) -> dict[str, str | int] | None:
    """Return the evidence of an error where an owner may not have one more of ``limit``; see :func:`fits_left`."""
    held = holdings.held(owner)
    if fits_left(held, 1, limit - holdings.total, limit // SCARCE_PART):
        return None
    most = holdings.most() or ""
    return {"taken": holdings.total, "limit": limit, "held": held, "most": most, "most_held": holdings.held(most)}

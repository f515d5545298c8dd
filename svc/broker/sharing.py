"""
What clients of the broker share by identity: who may have more, and who has most.

The rule is in :mod:`svc.shares`; here are its errors and reports, and the memory of all queues.
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


class QueueRoom:
    """The memory for the messages to all sessions together, by their owners."""

    def __init__(self, limit: int) -> None:
        self._scarce = limit // SCARCE_PART
        self._free = limit
        # Most changes are of somebody's octets: what sorts holders by them would cost more than a rare search.
        self._held: dict[str, int] = {}

    def fits(self, owner: str, octets: int) -> bool:
        """Whether an owner may have so many octets more."""
        return fits_left(self._held.get(owner, 0), octets, self._free, self._scarce)

    def take(self, owner: str, octets: int) -> None:
        """Count what an owner has more, or less where it is negative, whether it fits or not."""
        self._free -= octets
        held = self._held.get(owner, 0) + octets
        if held:
            self._held[owner] = held
        else:
            self._held.pop(owner, None)

    def most(self) -> LargestShare:
        """Who has most."""
        owner = max(self._held, key=self._held.__getitem__, default="")
        return LargestShare(owner, self._held.get(owner, 0))


def exceeded(holdings: Holdings[str], owner: str, limit: int) -> dict[str, str | int] | None:
    """Return the evidence of an error where an owner may not have one more of ``limit``; see :func:`fits_left`."""
    held = holdings.held(owner)
    if fits_left(held, 1, limit - holdings.total, limit // SCARCE_PART):
        return None
    most = holdings.most() or ""
    return {"taken": holdings.total, "limit": limit, "held": held, "most": most, "most_held": holdings.held(most)}

"""
What is reported of what clients of the broker share by identity: who has most of it.

The rule is in :mod:`svc.shares`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias


class LargestShare(NamedTuple):
    """Who has most of something, and what; an empty name where nobody has anything."""

    owner: str
    octets: int
    messages: int | None = None


#: Called with a reason of :data:`svc.broker.statistics.DROPS`, with the owner for which there is no room, and with what
#: finds who has most.
NoRoomObserver: TypeAlias = Callable[[str, str, Callable[[], LargestShare]], None]

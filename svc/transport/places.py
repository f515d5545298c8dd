"""
Places for peers who are not known yet, shared out so that nobody can keep the others out by doing nothing.

Owns who gives way when all places are taken: somebody of the address that holds most, and there the one that holds
longest. Knows addresses only as words; what is held is told to give way and does the rest itself.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final, Protocol, TypeVar

from svc.transport.errors import TransportError

_T = TypeVar("_T")

#: A provider gives a customer at least this much of IPv6: whoever holds one such address holds all of them.
_PREFIX: Final = 64


class Holder(Protocol):
    """What holds a place."""

    def give_way(self, error: TransportError) -> None:
        """End; the place is already somebody else's."""


def source_of(address: object) -> str:
    """
    Say whom the places of a connection count for.

    Args:
        address: the ``IAddress`` of the peer.

    Returns:
        The IPv4 address, the first half of the IPv6 address, or one word for everything local.
    """
    host = getattr(address, "host", None)
    if not isinstance(host, str):
        return "local"
    if ":" not in host:
        return host
    try:
        found = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, _PREFIX), strict=False))


def give_up_place(transport: object) -> None:
    """
    Let a transport's place among the connections of its listener be free at once, where it has one.

    Args:
        transport: of the connection that gives way.
    """
    give_up = getattr(transport, "give_up_place", None)
    if give_up is not None:
        give_up()


class Places:
    """
    A number of places.

    Args:
        maximum: how many there are; at least 1.
        error: what is raised, and told to those who give way; gets ``limit=maximum``.
        patience: seconds for which nobody gives way to somebody whose address holds as many places already; 0 where
            holding a place has cost nothing yet.

    Attributes:
        maximum: how many there are.
    """

    def __init__(self, maximum: int, error: type[TransportError], *, patience: float = 0.0) -> None:
        if maximum < 1:
            raise ValueError(f"there is at least 1 place, not {maximum}")
        self.maximum = maximum
        self._error = error
        self._patience = patience
        #: Source and time of each holder, the longest first.
        self._held: dict[Holder, tuple[str, float]] = {}
        #: The holders of each source, the longest first.
        self._sources: dict[str, dict[Holder, None]] = {}
        #: The sources that hold so many places, and the largest such number.
        self._sizes: dict[int, dict[str, None]] = {}
        self._most = 0

    @property
    def held(self) -> int:
        """How many are held now."""
        return len(self._held)

    def enter(self, holder: Holder, source: str, now: float) -> None:
        """
        Take a place; where there is none left somebody gives way.

        Args:
            holder: who holds it from now on.
            source: whom it counts for, see :func:`source_of`.
            now: the monotonic time.

        Raises:
            TransportError: of the class given at construction, when nobody has to give way.
        """
        if len(self._held) < self.maximum:
            self._take(holder, source, now)
            return
        leaving = self._least_entitled(source, now)
        if leaving is None:
            raise self._error(limit=self.maximum)
        self.leave(leaving)
        self._take(holder, source, now)
        leaving.give_way(self._error(limit=self.maximum))

    def leave(self, holder: Holder) -> None:
        """
        Give a place back.

        Args:
            holder: who held it; one that holds none is no error, since it may have had to give way.
        """
        found = self._held.pop(holder, None)
        if found is None:
            return
        source = found[0]
        holders = self._sources[source]
        del holders[holder]
        self._resize(source, len(holders) + 1, len(holders))
        if not holders:
            del self._sources[source]

    def dismiss(self) -> bool:
        """
        Let somebody give way to a need for something else than a place.

        Returns:
            Whether there was anybody.
        """
        if not self._held:
            return False
        leaving = self._of_most()
        self.leave(leaving)
        leaving.give_way(self._error(limit=self.maximum))
        return True

    def _take(self, holder: Holder, source: str, now: float) -> None:
        self._held[holder] = (source, now)
        holders = self._sources.setdefault(source, {})
        holders[holder] = None
        self._resize(source, len(holders) - 1, len(holders))

    def _resize(self, source: str, before: int, after: int) -> None:
        if before:
            same = self._sizes[before]
            del same[source]
            if not same:
                del self._sizes[before]
        if after:
            self._sizes.setdefault(after, {})[source] = None
        if after > self._most:
            self._most = after
        elif before == self._most and before not in self._sizes:
            # It was alone with the most, and has one less now.
            self._most = after

    def _of_most(self) -> Holder:
        return _first(self._sources[_first(self._sizes[self._most])])

    def _least_entitled(self, source: str, now: float) -> Holder | None:
        own = self._sources.get(source, {})
        if self._most > len(own) + 1:
            return self._of_most()
        for oldest in (_first(own) if own else None, _first(self._held)):
            if oldest is not None and now - self._held[oldest][1] >= self._patience:
                return oldest
        return None


def _first(those: dict[_T, Any]) -> _T:
    return next(iter(those))

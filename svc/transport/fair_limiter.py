"""
A limit on connections whose peers are not authenticated, shared fairly between source addresses.

At the limit the source that holds most slots loses its oldest one, so that no address can keep the others out by
holding connections open. The evicted connection closes itself.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final, Protocol, TypeVar

from svc.transport.errors import TransportError

_T = TypeVar("_T")

#: A provider assigns at least a /64 to a customer, who can use all addresses in it.
_IPV6_PREFIX: Final = 64


class LimitedConnection(Protocol):
    """A connection that holds a slot."""

    def evicted(self, error: TransportError) -> None:
        """Close; the slot already belongs to another connection."""


def source_network(address: object) -> str:
    """Return the IPv4 address or the IPv6 /64 of an ``IAddress``, by which slots are counted, or ``local``."""
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
    return str(ipaddress.IPv6Network((found, _IPV6_PREFIX), strict=False))


def release_slot(transport: object) -> None:
    """Free the slot of a transport under its listener's connection limit at once, where it has one."""
    release = getattr(transport, "release_slot", None)
    if release is not None:
        release()


class FairLimiter:
    """
    At most ``maximum`` slots, shared between sources.

    Args:
        maximum: at least 1.
        error: raised where no connection may be evicted, and passed to evicted ones, with ``limit=maximum``.
        grace: seconds for which a slot is not taken from a source that holds no more slots than the new one; 0 where
            a connection has cost no work yet.
    """

    def __init__(self, maximum: int, error: type[TransportError], *, grace: float = 0.0) -> None:
        if maximum < 1:
            raise ValueError(f"a limit is at least 1, not {maximum}")
        self.maximum = maximum
        self._error = error
        self._grace = grace
        #: Source and time of each connection, oldest first.
        self._held: dict[LimitedConnection, tuple[str, float]] = {}
        #: The connections of each source, oldest first.
        self._sources: dict[str, dict[LimitedConnection, None]] = {}
        #: The sources by the number of slots that they hold, and the largest such number.
        self._sizes: dict[int, dict[str, None]] = {}
        self._largest = 0

    @property
    def held(self) -> int:
        """How many slots are taken."""
        return len(self._held)

    def acquire(self, connection: LimitedConnection, source: str, now: float) -> None:
        """
        Take a slot at a monotonic time; at the limit another connection is evicted.

        Raises:
            TransportError: of the class given at construction, where no connection may be evicted.
        """
        if len(self._held) < self.maximum:
            self._add(connection, source, now)
            return
        candidate = self._eviction_candidate(source, now)
        if candidate is None:
            raise self._error(limit=self.maximum)
        self.release(candidate)
        self._add(connection, source, now)
        candidate.evicted(self._error(limit=self.maximum))

    def release(self, connection: LimitedConnection) -> None:
        """Free the slot of a connection; without effect where it holds none, since it may have been evicted."""
        found = self._held.pop(connection, None)
        if found is None:
            return
        source = found[0]
        connections = self._sources[source]
        del connections[connection]
        self._resize(source, len(connections) + 1, len(connections))
        if not connections:
            del self._sources[source]

    def evict(self) -> bool:
        """Evict the oldest connection of the source with most slots; returns whether there was one."""
        if not self._held:
            return False
        candidate = self._oldest_of_largest_source()
        self.release(candidate)
        candidate.evicted(self._error(limit=self.maximum))
        return True

    def evict_stalled(self, now: float) -> bool:
        """Evict the oldest connection where its grace period is over; returns whether it was."""
        if not self._held:
            return False
        oldest = _first(self._held)
        if now - self._held[oldest][1] < self._grace:
            return False
        self.release(oldest)
        oldest.evicted(self._error(limit=self.maximum))
        return True

    def _add(self, connection: LimitedConnection, source: str, now: float) -> None:
        self._held[connection] = (source, now)
        connections = self._sources.setdefault(source, {})
        connections[connection] = None
        self._resize(source, len(connections) - 1, len(connections))

    def _resize(self, source: str, before: int, after: int) -> None:
        if before:
            same = self._sizes[before]
            del same[source]
            if not same:
                del self._sizes[before]
        if after:
            self._sizes.setdefault(after, {})[source] = None
        if after > self._largest:
            self._largest = after
        elif before == self._largest and before not in self._sizes:
            # It was the only source with the largest number, and now holds one slot less.
            self._largest = after

    def _oldest_of_largest_source(self) -> LimitedConnection:
        return _first(self._sources[_first(self._sizes[self._largest])])

    def _eviction_candidate(self, source: str, now: float) -> LimitedConnection | None:
        own = self._sources.get(source, {})
        if self._largest > len(own) + 1:
            return self._oldest_of_largest_source()
        for oldest in (_first(own) if own else None, _first(self._held)):
            if oldest is not None and now - self._held[oldest][1] >= self._grace:
                return oldest
        return None


def _first(those: dict[_T, Any]) -> _T:
    return next(iter(those))

"""
Which connection a full listener closes for a new one.

Owns the order; who holds most is known by :mod:`svc.shares`. HTTP: first the connections that were never permitted a
request, then the idle ones of the identity that holds most, the longest idle first in both; a connection with an
exchange under way is in no order, so it is never evicted. TCP, where a connection without traffic may still be in use:
an identity that holds more than that of the new connection would loses its longest idle one. MQTT: as TCP, and before
that one that closes already and waits for its client or broker. Nothing here acts before the listener is full. Pure: a
connection frees its slot and closes by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import ClassVar, Final, Protocol

from svc.errors import Reason, SvcError
from svc.identity import SpiffeID
from svc.shares import Holdings
from svc.transport.errors import ConnectionLimitReached

#: Identities looked at for one new connection, largest first: a tenth of a millisecond where none is idle.
MOST_SHARES: Final = 1024


class ConnectionEvicted(SvcError):
    """the listener has all of its {limit} connections"""

    http_status = 503
    reasons: ClassVar[Mapping[str, Reason]] = {
        "evicted_unpermitted": Reason(
            "the listener has all of its {limit} connections, and this one was never permitted a request",
            hint="an identity that the policy refuses holds connections open: the record names it",
        ),
        "evicted_idle": Reason(
            "the listener has all of its {limit} connections,"
            " and this one was idle longest of the identity that holds most",
            hint="raise `limits.connections`, shorten `timeouts.idle`, or let the clients keep fewer idle connections",
        ),
    }


class EvictableConnection(Protocol):
    """A connection that may be closed for another one."""

    @property
    def evictable(self) -> bool:
        """Whether a client would lose nothing but an idle connection; asked of connections that were permitted."""

    def evict(self, error: SvcError) -> None:
        """Free the slot at once and close."""


#: The longest idle first. A connection removes itself where an exchange begins and adds itself where it ends.
IdleConnections = dict[EvictableConnection, None]


class IdentityShare:
    """An identity that holds connections of a listener, and which of them are idle after a permit."""

    __slots__ = ("identity", "idle")

    def __init__(self, identity: SpiffeID | None) -> None:
        self.identity = identity
        self.idle: IdleConnections = {}

    def used(self, connection: EvictableConnection) -> None:
        """Move a connection with activity behind the others."""
        if connection in self.idle:
            del self.idle[connection]
            self.idle[connection] = None


class EvictionOrder:
    """
    The connections of one listener in the order of their eviction.

    HTTP connections :meth:`join` when they are accepted, TCP connections are let in by :meth:`admit`.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        #: Those that were never permitted a request; identity and time of the handshake permit nothing.
        self.unpermitted: IdleConnections = {}
        #: Those that close in order and whose client has not answered yet, and those that hold a share until then.
        self.closing: IdleConnections = {}
        self.leaving: IdleConnections = {}
        self._shares: dict[SpiffeID | None, IdentityShare] = {}
        #: How many connections each holds.
        self._held: Holdings[IdentityShare] = Holdings()

    def join(self, connection: EvictableConnection, identity: SpiffeID | None) -> IdentityShare:
        """Count a new connection, idle and without a permit; plain clients of this machine are one holder, ``None``."""
        share = self._count(identity)
        self.unpermitted[connection] = None
        return share

    def admit(self, connection: EvictableConnection, identity: SpiffeID | None) -> IdentityShare:
        """
        Count a new connection that is permitted already; at the limit one that closes already, or another one, is
        evicted for it.

        Raises:
            ConnectionLimitReached: no identity holds more than that of the new connection would.
        """
        if self._held.total >= self._limit and not self._evict_first(
            self.leaving, ConnectionEvicted("evicted_idle", limit=self._limit)
        ):
            own = self._shares.get(identity)
            largest = self._held.most()
            if largest is None or self._held.held(largest) <= (0 if own is None else self._held.held(own)) + 1:
                raise ConnectionLimitReached(limit=self._limit)
            longest_idle = next(iter(largest.idle))
            longest_idle.evict(ConnectionEvicted("evicted_idle", limit=self._limit))
        share = self._count(identity)
        share.idle[connection] = None
        return share

    def _count(self, identity: SpiffeID | None) -> IdentityShare:
        share = self._shares.get(identity)
        if share is None:
            share = self._shares[identity] = IdentityShare(identity)
        self._held.change(share, 1)
        return share

    def leave(self, connection: EvictableConnection, share: IdentityShare) -> None:
        """Remove a connection that is gone."""
        self.unpermitted.pop(connection, None)
        self.leaving.pop(connection, None)
        share.idle.pop(connection, None)
        self._held.change(share, -1)
        if not self._held.held(share):
            del self._shares[share.identity]

    def evict_unpermitted(self) -> bool:
        """Evict the longest idle connection that was never permitted a request; returns whether there was one."""
        return self._evict_first(self.unpermitted, ConnectionEvicted("evicted_unpermitted", limit=self._limit))

    def evict_closing(self) -> bool:
        """Drop the connection that closes longest; returns whether there was one."""
        return self._evict_first(self.closing, ConnectionEvicted("evicted_idle", limit=self._limit))

    def _evict_first(self, connections: IdleConnections, error: ConnectionEvicted) -> bool:
        for connection in connections:
            del connections[connection]
            connection.evict(error)
            return True
        return False

    def evict_idle(self) -> bool:
        """Evict the longest idle connection of the identity with most connections; returns whether there was one."""
        for share in islice(self._held.largest_first(), MOST_SHARES):
            connection = _longest_idle(share.idle)
            if connection is not None:
                connection.evict(ConnectionEvicted("evicted_idle", limit=self._limit))
                return True
        return False


def _longest_idle(idle: IdleConnections) -> EvictableConnection | None:
    """Take the first that is still idle; one whose next request has begun adds itself again after its response."""
    while idle:
        connection = next(iter(idle))
        del idle[connection]
        if connection.evictable:
            return connection
    return None

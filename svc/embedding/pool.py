"""
The connections of an agent: opened for an exchange, kept open after it, and verified again before they are reused.

Owns the limits. As Twisted's ``HTTPConnectionPool`` it keeps a few idle connections for each server for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint

from svc.client.connection import ChannelFactory, HttpChannel, OpenConnection, address_of
from svc.client.target import Target
from svc.embedding.errors import EmbeddingError
from svc.errors import SvcError
from svc.identity import ExactID, Matcher
from svc.transport.addresses import TcpAddress
from svc.transport.evidence import PeerEvidence, peer_evidence

#: Idle connections of all servers together.
MAX_IDLE: Final = 256

#: Makes the endpoint of an address; the last argument is the name for TLS, or None.
Connect = Callable[[TcpAddress, Matcher, str | None], IStreamClientEndpoint]


@dataclass(frozen=True)
class PoolLimits:
    """
    Limits of an agent.

    Args:
        requests: exchanges at the same time.
        idle_per_host: connections kept open for each host and port.
        idle_seconds: how long each is kept.
    """

    requests: int = 256
    idle_per_host: int = 2
    idle_seconds: float = 240.0


@dataclass(eq=False)
class _Idle:
    key: tuple[str, int]
    connection: OpenConnection
    timer: IDelayedCall


class ConnectionPool:
    """
    Opens and keeps connections.

    Args:
        reactor: the reactor.
        connect: makes endpoints.
        reauthorize: raises an ``SvcError`` where a peer that was verified before would now be refused.
        limits: how many.
    """

    def __init__(
        self, reactor: Any, connect: Connect, reauthorize: Callable[[PeerEvidence], None], limits: PoolLimits
    ) -> None:
        self._reactor = reactor
        self._connect = connect
        self._reauthorize = reauthorize
        self._limits = limits
        self._idle: list[_Idle] = []
        self._exchanges = 0
        self._closed = False

    def begin(self) -> None:
        """
        Count an exchange.

        Raises:
            EmbeddingError: ``requests_limit``, there are too many.
        """
        if self._exchanges >= self._limits.requests:
            raise EmbeddingError("requests_limit", limit=self._limits.requests)
        self._exchanges += 1

    def end(self) -> None:
        """Count an exchange no more."""
        self._exchanges -= 1

    async def dial(self, target: Target, expected: Matcher, previous: OpenConnection | None) -> OpenConnection:
        """Take an idle connection, or open one; see :class:`svc.client.exchange.ExchangeContext`."""
        if previous is None:
            idle = self._take((target.host, target.port))
            if idle is not None:
                return idle
        elif previous.peer is not None:
            expected = ExactID(previous.peer.svid.spiffe_id)
        endpoint = self._connect(address_of(target, previous), expected, target.server_name)
        channel = cast(HttpChannel, await endpoint.connect(ChannelFactory(target)))
        return OpenConnection(channel, peer_evidence(channel.transport))

    def release(self, target: Target, connection: OpenConnection, *, keep: bool) -> None:
        """
        Keep the connection of an exchange that has ended, or close it.

        Args:
            keep: whether the exchange succeeded.
        """
        key = (target.host, target.port)
        kept = sum(each.key == key for each in self._idle)
        room = kept < self._limits.idle_per_host and len(self._idle) < MAX_IDLE and not self._closed
        if not (keep and room and connection.channel.usable):
            connection.channel.close()
            return
        connection.channel.resume()
        idle = _Idle(key, replace(connection, reused=True), cast(IDelayedCall, None))
        idle.timer = self._reactor.callLater(self._limits.idle_seconds, self._expire, idle)
        self._idle.append(idle)

    def close(self) -> Deferred[None]:
        """Close the idle connections; those in use are closed when their exchanges end."""
        self._closed = True
        idle, self._idle = self._idle, []
        for each in idle:
            each.timer.cancel()
            each.connection.channel.close()
        return succeed(None)

    def _take(self, key: tuple[str, int]) -> OpenConnection | None:
        for each in reversed([each for each in self._idle if each.key == key]):
            self._idle.remove(each)
            each.timer.cancel()
            channel, peer = each.connection.channel, each.connection.peer
            if not channel.usable or peer is None:
                continue
            try:
                self._reauthorize(peer)
            except SvcError:  # a new connection reports what is wrong
                channel.close()
                continue
            return each.connection
        return None

    def _expire(self, idle: _Idle) -> None:
        self._idle.remove(idle)
        idle.connection.channel.close()

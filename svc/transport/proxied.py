"""
Connections from a load balancer that sends the client's address by the PROXY protocol.

Sits between TCP and TLS: removes the header, then builds the protocol above with the client's own address. The header
is not authenticated: its address is for logs and limits only, never an identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IHalfCloseableProtocol,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
    ITransport,
)
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure
from zope.interface import directlyProvides, implementer, providedBy

from svc.transport.errors import TransportError
from svc.transport.fair_limiter import FairLimiter, release_slot, source_network
from svc.wire.proxyprotocol import ProxyHeaderInvalid, ProxyHeaderParser


class ProxiedTransport:
    """A transport that returns the client's address of the header as its peer; everything else is forwarded."""

    def __init__(self, transport: Any, peer: IAddress) -> None:
        self._transport = transport
        self._peer = peer
        directlyProvides(self, providedBy(transport))

    def getPeer(self) -> IAddress:
        """The client's address."""
        return self._peer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@implementer(IHalfCloseableProtocol)
class ProxiedConnection(Protocol):
    """Reads the header, then forwards to the protocol above."""

    factory: ProxiedFactory

    def __init__(self, factory: ProxiedFactory) -> None:
        self._parser: ProxyHeaderParser | None = ProxyHeaderParser()
        self.factory = factory
        self._timer: IDelayedCall | None = None
        self._above: IProtocol | None = None

    def connectionMade(self) -> None:
        """Start the timeout of the header, and count the connection among those that have not sent any data."""
        factory = self.factory
        self._timer = factory.clock.callLater(factory.timeout, self._refuse, "timeout")
        if factory.waiting is not None:
            factory.waiting.acquire(self, source_network(self.transport.getPeer()), factory.clock.seconds())  # type: ignore[union-attr]

    def evicted(self, error: TransportError) -> None:
        """See :class:`svc.transport.fair_limiter.LimitedConnection`."""
        release_slot(self.transport)
        self._end(error.reason)

    def dataReceived(self, data: bytes) -> None:
        """Receive octets of the header, or of the connection above."""
        if self._above is not None:
            self._above.dataReceived(data)
        elif self._parser is not None:
            try:
                found = self._parser.feed(data)
            except ProxyHeaderInvalid as error:
                self._refuse(error.reason)
                return
            if found is not None:
                self._connect_above(found[0].source, found[1])

    def readConnectionLost(self) -> None:
        """The client sends no more: the protocol above may still send, without one it is the end."""
        half: Any = IHalfCloseableProtocol(self._above, None)
        if half is not None:
            half.readConnectionLost()
        else:
            cast(Any, self.transport).connectionLost(Failure(ConnectionDone()))

    def writeConnectionLost(self) -> None:
        """TCP is never closed in one direction by the protocol above."""

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 (Twisted's signature)
        """The connection ended."""
        self._cancel()
        above, self._above = self._above, None
        if above is not None:
            above.connectionLost(reason)

    def _connect_above(self, source: tuple[str, int] | None, rest: bytes) -> None:
        self._cancel()
        self._parser = None
        transport: Any = self.transport
        peer = _address(source) if source is not None else transport.getPeer()
        above = self.factory.wrapped.buildProtocol(peer)
        if above is None:
            transport.abortConnection()
            return
        self._above = above
        above.makeConnection(cast(ITransport, ProxiedTransport(transport, peer)))
        if rest and self._above is not None:
            above.dataReceived(rest)

    def _refuse(self, reason: str) -> None:
        self._end("proxy_header_invalid" if reason != "timeout" else "proxy_header_timeout")

    def _end(self, reason: str) -> None:
        self._cancel()
        self._parser = None
        transport: Any = self.transport
        self.factory.refused(reason, transport)
        transport.abortConnection()

    def _cancel(self) -> None:
        if self.factory.waiting is not None:
            self.factory.waiting.release(self)
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()


class ProxiedFactory(Factory):
    """
    Reads the header before another factory's protocols are built.

    Args:
        wrapped: builds the protocol above, with the client's address.
        clock: measures the timeout.
        timeout: seconds until the header must be complete.
        refused: called with the reason and the transport of a connection without a valid header.
        waiting: bounds the connections whose header is not complete, or None.
    """

    noisy = False

    def __init__(
        self,
        wrapped: IProtocolFactory,
        *,
        clock: IReactorTime,
        timeout: float,
        refused: Callable[[str, Any], None],
        waiting: FairLimiter | None = None,
    ) -> None:
        self.wrapped = wrapped
        self.clock = clock
        self.timeout = timeout
        self.refused = refused
        self.waiting = waiting

    def doStart(self) -> None:
        """Start the factory above."""
        super().doStart()
        self.wrapped.doStart()

    def doStop(self) -> None:
        """Stop the factory above."""
        self.wrapped.doStop()
        super().doStop()

    def buildProtocol(self, addr: IAddress | None) -> ProxiedConnection:  # type: ignore[override]  # it has its factory
        """Build the reader of one header."""
        return ProxiedConnection(self)


def _address(source: tuple[str, int]) -> IAddress:
    host, port = source
    return IPv6Address("TCP", host, port) if ":" in host else IPv4Address("TCP", host, port)

"""
TCP ports and connectors whose connections are counted, and use the fast transports where these are selected.

Owns the connection limit at accept, dual-stack listening and when producers are paused. Does not depend on TLS.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any, Final

from twisted.internet import tcp
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IListeningPort, IProtocol, IProtocolFactory
from twisted.internet.posixbase import PosixReactorBase
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.transport.errors import TransportError
from svc.transport.fast.eager import DirectReads, EagerWrites, with_own_methods
from svc.transport.limits import Limit

#: The amount of unsent data beyond which a streaming producer is paused: at most this and one read is buffered for a
#: peer that does not read.
PAUSE_SIZE: Final = 32 * 1024
BACKLOG: Final = 1024
#: The prefix of IPv4 peers on IPv6 sockets (RFC 4291, section 2.5.5.2).
_MAPPED: Final = "::ffff:"
#: Errors of a host without IPv6.
_NO_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})


class _PausesAtRegistration:
    """A mixin that pauses a streaming producer at its registration where too much data is unsent."""

    bufferSize: int
    producer: Any
    producerPaused: bool

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Register a producer; see ``IConsumer.registerProducer``. Twisted pauses it only after its first write."""
        super().registerProducer(producer, streaming)  # type: ignore[misc]
        if streaming and self.producer is producer and _unsent(self) > self.bufferSize:
            self.producerPaused = True
            producer.pauseProducing()


class StockServer(_PausesAtRegistration, tcp.Server):
    """Twisted's server connection, which frees its slot under the listener's limit when it ends."""

    bufferSize = PAUSE_SIZE
    _counted = True

    def __init__(
        self, sock: socket.socket, protocol: Any, client: Any, server: Any, sessionno: int, reactor: Any
    ) -> None:
        # Twisted's own also formats two texts for each connection, for its repr and log prefix.
        tcp.Connection.__init__(self, sock, protocol, reactor)
        client = _unmapped(client)
        if len(client) != 2:
            self._addressType = IPv6Address
        self.server, self.client, self.sessionno = server, client, sessionno
        self.startReading()
        self.connected = 1

    def __repr__(self) -> str:
        return f"<{type(self).__name__} #{self.sessionno} of {self.client[0]}>"

    def getHost(self) -> IPv4Address | IPv6Address:
        """The local address."""
        return _tcp_address(self.socket.getsockname())

    @property
    def unsent(self) -> int:
        """How many written octets the socket has not taken."""
        return _unsent(self)

    def release_slot(self) -> None:
        """Free the slot under the listener's limit, once; also called early for a connection that is closing."""
        if self._counted:
            self._counted = False
            limit = getattr(self.server, "connection_limit", None)
            if limit is not None:
                limit.release()

    def connectionLost(self, reason: Failure) -> None:
        """Free the slot and clean up."""
        self.release_slot()
        super().connectionLost(reason)


class StockClient(_PausesAtRegistration, tcp.Client):
    """Twisted's client connection, without Nagle's algorithm."""

    bufferSize = PAUSE_SIZE

    @property
    def unsent(self) -> int:
        """How many written octets the socket has not taken."""
        return _unsent(self)

    def _connectDone(self) -> None:
        _set_nodelay(self.socket)
        super()._connectDone()
        connected = getattr(self.connector.factory, "transport_connected", None)
        if connected is not None:
            connected()


@with_own_methods
class EagerServer(EagerWrites, DirectReads, StockServer):  # type: ignore[misc]
    """A server connection with eager writes and direct reads."""


@with_own_methods
class EagerClient(EagerWrites, DirectReads, StockClient):  # type: ignore[misc]
    """A client connection with eager writes and direct reads."""


def _unsent(transport: Any) -> int:
    return int(len(transport.dataBuffer) - transport.offset + transport._tempDataLen)


def _set_nodelay(sock: socket.socket) -> None:
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _unmapped(name: Any) -> Any:
    """Convert the socket name of an IPv4 peer of a dual-stack port to that of an IPv4 socket."""
    host = name[0]
    return (host.removeprefix(_MAPPED), name[1]) if len(name) == 4 and host.startswith(_MAPPED) else name


def _tcp_address(name: Any) -> IPv4Address | IPv6Address:
    name = _unmapped(name)
    return IPv4Address("TCP", *name) if len(name) == 2 else IPv6Address("TCP", *name)


class _LimitedFactory:
    """Wraps a listener's factory; closes connections above the limit at accept."""

    def __init__(
        self,
        factory: IProtocolFactory,
        limit: Limit,
        refused: Callable[[TransportError, IAddress], None],
        evict: Callable[[], bool] | None,
    ) -> None:
        self.factory = factory
        self._limit = limit
        self._refused = refused
        self._evict = evict

    def buildProtocol(self, addr: IAddress) -> IProtocol | None:
        if self._evict is not None and self._limit.held >= self._limit.maximum:
            self._evict()
        try:
            self._limit.acquire()
        except TransportError as error:
            self._refused(error, addr)
            return None
        try:
            protocol = self.factory.buildProtocol(addr)
        except BaseException:
            self._limit.release()
            raise
        if protocol is None:
            self._limit.release()
        return protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self.factory, name)


@implementer(IListeningPort)
class ListeningPort(tcp.Port):
    """A TCP port whose connections are counted against a limit; on an IPv6 wildcard it accepts IPv4 too."""

    transport: type[StockServer] = StockServer
    connection_limit: Limit | None = None

    def createInternetSocket(self) -> socket.socket:
        """Create the socket; an IPv6 wildcard includes IPv4 whatever ``net.ipv6.bindv6only`` says."""
        sock: socket.socket = super().createInternetSocket()
        if self.addressFamily == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        return sock

    def startListening(self) -> None:
        """Listen, without Nagle's algorithm for the connections, which inherit the option from the port."""
        super().startListening()
        _set_nodelay(self.socket)

    def _buildAddr(self, name: Any) -> IPv4Address | IPv6Address:
        return _tcp_address(name)


class _Connector(tcp.Connector):
    transport_class: type[StockClient] = StockClient

    def _makeTransport(self) -> tcp.Client:
        return self.transport_class(self.host, self.port, self.bindAddress, self, self.reactor)


def listen_tcp(
    reactor: Any,
    host: str,
    port: int,
    factory: Any,
    *,
    backlog: int = BACKLOG,
    eager: bool = True,
    limit: Limit | None = None,
    refused: Callable[[TransportError, IAddress], None] | None = None,
    evict: Callable[[], bool] | None = None,
) -> Any:
    """
    Listen on a TCP port; a reactor that is not a POSIX one listens with its own transports.

    Args:
        host: the interface to bind; empty for all of IPv6 and IPv4, or of IPv4 alone on a host without IPv6.
        factory: builds the protocol of each connection; None from it closes the connection.
        limit: bounds the open connections.
        refused: called for each connection above ``limit``.
        evict: called at ``limit`` to close another connection; returns whether it did.

    Raises:
        twisted.internet.error.CannotListenError: the port is taken or may not be bound.
    """
    if not isinstance(reactor, PosixReactorBase):
        return reactor.listenTCP(port, factory, backlog=backlog, interface=host)
    if limit is not None:
        factory = _LimitedFactory(factory, limit, refused or (lambda error, addr: None), evict)

    def listen(interface: str) -> ListeningPort:
        listening = ListeningPort(port, factory, backlog, interface, reactor)
        listening.transport = EagerServer if eager else StockServer
        listening.connection_limit = limit
        listening.startListening()
        return listening

    if host:
        return listen(host)
    try:
        return listen("::")
    except CannotListenError as error:
        # Without the address family getaddrinfo fails instead of bind.
        if error.socketError.errno not in _NO_IPV6 and not isinstance(error.socketError, socket.gaierror):
            raise
    return listen("")


def connect_tcp(
    reactor: Any,
    host: str,
    port: int,
    factory: Any,
    *,
    timeout: float = 30,
    bind_address: tuple[str, int] | None = None,
    eager: bool = True,
) -> Any:
    """Open a TCP connection; a reactor that is not a POSIX one connects with its own transports."""
    if not isinstance(reactor, PosixReactorBase):
        return reactor.connectTCP(host, port, factory, timeout, bind_address)
    connector = _Connector(host, port, factory, timeout, bind_address, reactor)
    connector.transport_class = EagerClient if eager else StockClient
    connector.connect()
    return connector

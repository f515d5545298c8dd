"""
TCP transports that send at once what the socket takes at once.

Twisted's transports buffer each write and send it on the next turn of the reactor. These try ``send`` in ``write``
when nothing is buffered, or at the end of the reactor's round where the write is small and the reactor has rounds, and
fall back to Twisted's buffering for what remains, so order, back-pressure and error reporting stay Twisted's: an error
of ``send`` is never reported from inside ``write``, the reactor finds it on the next turn. Knows nothing of TLS.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Any, Final

from twisted.internet import abstract, tcp
from twisted.internet.address import IPv6Address
from twisted.internet.interfaces import IAddress, IListeningPort, IProtocol, IProtocolFactory
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.internet.posixbase import PosixReactorBase
from twisted.python import log
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.transport.errors import TransportError
from svc.transport.limits import Limit
from svc.transport.rounds import MOST_OCTETS, SendRound

#: One read takes up to this much; also the amount of unsent data at which a streaming producer is paused. With its
#: object it stays below 128 KiB, from which on the C library gets and gives back each buffer by calls to the system.
READ_SIZE: Final = 128 * 1024 - 64
BACKLOG: Final = 1024

_DONE: Final = Failure(CONNECTION_DONE)

#: The private names of Twisted that ``EagerWrites`` relies on.
REQUIRED_NAMES: Final = (
    "_tempDataBuffer",
    "_tempDataLen",
    "_writeDisconnected",
    "_writeDisconnecting",
    "dataBuffer",
    "disconnecting",
    "offset",
)
REQUIRED_CONNECTION: Final = ("_aborting", "TLS")


class EagerWrites:
    """
    A mixin before ``tcp.Server`` or ``tcp.Client`` that sends from ``write`` when nothing is buffered.

    Pull producers and transports that were upgraded with ``startTLS`` keep Twisted's own path: the former are driven
    by the buffer running empty, the latter do their own buffering.
    """

    # What the base class provides.
    socket: socket.socket
    connected: int
    dataBuffer: bytes
    producer: Any
    streamingProducer: bool
    TLS: bool
    _tempDataBuffer: list[bytes]
    _tempDataLen: int
    _writeDisconnected: bool
    _writeDisconnecting: bool
    _aborting: bool
    disconnecting: int
    reactor: Any
    startWriting: Callable[[], None]
    stopReading: Callable[[], None]
    connectionLost: Callable[[Failure], None]

    _waits = False
    """Whether Twisted's buffer holds what :meth:`send_gathered` will send, so that the reactor is not asked to."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Each write asks for these; Twisted leaves them on its classes, where the interpreter looks for them anew.
        self.TLS = self._aborting = self._waits = self._writeDisconnected = self._writeDisconnecting = False
        self.dataBuffer, self.disconnecting, self.producer, self.streamingProducer = b"", 0, None, False
        super().__init__(*args, **kwargs)

    def write(self, data: bytes) -> None:
        """
        Send or buffer octets; see ``ITransport.write``.

        Args:
            data: what to send, in order after everything written before.
        """
        if self._waits and self._joins(data):
            return
        if (
            self._tempDataBuffer
            or self.dataBuffer
            or not self.connected
            or self._writeDisconnected
            or self.TLS
            or (self.producer is not None and not self.streamingProducer)
            or not data
        ):
            super().write(data)  # type: ignore[misc]
            return
        if self._aborting:
            return
        sends: SendRound | None = getattr(self.reactor, "send_round", None)
        if sends is None or len(data) > MOST_OCTETS or type(data) is not bytes:
            self._send(data)
            return
        self._waits = True
        self._tempDataBuffer.append(data)
        self._tempDataLen = len(data)
        sends.add(self)

    def _joins(self, data: bytes) -> bool:
        """Add octets to those that wait for the end of the round; where that cannot be, send those that wait."""
        size = self._tempDataLen + len(data)
        pulled = self.producer is not None and not self.streamingProducer
        if type(data) is bytes and size <= MOST_OCTETS and not (pulled or self.TLS):
            self._tempDataBuffer.append(data)
            self._tempDataLen = size
            return True
        self.send_gathered()
        return False

    def _send(self, data: bytes) -> None:
        try:
            sent = self.socket.send(data)
        except OSError:
            # Full, or broken: the buffered path meets the same condition on the reactor's next turn and reports it
            # there.
            sent = 0
        if sent != len(data):
            abstract.FileDescriptor.write(self, data[sent:] if sent else data)  # type: ignore[arg-type]

    def send_gathered(self) -> None:
        """Send what was written in this round, unless Twisted's own path has taken that over meanwhile."""
        self._waits = False
        gathered = self._tempDataBuffer
        if (
            not gathered
            or self.dataBuffer
            or not self.connected
            or self.disconnecting
            or self._writeDisconnecting
            or self._writeDisconnected
            or self._aborting
        ):
            return
        self._tempDataBuffer = []
        self._tempDataLen = 0
        self._send(gathered[0] if len(gathered) == 1 else b"".join(gathered))

    def loseConnection(self) -> None:
        """
        Close once everything is sent; see ``ITransport.loseConnection``.

        With nothing left to send that is the end of the round. Twisted has it when the socket can be written to, which
        takes two calls of epoll, another round and a send of nothing.
        """
        sends: SendRound | None = getattr(self.reactor, "send_round", None)
        if self._waits:
            self.send_gathered()
        if sends is None or self._is_busy or self.disconnecting or not self.connected or self.TLS:
            super().loseConnection()  # type: ignore[misc]
            return
        self.stopReading()
        self.disconnecting = 1
        sends.add_closing(self)

    @property
    def _is_busy(self) -> bool:
        """Whether Twisted has to see to something before the end."""
        return bool(
            self.dataBuffer
            or self._tempDataBuffer
            or self.producer is not None
            or self._writeDisconnecting
            or self._writeDisconnected
        )

    def close_gathered(self) -> None:
        """Close, unless something was written since; an error of the protocol is logged, as by Twisted's reactors."""
        if self._is_busy:
            self.startWriting()
        elif self.connected and not self._aborting:
            try:
                self.connectionLost(_DONE)
            except BaseException:  # noqa: BLE001 (an error ends its connection, not the reactor)
                log.err()

    def abortConnection(self) -> None:
        """Drop the connection; what was written before, such as a TLS alert, is on its way."""
        if self._waits:
            self.send_gathered()
        super().abortConnection()  # type: ignore[misc]

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """
        Send or buffer several pieces as one; see ``ITransport.writeSequence``.

        Args:
            iovec: the pieces in order.
        """
        self.write(b"".join(iovec))


class _PausesAtOnce:
    """A mixin that pauses a streaming producer already at its registration where too much is unsent."""

    bufferSize: int
    producer: Any
    producerPaused: bool

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """
        Take a producer; see ``IConsumer.registerProducer``. Twisted would pause it only after its first write.

        Args:
            producer: asked to resume when what is unsent is gone.
            streaming: whether it is a push producer.
        """
        super().registerProducer(producer, streaming)  # type: ignore[misc]
        if streaming and self.producer is producer and _unsent(self) > self.bufferSize:
            self.producerPaused = True
            producer.pauseProducing()


class DirectReads:
    """A mixin before ``tcp.Server`` or ``tcp.Client`` that hands what was read straight to the protocol."""

    # What the base class provides.
    socket: socket.socket
    protocol: Any
    bufferSize: int

    def doRead(self) -> BaseException | None:
        """
        Read once; see ``IReadDescriptor.doRead``.

        Returns:
            Why the connection is over, or None.
        """
        try:
            data = self.socket.recv(self.bufferSize)
        except BlockingIOError:
            return None
        except OSError:
            return CONNECTION_LOST
        if not data:
            return CONNECTION_DONE
        self.protocol.dataReceived(data)
        return None


class _CountedServer(_PausesAtOnce, tcp.Server):
    """A server connection that gives its place under the listener's limit back when it is gone."""

    bufferSize = READ_SIZE
    _counted = True

    def __init__(
        self, sock: socket.socket, protocol: Any, client: Any, server: Any, sessionno: int, reactor: Any
    ) -> None:
        # Twisted's own writes two texts for each connection, that nobody reads but a person who looks for a fault.
        tcp.Connection.__init__(self, sock, protocol, reactor)
        if len(client) != 2:
            self._addressType = IPv6Address
        self.server, self.client, self.sessionno = server, client, sessionno
        self.startReading()
        self.connected = 1

    def __repr__(self) -> str:
        return f"<{type(self).__name__} #{self.sessionno} of {self.client[0]}>"

    @property
    def unsent(self) -> int:
        """How many written octets the socket has not taken yet."""
        return _unsent(self)

    def give_up_place(self) -> None:
        """Give the place under the listener's limit back, once; what does so before its end is about to end."""
        if self._counted:
            self._counted = False
            limit = getattr(self.server, "connection_limit", None)
            if limit is not None:
                limit.release()

    def connectionLost(self, reason: Failure) -> None:
        """
        Clean up, once.

        Args:
            reason: why the connection ended.
        """
        self.give_up_place()
        super().connectionLost(reason)


class _BufferedClient(_PausesAtOnce, tcp.Client):
    bufferSize = READ_SIZE

    @property
    def unsent(self) -> int:
        """How many written octets the socket has not taken yet."""
        return _unsent(self)

    def _connectDone(self) -> None:
        _set_nodelay(self.socket)
        super()._connectDone()
        told = getattr(self.connector.factory, "transport_connected", None)
        if told is not None:
            told()


class StockServer(_CountedServer):
    """Twisted's server connection, counted."""


class StockClient(_BufferedClient):
    """Twisted's client connection."""


class EagerServer(EagerWrites, DirectReads, _CountedServer):  # type: ignore[misc]
    """A server connection with eager writes and direct reads."""


class EagerClient(EagerWrites, DirectReads, _BufferedClient):  # type: ignore[misc]
    """A client connection with eager writes and direct reads."""


def _unsent(transport: Any) -> int:
    return int(len(transport.dataBuffer) - transport.offset + transport._tempDataLen)


def _set_nodelay(sock: socket.socket) -> None:
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class _Admission:
    """Stands before a listener's factory and closes, at accept, what a limit does not admit."""

    def __init__(
        self,
        factory: IProtocolFactory,
        limit: Limit,
        refused: Callable[[TransportError, IAddress], None],
        make_room: Callable[[], bool] | None,
    ) -> None:
        self.factory = factory
        self._limit = limit
        self._refused = refused
        self._make_room = make_room

    def buildProtocol(self, addr: IAddress) -> IProtocol | None:
        if self._make_room is not None and self._limit.held >= self._limit.maximum:
            self._make_room()
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
    """
    A TCP port whose connections are counted against a limit.

    Attributes:
        connection_limit: the limit, or None.
    """

    transport: type[_CountedServer] = StockServer
    connection_limit: Limit | None = None

    def startListening(self) -> None:
        """Listen, without Nagle's algorithm for the connections: the kernel gives each what the port has."""
        super().startListening()
        _set_nodelay(self.socket)


class EagerPort(ListeningPort):
    """A listening port whose connections write eagerly."""

    transport = EagerServer


class _Connector(tcp.Connector):
    transport_class: type[_BufferedClient] = StockClient

    def _makeTransport(self) -> tcp.Client:
        return self.transport_class(self.host, self.port, self.bindAddress, self, self.reactor)


class EagerConnector(_Connector):
    """A connector whose connection writes eagerly."""

    transport_class = EagerClient


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
    make_room: Callable[[], bool] | None = None,
) -> Any:
    """
    Listen on a TCP port.

    Args:
        reactor: a POSIX reactor; any other ``IReactorTCP`` listens with its own transports.
        host: the interface to bind; empty for all.
        port: the port; 0 lets the system choose (see ``getHost`` of the result).
        factory: builds the protocol of each connection; None from it closes the connection.
        backlog: how many connections the kernel may queue.
        eager: whether connections write eagerly.
        limit: bounds the open connections; its place is given back when the connection is gone.
        refused: told of each connection that ``limit`` did not admit.
        make_room: asked, where the limit is reached, to let another connection go; says whether it did.

    Returns:
        The ``IListeningPort``, already listening.

    Raises:
        twisted.internet.error.CannotListenError: the port is taken or not ours to bind.
    """
    if not isinstance(reactor, PosixReactorBase):
        return reactor.listenTCP(port, factory, backlog=backlog, interface=host)
    if limit is not None:
        factory = _Admission(factory, limit, refused or (lambda error, addr: None), make_room)
    listening = (EagerPort if eager else ListeningPort)(port, factory, backlog, host, reactor)
    listening.connection_limit = limit
    listening.startListening()
    return listening


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
    """
    Open a TCP connection.

    Args:
        reactor: a POSIX reactor; any other ``IReactorTCP`` connects with its own transports.
        host: an IP literal, or a name that the reactor resolves.
        port: the port.
        factory: a ``ClientFactory``.
        timeout: seconds until the attempt fails.
        bind_address: the local address, or None.
        eager: whether the connection writes eagerly.

    Returns:
        The ``IConnector`` of the attempt.
    """
    if not isinstance(reactor, PosixReactorBase):
        return reactor.connectTCP(host, port, factory, timeout, bind_address)
    connector = (EagerConnector if eager else _Connector)(host, port, factory, timeout, bind_address, reactor)
    connector.connect()
    return connector

"""
The life of a TLS connection around its data: handshake first, application after, and an end that comes in time.

Owns the order in which things happen, and the places and the time that a handshake may take. Twisted connects the
application's protocol before the handshake; here it is built only once the handshake is complete and the creator has
judged the peer, so a peer that fails is never given to a protocol. Knows nothing of how data is encrypted (``fasttls``
or Twisted) or of sockets, and not by what a peer is judged.
"""

from __future__ import annotations

from typing import Any

from OpenSSL import SSL
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IHalfCloseableProtocol,
    IHandshakeListener,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.transport.creators import Creator
from svc.transport.errors import (
    CredentialsMissing,
    HandshakeLimitReached,
    HandshakeTimeout,
    TransportError,
    WaitingLimitReached,
)
from svc.transport.failures import handshake_error, is_truncation
from svc.transport.fasttls import FastDataPath
from svc.transport.limits import Timeouts
from svc.transport.observer import ConnectionObserver
from svc.transport.places import Places, give_up_place, source_of

_FLUSH_SIZE = 2**17
_READ_SIZE = 2**15


def address_text(address: object) -> str:
    """
    Write a peer's address for people, logs and counters of refusals.

    Args:
        address: an ``IAddress``.

    Returns:
        ``host:port``, ``[ipv6]:port``, ``unix:path``, or what the address says of itself.
    """
    host, port = getattr(address, "host", None), getattr(address, "port", None)
    if host is not None and port is not None:
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    name = getattr(address, "name", None)
    if isinstance(name, bytes):
        return f"unix:{name.decode('utf-8', 'replace')}"
    return str(address)


def _drop(data: object) -> None:
    """What arrives or is written after its direction was closed goes nowhere."""


def _value(failure: Failure) -> BaseException:
    return failure.value if failure.value is not None else TransportError()


@implementer(IHandshakeListener)
class _Antechamber(Protocol):
    """What a TLS connection is connected to until its peer is judged: it takes no data."""

    def __init__(self, tls: TlsProtocol) -> None:
        self.tls = tls

    def handshakeCompleted(self) -> None:
        self.tls.got_handshake()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.tls.lost_before_handshake(reason)


class TlsProtocol(TLSMemoryBIOProtocol):
    """
    A TLS connection that connects its application's protocol after the peer is judged.

    Twisted's private names used here exist on every release in the supported range; ``selection`` checks those of the
    data path.
    """

    factory: TlsFactory
    transport: Any
    _tlsConnection: Any
    _failure: TransportError | None = None
    _handshake_timer: IDelayedCall | None = None
    _close_timer: IDelayedCall | None = None
    _started = 0.0
    _unsent_seen = 0
    _read_closed = False
    _write_closed = False

    def __init__(self, factory: TlsFactory, address: IAddress) -> None:
        super().__init__(factory, _Antechamber(self), False)
        self._address = address

    # --- handshake ---------------------------------------------------------------------------------------------------

    def makeConnection(self, transport: Any) -> None:
        """
        Start the handshake.

        Args:
            transport: the connection below.
        """
        factory = self.factory
        self._started = factory.clock.seconds()
        self._handshake_timer = factory.clock.callLater(factory.timeouts.handshake, self._handshake_overdue)
        factory.observer.handshake_started(factory.role)
        self._connect(transport)
        if factory.role == "server":
            self.dataReceived = self._first_octets  # type: ignore[method-assign]
            if factory.waiting is not None:
                factory.waiting.enter(self, source_of(self._address), self._started)

    def _first_octets(self, data: bytes) -> None:
        """The peer says something: from here on it may cost work."""
        del self.dataReceived
        factory = self.factory
        if factory.waiting is not None:
            factory.waiting.leave(self)
        if factory.handshakes is not None:
            try:
                factory.handshakes.enter(self, source_of(self._address), factory.clock.seconds())
            except TransportError as error:
                self._turn_away(error)
                return
        self.dataReceived(data)

    def give_way(self, error: TransportError) -> None:
        """
        End for somebody else's sake; see :class:`svc.transport.places.Holder`.

        Args:
            error: which limit is reached.
        """
        give_up_place(self.transport)
        self._turn_away(error)

    def _turn_away(self, error: TransportError) -> None:
        self._failure = error
        self.dataReceived = _drop  # type: ignore[method-assign]
        self.abortConnection()

    def _connect(self, transport: Any) -> None:
        """What Twisted's method does, which declares the interfaces of the transport below one by one, at some cost."""
        self._tlsConnection = self.factory._creatorCallable(self)
        self._appSendBuffer: list[bytes] = []
        ProtocolWrapper.makeConnection(self, transport)
        self._checkHandshakeStatus()

    def _handshake_overdue(self) -> None:
        self._handshake_timer = None
        if self._failure is None:
            seconds = self.factory.timeouts.handshake
            self._failure = HandshakeTimeout(address=address_text(self._address), seconds=seconds)
        self.abortConnection()

    def got_handshake(self) -> None:
        """The handshake is complete: judge the peer, then build and connect the application's protocol."""
        factory = self.factory
        try:
            evidence = factory.creator.judged(self._tlsConnection, address_text(self._address))
        except TransportError as error:
            self._failure = error
            self.abortConnection()
            return
        self._end_handshake()
        if evidence is not None:
            factory.observer.handshake_done(factory.role, factory.clock.seconds() - self._started, evidence)
        try:
            protocol = factory.wrappedFactory.buildProtocol(self._address)
            if protocol is None:
                factory.declined()
                self.abortConnection()
                return
            self.wrappedProtocol = protocol
            protocol.makeConnection(self)
        except BaseException as error:
            factory.failed(error)
            raise
        factory.established(protocol)

    def _end_handshake(self) -> None:
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None
        for places in (self.factory.waiting, self.factory.handshakes):
            if places is not None:
                places.leave(self)

    def lost_before_handshake(self, reason: Failure) -> None:
        """
        The connection ended before its peer was accepted.

        Args:
            reason: why.
        """
        factory = self.factory
        error = self._failure
        if error is None:
            error = self._explained(reason)
        if isinstance(error, (WaitingLimitReached, HandshakeLimitReached)):
            factory.observer.connection_refused(error.reason, address_text(self._address))
            factory.failed(error)
            return
        factory.observer.handshake_failed(
            factory.role, error.reason, error.detail, address_text(self._address), error.alert
        )
        if error.detail == "internal_error" and error.__cause__ is not None:
            factory.log.failure("judging a peer failed", failure=Failure(error.__cause__))
        factory.failed(error)

    def _explained(self, reason: Failure) -> TransportError:
        return handshake_error(_value(reason), self._tlsConnection, address_text(self._address), self.factory.groups)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _flushReceiveBIO(self) -> None:
        while not self._lostTLSConnection and not self._read_closed:
            try:
                data = self._tlsConnection.recv(_READ_SIZE)
            except SSL.WantReadError:
                break
            except SSL.ZeroReturnError:
                self._got_close_notify()
            except SSL.Error:
                self._tlsShutdownFinished(Failure())
            else:
                if not self._aborted:
                    self.wrappedProtocol.dataReceived(data)
        self._flushSendBIO()

    def _got_close_notify(self) -> None:
        """The peer sends no more (RFC 8446, 6.1): end, unless the protocol knows half-closed streams."""
        half = IHalfCloseableProtocol(self.wrappedProtocol, None)
        if half is not None and not self.disconnecting:
            self._read_closed = True
            self.dataReceived = _drop  # type: ignore[method-assign]
            half.readConnectionLost()
            if not self._write_closed:
                return
        self._shutdownTLS()
        self._tlsShutdownFinished(None)

    def loseWriteConnection(self) -> None:
        """
        Say that this side sends no more, and go on receiving; see ``ITCPTransport.loseWriteConnection``.

        The peer sees close_notify, so it can tell this from a truncated stream. What is written later is dropped.
        """
        if not self._handshakeDone or self._write_closed or self.disconnecting or self._lostTLSConnection:
            return
        self._write_closed = True
        self.write = self.writeSequence = _drop  # type: ignore[method-assign]
        if self._read_closed:
            self.loseConnection()
            return
        self._tlsConnection.shutdown()
        self._flushSendBIO()
        half = IHalfCloseableProtocol(self.wrappedProtocol, None)
        if half is not None:
            half.writeConnectionLost()

    def _tlsShutdownFinished(self, reason: Failure | None) -> None:
        if reason is not None and reason.check(SSL.Error) is not None and not is_truncation(_value(reason)):
            # A truncated stream stays Twisted's ConnectionLost; everything else gets its own word.
            if self._failure is None:
                self._failure = self._explained(reason)
            if self._reason is None:
                self._reason = Failure(self._failure)
            reason = None
        super()._tlsShutdownFinished(reason)
        self._watch_close()

    def _shutdownTLS(self) -> None:
        if self._tlsConnection is None:
            # Closed or aborted by the application once more, after the connection was lost.
            return
        super()._shutdownTLS()
        self._watch_close()

    def _watch_close(self) -> None:
        """Bound the time in which nothing moves between our close and the end of the connection."""
        if self._handshakeDone and not self._aborted and self.connected and self._close_timer is None:
            self._unsent_seen = getattr(self.transport, "unsent", 0)
            self._close_timer = self.factory.clock.callLater(self.factory.timeouts.close, self._close_overdue)

    def _close_overdue(self) -> None:
        self._close_timer = None
        unsent = getattr(self.transport, "unsent", 0)
        if unsent < self._unsent_seen:
            self._watch_close()
        else:
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """
        Tell the application, or report the failed handshake.

        Args:
            reason: ``ConnectionDone`` after a clean TLS close, ``ConnectionLost`` for a truncated stream, the typed
                error otherwise.
        """
        super().connectionLost(reason)
        self._end_handshake()
        if self._close_timer is not None:
            self._close_timer.cancel()
            self._close_timer = None


class StockTlsProtocol(TlsProtocol):
    """The TLS connection on Twisted's own data path."""

    def _flushSendBIO(self) -> None:
        # Twisted reads at most 32 KiB at a time, less than a handshake flight with a long ML-DSA chain.
        connection = self._tlsConnection
        while connection is not None:
            try:
                data = connection.bio_read(_FLUSH_SIZE)
            except SSL.WantReadError:
                return
            self.transport.write(data)


class FastTlsProtocol(FastDataPath, TlsProtocol):
    """The TLS connection on the fast data path."""


class TlsFactory(TLSMemoryBIOFactory):
    """
    Puts TLS before a factory whose protocols see those peers only that the creator accepts.

    Args:
        creator: creates the TLS connections and judges their peers.
        wrapped_factory: builds the protocol of each connection whose peer was accepted.
        clock: the reactor, for timeouts.
        protocol: the TLS protocol class; see ``selection``.
        timeouts: how long the peer may take.
        handshakes: bounds the handshakes that run at once, or None.
        waiting: bounds the clients that have said nothing yet, or None.
        observer: told of each handshake; the creator's by default.

    Attributes:
        role: ``server`` or ``client``.
        groups: the key agreement policy.
        creator: the creator.
        protocols: the open connections.
    """

    log = Logger()

    def __init__(
        self,
        creator: Creator,
        wrapped_factory: IProtocolFactory,
        *,
        clock: IReactorTime,
        protocol: type[TlsProtocol],
        timeouts: Timeouts | None = None,
        handshakes: Places | None = None,
        waiting: Places | None = None,
        observer: ConnectionObserver | None = None,
    ) -> None:
        super().__init__(creator, creator.role == "client", wrapped_factory, clock)  # type: ignore[arg-type]
        self.protocol = self._protocol_class = protocol
        self.role = creator.role
        self.groups = creator.groups
        self.clock = clock
        self.timeouts = timeouts if timeouts is not None else Timeouts()
        self.handshakes = handshakes
        self.waiting = waiting
        self.observer = observer if observer is not None else creator.observer
        self.creator = creator

    def buildProtocol(self, addr: Any) -> TlsProtocol | None:  # type: ignore[override]
        """
        Admit a TCP connection to the handshake.

        Args:
            addr: the peer's address.

        Returns:
            The TLS protocol, or None when a limit is reached or there are no credentials: the connection is closed.
        """
        protocol = self._protocol_class(self, addr)
        try:
            self.creator.ready()
            if self.handshakes is not None and self.role == "client":
                # A client speaks first. A server's place is taken by what its client says.
                self.handshakes.enter(protocol, source_of(addr), self.clock.seconds())
        except TransportError as error:
            # Why there are no credentials says more than that there are none.
            reason = error.detail if isinstance(error, CredentialsMissing) else error.reason
            self.observer.connection_refused(reason, address_text(addr))
            self.failed(error)
            return None
        return protocol

    def established(self, protocol: IProtocol) -> None:
        """
        A connection was handed to the application; for subclasses.

        Args:
            protocol: the application's protocol, connected.
        """

    def declined(self) -> None:
        """The application's factory built no protocol for an accepted peer; for subclasses."""

    def failed(self, error: BaseException) -> None:
        """
        A connection failed before it was handed to the application; for subclasses.

        Args:
            error: why.
        """

"""
TLS connections: the handshake with its limits, the application's protocol after it, and the close.

Twisted connects the application's protocol before the handshake. Here it is built when the handshake is complete and
the creator has verified the peer, so a refused peer never reaches a protocol. How data is encrypted is in ``fast.tls``
or in Twisted; how peers are verified is in ``creators``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from OpenSSL import SSL
from twisted.internet.error import ConnectionDone
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
    HandshakeLimitReached,
    HandshakeTimeout,
    KeyUpdateLimitReached,
    OwnCredentialsEnded,
    OwnCredentialsMissing,
    TransportError,
    WaitingLimitReached,
)
from svc.transport.evidence import PeerEvidence
from svc.transport.failures import handshake_error, is_truncation, own_svid_refused, presented_leaf
from svc.transport.fair_limiter import FairLimiter, release_slot, source_network
from svc.transport.fast.selection import select_tls
from svc.transport.fast.tls import FastDataPath
from svc.transport.keyupdates import MAX_KEY_UPDATES, KeyUpdates
from svc.transport.limits import Timeouts
from svc.transport.observer import ConnectionObserver

_FLUSH_SIZE = 2**17
_READ_SIZE = 2**15
#: Seconds after which the validity of a connection's credentials is checked again, should the clock have been set.
_CHECK_INTERVAL: Final = 60.0
#: Seconds after the end of the credentials in which the protocol itself may close first.
_CLOSE_DELAY: Final = 2.0


def address_text(address: object) -> str:
    """Format an ``IAddress`` for logs and errors: ``host:port``, ``[ipv6]:port``, ``unix:path``, else its ``str``."""
    host, port = getattr(address, "host", None), getattr(address, "port", None)
    if host is not None and port is not None:
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    name = getattr(address, "name", None)
    if isinstance(name, bytes):
        return f"unix:{name.decode('utf-8', 'replace')}"
    return str(address)


def _discard(data: object) -> None:
    """Replaces ``dataReceived`` or ``write`` after that direction was closed."""


def _value(failure: Failure) -> BaseException:
    return failure.value if failure.value is not None else TransportError()


@implementer(IHandshakeListener)
class _HandshakeListener(Protocol):
    """The protocol of a TLS connection until its peer is verified; receives no data."""

    def __init__(self, tls: TlsProtocol) -> None:
        self.tls = tls

    def handshakeCompleted(self) -> None:
        self.tls.got_handshake()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.tls.lost_before_handshake(reason)


@implementer(IHalfCloseableProtocol)
class TlsProtocol(TLSMemoryBIOProtocol):
    """
    A TLS connection that connects its application's protocol after the peer is verified.

    Twisted's private names used here exist on every release in the supported range; those of the fast data path are
    checked in ``fast.selection``.
    """

    factory: TlsFactory
    transport: Any
    _tlsConnection: Any
    _failure: TransportError | None = None
    _handshake_timer: IDelayedCall | None = None
    _close_timer: IDelayedCall | None = None
    _end_timer: IDelayedCall | None = None
    _key_updates: KeyUpdates
    _started = 0.0
    _read_closed = False
    _write_closed = False

    def __init__(self, factory: TlsFactory, address: IAddress) -> None:
        super().__init__(factory, _HandshakeListener(self), False)
        self._address = address
        self._key_updates = KeyUpdates(factory.key_updates)

    # --- handshake ---------------------------------------------------------------------------------------------------

    def makeConnection(self, transport: Any) -> None:
        """Start the handshake."""
        factory = self.factory
        self._started = factory.clock.seconds()
        self._handshake_timer = factory.clock.callLater(factory.timeouts.handshake, self._handshake_overdue)
        factory.observer.handshake_started(factory.role)
        self._connect(transport)
        if factory.role == "server":
            self.dataReceived = self._first_data_received  # type: ignore[method-assign]
            if factory.waiting is not None:
                factory.waiting.acquire(self, source_network(self._address), self._started)

    def _first_data_received(self, data: bytes) -> None:
        """Move the connection from the waiting limit to the handshake limit."""
        del self.dataReceived
        factory = self.factory
        if factory.waiting is not None:
            factory.waiting.release(self)
        if factory.handshakes is not None:
            try:
                factory.handshakes.acquire(self, source_network(self._address), factory.clock.seconds())
            except TransportError as error:
                self._refuse(error)
                return
        self.dataReceived(data)

    def evicted(self, error: TransportError) -> None:
        """See :class:`svc.transport.fair_limiter.LimitedConnection`."""
        release_slot(self.transport)
        self._refuse(error)

    def _refuse(self, error: TransportError) -> None:
        self._failure = error
        self.dataReceived = _discard  # type: ignore[method-assign]
        self.abortConnection()

    def _connect(self, transport: Any) -> None:
        """Do what Twisted's ``makeConnection`` does, without its costly declaration of interfaces per connection."""
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
        """Verify the peer after the handshake, then build and connect the application's protocol."""
        factory = self.factory
        try:
            evidence = factory.creator.verified_peer(self._tlsConnection, address_text(self._address))
            if evidence is not None and factory.wall is not None:
                evidence.verify_time(factory.wall())
        except TransportError as error:
            self._failure = error
            self.abortConnection()
            return
        self._end_handshake()
        self._key_updates.start(self._tlsConnection)
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
        if factory.wall is not None and evidence is not None:
            self._watch_credentials(evidence, factory.wall)
        factory.established(protocol)

    def _watch_credentials(self, evidence: PeerEvidence, wall: Callable[[], datetime]) -> None:
        """Close the connection when the credentials of one side end."""
        try:
            evidence.verify_time(now := wall())
        except TransportError as error:
            self._failure = error
            self._reason = Failure(error)
            self.abortConnection()
            return
        delay = min((evidence.ends - now).total_seconds() + _CLOSE_DELAY, _CHECK_INTERVAL)
        self._end_timer = self.factory.clock.callLater(delay, self._watch_credentials, evidence, wall)

    def _end_handshake(self) -> None:
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None
        for limiter in (self.factory.waiting, self.factory.handshakes):
            if limiter is not None:
                limiter.release(self)

    def lost_before_handshake(self, reason: Failure) -> None:
        """Report why the connection ended before its peer was accepted."""
        factory = self.factory
        error = self._failure
        if error is None:
            error = self._handshake_error(reason)
        if isinstance(error, (WaitingLimitReached, HandshakeLimitReached)):
            factory.observer.connection_refused(error.reason, address_text(self._address))
            factory.failed(error)
            return
        error.presented_leaf = presented_leaf(self._tlsConnection)
        factory.observer.handshake_failed(factory.role, error, address_text(self._address))
        if error.detail == "internal_error" and error.__cause__ is not None:
            factory.log.failure("the verification of a peer failed by a defect", failure=Failure(error.__cause__))
        factory.failed(error)

    def _handshake_error(self, reason: Failure) -> TransportError:
        factory = self.factory
        address = address_text(self._address)
        return handshake_error(_value(reason), self._tlsConnection, address, factory.groups, factory.role)

    def _established_error(self, reason: Failure) -> TransportError:
        """The error that ended an established connection; a refused own SVID is reported as a failed handshake."""
        error, factory = self._handshake_error(reason), self.factory
        if factory.role == "client":
            address = address_text(self._address)
            refused = own_svid_refused(error, self._tlsConnection, address)
            if refused is not None:
                factory.observer.handshake_failed(factory.role, refused, address)
                return refused
        return error

    # --- reading and closing -----------------------------------------------------------------------------------------

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
        if self._key_updates.uncounted:
            self._got_key_updates()

    def _got_key_updates(self) -> None:
        """Send the replies to KeyUpdates, or close the connection where there were too many."""
        factory = self.factory
        if self._key_updates.within_limit(factory.clock.seconds()):
            self._flushSendBIO()
        elif not self._aborted and self._failure is None:
            address = address_text(self._address)
            self._failure = KeyUpdateLimitReached(address=address, limit=factory.key_updates)
            self._reason = Failure(self._failure)
            factory.observer.connection_aborted(self._failure.reason, address)
            self.abortConnection()

    def _got_close_notify(self) -> None:
        """The peer sends no more (RFC 8446, 6.1): close, unless the protocol supports half-closed streams."""
        half = IHalfCloseableProtocol(self.wrappedProtocol, None)
        if half is not None and not self.disconnecting:
            self._read_closed = True
            self.dataReceived = _discard  # type: ignore[method-assign]
            half.readConnectionLost()
            if not self._write_closed:
                return
        self._shutdownTLS()
        self._tlsShutdownFinished(None)

    def readConnectionLost(self) -> None:
        """TCP ended in one direction: after the peer's close_notify this side may still send, else it is the end."""
        if not self._read_closed or self.disconnecting:
            self.transport.connectionLost(Failure(ConnectionDone()))

    def writeConnectionLost(self) -> None:
        """TCP below is never closed in one direction."""

    def loseWriteConnection(self) -> None:
        """
        Send close_notify and go on receiving; see ``ITCPTransport.loseWriteConnection``.

        The peer can distinguish this from a truncated stream. Data written later is discarded.
        """
        if not self._handshakeDone or self._write_closed or self.disconnecting or self._lostTLSConnection:
            return
        self._write_closed = True
        self.write = self.writeSequence = _discard  # type: ignore[method-assign]
        if self._read_closed:
            self.loseConnection()
            return
        self._tlsConnection.shutdown()
        self._flushSendBIO()
        half = IHalfCloseableProtocol(self.wrappedProtocol, None)
        if half is not None:
            half.writeConnectionLost()

    def close_without_reply(self) -> None:
        """Send close_notify and close the connection below, without the peer's close_notify (RFC 8446, 6.1)."""
        self.loseConnection()
        if self.connected:
            self.transport.loseConnection()

    def abortConnection(self) -> None:
        """
        Drop the connection, with TCP reset and without close_notify, which Twisted sends here: the peer must not take a
        part of the stream for the whole (RFC 8446, 6.1).
        """
        connection = self._tlsConnection
        if connection is not None:
            connection.set_shutdown(connection.get_shutdown() | SSL.SENT_SHUTDOWN)
        super().abortConnection()

    def _tlsShutdownFinished(self, reason: Failure | None) -> None:
        if reason is not None and reason.check(SSL.Error) is not None and not is_truncation(_value(reason)):
            # A truncated stream stays Twisted's ConnectionLost; everything else gets a typed error.
            if self._failure is None:
                self._failure = self._established_error(reason)
            if self._reason is None:
                self._reason = Failure(self._failure)
            reason = None
        super()._tlsShutdownFinished(reason)
        self._watch_close()

    def _shutdownTLS(self) -> None:
        if self._tlsConnection is None:
            # The application closed or aborted again after the connection was lost.
            return
        super()._shutdownTLS()
        self._watch_close()

    def _watch_close(self) -> None:
        """Limit the time without progress between our close and the end of the connection."""
        if self._handshakeDone and not self._aborted and self.connected and self._close_timer is None:
            unsent = getattr(self.transport, "unsent", 0)
            self._close_timer = self.factory.clock.callLater(self.factory.timeouts.close, self._close_overdue, unsent)

    def _close_overdue(self, unsent_before: int) -> None:
        self._close_timer = None
        if getattr(self.transport, "unsent", unsent_before) < unsent_before:
            self._watch_close()
        else:
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """
        Report the end to the application, or the failed handshake to the observer.

        The application gets ``ConnectionDone`` after a clean TLS close, ``ConnectionLost`` for a truncated stream, the
        typed error otherwise.
        """
        super().connectionLost(reason)
        self._end_handshake()
        for timer in (self._close_timer, self._end_timer):
            if timer is not None and timer.active():
                timer.cancel()
        self._close_timer = self._end_timer = None


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


def default_tls_protocol() -> type[TlsProtocol]:
    """The TLS protocol class that ``fast.selection`` selects."""
    return FastTlsProtocol if select_tls().fast else StockTlsProtocol


class TlsFactory(TLSMemoryBIOFactory):
    """
    Wraps a factory in TLS; its protocols are built only for peers that the creator accepts.

    For the limits and ``wall`` see :class:`svc.transport.endpoints.TlsServerEndpoint`; ``key_updates`` is how many
    KeyUpdates and requests to renegotiate a peer may send in a minute, replies included.
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
        handshakes: FairLimiter | None = None,
        waiting: FairLimiter | None = None,
        observer: ConnectionObserver | None = None,
        wall: Callable[[], datetime] | None = None,
        key_updates: int = MAX_KEY_UPDATES,
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
        self.wall = wall
        self.key_updates = key_updates

    def buildProtocol(self, addr: Any) -> TlsProtocol | None:  # type: ignore[override]
        """Build the TLS protocol; None, which closes the connection, at a limit or without credentials."""
        protocol = self._protocol_class(self, addr)
        try:
            self.creator.check_ready()
            if self.handshakes is not None and self.role == "client":
                # A client starts its handshake now, a server's starts with the first data of its client.
                self.handshakes.acquire(protocol, source_network(addr), self.clock.seconds())
        except OwnCredentialsEnded as error:
            self.observer.handshake_failed(self.role, error, address_text(addr))
            self.failed(error)
            return None
        except TransportError as error:
            # The detail says why there are no credentials.
            reason = error.detail if isinstance(error, OwnCredentialsMissing) else error.reason
            self.observer.connection_refused(reason, address_text(addr))
            self.failed(error)
            return None
        return protocol

    def established(self, protocol: IProtocol) -> None:
        """Called with the application's protocol when it is connected; for subclasses."""

    def declined(self) -> None:
        """Called when the application's factory built no protocol for an accepted peer; for subclasses."""

    def failed(self, error: BaseException) -> None:
        """Called when a connection fails before its protocol is connected; for subclasses."""

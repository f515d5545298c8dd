"""
Endpoints that listen for and connect to verified peers.

Owns the assembly of sockets, TLS, limits and observer. An application needs ``MutualTlsServerEndpoint``,
``MutualTlsClientEndpoint`` and, for the plain side, ``PlainServerEndpoint`` and ``PlainClientEndpoint``.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar

from twisted.internet import error
from twisted.internet.defer import CancelledError, Deferred, execute, fail
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint, UNIXClientEndpoint
from twisted.internet.interfaces import (
    IAddress,
    IListeningPort,
    IProtocol,
    IProtocolFactory,
    IStreamClientEndpoint,
    IStreamServerEndpoint,
)
from twisted.internet.posixbase import PosixReactorBase
from twisted.internet.protocol import ClientFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.transport.addresses import Address, TcpAddress, UnixAddress, parse_address
from svc.transport.certificates import CertificateClientCreator, CertificateCreator
from svc.transport.creators import Creator, IdentityCreator
from svc.transport.errors import ConnectFailed, ConnectTimeout, TransportError
from svc.transport.fair_limiter import FairLimiter
from svc.transport.fast.selection import select_tcp
from svc.transport.handshake import TlsFactory, TlsProtocol, address_text, default_tls_protocol
from svc.transport.limits import Limit, Timeouts, handshake_limit, waiting_limit
from svc.transport.names import Attempts, resolve_name
from svc.transport.observer import ConnectionObserver, NullObserver
from svc.transport.proxied import ProxiedFactory
from svc.transport.tcp import BACKLOG, connect_tcp, listen_tcp

__all__ = [
    "Address",
    "CertificateClientEndpoint",
    "CertificateServerEndpoint",
    "MutualTlsClientEndpoint",
    "MutualTlsServerEndpoint",
    "PlainClientEndpoint",
    "PlainServerEndpoint",
    "TcpAddress",
    "UnixAddress",
    "parse_address",
]

CONNECT_TIMEOUT = 30.0

_CreatorT = TypeVar("_CreatorT", bound=Creator)


@implementer(IStreamServerEndpoint)
class PlainServerEndpoint:
    """
    Listens without TLS.

    Args:
        reactor: the reactor.
        address: where to listen.
        connections: bounds the open connections (TCP only), or None.
        observer: receives refused connections.
        backlog: how many connections the kernel may queue.
        evict: called at the limit of ``connections`` to close another connection; returns whether it did.
    """

    def __init__(
        self,
        reactor: Any,
        address: Address,
        *,
        connections: Limit | None = None,
        observer: ConnectionObserver | None = None,
        backlog: int = BACKLOG,
        evict: Callable[[], bool] | None = None,
    ) -> None:
        self._reactor = reactor
        self._address = address
        self._connections = connections
        self._observer: ConnectionObserver = observer if observer is not None else NullObserver()
        self._backlog = backlog
        self._evict = evict

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """Start listening; fires with the port, or fails with ``CannotListenError``."""
        return execute(self._listen, protocolFactory)

    def _listen(self, factory: IProtocolFactory) -> IListeningPort:
        if isinstance(self._address, UnixAddress):
            port: IListeningPort = self._reactor.listenUNIX(self._address.path, factory, backlog=self._backlog)
            return port
        listening: IListeningPort = listen_tcp(
            self._reactor,
            self._address.host,
            self._address.port,
            factory,
            backlog=self._backlog,
            eager=select_tcp().fast,
            limit=self._connections,
            refused=self._refused,
            evict=self._evict,
        )
        return listening

    def _refused(self, error: TransportError, address: IAddress) -> None:
        self._observer.connection_refused(error.reason, address_text(address))


@implementer(IStreamServerEndpoint)
class TlsServerEndpoint(Generic[_CreatorT]):
    """
    Listens with TLS; protocols are built only for clients that the creator accepts.

    Args:
        reactor: the reactor.
        address: where to listen.
        creator: the server's TLS settings and credentials.
        connections: bounds the open connections (TCP only), or None.
        handshakes: bounds concurrent handshakes; listeners may share it. A limit of its own by default.
        waiting: bounds the clients that have not sent any data; listeners may share it. A limit of its own by default.
        timeouts: how long a client may take.
        observer: receives handshakes and refusals; the creator's by default.
        backlog: how many connections the kernel may queue.
        tls_protocol: the TLS protocol class; by default the fast one where it is selected.
        proxy_protocol: whether every connection begins with a PROXY protocol version 2 header.
        evict: called at the limit of ``connections`` to close another connection; by default one that has not sent any
            data is evicted, else one whose handshake has stalled.
        wall: the wall clock, aware UTC, by which connections are closed when the credentials of one side end; with None
            their protocols have to check that.
    """

    def __init__(
        self,
        reactor: Any,
        address: Address,
        creator: _CreatorT,
        *,
        connections: Limit | None = None,
        handshakes: FairLimiter | None = None,
        waiting: FairLimiter | None = None,
        timeouts: Timeouts | None = None,
        observer: ConnectionObserver | None = None,
        backlog: int = BACKLOG,
        tls_protocol: type[TlsProtocol] | None = None,
        proxy_protocol: bool = False,
        evict: Callable[[], bool] | None = None,
        wall: Callable[[], datetime] | None = None,
    ) -> None:
        self._reactor = reactor
        self._creator = creator
        self._wall = wall
        self._handshakes = handshakes if handshakes is not None else handshake_limit()
        self._waiting = waiting if waiting is not None else waiting_limit()
        self._timeouts = timeouts if timeouts is not None else Timeouts()
        self._proxy_protocol = proxy_protocol
        self._observer = observer if observer is not None else creator.observer
        self._tls_protocol = tls_protocol if tls_protocol is not None else default_tls_protocol()
        self._plain = PlainServerEndpoint(
            reactor,
            address,
            connections=connections,
            observer=self._observer,
            backlog=backlog,
            evict=evict if evict is not None else self._evict_unauthenticated,
        )

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """Start listening; fires with the port, or fails with ``CannotListenError``."""
        factory: IProtocolFactory = TlsFactory(
            self._creator,
            protocolFactory,
            clock=self._reactor,
            protocol=self._tls_protocol,
            timeouts=self._timeouts,
            handshakes=self._handshakes,
            waiting=self._waiting,
            observer=self._observer,
            wall=self._wall,
        )
        if self._proxy_protocol:
            factory = ProxiedFactory(
                factory,
                clock=self._reactor,
                timeout=self._timeouts.handshake,
                refused=self._header_refused,
                waiting=self._waiting,
            )
        return self._plain.listen(factory)

    def _evict_unauthenticated(self) -> bool:
        return self._waiting.evict() or self._handshakes.evict_stalled(self._reactor.seconds())

    def _header_refused(self, reason: str, transport: Any) -> None:
        self._observer.connection_refused(reason, address_text(transport.getPeer()))


class MutualTlsServerEndpoint(TlsServerEndpoint[IdentityCreator]):
    """
    Listens with mutual TLS; protocols are built only for verified clients.

    ``peer_evidence(self.transport)`` in their ``connectionMade`` identifies the client. For the arguments see
    :class:`TlsServerEndpoint`; the creator is one of :func:`svc.transport.creators.server_creator`.
    """


class CertificateServerEndpoint(TlsServerEndpoint[CertificateCreator]):
    """Listens with TLS for clients without an identity; see :class:`TlsServerEndpoint`."""


@implementer(IStreamClientEndpoint)
class PlainClientEndpoint:
    """
    Connects without TLS.

    Args:
        reactor: the reactor.
        address: where to connect to; a name is resolved, see :class:`svc.transport.names.Attempts`.
        timeout: seconds until the attempt at one address fails.
        bind_address: the local host and port, or None.
    """

    def __init__(
        self,
        reactor: Any,
        address: Address,
        *,
        timeout: float = CONNECT_TIMEOUT,
        bind_address: tuple[str, int] | None = None,
    ) -> None:
        self._reactor = reactor
        self._address = address
        self._timeout = timeout
        self._bind_address = bind_address

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect; fires with the connected protocol, or fails with ``ConnectFailed`` or ``ConnectTimeout``."""
        try:
            connecting = self._start(protocolFactory)
        except OSError as error:
            connecting = fail(error)
        connecting.addErrback(self._typed_failure)
        return connecting

    def _start(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        address = self._address
        if isinstance(address, UnixAddress):
            unix: Deferred[IProtocol] = UNIXClientEndpoint(self._reactor, address.path, self._timeout).connect(factory)
            return unix
        if address.is_ip:
            return self._connect_to(address.host, address.port, factory)
        resolving = resolve_name(self._reactor.nameResolver, address.host, address.port)
        return resolving.addCallback(self._connect_to_first, address.port, factory)

    def _connect_to_first(self, hosts: list[str], port: int, factory: IProtocolFactory) -> Deferred[IProtocol]:
        return Attempts(self._reactor, [partial(self._connect_to, host, port, factory) for host in hosts]).start()

    def _connect_to(self, host: str, port: int, factory: IProtocolFactory) -> Deferred[IProtocol]:
        if isinstance(self._reactor, PosixReactorBase):
            attempt = _TcpAttempt(factory)
            connector = connect_tcp(
                self._reactor,
                host,
                port,
                attempt,
                timeout=self._timeout,
                bind_address=self._bind_address,
                eager=select_tcp().fast,
            )
            return attempt.result_of(connector)
        kind = TCP6ClientEndpoint if ":" in host else TCP4ClientEndpoint
        numbered: Deferred[IProtocol] = kind(self._reactor, host, port, self._timeout, self._bind_address).connect(
            factory
        )
        return numbered

    def _typed_failure(self, failure: Failure) -> Failure:
        if failure.check(CancelledError, TransportError) is not None:
            return failure
        found = failure.value or error.ConnectError()
        if isinstance(found, error.TimeoutError):
            typed: ConnectFailed = ConnectTimeout(address=self._address, detail=f"{self._timeout:g} s")
        else:
            typed = ConnectFailed(address=self._address, detail=_error_text(found))
        typed.__cause__ = found
        return Failure(typed)


@implementer(IStreamClientEndpoint)
class TlsClientEndpoint(Generic[_CreatorT]):
    """
    Connects with TLS; fires only with a protocol whose peer the creator accepts.

    Args:
        reactor: the reactor.
        address: where to connect to.
        creator: the client's TLS settings and credentials, with the expected peer.
        connect_timeout: seconds until TCP must be connected.
        timeouts: how long the server may take in the handshake and the close.
        handshakes: bounds concurrent handshakes, or None.
        observer: receives handshakes; the creator's by default.
        bind_address: the local host and port, or None.
        tls_protocol: the TLS protocol class; by default the fast one where it is selected.
        wall: the wall clock, aware UTC, by which connections are closed when the credentials of one side end; with None
            their protocols have to check that.
        through: what connects to the address in another way than directly, such as through a proxy; None for directly.
    """

    def __init__(
        self,
        reactor: Any,
        address: Address,
        creator: _CreatorT,
        *,
        connect_timeout: float = CONNECT_TIMEOUT,
        timeouts: Timeouts | None = None,
        handshakes: FairLimiter | None = None,
        observer: ConnectionObserver | None = None,
        bind_address: tuple[str, int] | None = None,
        tls_protocol: type[TlsProtocol] | None = None,
        wall: Callable[[], datetime] | None = None,
        through: IStreamClientEndpoint | None = None,
    ) -> None:
        self._reactor = reactor
        self._creator = creator
        self._wall = wall
        self._timeouts = timeouts
        self._handshakes = handshakes
        self._observer = observer
        self._tls_protocol = tls_protocol if tls_protocol is not None else default_tls_protocol()
        self._plain = through or PlainClientEndpoint(
            reactor, address, timeout=connect_timeout, bind_address=bind_address
        )

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """
        Connect and verify the server; fires with the connected protocol, or fails with a ``TransportError``.

        TLS 1.3 lets a client finish before the server has verified it: a refusal by the server comes as the typed
        reason of the protocol's ``connectionLost``.
        """
        return _VerifiedAttempt(
            self._creator,
            protocolFactory,
            clock=self._reactor,
            protocol=self._tls_protocol,
            timeouts=self._timeouts,
            handshakes=self._handshakes,
            observer=self._observer,
            wall=self._wall,
        ).connect(self._plain)


class MutualTlsClientEndpoint(TlsClientEndpoint[IdentityCreator]):
    """
    Connects with mutual TLS; fires only with a protocol whose peer is verified.

    For the arguments see :class:`TlsClientEndpoint`; the creator is one of
    :func:`svc.transport.creators.client_creator`.
    """


class CertificateClientEndpoint(TlsClientEndpoint[CertificateClientCreator]):
    """Connects to a server that has a certificate and no identity; see :class:`TlsClientEndpoint`."""


class _VerifiedAttempt(TlsFactory):
    """One outgoing connection until its peer is verified."""

    _result: Deferred[IProtocol] | None
    _tls: TlsProtocol | None = None

    def connect(self, endpoint: IStreamClientEndpoint) -> Deferred[IProtocol]:
        result: Deferred[IProtocol] = Deferred(self._cancel)
        self._result = result
        self._connecting = endpoint.connect(self)
        self._connecting.addErrback(self._not_connected)
        return result

    def buildProtocol(self, addr: Any) -> TlsProtocol | None:  # type: ignore[override]
        self._tls = super().buildProtocol(addr)
        return self._tls

    def established(self, protocol: IProtocol) -> None:
        result, self._result = self._result, None
        if result is not None:
            result.callback(protocol)

    def declined(self) -> None:
        self.failed(error.ConnectionAborted("the factory built no protocol"))

    def failed(self, error: BaseException) -> None:
        result, self._result = self._result, None
        if result is not None:
            result.errback(error)

    def _not_connected(self, failure: Failure) -> None:
        # Without credentials, or at a limit, ``failed`` has already reported the precise reason.
        self.failed(failure.value or error.ConnectError())

    def _cancel(self, result: Deferred[IProtocol]) -> None:
        self._result = None
        if self._tls is not None:
            self._tls.abortConnection()
        else:
            self._connecting.cancel()


class _TcpAttempt(ClientFactory):
    """One outgoing TCP connection with our transport, without a wrapper around the protocol."""

    noisy = False

    def __init__(self, factory: IProtocolFactory) -> None:
        self._factory = factory
        self._result: Deferred[IProtocol] | None = None
        self._built: Any = None

    def result_of(self, connector: Any) -> Deferred[IProtocol]:
        self._result = Deferred(lambda result: connector.stopConnecting())
        return self._result

    def buildProtocol(self, addr: Any) -> Any:
        self._built = self._factory.buildProtocol(addr)
        return self._built

    def transport_connected(self) -> None:
        """Called by the transport when ``buildProtocol`` was called and its protocol, if any, is connected."""
        result, self._result = self._result, None
        if result is None:
            return
        if self._built is None:
            result.errback(error.ConnectionAborted("the factory built no protocol"))
        else:
            result.callback(self._built)

    def clientConnectionFailed(self, connector: Any, reason: Failure) -> None:
        result, self._result = self._result, None
        if result is not None:
            result.errback(reason)


class TransportReactor:
    """The part of a reactor that the operator's pages need, with our transports."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self.seconds = reactor.seconds
        self.callLater = reactor.callLater
        self.getDelayedCalls = reactor.getDelayedCalls

    def listenTCP(self, port: int, factory: Any, backlog: int = BACKLOG, interface: str = "") -> Any:
        """Listen with our transports."""
        return listen_tcp(self._reactor, interface, port, factory, backlog=backlog, eager=select_tcp().fast)


def _error_text(found: BaseException) -> str:
    for kind, text in (
        (error.ConnectionRefusedError, "connection refused"),
        (error.DNSLookupError, "the name does not resolve"),
        (error.NoRouteError, "no route to the host"),
        (error.ConnectBindError, "the local address cannot be used"),
        (error.UnknownHostError, "the name does not resolve"),
        # Names are resolved elsewhere: of an IP address only its zone can be unknown.
        (socket.gaierror, "its zone is no network interface of this machine"),
    ):
        if isinstance(found, kind):
            return text
    if isinstance(found, error.ConnectError) and isinstance(found.osError, int):
        return os.strerror(found.osError).lower()
    return str(found) or type(found).__name__

"""
Endpoints: listen for and connect to verified peers over the fastest transports there are.

Owns the assembly of sockets, TLS, limits and observer. An application needs ``MutualTlsServerEndpoint``,
``MutualTlsClientEndpoint`` and, for the plain side, ``PlainServerEndpoint`` and ``PlainClientEndpoint``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from twisted.internet import error
from twisted.internet.defer import CancelledError, Deferred, execute
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, TCP6ClientEndpoint, UNIXClientEndpoint
from twisted.internet.interfaces import (
    IAddress,
    IHostnameResolver,
    IListeningPort,
    IProtocol,
    IProtocolFactory,
    IReactorPluggableNameResolver,
    IReactorTCP,
    IReactorTime,
    IStreamClientEndpoint,
    IStreamServerEndpoint,
)
from twisted.internet.posixbase import PosixReactorBase
from twisted.internet.protocol import ClientFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.transport.addresses import Address, TcpAddress, UnixAddress, parse_address
from svc.transport.certificates import CertificateCreator
from svc.transport.creators import Creator, IdentityCreator
from svc.transport.eager import BACKLOG, connect_tcp, listen_tcp
from svc.transport.errors import ConnectFailed, ConnectTimeout, TransportError
from svc.transport.handshake import TlsFactory, TlsProtocol, address_text
from svc.transport.limits import Limit, Timeouts, handshake_limit, waiting_limit
from svc.transport.observer import ConnectionObserver, NullObserver
from svc.transport.places import Places
from svc.transport.proxied import ProxiedFactory
from svc.transport.selection import choose_tls_protocol, choose_transports

__all__ = [
    "Address",
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
        observer: told of refused connections.
        backlog: how many connections the kernel may queue.
        make_room: asked, where ``connections`` is reached, to let another connection go; says whether it did.
    """

    def __init__(
        self,
        reactor: Any,
        address: Address,
        *,
        connections: Limit | None = None,
        observer: ConnectionObserver | None = None,
        backlog: int = BACKLOG,
        make_room: Callable[[], bool] | None = None,
    ) -> None:
        self._reactor = reactor
        self._address = address
        self._connections = connections
        self._observer: ConnectionObserver = observer if observer is not None else NullObserver()
        self._backlog = backlog
        self._make_room = make_room

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """
        Start listening.

        Args:
            protocolFactory: builds the protocol of each connection.

        Returns:
            Fires with the port, or fails with ``CannotListenError``.
        """
        return _caught(self._listen, protocolFactory)

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
            eager=choose_transports().eager,
            limit=self._connections,
            refused=self._refused,
            make_room=self._make_room,
        )
        return listening

    def _refused(self, error: TransportError, address: IAddress) -> None:
        self._observer.connection_refused(error.reason, address_text(address))


@implementer(IStreamServerEndpoint)
class TlsServerEndpoint(Generic[_CreatorT]):
    """
    Listens with TLS; the given factory builds protocols for those clients only that the creator accepts.

    Args:
        reactor: the reactor.
        address: where to listen.
        creator: the server's TLS settings and what it shows.
        connections: bounds the open connections (TCP only), or None.
        handshakes: bounds the handshakes that run at once; may be shared. A limit of its own by default.
        waiting: bounds the clients that have said nothing yet; may be shared. A limit of its own by default.
        timeouts: how long a client may take.
        observer: told of handshakes and refusals; the creator's by default.
        backlog: how many connections the kernel may queue.
        tls_protocol: the TLS protocol class; the fastest that works by default.
        proxy_protocol: whether every connection begins with a PROXY protocol version 2 header.
    """

    def __init__(
        self,
        reactor: Any,
        address: Address,
        creator: _CreatorT,
        *,
        connections: Limit | None = None,
        handshakes: Places | None = None,
        waiting: Places | None = None,
        timeouts: Timeouts | None = None,
        observer: ConnectionObserver | None = None,
        backlog: int = BACKLOG,
        tls_protocol: type[TlsProtocol] | None = None,
        proxy_protocol: bool = False,
    ) -> None:
        self._reactor = reactor
        self._creator = creator
        self._handshakes = handshakes if handshakes is not None else handshake_limit()
        self._waiting = waiting if waiting is not None else waiting_limit()
        self._timeouts = timeouts if timeouts is not None else Timeouts()
        self._proxy_protocol = proxy_protocol
        self._observer = observer if observer is not None else creator.observer
        self._tls_protocol = tls_protocol if tls_protocol is not None else choose_tls_protocol().protocol
        self._plain = PlainServerEndpoint(
            reactor,
            address,
            connections=connections,
            observer=self._observer,
            backlog=backlog,
            make_room=self._waiting.dismiss,
        )

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """
        Start listening.

        Args:
            protocolFactory: builds the protocol of each connection whose client is accepted.

        Returns:
            Fires with the port, or fails with ``CannotListenError``.
        """
        factory: IProtocolFactory = TlsFactory(
            self._creator,
            protocolFactory,
            clock=self._reactor,
            protocol=self._tls_protocol,
            timeouts=self._timeouts,
            handshakes=self._handshakes,
            waiting=self._waiting,
            observer=self._observer,
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

    def _header_refused(self, reason: str, transport: Any) -> None:
        self._observer.connection_refused(reason, address_text(transport.getPeer()))


class MutualTlsServerEndpoint(TlsServerEndpoint[IdentityCreator]):
    """
    Listens with mutual TLS; the given factory builds protocols for verified clients only.

    ``peer_evidence(self.transport)`` in their ``connectionMade`` says who it is. For the arguments see
    :class:`TlsServerEndpoint`; the creator is one of :func:`svc.transport.creators.server_creator`.
    """


class CertificateServerEndpoint(TlsServerEndpoint[CertificateCreator]):
    """
    Listens with TLS for clients who have no identity; see :class:`TlsServerEndpoint`.

    It holds places and times of handshakes as where both sides show who they are.
    """


@implementer(IStreamClientEndpoint)
class PlainClientEndpoint:
    """
    Connects without TLS.

    Args:
        reactor: the reactor.
        address: where to connect to; a name is resolved and its addresses are tried in turn.
        timeout: seconds until the attempt fails.
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
        """
        Connect.

        Args:
            protocolFactory: builds the protocol.

        Returns:
            Fires with the connected protocol, or fails with ``ConnectFailed`` or ``ConnectTimeout``.
        """
        connecting = self._start(protocolFactory)
        connecting.addErrback(self._explain)
        return connecting

    def _start(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        address = self._address
        if isinstance(address, UnixAddress):
            unix: Deferred[IProtocol] = UNIXClientEndpoint(self._reactor, address.path, self._timeout).connect(factory)
            return unix
        if address.is_ip and _makes_own_transports(self._reactor):
            attempt = _Attempt(factory)
            connector = connect_tcp(
                self._reactor,
                address.host,
                address.port,
                attempt,
                timeout=self._timeout,
                bind_address=self._bind_address,
                eager=choose_transports().eager,
            )
            return attempt.begun(connector)
        where = (address.host, address.port, self._timeout, self._bind_address)
        if address.is_ip:
            kind = TCP6ClientEndpoint if ":" in address.host else TCP4ClientEndpoint
            numbered: Deferred[IProtocol] = kind(self._reactor, *where).connect(factory)
            return numbered
        named = HostnameEndpoint(_TransportReactor(self._reactor), *where)
        connecting: Deferred[IProtocol] = named.connect(factory)
        return connecting

    def _explain(self, failure: Failure) -> Failure:
        if failure.check(CancelledError, TransportError) is not None:
            return failure
        found = failure.value or error.ConnectError()
        if isinstance(found, error.TimeoutError):
            explained: ConnectFailed = ConnectTimeout(address=self._address, detail=f"{self._timeout:g} s")
        else:
            explained = ConnectFailed(address=self._address, detail=_in_words(found))
        explained.__cause__ = found
        return Failure(explained)


@implementer(IStreamClientEndpoint)
class MutualTlsClientEndpoint:
    """
    Connects with mutual TLS; fires only with a protocol whose peer is verified.

    Args:
        reactor: the reactor.
        address: where to connect to.
        creator: the client's TLS settings and identity, with the expected peer.
        connect_timeout: seconds until TCP must be connected.
        timeouts: how long the server may take in the handshake and at the end.
        handshakes: bounds the handshakes that run at once, or None.
        observer: told of handshakes; the creator's by default.
        bind_address: the local host and port, or None.
        tls_protocol: the TLS protocol class; the fastest that works by default.
    """

    def __init__(
        self,
        reactor: Any,
        address: Address,
        creator: IdentityCreator,
        *,
        connect_timeout: float = CONNECT_TIMEOUT,
        timeouts: Timeouts | None = None,
        handshakes: Places | None = None,
        observer: ConnectionObserver | None = None,
        bind_address: tuple[str, int] | None = None,
        tls_protocol: type[TlsProtocol] | None = None,
    ) -> None:
        self._reactor = reactor
        self._creator = creator
        self._timeouts = timeouts
        self._handshakes = handshakes
        self._observer = observer
        self._tls_protocol = tls_protocol if tls_protocol is not None else choose_tls_protocol().protocol
        self._plain = PlainClientEndpoint(reactor, address, timeout=connect_timeout, bind_address=bind_address)

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """
        Connect and verify the server.

        TLS 1.3 lets a client finish before the server has judged the client: that refusal comes as the typed reason of
        the protocol's ``connectionLost``.

        Args:
            protocolFactory: builds the protocol once the server is verified.

        Returns:
            Fires with the connected protocol, or fails with a ``TransportError``.
        """
        return _VerifiedAttempt(
            self._creator,
            protocolFactory,
            clock=self._reactor,
            protocol=self._tls_protocol,
            timeouts=self._timeouts,
            handshakes=self._handshakes,
            observer=self._observer,
        ).begin(self._plain)


class _VerifiedAttempt(TlsFactory):
    """One outgoing connection up to the verified peer."""

    _result: Deferred[IProtocol] | None
    _tls: TlsProtocol | None = None

    def begin(self, endpoint: PlainClientEndpoint) -> Deferred[IProtocol]:
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
        # Without credentials, or over a limit, ``failed`` has already said the precise reason.
        self.failed(failure.value or error.ConnectError())

    def _cancel(self, result: Deferred[IProtocol]) -> None:
        self._result = None
        if self._tls is not None:
            self._tls.abortConnection()
        else:
            self._connecting.cancel()


class _Attempt(ClientFactory):
    """One outgoing TCP connection whose transport is ours; no wrapper stays between transport and protocol."""

    noisy = False

    def __init__(self, factory: IProtocolFactory) -> None:
        self._factory = factory
        self._result: Deferred[IProtocol] | None = None
        self._built: Any = None

    def begun(self, connector: Any) -> Deferred[IProtocol]:
        self._result = Deferred(lambda result: connector.stopConnecting())
        return self._result

    def buildProtocol(self, addr: Any) -> Any:
        self._built = self._factory.buildProtocol(addr)
        return self._built

    def transport_connected(self) -> None:
        """The transport has connected the protocol that ``buildProtocol`` gave, or closes for want of one."""
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


@implementer(IReactorTCP, IReactorTime, IReactorPluggableNameResolver)
class _TransportReactor:
    """The part of a reactor that ``HostnameEndpoint`` needs, with our transports."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self.seconds = reactor.seconds
        self.callLater = reactor.callLater
        self.getDelayedCalls = reactor.getDelayedCalls

    @property
    def nameResolver(self) -> IHostnameResolver:
        """The reactor's resolver."""
        resolver: IHostnameResolver = self._reactor.nameResolver
        return resolver

    def installNameResolver(self, resolver: IHostnameResolver) -> IHostnameResolver:
        """Install a resolver in the reactor."""
        previous: IHostnameResolver = self._reactor.installNameResolver(resolver)
        return previous

    def connectTCP(
        self, host: str, port: int, factory: Any, timeout: float = 30, bindAddress: tuple[str, int] | None = None
    ) -> Any:
        """Connect with our transports."""
        eager = choose_transports().eager
        return connect_tcp(self._reactor, host, port, factory, timeout=timeout, bind_address=bindAddress, eager=eager)

    def listenTCP(self, port: int, factory: Any, backlog: int = BACKLOG, interface: str = "") -> Any:
        """Listen with our transports."""
        return listen_tcp(self._reactor, interface, port, factory, backlog=backlog, eager=choose_transports().eager)


def _makes_own_transports(reactor: Any) -> bool:
    return isinstance(reactor, PosixReactorBase)


def _caught(
    listen: Callable[[IProtocolFactory], IListeningPort], factory: IProtocolFactory
) -> Deferred[IListeningPort]:
    return execute(listen, factory)


def _in_words(found: BaseException) -> str:
    for kind, words in (
        (error.ConnectionRefusedError, "connection refused"),
        (error.DNSLookupError, "the name does not resolve"),
        (error.NoRouteError, "no route to the host"),
        (error.ConnectBindError, "the local address cannot be used"),
        (error.UnknownHostError, "the name does not resolve"),
    ):
        if isinstance(found, kind):
            return words
    if isinstance(found, error.ConnectError) and isinstance(found.osError, int):
        return os.strerror(found.osError).lower()
    return str(found) or type(found).__name__

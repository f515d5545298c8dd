"""
The HTTP listeners for metrics and for the operator.

Plain HTTP with small limits: few connections, short heads, no bodies, a maximum lifetime, one request at a time of each
connection, and pages that are made at most once a second.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Generic, TypeVar, cast

from twisted.application.service import Service
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IListeningPort,
    IOpenSSLServerConnectionCreator,
    IReactorTime,
)
from twisted.internet.protocol import ServerFactory, connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.http import Request as HttpRequest
from twisted.web.resource import IResource
from twisted.web.server import Request, Site

from svc.process.listening import ListenFailed
from svc.settings import HostPort

Made = TypeVar("Made")

MAX_BODY: Final = 1024
MAX_CONNECTIONS: Final = 64
IDLE_SECONDS: Final = 15.0
LIFETIME: Final = 120.0
#: Seconds between two times that a page is made.
PAGE_SECONDS: Final = 1.0
_TOO_LARGE: Final = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class _Channel(HTTPChannel):
    """
    Answers one request at a time: a client that sends more before it has the answer gets that answer and is closed.

    Twisted's own handles all that came at once before the reactor does anything else. Unsent answers are bounded by
    Twisted: a connection is not read while its transport asks for a pause.
    """

    #: Whether octets of the transport are handled, of which a request was answered.
    _reading = _answered = False
    #: Whether a request waits for its answer, and whether something came behind it.
    _answering = _early = False

    def dataReceived(self, data: bytes) -> None:
        """Called by the transport, and by Twisted itself for what came behind a body."""
        if self._reading:
            super().dataReceived(data)
        elif self._answering:
            self._early = True
        else:
            self._reading, self._answered = True, False
            try:
                super().dataReceived(data)
            finally:
                self._reading = False

    def allContentReceived(self) -> None:
        """A request is complete."""
        if self._answered:
            self.loseConnection()
            return
        self._answered = self._answering = True
        self._early = bool(self.clearLineBuffer().strip())
        super().allContentReceived()

    def requestDone(self, request: HttpRequest) -> None:
        """A request is answered."""
        self._answering = False
        if self._early:
            self.persistent = False
        super().requestDone(request)


class QuietSite(Site):
    """A site without an access log, which answers one request of a connection at a time."""

    noisy = False
    protocol = _Channel  # type: ignore[assignment]  # Twisted's own is a function, which chooses a class by ALPN

    def log(self, request: HttpRequest) -> None:
        pass


class Paced(Generic[Made]):
    """Makes something at most once in :data:`PAGE_SECONDS`; who asks in between gets the next one."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Made]]) -> None:
        self._make = make
        self._waiting: list[Deferred[Made]] = []
        self._resting = False

    def get(self, request: Request) -> Deferred[Made]:
        """Return for a request what is made after it; fails as making it does."""
        waiting: Deferred[Made] = Deferred()
        self._waiting.append(waiting)
        if not self._resting:
            self._next(cast(Site, request.site).reactor)
        return waiting

    def _next(self, clock: IReactorTime) -> None:
        waiting, self._waiting = self._waiting, []
        self._resting = bool(waiting)
        if not waiting:
            return
        clock.callLater(PAGE_SECONDS, self._next, clock)
        Deferred.fromCoroutine(self._make()).addBoth(_fire, waiting)


def _fire(made: Any, waiting: Sequence[Deferred[Any]]) -> None:
    for each in waiting:
        each.callback(made)


class HttpService(Service):
    """
    Serves pages at one address while it runs.

    Args:
        address: where; None for a service that does nothing.
        root: the root of the pages.
        reactor: opens the port (``IReactorTCP``) and measures time (``IReactorTime``).
        key: names the address in the configuration, for errors.
        creator: of TLS; None for plain HTTP.
    """

    def __init__(
        self,
        address: HostPort | None,
        root: IResource,
        *,
        reactor: Any,
        key: str = "adminAddr",
        creator: IOpenSSLServerConnectionCreator | None = None,
    ) -> None:
        self._address = address
        self._key = key
        self._reactor = reactor
        site = QuietSite(root, requestFactory=_PageRequest, timeout=IDLE_SECONDS, reactor=reactor)
        served = site if creator is None else TLSMemoryBIOFactory(creator, False, site, reactor)
        self._factory = _PageFactory(served, reactor)
        self._port: IListeningPort | None = None

    @property
    def bound(self) -> tuple[str, int] | None:
        """Host and port where it listens; None while it does not."""
        if self._port is None:
            return None
        address = cast(IPv4Address | IPv6Address, self._port.getHost())
        return address.host, address.port

    def startService(self) -> None:
        """
        Open the port.

        Raises:
            ListenFailed: it is taken or not allowed.
        """
        if self._address is not None:
            # WrappingFactory is declared for clients although it serves both sides.
            factory = cast(ServerFactory, self._factory)
            try:
                self._port = self._reactor.listenTCP(self._address.port, factory, interface=self._address.host)
            except CannotListenError as error:
                raise ListenFailed.from_error(error, what=self._key, address=self._address, key=self._key) from error
        super().startService()

    def stopService(self) -> Deferred[None]:
        """Close the port and its connections; fires when the port is closed."""
        super().stopService()
        port, self._port = self._port, None
        self._factory.close_connections()
        closed = port.stopListening() if port is not None else None
        return succeed(None) if closed is None else closed


class _PageRequest(Request):
    """A request without a body: one that announces a large body, or one of unknown length, is answered with 413."""

    _refused = False

    def gotLength(self, length: int | None) -> None:
        self._refused = length is None or length > MAX_BODY
        super().gotLength(0 if self._refused else length)
        if self._refused:
            if self.channel.transport is not None:
                self.channel.transport.write(_TOO_LARGE)
            self.channel.loseConnection()

    def handleContentChunk(self, data: bytes) -> None:
        if not self._refused:
            super().handleContentChunk(data)

    def process(self) -> None:
        if not self._refused:
            self.setHeader(b"x-content-type-options", b"nosniff")
            super().process()


class _LimitedConnection(ProtocolWrapper):
    """A connection that is closed at the end of its lifetime, even while it is active."""

    factory: _PageFactory
    _end: IDelayedCall | None = None

    def connectionMade(self) -> None:
        super().connectionMade()
        self._end = self.factory.clock.callLater(LIFETIME, self._over)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
        super().connectionLost(reason)

    def _over(self) -> None:
        self._end = None
        self.abortConnection()


class _PageFactory(WrappingFactory[_LimitedConnection]):
    """Limits the number and the lifetime of connections."""

    protocol = _LimitedConnection
    noisy = False

    def __init__(self, wrapped: QuietSite | TLSMemoryBIOFactory, clock: IReactorTime) -> None:
        super().__init__(wrapped)
        self.clock = clock

    def buildProtocol(self, addr: IAddress | None) -> _LimitedConnection | None:  # type: ignore[override]  # WrappingFactory does not declare the None that Factory allows
        if len(self.protocols) >= MAX_CONNECTIONS:
            return None
        return _LimitedConnection(self, self.wrappedFactory.buildProtocol(addr))

    def close_connections(self) -> None:
        for protocol in list(self.protocols):
            protocol.abortConnection()

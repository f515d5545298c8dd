"""
The HTTP listeners for metrics and for the operator.

Plain HTTP with small limits: few connections, shared between source addresses, short heads, no bodies, a maximum
lifetime, one request at a time of each connection, and pages that are made at most once a second.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from io import BytesIO
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from twisted.application.service import Service
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import (
    IDelayedCall,
    IHalfCloseableProtocol,
    IListeningPort,
    IOpenSSLServerConnectionCreator,
    IReactorTime,
)
from twisted.internet.protocol import ServerFactory, connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.http import Request as HttpRequest
from twisted.web.resource import IResource
from twisted.web.server import Request, Site
from zope.interface import implementer

from svc.pages.listening import ListenFailed
from svc.settings import HostPort
from svc.transport.errors import ConnectionLimitReached, TransportError
from svc.transport.fair_limiter import FairLimiter, source_network

Made = TypeVar("Made")

MAX_BODY: Final = 1024
MAX_CONNECTIONS: Final = 64
IDLE_SECONDS: Final = 15.0
LIFETIME: Final = 120.0
#: Seconds between two times that a page is made.
PAGE_SECONDS: Final = 1.0
_TOO_LARGE: Final = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@implementer(IHalfCloseableProtocol)
class _Channel(HTTPChannel):
    """
    Answers one request at a time: a client that sends more before it has the answer gets that answer and is closed.

    Twisted's own handles all that came at once before the reactor does anything else. Unsent answers are bounded by
    Twisted: a connection is not read while its transport asks for a pause.
    """

    site: QuietSite
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

    def connectionMade(self) -> None:
        super().connectionMade()
        self._began = self.site.reactor.seconds()

    def checkPersistence(self, request: HttpRequest, version: bytes) -> bool:
        """Whether the connection goes on after the answer."""
        site = self.site
        if site.age is not None and site.reactor.seconds() - self._began >= site.age:
            request.responseHeaders.setRawHeaders(b"Connection", [b"close"])
            return False
        persistent: bool = super().checkPersistence(request, version)
        return persistent

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

    def readConnectionLost(self) -> None:
        """The client sends no more: close behind the answer to what it has sent (RFC 9112 section 9.6)."""
        if self._answering:
            self._early = True
        else:
            self.loseConnection()

    def writeConnectionLost(self) -> None:
        """The connection is never closed in one direction from here."""


class QuietSite(Site):
    """
    A site without an access log, which answers one request of a connection at a time.

    Attributes:
        age: seconds after which a connection ends with its next answer; None for never.
        received: octets of bodies that are kept, where the class of requests counts them.
    """

    noisy = False
    age: float | None = None
    received = 0
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


class ConnectionTimes(NamedTuple):
    """
    How long a connection is kept, in seconds.

    Attributes:
        idle: without a request.
        lifetime: until it is aborted, even while it is active.
        age: until it ends with its next answer, which says so; None for never.
    """

    idle: float = IDLE_SECONDS
    lifetime: float = LIFETIME
    age: float | None = None


class HttpService(Service):
    """
    Serves pages at one address while it runs.

    Args:
        address: where; None for a service that does nothing.
        root: the root of the pages.
        reactor: opens the port (``IReactorTCP``) and measures time (``IReactorTime``).
        key: names the address in the configuration, for errors.
        creator: of TLS; None for plain HTTP.
        request: the class of requests.
        times: how long connections are kept.
    """

    def __init__(
        self,
        address: HostPort | None,
        root: IResource,
        *,
        reactor: Any,
        key: str = "adminAddr",
        creator: IOpenSSLServerConnectionCreator | None = None,
        request: type[PageRequest] | None = None,
        times: ConnectionTimes = ConnectionTimes(),  # noqa: B008 - it cannot be changed
    ) -> None:
        self._address = address
        self._key = key
        self._reactor = reactor
        site = QuietSite(root, requestFactory=request or PageRequest, timeout=times.idle, reactor=reactor)
        site.age = times.age
        served = site if creator is None else TLSMemoryBIOFactory(creator, False, site, reactor)
        self._factory = _PageFactory(served, reactor, times.lifetime)
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


class PageRequest(Request):
    """
    A request whose body is kept in memory: one that announces a larger body, or one of unknown length, gets 413.

    Attributes:
        max_body: octets.
    """

    max_body = MAX_BODY
    _refused = False

    def gotLength(self, length: int | None) -> None:
        """Overridden since Twisted writes larger bodies into files."""
        self.content = BytesIO()
        if length is None or length > self.max_body:
            self.refuse(_TOO_LARGE)

    @property
    def quiet_site(self) -> QuietSite:
        """Where it is served."""
        return cast(_Channel, self.channel).site

    def refuse(self, answer: bytes) -> None:
        """Write an answer at once, and close the connection."""
        self._refused = True
        if self.channel.transport is not None:
            self.channel.transport.write(answer)
        self.channel.loseConnection()

    def handleContentChunk(self, data: bytes) -> None:
        if not self._refused:
            super().handleContentChunk(data)

    def process(self) -> None:
        if not self._refused:
            self.setHeader(b"x-content-type-options", b"nosniff")
            super().process()


@implementer(IHalfCloseableProtocol)
class _LimitedConnection(ProtocolWrapper):
    """A connection that is closed at the end of its lifetime, even while it is active."""

    factory: _PageFactory
    _end: IDelayedCall | None = None

    def connectionMade(self) -> None:
        super().connectionMade()
        self._end = self.factory.clock.callLater(self.factory.lifetime, self._over)
        self.factory.limiter.acquire(self, source_network(self.getPeer()), self.factory.clock.seconds())

    def evicted(self, error: TransportError) -> None:
        """Close at once; see :class:`~svc.transport.fair_limiter.LimitedConnection`."""
        self.abortConnection()

    def readConnectionLost(self) -> None:
        if isinstance(self.wrappedProtocol, TLSMemoryBIOProtocol):
            # It was ended before the stream, or cut. TLS itself passes every method on to its transport, which is this.
            self.loseConnection()
        else:
            IHalfCloseableProtocol(self.wrappedProtocol).readConnectionLost()

    def writeConnectionLost(self) -> None:
        pass

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.factory.limiter.release(self)
        if self._end is not None:
            self._end.cancel()
            self._end = None
        super().connectionLost(reason)

    def _over(self) -> None:
        self._end = None
        self.abortConnection()


class _PageFactory(WrappingFactory[_LimitedConnection]):
    """Limits the number and the lifetime of connections, and shares them between source addresses."""

    protocol = _LimitedConnection
    noisy = False

    def __init__(self, wrapped: QuietSite | TLSMemoryBIOFactory, clock: IReactorTime, lifetime: float) -> None:
        super().__init__(wrapped)
        self.lifetime = lifetime
        self.clock = clock
        self.limiter = FairLimiter(MAX_CONNECTIONS, ConnectionLimitReached)

    def close_connections(self) -> None:
        for protocol in list(self.protocols):
            protocol.abortConnection()

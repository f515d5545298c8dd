"""
The listeners for metrics and for the operator.

Plain HTTP with small limits: few connections, short heads, no bodies. Owns the limits and the spelling of the
addresses; must not know what the pages show.
"""

from __future__ import annotations

import re
from typing import Final, cast

from prometheus_client import CollectorRegistry
from twisted.application.service import Service
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IDelayedCall, IListeningPort, IReactorTCP, IReactorTime
from twisted.internet.protocol import ServerFactory, connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.http import Request as HttpRequest
from twisted.web.resource import IResource, Resource
from twisted.web.server import Request, Site

from svc.errors import SvcError
from svc.telemetry.resources import MetricsResource

MAX_BODY: Final = 1024
MAX_CONNECTIONS: Final = 64
IDLE_SECONDS: Final = 15.0
LIFETIME: Final = 120.0

_ADDRESS: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:\s]*)):(?P<port>\d{1,5})\Z")


class TelemetryReactor(IReactorTCP, IReactorTime):
    """Opens ports and measures times."""


class AddressInvalid(SvcError):
    """{text} is not an address to listen at"""

    reason = "address_invalid"
    hint = "write host:port, :port or [IPv6 address]:port; 0 or nothing disables"
    text: str


class PagesFailed(SvcError):
    """the address {address} for metrics or administration cannot be had: {what}"""

    reason = "listen_failed"
    hint = "is another process using the port? choose another one in metricsAddr or adminAddr, or disable it with 0"
    address: str
    what: str


def parse_listen_address(text: str) -> tuple[str, int] | None:
    """
    Read ``metricsAddr`` or ``adminAddr``.

    Args:
        text: ``host:port``, ``:port`` (every interface), ``[IPv6]:port``; ``0`` or nothing disables.

    Returns:
        (interface, port), the interface empty for every one; None where disabled.

    Raises:
        AddressInvalid: for anything else.
    """
    if text in ("", "0"):
        return None
    match = _ADDRESS.match(text)
    if match is None or int(match["port"]) > 65535:
        raise AddressInvalid(text=text)
    return match["v6"] or match["host"] or "", int(match["port"])


class BoundedRequest(Request):
    """A request that brings no body worth mentioning."""

    _refused = False

    def gotLength(self, length: int | None) -> None:
        """
        Refuse a body that is long or of unknown length.

        Args:
            length: of the body; None where it is chunked.
        """
        self._refused = length is None or length > MAX_BODY
        super().gotLength(0 if self._refused else length)
        if self._refused:
            if self.channel.transport is not None:
                self.channel.transport.write(_TOO_LARGE)
            self.channel.loseConnection()

    def handleContentChunk(self, data: bytes) -> None:
        """
        Take a part of the body.

        Args:
            data: its octets; those of a refused body are dropped.
        """
        if not self._refused:
            super().handleContentChunk(data)

    def process(self) -> None:
        """Answer, unless the answer was given with the refusal."""
        if not self._refused:
            self.setHeader(b"x-content-type-options", b"nosniff")
            super().process()


class QuietSite(Site):
    """A site without an access log: a scrape is no news."""

    noisy = False

    def log(self, request: HttpRequest) -> None:
        """
        Log nothing.

        Args:
            request: any.
        """


class ShortLived(ProtocolWrapper):
    """A connection that is closed when its time is over, however busy it seems."""

    factory: BoundedFactory
    _end: IDelayedCall | None = None

    def connectionMade(self) -> None:
        """Start the clock."""
        super().connectionMade()
        self._end = self.factory.clock.callLater(self.factory.lifetime, self._over)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """
        Stop the clock.

        Args:
            reason: why the connection is gone.
        """
        if self._end is not None:
            self._end.cancel()
            self._end = None
        super().connectionLost(reason)

    def _over(self) -> None:
        self._end = None
        self.abortConnection()


class BoundedFactory(WrappingFactory[ShortLived]):
    """
    Holds the number and the life of connections down.

    Args:
        wrapped: what serves them.
        clock: measures their life.
        limit: how many are open at most; further ones are closed at once.
        lifetime: seconds after which one is closed in any case.
    """

    protocol = ShortLived
    noisy = False

    def __init__(
        self,
        wrapped: Site,
        clock: IReactorTime,
        *,
        limit: int = MAX_CONNECTIONS,
        lifetime: float = LIFETIME,
    ) -> None:
        super().__init__(wrapped)
        self.clock = clock
        self.lifetime = lifetime
        self._limit = limit

    def buildProtocol(self, addr: IAddress | None) -> ShortLived | None:  # type: ignore[override]  # WrappingFactory forgets that Factory allows None
        """
        Serve a connection, or close it.

        Args:
            addr: where it comes from.

        Returns:
            Its protocol; None closes it.
        """
        if len(self.protocols) >= self._limit:
            return None
        return ShortLived(self, self.wrappedFactory.buildProtocol(addr))

    def close_connections(self) -> None:
        """Close what is open."""
        for protocol in list(self.protocols):
            protocol.abortConnection()


class HttpService(Service):
    """
    Serves pages at one address for as long as it runs.

    Args:
        address: as :func:`parse_listen_address` reads it; disabled addresses make a service that does nothing.
        root: the root of the pages.
        reactor: opens the port and measures times.

    Raises:
        AddressInvalid: where the address cannot be read.
    """

    def __init__(self, address: str, root: IResource, *, reactor: TelemetryReactor) -> None:
        self._where = parse_listen_address(address)
        self._reactor = reactor
        site = QuietSite(root, requestFactory=BoundedRequest, timeout=IDLE_SECONDS, reactor=reactor)
        self._factory = BoundedFactory(site, reactor)
        self._port: IListeningPort | None = None

    @property
    def address(self) -> tuple[str, int] | None:
        """Where it listens while it runs: (host, port)."""
        if self._port is None:
            return None
        bound = cast(IPv4Address | IPv6Address, self._port.getHost())
        return bound.host, bound.port

    def startService(self) -> None:
        """
        Open the port.

        Raises:
            PagesFailed: where the port is taken or not allowed.
        """
        if self._where is not None:
            interface, port = self._where
            # WrappingFactory is declared for clients although it serves both sides.
            factory = cast(ServerFactory, self._factory)
            try:
                self._port = self._reactor.listenTCP(port, factory, interface=interface)
            except CannotListenError as error:
                what = getattr(error.socketError, "strerror", None) or str(error.socketError)
                raise PagesFailed(address=f"{error.interface}:{error.port}", what=what) from error
        super().startService()

    def stopService(self) -> Deferred[None]:
        """
        Close the port and what is connected to it.

        Returns:
            Fires when the port is closed.
        """
        super().stopService()
        port, self._port = self._port, None
        self._factory.close_connections()
        closed = port.stopListening() if port is not None else None
        return succeed(None) if closed is None else closed


def metrics_service(address: str, registry: CollectorRegistry, *, reactor: TelemetryReactor) -> HttpService:
    """
    Make the service of ``metricsAddr``.

    Args:
        address: as the configuration spells it.
        registry: what ``/metrics`` shows.
        reactor: opens the port.

    Returns:
        The service.

    Raises:
        AddressInvalid: where the address cannot be read.
    """
    root = Resource()
    root.putChild(b"metrics", MetricsResource(registry))
    return HttpService(address, root, reactor=reactor)


_TOO_LARGE: Final = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

"""
Connections of a client to a registry and to where the registry redirects.

Owns TLS and its roots, HTTP proxies, and the end of a connection on which nothing moves. Which request goes where is
decided in ``exchanges``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionAborted
from twisted.internet.interfaces import IAddress, IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.protocols.policies import ProtocolWrapper, TimeoutMixin, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent, HTTPConnectionPool, ProxyAgent
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IAgentEndpointFactory, IBodyProducer, IResponse
from zope.interface import implementer

from svc.install.registry.errors import RegistryError, RegistryInterrupted
from svc.install.registry.proxies import Proxy, choose_proxy
from svc.install.registry.references import Host
from svc.transport.addresses import TcpAddress
from svc.transport.certificates import CertificateClientCreator
from svc.transport.endpoints import CertificateClientEndpoint, PlainClientEndpoint
from svc.transport.errors import ConnectFailed, HandshakeFailed, ServerCertificateInvalid, TransportError

#: Seconds without an octet in either direction until a connection is given up.
STALL_SECONDS: Final = 60.0
#: Transfers at a time, each over a connection of its own.
MAX_CONNECTIONS: Final = 4
_IDLE_SECONDS: Final = 20
_MAX_PROXY_HEAD: Final = 16 * 1024


def read_roots(path: str | Path, host: Host) -> tuple[x509.Certificate, ...]:
    """
    Read the authorities that are trusted for a registry, and no others.

    Args:
        path: a PEM file with one certificate or more.
        host: of the registry.

    Raises:
        RegistryError: it cannot be read or has none.
    """
    try:
        return tuple(x509.load_pem_x509_certificates(Path(path).read_bytes()))
    except OSError as error:
        defect = (error.strerror or "it cannot be read").lower()
        raise RegistryError("registry_ca_file_invalid", registry=host, path=path, defect=defect) from error
    except ValueError as error:
        raise RegistryError(
            "registry_ca_file_invalid", registry=host, path=path, defect="it has no certificate in PEM"
        ) from error


@implementer(IAgent, IAgentEndpointFactory)
class Connections:
    """
    Sends requests, for one registry.

    Args:
        reactor: the reactor.
        host: of the registry.
        roots: authorities of the registry in place of those of the system; for other hosts, which the registry names,
            beside them. Empty for those of the system.
        environment: the variables that name proxies.
        stall: seconds without an octet.
    """

    def __init__(
        self,
        reactor: Any,
        host: Host,
        *,
        roots: Sequence[x509.Certificate],
        environment: Mapping[str, str],
        stall: float = STALL_SECONDS,
    ) -> None:
        self._reactor, self._host, self._roots, self._stall = reactor, host, roots, stall
        self._environment = environment
        self._own = URI.fromBytes(f"https://{host.served_by}/".encode("ascii")).host.decode("ascii")
        self._pool = HTTPConnectionPool(reactor, persistent=True)
        self._pool.maxPersistentPerHost = MAX_CONNECTIONS
        self._pool.cachedConnectionTimeout = _IDLE_SECONDS
        # What is tried again, and how often, is decided elsewhere.
        self._pool.retryAutomatically = False
        self._agent = Agent.usingEndpointFactory(reactor, self, self._pool)
        self._proxied: dict[Proxy, ProxyAgent] = {}

    def request(
        self, method: bytes, uri: bytes, headers: Headers | None = None, bodyProducer: IBodyProducer | None = None
    ) -> Deferred[IResponse]:
        """Send a request; content is asked for as it is stored, since digests and ranges are those of that."""
        fields = Headers() if headers is None else headers.copy()
        fields.setRawHeaders(b"accept-encoding", [b"identity"])
        parsed = URI.fromBytes(uri)
        agent = self._agent
        proxy = self._proxy(parsed) if parsed.scheme == b"http" else None
        if proxy is not None:
            if proxy.authorization:
                fields.setRawHeaders(b"proxy-authorization", [proxy.authorization.encode("ascii")])
            agent = self._proxied.get(proxy)
            if agent is None:
                endpoint = _WatchedEndpoint(self._reactor, TcpAddress(proxy.host, proxy.port), self._stall)
                agent = self._proxied[proxy] = ProxyAgent(endpoint, self._reactor, self._pool)
        sent: Deferred[IResponse] = agent.request(method, uri, fields, bodyProducer)
        return sent

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """Return how the server of a URL is reached."""
        name = uri.host.decode("ascii")
        address = TcpAddress(name, uri.port)
        if uri.scheme != b"https":
            return _WatchedEndpoint(self._reactor, address, self._stall)
        proxy = self._proxy(uri)
        if proxy is None:
            below: IStreamClientEndpoint = _WatchedEndpoint(self._reactor, address, self._stall)
        else:
            to_proxy = _WatchedEndpoint(self._reactor, TcpAddress(proxy.host, proxy.port), self._stall)
            below = _TunnelEndpoint(to_proxy, proxy, address, self._host)
        creator = CertificateClientCreator(
            name, roots=self._roots, system_roots=not self._roots or name.lower() != self._own.lower()
        )
        return CertificateClientEndpoint(self._reactor, address, creator, through=below)

    async def close(self) -> None:
        """Close the connections that are idle."""
        # One whose response has just ended becomes idle in this turn of the reactor.
        await deferLater(self._reactor, 0)
        await self._pool.closeCachedConnections()

    def failed(self, error: BaseException) -> RegistryError:
        """
        Return what a request that brought no whole response failed with.

        Args:
            error: what it raised.
        """
        for found in _causes(error):
            if isinstance(found, RegistryError):
                return found
            if isinstance(found, ConnectionAborted):
                return RegistryInterrupted("registry_silent", registry=self._host, seconds=f"{self._stall:g}")
            if isinstance(found, ServerCertificateInvalid):
                return RegistryError(
                    "registry_certificate_invalid", registry=self._host, host=found.address, defect=found.cause
                )
            if isinstance(found, HandshakeFailed) and found.detail != "the peer closed the connection":
                return RegistryError(
                    "registry_tls_failed", registry=self._host, host=found.address, defect=found.detail
                )
            if isinstance(found, ConnectFailed):
                defect = f"{found.detail} ({found.address})"
                return RegistryInterrupted("registry_unreachable", registry=self._host, defect=defect)
            if isinstance(found, TransportError):
                return RegistryInterrupted("registry_unreachable", registry=self._host, defect=str(found))
        last = _causes(error)[-1]
        return RegistryInterrupted("registry_cut_off", registry=self._host, defect=str(last) or type(last).__name__)

    def _proxy(self, uri: URI) -> Proxy | None:
        return choose_proxy(self._environment, uri.scheme.decode("ascii"), uri.host.decode("ascii"), uri.port)


def _causes(error: BaseException) -> list[BaseException]:
    """Return the errors that Twisted has put into lists of failures, outermost first."""
    found, waiting = [], [error]
    while waiting:
        each = waiting.pop(0)
        found.append(each)
        reasons: Iterable[Any] = getattr(each, "reasons", ()) if not isinstance(each, RegistryError) else ()
        waiting += [reason.value for reason in reasons if isinstance(reason, Failure) and reason.value is not None]
    return found


@implementer(IStreamClientEndpoint)
class _WatchedEndpoint:
    """Connects by TCP, and aborts the connection when no octet has moved for some seconds."""

    def __init__(self, reactor: Any, address: TcpAddress, stall: float) -> None:
        self._reactor, self._stall = reactor, stall
        self._plain = PlainClientEndpoint(reactor, address)

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        watched: Any = _WatchedFactory(protocolFactory, self._reactor, self._stall)
        connecting: Deferred[Any] = self._plain.connect(watched)
        connecting.addCallback(lambda connected: connected.wrappedProtocol)
        return connecting


class _Watched(ProtocolWrapper, TimeoutMixin):
    """One connection; a pooled one that is idle ends before."""

    factory: _WatchedFactory
    transport: Any

    def callLater(self, period: float, func: Callable[[], None]) -> Any:
        return self.factory.reactor.callLater(period, func)

    def makeConnection(self, transport: Any) -> None:
        self.setTimeout(self.factory.stall)
        super().makeConnection(transport)

    def dataReceived(self, data: bytes) -> None:
        self.resetTimeout()
        super().dataReceived(data)

    def write(self, data: bytes) -> None:
        self.resetTimeout()
        super().write(data)

    def writeSequence(self, data: Iterable[bytes]) -> None:
        self.resetTimeout()
        super().writeSequence(data)

    def timeoutConnection(self) -> None:
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.setTimeout(None)
        super().connectionLost(reason)


class _WatchedFactory(WrappingFactory[_Watched]):
    noisy = False
    protocol = _Watched

    def __init__(self, wrapped: Any, reactor: Any, stall: float) -> None:
        super().__init__(wrapped)
        self.reactor, self.stall = reactor, stall

    def buildProtocol(self, addr: IAddress | None) -> _Watched | None:  # type: ignore[override]
        wrapped = self.wrappedFactory.buildProtocol(addr)
        return None if wrapped is None else self.protocol(self, wrapped)


@implementer(IStreamClientEndpoint)
class _TunnelEndpoint:
    """Connects through an HTTP proxy (RFC 9110, section 9.3.6)."""

    def __init__(self, below: IStreamClientEndpoint, proxy: Proxy, address: TcpAddress, host: Host) -> None:
        self._below, self._proxy, self._address, self._host = below, proxy, address, host

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        lines = [f"CONNECT {self._address} HTTP/1.1", f"Host: {self._address}"]
        if self._proxy.authorization:
            lines.append(f"Proxy-Authorization: {self._proxy.authorization}")
        attempt = _Tunnel("\r\n".join([*lines, "", ""]).encode("ascii"), protocolFactory, self._refused)
        connecting: Deferred[IProtocol] = self._below.connect(Factory.forProtocol(lambda: attempt))
        connecting.addErrback(attempt.not_connected)
        attempt.connecting = connecting
        return attempt.result

    def _refused(self, answer: str) -> RegistryError:
        return RegistryError("registry_proxy_refused", registry=self._host, proxy=self._proxy, answer=answer)


class _Tunnel(Protocol):
    """A connection to a proxy; once that has connected, the protocol of the factory has it."""

    transport: Any

    def __init__(self, request: bytes, factory: IProtocolFactory, refused: Any) -> None:
        self._request, self._factory, self._refused = request, factory, refused
        self._head = b""
        self._inner: IProtocol | None = None
        self.connecting: Deferred[Any] | None = None
        self.result: Deferred[IProtocol] = Deferred(self._cancel)

    def connectionMade(self) -> None:
        self.transport.write(self._request)

    def dataReceived(self, data: bytes) -> None:
        if self._inner is not None:
            self._inner.dataReceived(data)
            return
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if not end:
            if len(self._head) > _MAX_PROXY_HEAD:
                self._fail(self._refused("its answer has no end"))
            return
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        if not words[0].startswith("HTTP/1.") or len(words) < 2 or not words[1].isdecimal():
            self._fail(self._refused("it does not answer in HTTP/1.1"))
        elif not words[1].startswith("2"):
            self._fail(self._refused(" ".join(words[1:])))
        else:
            self._connected(rest)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._inner is not None:
            self._inner.connectionLost(reason)
        elif not self.result.called:
            self.result.errback(reason)

    def not_connected(self, failure: Failure) -> None:
        """The proxy was not reached."""
        if not self.result.called:
            self.result.errback(failure)

    def _connected(self, rest: bytes) -> None:
        inner = self._factory.buildProtocol(self.transport.getPeer())
        if inner is None:
            self.transport.abortConnection()
            return
        self._inner = inner
        inner.makeConnection(self.transport)
        self.result.callback(inner)
        if rest:
            inner.dataReceived(rest)

    def _fail(self, error: RegistryError) -> None:
        if not self.result.called:
            self.result.errback(error)
        self.transport.abortConnection()

    def _cancel(self, _result: Deferred[IProtocol]) -> None:
        if self.transport is not None:
            self.transport.abortConnection()
        elif self.connecting is not None:
            self.connecting.cancel()

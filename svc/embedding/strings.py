"""
Endpoint strings: any Twisted program that takes one listens or connects as a workload.

::

    spiffe:7443:interface=127.0.0.1:agent=/run/svc/agent.sock:allow=prod.example.org/*
    spiffe:pay.example:7443:agent=/run/svc/agent.sock:expect=prod.example.org/ns/pay/sa/api

Twisted's plugin system loads this module in every program that uses an endpoint string, so everything else is imported
only when such a string is parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IListeningPort,
    IProtocol,
    IProtocolFactory,
    IStreamClientEndpoint,
    IStreamClientEndpointStringParserWithReactor,
    IStreamServerEndpoint,
    IStreamServerEndpointStringParser,
)
from twisted.plugin import IPlugin
from zope.interface import implementer

if TYPE_CHECKING:
    from svc.embedding.workload import Workload


@implementer(IPlugin, IStreamServerEndpointStringParser, IStreamClientEndpointStringParserWithReactor)
class SpiffeStrings:
    """Parses endpoint strings that begin with ``spiffe``."""

    prefix = "spiffe"

    def parseStreamServer(  # type: ignore[override]  # strings with missing or unknown arguments are refused here
        self, reactor: Any, port: str, *, allow: str, agent: str, interface: str = "", alpn: str = ""
    ) -> IStreamServerEndpoint:
        """
        Parse the string of a server; it has its identity from ``listen`` until the port is closed.

        Args:
            reactor: the reactor.
            port: the TCP port.
            allow: who may connect, a matcher with or without ``spiffe://``.
            agent: the path of the Workload API socket.
            interface: the IP address to listen on; all by default.
            alpn: application protocols, separated by commas.

        Raises:
            SvcError: a value is not acceptable.
        """
        from svc.embedding.workload import Workload

        workload = Workload.from_workload_api(agent, reactor=reactor)
        endpoint = workload.server_endpoint(_address(interface, port), allow=_identity(allow), alpn=_alpn(alpn))
        return _Server(workload, endpoint)

    def parseStreamClient(  # type: ignore[override]  # as above
        self, reactor: Any, host: str, port: str, *, expect: str, agent: str, alpn: str = ""
    ) -> IStreamClientEndpoint:
        """
        Parse the string of a client; it has its identity from the first connection until the reactor shuts down.

        Args:
            reactor: the reactor.
            host: the name or IP address.
            port: the TCP port.
            expect: the identity of the server, a matcher with or without ``spiffe://``.
            agent: the path of the Workload API socket.
            alpn: application protocols, separated by commas.

        Raises:
            SvcError: a value is not acceptable.
        """
        from svc.embedding.workload import Workload

        workload = Workload.from_workload_api(agent, reactor=reactor)
        endpoint = workload.client_endpoint(_address(host, port), expect=_identity(expect), alpn=_alpn(alpn))
        return _Client(workload, endpoint, reactor)


@implementer(IStreamServerEndpoint)
class _Server:
    """Starts its workload before it listens."""

    def __init__(self, workload: Workload, endpoint: IStreamServerEndpoint) -> None:
        self._workload = workload
        self._endpoint = endpoint

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        return Deferred.fromCoroutine(self._listen(protocolFactory))

    async def _listen(self, factory: IProtocolFactory) -> IListeningPort:
        self._workload.startService()
        try:
            await self._workload.when_ready()
            port: IListeningPort = await self._endpoint.listen(factory)
        except BaseException:
            await self._workload.stopService()
            raise
        return _Port(port, self._workload)


@implementer(IListeningPort)
class _Port:
    """A port that stops its workload when it is closed."""

    def __init__(self, port: IListeningPort, workload: Workload) -> None:
        self._port = port
        self._workload = workload

    def startListening(self) -> None:
        self._port.startListening()

    def stopListening(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        stopped = self._port.stopListening()
        if stopped is not None:
            await stopped
        await self._workload.stopService()

    def getHost(self) -> Any:
        return self._port.getHost()


@implementer(IStreamClientEndpoint)
class _Client:
    """Starts its workload before the first connection."""

    def __init__(self, workload: Workload, endpoint: IStreamClientEndpoint, reactor: Any) -> None:
        self._workload = workload
        self._endpoint = endpoint
        self._reactor = reactor

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        return Deferred.fromCoroutine(self._connect(protocolFactory))

    async def _connect(self, factory: IProtocolFactory) -> IProtocol:
        if not self._workload.running:
            self._workload.startService()
            self._reactor.addSystemEventTrigger("before", "shutdown", self._workload.stopService)
        await self._workload.when_ready()
        return await self._endpoint.connect(factory)


def _identity(text: str) -> str:
    """Add ``spiffe://``, which would need an escaped colon in an endpoint string."""
    return text if text.startswith("spiffe:") else f"spiffe://{text}"


def _address(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _alpn(text: str) -> tuple[bytes, ...]:
    return tuple(each.encode("ascii") for each in text.split(",") if each)

"""
Endpoint strings: any Twisted program that takes one listens or connects as a workload.

::

    spiffe:7443:interface=127.0.0.1:agent=/run/svc/agent.sock:allow=prod.example.org/*
    spiffe:pay.example:7443:agent=/run/svc/agent.sock:expect=prod.example.org/ns/pay/sa/api

Owns the words of these strings. Twisted's plugin system loads this module in every program that uses an endpoint
string, so nothing else is imported before one of ours is there.
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
    """Reads endpoint strings that begin with ``spiffe``."""

    prefix = "spiffe"

    def parseStreamServer(  # type: ignore[override]  # strings that lack a word or have another are refused here
        self, reactor: Any, port: str, *, allow: str, agent: str, interface: str = "", alpn: str = ""
    ) -> IStreamServerEndpoint:
        """
        Read a server's string.

        Args:
            reactor: the reactor.
            port: the TCP port.
            allow: who may connect, a matcher with or without ``spiffe://``.
            agent: the path of the Workload API socket.
            interface: the IP address to listen at; every one by default.
            alpn: application protocols with commas between them.

        Returns:
            The endpoint; its identity is taken when it listens and given up when the port closes.

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
        Read a client's string.

        Args:
            reactor: the reactor; its shutdown gives the identity up.
            host: the name or IP address.
            port: the TCP port.
            expect: who must answer, a matcher with or without ``spiffe://``.
            agent: the path of the Workload API socket.
            alpn: application protocols with commas between them.

        Returns:
            The endpoint; its identity is taken at the first connection.

        Raises:
            SvcError: a value is not acceptable.
        """
        from svc.embedding.workload import Workload

        workload = Workload.from_workload_api(agent, reactor=reactor)
        endpoint = workload.client_endpoint(_address(host, port), expect=_identity(expect), alpn=_alpn(alpn))
        return _Client(workload, endpoint, reactor)


@implementer(IStreamServerEndpoint)
class _Server:
    """Takes its identity first, and gives it up last."""

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
    """A port that ends with its workload."""

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
    """Takes its identity before the first connection."""

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
    """Colons divide endpoint strings; without ``spiffe://`` none needs to be escaped."""
    return text if text.startswith("spiffe:") else f"spiffe://{text}"


def _address(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _alpn(text: str) -> tuple[bytes, ...]:
    return tuple(each.encode("ascii") for each in text.split(",") if each)

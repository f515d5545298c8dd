"""Doubles for tests of the whole proxy: ports that can be taken, listeners on them, and log events kept in a list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IListeningPort, IStreamServerEndpoint
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svc.process.reauthorization import Reauthorization
from svc.proxy.config import ListenerSettings, ProxySettings
from svc.proxy.context import AuthorizedConnection, decide_again
from svc.proxy.http.client import ClientConnection
from svc.proxy.listener import Listener
from svc.settings import parse
from svc.telemetry.events.base import Event
from tests.proxy.rig import CALLER, Handle, Rig, Wire, evidence_of


@dataclass
class LoggedEvent:
    """One logged event."""

    event: Event
    fields: dict[str, Any]
    attributes: dict[str, Any]
    failed: bool


class LogTestCase(SynchronousTestCase):
    """A test case that records log events."""

    def setUp(self) -> None:
        """Record the log events of the test."""
        self.logged: list[LoggedEvent] = []
        globalLogPublisher.addObserver(self._keep)  # type: ignore[arg-type]
        self.addCleanup(globalLogPublisher.removeObserver, self._keep)  # type: ignore[arg-type]

    def _keep(self, event: dict[str, Any]) -> None:
        if "svc_event" in event:
            failed = event.get("log_failure") is not None
            self.logged.append(LoggedEvent(event["svc_event"], event["svc_fields"], event["svc_attributes"], failed))

    def of(self, event: Event) -> list[LoggedEvent]:
        """Return all records of one event."""
        return [each for each in self.logged if each.event is event]

    def only(self, event: Event) -> LoggedEvent:
        """Return the only record of one event."""
        [found] = self.of(event)
        return found


@dataclass
class Ports:
    """The ports of a simulated machine."""

    journal: list[str] = field(default_factory=list)
    taken: dict[str, int] = field(default_factory=dict)
    #: While set, opening and closing a port completes only when the test fires the Deferred.
    opening: list[Deferred[Any]] | None = None
    closing: list[Deferred[Any]] | None = None
    broken: dict[str, Exception] = field(default_factory=dict)


@implementer(IListeningPort)
class Port:
    """One open port."""

    def __init__(self, ports: Ports, name: str, address: str, factory: Any) -> None:
        self._ports = ports
        self._name = name
        self._address = address
        self.factory = factory
        ports.journal.append(f"open {name}")
        ports.taken[address] = ports.taken.get(address, 0) + 1

    def startListening(self) -> None:
        """Do nothing: the port already listens."""

    def stopListening(self) -> Deferred[Any] | None:
        """Release the address."""
        self._ports.journal.append(f"close {self._name}")
        self._ports.taken[self._address] -= 1
        if self._ports.closing is None:
            return None
        closed: Deferred[Any] = Deferred()
        self._ports.closing.append(closed)
        return closed

    def getHost(self) -> IAddress:
        """The address."""
        host, _, port = self._address.rpartition(":")
        return IPv4Address("TCP", host, int(port))


@implementer(IStreamServerEndpoint)
class ServerEndpoint:
    """A server endpoint that listens on one of the simulated ports."""

    def __init__(self, ports: Ports, settings: ListenerSettings) -> None:
        self._ports = ports
        self._name = settings.name
        self._address = str(settings.listen)
        self.port: Port | None = None

    def listen(self, protocolFactory: Any) -> Deferred[IListeningPort]:
        """Open the port, or fail if it is taken."""
        if self._address in self._ports.broken:
            return fail(self._ports.broken[self._address])
        if self._ports.taken.get(self._address):
            host, _, port = self._address.rpartition(":")
            return fail(CannotListenError(host, int(port), OSError(98, "Address already in use")))

        def open_it(_result: object) -> Port:
            self.port = Port(self._ports, self._name, self._address, protocolFactory)
            return self.port

        begun: Deferred[Any] = succeed(None)
        if self._ports.opening is not None:
            begun = Deferred()
            self._ports.opening.append(begun)
        return begun.addCallback(open_it)


class RecordingListenerFactory:
    """Create listeners and keep them for the test."""

    def __init__(self, ports: Ports, clock: Clock | None = None) -> None:
        self._ports = ports
        self.reauthorization: Reauthorization[AuthorizedConnection] = Reauthorization(clock or Clock(), decide_again)
        self.rigs: dict[str, Rig] = {}
        self.listeners: dict[str, Listener] = {}
        self.endpoints: dict[str, ServerEndpoint] = {}
        self.wholes: list[ProxySettings] = []
        self.broken: set[str] = set()

    def __call__(self, whole: ProxySettings, settings: ListenerSettings) -> Listener:
        """Create a listener; the last one of each name is kept."""
        if settings.name in self.broken:
            raise RuntimeError(settings.name)
        rig = Rig(inbound=settings.direction == "inbound", reauthorization=self.reauthorization)
        rig.context.name = settings.name
        endpoint = ServerEndpoint(self._ports, settings)
        listener = Listener(rig.context, endpoint, rig.build)
        self.rigs[settings.name], self.endpoints[settings.name] = rig, endpoint
        self.listeners[settings.name] = listener
        self.wholes.append(whole)
        return listener

    def connect(self, name: str) -> tuple[ClientConnection, Wire]:
        """Open a client connection to a listener."""
        port = self.endpoints[name].port
        assert port is not None
        client = port.factory.buildProtocol(None)
        wire = Wire(Handle(evidence_of(CALLER)))
        client.makeConnection(wire)
        return client, wire


def settings_of(*listeners: tuple[str, int], **top: str) -> ProxySettings:
    """A configuration with inbound listeners of these names and ports."""
    lines = ["trustDomain: prod.example", *(f"{key}: {value}" for key, value in top.items()), "listeners:"]
    for name, port in listeners:
        lines.append(
            f'  - {{name: {name}, protocol: http, direction: inbound, listen: "127.0.0.1:{port}",'
            ' upstream: "127.0.0.1:8080"}'
        )
    return parse("\n".join(lines), ProxySettings)


Step = Callable[[], object]

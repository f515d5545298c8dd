"""Both ends of a TLS connection in one process: real OpenSSL, data carried in memory, a test clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.identity import parse_matcher
from svc.testing.ca import TestAuthority
from svc.testing.workload import MemorySource
from svc.transport.certificates import CertificateCreator
from svc.transport.creators import Creator, client_creator, server_creator
from svc.transport.errors import TransportError
from svc.transport.fair_limiter import FairLimiter
from svc.transport.handshake import TlsFactory, TlsProtocol
from svc.transport.keyupdates import MAX_KEY_UPDATES
from svc.transport.limits import Timeouts

NOW = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
AUTHORITY = TestAuthority("example.org", now=NOW, algorithm="ECDSA-P256")
SERVER_ADDRESS = IPv4Address("TCP", "192.0.2.1", 8443)
CLIENT_ADDRESS = IPv4Address("TCP", "192.0.2.2", 50000)


def source(path: str = "/server", authority: TestAuthority = AUTHORITY, **knobs: Any) -> MemorySource:
    """Credentials of a workload of the test authority."""
    return MemorySource(authority.svid(path, **knobs), authority.bundles())


class Recording:
    """An observer that records its calls."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.done: list[tuple[str, float, Any]] = []
        self.failed: list[tuple[str, TransportError, str]] = []
        self.refused: list[tuple[str, str]] = []
        self.aborted: list[tuple[str, str]] = []

    def handshake_started(self, role: str) -> None:
        self.started.append(role)

    def handshake_done(self, role: str, seconds: float, evidence: Any) -> None:
        self.done.append((role, seconds, evidence))

    def handshake_failed(self, role: str, error: TransportError, address: str) -> None:
        self.failed.append((role, error, address))

    def connection_refused(self, reason: str, address: str) -> None:
        self.refused.append((reason, address))

    def connection_aborted(self, reason: str, address: str) -> None:
        self.aborted.append((reason, address))


class Application(Protocol):
    """An application's protocol that records received data."""

    def __init__(self) -> None:
        self.received = b""
        self.chunks: list[bytes] = []
        self.made = False
        self.lost: Failure | None = None
        self.on_data: Callable[[bytes], None] | None = None

    def connectionMade(self) -> None:
        self.made = True

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        self.chunks.append(data)
        if self.on_data is not None:
            self.on_data(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = reason


class Applications(Factory):
    """Builds applications and records them."""

    noisy = False

    def __init__(self) -> None:
        self.built: list[Any] = []
        self.kind: type[Application] = Application

    def buildProtocol(self, addr: object) -> Application:
        application = self.kind()
        application.factory = self
        self.built.append(application)
        return application


class Wire:
    """
    The sending end of one direction: a transport that buffers writes until the pair carries them.

    It behaves as a TCP transport: buffered data is delivered before an orderly close, an abort drops it, reading can be
    paused, and a streaming producer is paused while more than ``limit`` octets wait.
    """

    def __init__(self, name: str, limit: int = 64 * 1024) -> None:
        self.name = name
        self.limit = limit
        self.buffer = b""
        self.protocol: Any = None
        self.closing = self.aborted = self.lost = False
        self.reading = True
        self.producer: Any = None
        self.producer_paused = False

    @property
    def unsent(self) -> int:
        return len(self.buffer)

    def write(self, data: bytes) -> None:
        assert isinstance(data, bytes), type(data)
        if self.closing or self.aborted or self.lost:
            return
        self.buffer += data
        if self.producer is not None and len(self.buffer) > self.limit and not self.producer_paused:
            self.producer_paused = True
            self.producer.pauseProducing()

    def writeSequence(self, iovec: list[bytes]) -> None:
        self.write(b"".join(iovec))

    def loseConnection(self) -> None:
        self.closing = True

    def abortConnection(self) -> None:
        self.aborted = True

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert streaming
        self.producer = producer

    def unregisterProducer(self) -> None:
        self.producer = None

    def pauseProducing(self) -> None:
        self.reading = False

    def resumeProducing(self) -> None:
        self.reading = True

    stopProducing = loseConnection

    def getPeer(self) -> IPv4Address:
        return CLIENT_ADDRESS if self.name == "server" else SERVER_ADDRESS

    def getHost(self) -> IPv4Address:
        return SERVER_ADDRESS if self.name == "server" else CLIENT_ADDRESS

    def drained(self) -> None:
        if self.producer is not None and self.producer_paused and not self.buffer:
            self.producer_paused = False
            self.producer.resumeProducing()

    def lose(self, reason: Exception) -> None:
        if not self.lost:
            self.lost = True
            producer, self.producer = self.producer, None
            if producer is not None:
                producer.stopProducing()
            self.protocol.connectionLost(Failure(reason))


class Pair:
    """A client and a server and the transports between them."""

    def __init__(
        self,
        tls: type[TlsProtocol],
        *,
        client_source: MemorySource | None = None,
        server_source: MemorySource | None = None,
        expected: str = "spiffe://example.org/*",
        clock_now: Callable[[], datetime] = lambda: NOW,
        client_clock: Callable[[], datetime] | None = None,
        server_options: dict[str, Any] | None = None,
        client_options: dict[str, Any] | None = None,
        timeouts: Timeouts | None = None,
        handshakes: FairLimiter | None = None,
        waiting: FairLimiter | None = None,
        client_connection: Any = None,
        key_updates: int = MAX_KEY_UPDATES,
        by_certificate: CertificateCreator | None = None,
    ) -> None:
        self.clock = Clock()
        self.server_observer, self.client_observer = Recording(), Recording()
        self.server_factory, self.client_factory = Applications(), Applications()
        server: Creator = by_certificate or server_creator(
            server_source or source("/server"),
            clock=clock_now,
            observer=self.server_observer,
            **(server_options or {}),
        )
        client = client_creator(
            client_source or source("/client"),
            clock=client_clock or clock_now,
            expected=parse_matcher(expected),
            observer=self.client_observer,
            **(client_options or {}),
        )
        options: dict[str, Any] = {"clock": self.clock, "protocol": tls, "timeouts": timeouts}
        self.server_tls_factory = TlsFactory(
            server,
            self.server_factory,
            handshakes=handshakes,
            waiting=waiting,
            observer=self.server_observer,
            key_updates=key_updates,
            **options,
        )
        self.client_tls_factory = TlsFactory(client, self.client_factory, **options)
        self.server_wire, self.client_wire = Wire("server"), Wire("client")
        self.server = self.server_tls_factory.buildProtocol(CLIENT_ADDRESS)
        self.client = self.client_tls_factory.buildProtocol(SERVER_ADDRESS)
        self.chunk: Callable[[], int] = lambda: 1 << 30

    def connect(self) -> Pair:
        """Start both ends and carry the handshake."""
        for protocol, wire in ((self.server, self.server_wire), (self.client, self.client_wire)):
            assert protocol is not None
            wire.protocol = protocol
            protocol.makeConnection(wire)
        self.pump()
        return self

    def pump(self, rounds: int = 100_000) -> None:
        """Carry data both ways until nothing moves."""
        for _ in range(rounds):
            moved = self._carry(self.client_wire, self.server_wire)
            if not (self._carry(self.server_wire, self.client_wire) or moved):
                return
        raise AssertionError("the connection never becomes idle")

    def _carry(self, sender: Wire, receiver: Wire) -> bool:
        if sender.aborted and not sender.lost:
            sender.lose(ConnectionAborted())
            receiver.lose(ConnectionDone())
            return True
        if sender.lost or receiver.lost:
            return False
        if sender.buffer and receiver.reading and not receiver.closing:
            size = max(1, self.chunk())
            data, sender.buffer = sender.buffer[:size], sender.buffer[size:]
            receiver.protocol.dataReceived(data)
            sender.drained()
            return True
        if sender.buffer and receiver.closing and not receiver.buffer:
            sender.buffer = b""
        if sender.closing and not sender.buffer:
            sender.lose(ConnectionDone())
            receiver.lose(ConnectionDone())
            return True
        return False

    def cut(self) -> None:
        """Close TCP under both ends, without a TLS close."""
        self.client_wire.lose(ConnectionDone())
        self.server_wire.lose(ConnectionDone())

    @property
    def server_app(self) -> Any:
        return self.server_factory.built[0]

    @property
    def client_app(self) -> Any:
        return self.client_factory.built[0]


@implementer(IPushProducer)
class Producer:
    """A streaming producer that records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pauseProducing(self) -> None:
        self.calls.append("pause")

    def resumeProducing(self) -> None:
        self.calls.append("resume")

    def stopProducing(self) -> None:
        self.calls.append("stop")


def days(count: int) -> timedelta:
    """A number of days."""
    return timedelta(days=count)

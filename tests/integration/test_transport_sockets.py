"""The transport on real sockets of the loopback interface, with clients of OpenSSL and curl."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from typing import Any

from twisted.internet import error, reactor
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import ProcessProtocol, Protocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import SkipTest, TestCase
from zope.interface import implementer

from svc.identity import parse_matcher
from svc.testing.ca import TestAuthority, chain_pem, key_pem
from svc.testing.workload import MemorySource
from svc.transport.creators import client_creator, server_creator
from svc.transport.endpoints import (
    MutualTlsClientEndpoint,
    MutualTlsServerEndpoint,
    PlainClientEndpoint,
    PlainServerEndpoint,
    TcpAddress,
    UnixAddress,
)
from svc.transport.errors import ConnectFailed, HandshakeFailed, PeerSvidInvalid
from svc.transport.evidence import peer_evidence
from svc.transport.fast.selection import ENVIRONMENT
from svc.transport.limits import connection_limit
from svc.transport.tcp import EagerServer, ListeningPort, StockServer
from tests.mixins import TestsMixin
from tests.peers.waiting import PATIENCE
from tests.transport.pairs import Applications, Recording
from tests.transport.test_names import Resolver

NOW = datetime.now(UTC)
AUTHORITY = TestAuthority("example.org", now=NOW)
FOREIGN = TestAuthority("foreign.example", now=NOW)
ANY = parse_matcher("spiffe://example.org/*")


def now() -> datetime:
    return NOW


def source(path: str, authority: TestAuthority = AUTHORITY) -> MemorySource:
    return MemorySource(authority.svid(path), AUTHORITY.bundles())


class SocketsMixin(TestsMixin):
    """Tests for fast and for stock transports."""

    environment = ""
    server_class: type[Any] = StockServer

    def setUp(self) -> None:
        before = os.environ.get(ENVIRONMENT)
        os.environ[ENVIRONMENT] = self.environment
        self.addCleanup(
            lambda: os.environ.pop(ENVIRONMENT) if before is None else os.environ.update({ENVIRONMENT: before})
        )
        self.applications = Applications()
        self.observer = Recording()

    async def listen(self, **options: Any) -> int:
        """Serve mutual TLS on a port of its own."""
        creator = server_creator(source("/server"), clock=now, observer=self.observer, **options.pop("creator", {}))
        endpoint = MutualTlsServerEndpoint(reactor, TcpAddress("127.0.0.1", 0), creator, **options)
        port: Any = await endpoint.listen(self.applications)
        self.addCleanup(port.stopListening)
        return int(port.getHost().port)

    async def connect(self, port: int, credentials: MemorySource | None = None, host: str = "127.0.0.1") -> Any:
        creator = client_creator(credentials or source("/client"), clock=now, expected=ANY)
        endpoint = MutualTlsClientEndpoint(reactor, TcpAddress(host, port), creator)
        protocol = await endpoint.connect(Applications())
        self.addCleanup(close, protocol)  # type: ignore[arg-type]
        return protocol

    async def test_megabytes_both_ways(self) -> None:
        """Large writes of both sides at once arrive whole; the transports are those selected."""
        client = await self.connect(await self.listen())
        await until(lambda: self.applications.built)
        server = self.applications.built[0]
        self.assertIs(type(server.transport.transport), self.server_class)
        client.transport.write(b"c" * 8_000_000)
        server.transport.write(b"s" * 8_000_000)
        await until(lambda: len(server.received) == len(client.received) == 8_000_000)
        self.assertEqual((server.received.count(b"c"), client.received.count(b"s")), (8_000_000, 8_000_000))
        client.transport.loseConnection()
        await until(lambda: server.lost and client.lost)
        server.lost.trap(error.ConnectionDone)
        client.lost.trap(error.ConnectionDone)

    async def test_small_writes_do_not_wait(self) -> None:
        """Nagle's algorithm is off at both ends."""
        client = await self.connect(await self.listen())
        await until(lambda: self.applications.built)
        for end in (client, self.applications.built[0]):
            self.assertTrue(end.transport.transport.getTcpNoDelay())

    async def test_evidence(self) -> None:
        """Both sides have evidence of each other and agreed on a hybrid group."""
        client = await self.connect(await self.listen())
        evidence = peer_evidence(client.transport)
        self.assertEqual(
            (str(evidence.svid.spiffe_id), evidence.group), ("spiffe://example.org/server", "X25519MLKEM768")
        )

    async def test_names_are_resolved(self) -> None:
        """A DNS name is resolved and connected with our transports."""
        client = await self.connect(await self.listen(), host="localhost")
        client.transport.write(b"hello")
        await until(lambda: self.applications.built and self.applications.built[0].received == b"hello")

    async def test_addresses_that_refuse(self) -> None:
        """A name of which twenty addresses refuse connects to the next one without waiting for each."""
        port = await self.listen()
        hosts = [f"127.0.1.{number}" for number in range(1, 21)]
        runtime: Any = reactor
        before = runtime.installNameResolver(Resolver(*(IPv4Address("TCP", host, 1) for host in (*hosts, "127.0.0.1"))))
        self.addCleanup(runtime.installNameResolver, before)
        begun = time.monotonic()
        await self.connect(port, host="many.example")
        self.assertLess(time.monotonic() - begun, 3)

    async def test_refused_client_gets_the_alert_while_it_sends(self) -> None:
        """A client that is refused while it sends a large body still gets the alert, not a reset."""
        port = await self.listen()
        client = await self.connect(port, source("/client", FOREIGN))
        client.transport.write(b"x" * 8_000_000)
        await until(lambda: client.lost)
        client.lost.trap(HandshakeFailed)
        self.assertEqual(client.lost.value.alert, "unknown_ca")
        self.assertEqual(self.applications.built, [])
        error = self.observer.failed[0][1]
        self.assertEqual((error.reason, error.detail), ("svid_invalid", "trust_domain_unknown"))

    async def test_refused_server(self) -> None:
        """A client refuses an invalid server with the typed error."""
        creator = server_creator(source("/server", FOREIGN), clock=now)
        endpoint = MutualTlsServerEndpoint(reactor, TcpAddress("127.0.0.1", 0), creator)
        port: Any = await endpoint.listen(self.applications)
        self.addCleanup(port.stopListening)
        await self.assertFailure(Deferred.fromCoroutine(self.connect(port.getHost().port)), PeerSvidInvalid)

    async def test_connection_limit(self) -> None:
        """Beyond the limit a connection is closed at accept; a closed one makes room."""
        limit = connection_limit(2)
        port = await self.listen(connections=limit)
        first, _ = await self.connect(port), await self.connect(port)
        await self.assertFailure(Deferred.fromCoroutine(self.connect(port)), HandshakeFailed)
        self.assertEqual([reason for reason, _ in self.observer.refused], ["connection_limit"])
        first.transport.loseConnection()
        await until(lambda: limit.held == 1)
        await self.connect(port)
        self.assertEqual(limit.held, 2)

    async def test_no_listener(self) -> None:
        """A refused TCP connection is ConnectFailed."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        await self.assertFailure(Deferred.fromCoroutine(self.connect(port)), ConnectFailed)

    async def test_reset_is_connection_lost(self) -> None:
        """A TCP reset is ConnectionLost for the application."""
        client = await self.connect(await self.listen())
        await until(lambda: self.applications.built)
        client.transport.abortConnection()
        await until(lambda: self.applications.built[0].lost)
        self.applications.built[0].lost.trap(error.ConnectionLost)

    async def test_reset_while_writing(self) -> None:
        """A peer that resets while we write ends the connection once, not from inside a write."""
        client = await self.connect(await self.listen())
        await until(lambda: self.applications.built)
        server = self.applications.built[0]
        server.transport.write(b"x" * 1_000_000)
        client.transport.abortConnection()
        for _ in range(50):
            if server.lost:
                break
            server.transport.write(b"x" * 100_000)
            await pause()
        await until(lambda: server.lost)
        server.lost.trap(error.ConnectionLost)

    async def test_back_pressure(self) -> None:
        """A streaming producer is paused while the reader does not read; memory stays bounded, nothing is lost."""
        client = await self.connect(await self.listen())
        await until(lambda: self.applications.built)
        transport = self.applications.built[0].transport
        client.transport.pauseProducing()
        pump = Pump(transport, 32_000_000)
        transport.registerProducer(pump, True)
        pump.resumeProducing()
        await until(lambda: pump.paused)
        await pause(0.05)
        self.assertLess(transport.transport.unsent, 1_000_000)
        self.assertGreater(pump.left, 0)
        client.transport.resumeProducing()
        await until(lambda: len(client.received) == 32_000_000)

    async def test_plain_unix_and_tcp(self) -> None:
        """The plain endpoints relay over TCP and Unix sockets."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        for address in (TcpAddress("127.0.0.1", 0), UnixAddress(os.path.join(folder, "s"))):
            listening: Any = await PlainServerEndpoint(reactor, address).listen(self.applications)
            self.addCleanup(listening.stopListening)
            if isinstance(address, TcpAddress):
                address = TcpAddress("127.0.0.1", listening.getHost().port)
            client: Any = await PlainClientEndpoint(reactor, address).connect(Applications())
            self.addCleanup(close, client)
            client.transport.write(b"x" * 3_000_000)
            await until(lambda: self.applications.built and len(self.applications.built[-1].received) == 3_000_000)

    async def test_openssl_client(self) -> None:
        """OpenSSL's own client with an SVID is served, and KeyUpdate in both directions does no harm."""
        port = await self.listen()
        client = await self.openssl_client(port, AUTHORITY.svid("/curl"))
        await until(lambda: self.applications.built)
        server = self.applications.built[0]
        # A line that starts with K makes s_client update its keys and ask the peer to update its own (RFC 8446, 4.6.3).
        # It takes what it reads at once for one line, so each waits for what the one before has done.
        for line, done in (
            (b"one\n", lambda: server.received == b"one\n"),
            (b"K\n", lambda: b"KEYUPDATE" in client.output),
            (b"two\n", lambda: server.received == b"one\ntwo\n"),
        ):
            client.transport.write(line)
            await until(done)
        server.transport.write(b"answer with new keys\n")
        await until(lambda: b"answer with new keys" in client.output)
        server.transport.loseConnection()
        await client.ended

    async def test_openssl_client_without_a_certificate(self) -> None:
        """A client without a certificate is refused with certificate_required and counted."""
        port = await self.listen()
        client = await self.openssl_client(port, None)
        await client.ended
        await until(lambda: self.observer.failed)
        error = self.observer.failed[0][1]
        found = (error.reason, error.detail, error.alert)
        self.assertEqual(found, ("svid_invalid", "certificate_missing", "certificate_required"))
        self.assertIn(b"certificate required", client.output)

    async def test_classical_openssl_client_where_hybrid_is_required(self) -> None:
        """A client of OpenSSL 3.0, which has no ML-KEM, is refused with pq_required."""
        port = await self.listen(creator={"groups": "require"})
        client = await self.openssl_client(port, AUTHORITY.svid("/curl"), "-groups", "X25519")
        await client.ended
        await until(lambda: self.observer.failed)
        self.assertEqual(self.observer.failed[0][1].reason, "pq_required")
        self.assertEqual(self.applications.built, [])

    async def test_openssl_client_that_offers_h2(self) -> None:
        """A foreign ALPN offer is refused with its alert."""
        port = await self.listen()
        client = await self.openssl_client(port, AUTHORITY.svid("/curl"), "-alpn", "h2")
        await client.ended
        self.assertEqual(self.observer.failed[0][1].reason, "alpn_refused")
        self.assertIn(b"no application protocol", client.output)

    async def openssl_client(self, port: int, svid: Any, *options: str) -> Any:
        """Start ``openssl s_client``."""
        program = shutil.which("openssl")
        if program is None:
            raise SkipTest("openssl is not installed")
        arguments = [program, "s_client", "-connect", f"127.0.0.1:{port}", *options]
        if svid is not None:
            folder = tempfile.mkdtemp()
            self.addCleanup(shutil.rmtree, folder)
            for name, data in (("cert", chain_pem(svid)), ("key", key_pem(svid))):
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(data)
            arguments += ["-cert", os.path.join(folder, "cert"), "-key", os.path.join(folder, "key")]
        client = Program()
        transport = reactor.spawnProcess(client, program, arguments, env=None)
        self.addCleanup(client.stop, transport)
        return client


class FastSocketsTests(SocketsMixin, TestCase):
    """With the fast transports."""

    timeout = 600
    environment = "fast"
    server_class = EagerServer


class StockSocketsTests(SocketsMixin, TestCase):
    """With Twisted's own transports."""

    timeout = 600
    environment = "stock"


class AddressFamilyTests(TestCase):
    """The addresses on which a port accepts connections, and the address of the client."""

    async def listen(self, host: str) -> int:
        """Serve plain TCP on a port of its own."""
        self.served = Applications()
        port: Any = await PlainServerEndpoint(reactor, TcpAddress(host, 0)).listen(self.served)
        self.addCleanup(port.stopListening)
        return int(port.getHost().port)

    async def assert_reached(self, port: int, host: str) -> None:
        """A client of an address is seen with that address, and not as one that IPv6 maps IPv4 to."""
        self.served.built.clear()
        client = await PlainClientEndpoint(reactor, TcpAddress(host, port)).connect(Applications())
        self.addCleanup(close, client)  # type: ignore[arg-type]
        await until(lambda: self.served.built)
        transport = self.served.built[0].transport
        kind = IPv6Address if ":" in host else IPv4Address
        for address in (transport.getPeer(), transport.getHost()):
            self.assertEqual((kind, host), (type(address), address.host))

    async def test_both_families(self) -> None:
        """A port without a host, and one of ``[::]``, take IPv6 and IPv4."""
        for host in ("", "::"):
            port = await self.listen(host)
            await self.assert_reached(port, "127.0.0.1")
            await self.assert_reached(port, "::1")

    async def test_ipv4_alone(self) -> None:
        """``0.0.0.0`` is IPv4 alone."""
        port = await self.listen("0.0.0.0")
        await self.assert_reached(port, "127.0.0.1")
        with self.assertRaises(ConnectFailed):
            await PlainClientEndpoint(reactor, TcpAddress("::1", port)).connect(Applications())

    async def test_host_without_ipv6(self) -> None:
        """Without IPv6 a port without a host takes IPv4; any other error is the caller's."""
        created = ListeningPort.createInternetSocket
        answer = errno.EAFNOSUPPORT

        def without(port: ListeningPort) -> socket.socket:
            if port.addressFamily == socket.AF_INET6:
                raise OSError(answer, "refused")
            return created(port)

        self.patch(ListeningPort, "createInternetSocket", without)
        await self.assert_reached(await self.listen(""), "127.0.0.1")
        with self.assertRaises(error.CannotListenError):
            await self.listen("::")
        answer = errno.EADDRINUSE
        with self.assertRaises(error.CannotListenError):
            await self.listen("")


class ReactorTests(TestCase):
    """Tests of ``svc.transport.fast.reactor`` in a process of its own."""

    def test_install_and_run(self) -> None:
        """The reactor is installed, serves timers and descriptors, and stops."""
        program = (
            "from svc.transport.fast.reactor import install\n"
            "assert install()\n"
            "from twisted.internet import reactor\n"
            "assert type(reactor).__name__ == 'PlainEPollReactor', reactor\n"
            "from twisted.internet.endpoints import TCP4ServerEndpoint\n"
            "from svc.transport.endpoints import *\n"
            "from tests.transport.pairs import Applications\n"
            "served = Applications()\n"
            "async def main():\n"
            "    port = await PlainServerEndpoint(reactor, TcpAddress('127.0.0.1', 0)).listen(served)\n"
            "    address = TcpAddress('127.0.0.1', port.getHost().port)\n"
            "    client = await PlainClientEndpoint(reactor, address).connect(Applications())\n"
            "    client.transport.write(b'x' * 1000000)\n"
            "    client.transport.loseConnection()\n"
            "from twisted.internet.defer import ensureDeferred\n"
            "reactor.callWhenRunning(lambda: ensureDeferred(main()))\n"
            "def stop_when_all_came():\n"
            "    all_came = served.built and len(served.built[0].received) == 1000000\n"
            "    reactor.stop() if all_came else reactor.callLater(0.1, stop_when_all_came)\n"
            "reactor.callLater(0.5, stop_when_all_came)\n"
            "reactor.run()\n"
            "print(len(served.built[0].received))\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=180, check=False)
        self.assertEqual((done.stdout, done.returncode), ("1000000\n", 0), done.stderr)

    def test_timers_run_evenly(self) -> None:
        """Timers of any reactor keep their times whatever is done to the clock on the wall."""
        for kind in ("asyncioreactor", "epollreactor"):
            program = (
                "import time\n"
                "wall, jump = time.time, 0.0\n"
                "time.time = lambda: wall() + jump\n"
                f"from twisted.internet import {kind}\n"
                f"{kind}.install()\n"
                "from twisted.internet import reactor\n"
                "from svc.process.clock import use_monotonic_clock\n"
                "use_monotonic_clock(reactor)\n"
                "began, fired = time.monotonic(), []\n"
                "def fire():\n"
                "    global jump\n"
                "    fired.append(time.monotonic() - began)\n"
                "    jump = (3600.0, -3600.0, 0.0)[len(fired) % 3]\n"
                "    reactor.callLater(0.2, fire) if len(fired) < 5 else reactor.stop()\n"
                "reactor.callLater(0.2, fire)\n"
                "late = reactor.callLater(60, fired.append, 'late')\n"
                "reactor.run()\n"
                "print(len(fired), 'late' in fired, 0.9 < fired[-1] < 50)\n"
            )
            done = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, timeout=180, check=False
            )
            self.assertEqual((done.stdout, done.returncode), ("5 False True\n", 0), done.stderr)


class Program(ProcessProtocol):
    """A program that runs until it ends or is stopped."""

    def __init__(self) -> None:
        self.output = b""
        self.ended: Deferred[None] = Deferred()

    def outReceived(self, data: bytes) -> None:
        self.output += data

    errReceived = outReceived

    def processEnded(self, reason: Failure) -> None:
        self.ended.callback(None)

    def stop(self, transport: Any) -> Deferred[None] | None:
        if self.ended.called:
            return None
        transport.signalProcess("KILL")
        return self.ended


@implementer(IPushProducer)
class Pump:
    """Writes so many octets as fast as it may."""

    def __init__(self, transport: Any, left: int) -> None:
        self.transport = transport
        self.left = left
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False
        while self.left and not self.paused:
            self.left -= 64_000
            self.transport.write(b"p" * 64_000)
        if not self.left:
            self.transport.unregisterProducer()

    def pauseProducing(self) -> None:
        self.paused = True

    def stopProducing(self) -> None:
        self.paused = True


async def until(condition: Any, seconds: float = PATIENCE) -> None:
    """Wait for a condition; the time limit of the test ends a wait in vain."""
    deadline = reactor.seconds() + seconds
    while not condition():
        if reactor.seconds() > deadline:
            raise AssertionError("the condition never came true")
        await pause(0.005)


def pause(seconds: float = 0) -> Deferred[None]:
    return deferLater(reactor, seconds, lambda: None)


async def close(protocol: Protocol) -> None:
    """Close a client's connection and wait for the other side."""
    if protocol.lost is None:  # type: ignore[attr-defined]
        protocol.transport.abortConnection()
        await until(lambda: protocol.lost)  # type: ignore[attr-defined]
    await pause(0.02)

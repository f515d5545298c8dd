"""Tests of ``svc.transport.proxied``."""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import directlyProvides

from svc.transport.limits import waiting_limit
from svc.transport.proxied import ProxiedFactory
from tests.wire.test_proxyprotocol import block, header


class Recorder(Protocol):
    """Records received data."""

    def __init__(self) -> None:
        self.got = b""
        self.lost: Failure | None = None

    def dataReceived(self, data: bytes) -> None:
        self.got += data

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        self.lost = reason


class Wire(StringTransport):
    """Records an abort."""

    aborted = False

    def abortConnection(self) -> None:
        self.aborted = True


class ProxiedTests(SynchronousTestCase):
    """The header before another protocol."""

    def setUp(self) -> None:
        """One accepted connection."""
        self.clock = Clock()
        self.built: list[Recorder] = []
        self.addresses: list[Any] = []
        self.refusals: list[str] = []

        class RecorderFactory(Factory):
            def buildProtocol(inner, addr: Any) -> Recorder:  # noqa: N805 (the test is self)
                self.addresses.append(addr)
                self.built.append(Recorder())
                return self.built[-1]

        self.factory = ProxiedFactory(
            RecorderFactory(),
            clock=self.clock,
            timeout=10.0,
            refused=lambda reason, _transport: self.refusals.append(reason),
            waiting=waiting_limit(2),
        )
        self.wire = Wire()
        self.connection = self.factory.buildProtocol(None)
        self.connection.makeConnection(self.wire)
        self.addCleanup(lambda: self.assertEqual(self.clock.getDelayedCalls(), []))

    def test_client_address(self) -> None:
        """The protocol above is built with the client's address, gets the rest of the data, and writes directly."""
        data = header(block=block("192.0.2.7", 4711)) + b"hello"
        for octet in data:
            self.connection.dataReceived(bytes([octet]))
        (above,) = self.built
        self.assertEqual((self.addresses[0].host, self.addresses[0].port), ("192.0.2.7", 4711))
        transport: Any = above.transport
        self.assertEqual(transport.getPeer().host, "192.0.2.7")
        self.assertEqual(above.got, b"hello")
        transport.write(b"answer")
        self.assertEqual(self.wire.value(), b"answer")
        self.connection.connectionLost(Failure(ConnectionDone()))
        self.assertIsNotNone(above.lost)

    def test_end_in_one_direction(self) -> None:
        """FIN reaches a protocol above that supports half-closed streams; without one it is the end."""
        ended: list[Any] = []
        self.wire.connectionLost = ended.append  # type: ignore[attr-defined]
        self.connection.dataReceived(header(block=block("192.0.2.7", 4711)))
        self.connection.readConnectionLost()
        self.assertEqual(1, len(ended))
        halves: list[str] = []
        directlyProvides(self.built[0], IHalfCloseableProtocol)
        self.built[0].readConnectionLost = lambda: halves.append("read")  # type: ignore[attr-defined]
        self.connection.readConnectionLost()
        self.assertEqual((["read"], 1), (halves, len(ended)))
        waiting = self.factory.buildProtocol(None)
        waiting.makeConnection(self.wire)
        waiting.readConnectionLost()
        self.assertEqual(2, len(ended))
        waiting.connectionLost()

    def test_load_balancer_itself(self) -> None:
        """A header without an address (a health check) keeps the address of the TCP connection."""
        self.connection.dataReceived(header(0x20, 0))
        self.assertEqual(self.addresses, [self.wire.getPeer()])

    def test_no_header(self) -> None:
        """A connection without a header is aborted and reported, and never reaches the protocol above."""
        self.connection.dataReceived(b"\x16\x03\x01\x02\x00")
        self.connection.dataReceived(header(0x20, 0))
        self.assertTrue(self.wire.aborted)
        self.assertEqual((self.built, self.refusals), ([], ["proxy_header_invalid"]))

    def test_late_header(self) -> None:
        """A connection whose header is late is aborted."""
        self.connection.dataReceived(header()[:5])
        self.clock.advance(10.0)
        self.assertTrue(self.wire.aborted)
        self.assertEqual(self.refusals, ["proxy_header_timeout"])

    def test_lost_before_header(self) -> None:
        """A connection that ends before its header leaves no timer."""
        self.connection.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.built, [])

    def test_silent_connections_are_evicted(self) -> None:
        """Connections without a header are limited, and the oldest is evicted for a new one."""
        wires = [Wire(), Wire()]
        connections = [self.factory.buildProtocol(None) for _ in wires]
        for connection, wire in zip(connections, wires, strict=True):
            connection.makeConnection(wire)
        self.assertEqual([True, False, False], [each.aborted for each in (self.wire, *wires)])
        self.assertEqual(["waiting_limit"], self.refusals)
        for connection in (self.connection, *connections):
            connection.connectionLost(Failure(ConnectionDone()))
        assert self.factory.waiting is not None
        self.assertEqual(0, self.factory.waiting.held)

    def test_header_releases_the_slot(self) -> None:
        """A complete header releases the slot under the waiting limit."""
        assert self.factory.waiting is not None
        self.assertEqual(1, self.factory.waiting.held)
        self.connection.dataReceived(header(0x20, 0))
        self.assertEqual(0, self.factory.waiting.held)

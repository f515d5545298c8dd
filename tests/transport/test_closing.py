"""Tests of how established connections end, on the fast and the stock data path."""

from __future__ import annotations

from typing import Any, ClassVar

from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svc.transport.fast.tls import BUFFER_SIZE
from svc.transport.handshake import FastTlsProtocol, StockTlsProtocol, TlsProtocol
from svc.transport.limits import Timeouts
from tests.mixins import TestsMixin
from tests.transport.pairs import Application, Pair, Producer, Wire


class ClosingTestsMixin(TestsMixin):
    """What holds on every data path."""

    tls: ClassVar[type[TlsProtocol]]

    def pair(self, **options: Any) -> Pair:
        return Pair(self.tls, **options).connect()

    def test_clean_close_is_connection_done(self) -> None:
        """close_notify from either side ends both with ConnectionDone, and data written before it arrives."""
        for side in ("client", "server"):
            with self.subTest(side):
                pair = self.pair()
                closing, other = (
                    (pair.client_app, pair.server_app) if side == "client" else (pair.server_app, pair.client_app)
                )
                closing.transport.write(b"last words")
                closing.transport.loseConnection()
                closing.transport.write(b"dropped")
                pair.pump()
                self.assertEqual(other.received, b"last words")
                closing.lost.trap(ConnectionDone)
                other.lost.trap(ConnectionDone)
                self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_truncation_is_connection_lost(self) -> None:
        """TCP closed without close_notify is ConnectionLost, so that the reader detects a truncated body."""
        pair = self.pair()
        pair.client_app.transport.write(b"half a body")
        pair.pump()
        pair.cut()
        pair.server_app.lost.trap(ConnectionLost)
        pair.client_app.lost.trap(ConnectionLost)
        self.assertEqual(pair.server_app.received, b"half a body")

    def test_truncation_within_a_record(self) -> None:
        """Nothing of a truncated record is delivered, and the connection ends with ConnectionLost."""
        pair = self.pair()
        pair.client_app.transport.write(b"whole")
        pair.client_app.transport.write(b"cut")
        pair.client_wire.buffer = pair.client_wire.buffer[:-1]
        pair.pump()
        pair.cut()
        self.assertEqual(pair.server_app.received, b"whole")
        pair.server_app.lost.trap(ConnectionLost)

    def test_close_from_within_data_received(self) -> None:
        """loseConnection in dataReceived answers the peer and closes cleanly."""
        pair = self.pair()

        def answer(data: bytes) -> None:
            pair.server_app.transport.write(b"bye")
            pair.server_app.transport.loseConnection()

        pair.server_app.on_data = answer
        pair.client_app.transport.write(b"hello")
        pair.pump()
        self.assertEqual(pair.client_app.received, b"bye")
        pair.server_app.lost.trap(ConnectionDone)

    def test_abort_from_within_data_received(self) -> None:
        """abortConnection in dataReceived: nothing more is delivered, though more has arrived."""
        pair = self.pair()
        pair.server_app.on_data = lambda data: pair.server_app.transport.abortConnection()
        pair.client_app.transport.write(b"x" * (BUFFER_SIZE * 3))
        pair.pump()
        self.assertEqual(len(pair.server_app.chunks), 1)
        pair.server_app.lost.trap(ConnectionLost)
        self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_close_before_the_rest_of_a_read(self) -> None:
        """loseConnection in dataReceived: what has arrived is still delivered, and nothing written later is sent."""
        pair = self.pair()

        def close(_data: bytes) -> None:
            pair.server_app.transport.loseConnection()
            pair.server_app.transport.write(b"late")

        pair.server_app.on_data = close
        pair.client_app.transport.write(b"x" * (BUFFER_SIZE * 3))
        read, pair.client_wire.buffer = pair.client_wire.buffer, b""
        pair.server.dataReceived(read)
        self.assertEqual(BUFFER_SIZE * 3, len(pair.server_app.received))
        pair.pump()
        self.assertEqual(b"", pair.client_app.received)
        pair.server_app.lost.trap(ConnectionDone)
        self.assertEqual(pair.clock.getDelayedCalls(), [])

    def half_closing(self) -> tuple[Pair, Any, Any]:
        """A pair whose applications support half-closed streams."""
        pair = Pair(self.tls)
        for factory in (pair.server_factory, pair.client_factory):
            factory.kind = HalfClosing
        pair.connect()
        return pair, pair.client_app, pair.server_app

    def test_half_close(self) -> None:
        """One side closes its sending direction; the other is notified, sends its data, and then both close cleanly."""
        pair, client, server = self.half_closing()
        client.transport.write(b"question")
        client.transport.loseWriteConnection()
        client.transport.write(b"dropped")
        client.transport.writeSequence([b"dropped"])
        client.transport.loseWriteConnection()
        pair.pump()
        self.assertEqual((server.received, server.events, client.events), (b"question", ["read"], ["write"]))
        self.assertIsNone(server.lost)
        server.transport.write(b"answer" * 50_000)
        pair.pump()
        server.transport.loseConnection()
        pair.pump()
        self.assertEqual(client.received, b"answer" * 50_000)
        self.assertEqual(client.events, ["write", "read"])
        for side in (client, server):
            side.lost.trap(ConnectionDone)
        self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_half_close_by_both(self) -> None:
        """When both sides have closed their sending direction the connection ends cleanly."""
        pair, client, server = self.half_closing()
        client.transport.loseWriteConnection()
        pair.pump()
        server.transport.loseWriteConnection()
        pair.pump()
        for side in (client, server):
            side.lost.trap(ConnectionDone)
        self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_half_close_then_cut(self) -> None:
        """After the peer's close_notify the end of TCP is a clean end for the reader; data behind it is dropped."""
        pair, client, server = self.half_closing()
        client.transport.loseWriteConnection()
        pair.pump()
        pair.server.dataReceived(b"\x17\x03\x03\x00\x20" + bytes(32))
        pair.cut()
        self.assertEqual((server.received, server.events), (b"", ["read"]))
        server.lost.trap(ConnectionDone)
        client.lost.trap(ConnectionLost)

    def test_tcp_ends_in_one_direction(self) -> None:
        """FIN behind close_notify leaves the other direction open; without close_notify it is a truncated stream."""
        pair, client, server = self.half_closing()
        ended: list[Any] = []
        pair.server_wire.connectionLost = ended.append  # type: ignore[attr-defined]
        client.transport.loseWriteConnection()
        pair.pump()
        pair.server.readConnectionLost()
        self.assertEqual((ended, server.lost), ([], None))
        server.transport.write(b"answer")
        pair.pump()
        self.assertEqual(client.received, b"answer")
        pair, client, server = self.half_closing()
        pair.server_wire.connectionLost = ended.append  # type: ignore[attr-defined]
        pair.server.readConnectionLost()
        ended[0].trap(ConnectionDone)

    def test_abort(self) -> None:
        """It sends no close_notify: the peer sees a truncated stream."""
        pair = self.pair()
        pair.server_app.transport.write(b"part")
        written = pair.server_wire.buffer
        pair.server_app.transport.abortConnection()
        self.assertEqual((pair.server_wire.aborted, pair.server_wire.buffer), (True, written))
        pair.pump()
        pair.client_app.lost.trap(ConnectionLost)
        pair.server_app.transport.abortConnection()

    def test_half_close_of_the_peer_without_support(self) -> None:
        """A protocol without half-close is ended by the peer's close_notify, as by a full close."""
        pair = self.pair()
        pair.client_app.transport.write(b"last")
        pair.client_app.transport.loseWriteConnection()
        pair.pump()
        self.assertEqual(pair.server_app.received, b"last")
        pair.server_app.lost.trap(ConnectionDone)
        pair.client_app.lost.trap(ConnectionDone)

    def test_close_waits_for_the_producer(self) -> None:
        """loseConnection with a producer registered closes after the producer is done, with all of its data."""
        pair = self.pair()
        transport = pair.server_app.transport
        transport.registerProducer(Producer(), True)
        transport.write(b"one")
        transport.loseConnection()
        transport.write(b"two")
        pair.pump()
        self.assertIsNone(pair.server_app.lost)
        transport.unregisterProducer()
        pair.pump()
        self.assertEqual(pair.client_app.received, b"onetwo")
        pair.server_app.lost.trap(ConnectionDone)

    def test_use_after_the_end_is_harmless(self) -> None:
        """Closing, aborting, writing and unregistering after the connection is lost do nothing."""
        pair = self.pair()
        transport = pair.server_app.transport
        transport.registerProducer(Producer(), True)
        pair.cut()
        transport.write(b"x")
        transport.writeSequence([b"x"])
        transport.loseConnection()
        transport.unregisterProducer()
        transport.abortConnection()
        self.assertIsNone(transport.negotiatedProtocol)
        self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_silent_peer_is_aborted_after_close(self) -> None:
        """A peer that does not answer our close_notify is aborted after the timeout."""
        pair = self.pair(timeouts=Timeouts(close=5))
        pair.server_wire.reading = False
        pair.client_app.transport.loseConnection()
        pair.pump()
        pair.clock.advance(4.9)
        self.assertFalse(pair.client_wire.aborted)
        pair.clock.advance(0.2)
        self.assertTrue(pair.client_wire.aborted)

    def test_slow_reader_is_not_aborted(self) -> None:
        """After our close a peer that still reads data is not aborted, however long it takes."""
        pair = self.pair(timeouts=Timeouts(close=5))
        pair.client_app.transport.write(b"x" * 100_000)
        pair.client_app.transport.loseConnection()
        pair.chunk = lambda: 10_000
        for _ in range(8):
            pair._carry(pair.client_wire, pair.server_wire)
            pair.clock.advance(5)
        self.assertFalse(pair.client_wire.aborted)
        pair.server_wire.reading = False
        pair.clock.advance(5)
        pair.clock.advance(5)
        self.assertTrue(pair.client_wire.aborted)

    def test_transport_that_does_not_report_what_is_unsent(self) -> None:
        """Above a transport without ``unsent``, a silent peer is aborted after one timeout."""
        pair = Pair(self.tls, timeouts=Timeouts(close=5))
        pair.client_wire = PlainWire("client")
        pair.connect()
        pair.server_wire.reading = False
        pair.client_app.transport.loseConnection()
        pair.clock.advance(5)
        self.assertTrue(pair.client_wire.aborted)


class PlainWire(Wire):
    """A transport that does not report what is unsent."""

    @property
    def unsent(self) -> int:
        raise AttributeError


@implementer(IHalfCloseableProtocol)
class HalfClosing(Application):
    """An application that records the end of each direction."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def readConnectionLost(self) -> None:
        self.events.append("read")

    def writeConnectionLost(self) -> None:
        self.events.append("write")


class FastClosingTests(ClosingTestsMixin, SynchronousTestCase):
    """The end on the fast data path."""

    tls = FastTlsProtocol


class StockClosingTests(ClosingTestsMixin, SynchronousTestCase):
    """The end on Twisted's own data path."""

    tls = StockTlsProtocol

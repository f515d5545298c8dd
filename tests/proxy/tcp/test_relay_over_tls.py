"""The relay over real TLS in memory: ends of streams as close_notify, back-pressure, and streams that break off."""

from __future__ import annotations

from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.tcp.relay import RelayEnd
from svc.transport.handshake import FastTlsProtocol, StockTlsProtocol, TlsProtocol
from tests.mixins import TestsMixin
from tests.proxy.tcp.rig import HalfWire, lose
from tests.transport.pairs import Pair
from tests.transport.test_closing import HalfClosing

BULK = bytes(range(256)) * 2048


class TlsRelayTestsMixin(TestsMixin):
    """A client over TLS, and an application without."""

    tls: type[TlsProtocol]

    def setUp(self) -> None:
        """Relay one connection."""
        self.pair = Pair(self.tls)
        self.end, self.far, self.wire = RelayEnd(), RelayEnd(), HalfWire()
        self.pair.server_factory.buildProtocol = lambda _address: self.end  # type: ignore[assignment, return-value]
        self.pair.client_factory.kind = HalfClosing
        self.pair.connect()
        self.far.makeConnection(self.wire)
        self.end.join(self.far)
        self.client: HalfClosing = self.pair.client_app

    def test_client_ends_first(self) -> None:
        """close_notify ends the stream to the application; its answer and its end come back."""
        self.client.transport.write(b"question")
        self.client.transport.loseWriteConnection()
        self.pair.pump()
        self.assertEqual((self.wire.take(), self.wire.ended, self.client.lost), (b"question", True, None))
        self.far.dataReceived(BULK)
        self.far.readConnectionLost()
        self.pair.pump()
        self.assertEqual((self.client.received, self.client.events), (BULK, ["write", "read"]))
        assert self.client.lost is not None
        self.client.lost.trap(ConnectionDone)
        self.assertTrue(self.wire.disconnecting)
        self.assertEqual(self.pair.clock.getDelayedCalls(), [])

    def test_application_ends_first(self) -> None:
        """The end of the application's stream is close_notify; the client's octets still pass."""
        self.far.readConnectionLost()
        self.pair.pump()
        self.assertEqual((self.client.events, self.client.lost), (["read"], None))
        self.client.transport.write(BULK)
        self.client.transport.loseWriteConnection()
        self.pair.pump()
        self.assertEqual((self.wire.take(), self.wire.ended, self.wire.disconnecting), (BULK, True, True))
        assert self.client.lost is not None
        self.client.lost.trap(ConnectionDone)

    def test_slow_client(self) -> None:
        """While the client does not read, the application is not read; nothing is lost."""
        self.pair.client_wire.reading = False
        self.far.dataReceived(BULK)
        self.assertTrue(self.wire.paused)
        self.far.readConnectionLost()
        self.pair.client_wire.reading = True
        self.pair.pump()
        self.assertEqual((self.client.received, self.client.events), (BULK, ["read"]))

    def test_slow_application(self) -> None:
        """While the application does not read, the client is not read."""
        self.wire.producer.pauseProducing()
        self.assertFalse(self.pair.server_wire.reading)
        self.wire.producer.resumeProducing()
        self.assertTrue(self.pair.server_wire.reading)

    def test_application_breaks_off(self) -> None:
        """The client sees a truncated stream, no close_notify."""
        self.far.dataReceived(b"part")
        self.pair.pump()
        lose(self.far, clean=False)
        self.pair.pump()
        self.assertEqual((self.client.received, self.client.events), (b"part", []))
        assert self.client.lost is not None
        self.client.lost.trap(ConnectionLost)

    def test_client_breaks_off(self) -> None:
        """TCP that ends without close_notify breaks off the application's connection."""
        self.pair.cut()
        self.assertTrue(self.wire.aborted)


class FastTests(TlsRelayTestsMixin, SynchronousTestCase):
    """On the fast data path."""

    tls = FastTlsProtocol


class StockTests(TlsRelayTestsMixin, SynchronousTestCase):
    """On Twisted's own data path."""

    tls = StockTlsProtocol

"""A tunnel joins two connections: it relays every octet, applies back-pressure, and closes both ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IPushProducer
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.pacing.turns import Turns
from svc.policy import Permit
from svc.proxy.http.tunnel import Tunnel
from svc.proxy.http.upstream import UpstreamConnection, UpstreamPool
from svc.wire.http1 import MessageLimits
from tests.proxy.rig import BASE, CALLER, FakeEndpoint, Rig, Wire, lose
from tests.proxy.test_upstream import User

SWITCH = b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
NONCE = b"AAAAAAAAAAAAAAAAAAAAAA"
WEBSOCKET = b"GET /ws HTTP/1.1\r\nHost: api\r\n%bConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
SIGNED = b"Svc-Notarization-Level: signRequest\r\nSvc-Notary-Nonce: %b\r\n" % NONCE


class TunnelTests(SynchronousTestCase):
    """The tunnel alone."""

    def setUp(self) -> None:
        """Create a client and an application that granted an upgrade."""
        endpoint, clock = FakeEndpoint(), Clock()
        self.pool = UpstreamPool(
            endpoint,
            "127.0.0.1:8080",
            connect_timeout=5.0,
            limits=MessageLimits(),
            max_idle=2,
            idle_timeout=30.0,
            seconds=clock.seconds,
            wall=lambda: BASE,
            turns=Turns(clock),
        )
        user = User()
        self.pool.acquire(Permit(CALLER.spiffe_id, ()), user)
        assert user.connection is not None
        self.upstream: UpstreamConnection = user.connection
        self.application = endpoint.connections[0][1]
        self.client = Wire()
        self.moves: list[int] = []
        self.tunnel = Tunnel(self.client, self.upstream, self.moves.append)

    @property
    def counted(self) -> list[int]:
        """Return the octet counts of the application side."""
        return [count for count in self.moves if count]

    def start(self, from_upstream: bytes = b"", from_client: bytes = b"") -> None:
        """Start the tunnel."""
        self.upstream.dataReceived(SWITCH + from_upstream)
        self.tunnel.start(from_client)

    def upstream_ends(self) -> None:
        """Close the application's connection as Twisted's transports do: the producer is stopped first."""
        if self.application.producer is not None:
            self.application.producer.stopProducing()
        self.upstream.connectionLost(Failure(ConnectionDone()))

    def test_octets_received_before_the_start(self) -> None:
        """Octets received after the request and after the response are relayed first."""
        self.start(b"from the application", b"from the client")
        self.assertEqual(self.client.take(), b"from the application")
        self.assertEqual(self.application.take(), b"from the client")
        self.assertEqual(self.counted, [15])

    @given(st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=20)), max_size=20))
    def test_every_octet(self, pieces: list[tuple[bool, bytes]]) -> None:
        """In both directions every octet is relayed in order; those to the application are counted."""
        self.setUp()
        self.start()
        for from_client, data in pieces:
            if from_client:
                self.tunnel.from_client(data)
            else:
                self.upstream.dataReceived(data)
        up = b"".join(data for from_client, data in pieces if from_client)
        down = b"".join(data for from_client, data in pieces if not from_client)
        self.assertEqual((self.application.take(), self.client.take(), sum(self.counted)), (up, down, len(up)))

    def test_both_sides_reset_the_idle_time(self) -> None:
        """Octets of either side reset the idle time."""
        self.start()
        self.upstream.dataReceived(b"tick")
        self.assertEqual(self.moves, [0])
        self.tunnel.from_client(b"tock")
        self.assertEqual(self.moves, [0, 4])

    def test_slow_client(self) -> None:
        """While the client's transport is full the application is not read."""
        self.start()
        self.client.producer.pauseProducing()
        self.assertTrue(self.application.paused)
        self.client.producer.resumeProducing()
        self.assertFalse(self.application.paused)

    def test_slow_application(self) -> None:
        """While the application's transport is full the client is not read."""
        self.start()
        producer = self.application.producer
        verifyObject(IPushProducer, producer)
        producer.pauseProducing()
        self.assertTrue(self.client.paused)
        producer.resumeProducing()
        self.assertFalse(self.client.paused)

    def test_reading_begins_with_the_tunnel(self) -> None:
        """If reading from the application was paused for the record, the tunnel resumes it."""
        self.upstream.pauseProducing()
        self.start()
        self.assertFalse(self.application.paused)

    def test_application_ends(self) -> None:
        """When the application closes, the client gets the remaining octets and an orderly close."""
        self.start(b"last")
        self.application.producer.pauseProducing()
        self.upstream_ends()
        self.assertEqual(self.client.take(), b"last")
        self.assertTrue(self.client.disconnecting)
        self.assertFalse(self.client.aborted or self.client.paused)
        self.assertIsNone(self.client.producer)
        self.tunnel.from_client(b"too late")
        self.assertEqual((self.application.take(), self.counted), (b"", []))

    def test_end_of_the_transport_is_not_the_clients(self) -> None:
        """``stopProducing`` of a transport that ends closes nothing before the remaining octets are sent."""
        self.start()
        self.application.producer.stopProducing()
        self.assertFalse(self.client.disconnecting or self.client.aborted)

    def test_application_ended_before_the_start(self) -> None:
        """What the application sent before its early close is delivered; then the client is closed."""
        self.upstream.dataReceived(SWITCH + b"bye")
        self.upstream.connectionLost(Failure(ConnectionDone()))
        self.tunnel.start(b"never read")
        self.assertEqual(self.client.take(), b"bye")
        self.assertTrue(self.client.disconnecting)
        self.assertEqual((self.application.take(), self.counted), (b"", []))

    def test_client_ends(self) -> None:
        """When the client closes, the application gets the remaining octets and an orderly close."""
        self.start(b"", b"last")
        self.tunnel.client_gone(complete=True)
        self.assertEqual(self.application.take(), b"last")
        self.assertTrue(self.application.disconnecting)
        self.assertFalse(self.application.aborted)
        self.assertIsNone(self.application.producer)
        self.client.clear()
        self.upstream.dataReceived(b"too late")
        self.upstream_ends()
        self.assertEqual(self.client.take(), b"")
        self.assertFalse(self.client.disconnecting)

    def test_client_breaks_off(self) -> None:
        """When the client breaks off, so does the connection to the application."""
        self.start(b"", b"part")
        self.tunnel.client_gone(complete=False)
        self.assertTrue(self.application.aborted)
        self.assertFalse(self.application.disconnecting)

    def test_application_breaks_off(self) -> None:
        """When the application breaks off, so does the client's connection, also before the tunnel begins."""
        for begun in (True, False):
            self.setUp()
            self.upstream.dataReceived(SWITCH + b"part")
            if begun:
                self.tunnel.start(b"")
            self.upstream.connectionLost(Failure(ConnectionLost()))
            if not begun:
                self.tunnel.start(b"")
            self.assertEqual((self.client.take(), self.client.aborted), (b"part", True))
            self.assertFalse(self.client.disconnecting)

    def test_client_ends_while_the_application_is_slow(self) -> None:
        """An application that never reads is aborted after a time limit."""
        self.start(b"", b"last")
        self.tunnel.client_gone(complete=True)
        self.pool.sweep(9.5)
        self.assertFalse(self.application.aborted)
        self.pool.sweep(10.0)
        self.assertTrue(self.application.aborted)

    def test_both_end(self) -> None:
        """When both sides close, the second close has no effect."""
        self.start()
        self.upstream_ends()
        self.tunnel.client_gone(complete=True)
        self.tunnel.client_gone(complete=True)
        self.assertFalse(self.application.disconnecting)
        self.tunnel.pauseProducing()
        self.tunnel.resumeProducing()
        self.assertFalse(self.client.paused)


class RecordedUpgradeTests(SynchronousTestCase):
    """An upgrade whose record must be durable first."""

    def setUp(self) -> None:
        """An upgrade was granted; its record is not yet durable."""
        self.rig = Rig()
        self.rig.store.hold = True
        self.client, self.wire = self.rig.client()
        self.client.dataReceived(WEBSOCKET % SIGNED)
        self.rig.respond(SWITCH + b"hello")

    def test_nothing_is_lost_before_the_record(self) -> None:
        """Until the record is durable neither side is read and nothing is released; then everything is relayed."""
        self.assertEqual(self.wire.take(), b"")
        self.assertTrue(self.rig.upstream()[1].paused)
        self.assertTrue(self.wire.paused)
        self.rig.store.release()
        self.assertFalse(self.rig.upstream()[1].paused)
        self.assertFalse(self.wire.paused)
        self.assertTrue(self.wire.take().endswith(b"\r\n\r\nhello"))
        self.client.dataReceived(b"frame")
        self.assertTrue(self.rig.upstream()[1].take().endswith(b"frame"))
        self.rig.respond(b"more")
        self.assertEqual(self.wire.take(), b"more")

    def test_application_closes_before_the_record(self) -> None:
        """Octets sent before the application's close are delivered after the response; then the client is closed."""
        self.rig.lose_upstream()
        self.assertFalse(self.wire.disconnecting)
        self.rig.store.release()
        head, _, rest = self.wire.take().partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 101 "))
        self.assertEqual(rest, b"hello")
        self.assertTrue(self.wire.disconnecting)
        self.client.dataReceived(b"\x81\x00 a frame, no request")
        self.assertEqual((self.wire.take(), len(self.rig.endpoint.connections)), (b"", 1))

    def test_client_closes_before_the_record(self) -> None:
        """If the client disconnects, the application's connection is dropped, and the record is still written."""
        lose(self.client)
        self.assertTrue(self.rig.upstream()[1].aborted)
        self.rig.store.release()
        self.assertEqual(self.rig.notarizer.in_flight, 0)

    def test_record_that_fails(self) -> None:
        """If the record fails nothing is released and both connections are dropped."""
        rig = Rig()
        client, wire = rig.client()
        client.dataReceived(WEBSOCKET % SIGNED)
        rig.store.close()
        rig.respond(SWITCH + b"hello")
        self.assertEqual(wire.take(), b"")
        self.assertTrue(wire.aborted)
        self.assertTrue(rig.upstream()[1].aborted)
        self.assertEqual(rig.notarizer.in_flight, 0)

"""The Twisted shell: waiting for CONNECT, keep alive, congestion, closing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import AccessRule, Principal, Rules
from svc.broker.broker import Broker, anonymous, verified
from svc.broker.connection import (
    INLINE_PACKETS,
    MAX_PENDING_RESPONSES,
    MAX_UNREAD_OCTETS,
    PROGRESS_OCTETS,
    BrokerConnection,
    ConnectionLimits,
    SilentReporter,
)
from svc.broker.hub import HubLimits
from svc.broker.journal import NoJournal
from svc.broker.session import SessionLimits
from svc.errors import SvcError
from svc.transport.evidence import PeerEvidence
from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Connect,
    Decoder,
    Disconnect,
    Packet,
    PacketRefused,
    PacketType,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    ReasonCode,
    Subscribe,
    Subscription,
    Version,
    Will,
    encode,
)
from tests.wire.mqtt.building import connect

EVERYBODY = Rules((AccessRule(None, ("#",), ("#", "$SYS/#")),))


class Refusals(SilentReporter):
    """Keeps why clients were refused."""

    def __init__(self, errors: list[SvcError]) -> None:
        self.errors = errors

    def refused(self, principal: Principal, error: SvcError) -> None:
        """Keep it."""
        self.errors.append(error)


class SlowJournal(NoJournal):
    """A journal that is durable when the test commits."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def when_durable(self, then: Callable[[], None]) -> None:
        """Wait."""
        self.waiting.append(then)

    def commit(self) -> None:
        """Call all that waits."""
        waiting, self.waiting = self.waiting, []
        for then in waiting:
            then()


class VerifiedTransport(StringTransport):
    """The transport of a client with an identity."""

    def __init__(self, evidence: PeerEvidence) -> None:
        super().__init__()
        self.peer_evidence = evidence

    def getHandle(self) -> VerifiedTransport:
        """Give what holds the evidence."""
        return self


class Wire:
    """A client's end of a connection in memory, with what a handshake proved where it is to have an identity."""

    def __init__(self, broker: Broker, version: Version = Version.V5, evidence: PeerEvidence | None = None) -> None:
        self.transport = StringTransport() if evidence is None else VerifiedTransport(evidence)
        self.version = version
        self._identify = anonymous() if evidence is None else verified()
        self.protocol = self.protocol_of(broker)
        self._decoder = Decoder("server", version)
        self.protocol.makeConnection(self.transport)

    def protocol_of(self, broker: Broker) -> BrokerConnection:
        """Make the broker's end."""
        protocol = broker.factory(self._identify).buildProtocol(None)
        assert isinstance(protocol, BrokerConnection)
        return protocol

    def sends(self, *packets: Packet) -> list[Packet]:
        """Send packets in one piece; give what came."""
        return self.octets(b"".join(encode(each, self.version, "client") for each in packets))

    def octets(self, data: bytes) -> list[Packet]:
        """Send octets; give what came."""
        self.protocol.dataReceived(data)
        return self.receives()

    def receives(self) -> list[Packet]:
        """Give what came since the last time."""
        events = list(self._decoder.feed(self.transport.value()))
        self.transport.clear()
        assert not any(isinstance(each, PacketRefused) for each in events), events
        return events  # type: ignore[return-value]

    @property
    def ended(self) -> bool:
        """Whether the broker closes the connection."""
        return bool(self.transport.disconnecting or self.transport.disconnected)


class ConnectionCase(SynchronousTestCase):
    """A broker with a clock that the test moves."""

    def setUp(self) -> None:
        """Start it."""
        self.clock = Clock()
        self.broker = self.make()

    def make(self, **more: Any) -> Broker:
        """Make and start a broker."""
        broker = Broker(self.clock, EVERYBODY, wall=lambda: 1_800_000_000 + self.clock.seconds(), **more)
        broker.startService()
        return broker

    def passes(self, seconds: int) -> None:
        """Let time pass in seconds."""
        self.clock.pump([1] * seconds)


class BeginningTests(ConnectionCase):
    """CONNECT and what comes instead of it."""

    def test_silence(self) -> None:
        """A client that sends nothing is closed after its time, not before."""
        wire = Wire(self.broker)
        self.passes(9)
        self.assertFalse(wire.ended)
        self.passes(2)
        self.assertTrue(wire.ended)
        self.assertEqual(wire.receives(), [])
        self.assertEqual(self.broker.hub.statistics.refused, {"mqtt_connect_timeout": 1})

    def test_half_a_connect_is_silence(self) -> None:
        """Octets that are no whole CONNECT buy no time, however slowly they come."""
        wire = Wire(self.broker)
        octets = connect()
        for position in range(11):
            wire.octets(octets[position : position + 1])
            self.passes(1)
        self.assertTrue(wire.ended)

    def test_half_a_packet_is_silence(self) -> None:
        """Nor do they after CONNECT."""
        wire = Wire(self.broker)
        wire.sends(Connect("c", keep_alive=4))
        for octet in b"\x30\x06\x00\x01t\x00\x00\x00"[:7]:
            wire.octets(bytes((octet,)))
            self.passes(1)
        self.assertTrue(wire.ended)

    def test_other_versions(self) -> None:
        """A client of another version gets a refusal in a form that it can parse."""
        for version in (3, 6):
            wire = Wire(self.broker, Version.V311)
            self.assertEqual(wire.octets(connect(version)), [Connack(False, 1)])
            self.assertTrue(wire.ended)

    def test_no_identifier_and_no_clean_session(self) -> None:
        """MQTT 3.1.1 without identifier and clean session is refused with return code 2."""
        wire = Wire(self.broker, Version.V311)
        self.assertEqual(wire.octets(connect(4, 0, b"\x00\x00")), [Connack(False, 2)])

    def test_nonsense(self) -> None:
        """What is no MQTT ends the connection without an answer."""
        for octets in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", bytes(8), b"\x10\xff\xff\xff\xff\xff"):
            wire = Wire(self.broker)
            self.assertEqual(wire.octets(octets), [])
            self.assertTrue(wire.ended)

    def test_enhanced_authentication(self) -> None:
        """A client that requests enhanced authentication is refused."""
        wire = Wire(self.broker)
        (answer,) = wire.sends(Connect("c", properties=Properties(authentication_method="SCRAM-SHA-256")))
        self.assertEqual(answer, Connack(code=ReasonCode.BAD_AUTHENTICATION_METHOD))
        self.assertTrue(wire.ended)

    def test_what_follows_connect_waits(self) -> None:
        """Packets sent along with CONNECT are taken once the session is safe, in order; nothing is read meanwhile."""
        journal = SlowJournal()
        broker = self.make(journal=journal)
        wire = Wire(broker)
        persistent = Properties(session_expiry=60)
        came = wire.sends(Connect("c", properties=persistent), Subscribe(1, [Subscription("t")]), Publish("t", b"m"))
        self.assertEqual(came, [])
        self.assertEqual(wire.transport.producerState, "paused")
        journal.commit()
        self.assertEqual([each.type for each in wire.receives()], [PacketType.CONNACK, PacketType.PUBLISH])
        self.assertEqual(wire.transport.producerState, "producing")
        journal.commit()
        self.assertEqual([each.type for each in wire.receives()], [PacketType.SUBACK])

    def test_the_session_comes_first(self) -> None:
        """What a session has is sent before anything that came along with CONNECT is done, and nothing of it twice."""
        persistent = Properties(session_expiry=60)
        first = Wire(self.broker)
        first.sends(Connect("c", properties=persistent), Subscribe(1, [Subscription("t", 1)]))
        first.sends(Publish("t", b"old", 1, packet_id=1))
        first.protocol.connectionLost()
        again = Wire(self.broker)
        came = again.sends(Connect("c", clean_start=False, properties=persistent), Publish("t", b"new", 1, packet_id=2))
        messages = [(each.payload, each.dup) for each in came if isinstance(each, Publish)]
        self.assertEqual(messages, [(b"old", True), (b"new", False)])

    def test_held_until_safe(self) -> None:
        """The same holds where CONNACK had to wait."""
        journal = SlowJournal()
        broker = self.make(journal=journal)
        persistent = Properties(session_expiry=60)
        first = Wire(broker)
        first.sends(Connect("c", properties=persistent), Subscribe(1, [Subscription("t", 1)]))
        journal.commit()
        journal.commit()
        first.sends(Publish("t", b"old", 1, packet_id=1))
        journal.commit()
        first.protocol.connectionLost()
        again = Wire(broker)
        again.sends(Connect("c", clean_start=False, properties=persistent), Publish("t", b"new", 1, packet_id=2))
        journal.commit()
        messages = [(each.payload, each.dup) for each in again.receives() if isinstance(each, Publish)]
        self.assertEqual(messages, [(b"old", True), (b"new", False)])

    def test_two_at_once(self) -> None:
        """Of two connections for one session that wait at once the later one has it."""
        journal = SlowJournal()
        broker = self.make(journal=journal)
        first, second = Wire(broker), Wire(broker)
        for wire in (first, second):
            wire.sends(Connect("c", properties=Properties(session_expiry=60)))
        journal.commit()
        self.assertTrue(first.ended)
        self.assertFalse(second.ended)
        self.assertEqual(broker.hub.statistics.connected, 1)


class EndTests(ConnectionCase):
    """How connections end."""

    def watcher(self) -> Wire:
        """A client that receives wills."""
        wire = Wire(self.broker)
        wire.sends(Connect("watcher"), Subscribe(1, [Subscription("will")]))
        return wire

    def client(self, **more: Any) -> Wire:
        """A client with a will."""
        wire = Wire(self.broker)
        wire.sends(Connect("c", will=Will("will", b"gone"), **more))
        return wire

    def test_keep_alive(self) -> None:
        """A client is closed after one and a half times its keep alive with a reason, and its will is published."""
        watcher, wire = self.watcher(), self.client(keep_alive=10)
        self.passes(14)
        self.assertEqual(wire.sends(Pingreq()), [Pingresp()])
        self.passes(14)
        self.assertFalse(wire.ended)
        self.passes(2)
        self.assertEqual(wire.receives(), [Disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT)])
        self.assertTrue(wire.ended)
        self.assertEqual([each.payload for each in watcher.receives() if isinstance(each, Publish)], [b"gone"])

    def test_long_keep_alive(self) -> None:
        """A client that requests none, or one above the limit, gets the broker's."""
        broker = self.make(connection_limits=ConnectionLimits(keep_alive=20))
        for asked in (0, 21):
            (answer,) = Wire(broker).sends(Connect("c", keep_alive=asked))
            assert isinstance(answer, Connack)
            self.assertEqual(answer.properties.server_keep_alive, 20)
        (answer,) = Wire(broker).sends(Connect("c", keep_alive=20))
        assert isinstance(answer, Connack)
        self.assertIsNone(answer.properties.server_keep_alive)

    def test_disconnect(self) -> None:
        """DISCONNECT with reason 0 takes the will with it; with reason 4 the will is published."""
        for code, wills in ((0, 0), (4, 1)):
            watcher, wire = self.watcher(), self.client()
            wire.sends(Disconnect(code))
            self.assertTrue(wire.ended)
            wire.protocol.connectionLost()
            self.assertEqual(len([each for each in watcher.receives() if isinstance(each, Publish)]), wills)

    def test_lost(self) -> None:
        """A connection that breaks publishes its will, once."""
        watcher, wire = self.watcher(), self.client()
        wire.protocol.connectionLost()
        wire.protocol.connectionLost()
        self.assertEqual(len([each for each in watcher.receives() if isinstance(each, Publish)]), 1)

    def test_protocol_error(self) -> None:
        """What breaks the protocol is answered with its reason code; MQTT 3.1.1 has no such answer."""
        wire = self.client()
        self.assertEqual(wire.octets(b"\x36\x04\x00\x01t\x00"), [Disconnect(ReasonCode.MALFORMED_PACKET)])
        self.assertTrue(wire.ended)
        old = Wire(self.broker, Version.V311)
        old.sends(Connect("old", Version.V311))
        self.assertEqual(old.octets(b"\x36\x03\x00\x01t"), [])
        self.assertTrue(old.ended)

    def test_nothing_behind_the_end(self) -> None:
        """What a client sends behind its DISCONNECT, or behind an error, has no effect."""
        watcher, wire = self.watcher(), self.client()
        wire.sends(Disconnect(), Publish("will", b"late"))
        wire.sends(Publish("will", b"later"))
        self.assertEqual(watcher.receives(), [])

    def test_lets_go(self) -> None:
        """Whatever ends a connection unregisters the producer and reads on: TLS would not send close_notify else."""
        for ending in (b"\xe0\x00", b"\x00", connect()):
            wire = self.client()
            wire.protocol.pauseProducing()
            wire.protocol.write(b"\xd0\x00" * MAX_UNREAD_OCTETS)
            self.assertEqual(wire.transport.producerState, "paused")
            wire.octets(ending)
            self.assertTrue(wire.ended)
            self.assertIsNone(wire.transport.producer)
            self.assertEqual(wire.transport.producerState, "producing")

    def test_nothing_stays(self) -> None:
        """A connection that has ended leaves nothing behind that would be done, and so kept, until later."""
        before = len(self.clock.getDelayedCalls())
        wire = self.client()
        wire.sends(Disconnect())
        self.assertEqual((len(self.clock.getDelayedCalls()), self.broker.open_connections), (before, 1))
        wire.protocol.connectionLost()
        self.assertEqual((len(self.clock.getDelayedCalls()), self.broker.open_connections), (before, 0))

    def test_client_that_does_not_read(self) -> None:
        """A client that does not take the last packets is aborted."""
        wire = self.client()
        wire.octets(b"\x00")
        self.assertFalse(wire.transport.disconnected)
        self.passes(5)
        self.assertTrue(wire.transport.disconnected)

    def test_shutdown(self) -> None:
        """At the stop each client gets DISCONNECT, and the broker waits until they are gone."""
        wire = self.client()
        ended = self.broker.stopService()
        self.assertEqual(wire.receives(), [Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)])
        self.clock.advance(0.1)
        self.assertNoResult(ended)
        wire.protocol.connectionLost()
        self.clock.advance(0.1)
        self.successResultOf(ended)

    def test_shutdown_with_a_deaf_client(self) -> None:
        """A client that does not take the last packets is aborted, and does not delay the stop."""
        wire = self.client()
        ended = self.broker.stopService()
        self.clock.pump([0.1] * 49)
        self.assertFalse(wire.transport.disconnected)
        self.clock.pump([0.1] * 2)
        self.assertTrue(wire.transport.disconnected)
        self.assertNoResult(ended)
        self.clock.pump([0.1] * 11)
        self.successResultOf(ended)


class CongestionTests(ConnectionCase):
    """Clients that do not read."""

    def setUp(self) -> None:
        """One that does not read, and another one."""
        super().setUp()
        self.slow, self.other = Wire(self.broker), Wire(self.broker)
        self.slow.sends(Connect("slow", keep_alive=10), Subscribe(1, [Subscription("t", 1)]))
        self.other.sends(Connect("other"))
        self.slow.protocol.pauseProducing()

    def payloads(self) -> list[bytes]:
        """What came to the slow client."""
        return [each.payload for each in self.slow.receives() if isinstance(each, Publish)]

    def test_what_waits(self) -> None:
        """While a client does not read, QoS 0 is dropped, and QoS 1 waits."""
        self.other.sends(Publish("t", b"0"), Publish("t", b"1", 1, packet_id=1))
        self.assertEqual(self.payloads(), [])
        self.slow.protocol.resumeProducing()
        self.assertEqual(self.payloads(), [b"1"])

    def test_is_processed(self) -> None:
        """A client that reads slowly is read all the same: it stays connected as long as it sends PINGREQ."""
        for _ in range(5):
            self.passes(10)
            self.assertEqual(self.slow.sends(Pingreq()), [Pingresp()])
        self.assertFalse(self.slow.ended)
        self.passes(16)
        self.assertTrue(self.slow.ended)

    def test_answers(self) -> None:
        """A client that asks and does not read its answers is not read either, from 64 KiB on, until it does."""
        transport = self.slow.transport
        each = len(encode(Pingresp(), Version.V5, "server"))
        self.slow.octets(b"\xc0\x00" * (MAX_UNREAD_OCTETS // each))
        self.assertEqual(transport.producerState, "producing")
        self.slow.octets(b"\xc0\x00")
        self.assertEqual(transport.producerState, "paused")
        self.slow.protocol.resumeProducing()
        self.assertEqual(transport.producerState, "producing")


class TlsTests(ConnectionCase):
    """A client that uses TLS at a plain listener."""

    def test_is_logged(self) -> None:
        """It is reported as that, and closed."""
        wire = Wire(self.broker)
        self.assertEqual(wire.octets(b"\x16\x03\x01\x02\x00\x01"), [])
        self.assertTrue(wire.ended)
        self.assertEqual(self.broker.hub.statistics.refused, {"mqtt_tls_at_plain_listener": 1})

    def test_http(self) -> None:
        """A client that uses HTTP, as MQTT over WebSocket does, is refused as that, and not for a malformed PUBACK."""
        upgrade = b"GET /mqtt HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
        for octets, method in ((upgrade, "GET"), (b"POST / HTTP/1.1\r\n", "POST"), (b"PRI * HTTP/2.0\r\n", "PRI")):
            errors: list[SvcError] = []
            broker = Broker(Clock(), EVERYBODY, reporter=Refusals(errors))
            wire = Wire(broker)
            wire.protocol.dataReceived(memoryview(octets))  # type: ignore[arg-type]
            self.assertEqual((b"", True), (wire.transport.value(), wire.ended))
            self.assertEqual(broker.hub.statistics.refused, {"mqtt_http_at_listener": 1})
            [error] = errors
            self.assertIn(f"an HTTP request ({method})", str(error))
        for octets in (b"GET", b"GOT / HTTP/1.1\r\n"):
            wire = Wire(self.broker)
            wire.octets(octets)
            self.assertTrue(wire.ended)
        self.assertNotIn("mqtt_http_at_listener", self.broker.hub.statistics.refused)

    def test_within_connect(self) -> None:
        """The same octet inside of CONNECT is one like any other."""
        wire = Wire(self.broker)
        whole = encode(Connect("c", keep_alive=0x1616), Version.V5, "client")
        for each in range(len(whole)):
            wire.octets(whole[each : each + 1])
        self.assertFalse(wire.ended)


class ProgressTests(ConnectionCase):
    """Packets that take longer than a keep alive."""

    def test_large_and_slow(self) -> None:
        """Keep alive is extended while enough of a packet arrives, and not by single octets."""
        wire = Wire(self.broker)
        wire.sends(Connect("c", keep_alive=10))
        whole = encode(Publish("t", b"x" * 10_000, 1, packet_id=1), Version.V5, "client")
        for begin in range(0, 5 * PROGRESS_OCTETS, PROGRESS_OCTETS):
            wire.octets(whole[begin : begin + PROGRESS_OCTETS])
            self.passes(12)
        self.assertFalse(wire.ended)
        for begin in range(5 * PROGRESS_OCTETS, 5 * PROGRESS_OCTETS + 20):
            wire.octets(whole[begin : begin + 1])
            self.passes(1)
        self.assertTrue(wire.ended)

    def test_connect(self) -> None:
        """CONNECT has one time for all of it, however much of it comes."""
        wire = Wire(self.broker)
        large = Connect("c", will=Will("t", b"x" * 60_000))
        whole = encode(large, Version.V5, "client")
        for begin in range(0, 12 * PROGRESS_OCTETS, PROGRESS_OCTETS):
            wire.octets(whole[begin : begin + PROGRESS_OCTETS])
            self.passes(1)
        self.assertTrue(wire.ended)


class OwedTests(ConnectionCase):
    """Answers that wait for a slow disk."""

    def test_not_read_on(self) -> None:
        """A client that asks on and on is not read until what it is owed can be sent; nothing is lost by that."""
        journal = SlowJournal()
        self.broker = self.make(journal=journal)
        wire = Wire(self.broker)
        wire.sends(Connect("c", properties=Properties(session_expiry=100)))
        journal.commit()
        wire.receives()
        again = encode(Subscribe(1, [Subscription("t", 1)]), Version.V5, "client")
        wire.octets(again * MAX_PENDING_RESPONSES)
        self.assertEqual(wire.transport.producerState, "producing")
        self.assertEqual(wire.octets(again), [])
        self.assertEqual(wire.transport.producerState, "paused")
        journal.commit()
        self.assertEqual(wire.transport.producerState, "producing")
        self.assertEqual(MAX_PENDING_RESPONSES + 1, len(wire.receives()))

    def test_without_a_disk(self) -> None:
        """Whose session does not last is pending_responses nothing, however slow the disk is."""
        journal = SlowJournal()
        self.broker = self.make(journal=journal)
        wire = Wire(self.broker)
        wire.sends(Connect("c"))
        again = encode(Subscribe(1, [Subscription("t", 1)]), Version.V5, "client")
        self.assertEqual(2 * MAX_PENDING_RESPONSES, len(wire.octets(again * 2 * MAX_PENDING_RESPONSES)))
        self.assertEqual(wire.transport.producerState, "producing")


class ReceiveMaximumTests(ConnectionCase):
    """A client that sends more than it may have unacknowledged, while acknowledgements wait for a slow disk."""

    def setUp(self) -> None:
        """Two messages at once."""
        super().setUp()
        self.journal = SlowJournal()
        self.broker = self.make(journal=self.journal, limits=HubLimits(session=SessionLimits(received=2)))

    def client(self, version: Version = Version.V5, **more: Any) -> Wire:
        """Connect a client whose session does not last."""
        wire = Wire(self.broker, version)
        wire.sends(Connect("c", version, keep_alive=10, **more))
        return wire

    def burst(self, count: int) -> list[Publish]:
        """Messages with QoS 1."""
        return [Publish("t", b"%d" % each, 1, packet_id=each) for each in range(1, count + 1)]

    def pubacks(self, *identifiers: int) -> list[Packet]:
        """The acknowledgements of messages."""
        code = ReasonCode.NO_MATCHING_SUBSCRIBERS
        return [Acknowledgement(PacketType.PUBACK, each, code) for each in identifiers]

    def commit(self) -> None:
        """Make all safe, and let what waits have its turn."""
        self.journal.commit()
        self.clock.advance(0)

    def test_not_read_on(self) -> None:
        """At the limit it is read; beyond it is not, and goes on with what was read as acknowledgements are written."""
        for count in (5, INLINE_PACKETS + 3):
            wire = self.client()
            self.assertEqual(wire.sends(*self.burst(2)), [])
            self.assertEqual(wire.transport.producerState, "producing")
            self.commit()
            self.assertEqual(wire.receives(), self.pubacks(1, 2))
            self.assertEqual(wire.sends(*self.burst(count), Pingreq()), [])
            for first in range(1, count - 1, 2):
                self.assertEqual(wire.transport.producerState, "paused")
                self.commit()
                self.assertEqual(wire.receives()[:2], self.pubacks(first, first + 1))
            self.assertEqual(wire.transport.producerState, "producing")
            self.commit()
            wire.sends(Disconnect())
        self.assertEqual(self.broker.hub.statistics.refused, {})

    def test_311(self) -> None:
        """So is MQTT 3.1.1, and what had been read when reading was paused keeps its order."""
        wire = self.client(Version.V311)
        wire.sends(*self.burst(3))
        wire.sends(Pingreq())
        self.commit()
        self.assertEqual(wire.receives(), [*(Acknowledgement(PacketType.PUBACK, each) for each in (1, 2)), Pingresp()])
        self.commit()
        self.assertEqual(wire.receives(), [Acknowledgement(PacketType.PUBACK, 3)])

    def test_keep_alive(self) -> None:
        """A client that is not read is not closed for being idle; its time begins again when it is read."""
        wire = self.client()
        wire.sends(*self.burst(3))
        self.passes(100)
        self.assertFalse(wire.ended)
        self.commit()
        self.passes(14)
        self.assertFalse(wire.ended)
        self.passes(2)
        self.assertTrue(wire.ended)

    def test_keep_alive_of_other_answers(self) -> None:
        """The same holds for a client that is not read because other responses wait for the disk."""
        wire = Wire(self.broker)
        wire.sends(Connect("c", keep_alive=10, properties=Properties(session_expiry=100)))
        self.commit()
        wire.octets(encode(Subscribe(1, [Subscription("t", 1)]), Version.V5, "client") * (MAX_PENDING_RESPONSES + 1))
        self.assertEqual(wire.transport.producerState, "paused")
        self.passes(100)
        self.assertFalse(wire.ended)
        self.commit()
        self.passes(16)
        self.assertTrue(wire.ended)

    def test_end_while_it_waits(self) -> None:
        """Nothing of what waited is processed when the connection ends first; a DISCONNECT among it counts."""
        for end in ("close", "connectionLost"):
            watcher = Wire(self.broker)
            watcher.sends(Connect("watcher"), Subscribe(1, [Subscription("will", 0)]))
            wire = self.client(will=Will("will", b"gone"))
            wire.sends(*self.burst(3), Disconnect())
            received = self.broker.hub.statistics.received
            wire.protocol.close(ReasonCode.SERVER_SHUTTING_DOWN) if end == "close" else wire.protocol.connectionLost()
            self.commit()
            self.assertEqual(self.broker.hub.statistics.received, received)
            wills = [each for each in watcher.receives() if isinstance(each, Publish)]
            self.assertEqual(len(wills), end == "close")
            self.assertEqual(wire.transport.producerState, "producing" if end == "close" else "paused")


class SystemTopicsTests(ConnectionCase):
    """``$SYS``."""

    def test_basics(self) -> None:
        """A new subscriber gets the current numbers, changes every ten seconds; clients may not publish there."""
        wire = Wire(self.broker)
        came = wire.sends(Connect("c"), Subscribe(1, [Subscription("$SYS/broker/clients/connected", 1)]))
        self.assertEqual([each.payload for each in came if isinstance(each, Publish)], [b"0"])
        self.passes(10)
        self.assertEqual([each.payload for each in wire.receives() if isinstance(each, Publish)], [b"1"])
        (answer,) = wire.sends(Publish("$SYS/broker/clients/connected", b"9", 1, packet_id=1))
        self.assertEqual(answer, Acknowledgement(PacketType.PUBACK, 1, ReasonCode.NOT_AUTHORIZED))

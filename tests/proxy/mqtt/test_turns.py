"""MQTT connections whose reads take longer than a turn of the reactor."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.pacing.turns import Turns
from svc.proxy.mqtt.passing.packets import RUN_OCTETS
from svc.wire.mqtt import (
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    ReasonCode,
    Sender,
    Version,
    Will,
    encode,
)
from svc.wire.mqtt.stream import SLICE_PACKETS
from tests.peers.waiting import rounds
from tests.process.test_reauthorization import TurnClock
from tests.proxy.mqtt.artifacts.test_publisher import PublicationCase
from tests.proxy.mqtt.rig import MqttRig
from tests.proxy.mqtt.stored.buffering import OpenedBuffer
from tests.proxy.mqtt.stored.rig import StoredRig
from tests.proxy.policies import admit_nobody
from tests.wire.mqtt import packets

MANY = 300
PING = b"\xc0\x00"
PONG = b"\xd0\x00"
#: Packets that one turn without time takes.
STEPS = 2
SENDERS: list[Sender] = ["client", "server"]
DENIED = [Publish("$x", b"", 1, packet_id=each) for each in range(1, MANY + 1)]


def without_time(reactor: TurnClock) -> Turns:
    """Turns that end after two steps."""
    return Turns(cast(Any, reactor), 0.0)


def reads(version: Version) -> st.SearchStrategy[tuple[Sender, bytes]]:
    """What one side sends at once, which may end with what is no packet."""
    return st.sampled_from(SENDERS).flatmap(
        lambda sender: st.tuples(
            st.just(sender),
            st.builds(
                lambda sent, rest: b"".join(encode(each, version, sender) for each in sent) + rest,
                st.lists(packets.later(version, sender), max_size=12),
                st.sampled_from([b"", b"\0"]),
            ),
        )
    )


class TurnCase(SynchronousTestCase):
    """Connections whose turns the test takes."""

    def setUp(self) -> None:
        """Make the reactor."""
        self.reactor = TurnClock()

    def turns(self) -> int:
        """Take turns until none waits; returns how many."""
        for count in range(10 * MANY):
            if not self.reactor.calls:
                return count
            self.reactor.turn()
        self.fail("turns without end")


class PassThroughTests(TurnCase):
    """A session that passes everything through."""

    def setUp(self) -> None:
        """Make the listener."""
        super().setUp()
        self.rig = MqttRig()
        self.rig.mqtt.turns = without_time(self.reactor)

    def test_refused_messages(self) -> None:
        """A client gets two answers in a turn, is not read meanwhile, and gets all of them in the end, in order."""
        device = self.rig.connect()
        device.send(*DENIED)
        got = device.take()
        self.assertEqual(len(got), STEPS)
        while self.reactor.calls:
            self.assertTrue(device.wire.paused)
            self.reactor.turn()
            more = device.take()
            self.assertLessEqual(len(more), STEPS)
            got += more
        self.assertFalse(device.wire.paused)
        self.assertEqual([each.packet_id for each in got], list(range(1, MANY + 1)))

    def test_others_are_served_between(self) -> None:
        """Clients that flood share the turns; what one sends that does not is handled in its own read."""
        floods = [self.rig.connect(), self.rig.connect()]
        other = self.rig.connect()
        for each in floods:
            each.send(*DENIED)
            each.take()
        other.send(Publish("t", b""), Pingreq())
        self.assertEqual(len(other.broker_takes()), 2)
        for _ in range(2):
            self.reactor.turn()
        self.assertEqual([len(each.take()) for each in floods], [STEPS, STEPS])
        self.turns()
        self.assertEqual([len(each.take()) for each in floods], [MANY - 2 * STEPS] * 2)

    def test_pings(self) -> None:
        """Packets of two octets reach the broker some at a time, and what comes behind them after them."""
        device = self.rig.connect()
        device.connection.dataReceived(PING * MANY)
        self.assertEqual(len(device.broker_takes()), STEPS)
        device.send(Publish("t", b""))
        self.assertEqual(device.broker_takes(), [])
        self.turns()
        self.assertEqual(device.broker_takes(), [Pingreq()] * (MANY - STEPS) + [Publish("t", b"")])

    def test_runs(self) -> None:
        """Packets that pass without a closer look are passed on some at a time, too, large ones at once."""
        device = self.rig.connect()
        small, large = Publish("t", b"x"), Publish("t", b"x" * 3 * RUN_OCTETS)
        device.send(small)
        device.broker_takes()
        device.send(*[small] * RUN_OCTETS)
        self.assertLess(len(device.broker_takes()), RUN_OCTETS // 2)
        self.turns()
        device.broker_takes()
        device.send(large, small)
        self.assertEqual((device.broker_takes(), self.turns()), ([large, small], 0))

    def test_packets_of_the_broker(self) -> None:
        """The same the other way round; the broker is read again when nothing is left and the client reads."""
        for reads in (True, False):
            device = self.rig.connect()
            device._broker()[0].dataReceived(PONG * MANY)
            self.assertTrue(device.broker_wire.paused)
            device.broker_sends(Publish("t", b""))
            device.wire.producer.pauseProducing()
            if reads:
                device.wire.producer.resumeProducing()
                self.assertTrue(device.broker_wire.paused)
            self.turns()
            self.assertEqual(device.take(), [Pingresp()] * MANY + [Publish("t", b"")])
            self.assertEqual(device.broker_wire.paused, not reads)

    def test_lost(self) -> None:
        """What a client sent before its connection was lost passes, and then the connection to the broker ends."""
        device = self.rig.connect()
        messages = [Publish("t", b"%d" % each, 0) for each in range(3)]
        device.send(*[Pingreq()] * MANY, *messages)
        device.leave(clean=False)
        self.assertFalse(device.broker_wire.closed)
        self.turns()
        self.assertEqual(device.broker_takes(), [Pingreq()] * MANY + messages)
        self.assertTrue(device.broker_wire.disconnecting)
        device.broker_leaves()
        self.assertEqual(self.rig.known, set())

    def test_disconnect(self) -> None:
        """A DISCONNECT reaches the broker although the connection is lost before its turn."""
        device = self.rig.connect()
        device.send(*[Pingreq()] * MANY, Disconnect())
        device.leave()
        self.turns()
        self.assertEqual(device.broker_takes()[-1], Disconnect())
        device.broker_leaves()
        self.assertEqual((self.rig.closed("client"), self.rig.known), (1, set()))

    def test_the_broker_is_lost(self) -> None:
        """What a broker sent before the end of its connection reaches the client, and then the end."""
        device = self.rig.connect()
        device.broker_sends(*[Pingresp()] * MANY, Publish("t", b"last"))
        device.broker_leaves()
        self.assertFalse(device.wire.closed)
        self.turns()
        got = device.take()
        self.assertEqual(got[:-1], [Pingresp()] * MANY + [Publish("t", b"last")])
        self.assertEqual(got[-1], Disconnect(ReasonCode.SERVER_BUSY))
        device.leave()
        self.assertEqual(self.rig.known, set())

    def test_violation(self) -> None:
        """A packet that is none ends the connection behind what came before it; nothing that follows is taken."""
        device = self.rig.connect()
        device.connection.dataReceived(PING * MANY + b"\xff\x00" + PING * MANY)
        self.assertFalse(device.wire.closed)
        self.turns()
        self.assertEqual(device.broker_takes(), [Pingreq()] * MANY)
        self.assertEqual(device.take(), [Disconnect(ReasonCode.MALFORMED_PACKET)])
        self.assertTrue(device.wire.disconnecting)

    def test_drain(self) -> None:
        """A drain waits for what was read."""
        device = self.rig.connect()
        device.send(*DENIED)
        self.rig.mqtt.draining = True
        self.rig.pass_time()
        self.assertFalse(device.wire.closed)
        self.turns()
        self.assertTrue(device.wire.paused)
        self.rig.pass_time()
        self.assertTrue(device.wire.disconnecting)

    def test_refused_meanwhile(self) -> None:
        """A client that is refused while it waits gets no further turn, lost or not."""
        for lost in (False, True):
            self.setUp()
            device = self.rig.connect()
            device.connection.dataReceived(PING * MANY)
            device._broker()[0].dataReceived(PONG * MANY)
            if lost:
                device.leave()
            self.rig.apply(admit_nobody())
            self.rig.clock.advance(0)
            self.assertEqual(self.turns(), 0)
            device.broker_leaves()
            if not lost:
                self.assertTrue(device.wire.disconnecting)
                device.leave()
            self.assertEqual(self.rig.known, set())

    def test_keep_alive(self) -> None:
        """The time that the proxy takes is not that of the client."""
        device = self.rig.connect(keep_alive=10)
        device.send(*DENIED)
        self.rig.pass_time(100.0)
        self.assertFalse(device.wire.closed)

    def test_defect(self) -> None:
        """A defect in a later turn drops both connections."""
        for end in ("client", "upstream"):
            device = self.rig.connect()
            octets = (PING if end == "client" else PONG) * MANY
            (device.connection if end == "client" else device._broker()[0]).dataReceived(octets)
            setattr(device.connection._session, f"_{end}_sent", None)
            self.turns()
            self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)
            self.assertTrue(device.wire.aborted and device.broker_wire.aborted)

    @settings(max_examples=rounds(60, 2000), deadline=None)
    @given(st.sampled_from(Version), st.data())
    def test_same_as_at_once(self, version: Version, data: st.DataObject) -> None:
        """Whatever both sides send, each gets the same as where no turn ends."""
        sent = data.draw(st.lists(reads(version), max_size=3))
        at_once, in_turns = (self.results(version, sent, turns) for turns in (self.rig.turns, self.rig.mqtt.turns))
        self.assertEqual(at_once, in_turns)

    def results(self, version: Version, sent: list[tuple[Sender, bytes]], turns: Turns) -> tuple[object, ...]:
        """What both sides get, whether the client is closed, and what is reported."""
        before, self.rig.mqtt.turns = self.rig.mqtt.turns, turns
        del self.rig.reporter.failures[:], self.rig.reporter.denials[:]
        device = self.rig.connect(version=version)
        for sender, octets in sent:
            if not device.wire.closed:
                (device.connection if sender == "client" else device._broker()[0]).dataReceived(octets)
                self.turns()
        reporter = self.rig.reporter
        results = device.wire.take(), device.broker_wire.take(), device.wire.closed
        device.connection.abort("other")
        device.leave()
        device.broker_leaves()
        self.assertEqual(self.rig.known, set())
        self.rig.mqtt.turns = before
        return *results, list(reporter.failures), len(reporter.denials)


class StoredTests(TurnCase):
    """A session whose messages are stored."""

    def setUp(self) -> None:
        """Open a listener with a client whose CONNACK has come."""
        super().setUp()
        self.rig = StoredRig(OpenedBuffer(self.mktemp()))
        self.rig.begin()
        self.addCleanup(lambda: self.rig.close())
        self.device = self.rig.device(will=Will("will", b"gone"))
        self.rig.broker_accepts()
        self.device.take()
        self.rig.mqtt.turns = without_time(self.reactor)

    def test_pings(self) -> None:
        """Two packets are answered in a turn, all in the end; the client is not read meanwhile."""
        self.device.connection.dataReceived(PING * MANY)
        self.assertEqual(len(self.device.take()), STEPS)
        while self.reactor.calls:
            self.assertTrue(self.device.wire.paused)
            self.reactor.turn()
            self.assertLessEqual(len(self.device.take()), STEPS)
        self.assertFalse(self.device.wire.paused)

    def test_lost(self) -> None:
        """Messages in front of the end of a connection are stored, and the will is published."""
        self.assert_stored([], ReasonCode.DISCONNECT_WITH_WILL)

    def test_disconnect(self) -> None:
        """A DISCONNECT in front of that counts."""
        self.assert_stored([Disconnect()], ReasonCode.SUCCESS)

    def assert_stored(self, end: list[Packet], code: ReasonCode) -> None:
        """A message in front of the end is forwarded, and then DISCONNECT with a reason."""
        self.device.send(*[Pingreq()] * MANY, Publish("t", b"last"), *end)
        self.device.leave()
        self.turns()
        self.rig.settle()
        message, last = self.rig.broker_takes()[-2:]
        assert isinstance(last, Disconnect)
        self.assertEqual((message, last.code), (Publish("t", b"last"), code))

    def test_packets_of_the_broker(self) -> None:
        """A slice of them is handled in a turn; what comes behind them, and the end, follow in order."""
        broker, wire = self.rig.endpoint.connections[-1]
        octets = encode(Publish("t", b"x"), Version.V5, "server") * MANY
        broker.dataReceived(octets)
        self.assertEqual(len(self.device.take()), STEPS * SLICE_PACKETS)
        self.rig.broker_sends(Publish("t", b"last"))
        got: list[Packet] = []
        while self.reactor.calls:
            self.assertTrue(wire.paused)
            self.reactor.turn()
            more = self.device.take()
            self.assertLessEqual(len(more), STEPS * SLICE_PACKETS + 1)
            got += more
        self.assertEqual(got[-1], Publish("t", b"last"))
        self.assertFalse(wire.paused)
        broker.dataReceived(octets)
        attempts = self.rig.attempts
        self.rig.broker_leaves()
        self.rig.settle(10.0)
        self.assertEqual(self.rig.attempts, attempts)
        self.turns()
        self.rig.settle(10.0)
        self.assertEqual(self.rig.attempts, attempts + 1)

    def test_the_end_between(self) -> None:
        """Nothing is taken of a broker whose connection this side ends while it waits."""
        broker, wire = self.rig.endpoint.connections[-1]
        broker.dataReceived(PONG * MANY)
        broker.abort_defective()
        self.assertEqual(self.turns(), 0)
        self.assertTrue(wire.aborted)


class ArtifactTests(PublicationCase):
    """The session that publishes artifacts."""

    def test_packets_of_the_broker(self) -> None:
        """A slice is handled in a turn, and the end behind all of them."""
        for lost in (False, True):
            reactor = TurnClock()
            made = self.publication()
            made.publisher._turns = without_time(reactor)
            made.start()
            link = made.broker.link
            link.protocol.dataReceived(
                PONG * MANY + encode(Disconnect(ReasonCode.QUOTA_EXCEEDED), Version.V5, "server")
            )
            if lost:
                link.end()
            count = 0
            while reactor.calls:
                self.assertTrue(made.publisher.status.publishing)
                self.assertTrue(lost or link.producerState == "paused")
                reactor.turn()
                count += 1
            self.assertEqual(count, MANY // (STEPS * SLICE_PACKETS))
            made.broker.settle()
            self.assertFalse(made.publisher.status.publishing)
            self.assertIn("quota exceeded", str(made.observer.failures[-1]))

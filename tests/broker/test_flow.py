"""Flow control (section 4.9), in both directions, and who of a group can take a message."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import AccessRule, Rules
from svc.broker.hub import HubLimits
from svc.broker.session import RECEIVE_TOLERANCE, SessionLimits
from svc.wire.mqtt import (
    Acknowledgement,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    ReasonCode,
    Version,
)
from tests.broker.rig import Peer, Rig
from tests.broker.slow import HandJournal

LASTING = Properties(session_expiry=100)
PUBACK: Final = PacketType.PUBACK
PUBREC: Final = PacketType.PUBREC


class ManyTests(SynchronousTestCase):
    """More than a stack has frames."""

    def test_exactly_once(self) -> None:
        """A thousand messages with QoS 2 that waited are sent in one go, in order, though all is safe at once."""
        rig = Rig()
        client = rig.connect("c", clean_start=False, properties=LASTING)
        client.subscribes("t")
        client.loses()
        publisher = rig.connect("p")
        for number in range(1000):
            publisher.publishes("t", b"%d" % number, 2)
            publisher.answers(PacketType.PUBREL, 7)
        came = rig.connect("c", clean_start=False, properties=LASTING).messages
        self.assertEqual([b"%d" % number for number in range(1000)], [each.payload for each in came])

    def test_too_large(self) -> None:
        """As many that the client cannot take are passed over, and what comes behind them is sent."""
        rig = Rig()
        client = rig.connect("c", clean_start=False, properties=LASTING)
        client.subscribes("t")
        client.loses()
        publisher = rig.connect("p")
        for payload in (*[b"x" * 200] * 999, b"short"):
            publisher.publishes("t", payload, 2)
            publisher.answers(PacketType.PUBREL, 7)
        small = Properties(session_expiry=100, maximum_packet_size=100, receive_maximum=1)
        came = rig.connect("c", clean_start=False, properties=small).messages
        self.assertEqual([b"short"], [each.payload for each in came])
        self.assertEqual(999, rig.hub.statistics.drops["too_large"])


class FullQueueTests(SynchronousTestCase):
    """A queue that is full of what is of no use any more."""

    def setUp(self) -> None:
        """A session without a connection, with room for three."""
        self.rig = Rig(limits=HubLimits(session=SessionLimits(queued=3)))
        client = self.rig.connect("c", clean_start=False, properties=LASTING)
        client.subscribes("t")
        client.loses()
        self.publisher = self.rig.connect("p")

    def publish(self, payload: bytes, expiry: int | None = None) -> None:
        """Publish one message."""
        self.publisher.publishes("t", payload, 1, properties=Properties(message_expiry=expiry))

    def came(self) -> list[bytes]:
        """What the client gets when it is back."""
        client = self.rig.connect("c", clean_start=False, properties=LASTING)
        return [each.payload for each in client.messages]

    def test_makes_room(self) -> None:
        """What expired makes room for what is new; what did not stays, in its order."""
        for payload, expiry in ((b"1", 5), (b"2", None), (b"3", 5)):
            self.publish(payload, expiry)
        self.rig.passes(5)
        for payload in (b"4", b"5", b"6"):
            self.publish(payload)
        self.assertEqual({"expired": 2, "queue_full": 1}, dict(self.rig.hub.statistics.drops))
        self.assertEqual([b"2", b"4", b"5"], self.came())

    def test_not_all_the_time(self) -> None:
        """It is looked for once a second: a full queue costs no walk for each message."""
        for _ in range(3):
            self.publish(b"old", 1)
        self.publish(b"first")
        self.rig.clock.now += 0.99
        self.publish(b"second")
        self.rig.clock.now += 0.02
        self.publish(b"third")
        self.assertEqual({"expired": 3, "queue_full": 2}, dict(self.rig.hub.statistics.drops))
        self.assertEqual([b"third"], self.came())


class ReceiveMaximumTests(SynchronousTestCase):
    """What a client may have unacknowledged, while acknowledgements wait for the journal."""

    def setUp(self) -> None:
        """Two connections at once, and a persistent subscriber, so that what is published is recorded."""
        self.journal = HandJournal()
        self.rig = Rig(limits=HubLimits(session=SessionLimits(received=2)), journal=self.journal)
        away = self.connect("s")
        away.subscribes("t")
        self.journal.commit_all()
        away.loses()
        self.journal.take()

    def connect(self, name: str = "c", version: Version = Version.V5) -> Peer:
        """Connect with a session that lasts."""
        properties = LASTING if version is Version.V5 else Properties()
        peer = self.rig.connect(name, version, read_answer=False, clean_start=False, properties=properties)
        self.journal.commit_all()
        peer.take()
        return peer

    def test_at_the_limit_and_beyond(self) -> None:
        """One more than that waits with all that follows it, and goes on when acknowledgements are written."""
        for version in Version:
            for qos, kind in ((1, PUBACK), (2, PUBREC)):
                peer = self.connect(f"{version}-{qos}", version)
                came = [Publish("t", b"m", qos, packet_id=each) for each in (1, 2)]  # type: ignore[arg-type]
                self.assertEqual((peer.sends(*came), len(peer.held)), ([], 0))
                self.assertEqual(peer.sends(Publish("t", b"m", 1, packet_id=3), Pingreq(), Publish("t", b"0")), [])
                self.assertEqual(len(peer.held), 3)
                self.journal.commit()
                self.assertEqual(peer.take(), [Acknowledgement(kind, each) for each in (1, 2)])  # type: ignore[arg-type]
                self.assertEqual((peer.continues(), len(peer.held)), ([Pingresp()], 0))
                self.journal.commit()
                self.assertEqual(peer.take(), [Acknowledgement(PUBACK, 3)])
                self.assertIsNone(peer.error)

    def test_without_a_wait(self) -> None:
        """QoS 0 and acknowledgements do not wait, nor does anything where all is safe at once."""
        peer = self.connect()
        peer.sends(*(Publish("t", b"m", 1, packet_id=each) for each in (1, 2)))
        self.assertEqual(peer.sends(Publish("t", b"0"), Pingreq()), [Pingresp()])
        rig = Rig(limits=HubLimits(session=SessionLimits(received=1)))
        burst = [Publish("t", b"m", qos, packet_id=each) for each in range(1, 50) for qos in (1, 2)]
        self.assertEqual(len(rig.connect("c").sends(*burst)), len(burst))

    def test_sent_again(self) -> None:
        """A duplicate with QoS 2 is acknowledged again within the same limit."""
        peer = self.connect()
        again = Publish("t", b"m", 2, packet_id=1, dup=True)
        peer.sends(again, again, again)
        self.assertEqual(len(peer.held), 1)
        self.journal.commit()
        self.assertEqual(len(peer.take()), 2)
        self.assertEqual(peer.continues(), [Acknowledgement(PUBREC, 1)])

    def test_another_connection(self) -> None:
        """What an earlier connection left unacknowledged takes nothing from the next one, and gives it nothing."""
        burst = [Publish("t", b"m", 1, packet_id=each) for each in (1, 2, 3)]
        self.connect().sends(*burst)
        held = self.journal.waiting
        self.journal.waiting = []
        second = self.rig.connect("c", read_answer=False, clean_start=False, properties=LASTING)
        self.journal.commit()
        second.sends(*burst)
        self.assertEqual(len(second.held), 1)
        for late in held:
            late()
        second.continues()
        self.assertEqual(len(second.held), 1)
        self.journal.commit()
        second.continues()
        self.assertEqual(len(second.held), 0)

    @given(st.lists(st.sampled_from([*range(-1, 3), "commit"]), max_size=60), st.sampled_from(list(Version)))
    def test_any_burst(self, steps: list[Any], version: Version) -> None:
        """Whatever a client sends and whenever commits come, all is acknowledged in its order, within the limit."""
        self.setUp()
        sent: list[Packet] = []
        peer, came = self.connect(version=version), []
        for number, step in enumerate([*steps, "commit"], 1):
            if step == "commit":
                self.journal.commit_all()
                came += peer.take()
                came += peer.continues()
            elif step == -1:
                sent.append(Pingreq())
            else:
                sent.append(Publish("t", b"m", step, packet_id=number if step else 0))
            came += peer.sends(*sent[-1:]) if step != "commit" else []
            self.assertLessEqual(self.rig.hub.sessions["c"].pending_acks, 2)
        while peer.held:
            self.journal.commit_all()
            came += peer.take() + peer.continues()
        self.journal.commit_all()
        came += peer.take()
        wanted = [(each.qos, each.packet_id) for each in sent if isinstance(each, Publish) and each.qos]
        acknowledged = [each for each in came if isinstance(each, Acknowledgement)]
        self.assertEqual([(1 + (each.type is PUBREC), each.packet_id) for each in acknowledged], wanted)
        self.assertEqual(came.count(Pingresp()), sent.count(Pingreq()))
        self.assertIsNone(peer.error)


class UnreleasedTests(SynchronousTestCase):
    """Messages with QoS 2 that a client does not release."""

    def setUp(self) -> None:
        """Two may be unacknowledged."""
        self.rig = Rig(limits=HubLimits(session=SessionLimits(received=2)))

    def flood(self, version: Version, first: int, count: int) -> Peer:
        """Connect and send messages without releasing any."""
        properties = LASTING if version is Version.V5 else Properties()
        peer = self.rig.connect("c", version, clean_start=False, properties=properties)
        peer.sends(*(Publish("t", b"m", 2, packet_id=first + each) for each in range(count)))
        return peer

    def test_many_times_over(self) -> None:
        """MQTT 5.0 may leave a hundred times the Receive Maximum, sent again or not; one more ends it with 0x93."""
        peer = self.flood(Version.V5, 1, 2 * RECEIVE_TOLERANCE)
        peer.publishes("t", b"m", 2, 1, dup=True)
        self.assertIsNone(peer.error)
        peer.publishes("t", b"m", 2, 2 * RECEIVE_TOLERANCE + 1)
        self.assertEqual(peer.reason, "mqtt_receive_maximum")
        self.assertEqual(peer.closed, ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)
        self.assertEqual(str(peer.error), "the client has more than 200 messages with QoS 2 that it did not release")

    def test_released(self) -> None:
        """A release makes room, for what an earlier connection left too; QoS 1 needs none."""
        self.flood(Version.V5, 1, 2 * RECEIVE_TOLERANCE).loses()
        peer = self.flood(Version.V5, 0, 0)
        peer.publishes("t", b"m", 1, 9999)
        peer.answers(PacketType.PUBREL, 1)
        peer.publishes("t", b"m", 2, 1)
        self.assertIsNone(peer.error)
        peer.publishes("t", b"m", 2, 9999)
        self.assertEqual(peer.reason, "mqtt_receive_maximum")

    def test_311(self) -> None:
        """MQTT 3.1.1 has no Receive Maximum: as many as there are packet identifiers are acknowledged."""
        peer = self.flood(Version.V311, 1, 0)
        assert peer.client is not None
        for identifier in range(1, 65_536):
            peer.client.received(Publish("t", b"m", 2, packet_id=identifier))
        self.assertEqual(len(peer.take()), 65_535)
        self.assertIsNone(peer.publishes("t", b"m", 1, 1) and peer.error)


class EndsTests(SynchronousTestCase):
    """A message that ends its connection, behind others whose acknowledgements wait for the journal."""

    def setUp(self) -> None:
        """Only one topic may be published to, and it is recorded."""
        self.journal = HandJournal()
        self.rig = Rig(
            Rules((AccessRule(None, ("t",), ("t",)),)), HubLimits(session=SessionLimits(received=2)), self.journal
        )
        away = self.rig.connect("s", clean_start=False, properties=LASTING)
        self.journal.commit_all()
        away.subscribes("t")
        self.journal.commit_all()
        away.loses()
        self.journal.take()

    def test_not_allowed(self) -> None:
        """MQTT 3.1.1 gets what it is owed before the end, so that it need not send it again; it is counted once."""
        peer = self.rig.connect("c", Version.V311)
        statistics = self.rig.hub.statistics
        peer.sends(Publish("t", b"m", 1, packet_id=1), Publish("u", b"m", 1, packet_id=2))
        self.assertIsNone(peer.error)
        self.journal.commit()
        self.assertEqual(peer.continues(), [Acknowledgement(PUBACK, 1)])
        self.assertEqual(peer.reason, "mqtt_not_authorized")
        self.assertEqual((statistics.received, statistics.denied["publish"]), (2, 1))

    def test_too_many_unreleased(self) -> None:
        """So does MQTT 5.0 before DISCONNECT 0x93."""
        peer = self.rig.connect("c")
        for identifier in range(1, 2 * RECEIVE_TOLERANCE + 1):
            peer.publishes("t", b"m", 2, identifier)
            self.journal.commit_all()
        self.assertEqual(len(peer.take()), 1)
        peer.sends(Publish("t", b"m", 1, packet_id=9998), Publish("t", b"m", 2, packet_id=9999))
        self.assertIsNone(peer.error)
        self.journal.commit()
        self.assertEqual(peer.continues(), [Acknowledgement(PUBACK, 9998)])
        self.assertEqual(peer.reason, "mqtt_receive_maximum")


class GroupTests(SynchronousTestCase):
    """A shared subscription of which one member cannot take more."""

    def setUp(self) -> None:
        """Two members."""
        self.rig = Rig(limits=HubLimits(session=SessionLimits(queued=3)))
        self.members = [self.rig.connect(name) for name in ("a", "b")]
        for each in self.members:
            each.subscribes("$share/g/t")
        self.publisher = self.rig.connect("p")

    def counts(self) -> list[int]:
        """Messages by member."""
        return [len(each.messages) for each in self.members]

    def test_full(self) -> None:
        """While one acknowledges and the other does not, nothing is dropped."""
        slow, quick = self.members
        for _ in range(12):
            self.publisher.publishes("t", b"m", 1)
            for each in quick.take():
                assert isinstance(each, Publish)
                quick.acks(PacketType.PUBACK, each.packet_id)
        self.assertEqual(3, len(slow.messages))
        self.assertEqual({}, dict(self.rig.hub.statistics.drops))

    def test_congested(self) -> None:
        """QoS 0 goes to who reads."""
        self.members[0].congested = True
        for _ in range(4):
            self.publisher.publishes("t")
        self.assertEqual([0, 4], self.counts())

    def test_no_subscriber(self) -> None:
        """Where no member has room it is dropped once, and counted."""
        for _ in range(7):
            self.publisher.publishes("t", b"m", 1)
        self.assertEqual([3, 3], self.counts())
        self.assertEqual({"queue_full": 1}, dict(self.rig.hub.statistics.drops))

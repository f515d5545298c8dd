"""The memory of all queues, which identities share."""

from __future__ import annotations

from collections import Counter
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import AllowAll
from svc.broker.hub import BATCH, HubLimits
from svc.broker.journal import Delivery, RecoveredSession, RecoveredState, SessionRecord
from svc.broker.message import Message
from svc.broker.session import CONNECTED, SCAN, SessionLimits
from svc.wire.mqtt import Acknowledgement, PacketType, Properties, Publish, Subscription, Version
from tests.broker.rig import Peer, Rig
from tests.broker.slow import HandJournal

LASTING: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry=3600)}
ONE, OTHER = "spiffe://prod.example/one", "spiffe://prod.example/other"
SIZE = Message("a/", b"m").size


class QueueCase(SynchronousTestCase):
    """A broker with room for 20 messages in all queues."""

    def setUp(self) -> None:
        self.rig = Rig(AllowAll(), limits=HubLimits(queued_octets=20 * SIZE))
        for name in ("a", "b"):
            self.subscriber(name, ONE)
        self.publisher = self.rig.connect("p", who=OTHER)

    def subscriber(self, name: str, who: str) -> None:
        """Connect a client that subscribes and goes away."""
        peer = self.rig.connect(name, who=who, **LASTING)
        peer.subscribes(f"{name}/#")
        peer.loses()

    def publishes(self, name: str, count: int) -> None:
        """Publish messages to the subscriber of this name."""
        for _ in range(count):
            self.publisher.publishes(f"{name}/", b"m", 1)

    def waiting(self) -> dict[str, int]:
        """How many messages wait for each session; what is counted is what the sessions have."""
        sessions = self.rig.hub.sessions.values()
        held = Counter[str]()
        for each in sessions:
            extra = each._extra.message.size if each._extra else 0
            held[each.owner] += each._octets - extra
            held[each.owner + CONNECTED] += extra
        self.assertEqual(self.rig.hub._queue_room._held, +held)
        return {each.client_id: each.waiting for each in sessions if each.waiting}

    def reader(self, name: str, topic_filter: str, who: str = ONE, **more: Any) -> Peer:
        """Connect a client that subscribes with QoS 1."""
        peer = self.rig.connect(name, who=who, **more)
        peer.subscribes(Subscription(topic_filter, 1))
        return peer

    def drops(self) -> dict[str, int]:
        """How many messages were dropped, by reason."""
        return dict(self.rig.hub.statistics.drops)


class QueueTests(QueueCase):
    """Whose messages are dropped."""

    def test_shared(self) -> None:
        """All sessions of one identity together have nearly all; another one gets a part; both are counted."""
        self.subscriber("c", "spiffe://prod.example/third")
        self.publishes("a", 12)
        self.publishes("b", 12)
        self.publishes("c", 1)
        self.assertEqual(self.waiting(), {"a": 12, "b": 7, "c": 1})
        self.assertEqual(self.rig.hub.statistics.drops, {"queues_full": 5})

    def test_given_back(self) -> None:
        """Acknowledged messages, and those of sessions that ended, take no room."""
        self.publishes("a", 12)
        self.publishes("b", 12)
        back = self.rig.connect("a", who=ONE, **LASTING)
        for each in back.messages[:6]:
            back.sends(Acknowledgement(PacketType.PUBACK, each.packet_id))
        self.assertEqual(self.waiting(), {"a": 6, "b": 7})
        self.publishes("b", 12)
        self.assertEqual(self.waiting(), {"a": 6, "b": 13})
        self.rig.hub.end_session(self.rig.hub.sessions["b"])
        self.assertEqual(self.waiting(), {"a": 6})
        back.loses()
        self.rig.passes(3600)
        self.assertEqual(self.waiting(), {})

    def test_expired(self) -> None:
        """Messages of the session that have expired make room."""
        for _ in range(19):
            self.publisher.publishes("a/", b"m", 1, properties=Properties(message_expiry=10))
        self.rig.passes(20)
        self.publishes("a", 1)
        self.assertEqual(self.waiting(), {"a": 1})


class ConnectedTests(QueueCase):
    """What a connected client gets although its owner has no more room."""

    def test_one_at_a_time(self) -> None:
        """It has one message in flight, and the next one when that is acknowledged."""
        self.publishes("a", 20)
        reader = self.reader("c", "c/#")
        self.publishes("c", 2)
        (first,) = reader.messages
        self.assertEqual((self.waiting(), self.drops()), ({"a": 19, "c": 1}, {"queues_full": 2}))
        reader.acks(PacketType.PUBACK, first.packet_id)
        self.assertEqual(self.waiting(), {"a": 19})
        self.publishes("c", 1)
        self.assertEqual(len(reader.messages), 2)

    def test_lost(self) -> None:
        """What was in flight counts as any other message when the client is gone."""
        self.publishes("a", 20)
        reader = self.reader("c", "c/#", **LASTING)
        self.publishes("c", 1)
        reader.loses()
        self.assertEqual(self.waiting(), {"a": 19, "c": 1})
        self.assertEqual(self.rig.hub._queue_room.held(ONE), 20 * SIZE)
        self.rig.hub.end_session(self.rig.hub.sessions["c"])
        self.assertEqual(self.waiting(), {"a": 19})

    def test_shared_by_connected(self) -> None:
        """Many that acknowledge nothing leave room for other identities."""
        self.rig = Rig(AllowAll(), limits=HubLimits(queued_octets=100 * SIZE))
        self.publisher = self.rig.connect("p", who=OTHER)
        self.subscriber("a", ONE)
        self.subscriber("d", "spiffe://prod.example/third")
        for number in range(50):
            self.reader(f"c{number}", "c/#")
        self.publishes("a", 100)
        self.assertEqual(self.waiting(), {"a": 91})
        self.publishes("c", 1)
        connected = sum(count for name, count in self.waiting().items() if name.startswith("c"))
        self.assertEqual(connected, 7)
        self.publishes("d", 2)
        self.assertEqual(self.waiting()["d"], 2)


class RetainedTests(QueueCase):
    """Retained messages for which there is no room wait for it."""

    COUNT = 50

    def setUp(self) -> None:
        super().setUp()
        for number in range(self.COUNT):
            self.publisher.publishes(f"{number:02}", b"m", retain=True, qos=1)

    def acknowledged(self, peer: Peer) -> list[str]:
        """Acknowledge all that comes until nothing does; give the topics."""
        topics: list[str] = []
        while came := [each for each in peer.take() if isinstance(each, Publish)]:
            for each in came:
                topics.append(each.topic)
                peer.acks(PacketType.PUBACK, each.packet_id)
        return topics

    def reader(self, name: str, topic_filter: str, who: str = ONE, **more: Any) -> Peer:
        """Connect a client that subscribes with QoS 1; nothing is taken."""
        peer = self.rig.connect(name, who=who, **more)
        peer.requests(topic_filter, 1)
        return peer

    def all(self) -> list[str]:
        """The topics of all."""
        return [f"{number:02}" for number in range(self.COUNT)]

    def test_alone(self) -> None:
        """More than all queues may hold come as they are acknowledged."""
        reader = self.reader("c", "+")
        self.assertLess(len(reader.messages), 20)
        self.assertEqual((self.acknowledged(reader), self.drops()), (self.all(), {}))
        self.assertEqual(self.waiting(), {})

    def test_beside_others(self) -> None:
        """A client whose owner has no more room gets them one by one."""
        self.publishes("a", 19)
        reader = self.reader("c", "+")
        self.assertEqual(len(reader.messages), 1)
        self.assertEqual((self.acknowledged(reader), self.drops()), (self.all(), {}))

    def test_no_room_at_all(self) -> None:
        """While nothing is free no turn is taken; they come when there is room."""
        self.publishes("a", 19)
        self.reader("d", "00")
        reader = self.reader("c", "+")
        self.rig.passes(3)
        self.assertLessEqual(self.rig.take_turns(), 2)
        self.assertEqual((reader.messages, self.drops()), ([], {}))
        self.rig.hub.end_session(self.rig.hub.sessions["a"])
        self.rig.passes(1)
        self.assertEqual((self.acknowledged(reader), self.drops()), (self.all(), {}))

    def test_replaced(self) -> None:
        """One that is replaced or removed while it waits is not sent: what replaces it was."""
        self.publishes("a", 19)
        for change in (b"new", b""):
            self.publisher.publishes("01", b"m", retain=True, qos=1)
            reader = self.reader("c", "+")
            self.publisher.publishes("01", change, retain=True)
            payloads: list[bytes] = []
            while came := [each for each in reader.take() if isinstance(each, Publish)]:
                payloads += [each.payload for each in came if each.topic == "01"]
                for each in came:
                    reader.acks(PacketType.PUBACK, each.packet_id)
            self.assertEqual(payloads, [change])
            reader.loses()

    def test_expired(self) -> None:
        """One that expires while it waits is not sent."""
        self.publisher.publishes("01", b"m", retain=True, qos=1, properties=Properties(message_expiry=2))
        self.publishes("a", 19)
        reader = self.reader("c", "+")
        self.rig.clock.now += 3
        self.assertEqual(self.acknowledged(reader), [each for each in self.all() if each != "01"])

    def test_too_large(self) -> None:
        """One that never fits is dropped, and those after it come."""
        for limits, reason in (
            (HubLimits(queued_octets=20 * SIZE), "queues_full"),
            (HubLimits(session=SessionLimits(octets=20 * SIZE)), "queue_full"),
        ):
            self.rig = Rig(AllowAll(), limits=limits)
            publisher = self.rig.connect("p", who=OTHER)
            publisher.publishes("00", bytes(20 * SIZE), retain=True, qos=1)
            publisher.publishes("01", b"m", retain=True, qos=1)
            reader = self.reader("c", "+")
            self.assertEqual((self.acknowledged(reader), self.drops()), (["01"], {reason: 1}))


class ExpiryTests(QueueCase):
    """Messages that expire are removed whoever is connected."""

    def expiring(self, name: str, *seconds: int, payload: bytes = b"m") -> None:
        """Publish messages that expire after so many seconds."""
        for each in seconds:
            self.publisher.publishes(f"{name}/", payload, 1, properties=Properties(message_expiry=each))

    def test_room_for_others(self) -> None:
        """What has expired for one session takes no room of another one."""
        self.expiring("a", *[10] * 19)
        self.rig.passes(9)
        self.assertEqual(self.waiting(), {"a": 19})
        self.rig.passes(1)
        self.assertEqual((self.waiting(), self.drops()), ({}, {"expired": 19}))
        self.publishes("b", 1)
        self.assertEqual(self.waiting(), {"b": 1})

    def test_others_stay(self) -> None:
        """Only what has expired is removed, the rest in its turn, and all within the time between two scans."""
        self.publishes("a", 1)
        self.expiring("a", 30, 10, 12, 11)
        self.publishes("a", 1)
        for seconds, left in ((9, 6), (1, 5), (SCAN - 1, 5), (1, 3), (9, 3), (1, 2), (3600 - 31, 2)):
            self.rig.passes(seconds)
            self.assertEqual(self.waiting(), {"a": left}, seconds)

    def test_connected(self) -> None:
        """A client that does not read has expired messages removed as well, those in flight excepted."""
        reader = self.rig.connect("a", who=ONE, **LASTING)
        reader.congested = True
        self.expiring("a", 10, 10)
        self.rig.passes(10)
        self.assertEqual(self.waiting(), {})
        reader.congested = False
        self.expiring("a", 10)
        self.rig.passes(20)
        self.assertEqual(self.waiting(), {"a": 1})

    def test_after_an_empty_queue(self) -> None:
        """The time is set again for what is queued after all was sent, or had expired."""
        self.expiring("a", 10)
        back = self.rig.connect("a", who=ONE, **LASTING)
        back.answers(PacketType.PUBACK, back.messages[0].packet_id)
        back.loses()
        self.assertEqual(self.waiting(), {})
        for seconds in (30, 40, 20):
            self.expiring("a", seconds)
            self.assertEqual(self.waiting(), {"a": 1})
            self.rig.passes(seconds)
            self.assertEqual(self.waiting(), {})

    def test_without_expiry(self) -> None:
        """What does not expire has no time; neither has a session that ended."""
        self.publishes("a", 5)
        self.assertEqual(len(self.rig.hub.expiry_deadlines), 0)
        self.expiring("a", 10, 20, 5)
        self.assertEqual(len(self.rig.hub.expiry_deadlines), 1)
        self.rig.hub.end_session(self.rig.hub.sessions["a"])
        self.assertEqual(len(self.rig.hub.expiry_deadlines), 0)

    def test_scans_are_rare(self) -> None:
        """A session is not scanned for each message that expires soon."""
        scans: list[str] = []
        session = self.rig.hub.sessions["a"]
        drop = session.drop_expired
        self.patch(type(session), "drop_expired", lambda self, now: scans.append(self.client_id) or drop(now))
        for _ in range(10 * int(SCAN)):
            self.expiring("a", 1)
            self.rig.passes(1)
        self.assertLessEqual(len(scans), 11)
        self.assertLessEqual(self.waiting().get("a", 0), SCAN)

    def test_bounded_turns(self) -> None:
        """Many sessions and messages are processed in turns."""
        self.rig = Rig(AllowAll())
        self.publisher = self.rig.connect("p", who=OTHER)
        for number in range(300):
            peer = self.rig.connect(f"s{number}", who=ONE, **LASTING)
            peer.subscribes("a/#")
            peer.loses()
        self.expiring("a", *[10] * 30)
        self.rig.clock.now += 10
        self.rig.hub.tick()
        most = self.rig.hub.statistics.drops["expired"]
        self.assertTrue(0 < most <= 20 * BATCH + 30, most)
        self.assertGreaterEqual(self.rig.take_turns(), 2)
        self.assertEqual((self.waiting(), self.drops()), ({}, {"expired": 9000}))

    def test_as_fast_as_the_journal(self) -> None:
        """What expires for many sessions at once does not have the journal refuse what is new: it is paced."""
        journal = HandJournal()
        self.rig = Rig(AllowAll(), journal=journal)
        self.publisher = self.rig.connect("p", who=OTHER)
        for number in range(2 * BATCH):
            peer = self.rig.connect(f"s{number}", who=ONE, **LASTING)
            journal.commit_all()
            peer.subscribes("a/#")
            journal.commit_all()
            peer.loses()
        self.expiring("a", 10)
        journal.commit_all()
        self.rig.passes(15)
        self.rig.take_turns()
        self.assertEqual(self.drops(), {"expired": BATCH})
        journal.commit_all()
        self.rig.take_turns()
        journal.commit_all()
        self.assertEqual((self.waiting(), self.drops()), ({}, {"expired": 2 * BATCH}))

    def test_restart(self) -> None:
        """What was recovered expires too."""
        session = SessionRecord("a", ONE, Version.V5, 3600)
        messages = [Message("a/", b"m", 1, expires=self.rig.clock() + seconds) for seconds in (-1, 10)]
        recovered = RecoveredSession(session, [], [Delivery(each, 1, False, ()) for each in messages])
        self.rig = Rig(AllowAll())
        self.rig.hub.restore(RecoveredState([recovered]))
        self.assertEqual(self.waiting(), {"a": 1})
        self.rig.passes(10)
        self.assertEqual(self.waiting(), {})

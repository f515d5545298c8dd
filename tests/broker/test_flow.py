"""Flow control (section 4.9), in both directions, and who of a group can take a message."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.errors import ReceiveMaximumExceeded
from svc.broker.hub import HubLimits
from svc.broker.session import SessionLimits
from svc.wire.mqtt import PacketType, Properties, Publish
from tests.broker.rig import Peer, Rig

LASTING = Properties(session_expiry=100)


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
    """What a client may have in progress."""

    def setUp(self) -> None:
        """Two at once."""
        self.rig = Rig(limits=HubLimits(session=SessionLimits(received=2)))

    def connect(self) -> Peer:
        """Connect with a session that lasts."""
        return self.rig.connect("c", clean_start=False, properties=LASTING)

    def test_each_connection(self) -> None:
        """What an earlier connection left unreleased does not count; what this one sends does."""
        first = self.connect()
        for identifier in (1, 2):
            first.publishes("t", b"m", 2, identifier)
        first.loses()
        second = self.connect()
        for identifier in (3, 4):
            second.publishes("t", b"m", 2, identifier)
        self.assertIsNone(second.error)
        second.publishes("t", b"m", 2, 5)
        self.assertIsInstance(second.error, ReceiveMaximumExceeded)

    def test_released(self) -> None:
        """Releasing what an earlier connection left makes no more room on this one."""
        first = self.connect()
        first.publishes("t", b"m", 2, 1)
        first.loses()
        second = self.connect()
        second.answers(PacketType.PUBREL, 1)
        for identifier in (1, 2):
            second.publishes("t", b"m", 2, identifier)
        self.assertIsNone(second.error)
        second.publishes("t", b"m", 2, 3)
        self.assertIsInstance(second.error, ReceiveMaximumExceeded)

    def test_bounded(self) -> None:
        """However often a client comes back, no more than twice the maximum is left unreleased."""
        for connection in range(4):
            peer = self.connect()
            for number in range(2):
                peer.publishes("t", b"m", 2, 10 * connection + number + 1)
            peer.loses()
        (session,) = self.rig.hub.sessions.values()
        self.assertEqual(4, len(session._received or ()))


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

    def test_nobody(self) -> None:
        """Where nobody has room it is dropped once, and counted."""
        for _ in range(7):
            self.publisher.publishes("t", b"m", 1)
        self.assertEqual([3, 3], self.counts())
        self.assertEqual({"queue_full": 1}, dict(self.rig.hub.statistics.drops))

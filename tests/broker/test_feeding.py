"""Retained messages for new subscriptions: bounded turns, no message lost, no session delayed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import AllowAll
from svc.broker.feeding import TURN
from svc.broker.hub import HubLimits
from svc.broker.message import Message
from svc.broker.session import SessionLimits
from svc.wire.mqtt import PacketType, Properties, Publish, Subscription, Unsubscribe, matches
from tests.broker.rig import Peer, Rig
from tests.broker.topics import FILTERS, TOPICS

#: More than a turn gives.
MANY = TURN // 5


class FeedCase(SynchronousTestCase):
    """A broker that holds many retained messages."""

    def setUp(self) -> None:
        """Keep them."""
        self.rig = Rig(limits=HubLimits(session=SessionLimits(queued=50)))
        for number in range(MANY):
            self.rig.hub.publish(Message(f"t/{number}", b"%d" % number, 1, retain=True))

    def subscribed(self, topic_filter: str = "t/+", qos: int = 0, client_id: str = "c", **more: object) -> Peer:
        """Connect and subscribe; nothing is taken, and no turn but the first is."""
        peer = self.rig.connect(client_id, **more)  # type: ignore[arg-type]
        peer.got.clear()
        assert peer.client is not None
        peer.requests(topic_filter, qos)
        return peer

    def acknowledged(self, peer: Peer) -> list[bytes]:
        """Acknowledge all that comes until nothing does; give the payloads."""
        payloads: list[bytes] = []
        while came := [each for each in peer.take() if isinstance(each, Publish)]:
            payloads += [each.payload for each in came]
            for each in came:
                if each.qos:
                    peer.acks(PacketType.PUBACK, each.packet_id)
        return payloads


class TurnTests(FeedCase):
    """What one subscriber gets, and when."""

    def all(self) -> list[bytes]:
        """Every payload."""
        return sorted(b"%d" % number for number in range(MANY))

    def test_in_turns(self) -> None:
        """A turn gives a bounded number; all come, each once."""
        peer = self.subscribed()
        first = len(peer.messages)
        self.assertLess(0, first)
        self.assertLessEqual(first, TURN // 20)
        self.assertGreater(self.rig.take_turns(), MANY // first - 2)
        self.assertEqual(self.all(), sorted(each.payload for each in peer.messages))

    def test_looking_is_bounded(self) -> None:
        """A filter that looks at much and matches nothing takes turns as well."""
        self.subscribed("+/+/x")
        self.assertGreaterEqual(self.rig.take_turns(), MANY // TURN)
        peer = self.subscribed("+/+/y", client_id="d")
        for number in range(TURN):
            self.rig.hub.publish(Message(f"u/{number}", b"x", 0, retain=True))
        peer.requests("+/+/z", 0)
        self.assertGreater(self.rig.take_turns(), 0)

    def test_fair(self) -> None:
        """Who subscribes to one thing gets it at once, whatever others are being given."""
        for number in range(10):
            self.subscribed("#", client_id=f"greedy-{number}")
        self.assertEqual([b"7"], [each.payload for each in self.subscribed("t/7", client_id="modest").messages])

    def test_more_than_the_queue(self) -> None:
        """With QoS 1 as much is under way as half of the queue holds; acknowledgements bring the rest, all of it."""
        peer = self.subscribed(qos=1)
        self.rig.take_turns()
        self.assertEqual(25, len(peer.messages))
        self.assertEqual(self.all(), sorted(self.acknowledged(peer)))
        self.assertEqual({}, dict(self.rig.hub.statistics.drops))

    def test_slow_reader(self) -> None:
        """A subscriber that reads slowly gets all with QoS 0 too: nothing is sent while it is congested."""
        peer = self.rig.connect("c")
        peer.congested = True
        peer.requests("t/+", 0)
        self.rig.take_turns()
        self.assertEqual([], peer.messages)
        peer.congested = False
        assert peer.client is not None
        peer.client.on_writable()
        self.assertEqual(self.all(), sorted(self.acknowledged(peer)))
        self.assertEqual({}, dict(self.rig.hub.statistics.drops))

    def test_next_connection(self) -> None:
        """A session that lasts gets the rest on its next connection."""
        persistent = Properties(session_expiry=100)
        peer = self.subscribed(qos=1, properties=persistent)
        got = [each.payload for each in peer.messages]
        for each in peer.messages:
            peer.acks(PacketType.PUBACK, each.packet_id)
        got += [each.payload for each in peer.messages[len(got) :]]
        peer.loses()
        self.rig.take_turns()
        again = self.rig.connect("c", clean_start=False, properties=persistent)
        self.assertEqual(set(self.all()), {*got, *self.acknowledged(again)})

    def test_ends(self) -> None:
        """Who unsubscribes, or whose session ends, gets no more; nothing of it stays."""
        peer = self.subscribed()
        before = len(peer.messages)
        assert peer.client is not None
        peer.client.received(Unsubscribe(9, ["t/+"]))
        self.rig.take_turns()
        self.assertEqual(before, len(peer.messages))
        other = self.subscribed(client_id="other")
        before = len(other.messages)
        other.loses()
        self.assertLessEqual(self.rig.take_turns(), 1)
        self.assertEqual(before, len(other.messages))

    def test_what_changes_meanwhile(self) -> None:
        """What is published meanwhile comes once, as it does to any subscriber; what is cleared does not come."""
        peer = self.subscribed()
        already = {each.topic for each in peer.messages}
        waiting = [f"t/{number}" for number in range(MANY) if f"t/{number}" not in already]
        self.rig.hub.publish(Message(waiting[0], b"new", 0, retain=True))
        self.rig.hub.publish(Message(waiting[1], b"", 0, retain=True))
        self.rig.take_turns()
        seen = [(each.topic, each.payload) for each in peer.messages if each.topic in waiting[:2]]
        self.assertEqual([(waiting[0], b"new"), (waiting[1], b"")], seen)

    def test_again(self) -> None:
        """A subscription that replaces another one gets everything again; what was left of the first is dropped."""
        peer = self.subscribed()
        first = len(peer.messages)
        peer.requests("t/+", 0)
        self.rig.take_turns()
        self.assertEqual(first + MANY, len(peer.messages))

    def test_packet_of_filters(self) -> None:
        """One packet with a thousand filters costs one turn at a time."""
        peer = self.rig.connect("c")
        peer.requests(*[f"t/+/{'+/' * (number % 9)}#" for number in range(900)], "#", 0)
        self.assertLessEqual(len(peer.messages), TURN // 20)
        self.rig.take_turns()


class AnyTests(SynchronousTestCase):
    """Any topics, any filters."""

    @given(st.lists(TOPICS, unique=True, max_size=15), st.lists(FILTERS, min_size=1, max_size=4, unique=True))
    def test_like_matching(self, topics: list[str], filters: list[str]) -> None:
        """Each subscription brings each message that its filter matches, once."""
        rig = Rig(AllowAll())
        for topic in topics:
            rig.hub.publish(Message(topic, topic.encode(), 0, retain=True))
        peer = rig.connect("c")
        came = peer.subscribes(*(Subscription(each, 0) for each in filters))
        got = sorted(each.topic for each in came if isinstance(each, Publish))
        expected = sorted(topic for each in filters for topic in topics if matches(each, topic))
        self.assertEqual(expected, got)

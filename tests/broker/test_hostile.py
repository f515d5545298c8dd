"""What hostile clients may make a broker hold, and what they may make everybody else wait for."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.hub import AT_ONCE, HubLimits
from svc.broker.message import Message
from svc.broker.session import SessionLimits
from svc.wire.mqtt import Properties, Subscription, Unsubscribe, Will
from tests.broker.rig import Rig


class FullQueueTests(SynchronousTestCase):
    """What a full queue costs everybody else."""

    def test_looked_at_where_something_may_have_expired(self) -> None:
        """A message that finds no room is no reason to look through a queue in which nothing expires by now."""
        rig = Rig(limits=HubLimits(session=SessionLimits(queued=3)))
        away = rig.connect("away", clean_start=False, properties=Properties(session_expiry=3600))
        away.subscribes("t")
        away.loses()
        session = rig.hub.sessions["away"]
        publisher = rig.connect("publisher")
        publisher.publishes("t", b"stays", 1)
        for seconds in (10, 20):
            publisher.publishes("t", b"%d" % seconds, 1, properties=Properties(message_expiry=seconds))
        publisher.publishes("t", b"too many", 1)
        before = session._queued
        for now, payload, looked in ((5, b"too many", False), (10, b"first", True), (15, b"too many", False)):
            rig.clock.now = 1_800_000_000.0 + now
            publisher.publishes("t", payload, 1)
            self.assertIs(session._queued is not before, looked)
            before = session._queued
        self.assertEqual([each.message.payload for each in before], [b"stays", b"20", b"first"])
        self.assertEqual(rig.hub.statistics.drops, {"queue_full": 3, "expired": 1})


class DueTests(SynchronousTestCase):
    """What is due at the same second is done in parts, so that connections have their turns in between."""

    MANY = 2 * AT_ONCE + 1

    def test_sessions(self) -> None:
        """Sessions end in parts, and each will is published."""
        rig = Rig()
        watcher = rig.connect("watcher")
        watcher.subscribes("will")
        more: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry=10)}
        for number in range(self.MANY):
            rig.connect(f"c{number}", will=Will("will", b"", 0, properties=Properties(will_delay=20)), **more).loses()
        rig.clock.now += 10
        rig.hub.tick()
        self.assertEqual(len(watcher.messages), AT_ONCE)
        self.assertEqual(self.turns(rig), 2)
        self.assertEqual((len(watcher.messages), len(rig.hub.sessions)), (self.MANY, 1))

    def test_retained(self) -> None:
        """Retained messages are forgotten in parts."""
        rig = Rig()
        publisher = rig.connect()
        for number in range(self.MANY):
            publisher.publishes(f"t/{number}", retain=True, properties=Properties(message_expiry=10))
        rig.clock.now += 10
        rig.hub.tick()
        self.assertEqual(len(rig.hub.retained), self.MANY - AT_ONCE)
        self.assertEqual(self.turns(rig), 2)
        self.assertEqual(len(rig.hub.retained), 0)

    def turns(self, rig: Rig) -> int:
        """Let all have their turn; tell how many there were."""
        count = 0
        while rig.turns:
            rig.turns.popleft()()
            count += 1
        return count


class FeedTests(SynchronousTestCase):
    """What waits for a session goes with its subscriptions."""

    def test_subscribed_and_unsubscribed(self) -> None:
        """A client that acknowledges nothing leaves nothing behind by filters that it gives up again."""
        rig = Rig(limits=HubLimits(session=SessionLimits(queued=4)))
        for number in range(10):
            rig.hub.publish(Message(f"t/{number}", b"x", 1, retain=True))
        peer = rig.connect()
        peer.subscribes(Subscription("#", 1))
        for number in range(100):
            peer.subscribes(Subscription(f"other/{number}", 1))
            peer.says(Unsubscribe(2, [f"other/{number}"]))
        self.assertEqual([len(each) for each in rig.hub.feed._walks.values()], [1])
        peer.says(Unsubscribe(2, ["#"]))
        self.assertEqual(rig.hub.feed._walks, {})

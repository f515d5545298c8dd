"""What hostile clients may make a broker hold, and how long they may delay other clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.base import DelayedCall
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import Principal
from svc.broker.broker import Broker
from svc.broker.hub import BATCH, HubLimits
from svc.broker.message import Message
from svc.broker.session import SessionLimits
from svc.wire.mqtt import (
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    ReasonCode,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    Will,
    encode,
)
from svc.wire.mqtt.stream import SLICE_PACKETS
from tests.broker.rig import Rig
from tests.broker.test_connection import Wire


class FullQueueTests(SynchronousTestCase):
    """What a full queue costs other clients."""

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

    MANY = 2 * BATCH + 1

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
        self.assertEqual(len(watcher.messages), BATCH)
        self.assertEqual(self.turns(rig), 2)
        self.assertEqual((len(watcher.messages), len(rig.hub.sessions)), (self.MANY, 1))

    def test_retained(self) -> None:
        """Retained messages are deleted in parts."""
        rig = Rig()
        publisher = rig.connect()
        for number in range(self.MANY):
            publisher.publishes(f"t/{number}", retain=True, properties=Properties(message_expiry=10))
        rig.clock.now += 10
        rig.hub.tick()
        self.assertEqual(len(rig.hub.retained), self.MANY - BATCH)
        self.assertEqual(self.turns(rig), 2)
        self.assertEqual(len(rig.hub.retained), 0)

    def turns(self, rig: Rig) -> int:
        """Run all turns; return how many there were."""
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
            peer.sends(Unsubscribe(2, [f"other/{number}"]))
        self.assertEqual([len(each) for each in rig.hub.feed._feeds.values()], [1])
        peer.sends(Unsubscribe(2, ["#"]))
        self.assertEqual(rig.hub.feed._feeds, {})


class Laborious:
    """A guard that takes two milliseconds for each message, in the time of a test."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def may_connect(self, principal: Principal) -> bool:
        """Allow it."""
        return True

    def may_publish(self, principal: Principal, topic: str) -> bool:
        """Take time."""
        self._clock.rightNow += 0.002
        return True

    def may_subscribe(self, principal: Principal, topic_filter: str) -> bool:
        """Allow it."""
        return True


class Turns(Clock):
    """A clock for which what is to be done soon waits until the test gives it its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.call_soon: deque[Callable[[], object]] = deque()

    def callLater(self, when: float, what: Callable[..., object], *arguments: object, **named: object) -> DelayedCall:  # type: ignore[override]
        """Keep what has no delay apart."""
        if not when:
            self.call_soon.append(what)
        return super().callLater(when or 1e9, what, *arguments, **named)  # type: ignore[return-value]


class TurnTests(SynchronousTestCase):
    """A client that sends much at once does not delay others."""

    MANY = [Publish(f"t/{number}", b"x", 0) for number in range(50)]

    def setUp(self) -> None:
        """A broker for which each message is work, and two clients."""
        self.clock = Turns()
        self.broker = Broker(self.clock, Laborious(self.clock))
        self.hub = self.broker.hub
        self.wire, self.other = (Wire(self.broker) for _ in range(2))
        self.other.sends(Connect("other"), Subscribe(1, [Subscription("#", 0)]))
        self.wire.sends(Connect("sender", will=Will("will", b"gone")))

    def turns(self) -> int:
        """Run all turns until nothing is left to do; return how many."""
        count = 0
        while self.clock.call_soon:
            self.clock.call_soon.popleft()()
            count += 1
        return count

    def topics(self) -> list[str]:
        """Give the topics that came to the other client."""
        return [each.topic for each in self.other.receives() if isinstance(each, Publish)]

    def test_others_have_their_turn(self) -> None:
        """A read is taken in parts, in its order, and nothing is read meanwhile."""
        self.wire.sends(*self.MANY, Pingreq())
        first = self.topics()
        self.assertEqual(len(first), 2)
        self.assertEqual(self.wire.transport.producerState, "paused")
        self.assertIn(Pingresp(), self.other.sends(Pingreq()))
        self.wire.octets(encode(Publish("last", b"x", 0), Version.V5, "client"))
        self.assertEqual(self.turns(), 25)
        self.assertEqual(first + self.topics(), [*(each.topic for each in self.MANY), "last"])
        self.assertEqual(self.wire.receives(), [Pingresp()])
        self.assertEqual(self.wire.transport.producerState, "producing")

    def test_floods_share_turns(self) -> None:
        """Many clients that send much at once delay others no more than one does."""
        wires = [Wire(self.broker) for _ in range(10)]
        for number, each in enumerate(wires):
            each.sends(Connect(f"c{number}"))
            each.sends(*self.MANY)
        while self.clock.call_soon:
            began = self.clock.seconds()
            self.clock.call_soon.popleft()()
            self.assertLess(self.clock.seconds() - began, 0.0075)
        self.assertEqual(len(self.topics()), len(wires) * len(self.MANY))

    def test_many_small_packets(self) -> None:
        """No more is decoded than a turn takes, but for the rest of a slice."""
        self.wire.protocol._context.turns._seconds = 0.0
        answered = len(self.wire.octets(b"\xc0\x00" * 1000))
        pending = self.wire.protocol._pending
        assert pending is not None
        self.assertEqual((answered, len(pending)), (1, SLICE_PACKETS - 1))
        self.assertEqual(self.turns(), 999)
        self.assertEqual(len(self.wire.receives()), 999)

    def test_messages_before_the_end(self) -> None:
        """What a client sent before its connection was lost is delivered, and then its will."""
        self.wire.sends(*self.MANY)
        self.wire.protocol.connectionLost()
        self.assertEqual(self.hub.statistics.connected, 2)
        self.turns()
        self.assertEqual(self.topics(), [*(each.topic for each in self.MANY), "will"])
        self.assertEqual((self.hub.statistics.connected, self.broker.open_connections), (1, 1))

    def test_taken_over_before_its_turn(self) -> None:
        """A DISCONNECT that waits counts when another connection takes over the session of a lost one."""
        for end in ([], [Disconnect()]):
            wire = Wire(self.broker)
            wire.sends(Connect("taken", will=Will("will", b"gone")), *self.MANY, *end)
            wire.protocol.connectionLost()
            again = Wire(self.broker)
            again.sends(Connect("taken"))
            self.turns()
            self.assertEqual("will" in self.topics(), not end)
            self.assertTrue(wire.protocol.ended)
            again.sends(Disconnect())

    def test_violation_behind_much(self) -> None:
        """A packet that is none ends the connection behind what came before it."""
        octets = b"".join(encode(each, Version.V5, "client") for each in self.MANY)
        self.wire.octets(octets + b"\xff\x00" + octets)
        self.turns()
        self.assertEqual(self.topics(), [*(each.topic for each in self.MANY), "will"])
        self.assertEqual(self.wire.receives(), [Disconnect(ReasonCode.MALFORMED_PACKET)])

    def test_keep_alive(self) -> None:
        """A client is not to blame for the time that the broker takes for what it sent."""
        self.wire.sends(Disconnect())
        wire = Wire(self.broker)
        wire.sends(Connect("patient", keep_alive=1), *self.MANY)
        for _ in range(3):
            self.clock.rightNow += 1
            self.clock.call_soon.popleft()()
            wire.protocol.check_timeouts(self.clock.seconds())
        self.assertFalse(wire.ended)

    def test_disconnect_behind_much(self) -> None:
        """What a client sent before DISCONNECT is processed, although the connection is lost before its turn."""
        for expiry, stays, will in ((None, True, False), (0, False, False), (5, True, False)):
            self.sends_much_and_disconnects(Properties(session_expiry=10), Properties(session_expiry=expiry))
            self.assertEqual("passing" in self.hub.sessions, stays)
            self.assertEqual("will" in self.topics(), will)
        self.assertEqual(self.hub.sessions["passing"].expiry, 5)
        # A DISCONNECT that breaks the protocol is ignored.
        self.sends_much_and_disconnects(Properties(), Properties(session_expiry=5))
        self.assertIn("will", self.topics())
        self.assertEqual(self.hub.statistics.connected, 2)

    def sends_much_and_disconnects(self, connect: Properties, disconnect: Properties) -> None:
        """Connect, send many packets and DISCONNECT at once, and lose the connection before all were processed."""
        wire = Wire(self.broker)
        wire.sends(Connect("passing", will=Will("will", b"gone"), properties=connect))
        wire.sends(*self.MANY, Disconnect(0, disconnect))
        wire.protocol.connectionLost()
        self.turns()

    def test_the_end_in_between(self) -> None:
        """Nothing is taken of a client whose connection has ended."""
        self.wire.sends(*self.MANY)
        self.wire.protocol.close(ReasonCode.SERVER_SHUTTING_DOWN)
        came = self.hub.statistics.received
        self.turns()
        self.assertEqual(self.hub.statistics.received, came)

    def test_what_goes_wrong(self) -> None:
        """An error ends the connection that led to it, in a later turn too."""
        self.wire.sends(*self.MANY)
        self.hub.publish = None  # type: ignore[assignment]
        self.turns()
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)
        self.assertTrue(self.wire.protocol.ended)

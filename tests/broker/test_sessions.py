"""How sessions begin, go on and end: connections, takeovers, expiry of sessions and messages."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import AllowAll
from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Disconnect,
    PacketType,
    Properties,
    ProtocolViolation,
    Publish,
    ReasonCode,
    Subscription,
    Version,
)
from tests.broker.rig import Peer, Rig

ALICE, BOB = "spiffe://example.org/alice", "spiffe://example.org/bob"


def persistent(seconds: int = 100) -> dict[str, Any]:
    """What makes a session last."""
    return {"clean_start": False, "properties": Properties(session_expiry=seconds)}


class SessionCase(SynchronousTestCase):
    """A broker and a publisher."""

    def setUp(self) -> None:
        """Start."""
        self.rig = Rig()
        self.publisher = self.rig.connect("publisher")

    def subscriber(self, **more: Any) -> Peer:
        """A client with a subscription that may go and come back."""
        client = self.rig.connect("c", **(more or persistent()))
        client.subscribes("t")
        return client


class TakeoverTests(SessionCase):
    """Two connections of one client (section 3.1.4)."""

    def test_of_whom(self) -> None:
        """Each connection ends the one before, with DISCONNECT; only the last one gets messages."""
        peers = [self.subscriber() for _ in range(3)]
        self.assertEqual([each.closed for each in peers], [ReasonCode.SESSION_TAKEN_OVER] * 2 + [None])
        self.publisher.publishes("t", b"m", 1)
        self.assertEqual([len(each.messages) for each in peers], [0, 0, 1])
        self.assertEqual(self.rig.hub.statistics.connected, 4)
        for each in peers[:2]:
            assert each.client is not None
            each.client.connection_lost()
        self.assertEqual(self.rig.hub.statistics.connected, 2)
        self.assertIs(self.rig.hub.sessions["c"].sink, peers[2])

    def test_the_late_end_of_the_first(self) -> None:
        """That the first connection is lost later changes nothing of the second: not its will, nor its session."""
        first = self.subscriber()
        second = self.subscriber()
        assert first.client is not None
        first.client.connection_lost()
        self.rig.passes(1000)
        self.publisher.publishes("t", b"m", 1)
        self.assertEqual(len(second.messages), 1)

    def test_acknowledged_by_the_second(self) -> None:
        """What the first did not acknowledge is sent to the second."""
        self.subscriber()
        self.publisher.publishes("t", b"m", 1)
        second = self.rig.connect("c", **persistent())
        self.assertEqual(second.take(), [Publish("t", b"m", 1, dup=True, packet_id=1)])

    def test_clean_start(self) -> None:
        """A clean start takes nothing over."""
        first = self.subscriber()
        self.publisher.publishes("t", b"m", 1)
        second = self.rig.connect("c", read_answer=False, properties=Properties(session_expiry=5))
        self.assertEqual(first.closed, ReasonCode.SESSION_TAKEN_OVER)
        (answer,) = second.take()
        assert isinstance(answer, Connack)
        self.assertFalse(answer.session_present)
        self.assertEqual(len(self.rig.hub.subscriptions), 0)

    def test_by_another_identity(self) -> None:
        """A session belongs to the identity that created it: no other takes it over or ends it."""
        self.rig = Rig(AllowAll())
        client = self.rig.connect("c", who=None)
        for other in (ALICE, BOB):
            refused = self.rig.connect("c", who=other)
            self.assertEqual(refused.reason, "mqtt_session_owned")
        self.assertIsNone(client.closed)
        client.loses()
        self.assertIsNone(self.rig.connect("c", who=ALICE).error)

    def test_anonymous(self) -> None:
        """Clients without an identity share sessions with those of their listener only."""
        persistent = Properties(session_expiry=100)
        self.rig.connect("c", listener="local", clean_start=False, properties=persistent).loses()
        foreign = self.rig.connect("c", listener="displays")
        self.assertEqual(foreign.reason, "mqtt_session_owned")
        again = self.rig.connect("c", listener="local", read_answer=False, clean_start=False, properties=persistent)
        (answer,) = again.got
        assert isinstance(answer, Connack)
        self.assertTrue(answer.session_present)


class ExpiryTests(SessionCase):
    """Times (sections 3.1.2.11.2 and 3.3.2.3.3)."""

    def test_session(self) -> None:
        """A session lasts its time from the end of its connection, however long that was open."""
        client = self.subscriber(**persistent(10))
        self.rig.passes(1000)
        self.assertIn("c", self.rig.hub.sessions)
        client.loses()
        self.rig.passes(9)
        again = self.subscriber(**persistent(10))
        self.rig.passes(5)
        again.loses()
        self.rig.passes(9)
        self.assertIn("c", self.rig.hub.sessions)
        self.rig.passes(1)
        self.assertNotIn("c", self.rig.hub.sessions)

    def test_changed_at_the_end(self) -> None:
        """DISCONNECT may shorten or prolong it; one that was to end with its connection cannot be kept."""
        for seconds in (0, 1, 50):
            self.subscriber(**persistent(10)).sends(Disconnect(0, Properties(session_expiry=seconds)))
            if seconds:
                self.rig.passes(seconds - 1)
                self.assertIn("c", self.rig.hub.sessions)
                self.rig.passes(1)
            self.assertNotIn("c", self.rig.hub.sessions)
        client = self.rig.connect("d")
        client.sends(Disconnect(0, Properties(session_expiry=1)))
        self.assertIsInstance(client.error, ProtocolViolation)
        self.assertNotIn("d", self.rig.hub.sessions)

    def test_version_changes(self) -> None:
        """A session goes on in another version."""
        client = self.subscriber(version=Version.V311, clean_start=False)
        client.loses()
        self.publisher.publishes("t", b"m", 1, properties=Properties(content_type="x"))
        again = self.rig.connect("c", read_answer=False, **persistent())
        connack, message = again.take()
        self.assertTrue(connack.session_present)
        self.assertEqual(message.properties, Properties(content_type="x"))

    def test_message_in_the_queue(self) -> None:
        """A message that waits too long is not sent; another one has the rest of its expiry interval."""
        client = self.subscriber(**persistent(1000))
        client.loses()
        for seconds in (10, 11, 100):
            self.publisher.publishes("t", b"%d" % seconds, 1, properties=Properties(message_expiry=seconds))
        self.rig.passes(10)
        back = self.rig.connect("c", **persistent())
        left = {each.payload: each.properties.message_expiry for each in back.messages}
        self.assertEqual(left, {b"11": 1, b"100": 90})
        self.assertEqual(self.rig.hub.statistics.drops, {"expired": 1})

    def test_parts_of_seconds(self) -> None:
        """What did not wait has all of its expiry interval, and what has any left is not sent as expired."""
        client = self.subscriber(**persistent(1000))
        intervals = []
        for waited in (0.0, 0.25, 0.75):
            client.loses()
            self.publisher.publishes("t", b"m", 1, properties=Properties(message_expiry=1))
            self.rig.clock.now += waited
            client = self.rig.connect("c", **persistent())
            intervals += [each.properties.message_expiry for each in client.messages]
            client.answers(PacketType.PUBACK, client.messages[0].packet_id)
        self.assertEqual(intervals, [1, 1, 1])

    def test_message_on_its_way(self) -> None:
        """What was sent once is sent again however late [MQTT-4.4.0-1]: its receiver may have it; never with 0."""
        client = self.subscriber()
        self.publisher.publishes("t", b"m", 1, properties=Properties(message_expiry=5))
        client.loses()
        self.rig.passes(50)
        (message,) = self.rig.connect("c", **persistent()).take()
        self.assertEqual(message.properties.message_expiry, 1)

    def test_retained(self) -> None:
        """A retained message is delivered until it expires, and then deleted."""
        self.publisher.publishes("r", b"m", 0, retain=True, properties=Properties(message_expiry=5))
        self.rig.passes(4)
        (_, message) = self.rig.connect("late").subscribes("r")
        self.assertEqual(message.properties.message_expiry, 1)
        self.rig.passes(1)
        self.assertEqual(len(self.rig.hub.retained), 0)
        self.assertEqual(len(self.rig.connect("later").subscribes("r")), 1)

    def test_retained_replaced(self) -> None:
        """The end of a message that was replaced takes nothing away."""
        self.publisher.publishes("r", b"1", 0, retain=True, properties=Properties(message_expiry=5))
        self.publisher.publishes("r", b"2", 0, retain=True)
        self.rig.passes(100)
        (_, message) = self.rig.connect("late").subscribes("r")
        self.assertEqual(message.payload, b"2")


class AssignedTests(SessionCase):
    """Clients without an identifier."""

    def test_names(self) -> None:
        """Each gets a unique identifier; MQTT 5.0 gets it in CONNACK, and may resume with it."""
        names = []
        for _ in range(2):
            peer = self.rig.connect("", read_answer=False, properties=Properties(session_expiry=10))
            (answer,) = peer.take()
            names.append(answer.properties.assigned_client_id)
        self.assertEqual(len(set(names)), 2)
        again = self.rig.connect(names[0], read_answer=False, clean_start=False)  # type: ignore[arg-type]
        self.assertTrue(again.take()[0].session_present)
        old = self.rig.connect("", Version.V311, read_answer=False)
        self.assertEqual(old.take(), [Connack(False, 0)])


class AnswerTests(SessionCase):
    """Answers that are about nothing."""

    def test_after_a_clean_start(self) -> None:
        """A client that acknowledges what a session before had sent breaks nothing."""
        self.subscriber()
        self.publisher.publishes("t", b"m", 1)
        fresh = self.rig.connect("c")
        self.assertEqual(fresh.answers(PacketType.PUBACK, 1), [])
        self.assertEqual(fresh.answers(PacketType.PUBREL, 9), [Acknowledgement(PacketType.PUBCOMP, 9, 0x92)])
        self.assertIsNone(fresh.closed)

    def test_subscription_option(self) -> None:
        """A subscription that is replaced keeps its position, with other options."""
        client = self.subscriber()
        client.subscribes(Subscription("t", 0))
        self.publisher.publishes("t", b"m", 2)
        self.assertEqual(client.take(), [Publish("t", b"m")])

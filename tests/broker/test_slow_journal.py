"""The core with a slow journal: nothing is sent before it is durable, and nothing to the wrong connection."""

from __future__ import annotations

from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.broker import Broker
from svc.broker.errors import StoreRefuses
from svc.broker.hub import HubLimits
from svc.broker.journal import RecoveredSession, RecoveredState, SessionRecord
from svc.broker.message import Message
from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    PacketType,
    Properties,
    Publish,
    ReasonCode,
    ReturnCode,
    Suback,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from tests.broker.rig import ANYTHING, Peer, Rig
from tests.broker.slow import HandJournal

LASTING: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry=3600)}
PUBACK: Final = PacketType.PUBACK
PUBREC: Final = PacketType.PUBREC
PUBREL: Final = PacketType.PUBREL
PUBCOMP: Final = PacketType.PUBCOMP


class SlowCase(SynchronousTestCase):
    """A hub over a journal that the test commits."""

    limits: HubLimits | None = None

    def setUp(self) -> None:
        """Make it."""
        self.journal = HandJournal()
        self.rig = Rig(journal=self.journal, limits=self.limits)

    def persistent(self, client_id: str, *filters: str, **more: Any) -> Peer:
        """Connect a client whose session lasts; it and its subscriptions are safe."""
        peer = self.rig.connect(client_id, read_answer=False, **{**LASTING, **more})
        self.journal.commit_all()
        if filters:
            peer.subscribes(*filters)
            self.journal.commit_all()
        peer.take()
        self.journal.take()
        return peer


class PublisherTests(SlowCase):
    """What is acknowledged to a publisher."""

    def test_acknowledged_when_safe(self) -> None:
        """PUBACK comes after the commit of the deliveries, PUBREC after that of the received identifier as well."""
        publisher = self.persistent("p")
        away = self.persistent("s", "t")
        away.loses()
        self.journal.take()
        self.assertEqual(publisher.publishes("t", b"1", 1, 1), [])
        self.assertEqual(publisher.publishes("t", b"2", 2, 2), [])
        self.assertEqual(self.journal.recorded, ["delivery s t", "received p 2", "delivery s t"])
        self.journal.commit()
        self.assertEqual(publisher.take(), [Acknowledgement(PUBACK, 1), Acknowledgement(PUBREC, 2)])

    def test_completed_when_the_release_is_safe(self) -> None:
        """PUBCOMP lets the client use the identifier again, so it waits until the release is safe."""
        publisher = self.persistent("p")
        publisher.publishes("t", b"2", 2, 2)
        self.journal.commit()
        self.journal.take()
        publisher.take()
        self.assertEqual(publisher.answers(PUBREL, 2), [])
        self.assertEqual(self.journal.recorded, ["released p 2"])
        self.journal.commit()
        self.assertEqual(publisher.take(), [Acknowledgement(PUBCOMP, 2)])

    def test_sent_again_before_it_is_safe(self) -> None:
        """A message that comes again over a new connection is taken once, and answered there when it is safe."""
        subscriber = self.persistent("s", "t")
        first = self.persistent("p")
        first.publishes("t", b"2", 2, 2)
        first.loses()
        second = self.rig.connect("p", **LASTING)
        self.journal.commit_all()
        second.take()
        self.assertEqual(second.publishes("t", b"2", 2, 2, dup=True), [Acknowledgement(PUBREC, 2)])
        self.assertEqual(first.take(), [])
        self.assertEqual(len(subscriber.messages), 1)

    def test_answers_go_to_who_asked(self) -> None:
        """A commit after the session was taken over answers nothing on either connection."""
        first = self.persistent("p")
        away = self.persistent("s", "t")
        away.loses()
        first.publishes("t", b"1", 1, 1)
        second = self.rig.connect("p", read_answer=False, **LASTING)
        self.journal.commit_all()
        self.assertEqual(first.take(), [])
        self.assertEqual([each.type for each in second.take()], [PacketType.CONNACK])

    def test_session_ended_meanwhile(self) -> None:
        """A commit after a session ended with its connection has no effect."""
        away = self.persistent("s", "t")
        away.loses()
        publisher = self.rig.connect("p")
        self.journal.commit_all()
        publisher.publishes("t", b"1", 1, 1)
        publisher.publishes("t", b"2", 2, 2)
        publisher.loses()
        self.journal.commit_all()
        self.assertEqual(publisher.take(), [])
        self.assertEqual(self.rig.hub.sessions["s"].waiting, 2)


class SubscriberTests(SlowCase):
    """What a subscriber sees, and when."""

    def setUp(self) -> None:
        """A publisher and a subscriber."""
        super().setUp()
        self.publisher = self.persistent("p")
        self.subscriber = self.persistent("s", "t")

    def test_exactly_once_waits(self) -> None:
        """A QoS 2 message is shown when it is safe that it came and under which identifier it goes out."""
        self.publisher.publishes("t", b"2", 2, 5)
        self.assertEqual(self.subscriber.take(), [])
        self.assertEqual(self.journal.recorded, ["received p 5", "delivery s t", "sent 1"])
        self.journal.commit()
        self.assertEqual(self.subscriber.take(), [Publish("t", b"2", 2, packet_id=1)])

    def test_at_least_once_does_not_wait(self) -> None:
        """A QoS 1 message goes out at once."""
        self.publisher.publishes("t", b"1", 1, 5)
        self.assertEqual(self.subscriber.take(), [Publish("t", b"1", 1, packet_id=1)])

    def test_exactly_once_waits_for_fleeting_subscribers(self) -> None:
        """The publisher's identifier must be safe for a subscriber too whose own session does not last."""
        fleeting = self.rig.connect("f")
        fleeting.subscribes("t")
        self.journal.commit_all()
        fleeting.take()
        self.publisher.publishes("t", b"2", 2, 5)
        self.assertEqual(fleeting.take(), [])
        self.journal.commit()
        self.assertEqual(fleeting.take(), [Publish("t", b"2", 2, packet_id=1)])

    def test_connection_gone_meanwhile(self) -> None:
        """A message whose connection ended while it waited comes on the next one, and only there."""
        self.publisher.publishes("t", b"2", 2, 5)
        self.subscriber.loses()
        back = self.rig.connect("s", **LASTING)
        self.journal.commit_all()
        self.assertEqual(self.subscriber.take(), [])
        self.assertEqual(back.messages, [Publish("t", b"2", 2, dup=True, packet_id=1)])

    def test_expired_meanwhile(self) -> None:
        """A message that expired while it waited is not delivered, and its slot is free again."""
        self.publisher.publishes("t", b"2", 2, 5, properties=Properties(message_expiry=10))
        self.rig.passes(10)
        self.journal.commit_all()
        self.assertEqual(self.subscriber.take(), [])
        self.assertEqual(self.rig.hub.sessions["s"].waiting, 0)
        self.assertEqual(self.rig.hub.statistics.drops["expired"], 1)

    def test_age_counts_the_wait(self) -> None:
        """The expiry interval that a subscriber gets is what is left when the message is sent."""
        self.publisher.publishes("t", b"2", 2, 5, properties=Properties(message_expiry=10))
        self.rig.passes(4)
        self.journal.commit_all()
        (message,) = self.subscriber.messages
        self.assertEqual(message.properties.message_expiry, 6)

    def test_release_waits(self) -> None:
        """PUBREL makes the client forget the identifier, so it waits until that is safe, however often PUBREC comes."""
        self.publisher.publishes("t", b"2", 2, 5)
        self.journal.take()
        self.subscriber.take()
        self.assertEqual(self.subscriber.answers(PUBREC, 1), [])
        self.assertEqual(self.subscriber.answers(PUBREC, 1), [])
        self.assertEqual(self.journal.recorded, ["released 1"])
        self.journal.commit()
        self.assertEqual(self.subscriber.take(), [Acknowledgement(PUBREL, 1)] * 2)

    def test_identifier_used_again(self) -> None:
        """A message that waits under an identifier is not mistaken for one that waited under it before."""
        self.publisher.publishes("t", b"first", 2, 5)
        self.subscriber.answers(PUBREC, 1, 0x83)
        # 65,535 messages later.
        self.rig.hub.sessions["s"]._last_id = 0
        self.publisher.publishes("t", b"second", 2, 6)
        self.journal.commit_all()
        self.assertEqual(self.subscriber.take(), [Publish("t", b"second", 2, packet_id=1)])

    def test_answered_before_it_was_sent(self) -> None:
        """A client that answers an identifier which it was not sent gets nothing more under it."""
        self.publisher.publishes("t", b"2", 2, 5)
        self.subscriber.answers(PUBREC, 1)
        self.journal.commit_all()
        self.assertEqual(self.subscriber.take(), [Acknowledgement(PUBREL, 1)])

    def test_subscription_answered_when_safe(self) -> None:
        """SUBACK, UNSUBACK and retained messages wait, and are not sent to another connection."""
        self.publisher.publishes("r", b"kept", 0, retain=True)
        self.assertEqual(self.subscriber.subscribes("r", packet_id=3), [])
        self.journal.commit()
        suback, message = self.subscriber.take()
        self.assertEqual(suback, Suback(3, [2]))
        self.assertEqual(message, Publish("r", b"kept", retain=True))
        self.assertEqual(self.subscriber.sends(Unsubscribe(4, ["r"])), [])
        self.journal.commit()
        self.assertEqual(self.subscriber.take(), [Unsuback(4, [0])])
        self.subscriber.sends(Unsubscribe(5, ["t"]))
        self.subscriber.subscribes("r", packet_id=6)
        back = self.rig.connect("s", **LASTING)
        self.journal.commit_all()
        self.assertEqual(self.subscriber.take(), [])
        self.assertEqual([each.type for each in back.take()], [PacketType.CONNACK])


class WaitingConnectionTests(SlowCase):
    """Connections whose CONNACK waits."""

    def test_gone_before_connack(self) -> None:
        """A client that left before it was admitted leaves no open session behind: its will and its expiry run."""
        watcher = self.rig.connect("w")
        watcher.subscribes("will")
        self.journal.commit_all()
        watcher.take()
        gone = self.rig.connect("c", **LASTING, will=Will("will", b"gone"))
        gone.closed = ReasonCode.UNSPECIFIED_ERROR
        self.journal.commit_all()
        self.assertIsNone(gone.client)
        self.assertEqual([each.payload for each in watcher.messages], [b"gone"])
        self.assertIsNone(self.rig.hub.sessions["c"].sink)
        self.rig.passes(3600)
        self.assertNotIn("c", self.rig.hub.sessions)

    def test_gone_before_connack_and_fleeting(self) -> None:
        """Nor does one whose session would not have lasted."""
        self.persistent("c").loses()
        gone = self.rig.connect("c", clean_start=False)
        gone.closed = ReasonCode.UNSPECIFIED_ERROR
        self.journal.commit_all()
        self.assertNotIn("c", self.rig.hub.sessions)
        self.assertEqual(self.rig.hub.statistics.connected, 0)

    def test_taken_over_while_fleeting(self) -> None:
        """A second connection does not inherit the session of a first one that waits and asked for none to last."""
        kept = self.persistent("c", "t")
        kept.loses()
        self.journal.take()
        self.rig.connect("c", clean_start=False)
        second = self.rig.connect("c", read_answer=False, **LASTING)
        self.journal.commit_all()
        (connack,) = second.take()
        assert isinstance(connack, Connack)
        self.assertFalse(connack.session_present)
        self.assertEqual(self.rig.hub.sessions["c"].subscriptions, {})

    def test_fleeting_clients_wait_for_nothing(self) -> None:
        """While the disk stalls, clients of which nothing is recorded connect, subscribe, publish and release."""
        self.rig.connect("waits", **LASTING)
        client = self.rig.connect("c", read_answer=False)
        self.assertEqual([each.type for each in client.take()], [PacketType.CONNACK])
        self.assertEqual(client.subscribes("t"), [Suback(1, [2])])
        self.assertEqual(client.publishes("t", b"0"), [Publish("t", b"0")])
        self.assertEqual(client.answers(PUBREL, 9), [Acknowledgement(PUBCOMP, 9, 0x92)])
        self.assertEqual(client.sends(Unsubscribe(2, ["t"])), [Unsuback(2, [0])])

    def test_fleeting_after_lasting_waits(self) -> None:
        """That a session which lasted is gone must be safe before a clean start is acknowledged."""
        self.persistent("c", "t").loses()
        self.journal.take()
        client = self.rig.connect("c", read_answer=False)
        self.assertEqual(client.take(), [])
        self.assertEqual(self.journal.recorded, ["session over c"])
        self.journal.commit()
        self.assertEqual([each.type for each in client.take()], [PacketType.CONNACK])


class RecordTests(SlowCase):
    """What is recorded."""

    def test_fleeting_sessions(self) -> None:
        """Of a session that ends with its connection only its end is recorded, which a journal ignores."""
        client = self.rig.connect("c")
        client.subscribes("t")
        client.publishes("t", b"m", 2)
        client.loses()
        self.assertEqual(self.journal.recorded, ["session over c"])

    def test_lasts_no_longer(self) -> None:
        """A session that is taken up without an expiry is taken out with its deliveries."""
        publisher = self.rig.connect("p")
        self.persistent("s", "t").loses()
        publisher.publishes("t", b"1", 1)
        self.journal.take()
        back = self.rig.connect("s", clean_start=False)
        self.assertEqual(self.journal.take(), ["delivered t", "session over s"])
        self.assertEqual([each.payload for each in back.messages], [b"1"])
        back.answers(PUBACK, 1)
        self.assertEqual(self.journal.recorded, [])

    def test_end_of_a_session(self) -> None:
        """A session that ends takes its deliveries with it."""
        publisher = self.rig.connect("p")
        self.persistent("s", "t").loses()
        publisher.publishes("t", b"1", 1)
        self.journal.take()
        self.rig.passes(3600)
        self.assertEqual(self.journal.take(), ["delivered t", "session over s"])

    def test_own_topics(self) -> None:
        """Statistics below $SYS are not recorded."""
        self.rig.hub.publish(Message("$SYS/broker/uptime", b"1 seconds", retain=True))
        self.rig.hub.publish(Message("$SYS/broker/uptime", b"", retain=True))
        self.assertEqual(self.journal.recorded, [])


class RestoreTests(SlowCase):
    """What is done at a start."""

    def test_due_meanwhile(self) -> None:
        """Sessions that expired while nothing ran are gone before any client connects, and their wills are out."""
        now = self.rig.clock()
        old = SessionRecord("old", "anonymous ", Version.V5, 10, now - 11, Will("will", b"old", retain=True), now - 1)
        young = SessionRecord("young", "anonymous ", Version.V5, 10, now - 9)
        self.rig.hub.restore(RecoveredState([RecoveredSession(old), RecoveredSession(young)]))
        self.assertEqual(list(self.rig.hub.sessions), ["young"])
        message = self.rig.hub.retained.get("will")
        assert message is not None
        self.assertEqual(message.payload, b"old")

    def test_open_at_the_crash(self) -> None:
        """A connection that was open counts as lost at the start: will and expiry run from then, and that is kept."""
        will = Will("will", b"gone", retain=True, properties=Properties(will_delay=5))
        self.rig.hub.restore(
            RecoveredState([RecoveredSession(SessionRecord("c", "anonymous ", Version.V5, 10, None, will))])
        )
        self.assertEqual(self.journal.take(), ["session c ended"])
        self.rig.passes(4)
        self.assertIsNone(self.rig.hub.retained.get("will"))
        self.rig.passes(1)
        self.assertIsNotNone(self.rig.hub.retained.get("will"))
        self.rig.passes(5)
        self.assertNotIn("c", self.rig.hub.sessions)

    def test_retained_beyond_the_queue(self) -> None:
        """A retained message that expired, or is beyond a limit that was lowered, is taken out."""
        rig = Rig(journal=self.journal, limits=HubLimits(retained=1))
        expired = Message("e", b"x", retain=True, expires=rig.clock() - 1)
        rig.hub.restore(RecoveredState(retained=[expired, Message("a", b"x"), Message("b", b"x")]))
        self.assertEqual(self.journal.recorded, ["unretained e", "unretained b"])
        self.assertEqual(len(rig.hub.retained), 1)


class RefusingTests(SlowCase):
    """While the journal takes nothing new."""

    def refusing(self) -> None:
        """Begin that."""
        self.journal.take()
        self.journal.accepting = False

    def test_publish(self) -> None:
        """MQTT 5.0 gets 0x97 at once, MQTT 3.1.1 is closed; nothing of it is recorded or delivered."""
        subscriber = self.persistent("s", "t")
        publisher, old = self.persistent("p"), self.persistent("o", version=Version.V311, properties=Properties())
        publisher.publishes("t", b"before", 1, 9)
        self.refusing()
        subscriber.take()
        self.journal.recorded.append("something waits")
        quota = ReasonCode.QUOTA_EXCEEDED
        publisher.take()
        self.assertEqual(publisher.publishes("t", b"1", 1, 1), [Acknowledgement(PUBACK, 1, quota)])
        self.assertEqual(publisher.publishes("t", b"2", 2, 2), [Acknowledgement(PUBREC, 2, quota)])
        old.publishes("t", b"3", 1, 3)
        self.assertIsInstance(old.error, StoreRefuses)
        self.assertEqual(subscriber.take(), [])
        self.assertEqual(self.journal.recorded, ["something waits", "session o ended"])
        publisher.publishes("t", b"0")
        self.assertEqual([each.payload for each in subscriber.take()], [b"0"])

    def test_known_messages_go_on(self) -> None:
        """A QoS 2 message that was taken up before is acknowledged and released."""
        publisher = self.persistent("p")
        publisher.publishes("t", b"2", 2, 2)
        self.refusing()
        publisher.take()
        self.assertEqual(publisher.publishes("t", b"2", 2, 2, dup=True), [Acknowledgement(PUBREC, 2)])
        publisher.answers(PUBREL, 2)
        self.journal.commit()
        self.assertEqual(publisher.take(), [Acknowledgement(PUBCOMP, 2)])

    def test_retained(self) -> None:
        """A message to be retained is passed on and not kept, the old one stays; taking one out is allowed."""
        subscriber, publisher = self.persistent("s", "t"), self.rig.connect("p")
        publisher.publishes("t", b"old", retain=True)
        self.refusing()
        subscriber.take()
        publisher.publishes("t", b"new", retain=True)
        self.assertEqual([each.payload for each in subscriber.messages], [b"new"])
        kept = self.rig.hub.retained.get("t")
        assert kept is not None
        self.assertEqual(kept.payload, b"old")
        self.assertEqual(self.journal.recorded, [])
        self.assertEqual(self.rig.hub.statistics.drops["store_refuses"], 1)
        publisher.publishes("t", b"", retain=True)
        self.assertIsNone(self.rig.hub.retained.get("t"))

    def test_connect(self) -> None:
        """A session that would last is refused with "server unavailable", one that would not is served."""
        persistent_client = self.persistent("c")
        self.refusing()
        for version, code in (
            (Version.V5, ReasonCode.SERVER_UNAVAILABLE),
            (Version.V311, ReturnCode.SERVER_UNAVAILABLE),
        ):
            more = LASTING if version is Version.V5 else {"clean_start": False}
            refused = self.rig.connect("c", version, read_answer=False, **more)
            self.assertEqual(refused.take(), [Connack(False, code)])
        self.assertIsNone(persistent_client.closed)
        self.assertIsNotNone(self.rig.connect("fleeting").client)

    def test_subscribe(self) -> None:
        """A session that lasts gets no further subscriptions, one that does not does; unsubscribing is allowed."""
        client, fleeting = self.persistent("c", "old"), self.rig.connect("f")
        old = self.persistent("o", version=Version.V311, properties=Properties())
        self.refusing()
        self.assertEqual(client.subscribes("t"), [Suback(1, [ReasonCode.QUOTA_EXCEEDED])])
        self.assertEqual(old.subscribes("t"), [Suback(1, [0x80])])
        self.assertEqual(fleeting.subscribes("t"), [Suback(1, [2])])
        self.assertEqual(self.journal.recorded, [])
        client.sends(Unsubscribe(2, ["old"]))
        self.journal.commit()
        self.assertEqual(client.take(), [Unsuback(2, [0])])

    def test_from_within(self) -> None:
        """A program that embeds the broker gets an error, except for what need not be durable."""
        broker = Broker(object(), ANYTHING, journal=self.journal)
        self.journal.accepting = False
        with self.assertRaises(StoreRefuses):
            broker.publish("t", b"m", 1)
        with self.assertRaises(StoreRefuses):
            broker.publish("t", b"m", retain=True)
        self.assertFalse(broker.publish("t", b"m"))

    def test_wills(self) -> None:
        """A will is no new message: it is published with its quality of service, and kept."""
        subscriber = self.persistent("s", "will")
        leaving = self.persistent("c", will=Will("will", b"gone", 1, retain=True))
        self.refusing()
        leaving.loses()
        self.assertEqual([each.payload for each in subscriber.messages], [b"gone"])
        self.assertEqual(self.journal.recorded, ["retained will", "delivery s will", "sent 1", "session c ended"])

"""Recovery after a crash."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from svc.broker.hub import HubLimits
from svc.wire.mqtt import (
    Acknowledgement,
    PacketType,
    Properties,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    Will,
)
from tests.broker.keeping import LASTING, TABLES, KeptCase

PUBREC: Final = PacketType.PUBREC
PUBREL: Final = PacketType.PUBREL
PUBCOMP: Final = PacketType.PUBCOMP
ALICE = "spiffe://example.org/a"


class RestoreTests(KeptCase):
    """The recovered state."""

    def test_nothing_is_left_over(self) -> None:
        """When all is delivered, released, unsubscribed and ended, every table is empty; a message is stored once."""
        one, two, publisher = self.persistent("one", "t"), self.persistent("two", "t"), self.persistent("p")
        one.loses()
        two.loses()
        publisher.publishes("t", b"kept", 2, 5, retain=True)
        self.kept.settle()
        counts = {table: self.kept.rows(table) for table in TABLES}
        expected = {"session": 3, "subscription": 2, "message": 1, "delivery": 2, "received": 1, "retained": 1}
        self.assertEqual(counts, expected)
        rig = self.again()
        publisher = self.persistent("p")
        publisher.answers(PUBREL, 5)
        publisher.publishes("t", b"", retain=True)
        for name in ("one", "two"):
            peer = rig.connect(name, **LASTING)
            self.kept.settle()
            peer.answers(PUBREC, 1)
            self.kept.settle()
            peer.answers(PUBCOMP, 1)
            peer.sends(Unsubscribe(9, ["t"]))
            peer.loses()
        publisher.loses()
        rig.passes(3600)
        self.kept.settle()
        self.assertEqual({table: self.kept.rows(table) for table in TABLES}, dict.fromkeys(TABLES, 0))

    def test_shares_of_sessions(self) -> None:
        """After a restart identities share sessions by what was recovered."""
        limits = HubLimits(sessions=20)
        self.kept.crash()
        self.rig = self.kept.rig(limits=limits)
        for each in range(19):
            self.persistent(f"a-{each}", who=ALICE)
        self.kept.crash()
        self.rig = self.kept.rig(self.rig.clock.now, limits=limits)
        self.assertEqual(self.rig.connect("a-19", who=ALICE, **LASTING).reason, "mqtt_session_limit")
        self.assertIsNone(self.persistent("b", who="spiffe://example.org/b").error)
        self.assertEqual(len(self.rig.hub.sessions), 20)

    def test_shares_of_retained_messages(self) -> None:
        """What was retained stays, in any order, and identities share the room by who published what was recovered."""
        limits = HubLimits(retained=20)
        self.kept.crash()
        self.rig = self.kept.rig(limits=limits)
        # They are read in the order of their topics.
        first, last = self.persistent("a", who=ALICE), self.persistent("b", who="spiffe://example.org/b")
        for number in range(20):
            first.publishes(f"z/{number}", b"m", retain=True)
        last.publishes("a", b"m", retain=True)
        self.kept.settle()
        self.assertEqual(len(self.rig.hub.retained), 20)
        self.kept.crash()
        self.rig = self.kept.rig(self.rig.clock.now, limits=limits)
        most = self.rig.hub.retained.most()
        self.assertEqual((len(self.rig.hub.retained), most.owner, most.messages), (20, ALICE, 19))
        self.persistent("b", who="spiffe://example.org/b").publishes("a", b"", retain=True)
        self.persistent("a", who=ALICE).publishes("z/more", b"m", retain=True)
        self.assertEqual(len(self.rig.hub.retained), 19)
        self.persistent("b", who="spiffe://example.org/b").publishes("a", b"m", retain=True)
        self.assertEqual(len(self.rig.hub.retained), 20)

    def test_shares_of_queues(self) -> None:
        """After a restart what waits in queues counts for the owners of the sessions."""
        self.persistent("a", "a", who=ALICE).loses()
        self.persistent("p").publishes("a", b"m" * 1000, 1, 5)
        self.kept.settle()
        before = self.rig.hub._queue_room.most()
        self.assertEqual((before[0], before[1] > 1000), (ALICE, True))
        self.assertEqual(self.again().hub._queue_room.most(), before)

    def test_all_parts_of_a_message(self) -> None:
        """A message is recovered with its properties, its age, its flags and the subscription identifiers."""
        subscription = Subscription("t/#", 2, retain_as_published=True)
        away = self.rig.connect("s", **LASTING)
        self.kept.settle()
        away.sends(Subscribe(1, [subscription], Properties(subscription_identifiers=(77,))))
        away.loses()
        publisher = self.persistent("p")
        properties = Properties(
            payload_format=1,
            message_expiry=100,
            content_type="text/plain",
            response_topic="answer/here",
            correlation_data=b"\x00\xff",
            user=(("a", "1"), ("a", "2"), ("b", "é")),
        )
        publisher.publishes("t/é", b"\x00payload", 2, 5, retain=True, properties=properties)
        self.kept.settle()
        rig = self.again()
        rig.clock.now += 40
        back = rig.connect("s", **LASTING)
        self.kept.settle()
        (message,) = back.messages
        self.assertEqual(
            (message.topic, message.payload, message.qos, message.retain), ("t/é", b"\x00payload", 2, True)
        )
        self.assertEqual(message.properties, replace(properties, message_expiry=60, subscription_identifiers=(77,)))
        fresh = rig.connect("fresh")
        self.kept.settle()
        _suback, kept = fresh.subscribes("t/é")
        assert isinstance(kept, Publish)
        self.assertEqual((kept.payload, kept.retain), (b"\x00payload", True))

    def test_stages(self) -> None:
        """Each delivery is recovered in its stage: unsent, sent with its packet identifier, or released."""
        away = self.persistent("s", "t", properties=Properties(session_expiry=3600, receive_maximum=2))
        publisher = self.persistent("p")
        for number in (1, 2, 3):
            publisher.publishes("t", b"%d" % number, 2, number)
        self.kept.settle()
        away.answers(PUBREC, 2)
        self.kept.settle()
        rig = self.again()
        back = rig.connect("s", **LASTING)
        self.kept.settle()
        self.assertEqual(
            back.take()[1:],
            [
                Publish("t", b"1", 2, dup=True, packet_id=1),
                Acknowledgement(PUBREL, 2),
                Publish("t", b"3", 2, packet_id=3),
            ],
        )

    def test_sessions(self) -> None:
        """Subscriptions with options, owner, version, expiry and will are recovered; a clean session is not."""
        options = Subscription("$share/g/t", 1), Subscription("n", 2, True, True, 2)
        will = Will("will", b"gone", 1, True, Properties(will_delay=5, content_type="x"))
        self.persistent("kept", *options, who=ALICE, will=will)
        self.persistent("old", "u", version=Version.V311, properties=Properties())
        fleeting = self.rig.connect("fleeting")
        fleeting.subscribes("f")
        self.kept.settle()
        rig = self.again()
        sessions = rig.hub.sessions
        self.assertEqual(set(sessions), {"kept", "old"})
        session = sessions["kept"]
        self.assertEqual(sorted(session.subscriptions), ["$share/g/t", "n"])
        self.assertEqual([each for each, _identifier in session.subscriptions.values()], [*options])
        self.assertEqual((session.owner, session.expiry, session.will), (ALICE, 3600, will))
        self.assertEqual(sessions["old"].version, Version.V311)
        self.assertEqual(rig.connect("kept", **LASTING).error.reason, "mqtt_session_owned")
        rig.passes(5)
        message = rig.hub.retained.get("will")
        assert message is not None
        self.assertEqual((message.payload, message.properties.content_type), (b"gone", "x"))

    def test_expiry_goes_on(self) -> None:
        """Time while the broker is down counts towards the expiry."""
        self.persistent("s").loses()
        self.kept.settle()
        self.rig.clock.now += 3599
        self.assertIn("s", self.again().hub.sessions)
        self.rig.clock.now += 1
        self.assertNotIn("s", self.again().hub.sessions)
        self.kept.settle()
        self.assertEqual(self.kept.rows("session"), 0)

    def test_will_once(self) -> None:
        """A published will is not published again after a crash, and an unpublished one is not lost."""
        self.persistent("w", "will")
        self.persistent("c", will=Will("will", b"gone", 1)).loses()
        self.again()
        self.rig.passes(1)
        self.assertEqual(self.rig.hub.sessions["w"].waiting, 1)
        self.kept.settle()
        self.again()
        self.rig.passes(1)
        self.assertEqual(self.rig.hub.sessions["w"].waiting, 1)

    def test_end_of_a_session(self) -> None:
        """A session that ends is deleted with its sent and received messages."""
        self.persistent("p").publishes("t", b"m", 2, 5)
        self.persistent("s", "t").loses()
        self.persistent("p", clean_start=True).publishes("t", b"m", 1, 6)
        self.kept.settle()
        self.assertEqual((self.kept.rows("received"), self.kept.rows("delivery")), (0, 1))
        self.rig.connect("s", clean_start=True)
        self.kept.settle()
        counts = [self.kept.rows(table) for table in TABLES]
        self.assertEqual(counts, [1, 0, 0, 0, 0, 0])

    def test_retained_once_more(self) -> None:
        """The last retained message of a topic is recovered; earlier ones are deleted."""
        publisher = self.persistent("p")
        for payload in (b"1", b"2", b"3"):
            publisher.publishes("t", payload, 1, retain=True)
            self.kept.settle()
        self.assertEqual(self.kept.rows("message"), 1)
        message = self.again().hub.retained.get("t")
        assert message is not None
        self.assertEqual(message.payload, b"3")
        self.persistent("p").publishes("t", b"", retain=True)
        self.kept.settle()
        self.assertEqual((self.kept.rows("message"), len(self.again().hub.retained)), (0, 0))

    def test_numbers_go_on(self) -> None:
        """Changes recorded after a start overwrite no recovered row."""
        self.persistent("s", "t").loses()
        self.persistent("p").publishes("t", b"1", 1)
        self.kept.settle()
        self.again()
        self.persistent("p").publishes("t", b"2", 1)
        self.kept.settle()
        self.again()
        self.assertEqual(self.rig.hub.sessions["s"].waiting, 2)

    def test_what_the_start_records(self) -> None:
        """The end of connections by a crash is recorded while the core is created, and durable with the first group."""
        self.persistent("s")
        self.rig.clock.now += 5
        rig = self.again()
        self.assertEqual(self.kept.journal.waiting[0], 1)
        self.kept.commit()
        self.assertEqual(self.kept.journal.waiting[0], 0)
        rig.clock.now += 100
        self.assertEqual(self.again().hub.sessions["s"].ended, rig.clock.now - 100)

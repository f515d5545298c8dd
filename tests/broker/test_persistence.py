"""The broker's database: what is kept comes back, in groups, over full and broken disks."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.journal import Remains
from svc.broker.message import Message
from svc.broker.persistence.groups import ROW, GroupLimits
from svc.broker.persistence.operations import Kind
from svc.broker.persistence.writer import condensed
from svc.store.errors import StoreError
from svc.wire.mqtt import (
    Acknowledgement,
    PacketType,
    Properties,
    Publish,
    ReasonCode,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    Will,
)
from tests.broker.keeping import Kept, Quick, broken
from tests.broker.rig import Peer, Rig

LASTING: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry=3600)}
PUBACK, PUBREC, PUBREL, PUBCOMP = PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP
ALICE = "spiffe://example.org/a"
TABLES = ("session", "subscription", "message", "delivery", "received", "retained")


class KeptCase(SynchronousTestCase):
    """A database, a core over it, and a hand on the thread."""

    more: dict[str, Any] = {}

    def setUp(self) -> None:
        """Begin with an empty database."""
        self.kept = Kept(self.mktemp(), **self.more)
        self.rig = self.kept.rig(self.kept.begin())
        self.addCleanup(self.kept.crash)
        self.addCleanup(setattr, Quick, "error", None)
        self.addCleanup(setattr, Quick, "after", False)

    def lasting(self, client_id: str, *filters: Any, **more: Any) -> Peer:
        """Connect a client whose session lasts; it and its subscriptions are safe."""
        peer = self.rig.connect(client_id, read_answer=False, **{**LASTING, **more})
        self.kept.settle()
        if filters:
            peer.subscribes(*filters)
            self.kept.settle()
        peer.take()
        return peer

    def again(self) -> Rig:
        """Crash and begin anew, at the same time of day."""
        self.kept.crash()
        self.rig = self.kept.rig(self.kept.begin(), self.rig.clock.now)
        return self.rig


class GroupTests(KeptCase):
    """What becomes durable together, and who is called when."""

    def test_one_round_is_one_group(self) -> None:
        """What one round records is one transaction; what comes while it is written is the next one."""
        subscriber, publisher = self.lasting("s", "t"), self.lasting("p")
        subscriber.loses()
        self.kept.settle()
        before = len(self.kept.notes.commits)
        for number in (1, 2, 3):
            publisher.publishes("t", b"m", 1, number)
        self.kept.round()
        self.assertEqual(len(self.kept.lane.tasks), 1)
        publisher.publishes("t", b"m", 1, 4)
        publisher.publishes("t", b"m", 1, 5)
        self.kept.round()
        self.assertEqual(len(self.kept.lane.tasks), 1)
        self.kept.lane.run()
        self.assertEqual(publisher.take(), [])
        self.kept.reactor.deliver()
        self.assertEqual([each.packet_id for each in publisher.take()], [1, 2, 3])
        self.kept.commit()
        self.assertEqual([each.packet_id for each in publisher.take()], [4, 5])
        self.assertEqual(self.kept.notes.commits[before:], [6, 4])

    def test_at_once_where_nothing_waits(self) -> None:
        """Whoever asks when all is durable is called at once."""
        called: list[int] = []
        self.kept.journal.safe(lambda: called.append(1))
        self.assertEqual(called, [1])

    def test_order_of_calls(self) -> None:
        """Calls keep the order in which they were asked for, by another call too, and one that fails stops no other."""
        journal, called = self.kept.journal, []

        def first() -> None:
            called.append("first")
            journal.safe(lambda: called.append("asked by first"))
            raise RuntimeError("a defect")

        journal.received("c", 1)
        journal.safe(first)
        journal.safe(lambda: called.append("second"))
        self.kept.round()
        journal.safe(lambda: called.append("third"))
        journal.received("c", 2)
        journal.safe(lambda: called.append("next group"))
        self.kept.lane.run()
        self.kept.reactor.deliver()
        self.assertEqual(called, ["first", "second", "third"])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.kept.commit()
        self.assertEqual(called, ["first", "second", "third", "next group", "asked by first"])

    def test_asked_while_called(self) -> None:
        """Where nothing is recorded meanwhile, whoever is asked for by a call comes behind those who wait."""
        journal, called = self.kept.journal, []
        journal.received("c", 1)
        journal.safe(lambda: journal.safe(lambda: called.append("later")))
        journal.safe(lambda: called.append("sooner"))
        self.kept.settle()
        self.assertEqual(called, ["sooner", "later"])

    def test_close_writes_what_waits(self) -> None:
        """At the end what was handed over and what was not becomes durable, whatever the thread has said."""
        self.lasting("s", "t").loses()
        publisher = self.lasting("p")
        publisher.publishes("t", b"1", 1, 1)
        self.kept.round()
        publisher.publishes("t", b"2", 1, 2)
        self.kept.close()
        self.assertEqual((self.kept.rows("message"), self.kept.rows("delivery")), (2, 2))
        self.assertEqual(self.kept.reactor.getDelayedCalls(), [])
        self.kept.begin()

    def test_came_and_went(self) -> None:
        """What was acknowledged before its group was written is not written."""
        subscriber, publisher = self.lasting("s", "t"), self.lasting("p")
        publisher.publishes("t", b"1", 1, 1)
        subscriber.answers(PUBACK, 1)
        kinds = [kind for kind, _rows in condensed(self.kept.journal._groups._growing.operations)]
        self.assertEqual(kinds, [])
        self.kept.settle()
        self.assertEqual([each.packet_id for each in publisher.take()], [1])

    def test_condensed(self) -> None:
        """A delivery that is new is written as it is at the end, one that is not is changed once."""
        row = (7, "c", 3, 1, 0, "", 0, 0)
        operations = [(Kind.DELIVERY_CHANGED, (5, 1, 9)), (Kind.DELIVERY, row), (Kind.DELIVERY_CHANGED, (7, 1, 4))]
        operations += [(Kind.DELIVERY_CHANGED, (5, 2, 9)), (Kind.RECEIVED, ("c", 1)), (Kind.RELEASED, ("c", 1))]
        self.assertEqual(
            list(condensed(operations)),  # type: ignore[arg-type]
            [
                (Kind.DELIVERY, [(7, "c", 3, 1, 0, "", 1, 4)]),
                (Kind.DELIVERY_CHANGED, [(5, 2, 9)]),
                (Kind.RECEIVED, [("c", 1)]),
                (Kind.RELEASED, [("c", 1)]),
            ],
        )


class RestoreTests(KeptCase):
    """What comes back."""

    def test_nothing_is_left_over(self) -> None:
        """When all is delivered, released, unsubscribed and over, every table is empty; a message is stored once."""
        one, two, publisher = self.lasting("one", "t"), self.lasting("two", "t"), self.lasting("p")
        one.loses()
        two.loses()
        publisher.publishes("t", b"kept", 2, 5, retain=True)
        self.kept.settle()
        counts = {table: self.kept.rows(table) for table in TABLES}
        expected = {"session": 3, "subscription": 2, "message": 1, "delivery": 2, "received": 1, "retained": 1}
        self.assertEqual(counts, expected)
        rig = self.again()
        publisher = self.lasting("p")
        publisher.answers(PUBREL, 5)
        publisher.publishes("t", b"", retain=True)
        for name in ("one", "two"):
            peer = rig.connect(name, **LASTING)
            self.kept.settle()
            peer.answers(PUBREC, 1)
            self.kept.settle()
            peer.answers(PUBCOMP, 1)
            peer.says(Unsubscribe(9, ["t"]))
            peer.loses()
        publisher.loses()
        rig.passes(3600)
        self.kept.settle()
        self.assertEqual({table: self.kept.rows(table) for table in TABLES}, dict.fromkeys(TABLES, 0))

    def test_everything_of_a_message(self) -> None:
        """A message comes back with its properties, its age, the identifiers of the subscriptions and its flags."""
        subscription = Subscription("t/#", 2, retain_as_published=True)
        away = self.rig.connect("s", **LASTING)
        self.kept.settle()
        away.says(Subscribe(1, [subscription], Properties(subscription_identifiers=(77,))))
        away.loses()
        publisher = self.lasting("p")
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
        """Each delivery goes on where it was: unsent, sent with its identifier, released."""
        away = self.lasting("s", "t", properties=Properties(session_expiry=3600, receive_maximum=2))
        publisher = self.lasting("p")
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
        """Subscriptions with their options, owner, version, expiry and will come back; a fleeting session does not."""
        options = Subscription("$share/g/t", 1), Subscription("n", 2, True, True, 2)
        will = Will("will", b"gone", 1, True, Properties(will_delay=5, content_type="x"))
        self.lasting("kept", *options, who=ALICE, will=will)
        self.lasting("old", "u", version=Version.V311, properties=Properties())
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
        self.assertEqual(rig.connect("kept", **LASTING).error.reason, "mqtt_session_owned")  # type: ignore[union-attr]
        rig.passes(5)
        message = rig.hub.retained.at("will")
        assert message is not None
        self.assertEqual((message.payload, message.properties.content_type), (b"gone", "x"))

    def test_expiry_goes_on(self) -> None:
        """Time that passed while nothing ran counts."""
        self.lasting("s").loses()
        self.kept.settle()
        self.rig.clock.now += 3599
        self.assertIn("s", self.again().hub.sessions)
        self.rig.clock.now += 1
        self.assertNotIn("s", self.again().hub.sessions)
        self.kept.settle()
        self.assertEqual(self.kept.rows("session"), 0)

    def test_will_once(self) -> None:
        """A will that was published is not published again by a crash after it, nor lost by one before it."""
        self.lasting("w", "will")
        self.lasting("c", will=Will("will", b"gone", 1)).loses()
        self.again()
        self.rig.passes(1)
        self.assertEqual(self.rig.hub.sessions["w"].waiting, 1)
        self.kept.settle()
        self.again()
        self.rig.passes(1)
        self.assertEqual(self.rig.hub.sessions["w"].waiting, 1)

    def test_end_of_a_session(self) -> None:
        """A session that ends takes what it had sent and received with it."""
        self.lasting("p").publishes("t", b"m", 2, 5)
        self.lasting("s", "t").loses()
        self.lasting("p", clean_start=True).publishes("t", b"m", 1, 6)
        self.kept.settle()
        self.assertEqual((self.kept.rows("received"), self.kept.rows("delivery")), (0, 1))
        self.rig.connect("s", clean_start=True)
        self.kept.settle()
        counts = [self.kept.rows(table) for table in TABLES]
        self.assertEqual(counts, [1, 0, 0, 0, 0, 0])

    def test_retained_once_more(self) -> None:
        """The last retained message of a topic comes back, and the ones before it are gone."""
        publisher = self.lasting("p")
        for payload in (b"1", b"2", b"3"):
            publisher.publishes("t", payload, 1, retain=True)
            self.kept.settle()
        self.assertEqual(self.kept.rows("message"), 1)
        message = self.again().hub.retained.at("t")
        assert message is not None
        self.assertEqual(message.payload, b"3")
        self.lasting("p").publishes("t", b"", retain=True)
        self.kept.settle()
        self.assertEqual((self.kept.rows("message"), len(self.again().hub.retained)), (0, 0))

    def test_numbers_go_on(self) -> None:
        """What is recorded after a start takes no row of what was there."""
        self.lasting("s", "t").loses()
        self.lasting("p").publishes("t", b"1", 1)
        self.kept.settle()
        self.again()
        self.lasting("p").publishes("t", b"2", 1)
        self.kept.settle()
        self.again()
        self.assertEqual(self.rig.hub.sessions["s"].waiting, 2)


class TroubleTests(KeptCase):
    """A database that refuses."""

    def setUp(self) -> None:
        """A subscriber that is away, and a publisher."""
        super().setUp()
        self.lasting("s", "t").loses()
        self.publisher = self.lasting("p")
        self.kept.notes.troubles.clear()

    def fails(self, code: int = sqlite3.SQLITE_FULL, *, after: bool = False) -> None:
        """Let commits fail."""
        Quick.error, Quick.after = broken(code), after

    def mends(self) -> None:
        """Let them succeed, and the next attempt come."""
        Quick.error = None
        self.kept.reactor.advance(1)
        self.kept.lane.run()
        self.kept.reactor.deliver()

    def test_nothing_is_acknowledged(self) -> None:
        """While commits fail nothing is acknowledged; when they succeed again everything is, without a new start."""
        for code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            self.kept.notes.troubles.clear()
            self.kept.notes.errors.clear()
            self.fails(code)
            self.publisher.publishes("t", b"m", 1, 1)
            for _second in range(3):
                self.kept.commit()
                self.kept.reactor.advance(1)
            self.assertEqual(self.publisher.take(), [])
            self.assertFalse(self.kept.journal.accepting)
            quota = Acknowledgement(PUBACK, 2, ReasonCode.QUOTA_EXCEEDED)
            self.assertEqual(self.publisher.publishes("t", b"m", 1, 2), [quota])
            self.assertGreaterEqual(len(self.kept.notes.errors), 3)
            self.mends()
            self.assertEqual(self.publisher.take(), [Acknowledgement(PUBACK, 1)])
            self.assertEqual(self.kept.notes.troubles, ["mqtt_store_unavailable", None])
            self.assertTrue(self.kept.journal.accepting)
        self.assertEqual(self.again().hub.sessions["s"].waiting, 4)

    def test_crash_while_it_fails(self) -> None:
        """What was not acknowledged may be gone after a crash; what was is there."""
        self.publisher.publishes("t", b"safe", 1, 1)
        self.kept.settle()
        self.fails()
        self.assertEqual(self.publisher.publishes("t", b"unsafe", 1, 2), [Acknowledgement(PUBACK, 1)])
        self.kept.commit()
        self.assertEqual(self.publisher.take(), [])
        Quick.error = None
        self.assertEqual(self.again().hub.sessions["s"].waiting, 1)

    def test_committed_and_denied(self) -> None:
        """A group that is durable although the commit failed is written again without harm."""
        self.fails(sqlite3.SQLITE_IOERR, after=True)
        self.publisher.publishes("t", b"m", 2, 1, retain=True)
        self.lasting_session_ends()
        self.kept.commit()
        self.assertEqual(self.publisher.take(), [])
        self.mends()
        self.assertEqual(self.publisher.take(), [Acknowledgement(PUBREC, 1)])
        counts = {table: self.kept.rows(table) for table in TABLES}
        expected = {"session": 2, "subscription": 1, "message": 1, "delivery": 1, "received": 1, "retained": 1}
        self.assertEqual(counts, expected)

    def lasting_session_ends(self) -> None:
        """A session and its subscription come and go within the group."""
        journal = self.kept.journal
        peer = self.rig.hub.sessions["s"]
        journal.session(replace(peer.record(), client_id="brief"))
        journal.subscribed("brief", Subscription("x"), None)
        journal.session_ended("brief")

    def test_what_waits_is_bounded(self) -> None:
        """Operations wait up to their limit; at it nothing new is taken, and again when half of them are gone."""
        self.kept.crash()
        self.kept.more["limits"] = GroupLimits(operations=8)
        self.rig = self.kept.rig(self.kept.begin(), self.rig.clock.now)
        self.publisher = self.lasting("p")
        for number in (1, 2):
            self.publisher.publishes("t", b"m", 1, number)
        self.kept.round()
        self.publisher.publishes("t", b"m", 1, 3)
        self.kept.journal.received("p", 9)
        self.assertEqual(self.kept.journal.waiting[0], 7)
        self.assertTrue(self.kept.journal.accepting)
        self.kept.journal.released("p", 9)
        self.assertEqual(self.kept.journal.waiting[0], 8)
        self.assertFalse(self.kept.journal.accepting)
        quota = Acknowledgement(PUBACK, 4, ReasonCode.QUOTA_EXCEEDED)
        self.assertEqual(self.publisher.publishes("t", b"m", 1, 4), [quota])
        self.kept.commit()
        self.assertFalse(self.kept.journal.accepting)
        self.kept.commit()
        self.assertTrue(self.kept.journal.accepting)
        self.assertEqual(self.kept.notes.troubles, [None, "mqtt_store_busy", None])

    def test_octets_that_wait_are_bounded(self) -> None:
        """Octets of messages wait up to their limit."""
        self.kept.crash()
        size = 1000 + len("t") + 256
        limit = 2 * (size + 2 * ROW)
        self.kept.more["limits"] = GroupLimits(octets=limit)
        self.rig = self.kept.rig(self.kept.begin(), self.rig.clock.now)
        self.publisher = self.lasting("p")
        self.publisher.publishes("t", bytes(1000), 1, 1)
        self.publisher.publishes("t", bytes(999), 1, 2)
        self.assertTrue(self.kept.journal.accepting)
        self.kept.settle()
        self.publisher.publishes("t", bytes(1000), 1, 3)
        self.publisher.publishes("t", bytes(1000), 1, 4)
        self.assertFalse(self.kept.journal.accepting)

    def test_late(self) -> None:
        """A disk that does not answer for ten seconds is noticed, and again when it does."""
        self.publisher.publishes("t", b"m", 1, 1)
        self.kept.round()
        self.kept.reactor.advance(9.9)
        self.assertTrue(self.kept.journal.accepting)
        self.kept.reactor.advance(0.2)
        self.assertFalse(self.kept.journal.accepting)
        self.kept.commit()
        self.assertTrue(self.kept.journal.accepting)
        self.assertEqual(self.kept.notes.troubles, ["mqtt_store_late", None])
        self.assertEqual(self.publisher.take(), [Acknowledgement(PUBACK, 1)])

    def test_asked_how_it_is_while_something_comes(self) -> None:
        """An attempt that has nothing to write does not make safe what is recorded while it runs."""
        self.fails()
        self.publisher.publishes("t", b"m", 1, 1)
        self.kept.commit()
        Quick.error = None
        groups = self.kept.journal._groups
        self.kept.reactor.advance(1)
        self.kept.lane.run()
        self.kept.reactor.deliver()
        self.publisher.take()
        groups._degraded = True
        groups._try_again()
        self.publisher.publishes("t", b"m", 1, 2)
        self.kept.round()
        self.assertEqual(len(self.kept.lane.tasks), 1)
        self.kept.lane.run()
        self.kept.reactor.deliver()
        self.assertEqual(self.publisher.take(), [])
        self.kept.settle()
        self.assertEqual(self.publisher.take(), [Acknowledgement(PUBACK, 2)])

    def test_damage(self) -> None:
        """A database that is found damaged takes nothing more; the next start looks at all of it."""
        self.fails(sqlite3.SQLITE_CORRUPT)
        self.publisher.publishes("t", b"m", 1, 1)
        self.kept.commit()
        Quick.error = None
        for _second in range(3):
            self.kept.reactor.advance(1)
            self.kept.lane.run()
            self.kept.reactor.deliver()
        self.assertEqual(self.publisher.take(), [])
        self.assertEqual(self.kept.notes.damage, [("damaged", self.kept.path)])
        self.assertEqual(self.kept.notes.troubles, ["store_corrupt"])
        self.assertEqual(os.path.getsize(f"{self.kept.path}.reserve"), 2)
        self.assertEqual(self.again().hub.sessions["s"].waiting, 0)

    def test_defect_in_the_thread(self) -> None:
        """What the thread did not foresee does not end it: it is trouble like any other."""
        Quick.error = sqlite3.OperationalError()
        self.kept.journal.received(object(), 1)  # type: ignore[arg-type]
        Quick.error = None
        self.kept.commit()
        self.assertFalse(self.kept.journal.accepting)
        self.assertEqual(self.kept.notes.troubles, ["mqtt_store_unavailable"])

    def test_close_while_it_fails(self) -> None:
        """The end does not wait for a disk that refuses, and writes nothing that stands on what is missing."""
        self.fails()
        self.publisher.publishes("t", b"m", 1, 1)
        self.kept.commit()
        self.publisher.publishes("t", b"m", 1, 2)
        self.kept.close()
        Quick.error = None
        self.assertEqual((self.kept.rows("message"), self.kept.rows("delivery")), (0, 0))
        self.kept.begin()

    def test_close_when_it_is_well_again(self) -> None:
        """What was refused before is written at the end, before what came after it."""
        self.fails()
        self.publisher.publishes("t", b"m", 1, 1)
        self.kept.commit()
        self.publisher.publishes("t", b"m", 1, 2)
        self.rig.hub.end_session(self.rig.hub.sessions["s"])
        Quick.error = None
        self.kept.close()
        self.assertEqual([self.kept.rows(table) for table in TABLES], [1, 0, 0, 0, 0, 0])
        self.kept.begin()


class ReserveTests(KeptCase):
    """Space that is kept back for a full disk."""

    more = {"reserve_size": 1 << 20}

    def blocks(self) -> int:
        """Count the blocks of the reserve."""
        return os.stat(f"{self.kept.path}.reserve").st_blocks

    def test_given_back(self) -> None:
        """When the disk is full what runs still becomes safe, nothing new is taken, and both change back with room."""
        self.lasting("s", "t").loses()
        publisher = self.lasting("p")
        publisher.publishes("t", b"m", 1, 1)
        self.assertGreater(self.blocks(), 0)
        Quick.error, Quick.times = broken(sqlite3.SQLITE_FULL), 1
        self.kept.commit()
        self.assertEqual(publisher.take(), [Acknowledgement(PUBACK, 1)])
        self.assertFalse(self.kept.journal.accepting)
        self.assertEqual(self.blocks(), 0)
        self.kept.reactor.advance(1)
        self.kept.lane.run()
        self.kept.reactor.deliver()
        self.assertTrue(self.kept.journal.accepting)
        self.assertGreater(self.blocks(), 0)


class OpeningTests(SynchronousTestCase):
    """The file."""

    def setUp(self) -> None:
        """A database that holds something."""
        self.kept = Kept(self.mktemp())
        rig = self.kept.rig(self.kept.begin())
        peer = rig.connect("s", **LASTING)
        self.kept.settle()
        peer.subscribes("t")
        peer.loses()
        rig.hub.publish(Message("t", b"m", 1))
        self.kept.settle()
        self.kept.crash()

    def refused(self) -> StoreError:
        """Give why it cannot be opened; nothing is left locked."""
        with self.assertRaises(StoreError) as caught:
            self.kept.begin()
        return caught.exception

    def sql(self, *statements: str) -> None:
        """Change it by hand."""
        connection = sqlite3.connect(self.kept.path, isolation_level=None)
        for each in statements:
            connection.execute(each)
        connection.close()

    def test_modes(self) -> None:
        """The file is its owner's alone, and so is the folder that was made for it."""
        self.assertEqual(os.stat(self.kept.path).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(os.path.dirname(self.kept.path)).st_mode & 0o777, 0o700)

    def test_in_use(self) -> None:
        """A second broker is refused while the first one runs, and has done no harm."""
        self.kept.begin()
        other = Kept(os.path.dirname(os.path.dirname(self.kept.path)))
        with self.assertRaises(StoreError) as caught:
            other.begin()
        self.assertEqual(caught.exception.reason, "store_in_use")
        self.assertIn("persistence.path", caught.exception.advice())
        self.kept.crash()
        self.assertEqual(len(list(self.kept.begin().sessions)), 1)

    def test_newer(self) -> None:
        """A newer schema is refused, and stays."""
        self.sql("PRAGMA user_version = 99")
        error = self.refused()
        self.assertEqual(error.reason, "unsupported_version")
        self.assertIn("the broker's database", str(error))
        self.sql("PRAGMA user_version = 1")
        self.kept.begin()

    def test_of_another_program(self) -> None:
        """A database of another program, the notary's too, is refused, and stays."""
        for mark in (0, 0x73766E31):
            self.sql(f"PRAGMA application_id = {mark}")
            error = self.refused()
            self.assertEqual(error.reason, "store_foreign")
            self.assertIn("persistence.path", error.advice())

    def test_damaged(self) -> None:
        """A damaged file is set aside and the start fails once; the next one begins anew and says so."""
        with open(self.kept.path, "r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * 4096)
        error = self.refused()
        self.assertEqual(error.reason, "store_corrupt")
        self.assertIn("is set aside as", str(error))
        self.assertIn("the broker's database", str(error))
        self.assertEqual(list(self.kept.begin().sessions), [])
        self.assertEqual([each[0] for each in self.kept.notes.damage], ["set aside", "lies aside"])

    def test_rows_that_cannot_be(self) -> None:
        """Rows that contradict each other or hold nonsense are refused, and stay: nothing is guessed."""
        for damage, repair in (
            ("UPDATE delivery SET client_id = 'x'", "UPDATE delivery SET client_id = 's'"),
            ("UPDATE delivery SET message = 99", "UPDATE delivery SET message = 1"),
            ("UPDATE delivery SET stage = 7", "UPDATE delivery SET stage = 0"),
            ("UPDATE delivery SET identifiers = 'x'", "UPDATE delivery SET identifiers = ''"),
            ("UPDATE message SET properties = x'05'", "UPDATE message SET properties = x'00'"),
            ("UPDATE message SET properties = ''", "UPDATE message SET properties = x'00'"),
            ("UPDATE session SET version = 3", "UPDATE session SET version = 5"),
            ("UPDATE subscription SET client_id = 'x'", "UPDATE subscription SET client_id = 's'"),
            ("INSERT INTO received VALUES ('x', 1)", "DELETE FROM received"),
            ("INSERT INTO retained VALUES ('x', 99)", "DELETE FROM retained"),
            (
                "INSERT INTO message SELECT 99, topic, payload, 1, 0, x'00', '', NULL FROM message",
                "DELETE FROM message WHERE number = 99",
            ),
        ):
            self.sql(damage)
            error = self.refused()
            self.assertEqual(error.reason, "store_corrupt", damage)
            self.sql(repair)
        self.assertEqual(len(list(self.kept.begin().sessions)), 1)

    def test_no_folder(self) -> None:
        """A place where nothing can be made is one clear error."""
        self.kept.path = "/proc/nowhere/broker.db"
        error = self.refused()
        self.assertEqual(error.reason, "mqtt_store_unavailable")
        self.assertIn("the broker's database /proc/nowhere/broker.db cannot be used", str(error))

    def test_no_room_for_the_reserve(self) -> None:
        """A start without room for the reserve delivers what is there, and takes something new when there is room."""
        self.kept.more["reserve_size"] = 1 << 60
        remains = self.kept.begin()
        self.assertEqual(len(list(remains.sessions)), 1)
        self.assertFalse(self.kept.journal.accepting)
        self.assertEqual(self.kept.notes.troubles[-1], "mqtt_store_unavailable")
        self.kept.journal._groups._writer._reserve.size = 4096  # type: ignore[attr-defined]
        self.kept.reactor.advance(1)
        self.kept.lane.run()
        self.kept.reactor.deliver()
        self.assertTrue(self.kept.journal.accepting)

    def test_empty(self) -> None:
        """A new database holds nothing."""
        kept = Kept(self.mktemp())
        self.assertEqual(kept.begin(), Remains([], []))

"""A database that fails, is slow, full or damaged while it is in use."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace
from typing import Final

from svc.broker.message import Message
from svc.sqlite.groups import ROW, GroupLimits
from svc.wire.mqtt import Acknowledgement, PacketType, Properties, ReasonCode, Subscription, Unsubscribe, Will
from tests.broker.keeping import TABLES, KeptCase
from tests.sqlite.stepwise import Quick, broken

PUBACK: Final = PacketType.PUBACK
PUBREC: Final = PacketType.PUBREC


class TroubleTests(KeptCase):
    """A database whose commits fail."""

    def setUp(self) -> None:
        """Create a disconnected subscriber and a publisher."""
        super().setUp()
        self.persistent("s", "t").loses()
        self.publisher = self.persistent("p")
        self.kept.notes.troubles.clear()

    def fails(self, code: int = sqlite3.SQLITE_FULL, *, after: bool = False) -> None:
        """Let commits fail."""
        Quick.error, Quick.after = broken(code), after

    def recovers(self) -> None:
        """Let commits succeed, and run the next attempt."""
        Quick.error = None
        self.kept.reactor.advance(1)
        self.kept.thread.run()
        self.kept.reactor.deliver()

    def test_nothing_is_acknowledged(self) -> None:
        """While commits fail nothing is acknowledged; after recovery everything is, without a restart."""
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
            self.recovers()
            self.assertEqual(self.publisher.take(), [Acknowledgement(PUBACK, 1)])
            self.assertEqual(self.kept.notes.troubles, ["mqtt_store_unavailable", None])
            self.assertTrue(self.kept.journal.accepting)
        self.assertEqual(self.again().hub.sessions["s"].waiting, 4)

    def test_crash_while_it_fails(self) -> None:
        """Unacknowledged messages may be lost in a crash; acknowledged ones are recovered."""
        self.publisher.publishes("t", b"safe", 1, 1)
        self.kept.settle()
        self.fails()
        self.assertEqual(self.publisher.publishes("t", b"unsafe", 1, 2), [Acknowledgement(PUBACK, 1)])
        self.kept.commit()
        self.assertEqual(self.publisher.take(), [])
        Quick.error = None
        self.assertEqual(self.again().hub.sessions["s"].waiting, 1)

    def test_committed_but_reported_failed(self) -> None:
        """A group that is durable although its commit failed is written again without harm."""
        self.fails(sqlite3.SQLITE_IOERR, after=True)
        self.publisher.publishes("t", b"m", 2, 1, retain=True)
        self.lasting_session_ends()
        self.kept.commit()
        self.assertEqual(self.publisher.take(), [])
        self.recovers()
        self.assertEqual(self.publisher.take(), [Acknowledgement(PUBREC, 1)])
        counts = {table: self.kept.rows(table) for table in TABLES}
        expected = {"session": 2, "subscription": 1, "message": 1, "delivery": 1, "received": 1, "retained": 1}
        self.assertEqual(counts, expected)

    def lasting_session_ends(self) -> None:
        """A session and its subscription are created and deleted within the group."""
        journal = self.kept.journal
        peer = self.rig.hub.sessions["s"]
        journal.session(replace(peer.record(), client_id="brief"))
        journal.subscribed("brief", Subscription("x"), None)
        journal.session_ended("brief")

    def test_what_waits_is_bounded(self) -> None:
        """At the limit of pending operations no new ones are accepted until half of them are durable."""
        self.kept.crash()
        self.kept.more["limits"] = GroupLimits(operations=8)
        self.rig = self.kept.rig(self.rig.clock.now)
        self.publisher = self.persistent("p")
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
        """Pending octets of messages are limited."""
        self.kept.crash()
        size = Message("t", bytes(1000)).size
        limit = 2 * (size + 2 * ROW)
        self.kept.more["limits"] = GroupLimits(octets=limit)
        self.rig = self.kept.rig(self.rig.clock.now)
        self.publisher = self.persistent("p")
        self.publisher.publishes("t", bytes(1000), 1, 1)
        self.publisher.publishes("t", bytes(999), 1, 2)
        self.assertTrue(self.kept.journal.accepting)
        self.kept.settle()
        self.publisher.publishes("t", bytes(1000), 1, 3)
        self.publisher.publishes("t", bytes(1000), 1, 4)
        self.assertFalse(self.kept.journal.accepting)

    def test_octets_of_everything_count(self) -> None:
        """Properties, wills and filters count too."""
        waiting = []
        properties = Properties(session_expiry=3600)
        will = Will("will", b"m", 1, properties=Properties(user=(("name", "w" * 20_000),)))
        self.publisher.publishes("t", b"m", 1, 1, properties=Properties(user=(("name", "v" * 10_000),)))
        waiting.append(self.kept.journal.waiting[1])
        self.rig.connect("w", clean_start=False, properties=properties, will=will)
        waiting.append(self.kept.journal.waiting[1] - sum(waiting))
        self.publisher.subscribes("f" * 30_000)
        waiting.append(self.kept.journal.waiting[1] - sum(waiting))
        self.publisher.sends(Unsubscribe(1, ["f" * 30_000]))
        waiting.append(self.kept.journal.waiting[1] - sum(waiting))
        for octets, least in zip(waiting, (10_000, 20_000, 30_000, 30_000), strict=True):
            self.assertTrue(least < octets < least * 3, waiting)

    def test_late(self) -> None:
        """A disk that does not respond for ten seconds is reported, and reported again when it responds."""
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

    def test_recorded_during_an_attempt(self) -> None:
        """An attempt without a group does not make durable what is recorded while it runs."""
        self.fails()
        self.publisher.publishes("t", b"m", 1, 1)
        self.kept.commit()
        Quick.error = None
        groups = self.kept.journal._groups
        self.kept.reactor.advance(1)
        self.kept.thread.run()
        self.kept.reactor.deliver()
        self.publisher.take()
        groups._degraded = True
        groups._try_again()
        self.publisher.publishes("t", b"m", 1, 2)
        self.kept.round()
        self.assertEqual(len(self.kept.thread.tasks), 1)
        self.kept.thread.run()
        self.kept.reactor.deliver()
        self.assertEqual(self.publisher.take(), [])
        self.kept.settle()
        self.assertEqual(self.publisher.take(), [Acknowledgement(PUBACK, 2)])

    def test_recovery_while_it_works(self) -> None:
        """Groups that follow each other without a pause do not put the recovery off, whatever the refusal was."""
        for code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            self.kept.notes.troubles.clear()
            self.fails(code)
            Quick.times = 1
            self.publisher.publishes("t", b"m", 1, 1)
            self.kept.commit()
            for number in range(10):
                # The thread has a group whenever an attempt is due.
                self.kept.journal.received("p", 9 + number)
                self.kept.round()
                self.kept.reactor.advance(1)
                self.kept.thread.run()
                self.kept.reactor.deliver()
                if self.kept.journal.accepting:
                    break
            self.assertEqual(self.kept.notes.troubles, ["mqtt_store_unavailable", None])
            self.kept.settle()
            self.assertEqual(self.publisher.take(), [Acknowledgement(PUBACK, 1)])

    def test_recovery_after_a_refused_group(self) -> None:
        """An attempt that became due while a group was refused follows at once, and only one more each second."""
        self.fails(sqlite3.SQLITE_FULL)
        Quick.times = 1
        self.publisher.publishes("t", b"m", 1, 1)
        self.kept.commit()
        self.kept.journal.received("p", 9)
        self.kept.round()
        self.kept.reactor.advance(1)
        self.fails(sqlite3.SQLITE_IOERR)
        for tasks in (1, 1, 0):
            self.assertEqual(self.kept.thread.run(), tasks)
            self.kept.reactor.deliver()
        self.recovers()
        self.assertTrue(self.kept.journal.accepting)

    def test_damage(self) -> None:
        """A database that is found damaged accepts nothing; the next start checks it completely."""
        self.fails(sqlite3.SQLITE_CORRUPT)
        self.publisher.publishes("t", b"m", 1, 1)
        self.kept.commit()
        Quick.error = None
        for _second in range(3):
            self.kept.reactor.advance(1)
            self.kept.thread.run()
            self.kept.reactor.deliver()
        self.assertEqual(self.publisher.take(), [])
        self.assertEqual(self.kept.notes.damage, [("damaged", self.kept.path)])
        self.assertEqual(self.kept.notes.troubles, ["store_corrupt"])
        self.assertEqual(os.path.getsize(f"{self.kept.path}.reserve"), 2)
        self.assertEqual(self.again().hub.sessions["s"].waiting, 0)

    def test_defect_in_the_thread(self) -> None:
        """An unexpected exception does not end the thread and is handled like a failed commit."""
        Quick.error = sqlite3.OperationalError()
        self.kept.journal.received(object(), 1)  # type: ignore[arg-type]
        Quick.error = None
        self.kept.commit()
        self.assertFalse(self.kept.journal.accepting)
        self.assertEqual(self.kept.notes.troubles, ["mqtt_store_unavailable"])

    def test_close_while_it_fails(self) -> None:
        """The close does not wait for a failing disk, writes no group that depends on a missing one, and reports it."""
        self.fails()
        self.publisher.publishes("t", b"m", 1, 1)
        self.kept.commit()
        self.publisher.publishes("t", b"m", 1, 2)
        self.kept.close()
        Quick.error = None
        self.assertEqual([operations for operations, _octets in self.kept.notes.left], [2])
        self.assertEqual((self.kept.rows("message"), self.kept.rows("delivery")), (0, 0))
        self.kept.begin()

    def test_close_after_recovery(self) -> None:
        """Groups that failed before are written by the close, in order."""
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
    """The reserve for a full disk."""

    more = {"reserve_size": 1 << 20}

    def blocks(self) -> int:
        """Count the blocks of the reserve."""
        return os.stat(f"{self.kept.path}.reserve").st_blocks

    def test_released(self) -> None:
        """On a full disk the current group becomes durable, and nothing new is accepted until there is room again."""
        self.persistent("s", "t").loses()
        publisher = self.persistent("p")
        publisher.publishes("t", b"m", 1, 1)
        self.assertGreater(self.blocks(), 0)
        Quick.error, Quick.times = broken(sqlite3.SQLITE_FULL), 1
        self.kept.commit()
        self.assertEqual(publisher.take(), [Acknowledgement(PUBACK, 1)])
        self.assertFalse(self.kept.journal.accepting)
        self.assertEqual(self.blocks(), 0)
        self.kept.reactor.advance(1)
        self.kept.thread.run()
        self.kept.reactor.deliver()
        self.assertTrue(self.kept.journal.accepting)
        self.assertGreater(self.blocks(), 0)

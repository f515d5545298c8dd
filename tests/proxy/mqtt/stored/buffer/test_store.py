"""The buffer on its database: what is durable when, what a start finds, pages, damage and full disks."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.mqtt.stored.buffer.keys import ContentUnreadable
from svc.proxy.mqtt.stored.buffer.limits import BufferLimits
from svc.proxy.mqtt.stored.buffer.records import (
    BufferedMessage,
    BufferKind,
    DeadLetter,
    MessageState,
    ReadLetter,
    ReceivedId,
    SessionKey,
    Wanted,
    message_digest,
    message_parameters,
    read_message,
    read_session,
    session_parameters,
)
from svc.proxy.mqtt.stored.buffer.store import check_file
from svc.proxy.mqtt.stored.buffer.writer import _STATEMENTS
from svc.sqlite.errors import DatabaseCorrupt, DatabaseError, DatabaseQuarantined, JournalError, JournalStuck
from svc.sqlite.groups import GroupLimits
from svc.sqlite.writer import CHECKPOINT_BYTES
from svc.wire.mqtt import Connect, Properties, Publish, Version, Will
from tests.proxy.mqtt.stored.buffering import NOW, OWNER, OpenedBuffer, message, session
from tests.sqlite.stepwise import Quick, broken

WILL = Will("gone", b"w", 1, True, Properties(will_delay=5))
FULL = Connect("c", Version.V5, False, 30, WILL, "user", b"secret word", Properties(session_expiry=60))


class BufferCase(SynchronousTestCase):
    """Base class: an open buffer."""

    more: dict[str, Any] = {}

    def setUp(self) -> None:
        self.opened = OpenedBuffer(self.mktemp(), **self.more)
        self.assertEqual([], self.opened.begin())
        self.addCleanup(self.opened.crash)
        self.addCleanup(setattr, Quick, "error", None)

    @property
    def buffer(self) -> Any:
        """The buffer of the last start."""
        return self.opened.buffer

    def stored(self, *messages: BufferedMessage, client_id: str = "c") -> Any:
        """Store messages of a new session durably; return the session."""
        owner = session(client_id)
        self.buffer.session(owner)
        for each in messages:
            self.buffer.store(owner, each)
        self.opened.settle()
        return owner


class RestartTests(BufferCase):
    """What a start finds after a crash."""

    def test_everything_durable_is_found(self) -> None:
        """Sessions, their messages in order, states and packet identifiers survive; what was not written is gone."""
        owner = session(connect=Connect("c", Version.V311, False, 30, WILL))
        owner.ended, owner.expiry, owner.until = NOW, 60, 7
        owner.clean = owner.opened = owner.linked = owner.renewed = True
        owner.next = Connect("c", properties=Properties(session_expiry=9))
        self.buffer.session(owner)
        properties = Properties(message_expiry=60, user=(("a", "b"),))
        sent = [message(b"1", 2, packet_id=5, properties=properties), message(b"2", 1, packet_id=6, relayed=True)]
        for each in sent:
            self.buffer.store(owner, each)
        self.buffer.received(owner, 5, ReceivedId(sent[0].number, True, "receipt", 0x10, b"digest"))
        self.opened.settle()
        sent[0].state, sent[0].upstream_id, sent[0].refused = MessageState.RELEASED, 9, NOW + 1
        self.buffer.changed(sent[0])
        self.opened.settle()
        self.buffer.store(owner, message(b"lost"))
        self.opened.crash()
        [found] = self.opened.begin()
        found.session.connect.will.properties = WILL.properties
        self.assertEqual(owner, found.session)
        self.assertEqual({5: ReceivedId(1, True, "receipt", 0x10, b"digest")}, found.received)
        self.assertEqual((2, sum(each.size for each in sent), NOW, 2), (found.messages, found.octets, found.oldest, 2))
        self.assertEqual((OWNER, found.octets), self.buffer.shares.messages.most())
        self.assertEqual(sent, self.opened.result(self.buffer.page(found.session, 0)))

    def test_log_of_small_messages_is_bounded(self) -> None:
        """The write-ahead log stays small while single small messages come and go, which take whole pages each."""
        owner = self.stored()
        for number in range(600):
            one = message(b"small", packet_id=number + 1)
            self.buffer.store(owner, one)
            self.opened.step()
            self.buffer.remove(owner, one)
            self.opened.step()
        self.assertLess(os.path.getsize(f"{self.opened.path}-wal"), 2 * CHECKPOINT_BYTES)

    def test_one_turn_is_one_transaction(self) -> None:
        """All operations of a turn become durable together, and callbacks are called in order afterwards."""
        owner = session()
        called: list[int] = []
        self.buffer.session(owner)
        for number in (1, 2, 3):
            self.buffer.store(owner, message())
            self.buffer.when_durable(lambda number=number: called.append(number))
        self.opened.reactor.advance(0)
        self.assertEqual(1, len(self.opened.threads["svc-mqtt-buffer-writer"].tasks))
        self.assertEqual([], called)
        self.opened.settle()
        self.assertEqual([1, 2, 3], called)
        self.assertEqual([4], self.opened.notes.commits)

    def test_removed_messages_are_gone(self) -> None:
        """A removed message is not found; one that came and went within a turn is not written."""
        first = message(b"1")
        owner = self.stored(first, message(b"2"))
        self.buffer.remove(owner, first)
        brief = message(b"3")
        self.buffer.store(owner, brief)
        self.buffer.remove(owner, brief)
        self.opened.settle()
        self.assertEqual([b"2"], [each.payload for each in self.opened.result(self.buffer.page(owner, 0))])
        self.assertEqual((OWNER, message().size), self.buffer.shares.messages.most())

    def test_released_identifiers_are_gone(self) -> None:
        """Released packet identifiers are forgotten, one or all; so is a session."""
        owner = self.stored()
        for packet_id in (1, 2, 3):
            self.buffer.received(owner, packet_id, ReceivedId(packet_id))
        self.buffer.released(owner, 2)
        self.opened.settle()
        self.assertEqual(2, self.opened.rows("received"))
        self.buffer.all_released(owner)
        self.opened.settle()
        self.assertEqual(0, self.opened.rows("received"))
        self.buffer.received(owner, 1, ReceivedId(1))
        self.buffer.forget(owner)
        self.opened.settle()
        self.assertEqual((0, 0), (self.opened.rows("session"), self.opened.rows("received")))

    def test_numbers_are_not_reused(self) -> None:
        """A number to which something refers is not given to another message after a restart."""
        first = message(b"1", 2)
        owner = self.stored(first)
        self.buffer.received(owner, 1, ReceivedId(first.number))
        self.buffer.remove(owner, first)
        self.opened.settle()
        self.opened.crash()
        [found] = self.opened.begin()
        second = message(b"2")
        self.buffer.store(found.session, second)
        self.assertGreater(second.number, first.number)
        another = session("d")
        self.buffer.session(another)
        self.assertNotEqual(found.session.number, another.number)

    def test_close_writes_what_waits(self) -> None:
        """The close makes durable what was recorded; afterwards nothing can be read."""
        owner = session()
        self.buffer.session(owner)
        self.buffer.store(owner, message())
        self.opened.close()
        self.failureResultOf(self.buffer.page(owner, 0), JournalError)
        self.assertEqual(1, self.opened.rows("message"))
        self.assertEqual([], self.opened.reactor.getDelayedCalls())
        self.opened.result(self.buffer.close())
        self.assertEqual(1, self.opened.begin()[0].messages)


class PageTests(BufferCase):
    """Messages are read in pages."""

    def test_pages_at_their_limits(self) -> None:
        """A page ends at the number of messages, or with the message that reaches the octets."""
        messages = [message(bytes([number]) * 100) for number in range(5)]
        owner = self.stored(*messages)
        self.stored(message(b"of another"), client_id="d")
        size = messages[0].size
        for after, count, octets, expected in (
            (0, 5, 10**6, messages),
            (0, 4, 10**6, messages[:4]),
            (2, 2, 10**6, messages[2:4]),
            (0, 5, 2 * size, messages[:2]),
            (0, 5, 2 * size + 1, messages[:3]),
            (0, 5, 1, messages[:1]),
            (5, 5, 10**6, []),
        ):
            self.assertEqual(expected, self.opened.result(self.buffer.page(owner, after, count, octets)))

    def test_only_what_is_durable(self) -> None:
        """A message that is not written yet is not in a page."""
        owner = self.stored(message(b"1"))
        self.buffer.store(owner, message(b"2"))
        page = self.buffer.page(owner, 0)
        self.opened.threads["svc-mqtt-buffer-reader"].run()
        self.opened.reactor.deliver()
        self.assertEqual([b"1"], [each.payload for each in self.successResultOf(page)])

    def test_reading_refused(self) -> None:
        """A disk that refuses fails the page and nothing else; the next page is read over a new connection."""
        owner = self.stored(message())
        reader = self.buffer._reader

        def refused(_path: str) -> sqlite3.Connection:
            raise broken(sqlite3.SQLITE_IOERR)

        connect, reader._connect = reader._connect, refused
        error = self.assertRaises(JournalError, self.opened.result, self.buffer.page(owner, 0))
        self.assertEqual("mqtt_store_unavailable", error.reason)
        self.assertTrue(self.buffer.accepting)
        reader._connect = connect
        self.assertEqual(1, len(self.opened.result(self.buffer.page(owner, 0))))

    def test_damage_found_by_a_reader(self) -> None:
        """Damage found while reading ends the acceptance until the next start, which checks every page."""
        owner = self.stored(message())

        def damaged(_path: str) -> sqlite3.Connection:
            raise broken(sqlite3.SQLITE_CORRUPT)

        self.buffer._reader._connect = damaged
        self.assertRaises(JournalError, self.opened.result, self.buffer.page(owner, 0))
        self.assertFalse(self.buffer.accepting)
        self.assertEqual([("damaged", self.opened.path)], self.opened.notes.damage)


class TroubleTests(BufferCase):
    """A disk that refuses."""

    def test_nothing_is_durable_until_it_recovers(self) -> None:
        """While commits fail nothing is reported durable and nothing new is accepted; afterwards all of it is there."""
        owner = self.stored(message(b"1"))
        Quick.error = broken(sqlite3.SQLITE_FULL)
        durable: list[bool] = []
        self.buffer.store(owner, message(b"2"))
        self.buffer.when_durable(lambda: durable.append(True))
        self.opened.settle()
        self.assertEqual(([], False), (durable, self.buffer.accepting))
        self.assertEqual(["mqtt_store_unavailable"], self.opened.notes.troubles[1:])
        Quick.error = None
        self.opened.reactor.advance(1)
        self.opened.settle()
        self.assertEqual(([True], True), (durable, self.buffer.accepting))
        self.opened.crash()
        self.assertEqual(2, self.opened.begin()[0].messages)

    def test_committed_but_reported_failed(self) -> None:
        """A group that is durable although its commit failed is written again without harm."""
        Quick.error, Quick.after = broken(sqlite3.SQLITE_IOERR), True
        self.addCleanup(setattr, Quick, "after", False)
        owner = self.stored(message(b"1"), message(b"2"))
        Quick.error = None
        self.buffer.received(owner, 1, ReceivedId(1))
        self.opened.reactor.advance(1)
        self.opened.settle()
        self.opened.crash()
        [found] = self.opened.begin()
        self.assertEqual((2, {1: ReceivedId(1)}), (found.messages, found.received))

    def test_close_that_hangs(self) -> None:
        """A thread that does not end fails the close at its limit, and not before."""
        closed = self.buffer.close()
        self.opened.reactor.advance(9.9)
        self.assertNoResult(closed)
        self.opened.reactor.advance(0.1)
        # The writer has as long again.
        self.opened.reactor.advance(10)
        self.failureResultOf(closed, JournalStuck)

    def test_waiting_operations_are_bounded(self) -> None:
        """Operations that wait for the disk are limited; what is recorded all the same is not lost."""
        self.opened.crash()
        self.opened.more["group_limits"] = GroupLimits(operations=3)
        self.opened.begin()
        owner = session()
        self.buffer.session(owner)
        self.buffer.store(owner, message())
        self.assertTrue(self.buffer.accepting)
        self.buffer.store(owner, message())
        self.assertFalse(self.buffer.accepting)
        self.assertEqual("mqtt_store_busy", self.opened.notes.troubles[-1])
        self.opened.settle()
        self.assertTrue(self.buffer.accepting)


class OpeningTests(SynchronousTestCase):
    """The file at the start."""

    def setUp(self) -> None:
        self.opened = OpenedBuffer(self.mktemp())

    def test_modes_and_settings(self) -> None:
        """Folder and files are closed to others; every commit is synchronized."""
        synchronous: list[int] = []
        self.opened.more["connect"] = lambda path: sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.opened.begin()
        for path, mode in ((os.path.dirname(self.opened.path), 0o700), (self.opened.path, 0o600)):
            self.assertEqual(mode, stat.S_IMODE(os.stat(path).st_mode))
        connection = self.opened.buffer._groups._writer._connection
        assert connection is not None
        synchronous.append(connection.execute("PRAGMA synchronous").fetchone()[0])
        self.assertEqual([2], synchronous)
        self.assertEqual("wal", connection.execute("PRAGMA journal_mode").fetchone()[0])
        self.opened.crash()

    def test_one_owner(self) -> None:
        """A second buffer on the file is refused, and names the key."""
        self.opened.begin()
        second = OpenedBuffer(self.mktemp())
        second.path = self.opened.path
        error = self.assertRaises(DatabaseError, second.begin)
        self.assertEqual("store_in_use", error.reason)
        self.assertIn("mqttBuffer.path", error.hint)
        self.assertEqual(["init"], second.notes.errors)
        self.assertRaises(DatabaseError, check_file, self.opened.path)
        self.opened.crash()

    def test_damaged(self) -> None:
        """A damaged file is quarantined, and the next start begins anew and reports it."""
        self.opened.begin()
        self.opened.close()
        with open(self.opened.path, "r+b") as file:
            file.seek(100)
            file.write(b"\xff" * 4000)
        error = self.assertRaises(DatabaseQuarantined, self.opened.begin)
        self.assertTrue(os.path.exists(error.quarantined))
        self.assertEqual([], self.opened.begin())
        self.assertEqual("quarantined before", self.opened.notes.damage[-1][0])
        self.opened.crash()

    def test_contradictory(self) -> None:
        """Rows that this program does not write stop the start and change nothing."""
        for statement in (
            "INSERT INTO received VALUES (77, 1, 1, 0, '', NULL, NULL, NULL)",
            "UPDATE session SET content = x'00'",
            "UPDATE session SET content = x''",
            "UPDATE session SET content = substr(content, 1, 5)",
        ):
            opened = OpenedBuffer(self.mktemp())
            opened.begin()
            opened.buffer.session(session())
            opened.settle()
            opened.close()
            with closing(sqlite3.connect(opened.path)) as connection, connection:
                connection.execute(statement)
            self.assertRaises(DatabaseCorrupt, opened.begin)

    def test_closed_while_it_opens(self) -> None:
        """A close during the opening leaves no lock and no thread."""
        opening = self.opened.opening()
        closed = self.opened.buffer.close()
        self.opened.settle()
        self.failureResultOf(opening, JournalError)
        self.successResultOf(closed)
        self.assertEqual([], self.opened.begin())
        self.opened.crash()


class DeadLetterTests(BufferCase):
    """Messages that the broker will not accept."""

    more = {"limits": BufferLimits(dead_letters=3, dead_letter_octets=4 * message().size)}

    def rejected(self, *payloads: bytes, connect: Connect | None = None) -> Any:
        """Make dead letters of the messages of a new session; return the session."""
        owner = session(connect=connect)
        self.buffer.session(owner)
        for payload in payloads:
            each = message(payload, 2, properties=Properties(message_expiry=60))
            self.buffer.store(owner, each)
            self.buffer.dead_letter(owner, each, "age", 0x97, NOW + 5)
            self.buffer.remove(owner, each)
        self.opened.settle()
        return owner

    def wanted(self, order: Wanted = Wanted.SEND) -> list[ReadLetter]:
        """The dead letters, after an operator has chosen all."""
        with closing(sqlite3.connect(self.opened.path)) as connection, connection:
            connection.execute("UPDATE dead_letter SET wanted = ?", (order,))
        return self.opened.result(self.buffer.wanted_dead_letters(0))

    def test_read_as_written(self) -> None:
        """A dead letter survives a restart and the end of its session, without will, and without key or password."""
        owner = self.rejected(b"1", connect=FULL)
        self.buffer.forget(owner)
        self.opened.settle()
        self.opened.crash()
        self.assertEqual([], self.opened.begin())
        self.assertEqual([], self.opened.result(self.buffer.wanted_dead_letters(0)))
        [found] = self.wanted(Wanted.DELETE)
        sent = replace(FULL, will=None, username=None, password=None)
        expected = message(b"1", 2, properties=Properties(message_expiry=60))
        expected.number, expected.packet_id = 1, 0
        letter = DeadLetter(owner.key, sent, True, expected, NOW + 5, "age", 0x97)
        self.assertEqual(ReadLetter(1, Wanted.DELETE, letter), found)
        self.assertEqual([], self.opened.result(self.buffer.wanted_dead_letters(1)))
        self.buffer.dead_letter_over(1)
        self.opened.settle()
        self.assertEqual((0, 0), (self.opened.rows("dead_letter"), len(self.buffer.dead_letters)))

    def test_one_transaction(self) -> None:
        """A message is either stored or a dead letter, also where it was stored in the same turn."""
        owner = session()
        self.buffer.session(owner)
        first = message(b"1")
        self.buffer.store(owner, first)
        self.opened.settle()
        self.buffer.dead_letter(owner, first, "rejected", 0x87, NOW)
        self.buffer.remove(owner, first)
        self.opened.reactor.advance(0)
        self.assertEqual(1, len(self.opened.threads["svc-mqtt-buffer-writer"].tasks))
        self.assertEqual((1, 0), (self.opened.rows("message"), self.opened.rows("dead_letter")))
        self.opened.settle()
        self.assertEqual((0, 1), (self.opened.rows("message"), self.opened.rows("dead_letter")))

    def test_bounds(self) -> None:
        """There is room at each bound and none above it, over a restart too; one fits always."""
        self.assertTrue(self.buffer.has_room(session(), message(bytes(5000))))
        self.rejected(b"1", b"2")
        size = self.buffer.shares.letter_octets.held(OWNER)
        for begin in (False, True):
            if begin:
                self.opened.crash()
                self.opened.begin()
            left = self.more["limits"].dead_letter_octets - size
            fits = message(bytes(left - message(b"").size))
            self.assertEqual(left, fits.size)
            self.assertTrue(self.buffer.has_room(session(), fits))
            self.assertFalse(self.buffer.has_room(session(), message(fits.payload + b"x")))
        self.rejected(b"")
        self.assertFalse(self.buffer.has_room(session(), message(b"")))
        self.buffer.dead_letter_over(next(iter(self.buffer.dead_letters)))
        self.assertTrue(self.buffer.has_room(session(), message(b"")))

    def test_numbers(self) -> None:
        """The number of a dead letter is not used again for a message."""
        self.rejected(b"1")
        self.opened.crash()
        [found] = self.opened.begin()
        later = message(b"2")
        self.buffer.store(found.session, later)
        self.assertEqual(2, later.number)

    def test_of_a_former_version(self) -> None:
        """A database without the table and the column gets them, and keeps what it has."""
        self.stored(message(b"1"))
        self.opened.close()
        with closing(sqlite3.connect(self.opened.path)) as connection, connection:
            connection.execute("DROP TABLE dead_letter")
            connection.execute("ALTER TABLE message DROP COLUMN refused")
            connection.execute("PRAGMA user_version = 2")
        [found] = self.opened.begin()
        [kept] = self.opened.result(self.buffer.page(found.session, 0))
        self.assertEqual((b"1", 0.0), (kept.payload, kept.refused))


class ValueTests(SynchronousTestCase):
    """Messages and sessions as rows."""

    @given(
        st.binary(max_size=200),
        st.sampled_from((0, 1, 2)),
        st.booleans(),
        st.booleans(),
        st.integers(0, 65535),
        st.text(st.characters(codec="ascii", categories=("L",)), min_size=1, max_size=20),  # type: ignore[arg-type]
        st.none() | st.integers(0, 2**32 - 1),
    )
    def test_messages(
        self, payload: bytes, qos: Any, retain: bool, relayed: bool, packet_id: int, topic: str, expiry: int | None
    ) -> None:
        """A message is read as it was written."""
        written = BufferedMessage(
            topic, payload, qos, retain, Properties(message_expiry=expiry), packet_id, relayed, NOW, 7, refused=NOW + 1
        )
        number, _session, *columns, _size, content, state, upstream_id, refused = message_parameters(3, written)
        self.assertEqual(written, read_message(content, (number, *columns, state, upstream_id, refused)))  # type: ignore[arg-type]

    @given(st.binary(max_size=60))
    def test_any_octets(self, octets: bytes) -> None:
        """Octets that are no message or session are refused as such."""
        with contextlib.suppress(ContentUnreadable):
            read_message(octets, (1, 1, 0, 1, 0, NOW, 0, 0, 0.0))
        with contextlib.suppress(ContentUnreadable):
            read_session(1, SessionKey("l", "c", OWNER), octets, (0, 0.0, 0, 0, 0, 0, 0, 0))

    def test_renewed(self) -> None:
        """A message that is stored again has what is left of its expiry interval, and no place yet."""
        written = BufferedMessage("t", b"1", 1, False, Properties(message_expiry=60), 5, False, NOW, 7)
        written.state, written.upstream_id, written.refused = MessageState.SENT, 9, NOW
        for waited, left in ((0, 60), (59, 1), (60, 0), (61, 0)):
            expected = BufferedMessage("t", b"1", 1, False, Properties(message_expiry=left), 0, False, NOW + waited)
            self.assertEqual(expected, written.renewed(NOW + waited))

    def test_digest(self) -> None:
        """Packets of one message have one digest, whatever their DUP and identifiers; other messages have others."""
        written = message(b"1", 2, topic="t", properties=Properties(user=(("a", "b"),)))
        packet = Publish("t", b"1", 2, False, True, 9, written.properties)
        self.assertEqual(message_digest(written), message_digest(packet))
        others: list[dict[str, Any]] = [
            {"topic": "u"},
            {"payload": b"2"},
            {"qos": 1},
            {"retain": True},
            {"properties": Properties(user=(("a", "c"),))},
        ]
        digests = {message_digest(replace(packet, **each)) for each in others}
        self.assertEqual(len(others), len(digests - {message_digest(packet)}))

    def test_expiry(self) -> None:
        """A message expires when its interval has passed, not before; one without an interval never."""
        expiring = message(properties=Properties(message_expiry=10))
        self.assertFalse(expiring.expired(NOW + 9.9))
        self.assertTrue(expiring.expired(NOW + 10))
        self.assertFalse(message().expired(NOW + 10**9))

    def test_credentials_are_not_stored_in_clear(self) -> None:
        """Without a key user name and password are left out, and the session says so; with one they are there."""
        owner = session(connect=FULL)
        clear = repr(session_parameters(owner, encrypted=False))
        self.assertNotIn("secret word", clear)
        self.assertNotIn("user", clear)
        number, listener, client_id, name, content, *columns = session_parameters(owner, encrypted=False)
        key = SessionKey(listener, client_id, name)  # type: ignore[arg-type]
        found = read_session(0, key, content, tuple(columns))  # type: ignore[arg-type]
        self.assertTrue(found.incomplete)
        self.assertEqual((None, None, WILL), (found.connect.username, found.connect.password, found.connect.will))
        number, listener, client_id, name, content, *columns = session_parameters(owner, encrypted=True)
        found = read_session(0, key, content, tuple(columns))  # type: ignore[arg-type]
        self.assertEqual((FULL, False), (found.connect, found.incomplete))
        self.assertEqual(0, number)

    def test_kinds_have_statements(self) -> None:
        """Each kind of operation has a statement."""
        self.assertEqual(set(BufferKind), set(_STATEMENTS))

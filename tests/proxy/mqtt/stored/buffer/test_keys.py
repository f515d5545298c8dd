"""Encryption at rest: keys from files, rotation, altered rows, missing keys."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.mqtt.stored.buffer.errors import BufferKeyRefused, MessageBufferError
from svc.proxy.mqtt.stored.buffer.keys import BufferKeys, ContentUnreadable, fingerprint
from svc.proxy.mqtt.stored.buffer.records import ReadLetter, ReceivedId
from svc.sqlite.errors import DatabaseCorrupt
from svc.strictjson import b64u_encode
from svc.wire.mqtt import Connect
from tests.proxy.mqtt.stored.buffering import NOW, OpenedBuffer, message, session

ONE, TWO = bytes(range(32)), bytes(range(32, 64))


class KeyFileTests(SynchronousTestCase):
    """Keys in files."""

    def key(self, octets: bytes, mode: int = 0o600) -> str:
        """Write a file."""
        path = os.path.abspath(self.mktemp())
        with open(path, "wb") as file:
            file.write(octets)
        os.chmod(path, mode)
        return path

    def test_both_forms(self) -> None:
        """A key is 32 octets, or these in base64url with or without padding and a final newline."""
        text = b64u_encode(ONE).encode()
        for octets in (ONE, text, text + b"=\n", text + b"\n"):
            self.assertEqual(fingerprint(ONE), BufferKeys.read([self.key(octets)]).current)

    def test_refused(self) -> None:
        """Other sizes, other characters, files that others may read, and absent files are refused, without the key."""
        for octets in (b"", ONE[:31], ONE + b"\0", b64u_encode(ONE[:31]).encode(), b"!" * 43):
            error = self.assertRaises(BufferKeyRefused, BufferKeys.read, [self.key(octets)])
            self.assertIn("32 octets", str(error))
            self.assertIsNone(error.__context__)
        for mode in (0o640, 0o604):
            error = self.assertRaises(BufferKeyRefused, BufferKeys.read, [self.key(ONE, mode)])
            self.assertIn(f"{mode:04o}", str(error))
        self.assertRaises(BufferKeyRefused, BufferKeys.read, [self.mktemp()])


class EncryptionTests(SynchronousTestCase):
    """What is encrypted belongs to one row."""

    def test_round_trip(self) -> None:
        """The first key encrypts, each time with another nonce; all keys decrypt."""
        old, both = BufferKeys([ONE]), BufferKeys([TWO, ONE])
        stored = old.encrypt(b"text", b"row")
        self.assertNotIn(b"text", stored)
        self.assertNotEqual(stored, old.encrypt(b"text", b"row"))
        self.assertEqual(b"text", both.decrypt(old.current, stored, b"row"))
        self.assertEqual(fingerprint(TWO), both.current)
        self.assertEqual(b"text", BufferKeys().decrypt(None, b"text", b"row"))

    def test_altered(self) -> None:
        """Another row, other octets, a cut, and a key that is not there are refused."""
        keys = BufferKeys([ONE])
        stored = keys.encrypt(b"text", b"row")
        for key, octets, row in (
            (keys.current, stored, b"other"),
            (keys.current, stored[:-1] + bytes([stored[-1] ^ 1]), b"row"),
            (keys.current, stored[:11], b"row"),
            (keys.current, b"", b"row"),
            (fingerprint(TWO), stored, b"row"),
            (None, b"text", b"row"),
            (None, stored, b"row"),
            (keys.current, "text of a forger", b"row"),
        ):
            self.assertRaises(ContentUnreadable, keys.decrypt, key, octets, row)


class EncryptedBufferTests(SynchronousTestCase):
    """A buffer with keys."""

    def setUp(self) -> None:
        self.opened = OpenedBuffer(self.mktemp())
        self.fill(ONE)

    def fill(self, *keys: bytes) -> None:
        """Store one row of each kind."""
        self.begin(*keys)
        self.owner = session(connect=Connect("c", username="name-of-user", password=b"word-that-passes"))
        self.opened.buffer.session(self.owner)
        self.opened.buffer.store(self.owner, message(b"payload-in-clear", topic="topic-in-clear"))
        self.opened.buffer.received(self.owner, 5, ReceivedId(1, due=b"digest-in-clear"))
        letter = message(b"letter-in-clear", topic="topic-in-clear")
        self.opened.buffer.store(self.owner, letter)
        self.opened.buffer.dead_letter(self.owner, letter, "rejected", 0x87, NOW)
        self.opened.buffer.remove(self.owner, letter)
        self.opened.settle()

    def begin(self, *keys: bytes) -> Any:
        """Start with these keys."""
        self.opened.more["keys"] = BufferKeys(keys)
        return self.opened.begin()

    def test_nothing_in_clear(self) -> None:
        """Neither topic nor payload nor its digest nor credentials are in the files; all of it is read back."""
        self.opened.crash()
        for name in os.listdir(os.path.dirname(self.opened.path)):
            with open(os.path.join(os.path.dirname(self.opened.path), name), "rb") as file:
                octets = file.read()
            for secret in (b"in-clear", b"name-of-user", b"word-that-passes"):
                self.assertNotIn(secret, octets, name)
        [found] = self.begin(ONE)
        self.assertEqual((b"word-that-passes", False), (found.session.connect.password, found.session.incomplete))
        self.assertEqual({5: ReceivedId(1, due=b"digest-in-clear")}, found.received)
        page = self.opened.result(self.opened.buffer.page(found.session, 0))
        self.assertEqual([("topic-in-clear", b"payload-in-clear")], [(each.topic, each.payload) for each in page])
        letter = self.wanted().letter
        assert letter is not None
        self.assertEqual((b"word-that-passes", False), (letter.connect.password, letter.incomplete))
        self.assertEqual(("topic-in-clear", b"letter-in-clear"), (letter.message.topic, letter.message.payload))
        self.opened.crash()

    def wanted(self) -> ReadLetter:
        """The dead letter, with which an operator wants something done."""
        with closing(sqlite3.connect(self.opened.path)) as connection, connection:
            connection.execute("UPDATE dead_letter SET wanted = 1")
        [found] = self.opened.result(self.opened.buffer.wanted_dead_letters(0))
        return found

    def test_rotation(self) -> None:
        """With a new first key old rows are read and new ones encrypted with it."""
        self.opened.crash()
        [found] = self.begin(TWO, ONE)
        self.opened.buffer.store(found.session, message(b"new"))
        self.opened.settle()
        page = self.opened.result(self.opened.buffer.page(found.session, 0))
        self.assertEqual([b"payload-in-clear", b"new"], [each.payload for each in page])
        self.opened.crash()
        error = self.assertRaises(MessageBufferError, self.begin, TWO)
        self.assertEqual("mqtt_buffer_key_missing", error.reason)
        self.assertIn(fingerprint(ONE).hex(), str(error))

    def test_missing_or_wrong_key(self) -> None:
        """A start without the key is refused and loses nothing."""
        self.opened.crash()
        for keys in ((), (TWO,)):
            self.assertRaises(MessageBufferError, self.begin, *keys)
        self.assertEqual(1, self.begin(ONE)[0].messages)
        self.opened.crash()

    def forge(self, table: str, content: str) -> None:
        """Store what somebody without the key can: a row in clear."""
        with closing(sqlite3.connect(self.opened.path)) as connection, connection:
            connection.execute(f"UPDATE {table} SET {content} = ?, key = NULL", (b"\x00\x01t\x00forged",))

    def test_rows_in_clear(self) -> None:
        """A start that finds anything in clear is refused, and changes nothing; a digest that is absent is none."""
        for table, content in (
            ("message", "content"),
            ("session", "content"),
            ("received", "digest"),
            ("dead_letter", "content"),
        ):
            self.opened.settle()
            self.opened.crash()
            self.forge(table, content)
            error = self.assertRaises(MessageBufferError, self.begin, ONE)
            self.assertEqual("mqtt_buffer_in_clear", error.reason, table)
            self.assertEqual(1, self.opened.rows(table))
            self.setUp()
        self.opened.buffer.received(self.owner, 6, ReceivedId(1))
        self.opened.settle()
        self.opened.crash()
        self.assertEqual({5, 6}, set(self.begin(ONE)[0].received))
        self.opened.crash()

    def test_rows_in_clear_later(self) -> None:
        """Neither is what somebody stores beside a running process."""
        self.forge("message", "content")
        self.forge("dead_letter", "content")
        error = self.assertRaises(MessageBufferError, self.opened.result, self.opened.buffer.page(self.owner, 0))
        self.assertEqual("mqtt_buffer_unreadable", error.reason)
        self.assertIsNone(self.wanted().letter)
        self.opened.crash()

    def test_a_key_where_there_was_none(self) -> None:
        """What was stored before there was a key is encrypted where that is asked for, and is refused otherwise."""
        self.opened.crash()
        self.opened = OpenedBuffer(self.mktemp())
        self.fill()
        self.opened.crash()
        self.assertRaises(MessageBufferError, self.begin, ONE)
        self.opened.more["encrypt_stored"] = True
        for keys in ((), (TWO,), (ONE, TWO)):
            [found] = self.begin(*keys)
            self.assertEqual({5: ReceivedId(1, due=b"digest-in-clear")}, found.received)
            page = self.opened.result(self.opened.buffer.page(found.session, 0))
            self.assertEqual([b"payload-in-clear"], [each.payload for each in page])
            letter = self.wanted().letter
            assert letter is not None
            self.assertEqual((b"letter-in-clear", True), (letter.message.payload, letter.incomplete))
            self.opened.crash()
        del self.opened.more["encrypt_stored"]
        self.assertRaises(MessageBufferError, self.begin)
        self.assertEqual(1, self.begin(TWO)[0].messages)
        self.opened.crash()

    def test_altered_rows(self) -> None:
        """A row that was moved or altered is not forwarded; nothing is removed."""
        self.opened.settle()
        with closing(sqlite3.connect(self.opened.path)) as connection, connection:
            connection.execute("UPDATE message SET qos = 0")
            connection.execute("UPDATE dead_letter SET owner = 'another'")
        self.assertIsNone(self.wanted().letter)
        error = self.assertRaises(MessageBufferError, self.opened.result, self.opened.buffer.page(self.owner, 0))
        self.assertEqual("mqtt_buffer_unreadable", error.reason)
        self.assertEqual(1, self.opened.rows("message"))
        self.opened.crash()
        with closing(sqlite3.connect(self.opened.path)) as connection, connection:
            connection.execute("UPDATE session SET client_id = 'other'")
        self.assertRaises(DatabaseCorrupt, self.begin, ONE)

"""The file of the broker's database: its owner, and the errors of opening it."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.message import Message
from svc.broker.persistence.schema import BROKER
from svc.sqlite.connection import open_connection
from svc.sqlite.database import create_or_migrate
from svc.sqlite.errors import DatabaseError
from tests.broker.keeping import LASTING, Kept


class OpeningTests(SynchronousTestCase):
    """Opening the file."""

    def setUp(self) -> None:
        """Create a database with content."""
        self.kept = Kept(self.mktemp())
        rig = self.kept.rig()
        peer = rig.connect("s", **LASTING)
        self.kept.settle()
        peer.subscribes("t")
        peer.loses()
        rig.hub.publish(Message("t", b"m", 1))
        self.kept.settle()
        self.kept.crash()

    def refused(self) -> DatabaseError:
        """Return the error of the opening; assert that nothing stays locked."""
        with self.assertRaises(DatabaseError) as caught:
            self.kept.begin()
        return caught.exception

    def sql(self, *statements: str) -> None:
        """Change the database by SQL."""
        connection = sqlite3.connect(self.kept.path, isolation_level=None)
        for each in statements:
            connection.execute(each)
        connection.close()

    def test_modes(self) -> None:
        """The file and the folder that was created for it are accessible to the owner only."""
        self.assertEqual(os.stat(self.kept.path).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(os.path.dirname(self.kept.path)).st_mode & 0o777, 0o700)

    def test_in_use(self) -> None:
        """A second broker is refused while the first one runs, and changes nothing."""
        self.kept.begin()
        other = Kept(os.path.dirname(os.path.dirname(self.kept.path)))
        with self.assertRaises(DatabaseError) as caught:
            other.begin()
        self.assertEqual(caught.exception.reason, "store_in_use")
        self.assertIn("persistence.path", caught.exception.hint)
        self.kept.crash()
        self.assertEqual(len(list(self.kept.begin().sessions)), 1)

    def test_in_use_by_a_link(self) -> None:
        """A second broker through a symbolic link is refused too, since both would write rows with the same numbers."""
        self.kept.begin()
        other = Kept(self.mktemp())
        os.makedirs(os.path.dirname(other.path))
        os.symlink(os.path.abspath(self.kept.path), other.path)
        with self.assertRaises(DatabaseError) as caught:
            other.begin()
        self.assertEqual(caught.exception.reason, "store_in_use")

    def test_newer(self) -> None:
        """A newer schema is refused and not changed."""
        self.sql("PRAGMA user_version = 99")
        error = self.refused()
        self.assertEqual(error.reason, "unsupported_version")
        self.assertIn("the broker's database", str(error))
        self.assertEqual(self.kept.notes.details, [str(error)])
        self.sql(f"PRAGMA user_version = {BROKER.version}")
        self.kept.begin()

    def test_first_version(self) -> None:
        """Retained messages of a database of the first version have no owner."""
        self.kept = Kept(self.mktemp())
        os.makedirs(os.path.dirname(self.kept.path), mode=0o700)
        create_or_migrate(self.kept.path, open_connection, replace(BROKER, migrations=BROKER.migrations[:1])).close()
        self.sql(
            "INSERT INTO message VALUES (1, 't', 'm', 1, 1, x'00', 'c', NULL)", "INSERT INTO retained VALUES ('t', 1)"
        )
        (message,) = self.kept.begin().retained
        self.assertEqual((message.topic, message.publisher, message.owner), ("t", "c", ""))

    def test_of_another_program(self) -> None:
        """A database of another program, also of the notary, is refused and not changed."""
        for mark in (0, 0x73766E31):
            self.sql(f"PRAGMA application_id = {mark}")
            error = self.refused()
            self.assertEqual(error.reason, "store_foreign")
            self.assertIn("persistence.path", error.hint)
            self.assertEqual(self.kept.notes.details[-1], str(error))

    def test_damaged(self) -> None:
        """A damaged file is quarantined and the start fails once; the next start creates a new file and reports it."""
        with open(self.kept.path, "r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * 4096)
        error = self.refused()
        self.assertEqual(error.reason, "store_corrupt")
        self.assertIn("is quarantined as", str(error))
        self.assertIn("the broker's database", str(error))
        self.assertEqual(list(self.kept.begin().sessions), [])
        self.assertEqual([each[0] for each in self.kept.notes.damage], ["quarantined", "quarantined before"])

    def test_invalid_rows(self) -> None:
        """Invalid or contradictory rows are refused and not changed."""
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
            ("INSERT INTO retained VALUES ('x', 99, '')", "DELETE FROM retained"),
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
        """A path where nothing can be created gives one error with the cause."""
        self.kept.path = "/proc/nowhere/broker.db"
        error = self.refused()
        self.assertEqual(error.reason, "mqtt_store_unavailable")
        self.assertIn("the broker's database /proc/nowhere/broker.db cannot be used", str(error))

    def test_no_room_for_the_reserve(self) -> None:
        """A start without room for the reserve recovers everything, and accepts changes when there is room."""
        self.kept.more["reserve_size"] = 1 << 60
        recovered = self.kept.begin()
        self.assertEqual(len(list(recovered.sessions)), 1)
        self.assertFalse(self.kept.journal.accepting)
        self.assertEqual(self.kept.notes.troubles[-1], "mqtt_store_unavailable")
        self.kept.journal._groups._writer._file.reserve.size = 4096
        self.kept.reactor.advance(1)
        self.kept.thread.run()
        self.kept.reactor.deliver()
        self.assertTrue(self.kept.journal.accepting)

    def test_empty(self) -> None:
        """A new database is empty."""
        kept = Kept(self.mktemp())
        recovered = kept.begin()
        self.assertEqual((list(recovered.sessions), list(recovered.retained)), ([], []))

"""A notary database that is read beside its proxy or without one, and what cannot be read."""

from __future__ import annotations

import os
import pwd
import shutil
import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.sqlite.errors import DatabaseError
from svc.store.errors import StoreError
from svc.store.readonly import DatabaseUnreadable, NotaryReader, open_notary
from svc.store.records import MAX_FOUND, ReceiptQuery
from svc.store.schema import NOTARY
from svc.store.search import SEARCH_ROWS
from svc.store.sqlite import SqliteStore
from tests.store.doubles import CLIENT, NOW, InlineReactor, InlineThread, receipt, statement, write_first_version

NOBODY = 65534


class FirstVersionTests(SynchronousTestCase):
    """A database of a program without batches."""

    def test_read_as_it_is(self) -> None:
        """It is read without an upgrade, by every way to find a record."""
        path = str(Path(self.mktemp()).absolute() / "notary.db")
        put = receipt("r1", nonce="n1")
        write_first_version(path, replace(NOTARY, migrations=NOTARY.migrations[:1]), put)
        before = Path(path).read_bytes()
        reader = open_notary(path)
        self.addCleanup(reader.close)
        self.assertEqual(([put], put), ([*reader.find(ReceiptQuery())], reader.get_receipt("r1")))
        self.assertEqual(before, Path(path).read_bytes())


class ReadOnlyTestCase(SynchronousTestCase):
    """A store with records, in a folder of its own."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.path = self.folder / "notary.db"
        self.store = self.opened()
        self.put(receipt("first", nonce="n1", jti="j1"), receipt("second", issued_at=NOW + 1, signed=False))

    def opened(self) -> SqliteStore:
        """Open the store, as the proxy does."""
        store = SqliteStore(str(self.path), reactor=InlineReactor(), reserve_size=0, start_thread=InlineThread)
        store.init()
        self.addCleanup(lambda: store.close().addErrback(lambda _closed: None))
        return store

    def put(self, *records: Any) -> None:
        """Store records."""
        for each in records:
            self.successResultOf(self.store.put_receipt(each))

    def reader(self, path: Path | None = None) -> NotaryReader:
        """Open a database for reading."""
        reader = open_notary(str(path or self.path))
        self.addCleanup(reader.close)
        return reader

    def names(self, reader: NotaryReader) -> list[str]:
        """The ids of all records."""
        return [each.id for each in reader.find(ReceiptQuery(limit=MAX_FOUND))]

    def files(self, folder: Path | None = None) -> dict[str, int]:
        """The files of a folder, and when they were changed."""
        return {each.name: each.stat().st_mtime_ns for each in (folder or self.folder).iterdir()}

    def refused(self, path: Path, reason: str) -> StoreError | DatabaseError:
        """Assert that a database cannot be read, and that nothing was made."""
        before = self.files(path.parent) if path.parent.is_dir() else {}
        error = self.assertRaises((StoreError, DatabaseError), open_notary, str(path))
        self.assertEqual(reason, error.reason, str(error))
        self.assertIn(str(path), str(error))
        self.assertTrue(error.hint)
        self.assertEqual(before, self.files(path.parent) if path.parent.is_dir() else {})
        return error


class ReadTests(ReadOnlyTestCase):
    """What is read, and that nothing is left behind."""

    def test_while_the_store_is_open(self) -> None:
        """The records are read while a proxy writes, also those that come later; the log stays readable."""
        reader = self.reader()
        self.assertEqual(["second", "first"], self.names(reader))
        self.put(receipt("third", issued_at=NOW + 2))
        self.assertEqual(["third", "second", "first"], self.names(reader))
        reader.close()
        self.put(receipt("fourth", issued_at=NOW + 3))
        self.successResultOf(self.store.close())
        self.assertEqual(["fourth", "third", "second", "first"], self.names(self.reader()))

    def test_after_an_orderly_end(self) -> None:
        """A database without a log is read, and no file is created or changed."""
        self.successResultOf(self.store.close())
        before = self.files()
        reader = self.reader()
        self.assertEqual(["second", "first"], self.names(reader))
        reader.close()
        self.assertEqual(before, self.files())
        self.assertNotIn("notary.db-shm", before)

    def test_proxy_that_starts_meanwhile(self) -> None:
        """A reader that found no proxy notices one that starts, and reads what it writes."""
        self.successResultOf(self.store.close())
        reader = self.reader()
        self.assertEqual(["second", "first"], self.names(reader))
        self.store = self.opened()
        self.put(receipt("third", issued_at=NOW + 2))
        self.assertEqual(["third", "second", "first"], self.names(reader))

    def test_copy_with_its_log(self) -> None:
        """A copy of database and log, without the index of the log, is read whole, and nothing is created."""
        copies = Path(self.mktemp()).absolute()
        copies.mkdir()
        for name in ("notary.db", "notary.db-wal"):
            shutil.copy(self.folder / name, copies)
        before = self.files(copies)
        self.assertEqual(["second", "first"], self.names(self.reader(copies / "notary.db")))
        self.assertEqual(before, self.files(copies))

    def test_symbolic_link(self) -> None:
        """The log is looked for beside the file that a link leads to."""
        link = self.folder.parent / f"{self.folder.name}-link"
        link.symlink_to(self.path)
        self.assertEqual(["second", "first"], self.names(self.reader(link)))

    def test_strange_name(self) -> None:
        """A name with the special characters of a URL is read."""
        self.successResultOf(self.store.close())
        strange = self.folder / "a?mode=rw#%41 é.db"
        shutil.copy(self.path, strange)
        self.assertEqual(["second", "first"], self.names(self.reader(strange)))

    def test_records_and_statements(self) -> None:
        """Records and statements come as they were put; a search has no bound on the records it reads."""
        put = statement("s1")
        self.successResultOf(self.store.put_statement(put))
        self.put(receipt("signed", nonce="n2"))
        reader = self.reader()
        self.assertEqual(receipt("signed", nonce="n2"), reader.get_receipt("signed"))
        self.assertEqual(put.envelope.serialize(), reader.get_statement("s1"))
        self.assertIsNone(reader.get_receipt("none"))
        self.assertIsNone(reader.get_statement("none"))

    def test_search_has_no_bound(self) -> None:
        """Whatever the number of records, a search reads them all."""
        rows = [(f"r{number}", NOW - 1 - number) for number in range(SEARCH_ROWS + 1)]
        self.successResultOf(self.store.close())
        with sqlite3.connect(self.path) as connection:
            connection.executemany(
                "INSERT INTO receipt (id, level, client, server, jti, issued_at, outcome, statement_id, payload)"
                " VALUES (?, 'logRequest', 'x', 'x', 'x', ?, 'complete', '', x'7b7d')",
                rows,
            )
        connection.close()
        self.store = self.opened()
        found = self.reader().find(ReceiptQuery(client=CLIENT, limit=3))
        self.assertEqual((2, None), (len(found), found.next))

    def test_names(self) -> None:
        """A record is found by the beginning of its id, by nonce and by jti, of whatever client."""
        self.put(receipt("fir-other", client="spiffe://example.org/other", nonce="n1", jti="second"))
        reader = self.reader()
        for key, expected in (
            ("fir", ["fir-other", "first"]),
            ("first", ["first"]),
            ("n1", ["fir-other", "first"]),
            ("j1", ["first"]),
            ("second", ["fir-other", "second"]),
            ("%", []),
            ("x", []),
        ):
            self.assertEqual(expected, sorted(reader.named(key, 10)), key)
        self.assertEqual(1, len(reader.named("fir", 1)))


class RefusalTests(ReadOnlyTestCase):
    """What cannot be read."""

    def test_absent(self) -> None:
        """A path where nothing is: no file is created."""
        self.assertIn("no such file", str(self.refused(self.folder / "other.db", "notary_unreadable")))
        self.assertIn("no such file", str(self.refused(self.folder / "none" / "other.db", "notary_unreadable")))

    def test_folder(self) -> None:
        """A folder is no database."""
        self.refused(self.folder, "notary_unreadable")

    def test_other_files(self) -> None:
        """Text, an empty file, and a database of another program."""
        text, empty, other, blank = (self.folder / name for name in ("a.json", "empty", "other.db", "blank.db"))
        text.write_text('{"type": "svc-evidence/1"}')
        self.refused(text, "notary_not_sqlite")
        empty.touch()
        self.refused(empty, "notary_empty")
        with sqlite3.connect(other) as connection:
            connection.execute("CREATE TABLE t (x)")
        connection.close()
        self.refused(other, "store_foreign")
        with sqlite3.connect(blank) as connection:
            connection.execute("CREATE TABLE t (x)")
            connection.execute("DROP TABLE t")
        connection.close()
        self.refused(blank, "notary_empty")

    def test_refusals_leave_nothing_open(self) -> None:
        """What is refused is closed again."""
        other = self.folder / "other.db"
        with sqlite3.connect(other) as connection:
            connection.execute("CREATE TABLE t (x)")
        connection.close()
        before = sorted(os.listdir("/proc/self/fd"))
        self.refused(other, "store_foreign")
        self.assertEqual(before, sorted(os.listdir("/proc/self/fd")))

    def test_newer_version(self) -> None:
        """A database of a newer program is not read."""
        self.successResultOf(self.store.close())
        with sqlite3.connect(self.path) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
        self.assertIn("99", str(self.refused(self.path, "unsupported_version")))

    def test_damage(self) -> None:
        """A damaged page is reported when it is read, and the rest can be read."""
        self.successResultOf(self.store.close())
        octets = bytearray(self.path.read_bytes())
        octets[4096:] = b"\xff" * (len(octets) - 4096)
        self.path.write_bytes(octets)
        reader = self.reader()
        error = self.assertRaises(DatabaseUnreadable, reader.find, ReceiptQuery())
        self.assertIn("damaged", str(error))

    def test_altered_row(self) -> None:
        """A row that was altered is reported, not raised as a fault of the program."""
        self.successResultOf(self.store.close())
        with sqlite3.connect(self.path) as connection:
            connection.execute("UPDATE receipt SET cuts = '{' WHERE id = 'first'")
        connection.close()
        error = self.assertRaises(DatabaseUnreadable, self.reader().get_receipt, "first")
        self.assertIn("damaged", str(error))

    def test_other_user(self) -> None:
        """Whoever may not read the file is told whose it is."""
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        copy = folder / "notary.db"
        shutil.copy(self.path, copy)
        copy.chmod(0)
        folder.chmod(0o755)
        root = os.geteuid() == 0
        if root:
            os.seteuid(NOBODY)
        try:
            error = self.refused(copy, "notary_forbidden")
        finally:
            if root:
                os.seteuid(0)
        owner = pwd.getpwuid(os.geteuid()).pw_name
        self.assertIn(f"run the command as {owner}", error.hint)

    def test_server_address(self) -> None:
        """The URL of a server is parsed strictly."""
        self.assertRaises(ValueError, open_notary, "postgresql://user:secret@localhost/db")

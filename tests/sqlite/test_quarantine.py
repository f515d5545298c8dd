"""Damaged files: what is detected before the first use, what is quarantined, and what stays unchanged."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sqlite3
import struct
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.sqlite import quarantine as quarantine_module
from svc.sqlite.errors import DatabaseCorrupt, DatabaseError, DatabaseQuarantined
from svc.sqlite.quarantine import inspect, quarantine, quarantined
from svc.store.errors import StoreUnavailable
from svc.store.schema import NOTARY
from svc.store.sqlite import SqliteStore
from tests.store.doubles import InlineReactor, InlineThread, RecordingObserver, receipt

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
STAMP = ".corrupt-20261121T120000Z"


class DamageCase(SynchronousTestCase):
    """Base class: a folder with a database of 40 records, closed in order or left by a killed process."""

    def setUp(self) -> None:
        """Create a path."""
        self.folder = self.mktemp()
        self.path = os.path.join(self.folder, "notary.db")
        self.observer = RecordingObserver()
        self.reactor = InlineReactor()

    def store(self, **options: Any) -> SqliteStore:
        """Create a store that is not open."""
        given: dict[str, Any] = {"reserve_size": 64 * 1024, "start_thread": InlineThread, "wall": lambda: NOW}
        return SqliteStore(self.path, reactor=self.reactor, observer=self.observer, **(given | options))

    def opened(self, **options: Any) -> SqliteStore:
        """Open a store."""
        store = self.store(**options)
        store.init()
        self.addCleanup(store.close)
        return store

    def filled(self, *, closed: bool = True, count: int = 40) -> None:
        """Create the database; if not closed, all its records are in the log."""
        store = self.store()
        store.init()
        for number in range(count):
            self.successResultOf(store.put_receipt(receipt(f"r{number}", filler="x" * 2000)))
        if not closed:
            # The files as a killed process would leave them.
            shutil.copytree(self.folder, self.folder + ".copy")
        self.successResultOf(store.close())
        if not closed:
            shutil.rmtree(self.folder)
            os.rename(self.folder + ".copy", self.folder)
        self.observer.__init__()  # type: ignore[misc]

    def files(self) -> dict[str, bytes]:
        """Return the files without the reserve, the index and an empty log, which every reader recreates."""
        found = {}
        for name in os.listdir(self.folder):
            if not name.endswith((".reserve", "-shm")):
                with open(os.path.join(self.folder, name), "rb") as file:
                    found[name] = file.read()
        # The diff of whole files would take minutes to print.
        short = {name: data if len(data) < 100 else hashlib.sha256(data).digest() for name, data in found.items()}
        return {name: data for name, data in short.items() if data or not name.endswith("-wal")}

    def overwrite(self, start: int, data: bytes, suffix: str = "") -> None:
        """Damage a file."""
        with open(self.path + suffix, "r+b") as file:
            file.seek(start)
            file.write(data)

    def refusal(self, kind: type[SvcError]) -> SvcError:
        """Assert that opening fails with this class and a hint."""
        error = self.assertRaises(kind, self.store().init)
        self.assertEqual([("init", "db")], self.observer.errors)
        self.assertTrue(error.hint)
        return error

    def assert_quarantined(self) -> None:
        """Assert that opening quarantines the database; the next start creates a new one and reports the old one."""
        before = self.files()
        error = self.refusal(DatabaseQuarantined)
        aside = self.path + STAMP
        self.assertEqual(
            {name.replace("notary.db", "notary.db" + STAMP): data for name, data in before.items()}, self.files()
        )
        self.assertEqual(("store_corrupt", aside), (error.reason, error.evidence["quarantined"]))
        self.assertEqual([("quarantined", self.path, aside)], self.observer.damage)
        store = self.opened()
        self.assertTrue(store.writable)
        self.assertEqual(("quarantined before", aside), self.observer.damage[-1])
        self.assertIsNone(self.successResultOf(store.get_receipt("r1")))
        self.successResultOf(store.put_receipt(receipt("new")))

    def assert_unchanged(self, kind: type[SvcError], reason: str = "") -> None:
        """Assert that opening fails and moves or changes nothing."""
        before = self.files()
        error = self.refusal(kind)
        self.assertNotIsInstance(error, DatabaseQuarantined)
        self.assertEqual(error.reason, reason or kind.reason)
        self.assertEqual(before, self.files())
        self.assertEqual([], self.observer.damage)


class QuarantineTests(DamageCase):
    """Damaged databases of this program are quarantined."""

    def test_pages(self) -> None:
        """Random octets over pages in the middle of the file."""
        self.filled()
        self.overwrite(4096 * 3, random.Random(1).randbytes(4096 * 8))
        self.assert_quarantined()

    def test_header(self) -> None:
        """The header is overwritten: SQLite does not recognize the file, but a database was created here."""
        self.filled()
        self.overwrite(0, b"SQLite format 4\0")
        self.assert_quarantined()

    def test_truncated(self) -> None:
        """The file is truncated to half its size."""
        self.filled()
        os.truncate(self.path, os.path.getsize(self.path) // 2)
        self.assert_quarantined()

    def test_empty(self) -> None:
        """A database that was in use is empty."""
        self.filled()
        os.truncate(self.path, 0)
        self.assert_quarantined()

    def test_schema_is_gone(self) -> None:
        """A database has no tables, although it had some before."""
        self.filled(closed=False)
        # The schema was still in the log, which is removed.
        os.unlink(self.path + "-wal")
        os.unlink(self.path + "-shm")
        self.assert_quarantined()

    def test_log_without_database(self) -> None:
        """The database is missing while its log is there, which SQLite would delete."""
        self.filled(closed=False)
        os.unlink(self.path)
        before = self.files()
        self.assertIn("notary.db-wal", before)
        self.refusal(DatabaseQuarantined)
        self.assertEqual({f"notary.db{STAMP}-wal": before["notary.db-wal"]}, self.files())

    def test_head_of_the_log(self) -> None:
        """The header of the log is damaged, so that SQLite would ignore the whole log."""
        self.filled(closed=False)
        self.overwrite(8, b"\0" * 8, "-wal")
        self.assert_quarantined()

    def test_frames_of_the_log(self) -> None:
        """A frame of the log is damaged, so that SQLite would drop acknowledged transactions after it."""
        self.filled(closed=False)
        self.overwrite(os.path.getsize(self.path + "-wal") // 2, random.Random(2).randbytes(5000), "-wal")
        self.assert_quarantined()

    def test_never_over_an_earlier_one(self) -> None:
        """Two databases quarantined within one second get different names, and so do their logs."""
        os.makedirs(self.folder)
        for number in range(3):
            for suffix in ("", "-wal"):
                with open(self.path + suffix, "wb") as file:
                    file.write(b"%d" % number)
            quarantine(self.path, NOW)
        first = "notary.db" + STAMP
        expected = {first: b"0", f"{first}-2": b"1", f"{first}-3": b"2"}
        expected |= {f"{name}-wal": data for name, data in expected.items()}
        self.assertEqual(expected, self.files())
        self.assertEqual([f"{self.path}{STAMP}{part}" for part in ("", "-2", "-3")], quarantined(self.path))

    def test_folder_that_cannot_be_written(self) -> None:
        """If renaming is refused, the error reports it and nothing was changed."""
        self.filled()
        os.truncate(self.path, 0)

        def refuse(_source: str, _target: str) -> None:
            raise PermissionError(13, "Permission denied")

        self.patch(os, "rename", refuse)
        self.assert_unchanged(StoreUnavailable)


class UnchangedTests(DamageCase):
    """Databases of other programs, or without damage, are not changed."""

    def test_no_database(self) -> None:
        """A file that is not a database, at a path where none was created."""
        os.makedirs(self.folder)
        with open(self.path, "wb") as file:
            file.write(b"this is no database at all" * 400)
        self.assert_unchanged(DatabaseCorrupt)

    def test_damaged_database_of_another_program(self) -> None:
        """A damaged file with the application ID of another program is not renamed, even at our path."""
        self.filled()
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("PRAGMA application_id = 42")
        os.truncate(self.path, 4096 * 5)
        self.assert_unchanged(DatabaseCorrupt)

    def test_foreign(self) -> None:
        """An intact database of another program."""
        os.makedirs(self.folder)
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("CREATE TABLE t (x)")
        self.assert_unchanged(DatabaseError, "store_foreign")

    def test_newer(self) -> None:
        """A database of a newer version of this program, damaged or not."""
        self.filled()
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute(f"PRAGMA user_version = {NOTARY.version + 1}")
        self.overwrite(4096 * 5, b"\xff" * 4096)
        self.assert_unchanged(DatabaseError, "unsupported_version")

    def test_folder_in_its_place(self) -> None:
        """A directory at the path is not changed and is named in the error."""
        os.makedirs(self.path)
        self.assertIn("Is a directory", str(self.refusal(StoreUnavailable)))
        self.assertTrue(os.path.isdir(self.path))

    def test_gone(self) -> None:
        """A database that was removed is created again, without a damage report."""
        self.filled()
        os.unlink(self.path)
        self.assertTrue(self.opened().writable)
        self.assertEqual([], self.observer.damage)

    def test_whole_log(self) -> None:
        """The log of a killed process is recovered completely."""
        self.filled(closed=False)
        store = self.opened()
        for number in range(40):
            self.assertIsNotNone(self.successResultOf(store.get_receipt(f"r{number}")))
        self.assertEqual([], self.observer.damage)


class TornLogTests(DamageCase):
    """Incomplete ends of a log by which no acknowledged transaction is lost."""

    def frames(self) -> tuple[int, int, list[int]]:
        """Return the octets before the first frame, the size of a frame, and the number of each commit frame."""
        with open(self.path + "-wal", "rb") as file:
            log = file.read()
        step = 24 + struct.unpack_from(">I", log, 8)[0]
        starts = range(32, len(log) - step + 1, step)
        return 32, step, [number for number, start in enumerate(starts) if struct.unpack_from(">I", log, start + 4)[0]]

    def test_cut_anywhere(self) -> None:
        """Wherever the log is cut, as by a power loss during a write, the transactions before it are served."""
        self.filled(closed=False, count=6)
        first, step, commits = self.frames()
        for cut in (1, step - 1, step, step * 3 + 100):
            os.truncate(self.path + "-wal", first + step * (commits[-1] + 1) - cut)
            inspect(self.path, NOTARY, created=True)

    def test_torn_last_transaction(self) -> None:
        """A missing page of the last transaction is not damage."""
        self.filled(closed=False, count=6)
        first, step, commits = self.frames()
        self.overwrite(first + step * (commits[-2] + 1) + 100, b"\0" * 512, "-wal")
        inspect(self.path, NOTARY, created=True)
        store = self.opened()
        self.assertIsNotNone(self.successResultOf(store.get_receipt("r4")))
        self.assertIsNone(self.successResultOf(store.get_receipt("r5")))

    def test_two_transactions(self) -> None:
        """A missing page of the last but one transaction is damage: another was acknowledged after it."""
        self.filled(closed=False, count=6)
        first, step, commits = self.frames()
        self.overwrite(first + step * (commits[-3] + 1) + 100, b"\0" * 512, "-wal")
        self.assertIn(
            "its log is damaged", str(self.assertRaises(DatabaseCorrupt, inspect, self.path, NOTARY, created=True))
        )

    def test_left_over_frames(self) -> None:
        """Stale frames of attempts that the disk refused are not damage."""
        self.filled(closed=False, count=6)
        first, step, commits = self.frames()
        with open(self.path + "-wal", "rb") as file:
            log = file.read()
        end = first + step * (commits[-1] + 1)
        last = log[first + step * (commits[-2] + 1) : end]
        # Twice the last transaction, which continues neither the one before it nor itself.
        with open(self.path + "-wal", "wb") as file:
            file.write(log[:end] + last[-step:] + last[-step:] + last)
        inspect(self.path, NOTARY, created=True)

    @given(st.integers(0, 2**32), st.integers(1, 6000))
    def test_reported_or_like_lost_power(self, place: int, length: int) -> None:
        """
        Octets of the log are overwritten anywhere: this is reported, or looks like a power loss, where only the last
        transaction is missing, or the last two if the border between them is overwritten.
        """
        if not os.path.exists(self.path + ".whole"):
            self.filled(closed=False, count=6)
            shutil.copy(self.path + "-wal", self.path + ".whole")
        shutil.copy(self.path + ".whole", self.path + "-wal")
        first, step, commits = self.frames()
        if os.path.exists(self.path + "-shm"):
            os.unlink(self.path + "-shm")
        size = os.path.getsize(self.path + "-wal")
        start = place % size
        self.overwrite(start, bytes(255 - each for each in self.whole()[start : start + length]), "-wal")
        try:
            inspect(self.path, NOTARY, created=True)
        except DatabaseCorrupt:
            return
        copy = self.folder + ".look"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder, copy)
        with closing(sqlite3.connect(os.path.join(copy, "notary.db"))) as connection:
            (count,) = connection.execute("SELECT count(*) FROM receipt").fetchone()
        border = first + step * (commits[-2] + 1)
        crossed = start < border + 24 and start + length > border - step
        self.assertGreaterEqual(count, 4 if crossed else 5)

    def whole(self) -> bytes:
        """Return the log before it was damaged."""
        with open(self.path + ".whole", "rb") as file:
            return file.read()


class InUseTests(DamageCase):
    """Damage while the database is open."""

    def damaged(self, **options: Any) -> SqliteStore:
        """Open a store on a database whose tables are overwritten and not cached."""
        self.filled()
        store = self.opened(**options)
        self.overwrite(4096, b"\xff" * (os.path.getsize(self.path) - 4096))
        return store

    def assert_not_writable(self, store: SqliteStore) -> None:
        """Assert that the store accepts nothing, reports that once, and does not recover by itself."""
        self.assertFalse(store.writable)
        errors = len(self.observer.errors)
        self.assertGreaterEqual(errors, 1)
        for _turn in range(5):
            self.reactor.advance(1)
        self.assertFalse(store.writable)
        self.assertEqual(errors, len(self.observer.errors))
        self.assertEqual([("damaged", self.path)], self.observer.damage)

    def test_detected_by_a_record(self) -> None:
        """A record whose write detects damage is refused, and no other is accepted."""
        store = self.damaged()
        self.failureResultOf(store.put_receipt(receipt("new", nonce="n")), StoreUnavailable)
        self.assert_not_writable(store)

    def test_detected_by_a_read(self) -> None:
        """A read that detects damage is refused, and no record is accepted."""
        store = self.damaged()
        self.failureResultOf(store.get_receipt("r7"), StoreUnavailable)
        self.assert_not_writable(store)

    def test_next_start_checks_all_of_it(self) -> None:
        """After damage was detected, a database too large for the usual check is checked completely."""
        self.patch(quarantine_module, "CHECK_LIMIT", 0)
        store = self.damaged()
        inspect(self.path, NOTARY, created=True)
        self.failureResultOf(store.get_receipt("r7"), StoreUnavailable)
        self.successResultOf(store.close())
        self.observer.errors.clear()
        self.refusal(DatabaseQuarantined)
        self.assertEqual("quarantined", self.observer.damage[-1][0])

    def test_transient_error(self) -> None:
        """A transient error of the disk is not damage."""
        store = self.damaged()
        self.reactor.callFromThread(store._unavailable, sqlite3.OperationalError("disk I/O error"))
        self.assertTrue(store.writable)
        self.assertEqual([], self.observer.damage)

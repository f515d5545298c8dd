"""The embedded store: opening, refusals, recovery, pruning."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any, ClassVar

from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.sqlite import database
from svc.sqlite.database import DatabaseFile
from svc.sqlite.errors import DatabaseCorrupt
from svc.sqlite.threads import COMMIT_SECONDS, GROUP_LIMIT
from svc.sqlite.writer import CHECKPOINT_BYTES
from svc.store.backend import PRUNE_SLICE, Refused
from svc.store.errors import Replayed, StoreBusy, StoreError, StoreUnavailable
from svc.store.records import MAX_FOUND, ReceiptQuery, StoredReceipt
from svc.store.schema import NOTARY
from svc.store.sqlite import SqliteStore
from tests.refusals import assert_refused
from tests.store.doubles import (
    CLIENT,
    NOW,
    HeldThread,
    InlineReactor,
    InlineThread,
    RawEnvelope,
    RecordingObserver,
    batch,
    envelope_of,
    receipt,
    statement,
    write_first_version,
)

RESERVE = 64 * 1024


class FaultyConnection(sqlite3.Connection):
    """A connection that fails the statements that a test names."""

    #: (start of the statement, result code, how often, whether the statement is executed nevertheless).
    faults: ClassVar[list[list[Any]]] = []

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        self._fault(sql, *args)
        return super().execute(sql, *args)

    def executemany(self, sql: str, *args: Any) -> sqlite3.Cursor:
        self._fault(sql, *args)
        return super().executemany(sql, *args)

    def _fault(self, sql: str, *args: Any) -> None:
        names = [sql]
        if sql.startswith("INSERT INTO receipt ") and not self.in_transaction:
            # One statement that is a transaction of its own.
            names.append("COMMIT")
        for fault in self.faults:
            start, code, left, carried_out = fault
            if any(name.startswith(start) for name in names) and left:
                fault[2] -= 1
                if carried_out:
                    super().execute(sql, *args)
                error = sqlite3.OperationalError("injected")
                error.sqlite_errorcode = code
                raise error


def faulty_connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=FaultyConnection)


class StoreCase(SynchronousTestCase):
    """Base class: creates stores on a clock."""

    def setUp(self) -> None:
        self.path = os.path.join(self.mktemp(), "notary.db")
        self.reactor = InlineReactor()
        self.observer = RecordingObserver()
        FaultyConnection.faults = []

    def make(self, **options: Any) -> SqliteStore:
        given: dict[str, Any] = {
            "reactor": self.reactor,
            "observer": self.observer,
            "reserve_size": RESERVE,
            "connect": faulty_connect,
            "start_thread": InlineThread,
        }
        return SqliteStore(self.path, **(given | options))

    def opened(self, **options: Any) -> SqliteStore:
        store = self.make(**options)
        store.init()
        self.addCleanup(store.close)
        return store

    def fault(self, start: str, code: int, times: int = 1, *, carried_out: bool = False) -> None:
        FaultyConnection.faults.append([start, code, times, carried_out])

    def reserved(self) -> int:
        return os.stat(f"{self.path}.reserve").st_blocks * 512


def _batched_first(record: StoredReceipt) -> tuple[bool, str]:
    return record.batch is None, record.id


class OpeningTests(StoreCase):
    """A file is verified before it is used as the database."""

    def refusal(self, reason: str) -> SvcError:
        error = assert_refused(self, reason, self.make().init)
        self.assertEqual([("init", "db")], self.observer.errors)
        self.assertIn(self.path, str(error))
        self.assertTrue(error.hint, "has a hint")
        return error

    def write(self, data: bytes) -> None:
        os.makedirs(os.path.dirname(self.path))
        with open(self.path, "wb") as file:
            file.write(data)

    def test_database_without_batches(self) -> None:
        """A database of the first version is upgraded, and what it holds is found as before."""
        old, signed = receipt("r1", nonce="n1"), batch("r2", "r3")
        older = replace(NOTARY, migrations=NOTARY.migrations[:1])
        write_first_version(self.path, older, old)
        store = self.opened()
        self.assertEqual(old, self.successResultOf(store.get_receipt("r1")))
        for each in signed:
            self.successResultOf(store.put_receipt(each))
        self.assertEqual([*signed, old], sorted(self.successResultOf(store.find(ReceiptQuery())), key=_batched_first))  # type: ignore[arg-type]

    def test_octets_of_a_database_that_counted_none(self) -> None:
        """An upgrade counts what the records of each client take, as if they were written now."""
        old = receipt("r1", nonce="n1", filler="x" * 5000)
        write_first_version(self.path, replace(NOTARY, migrations=NOTARY.migrations[:1]), old)
        store = self.opened()
        before = self.successResultOf(store.measure()).held
        self.assertGreater(before[old.client], 6000)
        self.successResultOf(store.put_receipt(receipt("r2", nonce="n2", filler="x" * 5000)))
        self.assertEqual({old.client: 2 * before[old.client]}, self.successResultOf(store.measure()).held)

    def test_octets_are_counted_with_the_records(self) -> None:
        """Written, refused, deleted and pruned, alone and in a batch, and after another start: what is there counts."""
        store = self.opened()
        records = [receipt(f"a{each}", client="a", nonce=str(each), issued_at=each) for each in range(4)]
        for each in (*records, *batch("r1", "r2"), receipt("b", client="b", issued_at=0)):
            self.successResultOf(store.put_receipt(each))
        self.failureResultOf(store.put_receipt(replace(records[0], id="again")), Replayed)
        usage = self.successResultOf(store.measure())
        self.assertEqual({"a", "b", batch("r1")[0].client}, set(usage.held))
        self.assertEqual(3, self.successResultOf(store.prune(2)))
        pruned = self.successResultOf(store.measure())
        self.assertEqual(usage.held["a"], 2 * pruned.held["a"])
        self.assertNotIn("b", pruned.held)
        self.successResultOf(store.close())
        again = self.successResultOf(self.opened().measure())
        self.assertEqual(pruned.held, again.held)

    def test_room_of_the_disk(self) -> None:
        """What is free on the disk is known, and what was pruned is room again."""
        store = self.opened()
        for each in range(8):
            self.successResultOf(store.put_receipt(receipt(f"r{each}", filler="x" * 50_000)))
        full = self.successResultOf(store.measure())
        self.assertGreater(full.octets, 8 * 50_000)
        assert full.free is not None and full.size is not None
        self.assertLess(full.free, full.size)
        self.assertEqual(8, self.successResultOf(store.prune(2**40)))
        self.assertLess(self.successResultOf(store.measure()).octets, full.octets - 8 * 50_000)

    def test_modes(self) -> None:
        """The folder is created with mode 0700, every file of the database with 0600."""
        store = self.opened()
        self.successResultOf(store.put_receipt(receipt()))
        folder = os.path.dirname(self.path)
        self.assertEqual(0o700, stat.S_IMODE(os.stat(folder).st_mode))
        modes = {name: stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) for name in os.listdir(folder)}
        self.assertEqual({0o600}, set(modes.values()), modes)
        self.assertIn("notary.db-wal", modes)

    def test_wide_mode_is_narrowed(self) -> None:
        """The mode of a file that others may read is restricted."""
        self.write(b"")
        os.chmod(self.path, 0o644)
        self.opened()
        self.assertEqual(0o600, stat.S_IMODE(os.stat(self.path).st_mode))

    def test_settings(self) -> None:
        """The writing connection uses a write-ahead log, synchronizes commits and makes no checkpoint on its own."""
        file = DatabaseFile(self.path, NOTARY, reserve_size=0)
        file.lock()
        self.addCleanup(file.close)
        connection = file.open(lambda: datetime.now(UTC))
        self.addCleanup(connection.close)
        asked = ("journal_mode", "synchronous", "wal_autocheckpoint", "user_version", "application_id")
        found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in asked]
        self.assertEqual(["wal", 2, 0, NOTARY.version, NOTARY.application], found)

    def test_not_a_database(self) -> None:
        """A file that is not a database is refused and not changed."""
        data = b"this is no database at all" * 400
        self.write(data)
        self.assertIsInstance(self.refusal("store_corrupt"), DatabaseCorrupt)
        with open(self.path, "rb") as file:
            self.assertEqual(data, file.read())

    def test_database_of_another_program(self) -> None:
        """A database with tables of another program is refused."""
        os.makedirs(os.path.dirname(self.path))
        with sqlite3.connect(self.path) as connection:
            connection.execute("CREATE TABLE t (x)")
        connection.close()
        self.refusal("store_foreign")

    def test_newer_schema(self) -> None:
        """A database of a newer version is refused with both versions and not changed."""
        self.successResultOf(self.opened().close())
        with sqlite3.connect(self.path) as connection:
            connection.execute(f"PRAGMA user_version = {NOTARY.version + 1}")
        connection.close()
        error = self.refusal("unsupported_version")
        self.assertEqual((NOTARY.version + 1, NOTARY.version), (error.evidence["found"], error.evidence["known"]))

    def test_interrupted_creation(self) -> None:
        """An empty file of an interrupted creation becomes a database."""
        self.write(b"")
        store = self.opened()
        self.successResultOf(store.put_receipt(receipt()))

    def test_folder_is_a_file(self) -> None:
        """A path that cannot be a file gives an error with the message of the system."""
        self.write(b"")
        self.path = os.path.join(self.path, "notary.db")
        self.assertIn("Not a directory", str(self.refusal("notary_unavailable")))

    def test_one_owner(self) -> None:
        """A second owner is refused while the first has the database open."""
        first = self.opened()
        self.refusal("store_in_use")
        self.successResultOf(first.close())
        self.opened()

    def test_one_owner_by_a_link(self) -> None:
        """A second owner through a symbolic link is refused too."""
        first = self.opened()
        real, self.path = self.path, self.path + ".link"
        os.symlink(os.path.abspath(real), self.path)
        self.refusal("store_in_use")
        self.successResultOf(first.close())

    def test_init_refused_by_the_disk(self) -> None:
        """A disk error during creation gives StoreUnavailable."""
        self.fault("CREATE TABLE receipt", sqlite3.SQLITE_IOERR)
        self.refusal("notary_unavailable")
        self.opened()

    def test_no_room_to_open(self) -> None:
        """If the disk is too full to open the database, the reserve is released."""
        self.successResultOf(self.opened().close())
        self.assertGreaterEqual(self.reserved(), RESERVE)
        seen: list[int] = []
        real = database.configure

        def configure(connection: sqlite3.Connection) -> None:
            seen.append(self.reserved())
            if seen[-1]:
                raise sqlite3.OperationalError("database or disk is full")
            real(connection)

        self.patch(database, "configure", configure)
        self.assertTrue(self.opened().writable)
        self.assertEqual(0, seen[-1])

    def test_no_room_for_the_reserve(self) -> None:
        """Without room for the reserve the store opens read-only and becomes writable when there is room."""
        store = self.opened(reserve_size=1 << 60)
        self.assertFalse(store.writable)
        self.assertEqual([("init", "db")], self.observer.errors)
        self.assertIsNone(self.successResultOf(store.get_receipt("r1")))
        self.reactor.advance(1)
        self.assertFalse(store.writable)
        store._file.reserve.size = RESERVE
        self.reactor.advance(1)
        self.assertTrue(store.writable)
        self.assertEqual([False, True], self.observer.writable)


class DiskErrorTests(StoreCase):
    """Errors of the disk are counted, reported, and retried."""

    def test_full_disk_spends_the_reserve(self) -> None:
        """On a full disk a record is stored in the space of the reserve; no further ones are accepted."""
        store = self.opened()
        self.assertGreaterEqual(self.reserved(), RESERVE)
        self.fault("COMMIT", sqlite3.SQLITE_FULL)
        self.successResultOf(store.put_receipt(receipt("r1")))
        self.assertEqual(0, self.reserved())
        self.assertFalse(store.writable)
        self.assertEqual([("put", "receipt")], self.observer.errors)
        self.assertIsNotNone(self.successResultOf(store.get_receipt("r1")))

    def test_reserve_cannot_be_released(self) -> None:
        """A disk that refuses everything fails the record but does not end the thread."""
        store = self.opened()

        def refuse(_descriptor: int, _size: int) -> None:
            raise OSError(errno.EROFS, "Read-only file system")

        self.patch(os, "ftruncate", refuse)
        self.fault("COMMIT", sqlite3.SQLITE_IOERR, times=2)
        self.failureResultOf(store.put_receipt(receipt("r1")), StoreUnavailable)
        self.assertFalse(store.writable)

    def test_writable_again_with_a_new_reserve(self) -> None:
        """After the retry interval the reserve is allocated again and records are accepted."""
        store = self.opened()
        self.fault("COMMIT", sqlite3.SQLITE_FULL)
        self.successResultOf(store.put_receipt(receipt("r1")))
        self.reactor.advance(0.9)
        self.assertFalse(store.writable)
        self.reactor.advance(0.1)
        self.assertTrue(store.writable)
        self.assertGreaterEqual(self.reserved(), RESERVE)
        self.assertEqual([True, False, True], self.observer.writable)
        self.reactor.advance(COMMIT_SECONDS)
        self.assertEqual([], self.reactor.getDelayedCalls())

    def test_refused_twice(self) -> None:
        """A record that also fails without the reserve gives StoreUnavailable; the next record is tried."""
        store = self.opened()
        self.fault("INSERT INTO receipt", sqlite3.SQLITE_IOERR, times=2)
        error = self.failureResultOf(store.put_receipt(receipt("r1")), StoreUnavailable).value
        self.assertEqual(("notary_unavailable", 503), (error.reason, error.http_status))
        self.assertEqual([("put", "receipt")] * 2, self.observer.errors)
        self.assertEqual([], self.observer.commits)
        self.successResultOf(store.put_receipt(receipt("r1")))

    def test_not_writable_before_the_result(self) -> None:
        """The store is already not writable when a failed record, or one stored from the reserve, is reported."""
        store = self.opened()
        self.fault("COMMIT", sqlite3.SQLITE_IOERR, times=2)
        seen: list[bool] = []
        store.put_receipt(receipt("r1")).addErrback(lambda _failure: seen.append(store.writable))
        self.reactor.advance(1)
        self.fault("COMMIT", sqlite3.SQLITE_FULL)
        store.put_receipt(receipt("r2")).addCallback(lambda _none: seen.append(store.writable))
        self.assertEqual([False, False], seen)

    def test_entities(self) -> None:
        """The entity of an error is the one that was being written."""
        store = self.opened()
        self.fault("INSERT OR IGNORE INTO certificate_blob", sqlite3.SQLITE_IOERR)
        self.successResultOf(store.put_receipt(receipt("r1")))
        self.fault("INSERT OR IGNORE INTO workload_statement", sqlite3.SQLITE_IOERR)
        self.successResultOf(store.put_statement(statement("s1")))
        self.assertEqual([("put", "certificate_blob"), ("put", "workload_statement")], self.observer.errors)

    def test_commit_that_was_made_but_reported_failed(self) -> None:
        """A record that was stored although its commit failed is acknowledged, not refused as a replay."""
        store = self.opened()
        self.fault("COMMIT", sqlite3.SQLITE_IOERR, carried_out=True)
        self.successResultOf(store.put_receipt(receipt("r1", nonce="n1")))
        self.assertIsNotNone(self.successResultOf(store.get_receipt("r1")))

    def test_recovery_keeps_trying(self) -> None:
        """While the probe fails, the store stays unwritable and retries after each interval."""
        store = self.opened(retry_interval=5.0)
        self.fault("COMMIT", sqlite3.SQLITE_IOERR)
        self.successResultOf(store.put_receipt(receipt("r1")))
        self.fault("UPDATE write_probe", sqlite3.SQLITE_IOERR, times=2)
        self.reactor.pump([5.0, 5.0])
        self.assertFalse(store.writable)
        self.assertEqual([("put", "receipt"), ("put", "db"), ("put", "db")], self.observer.errors)
        self.reactor.advance(5.0)
        self.assertTrue(store.writable)

    def test_close_ends_the_retry(self) -> None:
        """A store that is closed while it is not writable leaves no timer."""
        store = self.opened()
        self.fault("COMMIT", sqlite3.SQLITE_FULL)
        self.successResultOf(store.put_receipt(receipt("r1")))
        self.successResultOf(store.close())
        self.assertEqual([], self.reactor.getDelayedCalls())

    def test_get_refused(self) -> None:
        """A failing read is counted with its entity; the next one uses a new connection."""
        store = self.opened()
        self.successResultOf(store.put_receipt(receipt("r1")))
        self.fault("SELECT id, level", sqlite3.SQLITE_IOERR)
        self.failureResultOf(store.get_receipt("r1"), StoreUnavailable)
        self.fault("SELECT certificate_set, cuts", sqlite3.SQLITE_IOERR)
        self.failureResultOf(store.get_statement("s1"), StoreUnavailable)
        self.assertEqual([("get", "receipt"), ("get", "workload_statement")], self.observer.errors)
        self.assertIsNotNone(self.successResultOf(store.get_receipt("r1")))

    def test_altered_rows(self) -> None:
        """An altered row fails its own read and no other."""
        store = self.opened()
        for number, cuts in enumerate(("[[0,99]]", "7", "[7]", "no JSON")):
            name = f"r{number}"
            self.successResultOf(store.put_receipt(receipt(name)))
            with closing(sqlite3.connect(self.path)) as connection, connection:
                connection.execute("UPDATE receipt SET cuts = ? WHERE id = ?", (cuts, name))
            self.failureResultOf(store.get_receipt(name), StoreUnavailable)
        self.successResultOf(store.put_receipt(receipt("whole")))
        self.assertIsNotNone(self.successResultOf(store.get_receipt("whole")))

    def test_close_refused(self) -> None:
        """Closing completes although the last checkpoint fails; the failure is counted."""
        store = self.opened()
        self.successResultOf(store.put_receipt(receipt("r1")))
        self.fault("PRAGMA wal_checkpoint", sqlite3.SQLITE_IOERR)
        self.successResultOf(store.close())
        self.assertEqual([("close", "db")], self.observer.errors)
        self.assertIsNotNone(self.successResultOf(self.opened().get_receipt("r1")))

    def test_prune_refused(self) -> None:
        """A failed pruning is reported and can be repeated."""
        store = self.opened()
        self.successResultOf(store.put_receipt(receipt("r1", issued_at=NOW - 1)))
        self.fault("DELETE FROM receipt", sqlite3.SQLITE_IOERR)
        self.failureResultOf(store.prune(NOW), StoreUnavailable)
        self.assertEqual([("put", "receipt")], self.observer.errors)
        self.assertFalse(store.writable)
        self.assertEqual(1, self.successResultOf(store.prune(NOW)))

    def test_checkpoint_refused(self) -> None:
        """A failed checkpoint fails no record; the store is not writable until one succeeds."""
        store = self.opened()
        self.fault("PRAGMA wal_checkpoint", sqlite3.SQLITE_FULL)
        for number in range(5):
            self.successResultOf(store.put_receipt(receipt(f"r{number}", filler="x" * 1024 * 1024, signed=False)))
        self.assertFalse(store.writable)
        self.assertEqual([("put", "db")], self.observer.errors)
        self.reactor.advance(1)
        self.assertTrue(store.writable)
        self.assertIsNotNone(self.successResultOf(store.get_receipt("r4")))

    def test_envelopes_count_towards_the_checkpoint(self) -> None:
        """A checkpoint follows a large statement, but not a small one."""
        store = self.opened()
        self.fault("PRAGMA wal_checkpoint", sqlite3.SQLITE_FULL)
        self.successResultOf(store.put_statement(statement("small")))
        self.assertEqual([], self.observer.errors)
        large = RawEnvelope(envelope_of(b"x" * CHECKPOINT_BYTES, (b"leaf",)))
        self.successResultOf(store.put_statement(replace(statement("large"), envelope=large)))
        self.assertEqual([("put", "db")], self.observer.errors)


class GroupTests(StoreCase):
    """Records that are queued together become durable together."""

    def threads(self) -> Callable[..., HeldThread]:
        made: list[HeldThread] = []
        self.made = made

        def make(name: str, work: Callable[[Sequence[Any]], None], finish: Callable[[], None]) -> HeldThread:
            made.append(HeldThread(name, work, finish))
            return made[-1]

        return make

    def test_one_commit_for_a_group(self) -> None:
        """Records that are queued together are one commit, reported once, and fire in order."""
        store = self.opened(start_thread=self.threads())
        order: list[int] = []
        for number in range(5):
            done = store.put_receipt(receipt(f"r{number}"))
            done.addCallback(lambda _none, number=number: order.append(number))  # type: ignore[call-overload]
        self.assertEqual([], order)
        self.made[0].run()
        self.assertEqual([0, 1, 2, 3, 4], order)
        self.assertEqual([5], self.observer.commits)

    def test_a_replay_does_not_fail_the_others(self) -> None:
        """A refused record does not fail the others of its group."""
        store = self.opened(start_thread=self.threads())
        first = store.put_receipt(receipt("r1", nonce="n1"))
        replay = store.put_receipt(receipt("r2", nonce="n1"))
        last = store.put_receipt(receipt("r3", nonce="n3"))
        self.made[0].run()
        self.successResultOf(first)
        self.failureResultOf(replay)
        self.successResultOf(last)
        self.assertEqual([2], self.observer.commits)
        self.assertEqual([], self.observer.errors)

    def test_misuse_does_not_fail_the_others(self) -> None:
        """A record that cannot be stored in any database is refused alone."""
        store = self.opened(start_thread=self.threads())
        wrong = receipt("r1", client="\ud800")
        refused = store.put_receipt(wrong)
        good = store.put_receipt(receipt("r2"))
        self.made[0].run()
        error = self.failureResultOf(refused, StoreError).value
        self.assertEqual(("malformed", 500), (error.reason, error.http_status))
        self.successResultOf(good)
        self.assertTrue(store.writable)

    def test_reading_limit(self) -> None:
        """The queue of reads has a limit, beyond which only those of admissions go, and it empties again."""
        store = self.opened(start_thread=self.threads(), read_limit=2)
        self.made[1].run()
        waiting = [store.get_receipt("r1"), store.nonce_known("c", "n")]
        error = self.failureResultOf(store.get_receipt("r1"), StoreBusy).value
        self.assertEqual(("notary_rate", 429, 2), (error.reason, error.http_status, error.limit))
        reserved, given_back = store.reserve("c", "n"), store.give_back("c", "n")
        self.made[1].run()
        self.assertEqual([None, False], [self.successResultOf(each) for each in waiting])  # type: ignore[arg-type]
        self.assertEqual((True, None), (self.successResultOf(reserved), self.successResultOf(given_back)))
        again = store.get_receipt("r1")
        self.made[1].run()
        self.assertIsNone(self.successResultOf(again))

    def test_any_number_together(self) -> None:
        """Every number of records that can be one group is stored whole, whatever statements it takes."""
        store = self.opened()
        total = 0
        for size in (1, 2, 15, 16, 17, 31, 63, 64, 65, 97, GROUP_LIMIT):
            rows = [receipt(f"g{size}-{number}", nonce=f"n{size}-{number}", signed=False) for number in range(size)]
            self.assertEqual([None] * size, store._writer.commit(rows).results)
            total += size
        found = self.successResultOf(store.find(ReceiptQuery(limit=MAX_FOUND)))
        self.assertEqual((total, total), (len(found), len({each.nonce for each in found})))

    def test_drafts_are_completed_together(self) -> None:
        """What waits for one completion gets it in one call, on the writer's thread; records are put in between."""
        store = self.opened(start_thread=self.threads())
        calls: list[tuple[str, ...]] = []

        def complete(drafts: Sequence[str]) -> Sequence[StoredReceipt | Exception]:
            calls.append(tuple(drafts))
            return [KeyError(each) if each == "bad" else receipt(each) for each in drafts]

        def other(drafts: Sequence[str]) -> Sequence[StoredReceipt | Exception]:
            calls.append(("other", *drafts))
            return batch(*drafts)

        waiting = [store.put_draft(name, complete) for name in ("r1", "bad", "r2")]
        put = store.put_receipt(receipt("r3"))
        more = [store.put_draft(name, other) for name in ("b1", "b2")]
        self.assertEqual([], calls)
        self.made[0].run()
        self.assertEqual([("r1", "bad", "r2"), ("other", "b1", "b2")], calls)
        self.failureResultOf(waiting[1], KeyError)
        self.assertEqual([receipt("r1"), receipt("r2")], [self.successResultOf(waiting[n]) for n in (0, 2)])
        self.assertEqual(batch("b1", "b2"), [self.successResultOf(each) for each in more])
        self.assertIsNone(self.successResultOf(put))
        self.assertEqual([5], self.observer.commits)

    def test_handed_over_at_the_end_of_a_turn(self) -> None:
        """Records of one turn of the reactor are handed over together; a close in the same turn stores them."""
        turns: list[Callable[[], object]] = []
        store = self.opened(start_thread=self.threads(), at_turn_end=turns.append)
        waiting = [store.put_receipt(receipt("r1")), store.put_draft("r2", lambda drafts: [*map(receipt, drafts)])]
        self.assertEqual((1, []), (len(turns), self.made[0].jobs))
        turns.pop()()
        self.assertEqual(2, len(self.made[0].jobs))
        self.made[0].run()
        self.assertEqual([2], self.observer.commits)
        waiting.append(store.put_receipt(receipt("r3")))
        self.successResultOf(store.close())
        turns.pop()()
        self.assertEqual([], [each for each in waiting if not each.called])  # type: ignore[attr-defined]
        self.assertIsNotNone(self.successResultOf(self.opened().get_receipt("r3")))

    def test_gathered_over_turns(self) -> None:
        """While turns bring more records they are handed over together, where those before were several too."""
        turns: list[Callable[[], object]] = []
        store = self.opened(start_thread=self.threads(), at_turn_end=turns.append)
        names = map("r{}".format, count())

        def turn(records: int) -> int:
            """Put so many records; return how many are handed over at the end of the turn."""
            for _ in range(records):
                store.put_receipt(receipt(next(names)))
            turns.pop()()
            return len(self.made[0].jobs)

        # After one record, or none, nothing waits.
        self.assertEqual(1, turn(1))
        self.made[0].run()
        self.assertEqual(2, turn(2))
        self.made[0].run()
        self.assertEqual([0, 0, 4], [turn(3), turn(1), turn(0)])
        self.made[0].run()
        # As many as are written by one statement wait for no more.
        self.assertEqual([0, 64], [turn(63), turn(1)])
        self.made[0].run()
        # Nor does the first one longer than its time.
        self.assertEqual(0, turn(1))
        self.reactor.advance(0.0019)
        self.assertEqual(0, turn(1))
        self.reactor.advance(0.0001)
        self.assertEqual(3, turn(1))
        self.made[0].run()
        self.assertEqual([1, 2, 4, 64, 3], self.observer.commits)
        # A close stores what is gathered.
        self.assertEqual(0, turn(2))
        self.successResultOf(store.close())
        turns.pop()()
        self.assertEqual(2, self.observer.commits[-1])

    def test_a_replay_in_a_batch(self) -> None:
        """A replay among records that were signed together fails alone; of none that is stored no batch is kept."""
        store = self.opened()
        self.successResultOf(store.put_receipt(receipt("r1", nonce="n1")))
        first, second = batch("b1", "b2")
        replayed = replace(first, nonce="n1")
        results = store._writer.commit([replayed, second]).results
        self.assertEqual([Replayed, type(None)], [type(each) for each in results])
        self.assertEqual(second, self.successResultOf(store.get_receipt("b2")))
        (alone,) = batch("b3", number=1, nonce="n1")
        self.assertEqual([Replayed], [type(each) for each in store._writer.commit([alone]).results])
        with closing(sqlite3.connect(self.path)) as connection:
            self.assertEqual([(1,)], connection.execute("SELECT count(*) FROM receipt_batch").fetchall())

    def test_full_disk_in_the_middle_of_a_batch(self) -> None:
        """A batch that the disk refuses half-way is stored whole from the reserve, or not at all."""
        for times, stored in ((1, 3), (2, 0)):
            store = self.opened()
            for start in ("INSERT INTO receipt (", "INSERT INTO receipt_batch", "COMMIT"):
                rows = batch(*(f"{start[-5:]}{times}{number}" for number in range(3)), number=times)
                self.fault(start, sqlite3.SQLITE_FULL, times)
                result = store._writer.commit(rows)
                found = [self.successResultOf(store.get_receipt(each.id)) for each in rows]
                self.assertEqual([*rows][:stored] or [None] * 3, found)
                self.assertEqual(stored == 0, result.failure is not None)
            self.successResultOf(store.close())

    def test_close_commits_what_waits(self) -> None:
        """Records that were queued before the close are stored."""
        store = self.opened(start_thread=self.threads())
        waiting = store.put_receipt(receipt("r1"))
        self.successResultOf(store.close())
        self.successResultOf(waiting)
        self.assertIsNotNone(self.successResultOf(self.opened().get_receipt("r1")))


class PruningTests(StoreCase):
    """Pruning deletes in slices, and deletes what no row refers to."""

    def counts(self) -> tuple[int, ...]:
        connection = sqlite3.connect(self.path)
        self.addCleanup(connection.close)
        tables = ("receipt", "workload_statement", "certificate_set", "certificate_blob", "receipt_batch")
        return tuple(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)

    def test_certificates_are_shared(self) -> None:
        """Any number of records with the same certificates store them once."""
        store = self.opened()
        for number in range(10):
            self.successResultOf(store.put_receipt(receipt(f"r{number}")))
        self.successResultOf(store.put_statement(statement("s1")))
        self.assertEqual((10, 1, 2, 3, 0), self.counts())

    def test_slices(self) -> None:
        """More records than a slice holds are deleted in several transactions, all counted."""
        store = self.opened()
        for number in range(PRUNE_SLICE + 10):
            self.successResultOf(store.put_receipt(receipt(f"r{number}", issued_at=NOW - 1, signed=False)))
        self.assertEqual(PRUNE_SLICE + 10, self.successResultOf(store.prune(NOW)))
        self.assertEqual((0, 0, 0, 0, 0), self.counts())

    def test_close_between_slices(self) -> None:
        """A pruning that is interrupted by the close fails instead of waiting for ever."""
        made: list[HeldThread] = []

        def held(name: str, work: Callable[[Sequence[Any]], None], finish: Callable[[], None]) -> HeldThread:
            made.append(HeldThread(name, work, finish))
            return made[-1]

        store = self.opened(start_thread=held)
        for number in range(PRUNE_SLICE * 2):
            store.put_receipt(receipt(f"r{number}", issued_at=NOW - 1, signed=False))
        made[0].run()
        pruning = store.prune(NOW)
        self.successResultOf(store.close())
        self.failureResultOf(pruning, StoreError)

    def test_unused_certificates_go(self) -> None:
        """Certificates are deleted with the last record that refers to them."""
        store = self.opened()
        self.successResultOf(store.put_receipt(receipt("r1", issued_at=NOW - 1, chain=(b"old", b"ca"))))
        self.successResultOf(store.put_receipt(receipt("r2", chain=(b"new", b"ca"))))
        self.assertEqual((2, 0, 2, 5, 0), self.counts())
        self.successResultOf(store.prune(NOW))
        self.assertEqual((1, 0, 1, 3, 0), self.counts())

    def test_a_batch_goes_with_its_last_record(self) -> None:
        """Records of a batch share its envelope, which is deleted with the last of them, and its certificates too."""
        store = self.opened()
        writer = store._writer
        old, older, new = batch("r1", "r2", "r3")
        writer.commit([replace(old, issued_at=NOW - 1), replace(older, issued_at=NOW - 2), new])
        self.assertEqual((3, 0, 1, 3, 1), self.counts())
        self.assertEqual(2, self.successResultOf(store.prune(NOW)))
        self.assertEqual((1, 0, 1, 3, 1), self.counts())
        self.assertEqual(new, self.successResultOf(store.get_receipt("r3")))
        self.assertEqual(1, self.successResultOf(store.prune(NOW + 1)))
        self.assertEqual((0, 0, 0, 0, 0), self.counts())

    def test_discarded_records(self) -> None:
        """Records are deleted by their ids, with the batch that none needs any more; unknown ids change nothing."""
        store = self.opened()
        first, second, alone = *batch("r1", "r2"), receipt("r3", nonce="n1")
        store._writer.commit([first, second, alone])
        store._writer.discard(["r1", "r3", "unknown"])
        self.assertEqual([second], self.successResultOf(store.find(ReceiptQuery())))
        self.assertEqual(1, self.counts()[4])
        store._writer.discard(["r2"])
        self.assertEqual((0, 0), (self.counts()[0], self.counts()[4]))
        self.successResultOf(store.put_receipt(receipt("r4", nonce="n1")))

    def test_discard_that_is_refused(self) -> None:
        """A full disk is reported as for a record, and nothing is deleted."""
        store = self.opened()
        store._writer.commit([receipt("r1")])
        self.fault("DELETE FROM receipt WHERE id", sqlite3.SQLITE_FULL)
        self.assertRaises(Refused, store._writer.discard, ["r1"])
        self.assertTrue(store._writer.degraded)
        self.assertIsNotNone(self.successResultOf(store.get_receipt("r1")))

    def test_a_batch_between_slices(self) -> None:
        """A batch of which one slice deletes a part stays until the next slice deletes the rest."""
        store = self.opened()
        for number in range(PRUNE_SLICE - 1):
            self.successResultOf(store.put_receipt(receipt(f"old{number}", issued_at=NOW - 9, signed=False)))
        store._writer.commit(batch("r1", "r2", issued_at=NOW - 1))
        self.assertEqual((PRUNE_SLICE, True), store._writer.prune(NOW))
        self.assertEqual((1, 0, 1, 3, 1), self.counts())
        self.assertEqual((1, False), store._writer.prune(NOW))
        self.assertEqual((0, 0, 0, 0, 0), self.counts())

    def test_log_is_bounded(self) -> None:
        """The write-ahead log stays small while many records are written."""
        store = self.opened()
        for number in range(60):
            self.successResultOf(store.put_receipt(receipt(f"r{number}", filler="x" * 500_000, signed=False)))
        self.assertGreater(os.path.getsize(self.path), 20 * 1024 * 1024)
        self.assertLess(os.path.getsize(f"{self.path}-wal"), database.WAL_SIZE_LIMIT)

    def test_log_of_small_records_is_bounded(self) -> None:
        """The log stays small with single small records too, which take whole pages each."""
        store = self.opened()
        for number in range(500):
            self.successResultOf(store.put_receipt(receipt(f"r{number}", signed=False)))
        self.assertLess(os.path.getsize(f"{self.path}-wal"), 2 * CHECKPOINT_BYTES)

    def test_jti_of_two_clients(self) -> None:
        """Two clients with the same jti each find their own record."""
        store = self.opened()
        mine, theirs = receipt("r1", jti="j"), receipt("r2", jti="j", client="spiffe://example.org/other")
        for record in (mine, theirs):
            self.successResultOf(store.put_receipt(record))
        self.assertEqual(mine, self.successResultOf(store.get_by_request(CLIENT, "j")))
        self.assertEqual(theirs, self.successResultOf(store.get_by_request(theirs.client, "j")))

"""The threaded store apart from its database: late commits, undecided records, recovery."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import SynchronousTestCase, TestCase

from svc.sqlite.threads import COMMIT_SECONDS
from svc.store.backend import CommitResult, Refused
from svc.store.errors import StoreClosed, StoreError, StoreLate, StoreStuck, StoreUnavailable
from svc.store.rows import Row
from svc.store.sqlite import SqliteStore
from svc.store.threaded import ThreadedStore
from tests.store.doubles import HeldThread, InlineReactor, InlineThread, RecordingObserver, receipt


class ScriptedWriter:
    """A writer that returns what the test has set; by default it stores."""

    def __init__(self) -> None:
        self.degraded = False
        self.trouble = ""
        self.away = False
        self.stored: list[str] = []
        self.discarded: list[str] = []
        self.closed = False

    def commit(self, rows: Sequence[Row]) -> CommitResult:
        """Store the rows, or leave them undecided."""
        if self.away:
            self.degraded = True
            return CommitResult(refused=["receipt"], undecided=True)
        self.stored += [row.id for row in rows]
        return CommitResult(results=[None] * len(rows))

    def discard(self, receipt_ids: Sequence[str]) -> None:
        """Delete the records, unless the database is unavailable."""
        if self.away:
            raise Refused("receipt", OSError("away"))
        self.discarded += receipt_ids
        self.stored = [name for name in self.stored if name not in receipt_ids]

    def prune(self, before: int) -> tuple[int, bool]:
        """Delete nothing."""
        return 0, False

    def recover(self) -> None:
        """Recover, unless the database is unavailable."""
        if self.away:
            raise Refused("db", OSError("away"))
        self.degraded = False

    def checkpoint_if_due(self) -> bool:
        """Do nothing."""
        return False

    def close(self) -> bool:
        """Record the close."""
        self.closed = True
        return False


class ScriptedReader:
    """A reader that can only be closed."""

    def disconnect(self) -> None:
        """Record the close."""


class ScriptedStore(ThreadedStore):
    """A threaded store without a database."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.writer = ScriptedWriter()
        self.delays: list[int] = []

    def _retry_delay(self, attempt: int) -> float:
        self.delays.append(attempt)
        return super()._retry_delay(attempt)

    def _open(self) -> Any:
        return self.writer, ScriptedReader()

    def _unavailable(self, error: Exception) -> StoreError:
        return StoreUnavailable(path="scripted", detail=str(error))


class ThreadedCase(SynchronousTestCase):
    """Base class: creates stores on a clock; none leaves a timer."""

    def opened(self, thread: Any = InlineThread) -> ScriptedStore:
        self.reactor, self.observer = InlineReactor(), RecordingObserver()
        self.threads: list[Any] = []
        store = ScriptedStore(
            reactor=self.reactor,
            observer=self.observer,
            start_thread=lambda *args: self.threads.append(thread(*args)) or self.threads[-1],
        )
        store.init()
        self.addCleanup(lambda: self.assertEqual([], self.reactor.getDelayedCalls()))
        self.addCleanup(store.close)
        return store


class LatenessTests(ThreadedCase):
    """A commit takes longer than an exchange may wait."""

    def test_late_at_the_limit(self) -> None:
        """At the limit, and not before, the record fails with StoreLate, and no new one is accepted."""
        store = self.opened(HeldThread)
        put = store.put_receipt(receipt("r1"))
        self.reactor.advance(COMMIT_SECONDS - 0.001)
        self.assertNoResult(put)
        self.assertTrue(store.writable)
        self.reactor.advance(0.001)
        late = self.failureResultOf(put, StoreLate).value
        self.assertEqual((503, COMMIT_SECONDS), (late.http_status, late.seconds))
        self.assertFalse(store.writable)
        self.assertEqual([("put", "db")], self.observer.errors)

    def test_each_by_its_own_time(self) -> None:
        """Each record has its own deadline; one that was stored in time is never late."""
        store = self.opened(HeldThread)
        stored = store.put_receipt(receipt("r0"))
        self.threads[0].run()
        self.successResultOf(stored)
        first = store.put_receipt(receipt("r1"))
        self.reactor.advance(4)
        second = store.put_receipt(receipt("r2"))
        self.reactor.advance(COMMIT_SECONDS - 4)
        self.failureResultOf(first, StoreLate)
        self.assertNoResult(second)
        self.reactor.advance(4)
        self.failureResultOf(second, StoreLate)

    def test_stored_before_its_time_is_over(self) -> None:
        """When the deadline of a stored record passes, the next one that still has time is not late."""
        store = self.opened(HeldThread)
        first = store.put_receipt(receipt("r1"))
        self.reactor.advance(4)
        second = store.put_receipt(receipt("r2"))
        thread = self.threads[0]
        thread.work([thread.jobs.pop(0)])
        self.successResultOf(first)
        self.reactor.advance(COMMIT_SECONDS - 4)
        self.assertNoResult(second)
        self.assertEqual((True, []), (store.writable, self.observer.errors))
        thread.run()
        self.successResultOf(second)

    def test_stored_behind_one_that_is_late(self) -> None:
        """A record that was stored in time stays stored when an earlier one is late."""
        store = self.opened(HeldThread)
        store.writer.away = True
        undecided = store.put_receipt(receipt("r1"))
        self.threads[0].run()
        store.writer.away = False
        stored = store.put_receipt(receipt("r2"))
        self.threads[0].run()
        self.successResultOf(stored)
        self.reactor.advance(COMMIT_SECONDS)
        self.failureResultOf(undecided, StoreLate)
        self.assertEqual(["r2"], store.writer.stored)

    def test_writable_again_when_the_commit_ends(self) -> None:
        """The late result of a failed record is dropped, and the store accepts records again."""
        store = self.opened(HeldThread)
        put = store.put_receipt(receipt("r1"))
        self.reactor.advance(COMMIT_SECONDS)
        self.failureResultOf(put, StoreLate)
        self.threads[0].run()
        self.assertTrue(store.writable)
        self.assertEqual([True, False, True], self.observer.writable)
        again = store.put_receipt(receipt("r2"))
        self.threads[0].run()
        self.successResultOf(again)

    def test_one_timer_for_all_records(self) -> None:
        """One timer runs for all records; it ends where none waits, and with the store."""
        store = self.opened(HeldThread)
        self.assertEqual([], self.reactor.getDelayedCalls())
        for name in ("r1", "r2"):
            put = store.put_receipt(receipt(name))
            self.assertEqual(1, len(self.reactor.getDelayedCalls()))
            self.threads[0].run()
            self.successResultOf(put)
        self.reactor.advance(10.0)
        self.assertEqual([], self.reactor.getDelayedCalls())
        self.assertTrue(store.writable)
        store.put_receipt(receipt("r3"))
        closed = store.close()
        for thread in self.threads:
            thread.run()
        self.successResultOf(closed)
        self.assertEqual([], self.reactor.getDelayedCalls())


class CancelTests(ThreadedCase):
    """A record that was late is not wanted any more."""

    def late(self, store: ScriptedStore, put: Deferred[Any], *, shared: bool = False) -> None:
        """Let a record be late, and cancel it."""
        self.reactor.advance(COMMIT_SECONDS)
        store.cancel(self.failureResultOf(put, StoreLate).value, shared=shared)

    def test_before_it_is_written(self) -> None:
        """A record that waits is never written; one that is put later is."""
        store = self.opened(HeldThread)
        self.late(store, store.put_receipt(receipt("r1", nonce="n1")))
        again = store.put_receipt(receipt("r2", nonce="n1"))
        self.threads[0].run()
        self.successResultOf(again)
        self.assertEqual((["r2"], []), (store.writer.stored, store.writer.discarded))
        self.assertTrue(store.writable)

    def test_while_it_is_written(self) -> None:
        """One whose commit ends later is deleted before the store accepts records again."""
        store = self.opened(HeldThread)
        commit, seen = store.writer.commit, []

        def slow(rows: Sequence[Row]) -> CommitResult:
            store.writer.commit = commit
            self.late(store, put)
            return commit(rows)

        store.writer.commit = slow
        self.observer.writable_changed = lambda *_state: seen.append(list(store.writer.stored))
        put = store.put_receipt(receipt("r1", nonce="n1"))
        self.threads[0].run()
        self.assertEqual(["r1"], store.writer.discarded)
        self.assertEqual([], seen[-1])
        again = store.put_receipt(receipt("r2", nonce="n1"))
        self.threads[0].run()
        self.successResultOf(again)
        self.assertEqual(["r2"], store.writer.stored)

    def test_written_before_it_is_cancelled(self) -> None:
        """One that was stored meanwhile is deleted, and before a later one of the same group is stored."""
        store = self.opened(HeldThread)
        put = store.put_receipt(receipt("r1", nonce="n1"))
        self.reactor.advance(COMMIT_SECONDS)
        self.threads[0].run()
        store.cancel(self.failureResultOf(put, StoreLate).value)
        again = store.put_receipt(receipt("r2", nonce="n1"))
        thread = self.threads[0]
        thread.work([thread.jobs.pop(0) for _job in range(2)])
        self.successResultOf(again)
        self.assertEqual((["r2"], ["r1"]), (store.writer.stored, store.writer.discarded))

    def test_undecided(self) -> None:
        """Where it is not known whether it is stored it is deleted; one that others may have stored stays."""
        for shared in (False, True):
            store = self.opened()
            store.writer.away = True
            self.late(store, store.put_receipt(receipt("r1")), shared=shared)
            store.writer.away = False
            self.reactor.advance(1)
            self.assertEqual([] if shared else ["r1"], store.writer.discarded)
            self.assertEqual([], store.writer.stored)
            self.assertTrue(store.writable)

    def test_refused(self) -> None:
        """A deletion that the database refuses is reported, and tried again; the close is the last attempt."""
        for closes in (False, True):
            store = self.opened(HeldThread)
            put = store.put_receipt(receipt("r1"))
            self.reactor.advance(COMMIT_SECONDS)
            self.threads[0].run()
            store.writer.away = True
            store.cancel(self.failureResultOf(put, StoreLate).value)
            self.threads[0].run()
            self.assertIn(("put", "receipt"), self.observer.errors)
            self.assertEqual([], store.writer.discarded)
            store.writer.away = False
            if closes:
                self.successResultOf(store.close())
            else:
                store.put_receipt(receipt("r2"))
                self.threads[0].run()
            self.assertEqual(["r1"], store.writer.discarded)

    def test_after_the_close(self) -> None:
        """The failure of a close that hangs can be cancelled; nothing is left to do."""
        store = self.opened(HangingThread)
        put = store.put_receipt(receipt("r1"))
        put.addErrback(lambda failure: store.cancel(failure.value))  # type: ignore[call-overload]
        closing = store.close()
        self.reactor.advance(COMMIT_SECONDS)
        self.failureResultOf(closing, StoreStuck)
        self.threads[0].run()
        self.assertEqual([], store.writer.stored)


class UndecidedTests(ThreadedCase):
    """The database connection is lost before it reports the result of a commit."""

    def test_committed_again_when_it_is_back(self) -> None:
        """An undecided record is neither acknowledged nor failed until the database is available again."""
        store = self.opened()
        store.writer.away = True
        put = store.put_receipt(receipt("r1"))
        self.assertNoResult(put)
        self.assertFalse(store.writable)
        self.reactor.advance(1)
        self.assertNoResult(put)
        store.writer.away = False
        self.reactor.advance(1)
        self.successResultOf(put)
        self.assertTrue(store.writable)
        self.assertEqual(["r1"], store.writer.stored)

    def test_lost_twice(self) -> None:
        """When the connection is lost again, the record keeps waiting."""
        store = self.opened()
        store.writer.away = True
        put = store.put_receipt(receipt("r1"))
        store.writer.recover = lambda: None
        self.reactor.advance(1)
        self.assertNoResult(put)
        store.writer.away = False
        self.reactor.advance(1)
        self.successResultOf(put)

    def test_too_late_is_dropped(self) -> None:
        """A record that is late by then is not committed again, since its exchange has failed."""
        store = self.opened()
        store.writer.away = True
        put = store.put_receipt(receipt("r1"))
        self.reactor.pump([1] * int(COMMIT_SECONDS))
        self.failureResultOf(put, StoreLate)
        store.writer.away = False
        self.reactor.advance(1)
        self.assertEqual([], store.writer.stored)
        self.assertTrue(store.writable)

    def test_late_records_leave_the_queue(self) -> None:
        """Records that failed while the database was unavailable do not count towards the queue limit."""
        store = self.opened()
        store.writer.away = True
        for number in range(1024):
            store.put_receipt(receipt(f"r{number}")).addErrback(lambda failure: failure.trap(StoreLate))
        self.reactor.pump([1] * int(COMMIT_SECONDS + 1))
        waiting = store.put_receipt(receipt("one-more"))
        self.assertNoResult(waiting)
        store.writer.away = False
        self.reactor.advance(1)
        self.successResultOf(waiting)

    def test_close_commits_once_more(self) -> None:
        """Closing commits undecided records once more, and fails those that stay undecided."""
        for away in (False, True):
            store = self.opened()
            store.writer.away = True
            put = store.put_receipt(receipt("r1"))
            store.writer.away = away
            self.successResultOf(store.close())
            self.assertTrue(store.writer.closed)
            if away:
                self.failureResultOf(put, StoreClosed)
            else:
                self.successResultOf(put)
            self.assertEqual([], self.reactor.getDelayedCalls())

    def test_one_attempt_at_a_time(self) -> None:
        """Further failing records do not schedule further attempts."""
        store = self.opened()
        store.writer.away = True
        for number in range(3):
            store.put_receipt(receipt(f"r{number}")).addErrback(lambda failure: failure.trap(StoreClosed))
        self.assertEqual([0], store.delays)

    def test_attempts_are_counted(self) -> None:
        """Attempts are numbered for increasing delays; success resets the number."""
        store = self.opened()
        for _time in range(2):
            store.writer.away = True
            put = store.put_receipt(receipt("r1"))
            self.reactor.pump([1, 1])
            store.writer.away = False
            self.reactor.advance(1)
            self.successResultOf(put)
        self.assertEqual([0, 1, 2, 0, 1, 2], store.delays)


class HangingThread(HeldThread):
    """A thread that hangs until the test ends it."""

    def stop(self) -> None:
        """Keep hanging."""


class HangingCloseTests(ThreadedCase):
    """The database hangs during the close."""

    def hanging(self) -> ScriptedStore:
        return self.opened(HangingThread)

    def test_close_at_the_limit(self) -> None:
        """At the limit of commits, and not before, the close fails, and is reported once."""
        store = self.hanging()
        closing = store.close()
        self.reactor.advance(COMMIT_SECONDS - 0.001)
        self.assertNoResult(closing)
        self.reactor.advance(0.001)
        stuck = self.failureResultOf(closing, StoreStuck).value
        self.assertEqual("the notary database was not closed within 10.0 s", str(stuck))
        self.assertEqual([("close", "db")], self.observer.errors)
        self.assertEqual([str(stuck)], self.observer.details)

    def test_waiting_records_fail_first(self) -> None:
        """Every waiting record, even one put just before, fails as late before the close fails."""
        store = self.hanging()
        early = store.put_receipt(receipt("r1"))
        self.reactor.advance(1)
        last = store.put_receipt(receipt("r2"))
        failures: list[str] = []
        for name, put in (("early", early), ("last", last)):
            put.addErrback(lambda failure, name=name: failures.append(f"{name} {failure.check(StoreLate).__name__}"))  # type: ignore[call-overload]
        store.close().addErrback(lambda failure: failures.append(failure.check(StoreStuck).__name__))
        self.reactor.pump([1] * int(COMMIT_SECONDS))
        self.assertEqual(["early StoreLate", "last StoreLate", "StoreStuck"], failures)

    def test_one_thread_hangs(self) -> None:
        """A reader that hangs has the same limit as a writer; the other thread has ended in order."""
        store = self.hanging()
        closing = store.close()
        self.threads[0].finish()
        self.assertTrue(store.writer.closed)
        self.reactor.advance(COMMIT_SECONDS)
        self.failureResultOf(closing, StoreStuck)

    def test_in_time(self) -> None:
        """Threads that end just before the limit complete the close."""
        store = self.hanging()
        closing = store.close()
        self.reactor.advance(COMMIT_SECONDS - 0.001)
        for thread in self.threads:
            thread.finish()
        self.successResultOf(closing)
        self.assertEqual(([], [True, False]), (self.observer.errors, self.observer.writable))

    def test_results_after_the_limit(self) -> None:
        """Results after the limit have no effect."""
        store = self.hanging()
        put = store.put_receipt(receipt("r1"))
        closing = store.close()
        self.reactor.advance(COMMIT_SECONDS)
        self.failureResultOf(put, StoreLate)
        self.failureResultOf(closing, StoreStuck)
        for thread in self.threads:
            thread.run()
            thread.finish()
        self.assertEqual(["r1"], store.writer.stored)
        self.assertEqual([True, False], self.observer.writable)


class RealThreadTests(TestCase):
    """The embedded store with its real threads and the real reactor."""

    def test_many_records_few_commits(self) -> None:
        """Records put in one turn of the reactor are committed in groups and all found again."""
        observer = RecordingObserver()
        path = os.path.join(self.mktemp(), "notary.db")
        store = SqliteStore(path, reactor=reactor, observer=observer, reserve_size=4096)  # type: ignore[arg-type]
        store.init()
        self.addCleanup(store.close)
        names = {thread.name for thread in threading.enumerate()}
        self.assertTrue({"svc-store-writer", "svc-store-reader"} <= names, names)
        puts = [store.put_receipt(receipt(f"r{number}", nonce=f"n{number}")) for number in range(200)]

        def check(found: list[object]) -> None:
            self.assertNotIn(None, found)
            self.assertEqual(200, sum(observer.commits))
            self.assertLess(len(observer.commits), 50)

        def ask(_stored: object) -> Deferred[list[object]]:
            return gatherResults([store.get_receipt(f"r{number}") for number in range(0, 200, 10)])  # type: ignore[misc]

        return gatherResults(puts).addCallback(ask).addCallback(check)  # type: ignore[return-value]

    def test_threads_end_with_close(self) -> None:
        """After the close no thread is left, and the database can be reopened at once."""
        path = os.path.join(self.mktemp(), "notary.db")
        store = SqliteStore(path, reactor=reactor, reserve_size=4096)  # type: ignore[arg-type]
        store.init()
        waiting = store.put_receipt(receipt("r1"))

        def check(_closed: object) -> Deferred[None]:
            self.successResultOf(waiting)
            again = SqliteStore(path, reactor=reactor, reserve_size=4096)  # type: ignore[arg-type]
            again.init()
            return again.close()

        return store.close().addCallback(check)  # type: ignore[return-value]

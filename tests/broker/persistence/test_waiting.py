"""The broker's database is opened in a thread: cancellation and time limit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.journal import RecoveredState
from svc.broker.persistence.journal import SqliteJournal
from svc.sqlite.errors import JournalError, JournalStuck
from tests.broker.keeping import LASTING, Kept
from tests.sqlite.stepwise import Quick, quick_connect


def all_of(_journal: SqliteJournal, recovered: RecoveredState) -> list[str]:
    """Iterate over the recovered sessions, as a core does."""
    return [each.record.client_id for each in recovered.sessions]


class OpeningCase(SynchronousTestCase):
    """Base class: a database with one session."""

    def setUp(self) -> None:
        """Create and close the database."""
        self.kept = Kept(self.mktemp())
        self.kept.rig().connect("s", **LASTING)
        self.kept.settle()
        self.kept.crash()
        self.kept.notes.errors.clear()

    def opening(self, make: Any = all_of) -> Deferred[Any]:
        """Begin to open the database."""
        return self.kept.opening(make)

    def work(self) -> None:
        """Run the thread once, and deliver its calls on the reactor."""
        self.kept.thread.run()
        self.kept.reactor.deliver()

    def assert_closed(self) -> None:
        """Assert that nothing is locked, no timer is left, and the content is unchanged."""
        self.assertEqual(self.kept.reactor.getDelayedCalls(), [])
        self.assertEqual([each.record.client_id for each in self.kept.begin().sessions], ["s"])


class ThreadTests(OpeningCase):
    """What runs on the two threads."""

    def test_handed_over(self) -> None:
        """The thread reads and creates; once the reactor has the result, the journal accepts changes."""
        made: list[SqliteJournal] = []
        opened = self.opening(lambda journal, recovered: made.append(journal) or all_of(journal, recovered))
        opening = self.kept.thread
        self.assertEqual(made, [])
        opening.run()
        [journal] = made
        self.assertNoResult(opened)
        self.assertFalse(journal.accepting)
        self.kept.reactor.deliver()
        self.assertEqual(self.successResultOf(opened), (journal, ["s"]))
        self.assertTrue(journal.accepting)
        self.assertTrue(opening.stopped)
        self.assertEqual(self.kept.reactor.getDelayedCalls(), [])

    def test_make_fails(self) -> None:
        """An exception of ``make`` fails the opening, and nothing stays locked."""

        def make(_journal: SqliteJournal, _remains: RecoveredState) -> None:
            raise KeyError("a defect")

        opened = self.opening(make)
        self.work()
        self.failureResultOf(opened, KeyError)
        self.assert_closed()


class CancellationTests(OpeningCase):
    """The opening is cancelled because the process stops."""

    def assert_cancelled(self, opened: Deferred[Any]) -> None:
        """Assert that the opening fails when the thread has closed the database, and not before."""
        self.assertNoResult(opened)
        self.work()
        self.work()
        self.failureResultOf(opened, CancelledError)
        self.assertEqual(self.kept.notes.errors, [])
        self.assert_closed()

    def test_before_it_is_read(self) -> None:
        """A cancellation before the read: the thread reads nothing more."""
        made: list[object] = []
        opened = self.opening(lambda _journal, recovered: made.append(recovered))
        opened.cancel()
        self.assert_cancelled(opened)
        self.assertEqual(made, [])

    def test_while_it_is_made(self) -> None:
        """A cancellation during the iteration over the sessions stops it."""
        walked: list[object] = []

        def make(_journal: SqliteJournal, recovered: RecoveredState) -> None:
            opened.cancel()
            walked.extend(recovered.sessions)

        opened = self.opening(make)
        self.kept.thread.run()
        self.assert_cancelled(opened)
        self.assertEqual(walked, [])

    def test_before_it_is_handed_over(self) -> None:
        """A database that was just opened is closed again, in the thread."""
        opened = self.opening()
        self.kept.thread.run()
        opened.cancel()
        self.kept.reactor.deliver()
        self.assert_cancelled(opened)

    def test_disk_that_hangs(self) -> None:
        """A thread that hangs is awaited as long as a commit."""
        opened = self.opening()
        self.kept.reactor.advance(55)
        opened.cancel()
        self.kept.reactor.advance(9.9)
        self.assertNoResult(opened)
        self.kept.reactor.advance(0.1)
        self.failureResultOf(opened, JournalStuck)
        self.assertEqual(self.kept.notes.errors, ["close"])
        self.work()
        self.work()
        self.assert_closed()


class HangingDiskTests(OpeningCase):
    """A disk that does not respond."""

    def test_given_up(self) -> None:
        """After a minute the start fails with the cause; the thread closes the database if it ever continues."""
        opened = self.opening()
        self.kept.reactor.advance(59.9)
        self.assertNoResult(opened)
        self.kept.reactor.advance(0.1)
        error = self.failureResultOf(opened, JournalError).value
        self.assertEqual(error.reason, "mqtt_store_late")
        self.assertIn("startTimeout", error.hint)
        self.assertEqual(self.kept.notes.errors, ["init"])
        self.work()
        self.work()
        self.assert_closed()

    def test_slow(self) -> None:
        """A slow disk that responds is awaited, however long it takes."""
        seconds: Iterator[float] = iter((50.0, 40.0))

        class Slow(Quick):
            def execute(slow, sql: str, *arguments: Any) -> sqlite3.Cursor:  # noqa: N805
                if sql.startswith(("SELECT * FROM message", "SELECT * FROM received")):
                    self.kept.reactor.advance(next(seconds))
                return super().execute(sql, *arguments)

        self.kept.more["connect"] = lambda path: quick_connect(path, Slow)
        opened = self.opening()
        self.work()
        self.assertEqual(self.successResultOf(opened)[1], ["s"])
        self.assertEqual(self.kept.reactor.seconds(), 90.0)

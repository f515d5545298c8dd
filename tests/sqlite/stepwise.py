"""A database whose thread, reactor and disk the test moves step by step."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.task import Clock
from zope.interface import implementer

from svc.errors import SvcError
from svc.sqlite.connection import BUSY_SECONDS
from svc.sqlite.threads import JobThread, ThreadReactor
from tests.store.doubles import RecordingObserver


@implementer(ThreadReactor)
class HandReactor(Clock):
    """A clock; calls from the thread are made when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.from_thread: list[Callable[[], None]] = []

    def callFromThread(self, call: Callable[..., Any], *arguments: object, **named: object) -> None:  # type: ignore[override]
        """Queue the call."""
        self.from_thread.append(lambda: call(*arguments, **named))

    def deliver(self) -> None:
        """Make the queued calls."""
        calls, self.from_thread = self.from_thread, []
        for call in calls:
            call()


class HandThread(JobThread[Any]):
    """A job thread that works when the test says so."""

    def __init__(self, _name: str, work: Callable[[Sequence[Any]], None], finish: Callable[[], None]) -> None:
        self._work = work
        self._finish = finish
        self.tasks: list[Any] = []
        self.stopped = False

    def submit(self, task: Any) -> None:
        """Queue the task."""
        self.tasks.append(task)

    def stop(self) -> None:
        """Record the request."""
        self.stopped = True

    def run(self) -> int:
        """Run the queued tasks; return their number."""
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            self._work([task])
        if self.stopped:
            self._finish()
        return len(tasks)


class Notes(RecordingObserver):
    """Records the reports of a journal."""

    def __init__(self) -> None:
        super().__init__()
        self.troubles: list[str | None] = []  # type: ignore[assignment]
        self.left: list[tuple[int, int]] = []

    def db_error(self, op: str, detail: str = "") -> None:  # type: ignore[override]
        """Record the operation and the detail."""
        self.errors.append(op)  # type: ignore[arg-type]
        self.details.append(detail)

    def accepting_changed(self, trouble: SvcError | None) -> None:
        """Record the reason."""
        self.troubles.append(None if trouble is None else trouble.reason)

    def left_behind(self, operations: int, octets: int) -> None:
        """Record it."""
        self.left.append((operations, octets))


class Quick(sqlite3.Connection):
    """
    A connection that does not wait for the disk, and whose commits fail if the test says so.

    Attributes:
        error: what the next COMMITs raise.
        times: how many of them fail; all if it is 0.
        after: whether they fail after the transaction is committed.
    """

    error: sqlite3.Error | None = None
    times = 0
    after = False

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        """Disable synchronization."""
        if sql.startswith("PRAGMA synchronous"):
            sql = "PRAGMA synchronous = OFF"
        if sql == "COMMIT" and Quick.error is not None:
            if Quick.after:
                super().execute(sql)
            error = Quick.error
            if Quick.times:
                Quick.times -= 1
                Quick.error = error if Quick.times else None
            raise error
        return super().execute(sql, *arguments)


def quick_connect(path: str, kind: type[Quick] = Quick) -> sqlite3.Connection:
    """Connect as the product does, without waiting for the disk."""
    return sqlite3.connect(path, BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=kind)


def broken(code: int) -> sqlite3.OperationalError:
    """Create an SQLite error with its code."""
    error = sqlite3.OperationalError("the disk is not well")
    error.sqlite_errorcode = code
    return error

"""A broker's core over its real database, with a thread that the test runs by hand and crashes at any point."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.task import Clock
from zope.interface import implementer

from svc.broker.access import Rule, Rules
from svc.broker.journal import Remains
from svc.broker.persistence.groups import GroupLimits
from svc.broker.persistence.journal import SqliteJournal
from svc.broker.persistence.opening import open_journal
from svc.identity.matchers import parse_matcher
from svc.store.errors import StoreError
from svc.store.schema import BUSY_SECONDS
from svc.store.threaded import StoreReactor
from tests.broker.rig import Rig
from tests.store.doubles import RecordingObserver

EVERYBODY = Rules((Rule(None, ("#",), ("#",)), Rule(parse_matcher("spiffe://example.org/*"), ("#",), ("#",))))


@implementer(StoreReactor)
class HandReactor(Clock):
    """A clock; calls from the thread are made when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.from_thread: list[Callable[[], None]] = []

    def callFromThread(self, call: Callable[..., Any], *arguments: object, **named: object) -> None:
        """Keep it."""
        self.from_thread.append(lambda: call(*arguments, **named))

    def deliver(self) -> None:
        """Make the calls."""
        calls, self.from_thread = self.from_thread, []
        for call in calls:
            call()


class HandLane:
    """A lane that works when the test says so."""

    def __init__(self, _name: str, work: Callable[[Sequence[Any]], None], finish: Callable[[], None]) -> None:
        self._work = work
        self._finish = finish
        self.tasks: list[Any] = []
        self.stopped = False

    def submit(self, task: Any) -> None:
        """Queue it."""
        self.tasks.append(task)

    def stop(self) -> None:
        """Note that it is to end."""
        self.stopped = True

    def run(self) -> int:
        """Do what is queued; give how much."""
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            self._work([task])
        if self.stopped:
            self._finish()
        return len(tasks)


class Notes(RecordingObserver):
    """Keeps what a journal reports."""

    def __init__(self) -> None:
        super().__init__()
        self.troubles: list[str | None] = []

    def accepting_changed(self, trouble: StoreError | None) -> None:
        """Keep the reason."""
        self.troubles.append(None if trouble is None else trouble.reason)


class Quick(sqlite3.Connection):
    """
    A connection that does not wait for the disk, and breaks when it is told to.

    Attributes:
        error: what the next COMMITs raise.
        times: how many of them; all where it is 0.
        after: whether they commit before.
    """

    error: sqlite3.Error | None = None
    times = 0
    after = False

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:  # type: ignore[override]
        """Leave synchronisation out."""
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


def quick_connect(path: str) -> sqlite3.Connection:
    """Connect as the product does, without waiting for the disk."""
    return sqlite3.connect(path, BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=Quick)


def broken(code: int) -> sqlite3.OperationalError:
    """An error of SQLite with its code."""
    error = sqlite3.OperationalError("the disk is not well")
    error.sqlite_errorcode = code
    return error


class Kept:
    """
    A database and who writes to it.

    Args:
        folder: where it lies.
        more: further arguments of ``open_journal``.
    """

    def __init__(self, folder: str, **more: Any) -> None:
        self.path = os.path.join(os.path.abspath(folder), "kept", "broker.db")
        self.more: dict[str, Any] = {"reserve_size": 0, "connect": quick_connect, **more}
        self.notes = Notes()
        self.reactor = HandReactor()
        self.lane: HandLane
        self.journal: SqliteJournal

    def begin(self) -> Remains:
        """Open it."""

        def lane(*arguments: Any) -> HandLane:
            self.lane = HandLane(*arguments)
            return self.lane

        self.reactor = HandReactor()
        self.journal, remains = open_journal(
            self.path, reactor=self.reactor, observer=self.notes, lanes=lane, **self.more
        )
        return remains

    def rig(self, remains: Remains, clock: Any = None, **more: Any) -> Rig:
        """Make a core over it."""
        rig = Rig(EVERYBODY, journal=self.journal, **more)
        if clock is not None:
            rig.clock.now = clock
        rig.hub.restore(remains)
        return rig

    def round(self) -> None:
        """End a round of the reactor."""
        self.reactor.advance(0)

    def commit(self) -> int:
        """End the round, let the thread work once and take what it says; give how many groups there were."""
        self.round()
        ran = self.lane.run()
        self.reactor.deliver()
        return ran

    def settle(self) -> None:
        """Commit until nothing waits."""
        while self.journal.waiting[0]:
            self.commit()

    def crash(self) -> None:
        """End it as kill -9 does: what the thread did not write is gone, what it wrote and did not say is there."""
        groups = self.journal._groups
        writer = groups._writer
        writer._disconnect()  # type: ignore[attr-defined]
        writer._reserve.close()  # type: ignore[attr-defined]
        self.lane.tasks.clear()
        self.reactor.from_thread.clear()

    def close(self) -> None:
        """End it in order."""
        closed = self.journal.close()
        self.lane.run()
        self.reactor.deliver()
        assert closed.called

    def rows(self, table: str) -> int:
        """Count rows."""
        connection = sqlite3.connect(self.path)
        try:
            (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        finally:
            connection.close()
        return int(count)


__all__ = ["GroupLimits", "HandLane", "HandReactor", "Kept", "Notes", "Quick", "broken", "quick_connect"]

"""A broker core on its real database, with a writer thread that the test runs step by step and can crash."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import AccessRule, Rules
from svc.broker.journal import RecoveredState
from svc.broker.persistence.journal import SqliteJournal
from svc.broker.persistence.opening import open_journal
from svc.identity.matchers import parse_matcher
from svc.wire.mqtt import Properties
from tests.broker.rig import Peer, Rig
from tests.sqlite.stepwise import HandReactor, HandThread, Notes, Quick, quick_connect

Made = TypeVar("Made")

LASTING: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry=3600)}
TABLES = ("session", "subscription", "message", "delivery", "received", "retained")
EVERYBODY = Rules(
    (AccessRule(None, ("#",), ("#",)), AccessRule(parse_matcher("spiffe://example.org/*"), ("#",), ("#",)))
)


class Kept:
    """
    A database with its writer.

    Args:
        folder: the folder of the database.
        more: further arguments of ``open_journal``.
    """

    def __init__(self, folder: str, **more: Any) -> None:
        self.path = os.path.join(os.path.abspath(folder), "kept", "broker.db")
        self.more: dict[str, Any] = {"reserve_size": 0, "connect": quick_connect, **more}
        self.notes = Notes()
        self.reactor = HandReactor()
        self.thread: HandThread
        self.journal: SqliteJournal

    def begin(self) -> RecoveredState:
        """Open the database; return the recovered state."""
        return self._opened(lambda _journal, recovered: recovered)

    def rig(self, clock: float | None = None, **more: Any) -> Rig:
        """Open the database and create a core on it."""

        def make(journal: SqliteJournal, recovered: RecoveredState) -> Rig:
            rig = Rig(**{"guard": EVERYBODY, **more}, journal=journal)
            if clock is not None:
                rig.clock.now = clock
            rig.hub.restore(recovered)
            return rig

        return self._opened(make)

    def opening(self, make: Callable[[SqliteJournal, RecoveredState], Made]) -> Deferred[tuple[SqliteJournal, Made]]:
        """Begin to open the database; ``thread`` is the thread that does it."""

        def start(*arguments: Any) -> HandThread:
            self.thread = HandThread(*arguments)
            return self.thread

        self.reactor = HandReactor()
        return open_journal(self.path, make, reactor=self.reactor, observer=self.notes, start_thread=start, **self.more)

    def _opened(self, make: Callable[[SqliteJournal, RecoveredState], Made]) -> Made:
        results: list[tuple[SqliteJournal, Made]] = []
        failures: list[Failure] = []
        self.opening(make).addCallbacks(results.append, failures.append)
        opening = self.thread
        for _turn in ("it works", "it ends"):
            opening.run()
            self.reactor.deliver()
        for failure in failures:
            failure.raiseException()
        [(self.journal, made)] = results
        return made

    def round(self) -> None:
        """End a round of the reactor."""
        self.reactor.advance(0)

    def commit(self) -> int:
        """End the round, run the thread once and deliver its calls; return the number of groups."""
        self.round()
        ran = self.thread.run()
        self.reactor.deliver()
        return ran

    def settle(self) -> None:
        """Commit until nothing is pending."""
        while self.journal.waiting[0]:
            self.commit()

    def crash(self) -> None:
        """End as kill -9 does: unwritten changes are lost, written ones are there even if not yet reported."""
        groups = self.journal._groups
        writer = groups._writer
        writer._disconnect()
        writer._file.close()
        self.thread.tasks.clear()
        self.reactor.from_thread.clear()

    def close(self) -> None:
        """Close the database in order."""
        closed = self.journal.close()
        self.thread.run()
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


class KeptCase(SynchronousTestCase):
    """Base class: a database, a core on it, and a thread that runs step by step."""

    more: dict[str, Any] = {}

    def setUp(self) -> None:
        """Begin with an empty database."""
        self.kept = Kept(self.mktemp(), **self.more)
        self.rig = self.kept.rig()
        self.addCleanup(self.kept.crash)
        self.addCleanup(setattr, Quick, "error", None)
        self.addCleanup(setattr, Quick, "after", False)

    def persistent(self, client_id: str, *filters: Any, **more: Any) -> Peer:
        """Connect a client with a persistent session; it and its subscriptions are durable."""
        peer = self.rig.connect(client_id, read_answer=False, **{**LASTING, **more})
        self.kept.settle()
        if filters:
            peer.subscribes(*filters)
            self.kept.settle()
        peer.take()
        return peer

    def again(self) -> Rig:
        """Crash and restart, at the same time of day."""
        self.kept.crash()
        self.rig = self.kept.rig(self.rig.clock.now)
        return self.rig

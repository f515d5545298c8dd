"""
The opening of the broker's database.

A thread of its own opens and reads it and lets the caller build on it; meanwhile the reactor runs, waits as long as the
disk responds, and the thread stops when the opening is cancelled.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall

from svc.broker.journal import RecoveredSession, RecoveredState
from svc.broker.persistence.journal import SqliteJournal
from svc.broker.persistence.loading import SLICE, Found, Progressed, Unreadable, load
from svc.broker.persistence.schema import BROKER
from svc.broker.persistence.writer import JournalWriter
from svc.errors import SvcError
from svc.process.clock import utc_now
from svc.sqlite import database
from svc.sqlite.connection import open_connection
from svc.sqlite.database import DatabaseFile
from svc.sqlite.errors import DatabaseCorrupt, DatabaseError, DatabaseQuarantined, JournalError, JournalStuck
from svc.sqlite.groups import GroupLimits, GroupObserver, Groups, SilentGroupObserver
from svc.sqlite.kind import Connect
from svc.sqlite.threads import BoundedClose, JobThread, StartThread, ThreadReactor

#: Octets kept back on the disk for what runs when it becomes full: acknowledgements and ends, which are small.
RESERVE_SIZE: Final = 8 * 1024 * 1024
#: Seconds within which the disk must respond while the database is opened and read.
SILENT_SECONDS: Final = 60.0

T = TypeVar("T")


def open_journal(
    path: str,
    make: Callable[[SqliteJournal, RecoveredState], T],
    *,
    reactor: ThreadReactor,
    observer: GroupObserver | None = None,
    limits: GroupLimits | None = None,
    timeout: float = SILENT_SECONDS,
    reserve_size: int = RESERVE_SIZE,
    connect: Connect = open_connection,
    start_thread: StartThread = JobThread,
    wall: Callable[[], datetime] = utc_now,
) -> Deferred[tuple[SqliteJournal, T]]:
    """
    Open the database, create or migrate it, read all of it and build on it, in a thread; called once, at start.

    Args:
        path: of the database; its folder is created where it is absent.
        make: called in the thread with the journal and the recovered state; makes what uses them, such as a
            :class:`~svc.broker.broker.Broker`. Nothing else may touch that until the Deferred fires.
        reactor: ends rounds, makes calls for the thread, measures times.
        observer: receives reports on the database.
        limits: how much may wait, and for how long; its ``late`` bounds a cancellation too.
        timeout: seconds within which the disk must respond.
        reserve_size: octets kept back on the disk for what runs when it becomes full.
        connect: opens connections.
        start_thread: starts the threads.
        wall: returns the time that names a quarantined database.

    Returns:
        Fires with the journal and what ``make`` returned, on the reactor's thread; the journal accepts changes from
        then on. Fails with a DatabaseError that names what is wrong and what to do, or with what ``make`` raised.
        Cancelled, it fails with CancelledError when the thread has closed the database, and with JournalStuck where a
        disk that hangs prevents that.
    """
    opening = _Opening(
        DatabaseFile(path, BROKER, reserve_size=reserve_size, connect=connect),
        make,
        reactor,
        observer or SilentGroupObserver(),
        limits or GroupLimits(),
        timeout,
        start_thread,
        wall,
    )
    return Deferred.fromCoroutine(opening.run())


def check_file(path: str) -> None:
    """Whether the database could be opened, without opening or creating anything; raises as :func:`open_journal`."""
    database.check_file(path, BROKER, RESERVE_SIZE)


class _Abandoned(Exception):
    """The opening was cancelled, or took too long."""


@dataclass(frozen=True, slots=True)
class _Built(Generic[T]):
    """What the thread passes to the reactor's thread."""

    writer: JournalWriter
    groups: Groups
    journal: SqliteJournal
    made: T


@dataclass(eq=False)
class _Opening(Generic[T]):
    """One opening; its arguments are those of :func:`open_journal`."""

    _file: DatabaseFile
    _make: Callable[[SqliteJournal, RecoveredState], T]
    _reactor: ThreadReactor
    _observer: GroupObserver
    _limits: GroupLimits
    _timeout: float
    _start_thread: StartThread
    _wall: Callable[[], datetime]

    def __post_init__(self) -> None:
        self._result: Deferred[_Built[T]] = Deferred()
        self._closing = BoundedClose(self._reactor, self._limits.late, self._stuck)
        self._watch: IDelayedCall | None = None
        # Shared with the thread: when the disk last responded, whether it is still read, whether to stop.
        self._responded = self._reactor.seconds()
        self._reading = True
        self._abandoned = False

    async def run(self) -> tuple[SqliteJournal, T]:
        """Open it, on the reactor's thread."""
        thread: JobThread[Callable[[], object]] = self._start_thread("svc-broker-opening", _work, self._thread_ended)
        thread.submit(lambda: self._open(thread))
        self._watch = self._reactor.callLater(self._timeout, self._check_silence)
        try:
            built = await self._result
        except CancelledError:
            self._stop_watching()
            self._abandoned = True
            await self._closing.begin()
            raise
        except DatabaseError as error:
            self._observer.db_error("init", str(error))
            raise
        finally:
            self._stop_watching()
        if built.writer.degraded:
            # What is stored can be delivered; new changes wait until the disk has room for the reserve again.
            self._observer.db_error("init", built.writer.trouble)
        built.groups.start(built.writer.trouble)
        return built.journal, built.made

    def _opened(self, thread: JobThread[Callable[[], object]], result: _Built[T] | BaseException) -> None:
        if isinstance(result, DatabaseQuarantined):
            self._observer.set_aside(result.path, result.quarantined)
        if self._file.quarantined:
            self._observer.lies_aside(self._file.quarantined)
        if not self._result.called:
            thread.stop()
            if isinstance(result, _Built):
                self._result.callback(result)
            else:
                self._result.errback(result)
            return
        if isinstance(result, _Built):
            thread.submit(result.writer.close)
        thread.stop()

    def _check_silence(self) -> None:
        self._watch = None
        if not self._reading:
            return
        left = self._timeout - (self._reactor.seconds() - self._responded)
        if left > 0:
            self._watch = self._reactor.callLater(left, self._check_silence)
            return
        self._abandoned = True
        self._result.errback(
            JournalError("mqtt_store_late", path=self._file.path, seconds=self._timeout, **BROKER.words)
        )

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _stuck(self) -> SvcError:
        stuck = JournalStuck(path=self._file.path, seconds=self._limits.late, **BROKER.words)
        self._observer.db_error("close", str(stuck))
        return stuck

    # On the opening thread.

    def _progressed(self) -> None:
        self._responded = self._reactor.seconds()
        if self._abandoned:
            raise _Abandoned

    def _open(self, thread: JobThread[Callable[[], object]]) -> None:
        result: _Built[T] | BaseException
        try:
            writer, found = self._open_and_read()
            result = self._build(writer, found)
        except BaseException as error:  # noqa: BLE001 (whatever it is, it is the result)
            result = error
        self._reactor.callFromThread(self._opened, thread, result)

    def _open_and_read(self) -> tuple[JournalWriter, Found]:
        file = self._file
        connection: sqlite3.Connection | None = None
        try:
            file.lock()
            self._progressed()
            connection = file.open(self._wall)
            self._progressed()
            found = load(connection, self._progressed)
            writer = JournalWriter(file, connection)
            writer.fill_reserve()
        except BaseException as error:
            if connection is not None:
                connection.close()
            file.close()
            if isinstance(error, Unreadable):
                detail = f"its content is contradictory: {error}"
                raise DatabaseCorrupt(path=file.path, detail=detail, **BROKER.words) from error
            if isinstance(error, sqlite3.Error):
                raise file.error(error) from error
            raise
        self._reading = False
        return writer, found

    def _build(self, writer: JournalWriter, found: Found) -> _Built[T]:
        try:
            groups = Groups(
                self._file.path,
                writer,
                thread_name="svc-broker-store",
                words=BROKER.words,
                reactor=self._reactor,
                observer=self._observer,
                limits=self._limits,
                start_thread=self._start_thread,
            )
            journal = SqliteJournal(groups, found)
            sessions = _Sessions(found.recovered.sessions, self._progressed)
            made = self._make(journal, RecoveredState(sessions, found.recovered.retained))
        except BaseException:
            writer.close()
            raise
        return _Built(writer, groups, journal, made)

    def _thread_ended(self) -> None:
        self._reactor.callFromThread(self._closing.finish)


def _work(jobs: Sequence[Callable[[], object]]) -> None:
    for job in jobs:
        job()


class _Sessions(list[RecoveredSession]):
    """Recovered sessions that report progress after each slice while they are iterated."""

    def __init__(self, sessions: Sequence[RecoveredSession], progressed: Progressed) -> None:
        super().__init__(sessions)
        self._progressed = progressed

    def __iter__(self) -> Iterator[RecoveredSession]:
        for number, session in enumerate(super().__iter__()):
            if number % SLICE == 0:
                self._progressed()
            yield session

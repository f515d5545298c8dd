"""
The opening of the broker's database, as the reactor sees it.

Owns who waits for whom: a thread of its own opens and reads and lets the caller build on it, the reactor goes on
meanwhile, waits as long as the disk gives something, and lets go when nobody waits any more. What the thread does is
the business of :mod:`svc.broker.persistence.database`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar, overload

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorFromThreads

from svc.broker.journal import RecoveredSession, RecoveredState
from svc.broker.persistence.database import Opened, Place, Progress, open_and_read
from svc.broker.persistence.errors import PersistenceSilent, PersistenceStuck, in_our_words
from svc.broker.persistence.groups import GroupLimits, Groups, JournalObserver, SilentJournalObserver
from svc.broker.persistence.journal import SqliteJournal
from svc.broker.persistence.loading import SLICE, Going
from svc.broker.persistence.writer import JournalWriter
from svc.process.clock import utc_now
from svc.store.ending import BoundedEnd
from svc.store.errors import StoreError
from svc.store.interface import SilentStoreObserver
from svc.store.lanes import Lane, ThreadLane
from svc.store.schema import Connect, plain_connect
from svc.store.threaded import LaneMaker, StoreReactor

#: Octets kept back on the disk for what runs when it becomes full: acknowledgements and ends, which are small.
RESERVE_SIZE: Final = 8 * 1024 * 1024
#: Seconds that the disk may give nothing while the database is opened and read.
SILENT_SECONDS: Final = 60.0

T = TypeVar("T")


def open_journal(
    path: str,
    make: Callable[[SqliteJournal, RecoveredState], T],
    *,
    reactor: StoreReactor,
    observer: JournalObserver | None = None,
    limits: GroupLimits | None = None,
    timeout: float = SILENT_SECONDS,
    reserve_size: int = RESERVE_SIZE,
    connect: Connect = plain_connect,
    lanes: LaneMaker = ThreadLane,
    wall: Callable[[], datetime] = utc_now,
) -> Deferred[tuple[SqliteJournal, T]]:
    """
    Open the database, make it or bring it to the current schema, read all of it and build on it; called once, at start.

    All of that is done in a thread, so that the reactor goes on however much there is.

    Args:
        path: of the database; its folder is made if need be.
        make: called in the thread with the journal and what it kept; makes what uses them, such as a
            :class:`~svc.broker.broker.Broker`. Nobody else may touch what it makes until it is handed over.
        reactor: ends rounds, takes results from the thread, measures times.
        observer: told how the database is.
        limits: how much may wait, and for how long; its ``late`` bounds a cancellation too.
        timeout: seconds that the disk may give nothing before it is given up.
        reserve_size: octets kept back on the disk for what runs when it becomes full.
        connect: makes connections.
        lanes: starts the threads.
        wall: tells the time that names a damaged database which is set aside.

    Returns:
        Fires with the journal and what ``make`` gave, on the reactor's thread; the journal takes something from then
        on. Fails with a StoreError whose subclass names what is wrong and what to do, or with what ``make`` raised.
        Cancelled, it fails with CancelledError when the thread has let go of the database, and with PersistenceStuck
        where a disk that hangs keeps it from that.
    """
    place = Place(path, reserve_size, connect, wall)
    opening = _Opening(
        place,
        make,
        reactor=reactor,
        observer=observer or SilentJournalObserver(),
        limits=limits or GroupLimits(),
        timeout=timeout,
        lanes=lanes,
    )
    return Deferred.fromCoroutine(opening.run())


@dataclass(frozen=True, slots=True)
class _Built(Generic[T]):
    """What the thread hands over."""

    writer: JournalWriter
    detail: str
    groups: Groups
    journal: SqliteJournal
    made: T


class _Opening(Generic[T]):
    """One opening; its arguments are those of :func:`open_journal`."""

    def __init__(
        self,
        place: Place,
        make: Callable[[SqliteJournal, RecoveredState], T],
        *,
        reactor: StoreReactor,
        observer: JournalObserver,
        limits: GroupLimits,
        timeout: float,
        lanes: LaneMaker,
    ) -> None:
        self._place = place
        self._make = make
        self._reactor = reactor
        self._observer = observer
        self._limits = limits
        self._timeout = timeout
        self._lanes = lanes
        self._progress = Progress(reactor.seconds)
        self._result: Deferred[_Built[T]] = Deferred()
        self._ending = BoundedEnd(reactor, limits.late, self._stuck)
        self._watch: IDelayedCall | None = None

    async def run(self) -> tuple[SqliteJournal, T]:
        """Do it, on the reactor's thread."""
        lane: Lane[Callable[[], object]] = self._lanes("svc-broker-opening", _work, self._finish)
        lane.submit(lambda: self._open(lane))
        self._watch = self._reactor.callLater(self._timeout, self._judge_silence)
        try:
            built = await self._result
        except CancelledError:
            self._stop_watching()
            self._progress.abandoned = True
            await self._ending.begin()
            raise
        except StoreError as error:
            ours = in_our_words(error)
            self._observer.db_error("init", "db", str(ours))
            if ours is error:
                raise
            raise ours from error
        finally:
            self._stop_watching()
        if built.detail:
            self._observer.db_error("init", "db", built.detail)
        built.groups.start(built.detail)
        return built.journal, built.made

    def _came(self, lane: Lane[Callable[[], object]], came: _Built[T] | BaseException) -> None:
        waited_for = not self._result.called
        if not waited_for and isinstance(came, _Built):
            lane.submit(came.writer.close)
        lane.stop()
        if not waited_for:
            return
        if isinstance(came, _Built):
            self._result.callback(came)
        else:
            self._result.errback(came)

    def _judge_silence(self) -> None:
        self._watch = None
        if not self._progress.reading:
            return
        left = self._timeout - (self._reactor.seconds() - self._progress.moved)
        if left > 0:
            self._watch = self._reactor.callLater(left, self._judge_silence)
            return
        self._progress.abandoned = True
        self._result.errback(PersistenceSilent(path=self._place.path, seconds=self._timeout))

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _stuck(self) -> StoreError:
        stuck = PersistenceStuck(path=self._place.path, seconds=self._limits.late)
        self._observer.db_error("close", "db", str(stuck))
        return stuck

    # In the thread.

    def _open(self, lane: Lane[Callable[[], object]]) -> None:
        came: _Built[T] | BaseException
        try:
            told = _Relayed(self._reactor, self._observer)
            came = self._built_on(open_and_read(self._place, told, self._progress))
        except BaseException as error:  # noqa: BLE001 (whatever it is, somebody on the reactor's thread waits for it)
            came = error
        self._reactor.callFromThread(self._came, lane, came)

    def _built_on(self, opened: Opened) -> _Built[T]:
        self._progress.reading = False
        writer, found = opened.writer, opened.found
        try:
            groups = Groups(
                self._place.path,
                writer,
                reactor=self._reactor,
                observer=self._observer,
                limits=self._limits,
                lanes=self._lanes,
            )
            journal = SqliteJournal(groups, found)
            sessions = _Watched(found.recovered.sessions, self._progress.going)
            made = self._make(journal, RecoveredState(sessions, found.recovered.retained))
        except BaseException:
            writer.close()
            raise
        return _Built(writer, opened.detail, groups, journal, made)

    def _finish(self) -> None:
        self._reactor.callFromThread(self._ending.come)


def _work(jobs: Sequence[Callable[[], object]]) -> None:
    for job in jobs:
        job()


class _Relayed(SilentStoreObserver):
    """Tells an observer on the reactor's thread what happens in another one."""

    def __init__(self, reactor: IReactorFromThreads, observer: JournalObserver) -> None:
        self._reactor = reactor
        self._observer = observer

    def set_aside(self, path: str, aside: str) -> None:
        """Tell it."""
        self._reactor.callFromThread(self._observer.set_aside, path, aside)

    def lies_aside(self, paths: Sequence[str]) -> None:
        """Tell it."""
        self._reactor.callFromThread(self._observer.lies_aside, paths)


class _Watched(Sequence[RecoveredSession]):
    """Sessions that say after each slice that they go on, to whoever walks through them."""

    def __init__(self, sessions: Sequence[RecoveredSession], going: Going) -> None:
        self._sessions = sessions
        self._going = going

    def __len__(self) -> int:
        return len(self._sessions)

    @overload
    def __getitem__(self, index: int) -> RecoveredSession: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[RecoveredSession]: ...

    def __getitem__(self, index: int | slice) -> RecoveredSession | Sequence[RecoveredSession]:
        return self._sessions[index]

    def __iter__(self) -> Iterator[RecoveredSession]:
        for number, session in enumerate(self._sessions):
            if number % SLICE == 0:
                self._going()
            yield session

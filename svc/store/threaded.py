"""
The reactor's side of a store whose work is done in two threads.

Owns the two lanes, the bound on what may wait and the way back to the reactor: results of a group arrive there in one
call. What is written and read, and in which database, is the business of a subclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorFromThreads, IReactorTime
from zope.interface import implementer

from svc.store.ending import BoundedEnd
from svc.store.errors import StoreBusy, StoreClosed, StoreError, StoreLate, StoreStuck
from svc.store.interface import Entity, INotaryStore, Operation, SilentStoreObserver, StoreObserver
from svc.store.lanes import Lane, ThreadLane
from svc.store.loops import Get, Prune, Put, Reading, ReadLoop, Recover, Settlement, WriteJob, WriteLoop, Writing
from svc.store.records import StatementRecord, StoredReceipt
from svc.store.rows import Row, StatementRow

#: Records, and readings, that may wait; a record of a signed exchange is about 10 KB.
QUEUE_LIMIT: Final = 1024
RETRY_SECONDS: Final = 1.0
#: How long what was handed over may wait for its commit before it counts as late, and an end for its database.
COMMIT_SECONDS: Final = 10.0

T = TypeVar("T")


class StoreReactor(IReactorFromThreads, IReactorTime):
    """Takes calls from threads and measures times."""


class LaneMaker(Protocol):
    """Starts lanes."""

    def __call__(self, name: str, work: Callable[[Sequence[Any]], None], finish: Callable[[], None]) -> Lane[Any]:
        """Start a lane that gives groups of jobs to ``work`` and calls ``finish`` after the last."""


@implementer(INotaryStore)
class ThreadedStore(ABC):
    """
    Keeps statements and receipts; a subclass opens the database.

    Args:
        reactor: takes results from the threads and runs the retry timer.
        observer: told of errors, commits and changes of :attr:`writable`.
        queue_limit: records that may wait to be written, and readings that may wait, before StoreBusy.
        retry_interval: seconds between attempts to become writable again.
        commit_timeout: seconds that a record may wait for its commit before StoreLate, and closing may take before
            StoreStuck.
        lanes: starts the threads.
    """

    #: What a reading raises where the database refuses.
    refusals: tuple[type[Exception], ...] = ()

    def __init__(
        self,
        *,
        reactor: StoreReactor,
        observer: StoreObserver | None = None,
        queue_limit: int = QUEUE_LIMIT,
        retry_interval: float = RETRY_SECONDS,
        commit_timeout: float = COMMIT_SECONDS,
        lanes: LaneMaker = ThreadLane,
    ) -> None:
        self.writable = False
        self.trouble = ""
        self._reactor = reactor
        self._observer = observer if observer is not None else SilentStoreObserver()
        self._queue_limit = queue_limit
        self._retry_interval = retry_interval
        self._retries = 0
        self._commit_timeout = commit_timeout
        self._pending: deque[tuple[float, Put]] = deque()
        self._lateness: IDelayedCall | None = None
        self._make_lane = lanes
        self._waiting_writes = 0
        self._waiting_reads = 0
        self._retry: IDelayedCall | None = None
        self._write_lane: Lane[WriteJob] | None = None
        self._read_lane: Lane[Get] | None = None
        self._lanes_open = 0
        self._ending = BoundedEnd(reactor, commit_timeout, self._stuck)

    def _start_writing(self, loop: WriteLoop) -> Lane[WriteJob]:
        """Start the writer's thread."""
        return self._make_lane("svc-store-writer", loop.work, loop.finish)

    def _retry_delay(self, attempt: int) -> float:
        """Seconds until the next attempt to become writable again; the first is number 0."""
        return self._retry_interval

    @abstractmethod
    def _open(self) -> tuple[Writing, Reading]:
        """Open the database; raises StoreError."""

    @abstractmethod
    def _unavailable(self, error: Exception) -> StoreError:
        """Name what the database refused."""

    def init(self) -> None:
        """
        Open the database; see :meth:`INotaryStore.init`.

        Raises:
            StoreError: the subclass names what is wrong and what to do.
        """
        try:
            writer, reader = self._open()
        except (StoreError, OSError) as error:
            self._observer.db_error("init", "db", str(error))
            raise
        writing = WriteLoop(writer, self._unavailable, self, self._deliver)
        reading = ReadLoop(reader, self.refusals, self._unavailable, self, self._deliver)
        self._lanes_open = 2
        self._write_lane = self._start_writing(writing)
        writing.attach(self._write_lane)
        self._read_lane = self._make_lane("svc-store-reader", reading.work, reading.finish)
        if writer.degraded:
            # Nobody would hear of it otherwise: it was not writable before either.
            self._observer.writable_changed(False, writer.trouble)
        self.show_writable(not writer.degraded, writer.trouble)

    def put_statement(self, statement: StatementRecord) -> Deferred[None]:
        """
        Store a statement; see :meth:`INotaryStore.put_statement`.

        Args:
            statement: the statement.

        Returns:
            Fires after the durable commit.
        """
        expires = int(statement.expires.timestamp())
        return self._put(StatementRow(statement.id, expires, statement.envelope.serialize()))

    def put_receipt(self, receipt: StoredReceipt) -> Deferred[None]:
        """
        Store a record of an exchange; see :meth:`INotaryStore.put_receipt`.

        Args:
            receipt: the record.

        Returns:
            Fires after the durable commit.
        """
        return self._put(receipt)

    def get_statement(self, statement_id: str) -> Deferred[bytes | None]:
        """
        Find a statement; see :meth:`INotaryStore.get_statement`.

        Args:
            statement_id: its id.

        Returns:
            Its envelope, or None.
        """
        return self._get(lambda reader: reader.statement(statement_id), "workload_statement")

    def get_receipt(self, receipt_id: str) -> Deferred[StoredReceipt | None]:
        """
        Find a record by its id; see :meth:`INotaryStore.get_receipt`.

        Args:
            receipt_id: the id.

        Returns:
            The record, or None.
        """
        return self._get(lambda reader: reader.receipt(receipt_id), "receipt")

    def get_by_request(self, client: str, key: str) -> Deferred[StoredReceipt | None]:
        """
        Find a record by nonce or ``jti``; see :meth:`INotaryStore.get_by_request`.

        Args:
            client: whose records are looked at.
            key: the nonce or ``jti``.

        Returns:
            The record, or None.
        """
        return self._get(lambda reader: reader.by_request(client, key), "receipt")

    def nonce_known(self, client: str, nonce: str) -> Deferred[bool]:
        """
        Say whether a client's nonce is stored; see :meth:`INotaryStore.nonce_known`.

        Args:
            client: whose.
            nonce: which.

        Returns:
            True or False.
        """
        return self._get(lambda reader: reader.nonce_known(client, nonce), "receipt")

    def reserve(self, client: str, nonce: str) -> Deferred[bool]:
        """
        Keep a nonce for an exchange that begins; see :meth:`INotaryStore.reserve`.

        Args:
            client: whose.
            nonce: which.

        Returns:
            True where it was free.
        """
        return self._get(lambda reader: reader.reserve(client, nonce), "receipt")

    def give_back(self, client: str, nonce: str) -> Deferred[None]:
        """
        Give a nonce back; see :meth:`INotaryStore.give_back`.

        Args:
            client: whose.
            nonce: which.

        Returns:
            Fires when it is given back.
        """
        return self._get(lambda reader: reader.give_back(client, nonce), "receipt")

    def reserved(self, client: str, nonce: str) -> Deferred[bool]:
        """
        Say whether an exchange with this nonce runs elsewhere; see :meth:`INotaryStore.reserved`.

        Args:
            client: whose.
            nonce: which.

        Returns:
            True or False.
        """
        return self._get(lambda reader: reader.reserved(client, nonce), "receipt")

    def prune(self, before: int) -> Deferred[int]:
        """
        Forget what is old; see :meth:`INotaryStore.prune`.

        Args:
            before: NumericDate.

        Returns:
            The number of records forgotten.
        """
        if self._write_lane is None:
            return fail(StoreClosed())
        job = Prune(before, Deferred())
        self._write_lane.submit(job)
        return job.done

    def close(self) -> Deferred[None]:
        """
        Commit what waits and let go of the database; see :meth:`INotaryStore.close`.

        Returns:
            Fires when all is closed, or fails with StoreStuck.
        """
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        write_lane, self._write_lane = self._write_lane, None
        read_lane, self._read_lane = self._read_lane, None
        if write_lane is None or read_lane is None:
            return succeed(None)
        ended = self._ending.begin()
        # The reader first: whoever closes the last connection takes the log with him.
        read_lane.stop()
        write_lane.stop()
        return ended

    def _put(self, row: Row) -> Deferred[None]:
        if self._write_lane is None:
            return fail(StoreClosed())
        if self._waiting_writes >= self._queue_limit:
            return fail(StoreBusy(limit=self._queue_limit))
        self._waiting_writes += 1
        put = Put(row, Deferred())
        self._pending.append((self._reactor.seconds() + self._commit_timeout, put))
        self._watch_for_lateness()
        self._write_lane.submit(put)
        return put.done

    def _get(self, read: Callable[[Reading], T], entity: Entity) -> Deferred[T]:
        if self._read_lane is None:
            return fail(StoreClosed())
        if self._waiting_reads >= self._queue_limit:
            return fail(StoreBusy(limit=self._queue_limit))
        self._waiting_reads += 1
        done: Deferred[T] = Deferred()
        self._read_lane.submit(Get(read, entity, done))
        return done

    def _watch_for_lateness(self) -> None:
        """Keep one timer, for the record that waits longest."""
        while self._pending and self._pending[0][1].over:
            self._pending.popleft()
        if self._pending and self._lateness is None:
            delay = max(0.0, self._pending[0][0] - self._reactor.seconds())
            self._lateness = self._reactor.callLater(delay, self._judge_lateness)
        elif not self._pending and self._lateness is not None:
            self._lateness.cancel()
            self._lateness = None

    def _judge_lateness(self) -> None:
        self._lateness = None
        now = self._reactor.seconds()
        late: list[Put] = []
        for until, put in self._pending:
            if until > now:
                break
            if not put.over:
                put.over = True
                late.append(put)
        if late:
            # Whatever the thread waits for, no new exchange should wait for it too.
            trouble = str(StoreLate(seconds=self._commit_timeout))
            self._observer.db_error("put", "db", trouble)
            self.show_writable(False, trouble)
        self._watch_for_lateness()
        for put in late:
            put.done.errback(StoreLate(seconds=self._commit_timeout))

    def _stuck(self) -> StoreError:
        """Wait no more for threads that do not end; they end with the process."""
        if self._lateness is not None:
            self._lateness.cancel()
            # Every record was put before the end began, so each has had its time.
            self._judge_lateness()
        stuck = StoreStuck(seconds=self._commit_timeout)
        self._observer.db_error("close", "db", str(stuck))
        return stuck

    def _deliver(self, settlements: Sequence[Settlement]) -> None:
        self._reactor.callFromThread(_settle, settlements)

    def _try_again(self, lane: Lane[WriteJob]) -> None:
        self._retry = None
        lane.submit(Recover())

    # What settlements call, on the reactor's thread: svc.store.loops.Desk.

    def wrote(self, jobs: Sequence[Put], results: Sequence[StoreError | None], seconds: float) -> None:
        """
        Tell who waits what came of a group.

        Args:
            jobs: the group.
            results: for each None, or why its record is not stored.
            seconds: how long the commit took.
        """
        self._waiting_writes -= len(jobs)
        stored = sum(result is None for result in results)
        if stored:
            self._observer.committed(stored, seconds)
        waiting = [(job, result) for job, result in zip(jobs, results, strict=True) if not job.over]
        for job, _result in waiting:
            job.over = True
        self._watch_for_lateness()
        for job, result in waiting:
            if result is None:
                job.done.callback(None)
            else:
                job.done.errback(result)

    def read(self, job: Get, result: object) -> None:
        """
        Tell who waits what was read.

        Args:
            job: the reading.
            result: what was found, or a StoreError.
        """
        self._waiting_reads -= 1
        if isinstance(result, StoreError):
            job.done.errback(result)
        else:
            job.done.callback(result)

    def refused(self, op: Operation, entity: Entity, detail: str = "") -> None:
        """
        Tell the observer of a refusal.

        Args:
            op: what was tried.
            entity: on what.
            detail: what the database said.
        """
        self._observer.db_error(op, entity, detail)

    def show_writable(self, writable: bool, trouble: str = "") -> None:
        """
        Take over whether new records can be promised a place.

        Args:
            writable: as the writer judged last.
            trouble: why not, as it was said last.
        """
        writable = writable and self._write_lane is not None
        self.trouble = "" if writable else trouble or self.trouble
        if writable != self.writable:
            self.writable = writable
            self._observer.writable_changed(writable, self.trouble)
        if writable:
            self._retries = 0
        elif self._retry is None and self._write_lane is not None:
            delay = self._retry_delay(self._retries)
            self._retry = self._reactor.callLater(delay, self._try_again, self._write_lane)
            self._retries += 1

    def closed(self) -> None:
        """Count a thread that is about to end."""
        self._lanes_open -= 1
        if self._lanes_open == 0 and self._ending.awaited:
            self.show_writable(False)
            self._ending.come()


def _settle(settlements: Sequence[Settlement]) -> None:
    for settlement in settlements:
        settlement()

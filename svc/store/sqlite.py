"""
The embedded notary store.

Owns the two lanes, the bound on what may wait and the way back to the reactor: results of a group arrive there in one
call. What is written and read is the business of ``writer`` and ``reader``.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorFromThreads, IReactorTime
from zope.interface import implementer

from svc.store.errors import StoreBusy, StoreClosed, StoreError, StoreUnavailable
from svc.store.interface import Entity, INotaryStore, Operation, SilentStoreObserver, StoreObserver
from svc.store.lanes import Lane, ThreadLane
from svc.store.loops import Get, Prune, Put, ReadLoop, Recover, Settlement, WriteJob, WriteLoop
from svc.store.reader import Reader
from svc.store.records import StatementRecord, StoredReceipt
from svc.store.reserve import Reserve
from svc.store.schema import Connect, open_database, opening_error, plain_connect, prepare_file
from svc.store.writer import Row, StatementRow, Writer

#: Records, and readings, that may wait; a record of a signed exchange is about 10 KB.
QUEUE_LIMIT: Final = 1024
RESERVE_SIZE: Final = 16 * 1024 * 1024
RETRY_SECONDS: Final = 1.0

T = TypeVar("T")


class StoreReactor(IReactorFromThreads, IReactorTime):
    """Takes calls from threads and measures times."""


class LaneMaker(Protocol):
    """Starts lanes."""

    def __call__(self, name: str, work: Callable[[Sequence[Any]], None], finish: Callable[[], None]) -> Lane[Any]:
        """Start a lane that gives groups of jobs to ``work`` and calls ``finish`` after the last."""


@implementer(INotaryStore)
class SqliteStore:
    """
    Keeps statements and receipts in an SQLite database: write-ahead log, every group of records synchronised.

    Args:
        path: of the database; its folder is made if need be.
        reactor: takes results from the threads and runs the retry timer.
        observer: told of errors, commits and changes of :attr:`writable`.
        queue_limit: records that may wait to be written, and readings that may wait, before StoreBusy.
        reserve_size: octets kept back on the disk for exchanges that run when it becomes full.
        retry_interval: seconds between attempts to become writable again.
        connect: makes connections.
        lanes: starts the threads.
        monotonic: measures commits.
    """

    def __init__(
        self,
        path: str,
        *,
        reactor: StoreReactor,
        observer: StoreObserver | None = None,
        queue_limit: int = QUEUE_LIMIT,
        reserve_size: int = RESERVE_SIZE,
        retry_interval: float = RETRY_SECONDS,
        connect: Connect = plain_connect,
        lanes: LaneMaker = ThreadLane,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.writable = False
        self._reactor = reactor
        self._observer = observer if observer is not None else SilentStoreObserver()
        self._queue_limit = queue_limit
        self._retry_interval = retry_interval
        self._reserve = Reserve(f"{path}.reserve", reserve_size)
        self._connect = connect
        self._make_lane = lanes
        self._monotonic = monotonic
        self._waiting_writes = 0
        self._waiting_reads = 0
        self._retry: IDelayedCall | None = None
        self._write_lane: Lane[WriteJob] | None = None
        self._read_lane: Lane[Get] | None = None
        self._lanes_open = 0
        self._closed: Deferred[None] = Deferred()

    def init(self) -> None:
        """
        Open the database; see :meth:`INotaryStore.init`.

        Raises:
            StoreError: the subclass names what is wrong and what to do.
        """
        try:
            writer, reader = self._open()
        except (StoreError, OSError):
            self._reserve.close()
            self._observer.db_error("init", "db")
            raise
        writing = WriteLoop(self.path, writer, self, self._deliver)
        reading = ReadLoop(self.path, reader, self, self._deliver)
        self._lanes_open = 2
        self._write_lane = self._make_lane("svc-store-writer", writing.work, writing.finish)
        writing.attach(self._write_lane)
        self._read_lane = self._make_lane("svc-store-reader", reading.work, reading.finish)
        self.show_writable(not writer.degraded)

    def _open(self) -> tuple[Writer, Reader]:
        connection: sqlite3.Connection | None = None
        try:
            prepare_file(self.path)
            self._reserve.lock(self.path)
            connection = open_database(self.path, self._connect)
            reader = Reader(self.path, self._connect)
        except OSError as error:
            raise StoreUnavailable(path=self.path, detail=error.strerror or str(error)) from error
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise opening_error(self.path, error) from error
        writer = Writer(self.path, connection, self._reserve, connect=self._connect, monotonic=self._monotonic)
        try:
            self._reserve.fill()
        except OSError:
            # What is stored can be served; new records wait until the disk has room for the reserve again.
            writer.degraded = True
            self._observer.db_error("init", "db")
        return writer, reader

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
            Fires when all is closed.
        """
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        write_lane, self._write_lane = self._write_lane, None
        read_lane, self._read_lane = self._read_lane, None
        if write_lane is None or read_lane is None:
            return succeed(None)
        # The reader first: whoever closes the last connection takes the log with him.
        read_lane.stop()
        write_lane.stop()
        return self._closed

    def _put(self, row: Row) -> Deferred[None]:
        if self._write_lane is None:
            return fail(StoreClosed())
        if self._waiting_writes >= self._queue_limit:
            return fail(StoreBusy(limit=self._queue_limit))
        self._waiting_writes += 1
        done: Deferred[None] = Deferred()
        self._write_lane.submit(Put(row, done))
        return done

    def _get(self, read: Callable[[Reader], T], entity: Entity) -> Deferred[T]:
        if self._read_lane is None:
            return fail(StoreClosed())
        if self._waiting_reads >= self._queue_limit:
            return fail(StoreBusy(limit=self._queue_limit))
        self._waiting_reads += 1
        done: Deferred[T] = Deferred()
        self._read_lane.submit(Get(read, entity, done))
        return done

    def _deliver(self, settlements: Sequence[Settlement]) -> None:
        self._reactor.callFromThread(_settle, settlements)

    def _try_again(self) -> None:
        self._retry = None
        if self._write_lane is not None:
            self._write_lane.submit(Recover())

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
        for job, result in zip(jobs, results, strict=True):
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

    def refused(self, op: Operation, entity: Entity) -> None:
        """
        Tell the observer of a refusal.

        Args:
            op: what was tried.
            entity: on what.
        """
        self._observer.db_error(op, entity)

    def show_writable(self, writable: bool) -> None:
        """
        Take over whether new records can be promised a place.

        Args:
            writable: as the writer judged last.
        """
        writable = writable and self._write_lane is not None
        if writable != self.writable:
            self.writable = writable
            self._observer.writable_changed(writable)
        if not writable and self._retry is None and self._write_lane is not None:
            self._retry = self._reactor.callLater(self._retry_interval, self._try_again)

    def closed(self) -> None:
        """Count a thread that is about to end."""
        self._lanes_open -= 1
        if self._lanes_open == 0:
            self.show_writable(False)
            self._closed.callback(None)


def _settle(settlements: Sequence[Settlement]) -> None:
    for settlement in settlements:
        settlement()

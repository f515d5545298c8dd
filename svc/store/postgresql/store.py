"""
The notary store on a PostgreSQL server.

Owns the opening of the database, how long to wait before the next attempt, and the lane that hears the server's
farewell while nothing is to be written.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import psycopg

from svc.store.errors import DatabaseUnavailable, StoreError
from svc.store.interface import StoreObserver
from svc.store.lanes import Lane, ThreadLane, WatchingLane
from svc.store.loops import WriteJob, WriteLoop
from svc.store.postgresql.address import DatabaseAddress
from svc.store.postgresql.reader import Reader
from svc.store.postgresql.schema import prepare
from svc.store.postgresql.session import ANSWER_SECONDS, Connect, connect, told
from svc.store.postgresql.writer import Writer
from svc.store.threaded import COMMIT_SECONDS, QUEUE_LIMIT, LaneMaker, StoreReactor, ThreadedStore

#: Seconds: the next attempt comes after a random part of these, doubled at each failure up to the second.
RETRY_FIRST: Final = 0.1
RETRY_MOST: Final = 5.0
#: Never at once: many replicas lose one server in the same moment.
RETRY_LEAST: Final = 0.02


class PostgresStore(ThreadedStore):
    """
    Keeps statements and receipts in a PostgreSQL database that other replicas may use at the same time.

    Args:
        address: of the database.
        reactor: takes results from the threads and runs the timers.
        observer: told of errors, commits and changes of :attr:`writable`.
        queue_limit: records that may wait to be written, and readings that may wait, before StoreBusy.
        commit_timeout: seconds that a record may wait for its commit before StoreLate; an outage that is shorter fails
            nobody.
        answer_timeout: seconds after which a server that does not answer is given up.
        jitter: gives a number from 0 to 1.
        write_connect: makes the session that writes.
        read_connect: makes the session that reads.
        lanes: starts the threads; by default the writer's listens to the server while it has nothing to do.
        monotonic: measures commits.
    """

    refusals = (psycopg.Error, StoreError)

    def __init__(
        self,
        address: DatabaseAddress,
        *,
        reactor: StoreReactor,
        observer: StoreObserver | None = None,
        queue_limit: int = QUEUE_LIMIT,
        commit_timeout: float = COMMIT_SECONDS,
        answer_timeout: float = ANSWER_SECONDS,
        jitter: Callable[[], float] = random.random,
        write_connect: Connect | None = None,
        read_connect: Connect | None = None,
        lanes: LaneMaker = ThreadLane,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            reactor=reactor,
            observer=observer,
            queue_limit=queue_limit,
            commit_timeout=commit_timeout,
            lanes=lanes,
        )
        self.address = address
        self._watching = lanes is ThreadLane
        self._jitter = jitter
        self._answer_timeout = answer_timeout
        self._write_connect = write_connect or partial(connect, address, durable=True)
        self._read_connect = read_connect or partial(connect, address, durable=False)
        self._monotonic = monotonic

    def _open(self) -> tuple[Writer, Reader]:
        session = None
        try:
            session = self._write_connect()
            prepare(session, self.address.name)
            reader = Reader(self._read_connect, answer_timeout=self._answer_timeout, monotonic=self._monotonic)
        except (psycopg.Error, StoreError) as error:
            if session is not None:
                session.close()
            raise self._unavailable(error) from error
        self._writer = Writer(
            self.address,
            session,
            connect=self._write_connect,
            answer_timeout=self._answer_timeout,
            monotonic=self._monotonic,
        )
        return self._writer, reader

    def _start_writing(self, loop: WriteLoop) -> Lane[WriteJob]:
        if not self._watching:
            return super()._start_writing(loop)
        lost = partial(loop.look, self._writer.lost)
        return WatchingLane("svc-store-writer", loop.work, loop.finish, fileno=self._writer.fileno, readable=lost)

    def _retry_delay(self, attempt: int) -> float:
        most = min(RETRY_MOST, RETRY_FIRST * 2.0 ** min(attempt, 16))
        return max(RETRY_LEAST, self._jitter() * most)

    def _unavailable(self, error: Exception) -> StoreError:
        return _explained(self.address, error)


def check_database(address: DatabaseAddress) -> None:
    """
    Connect once, as for writing.

    Args:
        address: of the database.

    Raises:
        StoreError: it cannot be used.
    """
    try:
        connect(address, durable=True).close()
    except (psycopg.Error, StoreError) as error:
        raise _explained(address, error) from error


def _explained(address: DatabaseAddress, error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    return DatabaseUnavailable(path=address.name, detail=told(error))

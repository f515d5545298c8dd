"""
The embedded notary store.

Owns what belongs together: the opening of its file is the business of ``opening``, the threads that of ``threaded``,
what is written and read that of ``writer`` and ``reader``.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from svc.store.disk import refusal
from svc.store.errors import StoreError, StoreUnavailable
from svc.store.interface import StoreObserver
from svc.store.lanes import ThreadLane
from svc.store.opening import open_checked
from svc.store.reader import Reader
from svc.store.reserve import Reserve
from svc.store.schema import DAMAGED, Connect, opening_error, plain_connect, prepare_folder, primary_code
from svc.store.threaded import COMMIT_SECONDS, QUEUE_LIMIT, RETRY_SECONDS, LaneMaker, StoreReactor, ThreadedStore
from svc.store.writer import Writer

RESERVE_SIZE: Final = 16 * 1024 * 1024


def utc_now() -> datetime:
    """
    Read the wall clock.

    Returns:
        Aware UTC.
    """
    return datetime.now(UTC)


class SqliteStore(ThreadedStore):
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
        commit_timeout: seconds that a record may wait for its commit before StoreLate.
        lanes: starts the threads.
        monotonic: measures commits.
        wall: tells the time that names a damaged database which is set aside.
    """

    refusals = (sqlite3.Error,)

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
        commit_timeout: float = COMMIT_SECONDS,
        lanes: LaneMaker = ThreadLane,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = utc_now,
    ) -> None:
        super().__init__(
            reactor=reactor,
            observer=observer,
            queue_limit=queue_limit,
            retry_interval=retry_interval,
            commit_timeout=commit_timeout,
            lanes=lanes,
        )
        # The lock is a file beside the database: who comes by a symbolic link must find the same one.
        self.path = path
        self._wall = wall
        self._writer: Writer | None = None
        self._damage_told = False
        self._reserve = Reserve(f"{os.path.realpath(path)}.reserve", reserve_size)
        self._connect = connect
        self._monotonic = monotonic

    def _open(self) -> tuple[Writer, Reader]:
        try:
            return self._opened()
        except BaseException:
            self._reserve.close()
            raise

    def _unavailable(self, error: Exception) -> StoreError:
        if primary_code(error) in DAMAGED:
            # Here speaks the thread that met the damage.
            self._deliver([self._met_damage])
        return StoreUnavailable(path=self.path, detail=refusal(self.path, error))

    def _met_damage(self) -> None:
        """Take no more records, for the next one might be written into the damage."""
        if self._writer is not None:
            self._writer.give_up()
        self.show_writable(False, "the database is damaged")
        if not self._damage_told:
            self._damage_told = True
            self._observer.damaged(self.path)

    def _opened(self) -> tuple[Writer, Reader]:
        connection: sqlite3.Connection | None = None
        try:
            prepare_folder(self.path)
            self._reserve.lock(self.path)
            connection = open_checked(
                self.path, self._reserve, observer=self._observer, wall=self._wall, connect=self._connect
            )
            reader = Reader(self.path, self._connect)
        except OSError as error:
            raise StoreUnavailable(path=self.path, detail=refusal(self.path, error)) from error
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise opening_error(self.path, error) from error
        self._writer = writer = Writer(
            self.path,
            connection,
            self._reserve,
            unavailable=self._unavailable,
            connect=self._connect,
            monotonic=self._monotonic,
        )
        try:
            self._reserve.fill()
        except OSError as error:
            # What is stored can be served; new records wait until the disk has room for the reserve again.
            writer.degraded, writer.trouble = True, refusal(self.path, error)
            self._observer.db_error("init", "db", writer.trouble)
        return writer, reader

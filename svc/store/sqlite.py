"""The embedded notary store: an SQLite database with a writer thread and a reader thread."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from svc.sqlite import database
from svc.sqlite.database import DatabaseFile, plain_connect
from svc.sqlite.disk import DAMAGED, explain, primary_code
from svc.sqlite.kind import Connect
from svc.sqlite.threads import COMMIT_SECONDS, JobThread, StartThread, ThreadReactor
from svc.store.errors import StoreError, StoreUnavailable
from svc.store.interface import StoreObserver
from svc.store.reader import SqliteReader
from svc.store.schema import NOTARY
from svc.store.threaded import QUEUE_LIMIT, RETRY_SECONDS, ThreadedStore
from svc.store.writer import SqliteWriter

RESERVE_SIZE: Final = 16 * 1024 * 1024


def _utc_now() -> datetime:
    return datetime.now(UTC)


class SqliteStore(ThreadedStore):
    """
    Stores statements and receipts in an SQLite database: write-ahead log, every group of records synchronized.

    Args:
        path: of the database; its folder is created where it is absent.
        reactor: makes calls for the threads and runs the timers.
        observer: receives reports of errors, commits and changes of :attr:`writable`.
        queue_limit: records that may wait to be written, and reads that may wait, before StoreBusy.
        reserve_size: octets kept back on the disk for exchanges that run when it becomes full.
        retry_interval: seconds between attempts to become writable again.
        connect: opens connections.
        commit_timeout: seconds that a record may wait for its commit before StoreLate.
        start_thread: starts the threads.
        monotonic: measures commits.
        wall: returns the time that names a quarantined database.
    """

    read_errors = (sqlite3.Error,)
    _writer: SqliteWriter

    def __init__(
        self,
        path: str,
        *,
        reactor: ThreadReactor,
        observer: StoreObserver | None = None,
        queue_limit: int = QUEUE_LIMIT,
        reserve_size: int = RESERVE_SIZE,
        retry_interval: float = RETRY_SECONDS,
        connect: Connect = plain_connect,
        commit_timeout: float = COMMIT_SECONDS,
        start_thread: StartThread = JobThread,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = _utc_now,
    ) -> None:
        super().__init__(
            reactor=reactor,
            observer=observer,
            queue_limit=queue_limit,
            retry_interval=retry_interval,
            commit_timeout=commit_timeout,
            start_thread=start_thread,
        )
        self.path = path
        self._file = DatabaseFile(path, NOTARY, reserve_size=reserve_size, connect=connect)
        self._monotonic = monotonic
        self._wall = wall
        self._damage_reported = False

    def _open(self) -> tuple[SqliteWriter, SqliteReader]:
        file = self._file
        file.lock()
        connection = file.open(self._observer, self._wall)
        try:
            reader = SqliteReader(file.path, file.connect)
        except sqlite3.Error as error:
            connection.close()
            file.close()
            raise file.error(error) from error
        writer = SqliteWriter(file, connection, monotonic=self._monotonic)
        if not writer.fill_reserve():
            # What is stored can be read; new records wait until the disk has room for the reserve again.
            self._observer.db_error("init", "db", writer.trouble)
        return writer, reader

    def _unavailable(self, error: Exception) -> StoreError:
        if primary_code(error) in DAMAGED:
            self._call(self._on_damage)
        return StoreUnavailable(path=self.path, detail=explain(self.path, error))

    def _on_damage(self) -> None:
        """Accept no more records, since the next one might be written into the damaged part."""
        self._writer.mark_damaged()
        self._set_writable(False, "the database is damaged")
        if not self._damage_reported:
            self._damage_reported = True
            self._observer.damaged(self.path)


def check_file(path: str) -> None:
    """Whether the store could be opened, without opening or creating anything; raises as :meth:`SqliteStore.init`."""
    database.check_file(path, NOTARY, RESERVE_SIZE)

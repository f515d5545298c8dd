"""The embedded notary store: an SQLite database with a writer thread and a reader thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Unpack

from svc.sqlite import database
from svc.sqlite.database import DatabaseFile, plain_connect
from svc.sqlite.disk import DAMAGED, explain, primary_code
from svc.sqlite.errors import DatabaseQuarantined
from svc.sqlite.kind import Connect
from svc.store.errors import StoreError, StoreUnavailable
from svc.store.reader import SqliteReader
from svc.store.schema import NOTARY
from svc.store.threaded import StoreOptions, ThreadedStore
from svc.store.writer import SqliteWriter

RESERVE_SIZE: Final = 16 * 1024 * 1024


def _utc_now() -> datetime:
    return datetime.now(UTC)


class SqliteStore(ThreadedStore):
    """
    Stores statements and receipts in an SQLite database: write-ahead log, every group of records synchronized.

    Args:
        path: of the database; its folder is created where it is absent.
        reserve_size: octets kept back on the disk for exchanges that run when it becomes full.
        connect: opens connections.
        wall: returns the time that names a quarantined database.
        options: the arguments of :class:`ThreadedStore`.
    """

    read_errors = (sqlite3.Error,)
    _writer: SqliteWriter

    def __init__(
        self,
        path: str,
        *,
        reserve_size: int = RESERVE_SIZE,
        connect: Connect = plain_connect,
        wall: Callable[[], datetime] = _utc_now,
        **options: Unpack[StoreOptions],
    ) -> None:
        super().__init__(**options)
        self.path = path
        self._file = DatabaseFile(path, NOTARY, reserve_size=reserve_size, connect=connect)
        self._wall = wall
        self._damage_reported = False

    def _open(self) -> tuple[SqliteWriter, SqliteReader]:
        file = self._file
        file.lock()
        try:
            connection = file.open(self._wall)
        except DatabaseQuarantined as error:
            self._observer.set_aside(error.path, error.quarantined)
            raise
        finally:
            if file.quarantined:
                self._observer.lies_aside(file.quarantined)
        try:
            reader = SqliteReader(file.path, file.connect)
        except sqlite3.Error as error:
            connection.close()
            file.close()
            raise file.error(error) from error
        writer = SqliteWriter(file, connection)
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

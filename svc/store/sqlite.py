"""The embedded notary store: an SQLite database with a writer thread and a reader thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Unpack

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from svc.sqlite import database
from svc.sqlite.connection import open_connection
from svc.sqlite.database import DatabaseFile
from svc.sqlite.disk import DAMAGED, explain, primary_code
from svc.sqlite.errors import DatabaseQuarantined
from svc.sqlite.kind import Connect
from svc.store.errors import StoreError, StoreUnavailable
from svc.store.interface import CompleteDrafts
from svc.store.nonces import NonceFilter
from svc.store.reader import SqliteReader
from svc.store.records import StoredReceipt
from svc.store.schema import NOTARY
from svc.store.threaded import StoreOptions, ThreadedStore
from svc.store.writer import SqliteWriter

RESERVE_SIZE: Final = 16 * 1024 * 1024
#: Nonces that are read at once for the filter, some 2 ms of the reactor.
_SLICE: Final = 1000


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
    _reader: SqliteReader

    def __init__(
        self,
        path: str,
        *,
        reserve_size: int = RESERVE_SIZE,
        connect: Connect = open_connection,
        wall: Callable[[], datetime] = _utc_now,
        **options: Unpack[StoreOptions],
    ) -> None:
        super().__init__(**options)
        self.path = path
        self._file = DatabaseFile(path, NOTARY, reserve_size=reserve_size, connect=connect)
        self._wall = wall
        self._damage_reported = False
        #: The nonces that may be stored, once all are in it, and the one that is being filled.
        self._nonces: NonceFilter | None = None
        self._filling: NonceFilter | None = None
        #: Records at the start, at most; since then the nonces that were read for the last filter.
        self._records = 0

    def init(self) -> None:
        super().init()
        self._fill(NonceFilter(2 * self._records))

    def put_receipt(self, receipt: StoredReceipt) -> Deferred[None]:
        client, nonce = receipt.client, receipt.nonce
        if nonce is None:
            return super().put_receipt(receipt)
        self._add(client, nonce)
        return super().put_receipt(receipt).addCallback(lambda _none: self._add(client, nonce))

    def put_draft(self, draft: Any, complete: CompleteDrafts) -> Deferred[StoredReceipt]:
        return super().put_draft(draft, complete).addCallback(self._add_stored)

    def reserve(self, client: str, nonce: str) -> Deferred[bool]:
        """No other process uses this database: a nonce is free unless it is stored, which most are known not to be."""
        known = self._nonces
        new = known is not None and known.rules_out(client, nonce)
        self._add(client, nonce)
        return succeed(True) if new and self._read_thread is not None else super().reserve(client, nonce)

    def give_back(self, client: str, nonce: str) -> Deferred[None]:
        # Its record may be stored although it failed as late.
        self._add(client, nonce)
        return succeed(None) if self._read_thread is not None else super().give_back(client, nonce)

    def _add_stored(self, record: StoredReceipt) -> StoredReceipt:
        if record.nonce is not None:
            self._add(record.client, record.nonce)
        return record

    def _add(self, client: str, nonce: str) -> None:
        """
        Add a nonce: when it is reserved, and again when its record is stored.

        Meanwhile a filter may have been filled that has read the database before the record was there.
        """
        known, filling = self._nonces, self._filling
        if filling is not None:
            filling.add(client, nonce)
        if known is not None:
            known.add(client, nonce)
            if known.full and filling is None:
                # Records are pruned too: room for those that were there last. If they are more now, it is soon full.
                self._fill(NonceFilter(2 * self._records))

    def _nonces_behind(self, after: tuple[str, str]) -> Deferred[list[tuple[str, str]]]:
        return self._get(lambda _reader: self._reader.nonces(after, _SLICE))

    def _fill(self, filling: NonceFilter) -> None:
        """Read all nonces into a new filter; should that fail, which is reported, they are looked up as before."""
        self._filling = filling

        async def fill() -> None:
            after = ("", "")
            count = 0
            while found := await self._nonces_behind(after):
                count += len(found)
                for client, nonce in found:
                    filling.add(client, nonce)
                after = found[-1]
            self._nonces, self._records = filling, count

        def ended(failure: Failure | None) -> None:
            self._filling = None
            if failure is not None:
                failure.trap(StoreError)

        Deferred.fromCoroutine(fill()).addBoth(ended)

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
            self._records = reader.count()
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

"""
Writes to the embedded notary database: group commit of records, and pruning.

A group that the disk refuses is tried once more with the reserve released, and then fails with all its records.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, Final

from svc.sqlite.database import DatabaseFile
from svc.sqlite.writer import GroupWriter, transaction
from svc.store.backend import PRUNE_SLICE, STATEMENT_GRACE, CommitResult, Refused
from svc.store.compact import CompactEnvelope, EnvelopeCompactor
from svc.store.errors import Replayed, StoreError
from svc.store.interface import Entity
from svc.store.records import StoredReceipt
from svc.store.rows import DELETE_UNUSED_SETS, RECEIPT_COLUMNS, Row, StatementRow, receipt_values

#: What a record costs beside its own octets, roughly.
ROW_OVERHEAD: Final = 1024
#: What a transaction costs in the log, however small: whole pages of the table and of each of its indexes.
TRANSACTION_OVERHEAD: Final = 8 * 4096

#: Errors of one record, which must not fail the others of its group.
_MISUSE: Final = (sqlite3.InterfaceError, sqlite3.ProgrammingError, UnicodeError, OverflowError, TypeError, ValueError)

#: The same, and records that are stored already: none of the group is then, until each is tried by itself.
_OF_ONE_RECORD: Final = (*_MISUSE, sqlite3.IntegrityError)
#: Writes rows in a transaction.
_Begin = Callable[[sqlite3.Connection], AbstractContextManager[sqlite3.Connection]]
_Insert = Callable[[sqlite3.Connection, Sequence[Row]], list[StoreError | None]]

_INSERT_STATEMENT: Final = (
    "INSERT OR IGNORE INTO workload_statement (id, expires, certificate_set, cuts, skeleton) VALUES (?, ?, ?, ?, ?)"
)
_ROW: Final = f"({', '.join('?' for _name in RECEIPT_COLUMNS)})"
#: As many records are written by one statement, which without a batch is a transaction by itself. Each statement waits
#: for the interpreter lock several times, which costs more than its work while the reactor is busy.
_TOGETHER: Final = 64
_RECEIPT: Final = f"INTO receipt ({', '.join(RECEIPT_COLUMNS)}) VALUES"
_INSERT_RECEIPT: Final = f"INSERT {_RECEIPT} {_ROW}"
_INSERT_RECEIPTS: Final = {count: f"INSERT {_RECEIPT} {', '.join([_ROW] * count)}" for count in range(1, _TOGETHER + 1)}
_INSERT_BATCH: Final = "INSERT INTO receipt_batch (certificate_set, cuts, skeleton) VALUES (?, ?, ?)"
_OLDEST: Final = "FROM receipt WHERE issued_at < ? ORDER BY issued_at, seq LIMIT ?"
_BATCHES: Final = f"SELECT DISTINCT batch FROM (SELECT batch {_OLDEST}) WHERE batch IS NOT NULL"  # noqa: S608 (constants)
_DELETE_RECEIPTS: Final = f"DELETE FROM receipt WHERE seq IN (SELECT seq {_OLDEST})"  # noqa: S608 (constants)
_DELETE_BATCH: Final = (
    "DELETE FROM receipt_batch WHERE id = ? AND NOT EXISTS"
    " (SELECT 1 FROM receipt WHERE receipt.batch = receipt_batch.id)"
)
_DELETE_STATEMENTS: Final = "DELETE FROM workload_statement WHERE expires < ?"
_BATCH_OF: Final = "SELECT batch FROM receipt WHERE id = ?"
_DELETE_RECEIPT: Final = "DELETE FROM receipt WHERE id = ?"


class SqliteWriter(GroupWriter):
    """A :class:`svc.store.backend.RecordWriter`."""

    def __init__(self, file: DatabaseFile, connection: sqlite3.Connection) -> None:
        super().__init__(file, connection)
        #: Numbers of stored certificate sets, by the digests of their certificates.
        self._sets: dict[bytes, int] = {}
        self._compactor = EnvelopeCompactor()
        # Of the transaction that is written: the numbers of its batches by their envelopes, what it costs in the log,
        # and what the database refuses if it does.
        self._batches: dict[bytes, int | None] = {}
        self._written = 0
        self._entity: Entity = "db"

    def commit(self, rows: Sequence[Row]) -> CommitResult:
        result = CommitResult()
        for again in (False, True):
            try:
                result.results, result.failure = self._write(rows, again=again), None
                break
            except Refused as refused:
                self._sets.clear()
                self._degrade(refused.error)
                result.refused.append(refused.entity)
                result.detail, result.failure = self.trouble, refused.error
                if self.damaged:
                    break
        return result

    def discard(self, receipt_ids: Sequence[str]) -> None:
        names = [(name,) for name in receipt_ids]
        try:
            with transaction(self._ready()) as connection:
                batches = [batch for name in names for batch in connection.execute(_BATCH_OF, name)]
                connection.executemany(_DELETE_RECEIPT, names)
                connection.executemany(_DELETE_BATCH, batches)
        except sqlite3.Error as error:
            self._sets.clear()
            self._degrade(error)
            raise Refused("receipt", error, self.trouble) from error
        self._since_checkpoint += TRANSACTION_OVERHEAD + len(names) * ROW_OVERHEAD

    def prune(self, before: int) -> tuple[int, bool]:
        try:
            with transaction(self._ready()) as connection:
                batches = connection.execute(_BATCHES, (before, PRUNE_SLICE)).fetchall()
                deleted = connection.execute(_DELETE_RECEIPTS, (before, PRUNE_SLICE)).rowcount
                connection.executemany(_DELETE_BATCH, batches)
                if deleted < PRUNE_SLICE:
                    _delete_unreferenced(connection, before)
                    self._sets.clear()
        except sqlite3.Error as error:
            self._sets.clear()
            self._degrade(error)
            raise Refused("receipt", error, self.trouble) from error
        self._since_checkpoint += deleted * ROW_OVERHEAD
        return deleted, deleted == PRUNE_SLICE

    def recover(self) -> None:
        try:
            super().recover()
        except sqlite3.Error as error:
            raise Refused("db", error, self.trouble) from error

    def _write(self, rows: Sequence[Row], *, again: bool) -> list[StoreError | None]:
        """Write rows in one transaction: all at once, or one by one where one of them is refused or may be stored."""
        if not again:
            with suppress(*_OF_ONE_RECORD):
                begin = nullcontext if _in_one_statement(rows) else transaction
                return self._in_transaction(rows, self._insert_together, _OF_ONE_RECORD, begin)
        return self._in_transaction(rows, partial(self._insert_each, again=again), (), transaction)

    def _in_transaction(
        self, rows: Sequence[Row], insert: _Insert, expected: tuple[type[Exception], ...], begin: _Begin
    ) -> list[StoreError | None]:
        self._written, self._entity = TRANSACTION_OVERHEAD, "db"
        self._batches.clear()
        try:
            with begin(self._ready()) as connection:
                results = insert(connection, rows)
                self._entity = "db"
        except expected:
            # What the transaction stored, it has taken back.
            self._sets.clear()
            raise
        except sqlite3.Error as error:
            raise Refused(self._entity, error) from error
        self._since_checkpoint += self._written
        return results

    def _insert_together(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> list[StoreError | None]:
        receipts: list[tuple[Any, ...]] = []
        for row in rows:
            if isinstance(row, StatementRow):
                self._insert_statement(connection, row)
            else:
                receipts.append(self._values(connection, row))
        self._entity = "receipt"
        for start in range(0, len(receipts), _TOGETHER):
            together = receipts[start : start + _TOGETHER]
            values = [value for receipt in together for value in receipt]
            connection.execute(_INSERT_RECEIPTS[len(together)], values)
        return [None] * len(rows)

    def _insert_each(
        self, connection: sqlite3.Connection, rows: Sequence[Row], *, again: bool
    ) -> list[StoreError | None]:
        results: list[StoreError | None] = []
        for row in rows:
            try:
                if isinstance(row, StatementRow):
                    self._insert_statement(connection, row)
                    results.append(None)
                else:
                    values = self._values(connection, row)
                    self._entity = "receipt"
                    results.append(_insert_receipt(connection, row, values, again=again))
            except _MISUSE as error:
                results.append(StoreError("malformed", detail=str(error)))
        connection.executemany(_DELETE_BATCH, [(number,) for number in self._batches.values()])
        return results

    def _insert_statement(self, connection: sqlite3.Connection, row: StatementRow) -> None:
        compact, certificates = self._compact(connection, row.envelope)
        self._entity = "workload_statement"
        connection.execute(_INSERT_STATEMENT, (row.id, row.expires, certificates, compact.cuts_text(), compact.octets))

    def _values(self, connection: sqlite3.Connection, row: StoredReceipt) -> tuple[Any, ...]:
        """The columns of a record, whose certificates and batch are stored by then."""
        self._written += ROW_OVERHEAD + len(row.payload) + len(row.inclusion or b"")
        batch = None if row.batch is None else self._batch_number(connection, row.batch)
        if row.envelope is None:
            return receipt_values(row, None, None, batch)
        compact, certificates = self._compact(connection, row.envelope, row.payload)
        return receipt_values(row, certificates, compact, batch)

    def _batch_number(self, connection: sqlite3.Connection, envelope: bytes) -> int | None:
        """Store the envelope of a batch, once in each transaction: all its records are in one."""
        number = self._batches.get(envelope)
        if number is None:
            compact, certificates = self._compact(connection, envelope)
            self._entity = "receipt"
            cursor = connection.execute(_INSERT_BATCH, (certificates, compact.cuts_text(), compact.octets))
            number = self._batches[envelope] = cursor.lastrowid
        return number

    def _compact(
        self, connection: sqlite3.Connection, envelope: bytes, payload: bytes | None = None
    ) -> tuple[CompactEnvelope, int]:
        """Compact an envelope and store its certificates, each once; returns the number of the set too."""
        self._entity = "certificate_blob"
        compact = self._compactor.compact(envelope, payload)
        self._written += ROW_OVERHEAD + len(compact.octets)
        digests = [hashlib.sha256(der).digest() for der in compact.certificates]
        name = b"".join(digests)
        known = self._sets.get(name)
        if known is None:
            blobs = zip(digests, compact.certificates, strict=True)
            connection.executemany("INSERT OR IGNORE INTO certificate_blob VALUES (?, ?)", blobs)
            connection.execute("INSERT OR IGNORE INTO certificate_set (digests) VALUES (?)", (name,))
            (known,) = connection.execute("SELECT id FROM certificate_set WHERE digests = ?", (name,)).fetchone()
            self._sets[name] = known
        return compact, known


def _in_one_statement(rows: Sequence[Row]) -> bool:
    """Whether one statement, which is a transaction of its own, stores the rows; certificates may be stored before."""
    return len(rows) <= _TOGETHER and all(isinstance(row, StoredReceipt) and row.batch is None for row in rows)


def _insert_receipt(
    connection: sqlite3.Connection, row: StoredReceipt, values: Sequence[Any], *, again: bool
) -> StoreError | None:
    try:
        connection.execute(_INSERT_RECEIPT, values)
    except sqlite3.IntegrityError:
        # The first attempt may have been committed although it was reported as failed: then this record is there.
        if again and connection.execute("SELECT 1 FROM receipt WHERE id = ?", (row.id,)).fetchone():
            return None
        return Replayed(client=row.client)
    return None


def _delete_unreferenced(connection: sqlite3.Connection, before: int) -> None:
    connection.execute(_DELETE_STATEMENTS, (before - STATEMENT_GRACE,))
    connection.execute(DELETE_UNUSED_SETS)
    used: set[bytes] = set()
    for (digests,) in connection.execute("SELECT digests FROM certificate_set"):
        used.update(digests[start : start + 32] for start in range(0, len(digests), 32))
    stored = [digest for (digest,) in connection.execute("SELECT sha256 FROM certificate_blob")]
    unused = [(digest,) for digest in stored if digest not in used]
    connection.executemany("DELETE FROM certificate_blob WHERE sha256 = ?", unused)

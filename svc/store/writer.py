"""
Writes to the embedded notary database: group commit of records, and pruning.

A group that the disk refuses is tried once more with the reserve released, and then fails with all its records.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from typing import Final

from svc.sqlite.database import DatabaseFile
from svc.sqlite.writer import GroupWriter, transaction
from svc.store.backend import PRUNE_SLICE, CommitResult, Refused
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

_INSERT_STATEMENT: Final = (
    "INSERT OR IGNORE INTO workload_statement (id, expires, certificate_set, cuts, skeleton) VALUES (?, ?, ?, ?, ?)"
)
_INSERT_RECEIPT: Final = (
    f"INSERT INTO receipt ({', '.join(RECEIPT_COLUMNS)}) VALUES ({', '.join('?' for _name in RECEIPT_COLUMNS)})"  # noqa: S608 (constants)
)
_DELETE_RECEIPTS: Final = (
    "DELETE FROM receipt WHERE seq IN (SELECT seq FROM receipt WHERE issued_at < ? ORDER BY issued_at LIMIT ?)"
)
_DELETE_STATEMENTS: Final = (
    "DELETE FROM workload_statement WHERE expires < ? AND NOT EXISTS"
    " (SELECT 1 FROM receipt WHERE receipt.statement_id = workload_statement.id)"
)


class SqliteWriter(GroupWriter):
    """A :class:`svc.store.backend.RecordWriter`."""

    def __init__(self, file: DatabaseFile, connection: sqlite3.Connection) -> None:
        super().__init__(file, connection)
        #: Numbers of stored certificate sets, by the digests of their certificates.
        self._sets: dict[bytes, int] = {}
        self._compactor = EnvelopeCompactor()

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

    def prune(self, before: int) -> tuple[int, bool]:
        try:
            with transaction(self._ready()) as connection:
                deleted = connection.execute(_DELETE_RECEIPTS, (before, PRUNE_SLICE)).rowcount
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
        results: list[StoreError | None] = []
        written = TRANSACTION_OVERHEAD
        entity: Entity = "db"
        try:
            with transaction(self._ready()) as connection:
                for row in rows:
                    entity = "certificate_blob"
                    compact, certificates = self._store_certificates(connection, row)
                    written += ROW_OVERHEAD + (0 if compact is None else len(compact.octets))
                    try:
                        if isinstance(row, StatementRow):
                            entity = "workload_statement"
                            _insert_statement(connection, row, compact, certificates)
                            results.append(None)
                        else:
                            entity = "receipt"
                            written += len(row.payload)
                            results.append(_insert_receipt(connection, row, compact, certificates, again=again))
                    except _MISUSE as error:
                        results.append(StoreError("malformed", detail=str(error)))
                entity = "db"
        except sqlite3.Error as error:
            raise Refused(entity, error) from error
        self._since_checkpoint += written
        return results

    def _store_certificates(
        self, connection: sqlite3.Connection, row: Row
    ) -> tuple[CompactEnvelope | None, int | None]:
        """Compact the envelope of a row and store its certificates, each once; returns the number of the set too."""
        if row.envelope is None:
            return None, None
        compact = self._compactor.compact(row.envelope, None if isinstance(row, StatementRow) else row.payload)
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


def _insert_statement(
    connection: sqlite3.Connection, row: StatementRow, compact: CompactEnvelope | None, certificates: int | None
) -> None:
    if compact is not None:
        values = (row.id, row.expires, certificates, compact.cuts_text(), compact.octets)
        connection.execute(_INSERT_STATEMENT, values)


def _insert_receipt(
    connection: sqlite3.Connection,
    row: StoredReceipt,
    compact: CompactEnvelope | None,
    certificates: int | None,
    *,
    again: bool,
) -> StoreError | None:
    try:
        connection.execute(_INSERT_RECEIPT, receipt_values(row, certificates, compact))
    except sqlite3.IntegrityError:
        # The first attempt may have been committed although it was reported as failed: then this record is there.
        if again and connection.execute("SELECT 1 FROM receipt WHERE id = ?", (row.id,)).fetchone():
            return None
        return Replayed(client=row.client)
    return None


def _delete_unreferenced(connection: sqlite3.Connection, before: int) -> None:
    connection.execute(_DELETE_STATEMENTS, (before,))
    connection.execute(DELETE_UNUSED_SETS)
    used: set[bytes] = set()
    for (digests,) in connection.execute("SELECT digests FROM certificate_set"):
        used.update(digests[start : start + 32] for start in range(0, len(digests), 32))
    stored = [digest for (digest,) in connection.execute("SELECT sha256 FROM certificate_blob")]
    unused = [(digest,) for digest in stored if digest not in used]
    connection.executemany("DELETE FROM certificate_blob WHERE sha256 = ?", unused)

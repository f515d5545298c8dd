"""Reads from the embedded notary database, over a connection of its own that cannot write."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Final

from svc.sqlite.kind import Connect
from svc.store.backend import Refused
from svc.store.compact import expand, read_cuts
from svc.store.records import ReceiptQuery, RecordPosition, StoredReceipt
from svc.store.rows import BATCHES, RECEIPT_COLUMNS, receipt_from, scan_values, selected
from svc.store.schema import NOTARY
from svc.store.search import SLICE_OCTETS, SearchSlice
from svc.store.usage import MAX_HOLDERS, StoreUsage

_BY_ID: Final = "id = ?"
_BY_NONCE: Final = "client = ? AND nonce = ?"
_BY_JTI: Final = "jti = ? AND level = 'signRequest' AND client = ? ORDER BY seq LIMIT 1"
_BY_SEQ: Final = "seq = ?"
#: The payload only of what the columns select, since reading it costs more than all others. The record of the position
#: may have been pruned; then so have all that were older.
_SCAN: Final = (
    "SELECT seq, issued_at, id, CASE WHEN {selected} THEN payload END FROM receipt"
    " WHERE issued_at >= :since AND issued_at < :until AND (issued_at, seq) <"
    " (:before, coalesce((SELECT seq FROM receipt WHERE id = :id), 0))"
    " ORDER BY issued_at DESC, seq DESC LIMIT :rows"
)
#: No index has the nonces of all clients in order; the one of client and nonce is read as a whole.
_NAMED: Final = (
    "SELECT id FROM receipt WHERE id >= :key AND id < :end"
    " UNION SELECT id FROM receipt WHERE jti = :key AND level = 'signRequest'"
    " UNION SELECT id FROM receipt INDEXED BY receipt_nonce WHERE nonce IS NOT NULL AND nonce = :key LIMIT :limit"
)
_BATCH: Final = "SELECT certificate_set, cuts, skeleton FROM receipt_batch WHERE id = ?"
_STATEMENT: Final = "SELECT certificate_set, cuts, skeleton FROM workload_statement WHERE id = ?"
_NONCES: Final = (
    "SELECT client, nonce FROM receipt INDEXED BY receipt_nonce WHERE nonce IS NOT NULL AND (client, nonce) > (?, ?)"
    " ORDER BY client, nonce LIMIT ?"
)
_COUNT: Final = "SELECT coalesce(max(seq) - min(seq) + 1, 0) FROM receipt"
_HELD: Final = "SELECT client, octets FROM held ORDER BY octets DESC LIMIT ?"
_NONCE: Final = "SELECT 1 FROM receipt WHERE client = ? AND nonce = ?"


class SqliteReader:
    """
    A :class:`svc.store.backend.RecordReader`; ``version`` is that of the schema, which may be older where it is only
    read.

    Raises:
        sqlite3.Error: the database cannot be opened.
    """

    def __init__(self, path: str, connect: Connect, version: int = NOTARY.version) -> None:
        columns = ", ".join(RECEIPT_COLUMNS if version >= BATCHES else (*RECEIPT_COLUMNS[:-2], "NULL", "NULL"))
        self._receipt = f"SELECT {columns} FROM receipt WHERE"  # noqa: S608 (constants)
        self._path = path
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._ready()

    def get_statement(self, statement_id: str) -> bytes | None:
        with self._snapshot() as connection:
            row = connection.execute(_STATEMENT, (statement_id,)).fetchone()
            if row is None:
                return None
            certificates, cuts, skeleton = row
            return expand(skeleton, read_cuts(cuts), _chain(connection, certificates), b"")

    def get_receipt(self, receipt_id: str) -> StoredReceipt | None:
        with self._snapshot() as connection:
            return self._found(connection, _BY_ID, (receipt_id,))

    def get_by_request(self, client: str, key: str) -> StoredReceipt | None:
        with self._snapshot() as connection:
            by_nonce = self._found(connection, _BY_NONCE, (client, key))
            return by_nonce or self._found(connection, _BY_JTI, (key, client))

    def scan(self, query: ReceiptQuery, rows: int) -> SearchSlice:
        found: list[StoredReceipt] = []
        last: RecordPosition | None = None
        count = octets = 0
        ended = False
        with self._snapshot() as connection:
            chain, batch = cache(partial(_chain, connection)), cache(partial(_batch, connection))
            scan = _SCAN.format(selected=selected(query, ":{}"))
            for seq, issued_at, name, payload in connection.execute(scan, scan_values(query, rows)):
                count += 1
                octets += len(payload or b"")
                last = RecordPosition(issued_at, name)
                if payload is not None and query.selects(payload):
                    row = connection.execute(f"{self._receipt} {_BY_SEQ}", (seq,)).fetchone()
                    record = receipt_from(row, chain, batch)
                    found += [] if record is None else [record]
                ended = len(found) == query.limit or count == rows or octets >= SLICE_OCTETS
                if ended:
                    break
        return SearchSlice(found, count, last if ended else None, octets)

    def named(self, key: str, limit: int) -> list[str]:
        with self._snapshot() as connection:
            values = {"key": key, "end": f"{key}\x7f", "limit": limit}
            return [name for (name,) in connection.execute(_NAMED, values)]

    def nonce_known(self, client: str, nonce: str) -> bool:
        with self._snapshot() as connection:
            return connection.execute(_NONCE, (client, nonce)).fetchone() is not None

    def count(self) -> int:
        """The number of records, at most."""
        (count,) = self._ready().execute(_COUNT).fetchone()
        return int(count)

    def nonces(self, after: tuple[str, str], limit: int) -> list[tuple[str, str]]:
        """Clients and nonces in their order, behind the one of ``after``."""
        with self._snapshot() as connection:
            return connection.execute(_NONCES, (*after, limit)).fetchall()

    def usage(self) -> StoreUsage:
        with self._snapshot() as connection:
            size, pages, reusable = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_size", "page_count", "freelist_count")
            )
            held = dict(connection.execute(_HELD, (MAX_HOLDERS,)))
        disk = os.statvfs(self._path)
        free = disk.f_bavail * disk.f_frsize + reusable * size
        return StoreUsage((pages - reusable) * size, free, disk.f_blocks * disk.f_frsize, held)

    def reserve(self, client: str, nonce: str) -> bool:
        """No other process uses this database: a nonce is free unless it is stored."""
        return not self.nonce_known(client, nonce)

    def give_back(self, client: str, nonce: str) -> None: ...

    def reserved(self, client: str, nonce: str) -> bool:
        return False

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _found(self, connection: sqlite3.Connection, which: str, values: Sequence[str]) -> StoredReceipt | None:
        row = connection.execute(f"{self._receipt} {which}", values).fetchone()
        return receipt_from(row, partial(_chain, connection), partial(_batch, connection))

    def _ready(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = self._connect(self._path)
            try:
                connection.execute("PRAGMA query_only = ON")
                # Reads the head of the file, so that a file that is no database any more is detected here.
                connection.execute("PRAGMA schema_version").fetchone()
            except sqlite3.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        # One transaction, so that what a record refers to cannot be deleted between two queries.
        try:
            connection = self._ready()
            connection.execute("BEGIN")
        except sqlite3.Error as error:
            raise Refused("db", error) from error
        try:
            yield connection
        finally:
            connection.execute("COMMIT")


def _chain(connection: sqlite3.Connection, certificates: int) -> list[bytes]:
    """The certificates of a set, in their order."""
    try:
        (digests,) = _one(connection, "SELECT digests FROM certificate_set WHERE id = ?", certificates)
        query = "SELECT der FROM certificate_blob WHERE sha256 = ?"
        return [_one(connection, query, digests[start : start + 32])[0] for start in range(0, len(digests), 32)]
    except sqlite3.Error as error:
        raise Refused("certificate_blob", error) from error


def _batch(connection: sqlite3.Connection, number: int) -> bytes:
    """The envelope of a batch."""
    row = connection.execute(_BATCH, (number,)).fetchone()
    if row is None:
        raise sqlite3.DatabaseError("the batch that a record belongs to is missing")
    certificates, cuts, skeleton = row
    return expand(skeleton, read_cuts(cuts), _chain(connection, certificates), b"")


def _one(connection: sqlite3.Connection, query: str, key: int | bytes) -> tuple[bytes]:
    row: tuple[bytes] | None = connection.execute(query, (key,)).fetchone()
    if row is None:
        raise sqlite3.DatabaseError("a certificate that a record refers to is missing")
    return row

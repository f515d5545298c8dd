"""
The one who reads from the embedded database.

Has a connection of its own that cannot write; everything here blocks and runs in one thread. Where something else than
what was asked for cannot be read, a certificate or the whole database, ``Refused`` names it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from svc.store.records import StoredReceipt
from svc.store.rows import Refused
from svc.store.schema import Connect
from svc.store.skeletons import filled, read_cuts

_RECEIPT_COLUMNS: Final = (
    "id, level, client, server, nonce, jti, issued_at, outcome, statement_id, certificate_set, cuts, skeleton, payload,"
    " disclosures"
)
_BY_ID: Final = f"SELECT {_RECEIPT_COLUMNS} FROM receipt WHERE id = ?"  # noqa: S608 - a constant, nothing from outside
_BY_NONCE: Final = f"SELECT {_RECEIPT_COLUMNS} FROM receipt WHERE client = ? AND nonce = ?"  # noqa: S608 - as above
_BY_JTI: Final = f"SELECT {_RECEIPT_COLUMNS} FROM receipt WHERE jti = ? AND client = ? ORDER BY seq LIMIT 1"  # noqa: S608 - as above

_STATEMENT: Final = "SELECT certificate_set, cuts, skeleton FROM workload_statement WHERE id = ?"
_NONCE: Final = "SELECT 1 FROM receipt WHERE client = ? AND nonce = ?"

ReceiptColumns = tuple[
    str,
    str,
    str,
    str,
    str | None,
    str,
    int,
    str,
    str,
    int | None,
    str | None,
    bytes | None,
    bytes,
    str | None,
]


class Reader:
    """
    Reads from one database.

    Args:
        path: of the database.
        connect: makes connections.

    Raises:
        sqlite3.Error: where the database cannot be opened.
    """

    def __init__(self, path: str, connect: Connect) -> None:
        self._path = path
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._ready()

    def statement(self, statement_id: str) -> bytes | None:
        """
        Find a statement.

        Args:
            statement_id: its id.

        Returns:
            Its envelope, or None.

        Raises:
            sqlite3.Error: where the database refuses.
        """
        with self._snapshot() as connection:
            row = connection.execute(_STATEMENT, (statement_id,)).fetchone()
            if row is None:
                return None
            certificates, cuts, skeleton = row
            return _envelope(connection, certificates, cuts, skeleton, b"")

    def receipt(self, receipt_id: str) -> StoredReceipt | None:
        """
        Find a record by its id.

        Args:
            receipt_id: the id.

        Returns:
            The record, or None.

        Raises:
            sqlite3.Error: where the database refuses.
        """
        with self._snapshot() as connection:
            return _record(connection, connection.execute(_BY_ID, (receipt_id,)).fetchone())

    def by_request(self, client: str, key: str) -> StoredReceipt | None:
        """
        Find a record by the client's nonce, else by its ``jti``.

        Args:
            client: whose records are looked at.
            key: the nonce or ``jti``.

        Returns:
            The record, or None.

        Raises:
            sqlite3.Error: where the database refuses.
        """
        with self._snapshot() as connection:
            row = connection.execute(_BY_NONCE, (client, key)).fetchone()
            return _record(connection, row or connection.execute(_BY_JTI, (key, client)).fetchone())

    def nonce_known(self, client: str, nonce: str) -> bool:
        """
        Say whether a client's nonce is stored.

        Args:
            client: whose.
            nonce: which.

        Returns:
            True or False.

        Raises:
            sqlite3.Error: where the database refuses.
        """
        with self._snapshot() as connection:
            return connection.execute(_NONCE, (client, nonce)).fetchone() is not None

    def reserve(self, client: str, nonce: str) -> bool:
        """
        Say whether a nonce is free; what runs is known to the one process that uses this database.

        Args:
            client: whose.
            nonce: which.

        Returns:
            False where it is stored.

        Raises:
            sqlite3.Error: where the database refuses.
        """
        return not self.nonce_known(client, nonce)

    def give_back(self, client: str, nonce: str) -> None:
        """
        Do nothing: no other process was kept from the nonce.

        Args:
            client: whose.
            nonce: which.
        """

    def reserved(self, client: str, nonce: str) -> bool:
        """
        Say whether an exchange with a nonce runs in another process.

        Args:
            client: whose.
            nonce: which.

        Returns:
            False: there is no other.
        """
        return False

    def renew(self) -> None:
        """Connect anew at the next reading: after an error a connection is not to be trusted."""
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ready(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = self._connect(self._path)
            try:
                connection.execute("PRAGMA query_only = ON")
                # Reads the file's head, so that a file that is no database any more is known before it is asked.
                connection.execute("PRAGMA schema_version").fetchone()
            except sqlite3.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        # One transaction, so that what a record refers to cannot be forgotten between two queries.
        try:
            connection = self._ready()
            connection.execute("BEGIN")
        except sqlite3.Error as error:
            raise Refused("db", error) from error
        try:
            yield connection
        finally:
            connection.execute("COMMIT")


def _record(connection: sqlite3.Connection, row: ReceiptColumns | None) -> StoredReceipt | None:
    if row is None:
        return None
    record_id, level, client, server, nonce, jti, issued_at, outcome = row[:8]
    statement_id, certificates, cuts, skeleton, payload, disclosures = row[8:]
    envelope = None
    if skeleton is not None and cuts is not None and certificates is not None:
        envelope = _envelope(connection, certificates, cuts, skeleton, payload)
    return StoredReceipt(
        id=record_id,
        level=level,
        client=client,
        server=server,
        nonce=nonce,
        jti=jti,
        issued_at=issued_at,
        outcome=outcome,
        envelope=envelope,
        payload=payload,
        disclosures=None if disclosures is None else json.loads(disclosures),
        statement_id=statement_id,
    )


def _envelope(connection: sqlite3.Connection, certificates: int, cuts: str, skeleton: bytes, payload: bytes) -> bytes:
    try:
        chain = _chain(connection, certificates)
    except sqlite3.Error as error:
        raise Refused("certificate_blob", error) from error
    return filled(skeleton, read_cuts(cuts), chain, payload)


def _chain(connection: sqlite3.Connection, certificates: int) -> list[bytes]:
    (digests,) = _one(connection, "SELECT digests FROM certificate_set WHERE id = ?", certificates)
    chain: list[bytes] = []
    for start in range(0, len(digests), 32):
        (der,) = _one(connection, "SELECT der FROM certificate_blob WHERE sha256 = ?", digests[start : start + 32])
        chain.append(der)
    return chain


def _one(connection: sqlite3.Connection, query: str, key: int | bytes) -> tuple[bytes]:
    row: tuple[bytes] | None = connection.execute(query, (key,)).fetchone()
    if row is None:
        raise sqlite3.DatabaseError("a certificate that a record refers to is missing")
    return row

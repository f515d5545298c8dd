"""
The one who writes to the embedded database.

Owns group commit and the forgetting of old records; what a full or broken disk is answered with is in ``connected``.
Everything here blocks and runs in one thread; must not know who waits for the results.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Final

from svc.store.connected import ConnectedWriter, Transaction
from svc.store.errors import RecordRefused, Replayed, StoreError
from svc.store.interface import Entity
from svc.store.records import StoredReceipt
from svc.store.reserve import Reserve
from svc.store.rows import Outcome, Refused, Row, StatementRow
from svc.store.schema import Connect
from svc.store.skeletons import Cutter, Skeleton

#: Records forgotten in one transaction.
PRUNE_SLICE: Final = 256
#: What a record costs beside its own octets, roughly.
ROW_OVERHEAD: Final = 1024
#: What a transaction costs in the log, however little is in it: whole pages of the table and of each of its indexes.
TRANSACTION_OVERHEAD: Final = 8 * 4096


class Writer(ConnectedWriter):
    """
    Writes to the notary's database.

    Args:
        path: of the database.
        connection: for writing, opened and checked.
        reserve: the space kept back.
        unavailable: names what the database refused, for those who wait.
        connect: makes a new connection after an error.
        monotonic: measures durations.
    """

    def __init__(
        self,
        path: str,
        connection: sqlite3.Connection,
        reserve: Reserve,
        *,
        unavailable: Callable[[Exception], StoreError],
        connect: Connect,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(path, connection, reserve, connect=connect)
        self._unavailable = unavailable
        self._monotonic = monotonic
        self._sets: dict[bytes, int] = {}
        self._cutter = Cutter()

    def commit(self, rows: Sequence[Row]) -> Outcome:
        """
        Make records durable in one transaction.

        Args:
            rows: in the order in which they were put.

        Returns:
            What came of each. After a refusal the reserve is released and the group tried once more.
        """
        began = self._monotonic()
        outcome = Outcome()
        for again in (False, True):
            try:
                outcome.results = self._attempt(rows, again=again)
            except Refused as refused:
                outcome.errors.append(refused.entity)
                outcome.detail = refused.detail
                self._give_way(refused)
                outcome.results = [self._unavailable(refused.error)] * len(rows)
                if self.damaged:
                    break
            else:
                break
        outcome.seconds = self._monotonic() - began
        return outcome

    def prune(self, before: int) -> tuple[int, bool]:
        """
        Forget one slice of the records issued before an instant; after the last, what nothing refers to any more.

        Args:
            before: NumericDate.

        Returns:
            (records forgotten, whether more are left).

        Raises:
            Refused: where the database refuses.
        """
        try:
            with Transaction(self._ready()) as connection:
                forgotten = connection.execute(_FORGET_RECEIPTS, (before, PRUNE_SLICE)).rowcount
                if forgotten < PRUNE_SLICE:
                    _forget_unreferenced(connection, before)
                    self._sets.clear()
        except sqlite3.Error as error:
            refused = self.refused("receipt", error)
            self._give_way(refused)
            raise refused from error
        self._unchecked += forgotten * ROW_OVERHEAD
        return forgotten, forgotten == PRUNE_SLICE

    def _give_way(self, refused: Refused) -> None:
        self._sets.clear()
        super()._give_way(refused)

    def _attempt(self, rows: Sequence[Row], *, again: bool) -> list[StoreError | None]:
        results: list[StoreError | None] = []
        written = 0
        entity: Entity = "db"
        try:
            with Transaction(self._ready()) as connection:
                for row in rows:
                    entity = "certificate_blob"
                    skeleton, certificates = self._share(connection, row)
                    written += _size(row, skeleton)
                    entity = "workload_statement" if isinstance(row, StatementRow) else "receipt"
                    try:
                        results.append(_insert(connection, row, skeleton, certificates, again=again))
                    except _MISUSE as error:
                        results.append(RecordRefused(detail=str(error)))
                entity = "db"
        except sqlite3.Error as error:
            raise self.refused(entity, error) from error
        self._unchecked += written + TRANSACTION_OVERHEAD
        return results

    def _share(self, connection: sqlite3.Connection, row: Row) -> tuple[Skeleton | None, int | None]:
        if row.envelope is None:
            return None, None
        skeleton = self._cutter.cut(row.envelope, None if isinstance(row, StatementRow) else row.payload)
        digests = [hashlib.sha256(der).digest() for der in skeleton.certificates]
        name = b"".join(digests)
        known = self._sets.get(name)
        if known is not None:
            return skeleton, known
        connection.executemany(
            "INSERT OR IGNORE INTO certificate_blob VALUES (?, ?)", zip(digests, skeleton.certificates, strict=True)
        )
        connection.execute("INSERT OR IGNORE INTO certificate_set (digests) VALUES (?)", (name,))
        (number,) = connection.execute("SELECT id FROM certificate_set WHERE digests = ?", (name,)).fetchone()
        self._sets[name] = number
        return skeleton, number


#: What the caller did wrong with one record must not cost the others of its group their place.
_MISUSE: Final = (sqlite3.InterfaceError, sqlite3.ProgrammingError, UnicodeError, OverflowError, TypeError, ValueError)

_FORGET_RECEIPTS: Final = (
    "DELETE FROM receipt WHERE seq IN (SELECT seq FROM receipt WHERE issued_at < ? ORDER BY issued_at LIMIT ?)"
)


def _forget_unreferenced(connection: sqlite3.Connection, before: int) -> None:
    connection.execute(
        "DELETE FROM workload_statement WHERE expires < ? AND NOT EXISTS"
        " (SELECT 1 FROM receipt WHERE receipt.statement_id = workload_statement.id)",
        (before,),
    )
    connection.execute(
        "DELETE FROM certificate_set WHERE"
        " NOT EXISTS (SELECT 1 FROM receipt WHERE receipt.certificate_set = certificate_set.id) AND"
        " NOT EXISTS (SELECT 1 FROM workload_statement WHERE workload_statement.certificate_set = certificate_set.id)"
    )
    used: set[bytes] = set()
    for (digests,) in connection.execute("SELECT digests FROM certificate_set"):
        used.update(digests[start : start + 32] for start in range(0, len(digests), 32))
    stored = [digest for (digest,) in connection.execute("SELECT sha256 FROM certificate_blob")]
    unused = [(digest,) for digest in stored if digest not in used]
    connection.executemany("DELETE FROM certificate_blob WHERE sha256 = ?", unused)


def _insert(
    connection: sqlite3.Connection, row: Row, skeleton: Skeleton | None, certificates: int | None, *, again: bool
) -> StoreError | None:
    if isinstance(row, StatementRow):
        _insert_statement(connection, row, skeleton, certificates)
        return None
    return _insert_receipt(connection, row, skeleton, certificates, again=again)


def _insert_statement(
    connection: sqlite3.Connection, row: StatementRow, skeleton: Skeleton | None, certificates: int | None
) -> None:
    if skeleton is None:
        return
    connection.execute(
        "INSERT OR IGNORE INTO workload_statement (id, expires, certificate_set, cuts, skeleton)"
        " VALUES (?, ?, ?, ?, ?)",
        (row.id, row.expires, certificates, skeleton.cuts_text(), skeleton.octets),
    )


def _insert_receipt(
    connection: sqlite3.Connection,
    row: StoredReceipt,
    skeleton: Skeleton | None,
    certificates: int | None,
    *,
    again: bool,
) -> StoreError | None:
    disclosures = None if row.disclosures is None else json.dumps(row.disclosures, separators=(",", ":"))
    values = (
        row.id,
        row.level,
        row.client,
        row.server,
        row.nonce,
        row.jti,
        row.issued_at,
        row.outcome,
        row.statement_id,
        certificates,
        None if skeleton is None else skeleton.cuts_text(),
        None if skeleton is None else skeleton.octets,
        row.payload,
        disclosures,
    )
    try:
        connection.execute(_INSERT_RECEIPT, values)
    except sqlite3.IntegrityError:
        # The first attempt may have been committed although it was reported as failed: then this very record is there.
        if again and connection.execute("SELECT 1 FROM receipt WHERE id = ?", (row.id,)).fetchone():
            return None
        return Replayed(client=row.client)
    return None


_INSERT_RECEIPT: Final = (
    "INSERT INTO receipt (id, level, client, server, nonce, jti, issued_at, outcome, statement_id, certificate_set,"
    " cuts, skeleton, payload, disclosures) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def _size(row: Row, skeleton: Skeleton | None) -> int:
    octets = ROW_OVERHEAD
    if skeleton is not None:
        octets += len(skeleton.octets)
    if isinstance(row, StoredReceipt):
        octets += len(row.payload)
    return octets

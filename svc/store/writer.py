"""
The one who writes to the embedded database.

Owns group commit, the answer to a full or broken disk, checkpoints and the forgetting of old records. Everything here
blocks and runs in one thread; must not know who waits for the results.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from svc.store.errors import RecordRefused, Replayed, StoreError, StoreUnavailable
from svc.store.interface import Entity
from svc.store.records import StoredReceipt
from svc.store.reserve import Reserve
from svc.store.schema import Connect, configure_writer, primary_code
from svc.store.skeletons import Skeleton

#: Octets written to the log before it is copied into the database.
CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
#: Pages in the log from which a checkpoint waits for readers, so that the log can start anew.
CHECKPOINT_PAGES: Final = 4096
#: Records forgotten in one transaction.
PRUNE_SLICE: Final = 256
#: What a record costs beside its own octets, roughly.
ROW_OVERHEAD: Final = 1024


@dataclass(frozen=True)
class StatementRow:
    """
    A statement as it is written.

    Args:
        id: its id.
        expires: NumericDate.
        envelope: its JSON octets.
    """

    id: str
    expires: int
    envelope: bytes


Row = StatementRow | StoredReceipt


@dataclass
class Outcome:
    """
    What came of some work.

    Args:
        results: for each record None, or why it is not stored.
        errors: the entities whose operation the database refused.
        seconds: how long it took.
    """

    results: list[StoreError | None] = field(default_factory=list)
    errors: list[Entity] = field(default_factory=list)
    seconds: float = 0.0


class Refused(Exception):
    """An error of SQLite, with the entity it hit."""

    def __init__(self, entity: Entity, error: sqlite3.Error) -> None:
        super().__init__(entity, error)
        self.entity: Entity = entity
        self.error = error


class Writer:
    """
    Writes to one database.

    Args:
        path: of the database.
        connection: for writing, opened and checked.
        reserve: the space kept back.
        connect: makes a new connection after an error.
        monotonic: measures durations.

    Attributes:
        degraded: True from the first refused write until :meth:`recover` succeeds.
    """

    def __init__(
        self,
        path: str,
        connection: sqlite3.Connection,
        reserve: Reserve,
        *,
        connect: Connect,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = connection
        self._reserve = reserve
        self._connect = connect
        self._monotonic = monotonic
        self._sets: dict[bytes, int] = {}
        self._unchecked = 0
        self.degraded = False

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
                self._give_way(refused)
                failure = StoreUnavailable(path=self._path, detail=str(refused.error))
                outcome.results = [failure] * len(rows)
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
            with _Transaction(self._ready()) as connection:
                forgotten = connection.execute(_FORGET_RECEIPTS, (before, PRUNE_SLICE)).rowcount
                if forgotten < PRUNE_SLICE:
                    _forget_unreferenced(connection, before)
                    self._sets.clear()
        except sqlite3.Error as error:
            refused = Refused("receipt", error)
            self._give_way(refused)
            raise refused from error
        self._unchecked += forgotten * ROW_OVERHEAD
        return forgotten, forgotten == PRUNE_SLICE

    def recover(self) -> None:
        """
        Find out whether new records can be promised a place again: take the reserve, write, empty the log.

        Raises:
            OSError: where the disk has no room for the reserve.
            Refused: where the database refuses.
        """
        self._reserve.fill()
        try:
            with _Transaction(self._ready()) as connection:
                connection.execute("UPDATE write_probe SET count = count + 1")
            self._checkpoint("TRUNCATE")
        except sqlite3.Error as error:
            self._disconnect()
            raise Refused("db", error) from error
        self.degraded = False

    def checkpoint_if_due(self) -> Entity | None:
        """
        Copy the log into the database when it has grown.

        While writes are refused the log is left to grow into the released reserve: what is in it is durable, and
        copying it would need the room a second time.

        Returns:
            The entity whose operation the database refused, or None.
        """
        if self._unchecked < CHECKPOINT_BYTES or self.degraded:
            return None
        try:
            if self._checkpoint("PASSIVE") > CHECKPOINT_PAGES:
                self._checkpoint("TRUNCATE")
        except sqlite3.Error as error:
            self._give_way(Refused("db", error))
            return "db"
        return None

    def close(self) -> Entity | None:
        """
        Let go of the database.

        Returns:
            The entity whose operation the database refused, or None.
        """
        refused: Entity | None = None
        try:
            if self._connection is not None and not self.degraded:
                self._checkpoint("TRUNCATE")
            self._disconnect()
        except sqlite3.Error:
            # Nothing is lost: what was acknowledged is in the log and is found there at the next start.
            refused = "db"
        self._reserve.close()
        return refused

    def _attempt(self, rows: Sequence[Row], *, again: bool) -> list[StoreError | None]:
        results: list[StoreError | None] = []
        written = 0
        entity: Entity = "db"
        try:
            with _Transaction(self._ready()) as connection:
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
            raise Refused(entity, error) from error
        self._unchecked += written
        return results

    def _share(self, connection: sqlite3.Connection, row: Row) -> tuple[Skeleton | None, int | None]:
        if row.envelope is None:
            return None, None
        skeleton = Skeleton.of(row.envelope, None if isinstance(row, StatementRow) else row.payload)
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

    def _give_way(self, refused: Refused) -> None:
        self.degraded = True
        self._sets.clear()
        # After a failed write or synchronisation the state of a connection is not to be trusted; a new one reads the
        # log from the disk and so knows what is really there.
        self._disconnect()
        if primary_code(refused.error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            self._reserve.release()

    def _ready(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = self._connect(self._path)
            try:
                configure_writer(self._path, connection)
            except sqlite3.Error:
                connection.close()
                raise
            except StoreError as error:
                connection.close()
                raise sqlite3.OperationalError(str(error)) from error
            self._connection = connection
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _checkpoint(self, mode: str) -> int:
        (_busy, pages, _copied) = self._ready().execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        self._unchecked = 0
        return int(pages)


class _Transaction:
    """A transaction that takes the write lock at once and is rolled back whole."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> sqlite3.Connection:
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is None:
            self._connection.execute("COMMIT")
        elif self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


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
    octets = 0 if skeleton is None else len(skeleton.octets)
    return octets + ROW_OVERHEAD + (len(row.payload) if isinstance(row, StoredReceipt) else 0)

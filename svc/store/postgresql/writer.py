"""
Writes to the PostgreSQL database: group commit, the answer to a lost server, and pruning.

Everything blocks for seconds at most and runs in one thread. A group is one statement that is its own transaction: all
its records are stored when the server reports so, and none when it refuses. Where the connection is lost before that,
the group is undecided: it is inserted again later, and a record that is stored already with the same content is the
same one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import errors

from svc.store.backend import PRUNE_SLICE, STATEMENT_GRACE, CommitResult, Refused
from svc.store.compact import CompactEnvelope, EnvelopeCompactor
from svc.store.errors import Replayed, StoreError
from svc.store.interface import Entity
from svc.store.postgresql.address import DatabaseAddress
from svc.store.postgresql.schema import LOCK_CLASS, PRUNING, prepare
from svc.store.postgresql.session import ANSWER_SECONDS, OpenSession, PostgresSession, one, server_message
from svc.store.records import StoredReceipt
from svc.store.rows import DELETE_UNUSED_SETS, RECEIPT_COLUMNS, Row, StatementRow, receipt_values

#: Attempts at a group whose transaction conflicts with another replica's.
_ATTEMPTS: Final = 4
#: Certificate sets that are known to be stored; new credentials add one.
_SETS: Final = 1024
#: Undecided records that are remembered, more than may wait at a time.
_UNDECIDED: Final = 16384

#: Errors of one record, which must not fail the others of its group.
_MISUSE: Final = (psycopg.DataError, errors.IntegrityError, UnicodeError, OverflowError, TypeError, ValueError)
_CONFLICTS: Final = (errors.DeadlockDetected, errors.SerializationFailure, errors.ForeignKeyViolation)

_INSERT_SET: Final = "INSERT INTO certificate_set (id, chain) VALUES (%s, %b) ON CONFLICT (id) DO NOTHING"
_INSERT_STATEMENT: Final = (
    "INSERT INTO workload_statement (id, expires, certificate_set, cuts, skeleton) VALUES (%s, %s, %s, %s, %s)"
    " ON CONFLICT (id) DO NOTHING"
)
#: In one snapshot: a nonce stays reserved until its record is visible, and a batch is stored with its receipts.
_INSERT_RECEIPTS: Final = """
WITH batches AS (
 INSERT INTO receipt_batch (id, certificate_set, cuts, skeleton)
 SELECT * FROM unnest(%(batch_id)b::bytea[], %(batch_set)b::bytea[], %(batch_cuts)s::varchar[],
 %(batch_skeleton)b::bytea[]) ON CONFLICT (id) DO NOTHING
), released AS (
 DELETE FROM reservation USING unnest(%(client)s::varchar[], %(nonce)s::varchar[]) AS done (client, nonce)
 WHERE reservation.client = done.client AND reservation.nonce = done.nonce
)
INSERT INTO receipt (id, level, client, server, nonce, jti, issued_at, outcome, statement_id, certificate_set, cuts,
 skeleton, payload, disclosures, batch, inclusion)
SELECT * FROM unnest(%(id)s::varchar[], %(level)s::varchar[], %(client)s::varchar[], %(server)s::varchar[],
 %(nonce)s::varchar[], %(jti)s::varchar[], %(issued_at)s::bigint[], %(outcome)s::varchar[],
 %(statement_id)s::varchar[], %(certificate_set)b::bytea[], %(cuts)s::varchar[], %(skeleton)b::bytea[],
 %(payload)b::bytea[], %(disclosures)s::text[], %(batch)b::bytea[], %(inclusion)b::bytea[])
ON CONFLICT DO NOTHING RETURNING id
"""
_BATCH_COLUMNS: Final = ("batch_id", "batch_set", "batch_cuts", "batch_skeleton")
_STORED: Final = "SELECT id, client, jti, payload FROM receipt WHERE id = ANY(%s)"
_DELETE_RECEIPTS: Final = (
    "DELETE FROM receipt WHERE id IN (SELECT id FROM receipt WHERE issued_at < %s ORDER BY issued_at LIMIT %s)"
    " RETURNING batch"
)
_DISCARD: Final = "DELETE FROM receipt WHERE id = ANY(%s) RETURNING batch"
_DELETE_BATCHES: Final = (
    "DELETE FROM receipt_batch WHERE id = ANY(%b) AND NOT EXISTS"
    " (SELECT 1 FROM receipt WHERE receipt.batch = receipt_batch.id)"
)
_DELETE_STATEMENTS: Final = "DELETE FROM workload_statement WHERE expires < %s"


class PostgresWriter:
    """A :class:`svc.store.backend.RecordWriter`, degraded while the server is unreachable."""

    def __init__(
        self,
        address: DatabaseAddress,
        session: PostgresSession,
        *,
        connect: OpenSession,
        answer_timeout: float = ANSWER_SECONDS,
    ) -> None:
        self._address = address
        self._session: PostgresSession | None = session
        self._connect = connect
        self._answer_timeout = answer_timeout
        self._sets: set[bytes] = set()
        self._compactor = EnvelopeCompactor()
        self._undecided: dict[str, None] = {}
        self.degraded = False
        self.trouble = ""

    def commit(self, rows: Sequence[Row]) -> CommitResult:
        """Commit a group; undecided where the server is unreachable, or was lost before it reported the result."""
        result = CommitResult()
        if self._session is None:
            result.undecided = True
            return result
        try:
            with self._session.within(self._answer_timeout) as session:
                result.results = self._stored(session, rows)
        except psycopg.Error as error:
            # No record is the cause: the next group would fail on this session too.
            self._remember_undecided(rows)
            self._disconnect()
            result.refused.append(_entity(rows))
            self.trouble = result.detail = server_message(error)
            result.undecided = True
        else:
            for row in rows:
                self._undecided.pop(row.id, None)
        return result

    def discard(self, receipt_ids: Sequence[str]) -> None:
        with self._deleting() as session:
            batches = {batch for (batch,) in session.execute(_DISCARD, [list(receipt_ids)]) if batch is not None}
            if batches:
                session.execute(_DELETE_BATCHES, [list(batches)])

    def prune(self, before: int) -> tuple[int, bool]:
        """Delete one slice, or nothing where another replica is pruning."""
        with self._deleting() as session:
            deleted = _delete(session, before)
        if deleted is None:
            return 0, False
        # What was deleted must not be taken for stored.
        self._sets.clear()
        return deleted, deleted == PRUNE_SLICE

    def recover(self) -> None:
        """Open a new session, and test by a durable write whether new records can be stored."""
        if self._session is not None:
            return
        try:
            session = self._connect()
            try:
                prepare(session, self._address.name)
                with session.within(self._answer_timeout):
                    session.execute("UPDATE notary SET probes = probes + 1")
            except BaseException:
                session.close()
                raise
        except (psycopg.Error, StoreError) as error:
            self.trouble = server_message(error)
            raise Refused("db", error, self.trouble) from error
        self._session = session
        self.degraded = False

    def checkpoint_if_due(self) -> bool:
        return False

    def fileno(self) -> int:
        """What becomes readable when the server sends something unsolicited, -1 where there is no connection."""
        return -1 if self._session is None or self._session.closed else self._session.fileno()

    def lost(self) -> bool:
        """Read what the server sent unsolicited; returns whether it has just ended the connection."""
        if self._session is None or not self._session.lost():
            return False
        self._disconnect()
        self.trouble = "the server ended the connection"
        return True

    def close(self) -> bool:
        self._disconnect()
        return False

    @contextmanager
    def _deleting(self) -> Iterator[PostgresSession]:
        """A transaction that deletes records; raises Refused where the server does not commit it."""
        if self._session is None:
            raise Refused("receipt", psycopg.OperationalError("the server is unreachable"), self.trouble)
        try:
            with self._session.within(self._answer_timeout) as session, session.transaction():
                yield session
        except psycopg.Error as error:
            if not self._session.idle():
                self._disconnect()
            self.trouble = server_message(error)
            raise Refused("receipt", error, self.trouble) from error

    def _remember_undecided(self, rows: Sequence[Row]) -> None:
        self._undecided.update(dict.fromkeys(row.id for row in rows))
        # Records that were abandoned meanwhile are never committed again.
        for name in list(self._undecided)[:-_UNDECIDED]:
            del self._undecided[name]

    def _disconnect(self) -> None:
        session, self._session = self._session, None
        self.degraded = True
        self._sets.clear()
        if session is not None:
            session.close()

    def _stored(self, session: PostgresSession, rows: Sequence[Row]) -> list[StoreError | None]:
        """Store a group, or each record by itself where one of them is refused."""
        try:
            return self._with_retries(session, rows)
        except _MISUSE as error:
            if len(rows) == 1:
                return [StoreError("malformed", detail=server_message(error))]
            return [self._stored(session, [row])[0] for row in rows]

    def _with_retries(self, session: PostgresSession, rows: Sequence[Row]) -> list[StoreError | None]:
        for _attempt in range(_ATTEMPTS - 1):
            try:
                return self._insert(session, rows)
            except _CONFLICTS:
                # Two replicas waited for each other, or one deleted a certificate set that was known here.
                self._sets.clear()
        return self._insert(session, rows)

    def _insert(self, session: PostgresSession, rows: Sequence[Row]) -> list[StoreError | None]:
        receipts: list[tuple[StoredReceipt, tuple[Any, ...]]] = []
        batches: dict[bytes, tuple[bytes, bytes, str, bytes]] = {}
        for row in rows:
            if isinstance(row, StatementRow):
                compact, name = self._compact(session, row.envelope)
                session.execute(_INSERT_STATEMENT, (row.id, row.expires, name, compact.cuts_text(), compact.octets))
                continue
            if row.batch is not None and row.batch not in batches:
                shared, name = self._compact(session, row.batch)
                batches[row.batch] = (hashlib.sha256(row.batch).digest(), name, shared.cuts_text(), shared.octets)
            batch = None if row.batch is None else batches[row.batch][0]
            alone, of = (None, None) if row.envelope is None else self._compact(session, row.envelope, row.payload)
            receipts.append((row, receipt_values(row, of, alone, batch)))
        stored = self._insert_receipts(session, receipts, list(batches.values())) if receipts else set()
        results: list[StoreError | None] = []
        refused: set[bytes] = set()
        for row in rows:
            if isinstance(row, StatementRow) or row.id in stored:
                results.append(None)
                # The same id a second time in the group is another record.
                stored.discard(row.id)
            else:
                results.append(Replayed(client=row.client))
                if row.batch is not None:
                    refused.add(batches[row.batch][0])
        if refused:
            session.execute(_DELETE_BATCHES, [list(refused)])
        return results

    def _insert_receipts(
        self,
        session: PostgresSession,
        receipts: Sequence[tuple[StoredReceipt, tuple[Any, ...]]],
        batches: Sequence[tuple[Any, ...]],
    ) -> set[str]:
        # In one order everywhere, so that two replicas with the same nonces do not deadlock. Of two with one nonce the
        # first stays first.
        ordered = sorted(receipts, key=lambda each: (each[0].client, each[0].nonce or ""))
        columns = zip(*(values for _row, values in ordered), strict=True)
        parameters = dict(zip(RECEIPT_COLUMNS, map(list, columns), strict=True))
        shared = zip(*batches, strict=True) if batches else ((),) * len(_BATCH_COLUMNS)
        parameters |= dict(zip(_BATCH_COLUMNS, map(list, shared), strict=True))
        stored = {name for (name,) in session.execute(_INSERT_RECEIPTS, parameters)}
        asked = {row.id: row for row, _values in ordered if row.id in self._undecided and row.id not in stored}
        if asked:
            for name, client, jti, payload in session.execute(_STORED, [list(asked)]):
                # Stored by the attempt whose result was lost.
                if (client, jti, payload) == (asked[name].client, asked[name].jti, asked[name].payload):
                    stored.add(name)
        return stored

    def _compact(
        self, session: PostgresSession, envelope: bytes, payload: bytes | None = None
    ) -> tuple[CompactEnvelope, bytes]:
        """Compact an envelope and store its certificates; returns the name of the set too."""
        compact = self._compactor.compact(envelope, payload)
        digests = b"".join(hashlib.sha256(der).digest() for der in compact.certificates)
        name = hashlib.sha256(digests).digest()
        if name not in self._sets:
            session.execute(_INSERT_SET, (name, list(compact.certificates)))
            if len(self._sets) >= _SETS:
                self._sets.clear()
            self._sets.add(name)
        return compact, name


def _delete(session: PostgresSession, before: int) -> int | None:
    if not one(session.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [LOCK_CLASS, PRUNING]))[0]:
        return None
    batches = [batch for (batch,) in session.execute(_DELETE_RECEIPTS, (before, PRUNE_SLICE))]
    deleted = len(batches)
    session.execute(_DELETE_BATCHES, [list({batch for batch in batches if batch is not None})])
    if deleted < PRUNE_SLICE:
        session.execute(_DELETE_STATEMENTS, (before - STATEMENT_GRACE,))
        try:
            with session.transaction():
                session.execute(DELETE_UNUSED_SETS)
        except errors.ForeignKeyViolation:
            # Another replica has just stored a record with such certificates; the next pruning finds it.
            pass
    return deleted


def _entity(rows: Sequence[Row]) -> Entity:
    return "receipt" if any(isinstance(row, StoredReceipt) for row in rows) else "workload_statement"

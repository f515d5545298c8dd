"""
The one who writes to the PostgreSQL database.

Owns group commit, the answer to a server that is away, and the forgetting of old records. Everything here blocks for
seconds at most and runs in one thread; must not know who waits for the results.

A group is one statement that is its own transaction: all its records are stored when the server says so, and none when
it refuses. Where the server goes away before it says either, the group is undecided: it is inserted again later, and a
record that is there already is the one of before.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg
from psycopg import errors

from svc.store.errors import RecordRefused, Replayed, StoreError
from svc.store.interface import Entity
from svc.store.postgresql.address import DatabaseAddress
from svc.store.postgresql.schema import LOCK_CLASS, PRUNING, prepare
from svc.store.postgresql.session import ANSWER_SECONDS, Connect, Session, one, told
from svc.store.records import StoredReceipt
from svc.store.rows import Outcome, Refused, Row, StatementRow
from svc.store.skeletons import Skeleton

#: Records forgotten in one transaction.
PRUNE_SLICE: Final = 256
#: How often a group is tried anew where replicas stood in each other's way.
_ATTEMPTS: Final = 4
#: Certificate sets that are known to be stored; a new generation makes one.
_SETS: Final = 1024
#: Records of unknown fate that are remembered, more than may wait at a time.
_DOUBTFUL: Final = 16384

#: What one record is to blame for; it must not cost the others of its group their place.
_BLAME: Final = (psycopg.DataError, errors.IntegrityError, UnicodeError, OverflowError, TypeError, ValueError)
_AGAIN: Final = (errors.DeadlockDetected, errors.SerializationFailure, errors.ForeignKeyViolation)

_INSERT_SET: Final = "INSERT INTO certificate_set (id, chain) VALUES (%s, %b) ON CONFLICT (id) DO NOTHING"
_INSERT_STATEMENT: Final = (
    "INSERT INTO workload_statement (id, expires, certificate_set, cuts, skeleton) VALUES (%s, %s, %s, %s, %s)"
    " ON CONFLICT (id) DO NOTHING"
)
#: In one snapshot: a nonce is reserved until its record is there, and not a moment less.
_INSERT_RECEIPTS: Final = """
WITH over AS (
 DELETE FROM reservation USING unnest(%(client)s::varchar[], %(nonce)s::varchar[]) AS done (client, nonce)
 WHERE reservation.client = done.client AND reservation.nonce = done.nonce
)
INSERT INTO receipt (id, level, client, server, nonce, jti, issued_at, outcome, statement_id, certificate_set, cuts,
 skeleton, payload, disclosures)
SELECT * FROM unnest(%(id)s::varchar[], %(level)s::varchar[], %(client)s::varchar[], %(server)s::varchar[],
 %(nonce)s::varchar[], %(jti)s::varchar[], %(issued_at)s::bigint[], %(outcome)s::varchar[],
 %(statement_id)s::varchar[], %(certificate_set)b::bytea[], %(cuts)s::varchar[], %(skeleton)b::bytea[],
 %(payload)b::bytea[], %(disclosures)s::text[])
ON CONFLICT DO NOTHING RETURNING id
"""
_STORED: Final = "SELECT id, client, jti, payload FROM receipt WHERE id = ANY(%s)"
_FORGET_RECEIPTS: Final = (
    "DELETE FROM receipt WHERE id IN (SELECT id FROM receipt WHERE issued_at < %s ORDER BY issued_at LIMIT %s)"
)
_FORGET_STATEMENTS: Final = (
    "DELETE FROM workload_statement WHERE expires < %s AND NOT EXISTS"
    " (SELECT 1 FROM receipt WHERE receipt.statement_id = workload_statement.id)"
)
_FORGET_SETS: Final = (
    "DELETE FROM certificate_set WHERE"
    " NOT EXISTS (SELECT 1 FROM receipt WHERE receipt.certificate_set = certificate_set.id) AND"
    " NOT EXISTS (SELECT 1 FROM workload_statement WHERE workload_statement.certificate_set = certificate_set.id)"
)


class Writer:
    """
    Writes to one database.

    Args:
        address: of the database, for errors.
        session: for writing, checked.
        connect: makes a new session after an error.
        answer_timeout: seconds after which a server that does not answer is given up.
        monotonic: measures durations.

    Attributes:
        degraded: True from the moment the server is away until :meth:`recover` succeeds.
        trouble: why the server refused last, or that it ended the connection; empty where it never has.
    """

    def __init__(
        self,
        address: DatabaseAddress,
        session: Session,
        *,
        connect: Connect,
        answer_timeout: float = ANSWER_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._session: Session | None = session
        self._connect = connect
        self._answer_timeout = answer_timeout
        self._monotonic = monotonic
        self._sets: set[bytes] = set()
        self._doubtful: dict[str, None] = {}
        self.degraded = False
        self.trouble = ""

    def commit(self, rows: Sequence[Row]) -> Outcome:
        """
        Make records durable in one transaction.

        Args:
            rows: in the order in which they were put.

        Returns:
            What came of each; undecided where the server is away, or went away before it said what came of them.
        """
        began = self._monotonic()
        outcome = Outcome()
        if self._session is None:
            outcome.undecided = True
            return outcome
        try:
            with self._session.within(self._answer_timeout) as session:
                outcome.results = self._stored(session, rows)
        except psycopg.Error as error:
            # Whatever it was that is not the fault of a record: the next group would fare no better on this session.
            self._doubt(rows)
            self._lose()
            outcome.errors.append(_entity(rows))
            self.trouble = outcome.detail = told(error)
            outcome.undecided = True
        else:
            for row in rows:
                self._doubtful.pop(row.id, None)
        outcome.seconds = self._monotonic() - began
        return outcome

    def prune(self, before: int) -> tuple[int, bool]:
        """
        Forget one slice of the records issued before an instant; after the last, what nothing refers to any more.
        Where another replica is about it, nothing is done.

        Args:
            before: NumericDate.

        Returns:
            (records forgotten, whether more are left).

        Raises:
            Refused: where the server refuses or is away.
        """
        if self._session is None:
            raise Refused("receipt", psycopg.OperationalError("the server is away"), self.trouble)
        try:
            with self._session.within(self._answer_timeout) as session, session.transaction():
                forgotten = _forget(session, before)
        except psycopg.Error as error:
            if not self._session.idle():
                self._lose()
            self.trouble = told(error)
            raise Refused("receipt", error, self.trouble) from error
        if forgotten is None:
            return 0, False
        # What this took away must not be taken for stored.
        self._sets.clear()
        return forgotten, forgotten == PRUNE_SLICE

    def recover(self) -> None:
        """
        Connect anew, and find out by a durable write whether new records can be promised a place again.

        Raises:
            Refused: where the server cannot be reached, or refuses.
        """
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
            self.trouble = told(error)
            raise Refused("db", error, self.trouble) from error
        self._session = session
        self.degraded = False

    def checkpoint_if_due(self) -> Entity | None:
        """
        Do nothing: the server tidies up by itself.

        Returns:
            None.
        """
        return None

    def fileno(self) -> int:
        """
        Give what becomes readable when the server says something unasked.

        Returns:
            The descriptor, -1 where there is no connection.
        """
        return -1 if self._session is None or self._session.closed else self._session.fileno()

    def lost(self) -> bool:
        """
        Take what the server said unasked.

        Returns:
            Whether it has just gone away.
        """
        if self._session is None or not self._session.lost():
            return False
        self._lose()
        self.trouble = "the server ended the connection"
        return True

    def close(self) -> Entity | None:
        """
        Let go of the database.

        Returns:
            None: closing asks nothing of the server.
        """
        self._lose()
        return None

    def _doubt(self, rows: Sequence[Row]) -> None:
        self._doubtful.update(dict.fromkeys(row.id for row in rows))
        # Records that were given up meanwhile are never asked for again.
        for name in list(self._doubtful)[:-_DOUBTFUL]:
            del self._doubtful[name]

    def _lose(self) -> None:
        session, self._session = self._session, None
        self.degraded = True
        self._sets.clear()
        if session is not None:
            session.close()

    def _stored(self, session: Session, rows: Sequence[Row]) -> list[StoreError | None]:
        """A group, or where the server blames a record, each record by itself."""
        try:
            return self._persistently(session, rows)
        except _BLAME as error:
            if len(rows) == 1:
                return [RecordRefused(detail=told(error))]
            return [self._stored(session, [row])[0] for row in rows]

    def _persistently(self, session: Session, rows: Sequence[Row]) -> list[StoreError | None]:
        for _attempt in range(_ATTEMPTS - 1):
            try:
                return self._insert(session, rows)
            except _AGAIN:
                # Two replicas waited for each other, or one forgot a certificate that was known here.
                self._sets.clear()
        return self._insert(session, rows)

    def _insert(self, session: Session, rows: Sequence[Row]) -> list[StoreError | None]:
        receipts: list[tuple[StoredReceipt, Skeleton | None, bytes | None]] = []
        for row in rows:
            skeleton, name = self._share(session, row)
            if isinstance(row, StoredReceipt):
                receipts.append((row, skeleton, name))
            elif skeleton is not None:
                values = (row.id, row.expires, name, skeleton.cuts_text(), skeleton.octets)
                session.execute(_INSERT_STATEMENT, values)
        stored = self._insert_receipts(session, receipts) if receipts else set()
        results: list[StoreError | None] = []
        for row in rows:
            if isinstance(row, StatementRow) or row.id in stored:
                results.append(None)
                # The same id a second time in the group is another record's.
                stored.discard(row.id)
            else:
                results.append(Replayed(client=row.client))
        return results

    def _insert_receipts(
        self, session: Session, receipts: Sequence[tuple[StoredReceipt, Skeleton | None, bytes | None]]
    ) -> set[str]:
        # In one order everywhere, so that two replicas with the same nonces do not wait for each other in a circle.
        # Of two with one nonce the first stays first.
        ordered = sorted(receipts, key=lambda each: (each[0].client, each[0].nonce or ""))
        stored = {name for (name,) in session.execute(_INSERT_RECEIPTS, _columns(ordered))}
        asked = {row.id: row for row, *_rest in ordered if row.id in self._doubtful and row.id not in stored}
        if asked:
            for name, client, jti, payload in session.execute(_STORED, [list(asked)]):
                # Stored by the attempt whose end nobody heard.
                if (client, jti, payload) == (asked[name].client, asked[name].jti, asked[name].payload):
                    stored.add(name)
        return stored

    def _share(self, session: Session, row: Row) -> tuple[Skeleton | None, bytes | None]:
        if row.envelope is None:
            return None, None
        skeleton = Skeleton.of(row.envelope, None if isinstance(row, StatementRow) else row.payload)
        digests = b"".join(hashlib.sha256(der).digest() for der in skeleton.certificates)
        name = hashlib.sha256(digests).digest()
        if name not in self._sets:
            session.execute(_INSERT_SET, (name, list(skeleton.certificates)))
            if len(self._sets) >= _SETS:
                self._sets.clear()
            self._sets.add(name)
        return skeleton, name


def _columns(receipts: Sequence[tuple[StoredReceipt, Skeleton | None, bytes | None]]) -> dict[str, list[Any]]:
    rows = [row for row, *_rest in receipts]
    members = ("id", "level", "client", "server", "nonce", "jti", "issued_at", "outcome", "statement_id", "payload")
    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in members}
    columns["certificate_set"] = [name for _row, _skeleton, name in receipts]
    skeletons = [skeleton for _row, skeleton, _name in receipts]
    columns["cuts"] = [None if each is None else each.cuts_text() for each in skeletons]
    columns["skeleton"] = [None if each is None else each.octets for each in skeletons]
    columns["disclosures"] = [
        None if row.disclosures is None else json.dumps(row.disclosures, separators=(",", ":")) for row in rows
    ]
    return columns


def _forget(session: Session, before: int) -> int | None:
    if not one(session.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [LOCK_CLASS, PRUNING]))[0]:
        return None
    forgotten = session.execute(_FORGET_RECEIPTS, (before, PRUNE_SLICE)).rowcount
    if forgotten < PRUNE_SLICE:
        session.execute(_FORGET_STATEMENTS, (before,))
        try:
            with session.transaction():
                session.execute(_FORGET_SETS)
        except errors.ForeignKeyViolation:
            # Another replica has just stored a record with such certificates; the next pruning sees it.
            pass
    return forgotten


def _entity(rows: Sequence[Row]) -> Entity:
    return "receipt" if any(isinstance(row, StoredReceipt) for row in rows) else "workload_statement"

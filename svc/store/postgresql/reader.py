"""
Reads from the PostgreSQL database, and reserves the nonces of exchanges that run.

Has a session of its own; everything blocks for seconds at most and runs in one thread.

A nonce is reserved by a row that names its holder, a number of this process; the holder is valid while its session
holds the advisory lock of that number. The server releases the lock when the process or its connection ends, so that
the reservations of a replica that crashed are free at once, without any clock.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import psycopg

from svc.store.compact import expand, read_cuts
from svc.store.postgresql.schema import FIRST_HOLDER, LOCK_CLASS, version
from svc.store.postgresql.session import ANSWER_SECONDS, SCHEMA, OpenSession, PostgresSession, one
from svc.store.records import ReceiptQuery, RecordPosition, StoredReceipt
from svc.store.rows import BATCHES, receipt_from, scan_values, selected
from svc.store.search import SLICE_OCTETS, SearchSlice
from svc.store.usage import StoreUsage

#: Seconds after a failed attempt to connect within which every read fails without another.
PAUSE_SECONDS: Final = 0.5
#: Nonces to be released that are remembered while the server is unreachable.
_RELEASES: Final = 4096

_RECEIPT: Final = (
    "SELECT receipt.id, level, client, server, nonce, jti, issued_at, outcome, statement_id, certificate_set.chain,"
    " receipt.cuts, receipt.skeleton, payload, disclosures, {batch} FROM receipt"
    " LEFT JOIN certificate_set ON certificate_set.id = receipt.certificate_set"
)
_ALONE: Final = _RECEIPT.format(batch="NULL, NULL, NULL, NULL")
_TOGETHER: Final = _RECEIPT.format(batch="inclusion, shared.chain, receipt_batch.cuts, receipt_batch.skeleton") + (
    " LEFT JOIN receipt_batch ON receipt_batch.id = receipt.batch"
    " LEFT JOIN certificate_set AS shared ON shared.id = receipt_batch.certificate_set"
)
_BY_ID: Final = "receipt.id = %s"
_BY_NONCE: Final = "client = %s AND nonce = %s"
_BY_JTI: Final = "jti = %s AND level = 'signRequest' AND client = %s ORDER BY issued_at, receipt.id LIMIT 1"
_BY_IDS: Final = "receipt.id = ANY(%s)"
#: The payload only of what the columns select, since reading it costs more than all others; and none behind the octets
#: of a slice, since lengths are known without reading.
_SCAN: Final = (
    "SELECT issued_at, id, CASE WHEN wanted THEN payload END FROM ("
    "SELECT *, sum(octets) OVER (ORDER BY issued_at DESC, id DESC ROWS UNBOUNDED PRECEDING) AS through FROM ("
    "SELECT *, CASE WHEN wanted THEN octet_length(payload) ELSE 0 END AS octets FROM ("
    "SELECT issued_at, id, payload, {selected} AS wanted FROM receipt"
    " WHERE issued_at >= %(since)s AND issued_at < %(until)s AND (issued_at, id) < (%(before)s, %(id)s)"
    " ORDER BY issued_at DESC, id DESC LIMIT %(rows)s) AS page) AS measured) AS summed"
    " WHERE through - octets < %(octets)s ORDER BY issued_at DESC, id DESC"
)
_NAMED: Final = (
    "SELECT id FROM receipt WHERE id >= %(key)s AND id < %(end)s UNION"
    " SELECT id FROM receipt WHERE jti = %(key)s AND level = 'signRequest'"
    " UNION SELECT id FROM receipt WHERE nonce IS NOT NULL AND nonce = %(key)s LIMIT %(limit)s"
)
_STATEMENT: Final = (
    "SELECT chain, cuts, skeleton FROM workload_statement JOIN certificate_set"
    " ON certificate_set.id = workload_statement.certificate_set WHERE workload_statement.id = %s"
)
#: Room that the server uses again is part of it.
_SIZE: Final = (
    "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class"
    " WHERE relkind = 'r' AND relnamespace = to_regnamespace(%s)"
)
_NONCE: Final = "SELECT EXISTS (SELECT 1 FROM receipt WHERE client = %s AND nonce = %s)"
#: Whether the holder of a row is valid. Here and below only constants are in the texts, nothing from outside.
_VALID: Final = (
    "EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2"  # noqa: S608 (constants)
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    f" AND classid = {LOCK_CLASS} AND objid = reservation.holder::oid)"
)
_RESERVE: Final = (
    "INSERT INTO reservation (client, nonce, holder) VALUES (%s, %s, %s) ON CONFLICT (client, nonce)"  # noqa: S608 (constants)
    " DO UPDATE SET holder = EXCLUDED.holder"
    f" WHERE reservation.holder = EXCLUDED.holder OR NOT {_VALID} RETURNING 1"
)
_RELEASE: Final = "DELETE FROM reservation WHERE client = %s AND nonce = %s AND holder = %s"
_RESERVED: Final = f"SELECT EXISTS (SELECT 1 FROM reservation WHERE client = %s AND nonce = %s AND {_VALID})"  # noqa: S608 (constants)
_HOLD: Final = "SELECT pg_try_advisory_lock(%s, %s)"
_MOVE: Final = "UPDATE reservation SET holder = %s WHERE holder = %s"
_SWEEP: Final = f"DELETE FROM reservation WHERE NOT {_VALID}"  # noqa: S608 (constants)

_T = TypeVar("_T")


class PostgresReader:
    """
    A :class:`svc.store.backend.RecordReader`; raises psycopg.Error or StoreError where it cannot be opened.

    ``reserves`` is False for a reader that writes nothing, not even the nonces of exchanges.
    """

    def __init__(
        self,
        connect: OpenSession,
        *,
        answer_timeout: float = ANSWER_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
        reserves: bool = True,
    ) -> None:
        self._reserves = reserves
        self._receipt = _TOGETHER
        self._connect = connect
        self._answer_timeout = answer_timeout
        self._monotonic = monotonic
        self._session: PostgresSession | None = None
        self._holder = 0
        self._releases: dict[tuple[str, str], None] = {}
        self._not_before = monotonic()
        self._ready()

    def get_statement(self, statement_id: str) -> bytes | None:
        row = self._query(lambda session: session.execute(_STATEMENT, (statement_id,)).fetchone())
        if row is None:
            return None
        chain, cuts, skeleton = row
        return expand(skeleton, read_cuts(cuts), chain, b"")

    def get_receipt(self, receipt_id: str) -> StoredReceipt | None:
        return _record(self._query(lambda session: self._found(session, _BY_ID, (receipt_id,)).fetchone()))

    def get_by_request(self, client: str, key: str) -> StoredReceipt | None:
        def found(session: PostgresSession) -> tuple[Any, ...] | None:
            by_nonce = self._found(session, _BY_NONCE, (client, key)).fetchone()
            return by_nonce or self._found(session, _BY_JTI, (key, client)).fetchone()

        return _record(self._query(found))

    def scan(self, query: ReceiptQuery, rows: int) -> SearchSlice:
        scan = _SCAN.format(selected=selected(query, "%({})s")).encode()
        values = {**scan_values(query, rows), "octets": SLICE_OCTETS}

        def found(session: PostgresSession) -> SearchSlice:
            wanted: list[str] = []
            last: RecordPosition | None = None
            count = octets = 0
            ended = False
            for issued_at, name, payload in session.execute(scan, values):
                count += 1
                octets += len(payload or b"")
                last = RecordPosition(issued_at, name)
                if payload is not None and query.selects(payload):
                    wanted.append(name)
                ended = len(wanted) == query.limit or count == rows or octets >= SLICE_OCTETS
                if ended:
                    break
            complete = {row[0]: row for row in self._found(session, _BY_IDS, (wanted,))} if wanted else {}
            # What was pruned between the two queries is left out.
            records = [_record(complete.get(name)) for name in wanted]
            return SearchSlice([each for each in records if each is not None], count, last if ended else None, octets)

        return self._query(found)

    def named(self, key: str, limit: int) -> list[str]:
        values = {"key": key, "end": f"{key}\x7f", "limit": limit}
        return [name for (name,) in self._query(lambda session: session.execute(_NAMED, values).fetchall())]

    def usage(self) -> StoreUsage:
        return StoreUsage(self._query(lambda session: int(one(session.execute(_SIZE, [SCHEMA]))[0])))

    def nonce_known(self, client: str, nonce: str) -> bool:
        return bool(self._query(lambda session: one(session.execute(_NONCE, (client, nonce)))[0]))

    def reserve(self, client: str, nonce: str) -> bool:
        def reserved(session: PostgresSession) -> bool:
            if session.execute(_RESERVE, (client, nonce, self._holder)).fetchone() is None:
                return False
            # Only now, so that a record that was stored before this row could be written is seen.
            if not one(session.execute(_NONCE, (client, nonce)))[0]:
                return True
            session.execute(_RELEASE, (client, nonce, self._holder))
            return False

        self._releases.pop((client, nonce), None)
        return self._query(reserved)

    def give_back(self, client: str, nonce: str) -> None:
        """Release a nonce now, or with the next session where the server is unreachable."""
        self._releases[client, nonce] = None
        for each in list(self._releases)[:-_RELEASES]:
            del self._releases[each]
        self._query(self._release)

    def reserved(self, client: str, nonce: str) -> bool:
        return bool(self._query(lambda session: one(session.execute(_RESERVED, (client, nonce)))[0]))

    def version(self, name: str) -> int | None:
        """Read the version of the tables of the database ``name``, None where there are none; it is read as such."""
        found = self._query(lambda session: version(session, name))
        self._receipt = _ALONE if found is not None and found < BATCHES else _TOGETHER
        return found

    def disconnect(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _found(self, session: PostgresSession, which: str, values: Sequence[Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        return session.execute(f"{self._receipt} WHERE {which}".encode(), values)

    def _query(self, query: Callable[[PostgresSession], _T]) -> _T:
        reused = self._session is not None
        try:
            return self._query_once(query)
        except psycopg.OperationalError:
            # The session may have been lost long ago, as by a restart of the server; a new one is no repetition.
            if not reused or self._session is None or not self._session.closed:
                raise
            self.disconnect()
            return self._query_once(query)

    def _query_once(self, query: Callable[[PostgresSession], _T]) -> _T:
        with self._ready().within(self._answer_timeout) as session:
            return query(session)

    def _ready(self) -> PostgresSession:
        if self._session is None:
            if self._monotonic() < self._not_before:
                raise psycopg.OperationalError("the server is unreachable")
            try:
                session = self._connect()
                self._session = self._as_holder(session) if self._reserves else session
            except BaseException:
                self._not_before = self._monotonic() + PAUSE_SECONDS
                raise
        return self._session

    def _as_holder(self, session: PostgresSession) -> PostgresSession:
        """Become a holder of nonces under a number that no session uses, and take over our earlier reservations."""
        try:
            with session.within(self._answer_timeout):
                while True:
                    holder = FIRST_HOLDER + secrets.randbelow(2**31 - FIRST_HOLDER)
                    if one(session.execute(_HOLD, (LOCK_CLASS, holder)))[0]:
                        break
                if self._holder:
                    session.execute(_MOVE, (holder, self._holder))
                self._holder = holder
                session.execute(_SWEEP)
                self._release(session)
        except BaseException:
            session.close()
            raise
        return session

    def _release(self, session: PostgresSession) -> None:
        for client, nonce in list(self._releases):
            session.execute(_RELEASE, (client, nonce, self._holder))
            del self._releases[client, nonce]


def _record(row: Sequence[Any] | None) -> StoredReceipt | None:
    if row is None:
        return None
    *columns, inclusion, chain, cuts, skeleton = row
    batch = None if chain is None else (chain, cuts, skeleton)
    return receipt_from((*columns, batch, inclusion), _chain, _batch)


def _chain(chain: list[bytes]) -> list[bytes]:
    return chain


def _batch(batch: tuple[list[bytes], str, bytes]) -> bytes:
    chain, cuts, skeleton = batch
    return expand(skeleton, read_cuts(cuts), chain, b"")

"""
The one who reads from the PostgreSQL database, and keeps the nonces of exchanges that run.

Has a session of its own; everything here blocks for seconds at most and runs in one thread.

A nonce is reserved by a row that names its holder, a number of this process; the holder lives as long as its session
holds the advisory lock of that number. The server lets go of the lock when the process or its connection dies, so what
a dead replica reserved is free at once, and no clock decides.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import psycopg

from svc.store.postgresql.schema import FIRST_HOLDER, LOCK_CLASS
from svc.store.postgresql.session import ANSWER_SECONDS, Connect, Session, one
from svc.store.records import StoredReceipt
from svc.store.skeletons import filled, read_cuts

#: Seconds after a failed attempt to connect within which every reading fails without another.
PAUSE_SECONDS: Final = 0.5
#: Nonces that could not be given back while the server was away.
_LEAVING: Final = 4096

_RECEIPT: Final = (
    "SELECT receipt.id, level, client, server, nonce, jti, issued_at, outcome, statement_id, chain, cuts, skeleton,"
    " payload, disclosures FROM receipt LEFT JOIN certificate_set ON certificate_set.id = receipt.certificate_set"
)
_BY_ID: Final = f"{_RECEIPT} WHERE receipt.id = %s"
_BY_NONCE: Final = f"{_RECEIPT} WHERE client = %s AND nonce = %s"
_BY_JTI: Final = f"{_RECEIPT} WHERE jti = %s AND client = %s ORDER BY issued_at, receipt.id LIMIT 1"
_STATEMENT: Final = (
    "SELECT chain, cuts, skeleton FROM workload_statement JOIN certificate_set"
    " ON certificate_set.id = workload_statement.certificate_set WHERE workload_statement.id = %s"
)
_NONCE: Final = "SELECT EXISTS (SELECT 1 FROM receipt WHERE client = %s AND nonce = %s)"
#: Whether the holder of a row lives. Here and below only constants stand in the texts, nothing from outside.
_ALIVE: Final = (
    "EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2"  # noqa: S608 - as said
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    f" AND classid = {LOCK_CLASS} AND objid = reservation.holder::oid)"
)
_RESERVE: Final = (
    "INSERT INTO reservation (client, nonce, holder) VALUES (%s, %s, %s) ON CONFLICT (client, nonce)"  # noqa: S608
    " DO UPDATE SET holder = EXCLUDED.holder"
    f" WHERE reservation.holder = EXCLUDED.holder OR NOT {_ALIVE} RETURNING 1"
)
_RELEASE: Final = "DELETE FROM reservation WHERE client = %s AND nonce = %s AND holder = %s"
_RESERVED: Final = f"SELECT EXISTS (SELECT 1 FROM reservation WHERE client = %s AND nonce = %s AND {_ALIVE})"  # noqa: S608
_HOLD: Final = "SELECT pg_try_advisory_lock(%s, %s)"
_MOVE: Final = "UPDATE reservation SET holder = %s WHERE holder = %s"
_SWEEP: Final = f"DELETE FROM reservation WHERE NOT {_ALIVE}"  # noqa: S608

_T = TypeVar("_T")


class Reader:
    """
    Reads from one database.

    Args:
        connect: makes sessions.
        answer_timeout: seconds after which a server that does not answer is given up.
        monotonic: measures the pause after a failed connection.

    Raises:
        psycopg.Error: where the database cannot be reached.
        StoreError: where it cannot be used.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        answer_timeout: float = ANSWER_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._answer_timeout = answer_timeout
        self._monotonic = monotonic
        self._session: Session | None = None
        self._holder = 0
        self._leaving: dict[tuple[str, str], None] = {}
        self._not_before = monotonic()
        self._ready()

    def statement(self, statement_id: str) -> bytes | None:
        """
        Find a statement.

        Args:
            statement_id: its id.

        Returns:
            Its envelope, or None.

        Raises:
            psycopg.Error: where the database refuses.
        """
        row = self._asked(lambda session: session.execute(_STATEMENT, (statement_id,)).fetchone())
        if row is None:
            return None
        chain, cuts, skeleton = row
        return filled(skeleton, read_cuts(cuts), chain, b"")

    def receipt(self, receipt_id: str) -> StoredReceipt | None:
        """
        Find a record by its id.

        Args:
            receipt_id: the id.

        Returns:
            The record, or None.

        Raises:
            psycopg.Error: where the database refuses.
        """
        return _record(self._asked(lambda session: session.execute(_BY_ID, (receipt_id,)).fetchone()))

    def by_request(self, client: str, key: str) -> StoredReceipt | None:
        """
        Find a record by the client's nonce, else by its ``jti``.

        Args:
            client: whose records are looked at.
            key: the nonce or ``jti``.

        Returns:
            The record, or None.

        Raises:
            psycopg.Error: where the database refuses.
        """

        def found(session: Session) -> tuple[Any, ...] | None:
            by_nonce = session.execute(_BY_NONCE, (client, key)).fetchone()
            return by_nonce or session.execute(_BY_JTI, (key, client)).fetchone()

        return _record(self._asked(found))

    def nonce_known(self, client: str, nonce: str) -> bool:
        """
        Say whether a client's nonce is stored.

        Args:
            client: whose.
            nonce: which.

        Returns:
            True or False.

        Raises:
            psycopg.Error: where the database refuses.
        """
        return bool(self._asked(lambda session: one(session.execute(_NONCE, (client, nonce)))[0]))

    def reserve(self, client: str, nonce: str) -> bool:
        """
        Keep a nonce for an exchange that begins.

        Args:
            client: whose.
            nonce: which.

        Returns:
            False where it is stored, or kept by another replica.

        Raises:
            psycopg.Error: where the database refuses.
        """

        def reserved(session: Session) -> bool:
            if session.execute(_RESERVE, (client, nonce, self._holder)).fetchone() is None:
                return False
            # Only now: a record that was stored before this row could be written is seen.
            if not one(session.execute(_NONCE, (client, nonce)))[0]:
                return True
            session.execute(_RELEASE, (client, nonce, self._holder))
            return False

        self._leaving.pop((client, nonce), None)
        return self._asked(reserved)

    def give_back(self, client: str, nonce: str) -> None:
        """
        Give a nonce back whose exchange leaves no record.

        Args:
            client: whose.
            nonce: which.

        Raises:
            psycopg.Error: where the database refuses; done at the next connection then.
        """
        self._leaving[client, nonce] = None
        for each in list(self._leaving)[:-_LEAVING]:
            del self._leaving[each]
        self._asked(self._let_go)

    def reserved(self, client: str, nonce: str) -> bool:
        """
        Say whether an exchange with this nonce runs at some replica.

        Args:
            client: whose.
            nonce: which.

        Returns:
            True or False.

        Raises:
            psycopg.Error: where the database refuses.
        """
        return bool(self._asked(lambda session: one(session.execute(_RESERVED, (client, nonce)))[0]))

    def renew(self) -> None:
        """Connect anew at the next reading: after an error a session is not to be trusted."""
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _asked(self, ask: Callable[[Session], _T]) -> _T:
        idle = self._session is not None
        try:
            return self._ask(ask)
        except psycopg.OperationalError:
            # The session may have been dead for long, as after a restart of the server; a new one is no repetition.
            if not idle or self._session is None or not self._session.closed:
                raise
            self.renew()
            return self._ask(ask)

    def _ask(self, ask: Callable[[Session], _T]) -> _T:
        with self._ready().within(self._answer_timeout) as session:
            return ask(session)

    def _ready(self) -> Session:
        if self._session is None:
            if self._monotonic() < self._not_before:
                raise psycopg.OperationalError("the server is away")
            try:
                self._session = self._introduced(self._connect())
            except BaseException:
                self._not_before = self._monotonic() + PAUSE_SECONDS
                raise
        return self._session

    def _introduced(self, session: Session) -> Session:
        """Become a holder of nonces, under a number that no session uses, which takes over what we held before."""
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
                self._let_go(session)
        except BaseException:
            session.close()
            raise
        return session

    def _let_go(self, session: Session) -> None:
        for client, nonce in list(self._leaving):
            session.execute(_RELEASE, (client, nonce, self._holder))
            del self._leaving[client, nonce]


def _record(row: tuple[Any, ...] | None) -> StoredReceipt | None:
    if row is None:
        return None
    record_id, level, client, server, nonce, jti, issued_at, outcome = row[:8]
    statement_id, chain, cuts, skeleton, payload, disclosures = row[8:]
    envelope = None
    if skeleton is not None and cuts is not None and chain is not None:
        envelope = filled(skeleton, read_cuts(cuts), chain, payload)
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

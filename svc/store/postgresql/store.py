"""The notary store on a PostgreSQL server: opening, the delay before the next attempt, detection of a lost server."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Unpack

import psycopg

from svc.sqlite.threads import JobThread, WatchingThread
from svc.store.errors import DatabaseUnavailable, StoreError
from svc.store.postgresql.address import DatabaseAddress
from svc.store.postgresql.reader import PostgresReader
from svc.store.postgresql.schema import prepare
from svc.store.postgresql.session import ANSWER_SECONDS, OpenSession, connect, server_message
from svc.store.postgresql.writer import PostgresWriter
from svc.store.threaded import StoreOptions, ThreadedStore

#: Seconds: the next attempt comes after a random part of these, doubled at each failure up to the second.
RETRY_FIRST: Final = 0.1
RETRY_MOST: Final = 5.0
#: Never at once: many replicas lose one server at the same moment.
RETRY_LEAST: Final = 0.02


class PostgresStore(ThreadedStore):
    """
    Stores statements and receipts in a PostgreSQL database that other replicas may use at the same time.

    Args:
        address: of the database.
        answer_timeout: seconds that the server may take for an answer.
        jitter: returns a number from 0 to 1.
        write_connect: opens the session that writes.
        read_connect: opens the session that reads.
        options: the arguments of :class:`ThreadedStore`; an outage shorter than ``commit_timeout`` fails nothing.
    """

    read_errors = (psycopg.Error, StoreError)
    _writer: PostgresWriter

    def __init__(
        self,
        address: DatabaseAddress,
        *,
        answer_timeout: float = ANSWER_SECONDS,
        jitter: Callable[[], float] = random.random,
        write_connect: OpenSession | None = None,
        read_connect: OpenSession | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        super().__init__(**options)
        self.address = address
        self._jitter = jitter
        self._answer_timeout = answer_timeout
        self._write_connect = write_connect or partial(connect, address, durable=True)
        self._read_connect = read_connect or partial(connect, address, durable=False)

    def _open(self) -> tuple[PostgresWriter, PostgresReader]:
        session = None
        try:
            session = self._write_connect()
            prepare(session, self.address.name)
            reader = PostgresReader(self._read_connect, answer_timeout=self._answer_timeout)
        except (psycopg.Error, StoreError) as error:
            if session is not None:
                session.close()
            raise self._unavailable(error) from error
        writer = PostgresWriter(self.address, session, connect=self._write_connect, answer_timeout=self._answer_timeout)
        return writer, reader

    def _start_writer(self) -> JobThread[Any]:
        if self._start_thread is not JobThread:
            return super()._start_writer()
        # It watches the connection while it has nothing to do.
        return WatchingThread(
            "svc-store-writer", self._write, self._close_writer, fileno=self._writer.fileno, readable=self._check_lost
        )

    def _check_lost(self) -> None:
        if self._writer.lost():
            self._report_refused()

    def _retry_delay(self, attempt: int) -> float:
        most = min(RETRY_MOST, RETRY_FIRST * 2.0 ** min(attempt, 16))
        return max(RETRY_LEAST, self._jitter() * most)

    def _unavailable(self, error: Exception) -> StoreError:
        return explained(self.address, error)


def check_database(address: DatabaseAddress) -> None:
    """Connect once, as for writing; StoreError where the database cannot be used."""
    try:
        connect(address, durable=True).close()
    except (psycopg.Error, StoreError) as error:
        raise explained(address, error) from error


def open_reader(address: DatabaseAddress) -> tuple[PostgresReader, int | None]:
    """
    Open the database for reading alone; returns the version of its tables too, None where there are none.

    Raises:
        StoreError: it cannot be used.
    """
    try:
        reader = PostgresReader(partial(connect, address, durable=False, writes=False), reserves=False)
        return reader, reader.version(address.name)
    except (psycopg.Error, StoreError) as error:
        raise explained(address, error) from error


def explained(address: DatabaseAddress, error: Exception) -> StoreError:
    """The error for users in place of what the library or the store raised."""
    if isinstance(error, StoreError):
        return error
    return DatabaseUnavailable(path=address.name, detail=server_message(error))

"""
A connection that writes to an embedded database, and what it does when the disk refuses.

Owns the answer to a full or broken disk, and checkpoints; what is written is the business of a subclass. All of it
blocks and runs in one thread.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from typing import Final

from svc.store.disk import refusal
from svc.store.errors import StoreError
from svc.store.interface import Entity
from svc.store.reserve import Reserve
from svc.store.rows import Refused
from svc.store.schema import DAMAGED, Connect, configure_writer, primary_code

#: Octets written to the log before it is copied into the database.
CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
#: Pages in the log from which a checkpoint waits for readers, so that the log can start anew.
CHECKPOINT_PAGES: Final = 4096


class Transaction:
    """
    A transaction that takes the write lock at once and is rolled back whole.

    Args:
        connection: to the database.
    """

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


class ConnectedWriter:
    """
    Writes to one database.

    Args:
        path: of the database.
        connection: for writing, opened and checked.
        reserve: the space kept back.
        connect: makes a new connection after an error.

    Attributes:
        degraded: True from the first refused write until :meth:`recover` succeeds.
        damaged: True once the database was found damaged; it then takes nothing until the next start has looked at it.
        trouble: why the database refused last; empty where it never has.
    """

    def __init__(self, path: str, connection: sqlite3.Connection, reserve: Reserve, *, connect: Connect) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = connection
        self._reserve = reserve
        self._connect = connect
        self._unchecked = 0
        self.degraded = False
        self.damaged = False
        self.trouble = ""

    def refused(self, entity: Entity, error: Exception) -> Refused:
        """
        Take note of an error.

        Args:
            entity: what it hit.
            error: of SQLite or of the file system.

        Returns:
            It with its explanation, to be raised or settled.
        """
        self.trouble = refusal(self._path, error)
        return Refused(entity, error, self.trouble)

    def recover(self) -> None:
        """
        Find out whether new records can be promised a place again: take the reserve, write, empty the log.

        Raises:
            OSError: where the disk has no room for the reserve, or the database is damaged.
            Refused: where the database refuses.
        """
        if self.damaged:
            # The probe might miss the damaged page, and a new record hit it after it was promised a place.
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
        try:
            self._reserve.fill()
        except OSError as error:
            self.refused("db", error)
            raise
        try:
            with Transaction(self._ready()) as connection:
                connection.execute("UPDATE write_probe SET count = count + 1")
            self._checkpoint("TRUNCATE")
        except sqlite3.Error as error:
            self._disconnect()
            raise self.refused("db", error) from error
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
            self._give_way(self.refused("db", error))
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
        except sqlite3.Error as error:
            self.refused("db", error)
            # Nothing is lost: what was acknowledged is in the log and is found there at the next start.
            refused = "db"
        self._reserve.close()
        return refused

    def give_up(self) -> None:
        """Take no more records: the database is damaged. The next start looks at all of it."""
        self.damaged = self.degraded = True
        self._reserve.doubt()

    def _give_way(self, refused: Refused) -> None:
        self.degraded = True
        # After a failed write or synchronisation the state of a connection is not to be trusted; a new one reads the
        # log from the disk and so knows what is really there.
        self._disconnect()
        code = primary_code(refused.error)
        if code in DAMAGED:
            self.give_up()
        elif code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
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

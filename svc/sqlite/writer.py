"""
Group commit into one database, and what happens when the disk refuses.

Owns degradation, recovery and checkpoints. What a group is and how often it is retried is the business of a subclass:
the notary's records and the broker's operations differ there. Everything blocks and runs in one thread.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from svc.sqlite.database import DatabaseFile
from svc.sqlite.disk import DAMAGED, explain, primary_code

#: Octets written to the log before it is copied into the database.
CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
#: Pages in the log from which a checkpoint waits for readers, so that the log can restart.
CHECKPOINT_PAGES: Final = 4096


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """A transaction that takes the write lock at once and is rolled back as a whole."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


class GroupWriter:
    """Writes groups to a database over the connection with which it was opened, and others after errors."""

    def __init__(self, file: DatabaseFile, connection: sqlite3.Connection) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = connection
        self._since_checkpoint = 0
        #: True from the first refused write until :meth:`recover` succeeds.
        self.degraded = False
        #: True once the database was found damaged; nothing is written to it until the next start verifies it.
        self.damaged = False
        #: Why the database refused last; empty where it never has.
        self.trouble = ""

    def fill_reserve(self) -> bool:
        """Allocate the reserve at the start; without room for it the writer is degraded."""
        try:
            self._file.reserve.fill()
        except OSError as error:
            self.degraded = True
            self._explain(error)
        return not self.degraded

    def recover(self) -> None:
        """
        Find out whether new records can be accepted again: allocate the reserve, write, empty the log.

        Raises:
            OSError: the disk has no room for the reserve, or the database is damaged.
            sqlite3.Error: the database refuses.
        """
        if self.damaged:
            # The probe might miss the damaged page, and an accepted record hit it.
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._file.path)
        try:
            self._file.reserve.fill()
            with transaction(self._ready()) as connection:
                connection.execute("UPDATE write_probe SET count = count + 1")
            self._checkpoint("TRUNCATE")
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, sqlite3.Error):
                self._disconnect()
            self._explain(error)
            raise
        self.degraded = False

    def checkpoint_if_due(self) -> bool:
        """
        Copy the log into the database when it has grown; returns whether the database refused.

        While writes are refused the log is left to grow into the released reserve: its content is durable, and
        copying it would need the room a second time.
        """
        if self._since_checkpoint < CHECKPOINT_BYTES or self.degraded:
            return False
        try:
            if self._checkpoint("PASSIVE") > CHECKPOINT_PAGES:
                self._checkpoint("TRUNCATE")
        except sqlite3.Error as error:
            self._degrade(error)
            return True
        return False

    def close(self) -> bool:
        """Close the database and release its lock; returns whether the last checkpoint was refused."""
        refused = False
        try:
            if self._connection is not None and not self.degraded:
                self._checkpoint("TRUNCATE")
            self._disconnect()
        except sqlite3.Error as error:
            # Nothing is lost: what was acknowledged is in the log, where the next start finds it.
            self._explain(error)
            refused = True
        self._file.close()
        return refused

    def mark_damaged(self) -> None:
        """Write nothing any more; the next start checks every page."""
        self.damaged = self.degraded = True
        self._file.reserve.mark_suspect()

    def _explain(self, error: Exception) -> None:
        self.trouble = explain(self._file.path, error)

    def _degrade(self, error: Exception) -> None:
        """Accept no new records after a refused write, with the reserve released on a full or failing disk."""
        self._explain(error)
        self.degraded = True
        # After a failed write or synchronization the state of a connection is unreliable; a new one reads the log from
        # the disk.
        self._disconnect()
        code = primary_code(error)
        if code in DAMAGED:
            self.mark_damaged()
        elif code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            self._file.reserve.release()

    def _ready(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._file.reconnect()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _checkpoint(self, mode: str) -> int:
        (_busy, pages, _copied) = self._ready().execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        self._since_checkpoint = 0
        return int(pages)

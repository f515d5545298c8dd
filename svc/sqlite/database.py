"""
The file of a database: its lock, its verification, its creation and migration, and connections to it.

Everything blocks. The order of an opening is :meth:`DatabaseFile.lock`, :meth:`DatabaseFile.open`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from svc.errors import SvcError
from svc.folders import make_folder, probe_folder, sync_folder
from svc.sqlite.connection import open_connection
from svc.sqlite.disk import DAMAGED, explain, message_of, primary_code
from svc.sqlite.errors import DatabaseCorrupt, DatabaseError, DatabaseQuarantined
from svc.sqlite.kind import Connect, DatabaseKind
from svc.sqlite.quarantine import damage_reported, inspect, is_ours, quarantine, quarantined, read_version
from svc.sqlite.reserve import Reserve

#: The write-ahead log is truncated to this size when it has grown beyond it.
WAL_SIZE_LIMIT: Final = 16 * 1024 * 1024


class DatabaseFile:
    """One database in a file, which is created with its folder where it is absent."""

    def __init__(self, path: str, kind: DatabaseKind, *, reserve_size: int, connect: Connect = open_connection) -> None:
        self.path = path
        self.kind = kind
        self.connect = connect
        # The lock is a file beside the database; a symbolic link must lead to the same one.
        self.reserve = Reserve(f"{os.path.realpath(path)}.reserve", reserve_size)
        #: Databases that were quarantined by earlier starts, oldest first; known once it is verified.
        self.quarantined: list[str] = []

    def lock(self) -> None:
        """Create the folder (0700) durably and become the owner; DatabaseError where another process is."""
        with self._explained():
            make_folder(os.path.dirname(os.path.abspath(self.path)))
            try:
                self.reserve.lock()
            except BlockingIOError as error:
                raise DatabaseError(path=self.path, **self.kind.words) from error

    def open(self, wall: Callable[[], datetime]) -> sqlite3.Connection:
        """
        Verify the database and open it, create it or migrate it; on a full disk the reserve is used for that too.

        Returns:
            The connection for writing: write-ahead log, every commit synchronized, checkpoints only when asked for.

        Raises:
            SvcError: a DatabaseError, or what ``kind.unavailable`` makes; nothing is locked any more. A damaged
                database is quarantined, with the time of ``wall`` in its name.
        """
        with self._explained():
            try:
                return self._open(wall)
            except (sqlite3.Error, OSError):
                if not self.reserve.filled:
                    raise
                self.reserve.release()
                return self._open(wall)

    def close(self) -> None:
        """Release the lock."""
        self.reserve.close()

    def error(self, error: Exception) -> SvcError:
        """What an error of SQLite or of the file system means for this database."""
        if primary_code(error) in DAMAGED:
            return DatabaseCorrupt(path=self.path, detail=message_of(error), **self.kind.words)
        return self.unavailable(error)

    def unavailable(self, error: Exception) -> SvcError:
        """The error of a database that cannot be used now, with the explanation of operators."""
        return self.kind.unavailable(path=self.path, detail=explain(self.path, error), **self.kind.words)

    def reconnect(self) -> sqlite3.Connection:
        """Open another connection for writing; raises sqlite3.Error."""
        connection = self.connect(self.path)
        try:
            configure(connection)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.reserve.close()
            if isinstance(error, (sqlite3.Error, OSError)):
                raise self.error(error) from error
            raise

    def _open(self, wall: Callable[[], datetime]) -> sqlite3.Connection:
        self._verify(wall)
        prepare_file(self.path)
        with damage_reported(self.path, self.kind):
            return create_or_migrate(self.path, self.connect, self.kind)

    def _verify(self, wall: Callable[[], datetime]) -> None:
        """Quarantine our database where it is damaged; its replacement is created by the next start only."""
        path, kind, reserve = self.path, self.kind, self.reserve
        try:
            inspect(path, kind, created=reserve.created, thorough=reserve.suspect)
        except DatabaseCorrupt as error:
            if not is_ours(path, kind, created=reserve.created):
                raise
            renamed = quarantine(path, wall())
            reserve.mark_absent()
            detail = error.evidence["detail"]
            raise DatabaseQuarantined(path=path, detail=detail, quarantined=renamed, **kind.words) from error
        if not os.path.exists(path):
            reserve.mark_absent()
        self.quarantined = quarantined(path)


def prepare_file(path: str) -> None:
    """Create the file (0600) durably, or narrow its mode; SQLite gives the write-ahead log the same mode."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    # Behind a symbolic link the file has its name in another folder.
    sync_folder(os.path.dirname(os.path.realpath(path)))


def create_or_migrate(path: str, connect: Connect, kind: DatabaseKind) -> sqlite3.Connection:
    """Open the verified database for writing, at the schema version of this program."""
    connection = connect(path)
    try:
        version = read_version(path, connection, kind)
        configure(connection)
        for number, steps in enumerate(kind.migrations[version:], start=version + 1):
            connection.execute("BEGIN IMMEDIATE")
            for step in steps:
                connection.execute(step)
            connection.execute(f"PRAGMA application_id = {kind.application}")
            connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def configure(connection: sqlite3.Connection) -> None:
    """Set what every writing connection needs."""
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError(f"the file system allows no write-ahead log (journal mode {mode})")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_SIZE_LIMIT}")
    connection.execute("PRAGMA trusted_schema = OFF")


def check_file(path: str, kind: DatabaseKind, reserve_size: int) -> None:
    """Whether a database could be opened, without opening or creating anything; raises as :meth:`DatabaseFile.open`."""
    reserve = f"{os.path.realpath(path)}.reserve"
    try:
        for name in (path, reserve):
            if os.path.lexists(name):
                _check_lock(name)
        folder = os.path.dirname(os.path.realpath(path))
        while not os.path.exists(folder):
            folder = os.path.dirname(folder)
        probe_folder(folder)
        taken = os.path.getsize(reserve) if os.path.exists(reserve) else 0
        found = os.statvfs(folder)
        if taken < reserve_size and found.f_bavail * found.f_frsize < reserve_size - taken:
            raise OSError(errno.ENOSPC, f"the start needs {reserve_size} octets for its reserve")
    except BlockingIOError as error:
        raise DatabaseError(path=path, **kind.words) from error
    except OSError as error:
        raise kind.unavailable(path=path, detail=explain(path, error), **kind.words) from error


def _check_lock(name: str) -> None:
    descriptor = os.open(name, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)

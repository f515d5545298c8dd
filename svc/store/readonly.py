"""
A notary database that is read beside the proxy that uses it, or without one.

Nothing is created, migrated or written, and no lock is taken that another process would wait for. Everything blocks.

An SQLite database that uses a write-ahead log cannot be read like a plain file: SQLite creates the log and its index
where they are absent, also for a connection that only reads. The files beside the database therefore decide how it is
opened, anew for each slice of a search.
"""

from __future__ import annotations

import os
import pwd
import sqlite3
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar
from urllib.parse import quote

from svc.errors import Reason, SvcError
from svc.sqlite.connection import open_connection
from svc.sqlite.disk import DAMAGED, message_of, primary_code
from svc.sqlite.quarantine import read_version
from svc.store.backend import RecordReader, Refused
from svc.store.errors import DriverMissing, StoreError
from svc.store.postgresql.address import SCHEME, DatabaseAddress
from svc.store.reader import SqliteReader
from svc.store.records import FoundReceipts, ReceiptQuery, StoredReceipt
from svc.store.schema import NOTARY
from svc.store.search import Search

#: What SQLite reports where it cannot read the log or its index.
_LOG_CODES: Final = frozenset((sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY))
_MAGIC: Final = b"SQLite format 3\0"

T = TypeVar("T")


#: What an altered row may raise.
_ALTERED: Final = (ValueError, LookupError, TypeError)


class DatabaseUnreadable(StoreError):
    """the notary database {path} cannot be read: {detail}"""

    reason = "notary_unreadable"
    hint = "give what notary.path or notary.database of the proxy's configuration names"
    reasons = {
        "notary_forbidden": Reason(
            "the notary database {path} cannot be read: {detail}",
            "run the command as {reader}",
        ),
        "notary_not_sqlite": Reason(
            "{path} is not a notary database: it does not begin as an SQLite database does",
            "give what notary.path of the proxy's configuration names; svc verify reads evidence files",
        ),
        "notary_empty": Reason(
            "{path} holds no notary database yet", "has the proxy started with it? it creates its tables then"
        ),
        "notary_log_unreadable": Reason(
            "the log of the notary database {path} cannot be read: {detail}",
            "while the proxy runs, its user and root can read it; of a database that is left over, copy the file and"
            " its -wal, without its -shm, to another folder",
        ),
    }


class NotaryReader:
    """
    Reads records; the methods raise SvcError.

    Args:
        name: the database in messages.
        reader: reads from it.
        errors: what the reader raises.
        explained: the error for users in place of one of these.
        moved_on: whether the connection has to be opened anew before the next read.
    """

    def __init__(
        self,
        name: str,
        reader: RecordReader,
        errors: tuple[type[Exception], ...],
        explained: Callable[[Exception], SvcError],
        moved_on: Callable[[], bool] = lambda: False,
    ) -> None:
        self.name = name
        self._reader = reader
        self._errors = errors
        self._explained = explained
        self._moved_on = moved_on

    def find(self, query: ReceiptQuery) -> FoundReceipts:
        """Find records, newest first, however many have to be read."""
        search = Search(query, sys.maxsize, sys.maxsize)
        while search.rows:
            search.got(self._read(lambda reader: reader.scan(search.query, search.rows)))
        return search.found

    def get_receipt(self, receipt_id: str) -> StoredReceipt | None:
        return self._read(lambda reader: reader.get_receipt(receipt_id))

    def get_statement(self, statement_id: str) -> bytes | None:
        return self._read(lambda reader: reader.get_statement(statement_id))

    def named(self, key: str, limit: int) -> list[str]:
        """The ids, up to a limit, that begin with a text or whose record has it as nonce or ``jti``."""
        return self._read(lambda reader: reader.named(key, limit))

    def close(self) -> None:
        self._reader.disconnect()

    def _read(self, read: Callable[[RecordReader], T]) -> T:
        if self._moved_on():
            self._reader.disconnect()
        try:
            return read(self._reader)
        except Refused as refused:
            raise self._explained(refused.error) from refused
        except self._errors as error:
            raise self._explained(error) from error


def open_notary(place: str) -> NotaryReader:
    """
    Open a database for reading.

    Args:
        place: the path of an SQLite database, or the URL of a PostgreSQL database.

    Raises:
        ValueError: the URL is not acceptable; its text says what was expected and repeats nothing of it.
        SvcError: the database cannot be read; the class names why and what to do.
    """
    return _open_server(DatabaseAddress.parse(place)) if place.startswith(SCHEME) else _open_file(place)


def _open_server(address: DatabaseAddress) -> NotaryReader:
    try:
        import psycopg
    except ImportError as error:
        raise DriverMissing(detail=str(error).strip().partition("\n")[0]) from error
    from svc.store.postgresql.store import explained, open_reader

    reader, version = open_reader(address)
    if version is None:
        reader.disconnect()
        raise DatabaseUnreadable("notary_empty", path=address.name)
    return NotaryReader(address.name, reader, (psycopg.Error, StoreError), partial(explained, address))


def _open_file(path: str) -> NotaryReader:
    file = _ReadOnlyFile(path)
    try:
        file.check()
        connection = file.connect(path)
        try:
            version = read_version(path, connection, NOTARY)
        finally:
            connection.close()
        if not version:
            raise DatabaseUnreadable("notary_empty", path=path)
        reader = SqliteReader(path, file.connect, version)
    except (OSError, sqlite3.Error) as error:
        raise file.explained(error) from error
    return NotaryReader(path, reader, (sqlite3.Error, *_ALTERED), file.explained, file.moved_on)


class _ReadOnlyFile:
    """The file of an SQLite database, and how to open it so that nothing is created beside it."""

    def __init__(self, path: str) -> None:
        self.path = path
        # The log is beside the file itself.
        self._file = os.path.realpath(path)
        self._alone = False

    def check(self) -> None:
        """Refuse what SQLite would refuse in other words."""
        descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DatabaseUnreadable(path=self.path, detail="it is no file")
            head = os.read(descriptor, len(_MAGIC))
        finally:
            os.close(descriptor)
        if not head:
            raise DatabaseUnreadable("notary_empty", path=self.path)
        if head != _MAGIC:
            raise DatabaseUnreadable("notary_not_sqlite", path=self.path)

    def connect(self, _path: str) -> sqlite3.Connection:
        # With an index a process uses the database, or has crashed. SQLite never creates one for ``immutable``, which
        # leaves the log unread; without locks and in the exclusive mode it reads the log and keeps the index in memory.
        used, logged = self._beside("-shm") is not None, bool(self._beside("-wal"))
        self._alone = not used
        how = "" if used else "&vfs=unix-none" if logged else "&immutable=1"
        address = f"file:{quote(os.fsencode(self._file))}?mode=ro{how}"
        connection = open_connection(address, uri=True)
        if logged and not used:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        return connection

    def moved_on(self) -> bool:
        """Whether a process uses the database that none used when it was opened."""
        return self._alone and self._beside("-shm") is not None

    def explained(self, error: Exception) -> SvcError:
        if isinstance(error, OSError):
            return self._explained_os(error)
        if primary_code(error) in _LOG_CODES and (self._beside("-wal") or self._beside("-shm") is not None):
            return DatabaseUnreadable("notary_log_unreadable", path=self.path, detail=message_of(error))
        damaged = "it is damaged: " if primary_code(error) in DAMAGED or not isinstance(error, sqlite3.Error) else ""
        return DatabaseUnreadable(path=self.path, detail=f"{damaged}{message_of(error)}")

    def _explained_os(self, error: OSError) -> SvcError:
        detail = (error.strerror or str(error)).lower()
        if not isinstance(error, PermissionError):
            return DatabaseUnreadable(path=self.path, detail=detail)
        owner = "its owner"
        # Of a file in a folder that may not be searched not even the owner can be found out.
        with suppress(OSError, KeyError):
            owner = pwd.getpwuid(os.stat(self._file).st_uid).pw_name
        reader = "root" if owner == "root" else f"{owner} or root"
        return DatabaseUnreadable("notary_forbidden", path=self.path, detail=detail, reader=reader)

    def _beside(self, suffix: str) -> int | None:
        """The size of a file beside the database, None where it is absent."""
        try:
            return os.stat(self._file + suffix).st_size
        except OSError:
            return None

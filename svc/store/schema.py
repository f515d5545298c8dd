"""
The schema of the embedded database and the opening of its file.

Owns the tables, their versions and every check that stands before the first use of a file that may be anything. Must
not know what the records mean.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from svc.folders import make_folder, sync_folder
from svc.store.disk import refusal
from svc.store.errors import StoreCorrupt, StoreForeign, StoreUnavailable, StoreVersionUnsupported

#: ``PRAGMA application_id`` of our files.
APPLICATION_ID: Final = 0x73766E31
#: Databases up to this size are checked page by page before they are used.
CHECK_LIMIT: Final = 64 * 1024 * 1024
BUSY_SECONDS: Final = 5.0
#: The write-ahead log is cut down to this size when it has grown beyond it.
WAL_SIZE_LIMIT: Final = 16 * 1024 * 1024

#: Result codes that speak of the file, not of the moment.
DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

Connect = Callable[[str], sqlite3.Connection]


@dataclass(frozen=True, slots=True)
class Schema:
    """
    What makes a file a database of one kind of ours.

    Args:
        application: its ``PRAGMA application_id``.
        migrations: the statements that lead from each version to the next; the version is the number of steps done.
            There is a table ``write_probe`` with one row, as the notary's has.
    """

    application: int
    migrations: tuple[tuple[str, ...], ...]

    @property
    def version(self) -> int:
        """The version that this program makes."""
        return len(self.migrations)


#: The statements that lead from each version to the next; the version is the number of steps done.
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        "CREATE TABLE certificate_blob (sha256 BLOB PRIMARY KEY, der BLOB NOT NULL)",
        # The certificates of one envelope in their order, as concatenated digests: one row for all of a generation.
        "CREATE TABLE certificate_set (id INTEGER PRIMARY KEY, digests BLOB NOT NULL UNIQUE)",
        "CREATE TABLE workload_statement ("
        " id TEXT PRIMARY KEY, expires INTEGER NOT NULL, certificate_set INTEGER NOT NULL,"
        " cuts TEXT NOT NULL, skeleton BLOB NOT NULL)",
        "CREATE INDEX workload_statement_set ON workload_statement (certificate_set)",
        "CREATE INDEX workload_statement_expires ON workload_statement (expires)",
        "CREATE TABLE receipt ("
        " seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, level TEXT NOT NULL, client TEXT NOT NULL,"
        " server TEXT NOT NULL, nonce TEXT, jti TEXT NOT NULL, issued_at INTEGER NOT NULL, outcome TEXT NOT NULL,"
        " statement_id TEXT NOT NULL, certificate_set INTEGER, cuts TEXT, skeleton BLOB, payload BLOB NOT NULL,"
        " disclosures TEXT)",
        "CREATE UNIQUE INDEX receipt_nonce ON receipt (client, nonce) WHERE nonce IS NOT NULL",
        "CREATE INDEX receipt_jti ON receipt (jti)",
        "CREATE INDEX receipt_issued_at ON receipt (issued_at)",
        "CREATE INDEX receipt_statement ON receipt (statement_id)",
        "CREATE INDEX receipt_set ON receipt (certificate_set) WHERE certificate_set IS NOT NULL",
        "CREATE TABLE write_probe (id INTEGER PRIMARY KEY CHECK (id = 1), count INTEGER NOT NULL)",
        "INSERT INTO write_probe VALUES (1, 0)",
    ),
)
VERSION: Final = len(MIGRATIONS)
#: The notary's database.
NOTARY: Final = Schema(APPLICATION_ID, MIGRATIONS)


def plain_connect(path: str) -> sqlite3.Connection:
    """
    Connect to a database.

    Args:
        path: of its file.

    Returns:
        A connection that begins no transaction on its own and may be used by another thread than this one.

    Raises:
        sqlite3.Error: where it cannot be opened.
    """
    return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def prepare_folder(path: str) -> None:
    """
    Make the folder (0700) where it is absent, durably.

    Args:
        path: of the database.

    Raises:
        OSError: where that is not allowed.
    """
    make_folder(os.path.dirname(os.path.abspath(path)))


def prepare_file(path: str) -> None:
    """
    Make the file (0600) durably, or narrow its mode; SQLite does the same for the write-ahead log.

    Args:
        path: of the database, in a folder that is there.

    Raises:
        OSError: where that is not allowed.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    # Behind a symbolic link the file has its name in another folder.
    sync_folder(os.path.dirname(os.path.realpath(path)))


def open_database(path: str, connect: Connect = plain_connect, schema: Schema = NOTARY) -> sqlite3.Connection:
    """
    Open the database and bring it to the current version.

    Args:
        path: of its file, which :func:`prepare_file` has made and :mod:`svc.store.damage` has looked at.
        connect: makes a connection.
        schema: what it holds.

    Returns:
        The connection for writing: write-ahead log, every commit synchronised, checkpoints only when asked for.

    Raises:
        StoreCorrupt: where the file is no database or is damaged.
        StoreForeign: where it belongs to another program.
        StoreVersionUnsupported: where it is newer than this program.
        StoreUnavailable: where it cannot be opened or written.
    """
    connection: sqlite3.Connection | None = None
    try:
        connection = connect(path)
        version = check_version(path, connection, schema)
        configure_writer(path, connection)
        _migrate(connection, version, schema)
    except sqlite3.DatabaseError as error:
        _close_quietly(connection)
        raise opening_error(path, error) from error
    except BaseException:
        _close_quietly(connection)
        raise
    return connection


def configure_writer(path: str, connection: sqlite3.Connection) -> None:
    """
    Set what every writing connection needs.

    Args:
        path: of the database, for the error.
        connection: a new one.

    Raises:
        StoreUnavailable: where the file system cannot carry a write-ahead log.
        sqlite3.Error: where the database refuses.
    """
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreUnavailable(path=path, detail=f"the file system allows no write-ahead log (journal mode {mode})")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_SIZE_LIMIT}")
    connection.execute("PRAGMA trusted_schema = OFF")


def opening_error(path: str, error: sqlite3.Error) -> StoreCorrupt | StoreUnavailable:
    """
    Say what an error of SQLite means for the file.

    Args:
        path: of the database.
        error: what SQLite raised.

    Returns:
        The error to raise.
    """
    if primary_code(error) in DAMAGED:
        return StoreCorrupt(path=path, detail=str(error))
    return StoreUnavailable(path=path, detail=refusal(path, error))


def primary_code(error: Exception) -> int:
    """
    Read the primary result code.

    Args:
        error: what SQLite raised.

    Returns:
        The code, -1 where the error has none.
    """
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1


def check_version(path: str, connection: sqlite3.Connection, schema: Schema = NOTARY) -> int:
    """
    Read the version of the schema.

    Args:
        path: of the database, for the error.
        connection: to it.
        schema: what it should hold.

    Returns:
        The version; 0 where nothing was made yet.

    Raises:
        StoreForeign: where the database belongs to another program.
        StoreVersionUnsupported: where it is newer than this program.
        sqlite3.Error: where it cannot be read.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != schema.application and (application or version or tables):
        raise StoreForeign(path=path)
    if version > schema.version:
        raise StoreVersionUnsupported(path=path, found=version, known=schema.version)
    return int(version)


def check_pages(path: str, connection: sqlite3.Connection) -> None:
    """
    Check the structure of every page.

    Args:
        path: of the database, for the error.
        connection: to it.

    Raises:
        StoreCorrupt: where one is damaged.
        sqlite3.Error: where one cannot be read.
    """
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreCorrupt(path=path, detail=verdict)


def _migrate(connection: sqlite3.Connection, version: int, schema: Schema) -> None:
    for number, steps in enumerate(schema.migrations[version:], start=version + 1):
        connection.execute("BEGIN IMMEDIATE")
        for step in steps:
            connection.execute(step)
        connection.execute(f"PRAGMA application_id = {schema.application}")
        connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")


def _close_quietly(connection: sqlite3.Connection | None) -> None:
    if connection is not None:
        connection.close()

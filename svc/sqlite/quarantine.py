"""
Detects a damaged database before it is used, distinguishes it from a file of another program, and quarantines it.

Reads and renames; never writes into a file, never deletes one. SQLite ends its write-ahead log silently at the first
frame that does not verify, and deletes a log whose database is empty: what would be lost that way is looked for here.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Final
from urllib.parse import quote

from svc.folders import sync_folder
from svc.sqlite.connection import open_connection
from svc.sqlite.disk import DAMAGED, message_of, primary_code
from svc.sqlite.errors import DatabaseCorrupt, DatabaseError
from svc.sqlite.kind import DatabaseKind

#: Databases up to this size are checked page by page before they are used.
CHECK_LIMIT: Final = 64 * 1024 * 1024
#: The files of a database; the main one is renamed first, since alone it would open without its log.
_PARTS: Final = ("", "-wal", "-shm", "-journal")
_MAGIC: Final = b"SQLite format 3\0"
#: Offset of the application id in the header of a database (SQLite file format, section 1.3).
_APPLICATION: Final = slice(68, 72)
_SUFFIX: Final = ".corrupt-"

# The write-ahead log (SQLite file format, section 4): its head, then frames of a head and a page.
_LOG_HEAD: Final = struct.Struct(">8I")
_FRAME_HEAD: Final = struct.Struct(">6I")
_LOG_MAGIC: Final = {0x377F0682: "<", 0x377F0683: ">"}
#: Where the index of the log (``-shm``) says how many of its frames count, in the byte order of this machine.
_INDEX_FRAMES: Final = struct.Struct("=16xI")


@contextmanager
def damage_reported(path: str, kind: DatabaseKind) -> Iterator[None]:
    """Raise DatabaseCorrupt in place of SQLite's errors that mean damage."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if primary_code(error) not in DAMAGED:
            raise
        raise DatabaseCorrupt(path=path, detail=message_of(error), **kind.words) from error


def inspect(path: str, kind: DatabaseKind, *, created: bool, thorough: bool = False) -> None:
    """
    Verify the file of a database, if there is one; changes nothing.

    Where a database was ``created`` here before, an empty file is damaged; ``thorough`` checks every page of a large
    one too.

    Raises:
        DatabaseCorrupt: it is damaged, or no database at all.
        DatabaseError: it belongs to another program, or is newer than this one.
        sqlite3.Error: it cannot be opened.
        OSError: it cannot be examined.
    """
    if not _size(path):
        if _size(f"{path}-wal"):
            raise DatabaseCorrupt(path=path, detail="it is empty or gone, and its log is not", **kind.words)
        if created and os.path.isfile(path):
            raise DatabaseCorrupt(path=path, detail="it is empty", **kind.words)
        return
    with damage_reported(path, kind):
        try:
            # A connection that may write would, when it closes, copy the log into the database and delete it.
            _inspect(path, "ro", kind, created=created, thorough=thorough)
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_READONLY:
                raise
            # Its creation was interrupted before it had a log: the rollback journal must be applied first.
            _inspect(path, "rw", kind, created=created, thorough=thorough)


def _inspect(path: str, mode: str, kind: DatabaseKind, *, created: bool, thorough: bool) -> None:
    with closing(open_connection(f"file:{quote(path)}?mode={mode}", uri=True)) as connection:
        if not read_version(path, connection, kind) and created:
            raise DatabaseCorrupt(path=path, detail="it is empty", **kind.words)
        defect = _log_defect(path)
        if defect is None and (thorough or _size(path) <= CHECK_LIMIT):
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            defect = None if verdict == "ok" else verdict
        if defect is not None:
            raise DatabaseCorrupt(path=path, detail=defect, **kind.words)


def read_version(path: str, connection: sqlite3.Connection, kind: DatabaseKind) -> int:
    """Read the schema version, 0 where nothing was created yet; DatabaseError for another program's or a newer one."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != kind.application and (application or version or tables):
        raise DatabaseError("store_foreign", path=path, **kind.words)
    if version > kind.version:
        raise DatabaseError("unsupported_version", path=path, found=version, known=kind.version, **kind.words)
    return int(version)


def is_ours(path: str, kind: DatabaseKind, *, created: bool) -> bool:
    """Whether a file that SQLite refuses has our mark, or has none and is where we created a database."""
    head = b""
    if os.path.isfile(path):
        with open(path, "rb") as file:
            head = file.read(100)
    application = int.from_bytes(head[_APPLICATION])
    if head.startswith(_MAGIC) and application:
        return application == kind.application
    return created


def quarantine(path: str, now: datetime) -> str:
    """Rename a database with all its files to a new name with the time (aware UTC), and return its path."""
    first = renamed = f"{path}{_SUFFIX}{now:%Y%m%dT%H%M%SZ}"
    number = 1
    while any(os.path.lexists(renamed + part) for part in _PARTS):
        number += 1
        renamed = f"{first}-{number}"
    for part in _PARTS:
        if os.path.lexists(path + part):
            os.rename(path + part, renamed + part)
    sync_folder(os.path.dirname(os.path.abspath(path)))
    return renamed


def quarantined(path: str) -> list[str]:
    """Return the paths of the quarantined databases of this path, oldest first."""
    folder, name = os.path.split(path)
    found = [each for each in os.listdir(folder or ".") if each.startswith(f"{name}{_SUFFIX}")]
    return sorted(os.path.join(folder, each) for each in found if not each.endswith(_PARTS[1:]))


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.isfile(path) else 0


def _log_defect(path: str) -> str | None:
    """
    Find commits in the log behind the point at which SQLite stops reading it.

    A log may end in a torn transaction: the power was lost before it was acknowledged. A transaction on top of another
    was begun after that one was acknowledged, so two of them in one unbroken run were lost to damage. Damage to the
    last commit, or across the border of the last two, cannot be distinguished from lost power.
    """
    try:
        with open(f"{path}-wal", "rb") as file:
            log = file.read()
        with open(f"{path}-shm", "rb") as file:
            (counted,) = _INDEX_FRAMES.unpack(file.read(_INDEX_FRAMES.size))
    except FileNotFoundError:
        return None
    if len(log) < _LOG_HEAD.size + _FRAME_HEAD.size:
        return None
    magic, _version, page, _sequence, *salts, sum1, sum2 = _LOG_HEAD.unpack_from(log)
    order = _LOG_MAGIC.get(magic)
    if order is None or _checksum(order, log[:24], (0, 0)) != (sum1, sum2):
        return "the head of its log is damaged"
    frames = _Frames(log, page, salts, order)
    return "its log is damaged" if frames.committed_twice_behind(counted) else None


class _Frames:
    """The frames of a log whose head verifies."""

    def __init__(self, log: bytes, page: int, salts: list[int], order: str) -> None:
        self._log = log
        self._step = _FRAME_HEAD.size + page
        self._salts = salts
        self._order = order

    def committed_twice_behind(self, counted: int) -> bool:
        """Whether two commits follow each other in one unbroken run behind the frames that count."""
        committed = False
        for continues, commits in self._behind(counted):
            committed = committed and continues
            if commits and committed:
                return True
            committed = committed or commits
        return False

    def _behind(self, counted: int) -> Iterator[tuple[bool, bool]]:
        """Yield for each frame whether it continues the one before it, and whether it ends a transaction."""
        previous: tuple[int, int] | None = None
        for start in range(_LOG_HEAD.size + counted * self._step, len(self._log) - self._step + 1, self._step):
            _page, commits, *salts, sum1, sum2 = _FRAME_HEAD.unpack_from(self._log, start)
            if salts != self._salts:
                # It is left over from an earlier log.
                previous = None
                yield False, False
                continue
            continues = previous is not None and (sum1, sum2) == self._sum(start, previous)
            yield continues, bool(commits)
            previous = sum1, sum2

    def _sum(self, start: int, before: tuple[int, int]) -> tuple[int, int]:
        seed = _checksum(self._order, self._log[start : start + 8], before)
        return _checksum(self._order, self._log[start + _FRAME_HEAD.size : start + self._step], seed)


def _checksum(order: str, data: bytes, seed: tuple[int, int]) -> tuple[int, int]:
    """The running checksum of the log (SQLite file format, section 4.2)."""
    first, second = seed
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for even, odd in zip(words, words, strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second

"""
A database file that is damaged: found before it is used, told from a file of somebody else, and set aside.

Reads, and renames; never writes into a file, never deletes one. SQLite itself ends its log silently at the first frame
that does not check out, and deletes a log whose database is empty: what is lost that way is looked for here.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import Final
from urllib.parse import quote

from svc.folders import sync_folder
from svc.store.errors import StoreCorrupt
from svc.store.schema import CHECK_LIMIT, NOTARY, Schema, check_pages, check_version, opening_error, primary_code

#: What lies beside a database and belongs to it; the database goes first, since alone it would open without its log.
_PARTS: Final = ("", "-wal", "-shm", "-journal")
_MAGIC: Final = b"SQLite format 3\0"
#: Offset of the application id in the header of a database (SQLite file format, section 1.3).
_APPLICATION: Final = slice(68, 72)
_ASIDE: Final = ".corrupt-"

# The write-ahead log (SQLite file format, section 4): its head, then frames of a head and a page.
_LOG_HEAD: Final = struct.Struct(">8I")
_FRAME_HEAD: Final = struct.Struct(">6I")
_LOG_MAGIC: Final = {0x377F0682: "<", 0x377F0683: ">"}
#: Where the index of the log (``-shm``) says how many of its frames count, in the order of this machine.
_INDEX_FRAMES: Final = struct.Struct("=16xI")


class StoreSetAside(StoreCorrupt):
    """the notary database {path} was damaged ({detail}) and is set aside as {aside}"""

    hint = (
        "nothing in it was changed; the next start begins a new database. To serve what is left of the old receipts,"
        " rescue it first: docs/operations.md, A damaged database"
    )
    aside: str


def inspect(path: str, *, made: bool, thorough: bool = False, schema: Schema = NOTARY) -> None:
    """
    Look at what stands where the database should be; changes nothing.

    Args:
        path: of the database; nothing may stand there.
        made: whether a database was made here before.
        thorough: check every page, however many there are.
        schema: what it should hold.

    Raises:
        StoreCorrupt: it is damaged, or no database at all.
        StoreForeign: it belongs to another program.
        StoreVersionUnsupported: it is newer than this program.
        StoreUnavailable: it cannot be opened.
        OSError: it cannot be looked at.
    """
    if not _size(path):
        if _size(f"{path}-wal"):
            raise StoreCorrupt(path=path, detail="it is empty or gone, and its log is not")
        if made and os.path.isfile(path):
            raise StoreCorrupt(path=path, detail="it is empty")
        return
    try:
        try:
            # Whoever may write would, when it closes, copy the log into the database and delete it.
            _judge(path, "ro", made=made, thorough=thorough, schema=schema)
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_READONLY:
                raise
            # The making of the database was broken off before it had a log: its journal must be rolled back first.
            _judge(path, "rw", made=made, thorough=thorough, schema=schema)
    except sqlite3.DatabaseError as error:
        raise opening_error(path, error) from error


def _judge(path: str, mode: str, *, made: bool, thorough: bool, schema: Schema) -> None:
    with closing(sqlite3.connect(f"file:{quote(path)}?mode={mode}", uri=True, isolation_level=None)) as connection:
        if not check_version(path, connection, schema) and made:
            raise StoreCorrupt(path=path, detail="it is empty")
        defect = _log_defect(path)
        if defect is not None:
            raise StoreCorrupt(path=path, detail=defect)
        if thorough or _size(path) <= CHECK_LIMIT:
            check_pages(path, connection)


def is_ours(path: str, *, made: bool, schema: Schema = NOTARY) -> bool:
    """
    Tell whether a file that SQLite refuses was a database of this program.

    Args:
        path: of the file.
        made: whether a database was made here before.
        schema: what it should hold.

    Returns:
        True where it bears our mark, or bears none and stands where we made one.
    """
    head = b""
    if os.path.isfile(path):
        with open(path, "rb") as file:
            head = file.read(100)
    application = int.from_bytes(head[_APPLICATION])
    if head.startswith(_MAGIC) and application:
        return application == schema.application
    return made


def set_aside(path: str, now: datetime) -> str:
    """
    Rename a database and what belongs to it; what was set aside before stays.

    Args:
        path: of the database.
        now: the time, aware UTC, which becomes a part of the new name.

    Returns:
        The new path.

    Raises:
        OSError: where that is not allowed.
    """
    first = aside = f"{path}{_ASIDE}{now:%Y%m%dT%H%M%SZ}"
    number = 1
    while any(os.path.lexists(aside + part) for part in _PARTS):
        number += 1
        aside = f"{first}-{number}"
    for part in _PARTS:
        if os.path.lexists(path + part):
            os.rename(path + part, aside + part)
    sync_folder(os.path.dirname(os.path.abspath(path)))
    return aside


def lying_aside(path: str) -> list[str]:
    """
    Find the databases that were set aside.

    Args:
        path: of the database in use.

    Returns:
        Their paths, oldest first.
    """
    folder, name = os.path.split(path)
    found = [each for each in os.listdir(folder or ".") if each.startswith(f"{name}{_ASIDE}")]
    return sorted(os.path.join(folder, each) for each in found if not each.endswith(_PARTS[1:]))


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.isfile(path) else 0


def _log_defect(path: str) -> str | None:
    """
    Look for commits in the log behind the point at which SQLite stopped reading it.

    A log may end in a torn transaction: the power went before it was acknowledged. Whatever was committed on top of
    another commit was acknowledged after that one, so two of them in one unbroken run were lost to damage. Damage
    to the last commit, or across the border of the last two, looks like lost power and cannot be told from it.
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
    """The frames of a log whose head is whole."""

    def __init__(self, log: bytes, page: int, salts: list[int], order: str) -> None:
        self._log = log
        self._step = _FRAME_HEAD.size + page
        self._salts = salts
        self._order = order

    def committed_twice_behind(self, counted: int) -> bool:
        """Say whether two commits follow each other in one unbroken run behind the frames that count."""
        committed = False
        for continues, commits in self._behind(counted):
            committed = committed and continues
            if commits and committed:
                return True
            committed = committed or commits
        return False

    def _behind(self, counted: int) -> Iterator[tuple[bool, bool]]:
        """Give each frame: whether it continues the one before it, and whether it ends a transaction."""
        previous: tuple[int, int] | None = None
        for start in range(_LOG_HEAD.size + counted * self._step, len(self._log) - self._step + 1, self._step):
            _page, commits, *salts, sum1, sum2 = _FRAME_HEAD.unpack_from(self._log, start)
            if salts != self._salts:
                # It is left over from the log before.
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
    """The running sum of the log (SQLite file format, section 4.2)."""
    first, second = seed
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for even, odd in zip(words, words, strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second

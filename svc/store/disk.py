"""
Why an embedded database refuses, in the words of an operator: the cause, the room on its file system, what was said.

Owns the causes; asks the file system when it is called, and must not be called where nothing was refused.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from typing import Final

from svc.folders import probe_folder

_FULL: Final = "disk full"
_READ_ONLY: Final = "read-only file system"
_IO: Final = "I/O error"
_PERMISSION: Final = "permission denied"
_BY_ERRNO: Final = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: "disk quota exceeded",
    errno.EROFS: _READ_ONLY,
    errno.EIO: _IO,
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "no such file or folder",
}
_BY_CODE: Final = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _PERMISSION,
    sqlite3.SQLITE_PERM: _PERMISSION,
    sqlite3.SQLITE_IOERR: _IO,
    sqlite3.SQLITE_BUSY: "locked by another process",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
}
#: Codes that do not tell which error of the system they stand for.
_VAGUE: Final = frozenset((sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN))


def refusal(path: str, error: Exception) -> str:
    """
    Explain an error of SQLite or of the file system.

    Args:
        path: of the database.
        error: what was raised.

    Returns:
        Cause, free octets, and what SQLite or the system said, as far as each of them is known.
    """
    folder = os.path.dirname(os.path.realpath(path))
    if isinstance(error, OSError):
        said, cause = error.strerror or str(error), _BY_ERRNO.get(error.errno or 0)
    else:
        code = _primary(error)
        said, cause = str(error), _BY_CODE.get(code)
        if code in _VAGUE:
            cause = _probed(folder) or cause
    try:
        found = os.statvfs(folder)
    except OSError:
        return said if cause is None else f"{cause}: {said}"
    room = f"{found.f_bavail * found.f_frsize} octets free on its file system"
    return f"{room}: {said}" if cause is None else f"{cause}, {room}: {said}"


def _probed(folder: str) -> str | None:
    """Try the folder: to open the database by hand would give up the locks that SQLite has on it."""
    try:
        probe_folder(folder)
    except OSError as error:
        return _BY_ERRNO.get(error.errno or 0)
    return None


def _primary(error: Exception) -> int:
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1

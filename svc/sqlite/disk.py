"""Why an embedded database refuses: the cause, the space that is left on its file system, and SQLite's own message."""

from __future__ import annotations

import errno
import os
import sqlite3
from typing import Final

from svc.folders import probe_folder

#: Result codes that mean damage of the file.
DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

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
    errno.ENOTDIR: "a file is in the place of a folder",
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
#: Codes that may stand for several errors of the system.
_VAGUE: Final = frozenset((sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN))


def primary_code(error: Exception) -> int:
    """Read the primary result code of an SQLite error; -1 where it has none."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1


def message_of(error: Exception) -> str:
    """Return the message of an error of SQLite with the name and the number of its extended result code."""
    name, code = getattr(error, "sqlite_errorname", None), getattr(error, "sqlite_errorcode", None)
    return str(error) if name is None else f"{error} ({name}, {code})"


def explain(path: str, error: Exception) -> str:
    """Explain an error of SQLite or of the file system for operators; examines the file system when it is called."""
    folder = os.path.dirname(os.path.realpath(path))
    if isinstance(error, OSError):
        message, cause = error.strerror or str(error), _BY_ERRNO.get(error.errno or 0)
    else:
        code = primary_code(error)
        message, cause = message_of(error), _BY_CODE.get(code)
        if code in _VAGUE:
            cause = _probed(folder) or cause
    try:
        found = os.statvfs(folder)
    except OSError:
        return message if cause is None else f"{cause}: {message}"
    room = f"{found.f_bavail * found.f_frsize} octets free on its file system"
    return f"{room}: {message}" if cause is None else f"{cause}, {room}: {message}"


def _probed(folder: str) -> str | None:
    """Probe the folder: opening and closing the file itself would release the locks that SQLite has on it."""
    try:
        probe_folder(folder)
    except OSError as error:
        return _BY_ERRNO.get(error.errno or 0)
    return None

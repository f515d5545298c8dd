"""
Whether an embedded database could be opened, found out without opening or making it.

Owns what is looked at; the opening itself, which looks at far more, is the business of ``opening``.
"""

from __future__ import annotations

import errno
import fcntl
import os

from svc.folders import probe_folder
from svc.store.disk import refusal
from svc.store.errors import StoreInUse, StoreUnavailable


def check_file(path: str, reserve: int) -> None:
    """
    Look at a database's file, its lock and its folder.

    Args:
        path: of the file; it and its folder are made at the start where they are absent.
        reserve: octets that the start keeps back beside it.

    Raises:
        StoreInUse: another process uses it.
        StoreUnavailable: it could not be opened or made, or there is no room for the reserve.
    """
    kept = f"{os.path.realpath(path)}.reserve"
    try:
        for name in (path, kept):
            if os.path.lexists(name):
                _look(name, path)
        folder = os.path.dirname(os.path.realpath(path))
        while not os.path.exists(folder):
            folder = os.path.dirname(folder)
        probe_folder(folder)
        taken = os.path.getsize(kept) if os.path.exists(kept) else 0
        found = os.statvfs(folder)
        if taken < reserve and found.f_bavail * found.f_frsize < reserve - taken:
            raise OSError(errno.ENOSPC, f"the start needs {reserve} octets for its reserve")
    except OSError as error:
        raise StoreUnavailable(path=path, detail=refusal(path, error)) from error


def _look(name: str, path: str) -> None:
    descriptor = os.open(name, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StoreInUse(path=path) from error
    finally:
        os.close(descriptor)

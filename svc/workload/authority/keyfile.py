"""
The file of an authority's private keys, and the folder that nobody else may enter.

Owns who may have written and read it, the lock that keeps a second authority away, and the atomic replacement. Knows
nothing of what the file says. What is not as it must be stops the start: a new key in the place of an unreadable one
would end the trust of everybody who has the old one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from svc.errors import SvcError
from svc.workload.files import refuse_open_folder, write_atomically

NAME: Final = "keys.json"
_LOCK: Final = "keys.lock"
MAX_FILE: Final = 1024 * 1024


class KeysRefused(SvcError):
    """the keys in {path} are not used: {defect}"""

    reason = "keys_refused"
    hint = (
        "folder (0700) and file (0600) must belong to the user of svc-authority alone; restore the file, or move the"
        " folder away to begin with new keys, which everybody has to learn"
    )


class KeysInUse(SvcError):
    """the keys in {path} are in use by another process"""

    reason = "keys_in_use"
    hint = "stop the other svc-authority, or give this one another dataDir"


class KeysNotKept(SvcError):
    """new keys cannot be written to {path}: {what}"""

    reason = "keys_not_kept"
    hint = "is the disk full, or the folder gone? the keys of before serve until they end"


class KeyFile:
    """
    One folder with one file of keys.

    Args:
        folder: made with mode 0700 where it is absent; the folder around it must exist.
        own_uid: the one user that may have it; the effective user by default.
    """

    def __init__(self, folder: str, *, own_uid: int | None = None) -> None:
        self._own_uid = os.geteuid() if own_uid is None else own_uid
        self.path = os.path.join(folder, NAME)
        self._folder = folder
        self._lock = -1

    def open(self) -> bytes | None:
        """
        Lock the folder and read the file.

        Returns:
            Its content, or None where there is none yet.

        Raises:
            KeysInUse: another process has the lock.
            KeysRefused: folder or file belong to somebody else, can be read by somebody else, or cannot be read.
            SvcError: the folder around it is missing or writable by others.
        """
        refuse_open_folder(os.path.dirname(os.path.abspath(self._folder)))
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._folder, 0o700)
            self._refuse(os.lstat(self._folder), stat.S_ISDIR, "the folder")
            self._take_lock()
        except OSError as error:
            raise KeysRefused(path=self.path, defect=f"the folder: {error.strerror}") from error
        try:
            self._sweep()
            return self._read()
        except OSError as error:
            self.close()
            raise KeysRefused(path=self.path, defect=error.strerror or "it cannot be read") from error
        except BaseException:
            self.close()
            raise

    def replace(self, data: bytes) -> None:
        """
        Write the file anew, durably.

        Args:
            data: the whole content.

        Raises:
            KeysNotKept: it cannot be written; the file of before stands.
        """
        if self._lock < 0:
            raise KeysNotKept(path=self.path, what="it is not open")
        try:
            write_atomically(self.path, data, mode=0o600)
        except OSError as error:
            raise KeysNotKept(path=self.path, what=error.strerror or type(error).__name__) from error

    def close(self) -> None:
        """Let another process have it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _take_lock(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(os.path.join(self._folder, _LOCK), flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise KeysInUse(path=self.path) from error
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def _sweep(self) -> None:
        """Remove what an instance left that crashed while it wrote: these files have keys in them too."""
        for left in Path(self._folder).glob(f".{NAME}.*"):
            left.unlink()

    def _read(self) -> bytes | None:
        try:
            # A pipe would otherwise stop the start, a link would lead elsewhere.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        with open(descriptor, "rb") as file:
            self._refuse(os.fstat(descriptor), stat.S_ISREG, "the file")
            data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise KeysRefused(path=self.path, defect=f"it is larger than {MAX_FILE} octets")
        return data

    def _refuse(self, status: os.stat_result, is_kind: object, what: str) -> None:
        if not callable(is_kind) or not is_kind(status.st_mode):
            raise KeysRefused(path=self.path, defect=f"{what} is of another kind")
        if status.st_uid != self._own_uid:
            raise KeysRefused(path=self.path, defect=f"{what} belongs to user {status.st_uid}")
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            mode = stat.S_IMODE(status.st_mode)
            raise KeysRefused(path=self.path, defect=f"{what} has mode {mode:04o}, open to others")

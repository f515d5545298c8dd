"""
The folder of an authority's private keys: the access rights of its files, its lock, and their atomic replacement.

A file that is not as expected stops the start: a new key in place of an unreadable one would invalidate the trust of
all verifiers that have the old one.
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from svc.errors import Reason, SvcError
from svc.folders import make_folder
from svc.pqissuer.keydocument import MAX_DOCUMENT
from svc.workload.files import refuse_open_folder, write_atomically

NAME: Final = "keys.json"
_LOCK: Final = "keys.lock"
MAX_FILE: Final = MAX_DOCUMENT


class KeysRefused(SvcError):
    """the keys in {path} are not used: {defect}"""

    reason = "keys_refused"
    hint = (
        "folder (0700) and file (0600) must belong to the user of svc-authority alone; restore the file, or move the"
        " folder away to start with new keys, which all verifiers then have to fetch"
    )
    reasons = {
        "keys_in_use": Reason(
            "the keys in {path} are in use by another process",
            "stop the other svc-authority, or give this one another dataDir",
        ),
        "keys_of_the_future": Reason(
            "the keys in {path} were made at {made}, later than the clock of this machine says it is",
            "correct the clock; verifiers would refuse what is signed now",
        ),
    }


class KeysNotStored(SvcError):
    """new keys cannot be written to {path}: {what}"""

    reason = "keys_not_kept"
    hint = "check the folder, its permissions and its free space; the previous keys are used until they expire"


class KeyFile:
    """
    A folder with files of keys.

    The folder is made with mode 0700 if it is absent; its parent must exist. Both must belong to ``own_uid``, by
    default the effective user, and be closed to others.
    """

    def __init__(self, folder: str, *, own_uid: int | None = None) -> None:
        self._own_uid = os.geteuid() if own_uid is None else own_uid
        self.path = os.path.join(folder, NAME)
        self.folder = folder
        self._lock = -1

    def open(self) -> bytes | None:
        """
        Lock the folder and read the file; None if there is none yet.

        Raises :class:`KeysRefused`, and ``FileMissing`` or ``FileRefused`` for the parent folder.
        """
        refuse_open_folder(os.path.dirname(os.path.abspath(self.folder)))
        try:
            make_folder(self.folder)
            self._refuse(os.lstat(self.folder), stat.S_ISDIR, "the folder", self.path)
            self._take_lock()
        except OSError as error:
            raise KeysRefused(path=self.path, defect=f"the folder: {error.strerror}") from error
        try:
            self._sweep()
            return self.read(NAME)
        except OSError as error:
            self.close()
            raise KeysRefused(path=self.path, defect=error.strerror or "it cannot be read") from error
        except BaseException:
            self.close()
            raise

    def replace(self, data: bytes, name: str = NAME) -> None:
        """Write a file atomically and durably; :class:`KeysNotStored` leaves the previous one in place."""
        path = os.path.join(self.folder, name)
        if self._lock < 0:
            raise KeysNotStored(path=path, what="it is not open")
        try:
            write_atomically(path, data, mode=0o600)
        except OSError as error:
            raise KeysNotStored(path=path, what=error.strerror or type(error).__name__) from error

    def close(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _take_lock(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(os.path.join(self.folder, _LOCK), flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise KeysRefused("keys_in_use", path=self.path) from error
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def _sweep(self) -> None:
        """Remove temporary files of an instance that crashed while it wrote: they contain keys too."""
        for left in Path(self.folder).glob(".*.json.*"):
            left.unlink()

    def read(self, name: str) -> bytes | None:
        """
        Read a file of the folder, which is open; None if there is none.

        Raises :class:`KeysRefused`.
        """
        path = os.path.join(self.folder, name)
        try:
            # Without blocking on a pipe and without following a link.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(descriptor, "rb") as file:
                self._refuse(os.fstat(descriptor), stat.S_ISREG, "the file", path)
                data = file.read(MAX_FILE + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise KeysRefused(path=path, defect=error.strerror or "it cannot be read") from error
        if len(data) > MAX_FILE:
            raise KeysRefused(path=path, defect=f"it is larger than {MAX_FILE} octets")
        return data

    def _refuse(self, status: os.stat_result, is_kind: object, what: str, path: str) -> None:
        if not callable(is_kind) or not is_kind(status.st_mode):
            raise KeysRefused(path=path, defect=f"{what} is of another kind")
        if status.st_uid != self._own_uid:
            raise KeysRefused(path=path, defect=f"{what} belongs to user {status.st_uid}")
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            mode = stat.S_IMODE(status.st_mode)
            raise KeysRefused(path=path, defect=f"{what} has mode {mode:04o}, open to others")

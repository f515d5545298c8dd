"""Files that carry trust: replaced atomically, and read only if no other user can have written them."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from svc.errors import SvcError
from svc.folders import sync_folder

MAX_FILE: Final = 4 * 1024 * 1024


class FileMissing(SvcError):
    """{path} does not exist"""

    reason = "file_missing"


class FileRefused(SvcError):
    """{path} is not used: {defect}"""

    reason = "file_refused"
    hint = "file and folder must belong to root or to the own user and be writable by no other user"


def read_trusted(path: str | Path, *, own_uid: int | None = None, max_bytes: int = MAX_FILE) -> bytes:
    """
    Read a file that contains roots of trust.

    The file, its folder and, behind a symbolic link, the folder of the link must belong to root or the own user and
    must not be writable by group or others: a user who can write one of them could add a root.

    Args:
        path: the file.
        own_uid: the user allowed beside root; the effective user by default.
        max_bytes: the largest accepted size.

    Raises:
        FileMissing: there is no such file.
        FileRefused: wrong owner or mode, not a regular file, too large, or not readable.
    """
    allowed = frozenset((0, os.geteuid() if own_uid is None else own_uid))
    real = os.path.realpath(path)
    with _typed_errors(path):
        for folder in {os.path.dirname(os.path.abspath(path)), os.path.dirname(real)}:
            _refuse_writable(path, f"its folder {folder}", os.stat(folder), allowed)
        return _read(path, real, lambda status: _refuse_writable(path, "it", status, allowed), max_bytes)


def read_secret(path: str | Path, *, own_uid: int | None = None, max_bytes: int = MAX_FILE) -> bytes:
    """
    Read a file that contains a secret; arguments and errors are those of :func:`read_trusted`.

    As for libpq, a file of the own user must have mode 0600 at most, and one of root 0640, as secrets have that
    Kubernetes mounts for another user.
    """
    own = os.geteuid() if own_uid is None else own_uid

    def check(status: os.stat_result) -> None:
        if status.st_uid not in (0, own):
            raise FileRefused(path=path, defect=f"it belongs to user {status.st_uid}")
        if stat.S_IMODE(status.st_mode) & ~(0o600 if status.st_uid else 0o640):
            raise FileRefused(path=path, defect=f"it has mode {stat.S_IMODE(status.st_mode):04o}, open to others")

    with _typed_errors(path):
        return _read(path, os.path.realpath(path), check, max_bytes)


@contextlib.contextmanager
def _typed_errors(path: str | Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise FileMissing(path=path) from error
    except OSError as error:
        raise FileRefused(path=path, defect=error.strerror or "it cannot be read") from error


def _read(path: str | Path, real: str, check: Callable[[os.stat_result], None], max_bytes: int) -> bytes:
    # Checked by the open descriptor, so that the checked file is the one that is read.
    with open(os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileRefused(path=path, defect="it is not a regular file")
        check(status)
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise FileRefused(path=path, defect=f"it is larger than {max_bytes} octets")
    return data


def refuse_open_folder(folder: str | Path, *, own_uid: int | None = None, opened: int | None = None) -> None:
    """
    Check the folder for a trusted file or socket: it must exist, belong to root or the own user, and be closed to
    others. ``opened`` is its descriptor where there is one, which then is what is checked.

    Raises ``FileMissing`` or ``FileRefused``.
    """
    allowed = frozenset((0, os.geteuid() if own_uid is None else own_uid))
    try:
        status = os.stat(folder if opened is None else opened)
    except FileNotFoundError as error:
        raise FileMissing(path=folder) from error
    except OSError as error:
        raise FileRefused(path=folder, defect=error.strerror or "it cannot be read") from error
    if not stat.S_ISDIR(status.st_mode):
        raise FileRefused(path=folder, defect="it is not a folder")
    _refuse_writable(folder, "it", status, allowed)


def _refuse_writable(path: object, what: str, status: os.stat_result, allowed: frozenset[int]) -> None:
    if status.st_uid not in allowed:
        raise FileRefused(path=path, defect=f"{what} belongs to user {status.st_uid}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise FileRefused(path=path, defect=f"{what} has mode {stat.S_IMODE(status.st_mode):04o}, writable by others")


def write_atomically(path: str | Path, data: bytes, *, mode: int = 0o644) -> None:
    """
    Replace a file so that every reader sees the old or the new content, also after a power failure.

    Its folder must exist. The permissions are never wider than ``mode``, whatever the umask. After an ``OSError`` no
    partial file remains.
    """
    folder, name = os.path.split(os.path.abspath(path))
    # mkstemp makes a new file with mode 0600.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    sync_folder(folder)


@dataclass(frozen=True, slots=True)
class FileStamp:
    """
    The identity of one version of a file, known without reading it.

    An atomic replacement always changes the inode or ``changed``, the time of the last change in nanoseconds.
    """

    device: int
    inode: int
    changed: int
    size: int

    @classmethod
    def of(cls, path: str | Path) -> FileStamp | None:
        """The stamp of a file, links followed; None if it cannot be read."""
        try:
            status = os.stat(path)
        except OSError:
            return None
        return cls(status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size)

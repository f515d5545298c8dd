"""
The file of the audit log: lines of JSON, each with its number and the digest of the line before it.

Each file is a chain of its own, which ``python -m svc.telemetry.audit FILE`` verifies. One that has reached its size
gets a number behind its name, and the first record of the next one names its last record as ``previous``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from svc.strictjson import b64u_encode

#: The octets of a file, and the number of files with a number.
MAX_FILE: Final = 8 * 1024 * 1024
MAX_KEPT: Final = 9
#: The octets of a line.
MAX_LINE: Final = 64 * 1024
#: For how long another process may hold the file, in seconds.
_PATIENCE: Final = 5.0
_PAUSE: Final = 0.01
_MODE: Final = 0o600


def append(path: str, record: Mapping[str, Any] | None, max_file: int = MAX_FILE) -> None:
    """
    Add a record.

    Args:
        record: without its place in the chain; None finds out whether one could be added.

    Raises:
        OSError: it cannot be written, the file is not one of the own user alone, or its last line is no record.
    """
    while True:
        with _locked(path) as descriptor:
            size = os.fstat(descriptor).st_size
            last = _last(descriptor, size)
            if record is None:
                return
            line = _line(record, last, None if size else _previous(path))
            if not size or size + len(line) <= max_file:
                _write(descriptor, line, size)
                return
            _rotate(path)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[int]:
    """Open the file that has the name once it is locked; another process may rename it in between."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, _MODE)
        try:
            _check(os.fstat(descriptor))
            if _lock(descriptor, path):
                yield descriptor
                return
        finally:
            os.close(descriptor)
        if time.monotonic() > deadline:
            raise OSError(errno.EWOULDBLOCK, "another process holds it")
        time.sleep(_PAUSE)


def _check(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & ~_MODE:
        raise OSError(errno.EPERM, "it has to be a file of the own user with mode 0600")


def _lock(descriptor: int, path: str) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _last(descriptor: int, size: int) -> tuple[int, str]:
    """The number and the digest of the last record; 0 in an empty file."""
    if not size:
        return 0, ""
    *_others, line, rest = b"\n", *os.pread(descriptor, MAX_LINE, max(0, size - MAX_LINE)).split(b"\n")
    try:
        sequence = json.loads(line)["audit"]["seq"]
        if rest or type(sequence) is not int:
            raise ValueError("no whole line, or no number")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise OSError(errno.EINVAL, "its last line is no record: move the file away") from error
    return sequence, b64u_encode(hashlib.sha256(line).digest())


def _previous(path: str) -> dict[str, Any] | None:
    """The last record of the file before a new one; None where there is no such file."""
    try:
        descriptor = os.open(_numbered(path, 1), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        sequence, digest = _last(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)
    return {"seq": sequence, "digest": digest}


def _line(record: Mapping[str, Any], last: tuple[int, str], previous: dict[str, Any] | None) -> bytes:
    chain = {"seq": last[0] + 1, "prev": last[1] or None}
    linked = {**record, "audit": chain, **({"previous": previous} if previous else {})}
    line = json.dumps(linked, separators=(",", ":")).encode("ascii") + b"\n"
    if len(line) > MAX_LINE:
        raise OSError(errno.EMSGSIZE, f"the record has more than {MAX_LINE} octets")
    return line


def _write(descriptor: int, line: bytes, size: int) -> None:
    """Write a whole line or nothing."""
    try:
        if os.write(descriptor, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _rotate(path: str) -> None:
    """Give each file the next number; the last one is replaced."""
    for number in range(MAX_KEPT - 1, 0, -1):
        with contextlib.suppress(FileNotFoundError):
            os.rename(_numbered(path, number), _numbered(path, number + 1))
    os.rename(path, _numbered(path, 1))


def _numbered(path: str, number: int) -> str:
    return f"{path}.{number}"

"""A listening Unix socket whose permissions are never wider than configured, not even for a moment."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from svc.errors import Reason, SvcError
from svc.workload.files import refuse_open_folder

BACKLOG: Final = 128
_PROBE_SECONDS: Final = 2.0


class SocketUnusable(SvcError):
    """the socket {path} cannot be made: {defect}"""

    reason = "socket_unusable"
    reasons = {
        "socket_in_use": Reason(
            "the socket {path} is served by another process", "stop the other process, or give this one another socket"
        ),
    }


class SocketGroupRefused(SocketUnusable):
    """the socket {path} cannot be given to the group {group}: {defect}"""

    hint = "this user must be a member of that group, or have the capability CAP_CHOWN"


@dataclass
class SocketFile:
    """A listening, non-blocking socket, its file, and the descriptor that holds the lock of its path."""

    path: str
    socket: socket.socket
    lock: int
    identity: tuple[int, int]

    def close(self) -> None:
        """Stop listening and remove the file, unless another process has replaced it."""
        if self.lock < 0:
            return
        self.socket.close()
        try:
            status = os.lstat(self.path)
            if (status.st_dev, status.st_ino) == self.identity:
                os.unlink(self.path)
        except FileNotFoundError:
            self.identity = (0, 0)
        finally:
            os.close(self.lock)
            self.lock = -1


def listen(
    path: str,
    *,
    mode: int = 0o600,
    group: int | None = None,
    make_socket: Callable[[int, int], socket.socket] = socket.socket,
) -> SocketFile:
    """
    Make a listening socket.

    The folder must not be writable by others. A lock beside the socket excludes a second instance and ends with the
    process, so a socket of a crashed instance is replaced. The kernel makes the file with mode 0600, and it is widened
    only after its group is set: neither umask nor a race makes it wider for a moment.

    Raises :class:`SocketUnusable`, ``FileMissing`` or ``FileRefused``.
    """
    lock = _claim(path)
    try:
        server = make_socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        return _bind(server, path, mode, group, lock)
    except OSError as error:
        os.close(lock)
        raise SocketUnusable(path=path, defect=error.strerror or str(error)) from error
    except BaseException:
        os.close(lock)
        raise


def check_free(path: str) -> None:
    """Check whether :func:`listen` could make a socket here; raises as it does."""
    os.close(_claim(path))


def _claim(path: str) -> int:
    """Lock a path on which no process listens, and remove the socket of a crashed instance."""
    refuse_open_folder(os.path.dirname(path))
    lock = _lock(path)
    try:
        _remove_stale(path)
    except OSError as error:
        os.close(lock)
        raise SocketUnusable(path=path, defect=error.strerror or str(error)) from error
    except BaseException:
        os.close(lock)
        raise
    return lock


def _lock(path: str) -> int:
    name = f"{path}.lock"
    try:
        lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise SocketUnusable(path=path, defect=f"its lock {name}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise SocketUnusable("socket_in_use", path=path) from error
    return lock


def _remove_stale(path: str) -> None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise SocketUnusable(path=path, defect="another file has this path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            # The file of a process that is gone: nothing listens behind it.
            os.unlink(path)
            return
        except TimeoutError as error:
            raise SocketUnusable("socket_in_use", path=path) from error
    raise SocketUnusable("socket_in_use", path=path)


def _set_group(path: str, group: int) -> None:
    try:
        os.chown(path, -1, group)
    except OSError as error:
        os.unlink(path)
        raise SocketGroupRefused(path=path, group=group, defect=error.strerror) from error


def _bind(server: socket.socket, path: str, mode: int, group: int | None, lock: int) -> SocketFile:
    try:
        server.setblocking(False)
        # unix(7): on Linux bind() gives the file the mode of the socket's own inode, less the umask.
        os.fchmod(server.fileno(), 0o600)
        server.bind(path)
        status = os.lstat(path)
        if group is not None:
            _set_group(path, group)
        os.chmod(path, mode)
        server.listen(BACKLOG)
        return SocketFile(path, server, lock, (status.st_dev, status.st_ino))
    except BaseException:
        server.close()
        raise

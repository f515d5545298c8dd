"""
Attests the process at the other end of a Unix socket, from SO_PEERCRED, SO_PEERPIDFD and ``/proc``.

A process id alone proves little, since the kernel can reuse it during the lookup. The process is therefore held by a
pidfd, which always refers to the same process: what was read from ``/proc`` counts only if that process is still alive
afterwards.
"""

from __future__ import annotations

import errno
import hashlib
import os
import select
import socket
import struct
from dataclasses import dataclass
from typing import Final, Protocol

from svc.errors import SvcError

#: SO_PEERPIDFD of Linux 6.5; the socket module has no name for it.
_SO_PEERPIDFD: Final = 77
_UCRED: Final = struct.Struct("3i")
_MAX_EXECUTABLE: Final = 512 * 1024 * 1024


class CallerNotAttested(SvcError):
    """the calling process cannot be attested: {defect}"""

    reason = "caller_unknown"


class PeerSocket(Protocol):
    """The part of a connected Unix socket that attestation uses; asyncio and Twisted both offer it."""

    def getsockopt(self, level: int, option: int, size: int = 0, /) -> int | bytes:
        """As ``socket.getsockopt``."""


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """A file of this machine, whatever its path: device and inode."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Caller:
    """
    The state of a process at one moment.

    ``pid`` is 0 for a process in a PID namespace that is not visible from here. ``uid`` and ``gid`` are those at the
    time of the connection. ``executable`` is the resolved path of its program, and ``file`` that very file; both are
    None where ``/proc`` does not show them.
    """

    pid: int
    uid: int
    gid: int
    executable: str | None = None
    file: FileIdentity | None = None


class CallingProcess:
    """
    The process that connected, held so that its id cannot refer to another one.

    Raises :class:`CallerNotAttested` if the socket gives no credentials or the process has exited.
    """

    def __init__(self, connection: PeerSocket) -> None:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        if not isinstance(credentials, bytes) or len(credentials) != _UCRED.size:
            raise CallerNotAttested(defect="the socket has no SO_PEERCRED")
        self.pid: int
        self.uid: int
        self.gid: int
        self.pid, self.uid, self.gid = _UCRED.unpack(credentials)
        self._started: int | None = None
        self._pidfd = _hold(connection, self.pid)
        if self._pidfd < 0 and self.pid > 0:
            # Without pidfds the start time distinguishes it from a later process with the same id.
            self._started = _start_time(self.pid)

    def observe(self) -> Caller:
        """Read the current state of the process; raises :class:`CallerNotAttested` if it has exited."""
        executable, file = _executable(self.pid) if self.pid > 0 else (None, None)
        # Checked last: what was read above belongs to the held process if that is still alive.
        if not self._alive():
            raise CallerNotAttested(defect=f"process {self.pid} has exited")
        return Caller(self.pid, self.uid, self.gid, executable, file)

    def digest(self) -> str | None:
        """SHA-256 of the program that the process runs, in lower-case hexadecimal; None if it cannot be read."""
        try:
            with open(f"/proc/{self.pid}/exe", "rb") as program:
                if os.fstat(program.fileno()).st_size > _MAX_EXECUTABLE:
                    return None
                found = hashlib.file_digest(program, "sha256").hexdigest()
        except OSError:
            return None
        return found if self._alive() else None

    def close(self) -> None:
        """Release the pidfd."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def _alive(self) -> bool:
        if self._pidfd >= 0:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            return not poll.poll(0)
        if self._started is None:
            # An invisible process (pid 0): its user and group are still those that the kernel recorded.
            return self.pid == 0
        try:
            return _start_time(self.pid) == self._started
        except CallerNotAttested:
            return False


def _hold(connection: PeerSocket, pid: int) -> int:
    """Return a pidfd of the process, the kernel's own where it has one, or -1."""
    try:
        held = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        if isinstance(held, int):
            return held
    except OSError as error:
        # Kernels before 6.5 do not have the option: there the process is held by its id, right after accept.
        if error.errno != errno.ENOPROTOOPT:
            raise CallerNotAttested(defect=f"process {pid} has exited") from error
    try:
        return os.pidfd_open(pid) if pid > 0 else -1
    except ProcessLookupError as error:
        raise CallerNotAttested(defect=f"process {pid} has exited") from error
    except OSError:
        return -1


def _start_time(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # proc(5): the second field is the name in parentheses and may hold anything; starttime is field 22.
            return int(file.read(4096).rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError) as error:
        raise CallerNotAttested(defect=f"process {pid} has exited") from error


def _executable(pid: int) -> tuple[str | None, FileIdentity | None]:
    try:
        path = os.readlink(f"/proc/{pid}/exe")
        status = os.stat(f"/proc/{pid}/exe")
    except OSError:
        return None, None
    return path, FileIdentity(status.st_dev, status.st_ino)

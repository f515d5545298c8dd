"""
A disk that hangs under a process that a test starts: what is to be made durable waits in the kernel until it is let go.

The process gets a filter of system calls before it begins, and each ``fsync`` and ``fdatasync`` of it asks this one
first (seccomp_unotify(2)); to the process they are calls that do not return. Unlike a call that waits for a true disk,
these end with a process that is killed. On the way it is noted which names each folder had when it was synchronized:
others a loss of power may remove, with all that is below them. Run as a program, this file installs the filter and
becomes what the further arguments say; it then runs without this package.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import select
import socket
import struct
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest import SkipTest

if TYPE_CHECKING:
    from tests.peers.durable_files import DurableFiles

#: Numbers of seccomp, fsync and fdatasync.
_CALLS: Final = {"x86_64": (317, 74, 75), "aarch64": (277, 82, 83)}
_ACTIONS: Final = Path("/proc/sys/kernel/seccomp/actions_avail")
_NO_NEW_PRIVILEGES: Final = 38
_SET_FILTER, _NEW_LISTENER = 1, 8
_ALLOW, _ASK = 0x7FFF0000, 0x7FC00000
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
#: ``struct seccomp_notif`` is received, ``struct seccomp_notif_resp`` is sent.
_RECEIVE, _SEND, _STILL_THERE = 0xC0502100, 0xC0182101, 0x40082102
_NOTICE: Final = 80
_ANSWER: Final = struct.Struct("=QqiI")
_GO_ON: Final = 1
#: Seconds between two looks at whether the test is over.
_TURN: Final = 0.05


class HangingDisk:
    """
    The disk of processes that run one after the other; well until :meth:`hang` is called.

    Args:
        stack: ends it; what hangs then goes on.
        folder: a short path, for a socket.
        files: the files of which a loss of power is to be tried.

    Attributes:
        waiting: calls that hang now, 0 or 1.
        names: what each folder held when it was synchronized last.

    Raises:
        SkipTest: this kernel lets nobody answer calls of another process.
    """

    def __init__(self, stack: ExitStack, folder: Path, files: DurableFiles | None = None) -> None:
        self._files = files
        if platform.machine() not in _CALLS or "user_notif" not in _ACTIONS.read_text().split():
            raise SkipTest("this kernel lets nobody answer the system calls of another process")
        self.waiting = 0
        self.names: dict[str, frozenset[str]] = {}
        self._well = threading.Event()
        self._well.set()
        self._over = threading.Event()
        self._path = str(folder / "disk")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self._path)
        self._socket.listen()
        self._socket.settimeout(_TURN)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        stack.callback(self._end)

    def command(self, command: Sequence[str]) -> list[str]:
        """
        Say how a process is started on this disk.

        Args:
            command: its arguments.

        Returns:
            The arguments for it.
        """
        return [sys.executable, str(Path(__file__)), self._path, *command]

    def hang(self) -> None:
        """From now on nothing becomes durable."""
        self._well.clear()

    def go_on(self) -> None:
        """It is well again, and what waits is done."""
        self._well.set()

    def removed(self, path: Path, base: Path) -> list[str]:
        """
        Say what a loss of power might remove now.

        Args:
            path: a file.
            base: a folder above it that was there before the process.

        Returns:
            The file and each folder above it whose name is not durable.
        """
        path, base = path.resolve(), base.resolve()
        way = [each for each in (path, *path.parents) if base in each.parents]
        return [str(each.relative_to(base)) for each in way if each.name not in self.names.get(str(each.parent), ())]

    def _end(self) -> None:
        self._over.set()
        self._well.set()
        self._thread.join(5)
        self._socket.close()

    def _run(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                channel, _address = self._socket.accept()
                with channel:
                    _octets, [listener], _flags, _sender = socket.recv_fds(channel, 1, 1)
                self._serve(listener)

    def _serve(self, listener: int) -> None:
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        try:
            while not self._over.is_set():
                events = poll.poll(_TURN * 1000)
                if events and events[0][1] & select.POLLHUP:
                    return
                if events:
                    self._answer(listener)
        finally:
            os.close(listener)

    def _answer(self, listener: int) -> None:
        notice = bytearray(_NOTICE)
        try:
            fcntl.ioctl(listener, _RECEIVE, notice)
            # One call hangs at a time: a database has one thread that writes.
            self.waiting = 1
            while not self._well.wait(_TURN) and _awaited(listener, notice):
                pass
            self.waiting = 0
            self._note(notice)
            (number,) = struct.unpack_from("=Q", notice)
            fcntl.ioctl(listener, _SEND, _ANSWER.pack(number, 0, 0, _GO_ON))
        except OSError as error:
            # The process is gone, or its call was interrupted and comes again.
            if error.errno not in (errno.ENOENT, errno.EINTR):
                raise

    def _note(self, notice: bytes | bytearray) -> None:
        (process,), (descriptor,) = struct.unpack_from("=I", notice, 8), struct.unpack_from("=Q", notice, 32)
        opened = Path(f"/proc/{process}/fd/{descriptor}")
        with contextlib.suppress(OSError):
            # No folder, or gone meanwhile.
            path = os.readlink(opened)
            if self._files is not None:
                self._files.synchronized(Path(path), opened)
            self.names[path] = frozenset(os.listdir(path))


def _awaited(listener: int, notice: bytes | bytearray) -> bool:
    """Say whether the process still waits for an answer."""
    try:
        fcntl.ioctl(listener, _STILL_THERE, notice[:8])
    except OSError:
        return False
    return True


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("value", ctypes.c_uint))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


def _filtered() -> int:
    """Install the filter; give the descriptor at which the calls are answered."""
    seccomp, *held = _CALLS[platform.machine()]
    instructions = (_Instruction * 5)(
        _Instruction(_LOAD, 0, 0, 0),
        _Instruction(_JUMP_IF_EQUAL, 2, 0, held[0]),
        _Instruction(_JUMP_IF_EQUAL, 1, 0, held[1]),
        _Instruction(_RETURN, 0, 0, _ALLOW),
        _Instruction(_RETURN, 0, 0, _ASK),
    )
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    program = _Program(len(instructions), instructions)
    listener = int(library.syscall(seccomp, _SET_FILTER, _NEW_LISTENER, ctypes.byref(program)))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "no filter of system calls")
    return listener


def main() -> None:
    """Become the program of the arguments, on a disk that may hang."""
    listener = _filtered()
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(sys.argv[1])
        socket.send_fds(channel, [b"."], [listener])
    os.close(listener)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()

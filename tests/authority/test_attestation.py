"""Tests of svc.authority.attestation."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import struct
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.authority.attestation import CallerNotAttested, CallingProcess

PYTHON = os.path.realpath(sys.executable)


class OldKernel:
    """A socket of a kernel without SO_PEERPIDFD, whose peer is a given process."""

    def __init__(self, pid: int, error: int = errno.ENOPROTOOPT) -> None:
        self.pid = pid
        self.error = error

    def getsockopt(self, level: int, option: int, size: int = 0, /) -> int | bytes:
        if option == socket.SO_PEERCRED:
            return struct.pack("3i", self.pid, 4711, 4712)
        raise OSError(self.error, "no")


class CallingProcessTests(SynchronousTestCase):
    """The process at the other end."""

    def setUp(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.addCleanup(self.ours.close)
        self.addCleanup(self.theirs.close)

    def held(self, connection: object) -> CallingProcess:
        """A process that is released at the end of the test."""
        process = CallingProcess(connection)  # type: ignore[arg-type]
        self.addCleanup(process.close)
        return process

    def test_this_process(self) -> None:
        """Ids, program and file of this process are read."""
        caller = self.held(self.ours).observe()
        status = os.stat(PYTHON)
        self.assertEqual((caller.pid, caller.uid, caller.gid), (os.getpid(), os.geteuid(), os.getegid()))
        self.assertEqual(caller.executable, PYTHON)
        self.assertEqual((caller.file.device, caller.file.inode), (status.st_dev, status.st_ino))

    def test_digest(self) -> None:
        """The digest is that of the program's file."""
        self.assertEqual(self.held(self.ours).digest(), hashlib.sha256(Path(PYTHON).read_bytes()).hexdigest())

    def test_old_kernel(self) -> None:
        """Without SO_PEERPIDFD the process is held by its id."""
        caller = self.held(OldKernel(os.getpid())).observe()
        self.assertEqual((caller.uid, caller.gid, caller.executable), (4711, 4712, PYTHON))

    def test_invisible_process(self) -> None:
        """A process of another namespace keeps user and group and has no program."""
        caller = self.held(OldKernel(0)).observe()
        self.assertEqual((caller.pid, caller.uid, caller.executable, caller.file), (0, 4711, None, None))

    def test_no_unix_socket(self) -> None:
        """A socket without peer credentials raises an error."""
        with socket.socket(socket.AF_UNIX) as lonely:
            self.assertRaises((CallerNotAttested, OSError), CallingProcess, lonely)

    def test_close_twice(self) -> None:
        """A second close does not close another descriptor."""
        process = CallingProcess(self.ours)  # type: ignore[arg-type]
        process.close()
        with open(os.devnull) as other:
            process.close()
            self.assertGreaterEqual(other.fileno(), 0)
            os.fstat(other.fileno())

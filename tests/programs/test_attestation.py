"""The process at the other end of a socket, which has exited."""

from __future__ import annotations

import errno
import os

from twisted.trial.unittest import SynchronousTestCase

from svc.authority.attestation import CallerNotAttested, CallingProcess
from tests.authority.test_attestation import OldKernel


class CallingProcessTests(SynchronousTestCase):
    """A process that exits."""

    def gone(self) -> int:
        """The id of a process that has just exited."""
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return pid

    def test_process_gone(self) -> None:
        """A process that has exited is not attested, whatever the kernel supports."""
        self.assertRaises(CallerNotAttested, CallingProcess, OldKernel(self.gone()))
        self.assertRaises(CallerNotAttested, CallingProcess, OldKernel(os.getpid(), errno.ESRCH))

    def test_process_ends_while_held(self) -> None:
        """A process that exits after it connected is not attested, though its id may be reused."""
        ready, go = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.read(ready, 1)
            os._exit(0)
        process = CallingProcess(OldKernel(pid))
        self.addCleanup(process.close)
        self.assertEqual(process.observe().pid, pid)
        os.write(go, b"x")
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(go)
        self.assertRaises(CallerNotAttested, process.observe)
        self.assertIsNone(process.digest())

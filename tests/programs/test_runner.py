"""The audit hook of ``bin/test --fast`` in an interpreter, which keeps such a hook until it ends."""

from __future__ import annotations

import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.waiting import TOP

#: Starts a process in each way, and prints those that were not refused.
_STARTS = """
import os, pty, subprocess, sys
from tests.runner.worker import refuse_processes
sys.addaudithook(refuse_processes)
program = "/bin/true"
starts = {
    "Popen": lambda: subprocess.Popen([program]),
    "fork": lambda: os.fork() or os._exit(0),
    "pty": lambda: pty.fork(),
    "posix_spawn": lambda: os.posix_spawn(program, [program], {}),
    "system": lambda: os.system(program),
    "popen": lambda: os.popen(program),
    "spawn": lambda: os.spawnv(os.P_WAIT, program, [program]),
    "exec": lambda: os.execv(program, [program]),
}
for name, start in starts.items():
    try:
        start()
        print(name)
    except AssertionError as error:
        assert "a fast test starts a process" in str(error)
open(os.devnull).close()
print("end")
"""


class RefusalTests(SynchronousTestCase):
    """Starts of processes."""

    def test_each_start(self) -> None:
        """However a process is started, it is refused; other events pass."""
        ran = subprocess.run([sys.executable, "-c", _STARTS], cwd=TOP, capture_output=True, text=True, check=False)
        self.assertEqual((0, "end\n", ""), (ran.returncode, ran.stdout, ran.stderr))

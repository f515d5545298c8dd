"""The runner with processes: the audit hook of ``bin/test --fast`` in an interpreter, and the checkout with git."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.waiting import TOP
from tests.runner.leftovers import untracked

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


class UntrackedTests(SynchronousTestCase):
    """Files that git does not track."""

    def test_found(self) -> None:
        """New files are found, also in ignored folders; tracked files and what the tools keep there are not."""
        folder = Path(self.mktemp())
        kept = (
            ".venv/bin/python",
            "svc.egg-info/PKG-INFO",
            "a/__pycache__/b.pyc",
            ".mypy_cache/3.11/x",
            "dropin.cache",
        )
        for name in ("tracked", "new", "a/newer", "build/one", *kept):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
        (folder / ".gitignore").write_text("/build/\n__pycache__/\n/.venv/\n")
        for arguments in (["init", "-q"], ["add", "tracked", ".gitignore"]):
            subprocess.run(["git", *arguments], cwd=folder, check=True)
        (folder / "tracked").write_text("edited")
        self.assertEqual({"new", "a/newer", "build/one"}, untracked(folder))

    def test_no_git(self) -> None:
        """A checkout where the program is not installed is not compared."""
        folder = Path(self.mktemp())
        (folder / ".git").mkdir(parents=True)
        self.patch(os, "environ", {"PATH": str(folder)})
        self.assertIsNone(untracked(folder))

"""``svc broker passwd`` as a process: on a terminal, and many at once."""

from __future__ import annotations

import contextlib
import os
import pty
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.passwordfile import read_users
from tests.peers.daemon import environment
from tests.peers.folders import short_folder
from tests.peers.waiting import end_process

COMMAND = [sys.executable, "-c", "import sys; from svc.cli.main import main; sys.exit(main())", "broker", "passwd"]


class ProcessTests(SynchronousTestCase):
    """One file."""

    def setUp(self) -> None:
        """Make its folder."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.file = short_folder(self.stack) / "users"

    def start(self, *words: str | Path, stdin: int) -> subprocess.Popen[bytes]:
        """Start the command."""
        process = subprocess.Popen(
            [*COMMAND, *(str(each) for each in words)],
            env=environment(),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.stack.callback(end_process, process)
        return process

    def on_terminal(self, *answers: bytes) -> tuple[int, bytes]:
        """Set a password on a terminal; return the exit status and all that the terminal and standard error show."""
        mine, terminal = pty.openpty()
        self.stack.callback(os.close, mine)
        self.stack.callback(os.close, terminal)
        process = self.start("--create", self.file, "alice", stdin=terminal)
        assert process.stderr is not None
        shown = b""
        for answer in answers:
            # The prompt comes after the echo was turned off, and discards what was typed before.
            while not shown.endswith(b": "):
                shown += os.read(process.stderr.fileno(), 1)
            os.write(mine, answer + b"\n")
            shown += b"\n"
        out, errors = process.communicate(timeout=60)
        self.assertEqual(out, b"")
        os.set_blocking(mine, False)
        with contextlib.suppress(BlockingIOError):
            shown += os.read(mine, 4096)
        return process.returncode, shown + errors

    def test_terminal(self) -> None:
        """It asks twice and shows nothing of the password."""
        status, shown = self.on_terminal(b"secret", b"secret")
        self.assertEqual(status, 0)
        self.assertNotIn(b"secret", shown)
        self.assertEqual((shown.count(b"Password: "), shown.count(b"Again: ")), (1, 1))
        self.assertTrue(read_users(str(self.file))["alice"].verify(b"secret"))
        self.assertEqual(stat.S_IMODE(self.file.stat().st_mode), 0o600)
        status, shown = self.on_terminal(b"another", b"other")
        self.assertEqual(status, 1)
        self.assertIn(b"password_unusable", shown)
        self.assertTrue(read_users(str(self.file))["alice"].verify(b"secret"))

    def test_many_at_once(self) -> None:
        """No change is lost, and no process leaves a file behind."""
        processes = [self.start("--stdin", "--create", self.file, f"u{n}", stdin=subprocess.PIPE) for n in range(8)]
        for number, process in enumerate(processes):
            assert process.stdin is not None
            process.stdin.write(b"p%d\n" % number)
            process.stdin.close()
            process.stdin = None
        for process in processes:
            out, errors = process.communicate(timeout=120)
            self.assertEqual((process.returncode, out, errors), (0, b"", b""))
        users = read_users(str(self.file))
        self.assertEqual(set(users), {f"u{number}" for number in range(8)})
        self.assertTrue(users["u3"].verify(b"p3"))
        self.assertEqual(os.listdir(self.file.parent), ["users"])

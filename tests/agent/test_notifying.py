"""Signals to the process of a file; commands are run in ``tests.integration.test_agent_files``."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from svc.agent.config import FilesSettings
from svc.agent.notifying import NotifyFailed, ProgramNotRunning, notifier, send_signal
from tests.peers.folders import short_folder

#: More than any process has (proc(5), pid_max).
NOBODY = 2**22 + 1


class SignalTests(SynchronousTestCase):
    """A file with the ID of this process."""

    def setUp(self) -> None:
        """Count the signals."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.path = short_folder(stack) / "x.pid"
        self.received = 0
        before = signal.signal(signal.SIGUSR2, self.receive)
        self.addCleanup(signal.signal, signal.SIGUSR2, before)

    def receive(self, *_arguments: Any) -> None:
        self.received += 1

    def write(self, text: str) -> None:
        self.path.write_text(text)
        self.path.chmod(0o644)

    def refused(self, kind: type[NotifyFailed] = NotifyFailed) -> str:
        """Why no signal is sent."""
        error = self.assertRaises(kind, send_signal, str(self.path), signal.SIGUSR2)
        self.assertEqual((kind, 0), (type(error), self.received))
        return str(error)

    def test_sent(self) -> None:
        """The first line is the process ID; others may follow."""
        for text in (f"{os.getpid()}", f" {os.getpid()}\n", f"{os.getpid()}\n/var/lib/x\n{'x' * 4096}"):
            self.received = 0
            self.write(text)
            send_signal(str(self.path), signal.SIGUSR2)
            self.assertEqual(1, self.received, text)

    def test_not_running(self) -> None:
        """Without the file or the process nothing runs that has old files."""
        self.assertIn("No such file", self.refused(ProgramNotRunning))
        self.write(f"{NOBODY}\n")
        self.refused(ProgramNotRunning)

    def test_unusable(self) -> None:
        """What is no process ID is refused: zero and negative numbers mean groups of processes."""
        for text in ("", "0\n", "-1\n", "x\n", f"{os.getpid()} x\n", f"0{os.getpid()}\n", "\n" * 100, "1" * 65):
            self.write(text)
            self.assertIn("no process ID", self.refused(), text)
        self.write(f"{os.getpid()}\n")
        self.path.chmod(0o666)
        self.assertIn("mode 0666", self.refused())
        self.path.unlink()
        os.mkfifo(self.path)
        self.assertIn("regular file", self.refused())

    def test_owner(self) -> None:
        """The owner of a file cannot have a process of somebody else signalled."""
        self.write(f"{os.getpid()}\n")
        if os.geteuid() != 0:
            raise SkipTest("only root may give files away")
        os.chown(self.path, 1, 1)
        self.assertIn("not one of user 1", self.refused())

    def test_choice(self) -> None:
        """The entry says which signal, and by default nobody is told."""
        entry: dict[str, Any] = {"folder": "/x"}
        self.assertIsNone(notifier(FilesSettings.model_validate(entry), maybeDeferred))
        self.write(f"{os.getpid()}\n")
        entry |= {"pidFile": str(self.path), "signal": "SIGUSR2"}
        notify = notifier(FilesSettings.model_validate(entry), maybeDeferred)
        assert notify is not None
        self.successResultOf(notify())
        self.assertEqual(1, self.received)

"""What an interrupt does to a command that the quickstart starts."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import cast
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from svc.quickstart.__main__ import Quickstart
from svc.quickstart.processes import Running, raise_interrupts, run


class FakeRunning:
    """A process that the quickstart started."""

    ended = False

    def end(self) -> None:
        """Record that it was ended."""
        self.ended = True


class EndTests(SynchronousTestCase):
    """The end of a run that did its work."""

    def test_interrupted_just_before_the_end(self) -> None:
        """An interrupt between the work and the end of the processes leaves neither a process nor the folder."""
        checkout = Path(self.mktemp())
        quickstart = Quickstart(Namespace(keep=False), checkout)
        process = FakeRunning()
        folder, end = quickstart._folder, quickstart._end
        interrupts = [KeyboardInterrupt()]

        def demonstrate() -> None:
            quickstart._processes.append(cast(Running, process))
            (folder / "reports.txt").touch()

        def interrupted(*, remove: bool) -> None:
            if interrupts:
                raise interrupts.pop()
            end(remove=remove)

        self.patch(quickstart, "_demonstrate", demonstrate)
        self.patch(quickstart, "_end", interrupted)
        self.assertRaises(KeyboardInterrupt, quickstart.run)
        self.assertEqual((True, False), (process.ended, folder.exists()))


class RunTests(SynchronousTestCase):
    """Commands that are run to their end."""

    def setUp(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.addCleanup(signal.signal, number, signal.signal(number, signal.SIG_DFL))
        raise_interrupts()

    def test_status(self) -> None:
        """The status of the command is returned, and what it writes to standard error is in the file."""
        with tempfile.TemporaryFile() as stderr:
            self.assertEqual(3, run(["sh", "-c", "echo words >&2; exit 3"], stderr))
            stderr.seek(0)
            self.assertEqual(b"words\n", stderr.read())

    def test_interrupted_while_it_is_started(self) -> None:
        """An interrupt inside Popen ends the process that was started."""
        started: list[subprocess.Popen[bytes]] = []

        class Interrupted(subprocess.Popen[bytes]):
            """Started processes whose parent is interrupted before Popen returns."""

            def _execute_child(self, *arguments: object, **settings: object) -> None:
                super()._execute_child(*arguments, **settings)  # type: ignore[misc]
                started.append(self)
                signal.raise_signal(signal.SIGTERM)

        with tempfile.TemporaryFile() as stderr, mock.patch.object(subprocess, "Popen", Interrupted):
            self.assertRaises(KeyboardInterrupt, run, ["sleep", "60"], stderr)
        [process] = started
        self.assertEqual(-signal.SIGKILL, process.wait(10))

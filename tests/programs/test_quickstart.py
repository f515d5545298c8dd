"""Commands that the quickstart runs to their end."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from svc.quickstart.__main__ import main
from svc.quickstart.kubernetes import end, kept
from svc.quickstart.processes import QuickstartError, raise_interrupts, run


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


class ClusterTests(SynchronousTestCase):
    """Clusters of earlier runs, with a ``bin/cluster`` that notes how it was called."""

    def setUp(self) -> None:
        self.checkout = Path(self.mktemp()).absolute()
        (self.checkout / "bin").mkdir(parents=True)
        (self.checkout / ".quickstart" / "clusters").mkdir(parents=True)
        self.status(0)

    def status(self, status: int) -> None:
        """With which status ``bin/cluster`` ends."""
        script = self.checkout / "bin" / "cluster"
        script.write_text(f'#!/bin/sh\necho "$@" >>{self.checkout}/calls\necho "svc: no" >&2\nexit {status}\n')
        script.chmod(0o755)

    def test_stop(self) -> None:
        """``--stop`` ends each cluster that was begun, also of a run that was killed, with its folder, and names it."""
        for name in ("quickstart-b", "quickstart-a"):
            (self.checkout / ".quickstart" / "clusters" / name).touch()
        left = self.checkout / "svc-quickstart-a"
        left.mkdir()
        self.patch(tempfile, "tempdir", str(self.checkout))
        self.patch(os, "environ", {**os.environ, "SVC_CHECKOUT": str(self.checkout)})
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            self.assertEqual(0, main(["--stop"]))
        self.assertEqual("quickstart: stopped quickstart-a, quickstart-b\n", errors.getvalue())
        calls = (self.checkout / "calls").read_text().splitlines()
        self.assertEqual(["--name quickstart-a down", "--name quickstart-b down"], calls)
        self.assertEqual([], kept(self.checkout))
        self.assertFalse(left.exists())

    def test_not_begun(self) -> None:
        """A cluster that was not begun is not touched."""
        end(self.checkout, "quickstart-a")
        self.assertFalse((self.checkout / "calls").exists())

    def test_cannot_end(self) -> None:
        """A cluster that could not be ended stays noted, for the next ``--stop``."""
        self.status(1)
        (self.checkout / ".quickstart" / "clusters" / "quickstart-a").touch()
        error = self.assertRaises(QuickstartError, end, self.checkout, "quickstart-a")
        self.assertEqual("bin/cluster down ended with status 1: no", str(error))
        self.assertEqual(["quickstart-a"], kept(self.checkout))

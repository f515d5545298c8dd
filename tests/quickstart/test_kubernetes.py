"""What ``bin/quickstart --kubernetes`` says after an error, and which clusters it ends."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.quickstart.__main__ import main
from svc.quickstart.kubernetes import end, failed, kept
from svc.quickstart.processes import QuickstartError

_FOLDER = Path("/tmp/x")


class FailedTests(SynchronousTestCase):
    """One line and a hint for a failed step."""

    def said(self, output: str) -> tuple[str, str]:
        """The message and the hint of a step that wrote this."""
        error = failed("helm install", 1, output, _FOLDER)
        return str(error), error.hint

    def test_last_line(self) -> None:
        """The last line of a program says why; the hint names the folder."""
        message, hint = self.said("walk of the chart\nError: INSTALLATION FAILED: timed out\n\n")
        self.assertEqual("helm install ended with status 1: INSTALLATION FAILED: timed out", message)
        self.assertEqual("the whole output of each step is in /tmp/x", hint)

    def test_own_hint(self) -> None:
        """A command of the project gives its own hint, which comes first."""
        message, hint = self.said("svc: a cluster needs runc\n     as root: apt-get install runc\n")
        self.assertEqual("helm install ended with status 1: a cluster needs runc", message)
        self.assertEqual("as root: apt-get install runc; the whole output of each step is in /tmp/x", hint)

    def test_silent(self) -> None:
        """A program that wrote nothing is said to have written nothing; a long line is cut."""
        self.assertIn("it wrote nothing", self.said("")[0])
        self.assertLess(len(self.said("x" * 4000)[0]), 400)


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
        """``--stop`` ends each cluster that was begun, also one whose run was killed, and names it."""
        for name in ("quickstart-b", "quickstart-a"):
            (self.checkout / ".quickstart" / "clusters" / name).touch()
        self.patch(os, "environ", {**os.environ, "SVC_CHECKOUT": str(self.checkout)})
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            self.assertEqual(0, main(["--stop"]))
        self.assertEqual("quickstart: stopped quickstart-a, quickstart-b\n", errors.getvalue())
        calls = (self.checkout / "calls").read_text().splitlines()
        self.assertEqual(["--name quickstart-a down", "--name quickstart-b down"], calls)
        self.assertEqual([], kept(self.checkout))

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

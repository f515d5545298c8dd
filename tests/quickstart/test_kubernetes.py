"""What ``bin/quickstart --kubernetes`` says after an error."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.quickstart.kubernetes import failed

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

    def test_several_causes(self) -> None:
        """Of several causes the last one is given, without the marks of a list."""
        message, _hint = self.said("Error: INSTALLATION FAILED: 1 error occurred:\n\t* timed out waiting\n\n\n")
        self.assertEqual("helm install ended with status 1: timed out waiting", message)

    def test_own_hint(self) -> None:
        """A command of the project gives its own hint, which comes first."""
        message, hint = self.said("svc: a cluster needs runc\n     as root: apt-get install runc\n")
        self.assertEqual("helm install ended with status 1: a cluster needs runc", message)
        self.assertEqual("as root: apt-get install runc; the whole output of each step is in /tmp/x", hint)

    def test_silent(self) -> None:
        """A program that wrote nothing is said to have written nothing; a long line is cut."""
        self.assertIn("it wrote nothing", self.said("")[0])
        self.assertLess(len(self.said("x" * 4000)[0]), 400)

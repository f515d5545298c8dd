"""Tests of the two streams and their rules."""

from __future__ import annotations

import errno
import io

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.errors import OutputClosed, OutputFailed, UsageRefused
from svc.cli.output import Console


class Terminal(io.BytesIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Broken(io.BytesIO):
    """A stream whose reader is gone, or whose disk is full."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, data: object) -> int:
        raise self.error

    def flush(self) -> None:
        raise self.error


class ConsoleTests(SynchronousTestCase):
    """What goes where."""

    def console(self, **environ: str) -> Console:
        self.stdout, self.stderr = io.BytesIO(), Terminal()
        return Console(self.stdout, self.stderr, environ)

    def test_streams(self) -> None:
        """Data goes to standard output, lines for people to standard error with a prefix."""
        console = self.console()
        console.write(b"\x00data")
        console.notice("it works")
        self.assertEqual((self.stdout.getvalue(), self.stderr.getvalue()), (b"\x00data", b"svc: it works\n"))

    def test_colour(self) -> None:
        """Colour is used on a terminal, not with NO_COLOR, not on a dumb one, not into a file."""
        for environ, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
            console = self.console(**environ)
            console.fail(UsageRefused("no", "yes"), "")
            self.assertEqual(b"\x1b[" in self.stderr.getvalue(), coloured, environ)
        plain = io.BytesIO()
        Console(io.BytesIO(), plain, {}).fail(UsageRefused("no", "yes"), "why")
        self.assertEqual(plain.getvalue(), b"svc: no (why)\n     yes\n")

    def test_warnings(self) -> None:
        """Warnings are one line, and SVC_NO_WARNINGS silences them."""
        console = self.console(NO_COLOR="1")
        console.warn("look out")
        self.assertEqual(self.stderr.getvalue(), b"svc: look out\n")
        console = self.console(SVC_NO_WARNINGS="1")
        console.warn("look out")
        self.assertEqual(self.stderr.getvalue(), b"")

    def test_broken_pipe(self) -> None:
        """A reader that is gone and a full disk have their own errors."""
        console = Console(Broken(BrokenPipeError()), io.BytesIO(), {})
        self.assertRaises(OutputClosed, console.write, b"x")
        self.assertRaises(OutputClosed, console.flush)
        console = Console(Broken(OSError(errno.ENOSPC, "No space left on device")), io.BytesIO(), {})
        self.assertEqual(
            self.assertRaises(OutputFailed, console.write, b"x").evidence["detail"], "no space left on device"
        )
        console.abandon_stdout()

    def test_lost_stderr(self) -> None:
        """Nobody to tell is no reason to fail."""
        console = Console(io.BytesIO(), Broken(BrokenPipeError()), {})
        console.tell("anybody?")
        self.assertTrue(console.stderr_lost)

    def test_surrogates(self) -> None:
        """Text that UTF-8 cannot carry is escaped."""
        console = self.console()
        console.tell("a\udcffb")
        self.assertEqual(self.stderr.getvalue(), b"a\\udcffb\n")

    def test_width(self) -> None:
        """Into a file help text is 100 columns wide; on a terminal it stays between 60 and 120."""
        self.assertEqual(self.console().width, 100)
        self.assertTrue(60 <= Console(Terminal(), io.BytesIO(), {}).width <= 120)

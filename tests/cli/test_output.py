"""Tests of the two streams and their rules."""

from __future__ import annotations

import errno
import io
import json

from jsonschema import Draft202012Validator
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.errors import OutputFailed, UsageRefused
from svc.cli.output import Console
from svc.data import FOLDER
from tests.refusals import assert_refused

VALIDATOR = Draft202012Validator(json.loads((FOLDER / "schemas" / "svc.log.1.json").read_text()))


class Terminal(io.BytesIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Broken(io.BytesIO):
    """A stream that raises an error, as a closed pipe or a full disk does."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, data: object) -> int:
        raise self.error

    def flush(self) -> None:
        raise self.error


class ConsoleTests(SynchronousTestCase):
    """Which stream gets what."""

    def console(self, **environ: str) -> Console:
        self.stdout, self.stderr = io.BytesIO(), Terminal()
        return Console(self.stdout, self.stderr, environ)

    def test_streams(self) -> None:
        """Data goes to standard output, messages to standard error with a prefix."""
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

    def test_records(self) -> None:
        """As JSON an error, a warning and a notice are one record each, of the schema of log records."""
        console = self.console()
        console.json = True
        console.notice("it works", reason="why", hint="do", remarks=("more", "and more"))
        console.warn("look\nout")
        console.fail(UsageRefused("no", "yes"), "")
        try:
            raise UsageRefused("traced")
        except UsageRefused as error:
            console.fail(error, "why", ("more",), traced=error)
        records = [json.loads(line) for line in self.stderr.getvalue().splitlines()]
        for record in records:
            VALIDATOR.validate(record)
        self.assertEqual(
            [(each["event"]["name"], each["severity"], each["message"], each.get("detail_reason")) for each in records],
            [
                ("svc.cli.notice", "INFO", "it works", "why"),
                ("svc.cli.warning", "WARN", "look\\x0aout", None),
                ("svc.cli.failed", "ERROR", "no", None),
                ("svc.cli.failed", "ERROR", "traced", "why"),
            ],
        )
        self.assertEqual(records[0]["attributes"], {"hint": "do", "remark": "more; and more"})
        self.assertEqual(records[2]["attributes"], {"hint": "yes"})
        self.assertIn("Traceback", records[3]["attributes"]["exception.stacktrace"])

    def test_broken_pipe(self) -> None:
        """A closed pipe and a full disk have their own reasons."""
        console = Console(Broken(BrokenPipeError()), io.BytesIO(), {})
        assert_refused(self, "output_closed", console.write, b"x")
        assert_refused(self, "output_closed", console.flush)
        console = Console(Broken(OSError(errno.ENOSPC, "No space left on device")), io.BytesIO(), {})
        self.assertEqual(
            self.assertRaises(OutputFailed, console.write, b"x").evidence["detail"], "no space left on device"
        )
        console.discard_stdout()

    def test_lost_stderr(self) -> None:
        """A standard error that cannot be written is no error."""
        console = Console(io.BytesIO(), Broken(BrokenPipeError()), {})
        console.write_stderr("lost")
        console.fail(UsageRefused("lost"), "")

    def test_surrogates(self) -> None:
        """Text that UTF-8 cannot encode is escaped."""
        console = self.console()
        console.write_stderr("a\udcffb")
        self.assertEqual(self.stderr.getvalue(), b"a\\udcffb\n")

    def test_width(self) -> None:
        """Into a file help text is 100 columns wide; on a terminal it stays between 60 and 120."""
        self.assertEqual(self.console().width, 100)
        self.assertTrue(60 <= Console(Terminal(), io.BytesIO(), {}).width <= 120)

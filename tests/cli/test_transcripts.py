"""
Tests of the command line as transcripts.

Each file in ``transcripts/`` holds runs: a line ``$ svc words``, lines ``# NAME=value`` for the environment, then
``exit: n`` and the blocks ``stdout:`` and ``stderr:``.
"""

from __future__ import annotations

import shlex
from datetime import datetime
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc import __version__
from svc.cli.commands import COMMANDS
from svc.cli.globals import SvcGroup
from svc.cli.root import make_root
from tests.cli.doubles import run_svc

_FOLDER = Path(__file__).parent / "transcripts"


def runs(text: str) -> list[tuple[dict[str, str], str, str]]:
    """Split a transcript into environment, command and what is expected."""
    found: list[tuple[dict[str, str], str, str]] = []
    environ: dict[str, str] = {}
    command, expected = "", ""
    for line in [*text.splitlines(), "$ "]:
        if line.startswith("$ "):
            if command:
                found.append((environ, command, expected))
            environ = {}
            command, expected = line.removeprefix("$ "), ""
        elif line.startswith("# ") and "=" in line:
            name, _equals, value = line.removeprefix("# ").partition("=")
            environ[name] = value
        else:
            expected += f"{line}\n"
    return found


def transcript_of(command: str, environ: dict[str, str], *, now: str = "2026-11-21T09:00:00Z") -> str:
    """Run a command at a time and format its result as a transcript."""
    words = shlex.split(command)
    ran = run_svc(*words[1:], environ=environ, now=datetime.fromisoformat(now))
    text = f"exit: {ran.status}\n"
    for name, stream in (("stdout", ran.stdout.decode()), ("stderr", ran.stderr)):
        if stream:
            text += f"{name}:\n" + "".join(f"  {line}".rstrip() + "\n" for line in stream.splitlines())
    return text


class TranscriptTests(SynchronousTestCase):
    """The recorded runs."""

    def check(self, name: str) -> None:
        text = (_FOLDER / name).read_text()
        recorded = runs(text)
        self.assertTrue(recorded)
        for environ, command, expected in recorded:
            found = transcript_of(command, environ)
            self.assertEqual(found.strip(), expected.replace("VERSION", __version__).strip(), command)

    def test_help(self) -> None:
        """The help of each command, by flag and by command."""
        self.check("help.txt")

    def test_usage(self) -> None:
        """Wrong arguments, and the sentence of each."""
        self.check("usage.txt")

    def test_curl_usage(self) -> None:
        """What svc curl refuses before anything is sent."""
        self.check("curl.txt")

    def test_verify_usage(self) -> None:
        """What svc verify refuses before it verifies."""
        self.check("verify.txt")

    def test_receipts_usage(self) -> None:
        """What svc receipts refuses before it reads anything."""
        self.check("receipts.txt")

    def test_status_usage(self) -> None:
        """What svc status refuses before it asks anybody."""
        self.check("status.txt")

    def test_check_usage(self) -> None:
        """What svc check refuses before it reads anything."""
        self.check("check.txt")

    def test_policy_usage(self) -> None:
        """What svc policy refuses before it decides."""
        self.check("policy.txt")

    def test_two_ways_to_help(self) -> None:
        """help COMMAND and COMMAND --help are the same text."""
        for name, (_module, _text, shown) in COMMANDS.items():
            if shown:
                self.assertEqual(run_svc("help", name).stdout, run_svc(name, "--help").stdout)
                self.assertEqual(run_svc(name, "-h").status, 0)
        self.assertEqual(run_svc("help").stdout, run_svc("--help").stdout)
        self.assertEqual(run_svc().stdout, run_svc("--help").stdout)

    def test_every_flag_has_help(self) -> None:
        """Each flag of each command has one line of help without a full stop."""
        root = make_root()
        self.assertIsInstance(root, SvcGroup)
        for name in COMMANDS:
            command = root.get_command(None, name)  # type: ignore[arg-type]
            assert command is not None
            for param in command.get_params(None):  # type: ignore[arg-type]
                text = getattr(param, "help", None)
                if param.param_type_name == "option":
                    self.assertTrue(text and not text.endswith("."), f"{name} {param.opts}")

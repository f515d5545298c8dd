"""Tests of ``svc broker passwd``; what a file may hold is in ``tests.broker.test_passwordfile``."""

from __future__ import annotations

import io
import stat
from pathlib import Path
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.passwordfile import read_users
from svc.cli.broker import MAX_PASSWORD
from svc.cli.globals import Invocation
from svc.cli.main import main
from svc.cli.output import Console


class Terminal(io.BytesIO):
    """Standard input that is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


class PasswdTests(SynchronousTestCase):
    """One file."""

    def setUp(self) -> None:
        """Make its folder."""
        folder = Path(self.mktemp())
        folder.mkdir()
        self.file = folder / "users"

    def run_passwd(self, *words: str, stdin: io.BytesIO | None = None) -> tuple[int, str]:
        """Run the command; standard output must stay empty. Returns the status and standard error."""
        out, err = io.BytesIO(), io.BytesIO()
        invocation = Invocation(Console(out, err, {}), {}, stdin)
        status = main(["broker", "passwd", *words], invocation=invocation)
        self.assertEqual(out.getvalue(), b"")
        return status, err.getvalue().decode()

    def sets(self, password: bytes, *words: str) -> tuple[int, str]:
        """Set the password of alice from standard input."""
        return self.run_passwd(str(self.file), "alice", "--stdin", *words, stdin=io.BytesIO(password))

    def verifies(self, password: bytes) -> bool:
        """Whether it is alice's."""
        return read_users(str(self.file))["alice"].verify(password)

    def test_standard_input(self) -> None:
        """One line is the password, with or without its end; the file is created only where that is wanted."""
        status, text = self.sets(b"one\n")
        self.assertEqual(status, 1)
        self.assertIn("password_file_unreadable", text)
        self.assertIn("--create", text)
        self.assertEqual(self.sets(b"one\n", "--create"), (0, ""))
        self.assertEqual(stat.S_IMODE(self.file.stat().st_mode), 0o600)
        self.assertTrue(self.verifies(b"one"))
        self.assertEqual(self.sets(b" two ", "--create"), (0, ""))
        self.assertTrue(self.verifies(b" two "))

    def test_bounds(self) -> None:
        """The longest password that CONNECT can hold, and those that are refused; nothing of them is shown."""
        self.assertEqual(self.sets(b"x" * MAX_PASSWORD + b"\n", "--create"), (0, ""))
        self.assertTrue(self.verifies(b"x" * MAX_PASSWORD))
        before = self.file.read_bytes()
        for wrong in (b"", b"\n", b"secret\nsecret\n", b"\nsecret", b"y" * (MAX_PASSWORD + 1)):
            status, text = self.sets(wrong)
            self.assertEqual(status, 1)
            self.assertIn("password_unusable", text)
            self.assertNotIn("secret", text)
        self.assertEqual(self.file.read_bytes(), before)

    def test_terminal(self) -> None:
        """A terminal is asked twice, and what differs is refused."""
        words = (str(self.file), "alice", "--create")
        for answers, expected in ((["a", "a"], 0), (["a", "b"], 1), (["", ""], 1)):
            asked = iter(answers)
            with patch("getpass.getpass", lambda _prompt, asked=asked: next(asked)):
                status, text = self.run_passwd(*words, stdin=Terminal())
            self.assertEqual((status, list(asked)), (expected, []))
            self.assertNotIn('"b"', text)
        self.assertTrue(self.verifies(b"a"))

    def test_no_terminal(self) -> None:
        """Without one, and without --stdin, nothing is read."""
        for stdin in (io.BytesIO(b"secret\n"), None):
            status, text = self.run_passwd(str(self.file), "alice", "--create", stdin=stdin)
            self.assertEqual(status, 1)
            self.assertIn("--stdin", text)
        self.assertFalse(self.file.exists())

    def test_delete(self) -> None:
        """A user is removed; one who is not there is an error, and the other flags make no sense."""
        self.sets(b"one", "--create")
        words = (str(self.file), "alice", "--delete")
        for other in ("--create", "--stdin"):
            self.assertIn("--delete goes with no other flag", self.run_passwd(*words, other)[1])
        self.assertEqual(self.run_passwd(*words), (0, ""))
        self.assertEqual(read_users(str(self.file)), {})
        status, text = self.run_passwd(*words)
        self.assertEqual(status, 1)
        self.assertIn("password_user_unknown", text)

    def test_names(self) -> None:
        """A name that the file cannot hold is refused before a password is asked for."""
        for name in ("a:b", "a\nb", "", "*", "#x"):
            status, text = self.run_passwd(str(self.file), name, "--create", stdin=Terminal())
            self.assertEqual(status, 1)
            self.assertIn("password_user_invalid", text)

    def test_words(self) -> None:
        """A password is no argument: two words are taken, no more."""
        for words in ((), ("f",), ("f", "u", "secret")):
            status, text = self.run_passwd(*words)
            self.assertEqual(status, 1)
            self.assertIn("passwd takes FILE and USER", text)

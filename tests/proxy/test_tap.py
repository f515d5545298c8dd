"""``twistd svc-proxy``: output for options and configurations."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from svc import __version__
from svc.proxy.tap import Options

RIGHT = """
trustDomain: prod.example
listeners:
  - {name: web, protocol: http, direction: inbound, listen: ":8443", upstream: "127.0.0.1:8080"}
"""


class OptionsCase(SynchronousTestCase):
    """Parses command lines of a valid configuration."""

    def setUp(self) -> None:
        """Write a valid configuration."""
        self.path = Path(self.mktemp())
        self.path.write_text(RIGHT)

    def parse(self, *arguments: str) -> tuple[int | str | None, str, str]:
        """Return exit status, standard output and standard error; status None if nothing exited."""
        out, err = io.StringIO(), io.StringIO()
        status: int | str | None = None
        self.options = Options()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                self.options.parseOptions(list(arguments))
            except SystemExit as end:
                status = end.code
        return status, out.getvalue(), err.getvalue()


class OptionsTests(OptionsCase):
    """The command line."""

    def test_check_right(self) -> None:
        """A valid file gives one line on standard output and status 0; --offline has no effect on its own."""
        valid = (0, f"{self.path} is valid\n", "")
        self.assertEqual(self.parse("--config", str(self.path), "--check-config", "--offline"), valid)
        error = self.assertRaises(UsageError, self.parse, "--config", str(self.path), "--offline")
        self.assertEqual(str(error), "--offline goes with --check-config")

    def test_check_wrong(self) -> None:
        """Each problem is one line on standard error, and the status is 1; standard output stays empty."""
        self.path.write_text(RIGHT.replace("http,", "amqp,") + "drainTimeout: 10\nlicense: x\n")
        status, out, err = self.parse("--config", str(self.path), "--check-config")
        self.assertEqual((status, out), (1, ""))
        self.assertEqual(
            sorted(err.splitlines()),
            [
                f"svc: {self.path}: drainTimeout: 10: expected a duration with its unit,"
                " such as 250ms, 10s, 5m, 1h or 90d, up to 36500d",
                f"svc: {self.path}: license: 'x': expected no such key",
                f"svc: {self.path}: listeners[0].protocol: 'amqp': expected 'http', 'tcp' or 'mqtt'",
            ],
        )

    def test_wrong_without_check(self) -> None:
        """An invalid file fails the start in the same way."""
        self.path.write_text("trustDomain: A\n")
        status, out, err = self.parse("-c", str(self.path))
        self.assertEqual((status, out, len(err.splitlines())), (1, "", 2))

    def test_no_file(self) -> None:
        """A file that cannot be read is reported with its path and the error text of the system."""
        status, out, err = self.parse("--config", "/proc/nonexistent/proxy.yaml")
        self.assertEqual((1, ""), (status, out))
        self.assertEqual(
            "svc: the configuration /proc/nonexistent/proxy.yaml cannot be read: no such file or directory\n"
            "     check the path, its permissions, and that it is YAML\n",
            err,
        )

    def test_no_yaml(self) -> None:
        """A file that is not YAML is reported with the position of the error."""
        self.path.write_text("trustDomain: [\n")
        status, _out, err = self.parse("--config", str(self.path))
        self.assertEqual(status, 1)
        self.assertTrue(err.startswith(f"svc: the configuration {self.path} cannot be read: "), err)
        self.assertEqual(err.count("\n"), 2)

    def test_hostile_path(self) -> None:
        """Control characters in a value are not written to the terminal."""
        self.path.write_text('trustDomain: "a\\e[2J"\nlisteners: []\n')
        _status, _out, err = self.parse("--config", str(self.path))
        self.assertNotIn("\x1b", err)

    def test_options(self) -> None:
        """The default file, the log format, and unknown options and arguments."""
        self.assertEqual(self.parse("--config", str(self.path), "--log-format", "text")[0], None)
        self.assertEqual((self.options["log-format"], self.options["settings"].trustDomain), ("text", "prod.example"))
        defaults = Options()
        self.assertEqual((defaults["config"], defaults["log-format"]), ("/etc/svc/proxy.yaml", "json"))
        for arguments, message in (
            (("--log-format", "xml"), "--log-format 'xml': expected json or text"),
            (("--nothing",), "option --nothing not recognized"),
            (("--config",), "option --config requires argument"),
        ):
            error = self.assertRaises(UsageError, self.parse, *arguments)
            self.assertEqual(str(error), message)

    def test_version(self) -> None:
        """The version is one line, and status 0."""
        self.assertEqual(self.parse("--version"), (0, f"svc {__version__}\n", ""))

    def test_help(self) -> None:
        """The help lists every option."""
        status, out, _err = self.parse("--help")
        self.assertEqual(status or 0, 0)
        for option in ("--config", "--log-format", "--check-config", "--offline", "--version", "/etc/svc/proxy.yaml"):
            self.assertIn(option, out)

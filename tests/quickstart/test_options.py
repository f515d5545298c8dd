"""The command line of the quickstart."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.quickstart.__main__ import _options, main, shortened


class OptionsTests(SynchronousTestCase):
    """Valid and invalid command lines."""

    def refused(self, *arguments: str) -> str:
        """Assert that the command line is refused with status 2; returns the last line of the output."""
        output = io.StringIO()
        with contextlib.redirect_stderr(output):
            error = self.assertRaises(SystemExit, _options, list(arguments))
        self.assertEqual(error.code, 2)
        return output.getvalue().splitlines()[-1]

    def test_defaults(self) -> None:
        """Without options everything is built in, and is stopped at the end."""
        options = _options([])
        self.assertEqual(
            (options.upstream, options.spire_socket, options.port, options.keep, options.stop),
            (None, None, 8443, False, False),
        )

    def test_all(self) -> None:
        """Each option is parsed."""
        options = _options(["--upstream", "[::1]:80", "--spire-socket", "/a.sock", "--port", "1", "--keep"])
        self.assertEqual(
            (options.upstream, options.spire_socket, options.port, options.keep), ("[::1]:80", "/a.sock", 1, True)
        )

    def test_upstream(self) -> None:
        """An application has a host and a port."""
        output = self.refused("--upstream", "8080")
        self.assertTrue(
            output.startswith("bin/quickstart: error: --upstream 8080: expected an address host:port"), output
        )
        for text in (":8080", "web:0"):
            output = self.refused("--upstream", text)
            self.assertEqual(output, f"bin/quickstart: error: --upstream {text}: expected a host and a port above 0")

    def test_port(self) -> None:
        """A port is a number that can be listened at; 0 stands for a free one."""
        for text in ("65536", "-1"):
            output = self.refused(f"--port={text}")
            self.assertEqual(output, f"bin/quickstart: error: --port {text}: expected 0 to 65535")
        self.assertEqual((_options(["--port=0"]).port, _options(["--port=65535"]).port), (0, 65535))
        self.assertIn("invalid int value", self.refused("--port", "https"))

    def test_kubernetes(self) -> None:
        """The run on a cluster has no use for the options of the other one, and says so."""
        self.assertTrue(_options(["--kubernetes", "--keep"]).kubernetes)
        for arguments in (["--port", "1"], ["--upstream", "web:80"], ["--spire-socket", "/a.sock"]):
            output = self.refused("--kubernetes", *arguments)
            self.assertIn("--kubernetes: the options --upstream, --spire-socket and --port belong to", output)

    def test_unknown(self) -> None:
        """Unknown and abbreviated options are refused."""
        for word in ("--nothing", "--sto", "--upstrea=a:1"):
            self.assertTrue(self.refused(word).endswith(f"unrecognized arguments: {word}"))

    def test_help(self) -> None:
        """The help names what is left behind, and fits a terminal."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            error = self.assertRaises(SystemExit, _options, ["--help"])
        self.assertEqual(error.code, 0)
        for words in (
            ".quickstart/reports.txt",
            "temporary folder is removed",
            "the folder stays and is named",
            "8443",
        ):
            self.assertIn(words, output.getvalue())
        self.assertLessEqual(max(map(len, output.getvalue().splitlines())), 120)


class ShortenedTests(SynchronousTestCase):
    """Which lines of the reports are shown."""

    def test_lines(self) -> None:
        """Notices, titles and the chosen fields are; claims, headers, bodies and other fields are not."""
        kept = ["svc: verified server identity: x", "Signed Request Receipt y", "  Issuer: z", "    Status Code: 200"]
        dropped = [
            *(
                "  Audience:",
                "    - https://svc.internal/receipt",
                "    Headers:",
                "      server: a",
                "      Issuer: body",
            ),
            *("  Raw Claims (JSON):", "    {", '      "Issuer": 1'),
        ]
        shown = shortened("".join(f"{line}\n" for line in [*kept, *dropped]))
        self.assertEqual(kept, shown.splitlines())


class StopTests(SynchronousTestCase):
    """``--stop``."""

    def setUp(self) -> None:
        """A checkout without a state."""
        self.checkout = Path(self.mktemp()).absolute()
        self.checkout.mkdir()
        before = os.environ.get("SVC_CHECKOUT")
        self.addCleanup(
            lambda: os.environ.pop("SVC_CHECKOUT") if before is None else os.environ.update(SVC_CHECKOUT=before)
        )
        os.environ["SVC_CHECKOUT"] = str(self.checkout)

    def stop(self) -> tuple[int, str]:
        """Status and what was output."""
        output = io.StringIO()
        with contextlib.redirect_stderr(output):
            status = main(["--stop"])
        return status, output.getvalue()

    def test_nothing_runs(self) -> None:
        """That nothing runs is no failure."""
        self.assertEqual(self.stop(), (0, "quickstart: nothing was running\n"))

    def test_number_reused(self) -> None:
        """A process that now has the number of one of ours is not stopped."""
        folder = self.checkout / ".quickstart"
        folder.mkdir()
        (folder / "state.json").write_text(
            f'{{"folder": "/x", "processes": [{{"name": "proxy", "pid": {os.getpid()}, "started": "1"}}]}}'
        )
        self.assertEqual(self.stop(), (0, "quickstart: nothing was running\n"))
        self.assertFalse((folder / "state.json").exists())

    def test_malformed_file(self) -> None:
        """A malformed state file is one line and a hint."""
        folder = self.checkout / ".quickstart"
        folder.mkdir()
        (folder / "state.json").write_text("{")
        status, output = self.stop()
        self.assertEqual(status, 1)
        self.assertEqual(
            output,
            f"quickstart: the file {folder / 'state.json'} does not say what an earlier run left\n"
            "            end the processes yourself and remove it\n",
        )

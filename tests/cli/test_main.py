"""Tests of the entry: exit status, what is imported, and how failures end."""

from __future__ import annotations

import io
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.errors import OutputClosed
from svc.cli.main import main
from tests.cli.doubles import MemoryMeans, NotaryServer, right_world, run_svc

#: What nobody pays for who only asks for help.
_HEAVY = ("twisted", "cryptography", "OpenSSL", "spiffe", "grpc", "rich", "pydantic", "jwt", "httptools", "asyncio")


class ImportTests(SynchronousTestCase):
    """What a command loads."""

    def loaded(self, *words: str) -> list[str]:
        script = (
            "import sys; from svc.cli.main import main; "
            f"status = main({list(words)!r}); "
            f"print([name for name in {_HEAVY!r} if name in sys.modules], file=sys.stderr); sys.exit(status)"
        )
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        return ran.stderr.splitlines()

    def test_light_commands(self) -> None:
        """Help, version and completion load nothing heavy."""
        for words in (["--help"], ["help", "curl"], ["curl", "--help"], ["version"], ["completion", "bash"]):
            self.assertEqual(self.loaded(*words), ["[]"], words)
        self.assertEqual(self.loaded("__complete", "curl", "--"), ["[]"])


class Gone(io.BytesIO):
    """Standard output whose reader is gone at the end."""

    def flush(self) -> None:
        raise BrokenPipeError


class ExitTests(SynchronousTestCase):
    """How a run ends."""

    def test_broken_pipe(self) -> None:
        """A reader that goes away is one line and status 1."""
        stderr = io.BytesIO()
        status = main(["version"], Gone(), stderr, {})
        self.assertEqual(status, 1)
        self.assertEqual(stderr.getvalue().decode(), f"svc: {OutputClosed()} (output_closed)\n")

    def test_broken_pipe_of_a_process(self) -> None:
        """A real pipe without reader gives the line, and no complaint of the interpreter."""
        ran = subprocess.run(
            f"{sys.executable} -m svc.cli.main help curl | true; exit ${{PIPESTATUS[0]}}",
            shell=True,
            executable="/bin/bash",
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertNotIn("Exception ignored", ran.stderr)
        self.assertIn(ran.returncode, (0, 1))

    def test_stack_trace(self) -> None:
        """--log-stacktrace adds the stack trace to the lines of an error."""
        plain = run_svc("verify", "/nonexistent/evidence.json")
        traced = run_svc("--log-stacktrace", "verify", "/nonexistent/evidence.json")
        self.assertEqual((plain.status, traced.status), (1, 1))
        self.assertNotIn("Traceback", plain.stderr)
        self.assertTrue(traced.stderr.startswith(plain.stderr))
        self.assertIn("Traceback", traced.stderr)

    def test_internal_error(self) -> None:
        """A mistake of the program is said to be one, without a stack trace unless asked for."""
        means = MemoryMeans(NotaryServer(right_world()))
        means.now = None  # type: ignore[assignment]
        ran = run_svc("curl", "https://api.test/", means=means)
        self.assertEqual((ran.status, ran.stdout), (1, b""))
        self.assertIn("internal error: TypeError", ran.stderr)
        self.assertNotIn("Traceback", ran.stderr)

    def test_interrupt(self) -> None:
        """An interrupt is one line and status 1."""
        means = MemoryMeans(NotaryServer(right_world()))

        def interrupt() -> None:
            raise KeyboardInterrupt

        means.now = interrupt  # type: ignore[assignment]
        ran = run_svc("curl", "https://api.test/", means=means)
        self.assertEqual((ran.status, ran.stderr.splitlines()[-1]), (1, "svc: interrupted"))

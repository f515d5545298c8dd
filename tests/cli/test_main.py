"""Tests of the entry point: exit status, imports, and how failures are reported."""

from __future__ import annotations

import io
import json

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.errors import NetworkError
from svc.cli.main import main
from tests.cli.doubles import SERVER_ID, MemoryContext, NotaryServer, default_world, run_svc


class Gone(io.BytesIO):
    """Standard output whose reader has closed it."""

    def flush(self) -> None:
        raise BrokenPipeError


class ExitTests(SynchronousTestCase):
    """Exit status and messages of a run."""

    def test_broken_pipe(self) -> None:
        """A closed pipe is one line and status 1."""
        stderr = io.BytesIO()
        status = main(["version"], Gone(), stderr, {})
        self.assertEqual(status, 1)
        sentence = "standard output was closed before everything was written"
        self.assertEqual(stderr.getvalue().decode(), f"svc: {sentence} (output_closed)\n")

    def test_stack_trace(self) -> None:
        """--log-stacktrace adds the stack trace to the lines of an error."""
        plain = run_svc("verify", "/proc/nonexistent/evidence.json")
        traced = run_svc("--log-stacktrace", "verify", "/proc/nonexistent/evidence.json")
        self.assertEqual((plain.status, traced.status), (1, 1))
        self.assertNotIn("Traceback", plain.stderr)
        self.assertTrue(traced.stderr.startswith(plain.stderr))
        self.assertIn("Traceback", traced.stderr)

    def test_development_logging(self) -> None:
        """Development logging adds a stack trace to an internal error, and to no other error."""
        context = MemoryContext(NotaryServer(default_world()))
        context.memory_dialer.errors.append(NetworkError("connection_refused", server="api.test:443"))
        ran = run_svc("--log-devel", "curl", "https://api.test/", context=context)
        self.assertEqual(ran.status, 1)
        self.assertNotIn("Traceback", ran.stderr)
        context = MemoryContext(NotaryServer(default_world()))
        context.now = None  # type: ignore[assignment]
        self.assertIn("Traceback", run_svc("--log-devel", "curl", "https://api.test/", context=context).stderr)

    def test_json(self) -> None:
        """With --log-format json each line of standard error is an object, also for wrong arguments."""
        for words in (
            ("--log-format", "json", "nonsense"),
            ("curl", "--nonsense", "--log-format=json"),
            ("verify", "--log-format=text", "--log-format", "json", "/proc/nonexistent/evidence.json"),
            ("curl", "--log-format=json", "-i", "--inject-faults=no-workload-statement", "https://api.test/"),
        ):
            ran = run_svc(*words, context=MemoryContext(NotaryServer(default_world())))
            records = [json.loads(line) for line in ran.stderr.splitlines()]
            self.assertEqual((ran.status, records[-1]["event"]["name"]), (1, "svc.cli.failed"), words)
            self.assertTrue(records[-1]["attributes"]["hint"])
        self.assertEqual(
            [(each["event"]["name"], each["message"]) for each in records],
            [
                ("svc.cli.notice", f"verified server identity: {SERVER_ID}"),
                ("svc.cli.warning", f"server identity not pinned: {SERVER_ID}"),
                ("svc.cli.failed", "the response carries no workload statement"),
            ],
        )
        for words in (
            ("nonsense",),
            ("--log-format=json", "--log-format=text", "nonsense"),
            ("x", "--", "--log-format=json"),
        ):
            self.assertTrue(run_svc(*words).stderr.startswith("svc: unknown command"), words)

    def test_internal_error(self) -> None:
        """An internal error is named as one, without a stack trace unless asked for."""
        context = MemoryContext(NotaryServer(default_world()))
        context.now = None  # type: ignore[assignment]
        ran = run_svc("curl", "https://api.test/", context=context)
        self.assertEqual((ran.status, ran.stdout), (1, b""))
        self.assertIn("internal error: TypeError", ran.stderr)
        self.assertNotIn("Traceback", ran.stderr)

    def test_interrupt(self) -> None:
        """An interrupt is one line and status 1."""
        context = MemoryContext(NotaryServer(default_world()))

        def interrupt() -> None:
            raise KeyboardInterrupt

        context.now = interrupt  # type: ignore[assignment]
        ran = run_svc("curl", "https://api.test/", context=context)
        self.assertEqual((ran.status, ran.stderr.splitlines()[-1]), (1, "svc: interrupted"))

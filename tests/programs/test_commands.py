"""Commands as they are typed: streams that are closed or full, and an interpreter of their own."""

from __future__ import annotations

import os
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from docs.generator.pages import TOP
from svc.license.vendors import pinned_keys
from svc.license.verification import verify_license
from tests.license.material import TEST_VENDOR_FILE
from tests.license.test_signing import ToolCase
from tests.telemetry.test_audit import PAGE


class ExitTests(SynchronousTestCase):
    """Standard streams of ``svc`` that cannot be used."""

    def test_broken_pipe_of_a_process(self) -> None:
        """A real pipe without reader gives the line, and no message of the interpreter."""
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

    def test_unwritable_output_of_a_process(self) -> None:
        """Standard output that is closed or full is one line and status 1; a closed standard error changes nothing."""
        closed = "svc: cannot write to standard output: it is closed (output_failed)\n"
        full = "svc: cannot write to standard output: no space left on device (output_failed)\n"
        for words, redirections, status, expected in (
            ("--help", ">&-", 1, closed),
            ("version", "<&- >&-", 1, closed),
            ("version", ">/dev/full", 1, full),
            ("version", ">&- 2>&-", 1, ""),
            ("version", "2>&-", 0, ""),
            ("nonsense", "2>/dev/full", 1, ""),
            ("nonsense", "2>&-", 1, ""),
        ):
            ran = subprocess.run(
                ["/bin/sh", "-c", f"{sys.executable} -m svc.cli.main {words} {redirections}"],
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual((ran.returncode, ran.stderr), (status, expected), (words, redirections))

    def test_closed_descriptors_are_not_reused(self) -> None:
        """A file that is opened later does not get the number of a closed standard output."""
        script = (
            "from svc.cli.output import standard_streams; standard_streams(); "
            "raise SystemExit(open('/dev/null').fileno())"
        )
        ran = subprocess.run(
            ["/bin/sh", "-c", f'{sys.executable} -c "$0" <&- >&- 2>&-', script], capture_output=True, check=False
        )
        self.assertEqual(ran.returncode, 3)


class SigningTests(ToolCase):
    """``bin/license-sign``."""

    def test_command(self) -> None:
        """It runs from any folder; the example of its help text is a description that it signs."""
        tool = TOP / "bin" / "license-sign"
        shown = subprocess.run([tool, "sign", "--help"], capture_output=True, text=True, check=True, cwd=self.folder)
        lines = [line[2:] for line in shown.stdout.splitlines() if line.startswith("  ") and not line.startswith("  -")]
        example = "\n".join(lines[lines.index("licensee: ACME GmbH") :]).partition("enforcement: soft")
        self.file("acme.yaml", f"{example[0]}{example[1]}\n")
        command = [tool, "sign", "--key", TEST_VENDOR_FILE, "acme.yaml"]
        ran = subprocess.run(command, capture_output=True, cwd=self.folder)  # type: ignore[arg-type]
        self.assertEqual(ran.returncode, 0, ran.stderr)
        found = verify_license(ran.stdout, pinned_keys()).license
        self.assertEqual((found.grace_days, len(found.trust_domains)), (30, 1))
        for words in ([], ["--help"], ["new-key", "--help"]):
            ran = subprocess.run([tool, *words], capture_output=True, cwd=self.folder)
            self.assertEqual(ran.returncode, 0 if words else 2)


class AuditTests(SynchronousTestCase):
    """``python -m svc.telemetry.audit``."""

    def test_command(self) -> None:
        """Without a file it reads standard input."""
        command = [sys.executable, "-m", "svc.telemetry.audit"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        ran = subprocess.run(command, input=b"".join(PAGE), capture_output=True, check=False, env=environment)
        self.assertEqual((0, b""), (ran.returncode, ran.stderr))
        self.assertIn(b"4 audit records of 1 starts", ran.stdout)

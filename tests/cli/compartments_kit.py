"""A home folder with a configuration of contexts, and a program in place of kubectl that answers from a script."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Final, NoReturn

from twisted.trial.unittest import SynchronousTestCase

from tests.cli.doubles import Ran, run_svc

CONFIG: Final = """\
# Contexts of the team.
currentContext: de-s-alpha
contexts:
  de-s-alpha:
    country: DE
    sensitivity: S
    compartment: ALPHA
    kubeContext: prod
    namespace: team-a
    impersonate: never
  us-ts-bravo:
    country: US
    sensitivity: TS
    compartment: BRAVO
    kubeContext: stage
    impersonate: never
"""
#: Knows two contexts; names the user after the kubeconfig.
KUBECTL: Final = """\
#!/bin/sh
case "$*" in
"config get-contexts -o name") printf 'prod\\nstage\\n' ;;
*"--context=stage "*"auth whoami"*) echo "error: You must be logged in" >&2; exit 1 ;;
*"--context=stage config view"*) printf 'admin' ;;
*"--context=prod "*"auth whoami -o json") echo '{"status":{"userInfo":{"username":"alice@'$KUBECONFIG'"}}}' ;;
*) echo "unexpected: $*" >&2; exit 1 ;;
esac
"""


class HomeCase(SynchronousTestCase):
    """A home folder."""

    maxDiff = None

    def setUp(self) -> None:
        """Make the folder, and the program in place of kubectl."""
        self.home = Path(self.mktemp()).absolute()
        self.home.mkdir()
        self.kubectl = self.home / "kubectl"
        self.kubectl.write_text(KUBECTL)
        self.kubectl.chmod(0o755)
        self.file = self.home / ".svc" / "config.yaml"
        self.environ = {"HOME": str(self.home), "SVC_KUBECTL": str(self.kubectl), "PATH": os.defpath}

    def configure(self, text: str = CONFIG) -> None:
        """Write the configuration."""
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(text)

    def svc(self, *words: str, **environ: str) -> Ran:
        """Run a command."""
        return run_svc(*words, environ={**self.environ, **environ})


class PassedCase(HomeCase):
    """Runs of ``svc`` in memory and as a process."""

    def passed(self, *words: str, **environ: str) -> list[str]:
        """The words of the program that a run in memory becomes."""
        started: list[list[str]] = []

        def execute(_program: str, arguments: list[str], variables: dict[str, str], _supervised: bool) -> NoReturn:
            started.append(arguments)
            self.variables = variables
            raise SystemExit(0)

        self.assertRaises(SystemExit, run_svc, *words, environ={**self.environ, **environ}, execute=execute)
        [arguments] = started
        self.assertEqual(str(self.kubectl), arguments[0])
        return arguments[1:]

    def process(
        self, *words: str, options: tuple[str, ...] = (), data: bytes = b"", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the entry point as a process."""
        command = [sys.executable, *options, "-m", "svc.cli.entry", *words]
        variables = {**self.environ, **environ}
        ran = subprocess.run(command, env=variables, capture_output=True, input=data, check=False, timeout=120)
        return subprocess.CompletedProcess(command, ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    def on_terminal(
        self, *words: str, typed: str = "", output: bool = False, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """
        Run the entry point with a terminal as standard input.

        Args:
            typed: what is typed there.
            output: whether the terminal is standard output as well.
        """
        ours, theirs = pty.openpty()
        with open(ours, "r+b", buffering=0) as terminal, open(theirs, "r+b", buffering=0) as standard:
            process = subprocess.Popen(
                [sys.executable, "-m", "svc.cli.entry", *words],
                env={**self.environ, "TERM": "xterm", **environ},
                stdin=standard,
                stdout=standard if output else subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            standard.close()
            terminal.write(typed.encode())
            shown = b""
            # Reading fails once nobody has the other side any more.
            with contextlib.suppress(OSError):
                while output and (read := terminal.read(1 << 16)):
                    shown += read
            printed, said = process.communicate(timeout=120)
        return subprocess.CompletedProcess(words, process.returncode, printed or shown.decode(), said)

"""``svc`` in place of kubectl, for a user with two compartments and a home folder."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from clusters.kubernetes import folder_of
from tests.e2e.platform import Platform
from tests.peers.folders import short_folder

_CONFIG: Final = """\
currentContext: alpha
contexts:
  alpha: {country: DE, sensitivity: S, compartment: ALPHA, kubeContext: CONTEXT, impersonate: never}
  bravo: {country: US, sensitivity: TS, compartment: BRAVO, kubeContext: CONTEXT, impersonate: never}
"""


class Wrapped:
    """
    The program, with its configuration.

    Args:
        stack: ends it.
        platform: on whose cluster it works.
    """

    def __init__(self, stack: ExitStack, platform: Platform) -> None:
        self.home = short_folder(stack)
        context = platform.kubectl("config", "current-context").strip()
        folder = self.home / ".svc"
        folder.mkdir(mode=0o700)
        (folder / "config.yaml").write_text(_CONFIG.replace("CONTEXT", context))
        (folder / "config.yaml").chmod(0o600)
        path = f"{folder_of('kubernetes')}:{os.environ['PATH']}"
        kubeconfig = str(platform.cluster.kubeconfig)
        self._environ = {"HOME": str(self.home), "PATH": path, "KUBECONFIG": kubeconfig}

    def run(self, line: str, *words: str, data: str = "") -> subprocess.CompletedProcess[str]:
        """
        Run a command, without a terminal.

        Args:
            line: its words, between blanks.
            words: further ones, which may have blanks.
            data: its standard input.
        """
        command = [sys.executable, "-m", "svc.cli.entry", *line.split(), *words]
        return subprocess.run(
            command, env=self._environ, input=data, capture_output=True, text=True, check=False, timeout=120
        )

    def forwarded(self, pod: str, port: int) -> str:
        """What a pod answers through ``svc port-forward``."""
        command = [sys.executable, "-m", "svc.cli.entry", "port-forward", pod, f":{port}"]
        with subprocess.Popen(command, env=self._environ, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                address = process.stdout.readline().split()[2]
                with urllib.request.urlopen(f"http://{address}/hostname", timeout=30) as answer:
                    return str(answer.read(), "utf-8")
            finally:
                process.terminate()

    def read(self, name: str) -> str:
        """A file in the home folder."""
        return Path(self.home / name).read_text()

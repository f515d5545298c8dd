"""What every daemon that a test starts has: a folder, a configuration, a process, a log, and the operator's pages."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from signal import Signals
from typing import Any, Self

from svc.transport.fast.selection import ENVIRONMENT
from tests.peers import forked
from tests.peers.folders import make_folder, remove_folder
from tests.peers.waiting import PATIENCE, TOP, end_process
from tests.telemetry.schema import assert_log_conforms

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)\Z")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
#: Options of ``twistd``: the process stays the child that was started.
FOREGROUND = ("--nodaemon", "--pidfile=")


class DaemonFailed(Exception):
    """The daemon ended or did not get ready; carries what it wrote."""


def twistd(python: str | Path | None = None) -> list[str]:
    """Begin an argument list that runs ``twistd``, with another interpreter than the current one where it is given."""
    return [str(python or sys.executable), "-c", "import sys; from twisted.scripts.twistd import run; sys.exit(run())"]


def environment() -> dict[str, str]:
    """
    Make the environment of child processes.

    Ours, with this checkout and its packages on the path and without settings of the user's for ``svc``, but for the
    choice of transports.
    """
    kept = {name for name in os.environ if not name.startswith("SVC_")} | {ENVIRONMENT}
    inherited = {name: value for name, value in os.environ.items() if name in kept}
    packages = [path for path in sys.path if path.endswith("site-packages")]
    return {**inherited, "PYTHONPATH": os.pathsep.join([str(TOP), *packages]), "PYTHONUNBUFFERED": "1"}


class RunningDaemon:
    """
    One daemon and its folder.

    Args:
        name: ``proxy``, ``authority`` or ``broker``; the plugin is ``svc-NAME``.
        folder: of all its files; None for a short temporary folder, since socket paths are short.
        python: the interpreter, where it matters for attestation.

    Attributes:
        config: its configuration; a key whose value is None is left out.
        variables: what its environment has beside ours.
        executed: whether an interpreter is executed and not forked, so that limits and filters of system calls are
            inherited from the test.
    """

    executed = False

    def __init__(
        self,
        name: str,
        folder: Path | None,
        python: Path | None = None,
    ) -> None:
        self._own_folder = folder is None
        self.folder = folder = make_folder(f"svc-{name}-") if folder is None else Path(folder)
        self._plugin = f"svc-{name}"
        self._python = python
        self.config_path = folder / f"{name}.yaml"
        self.log_path, self.error_path = folder / f"{name}.out", folder / f"{name}.err"
        self.process: subprocess.Popen[bytes] | forked.ForkedProcess | None = None
        self._log_begins = 0
        self.config: dict[str, Any] = {}
        self.variables: dict[str, str] = {}

    def is_ready(self) -> bool:
        """Whether it serves."""
        raise NotImplementedError

    def state(self) -> str:
        """What it says of its readiness, for the message of a failed start."""
        return ""

    # -- Start and end ------------------------------------------------------------------------------------------------

    def arguments(self) -> list[str]:
        """The arguments of ``twistd`` that name the plugin and its configuration."""
        return [self._plugin, "--config", str(self.config_path)]

    def command(self, *options: str) -> list[str]:
        """The argument list that executes it."""
        return [*twistd(self._python), *FOREGROUND, *self.arguments(), *options]

    def write_config(self) -> None:
        """Write ``self.config`` to the file; JSON is YAML."""
        given = {key: value for key, value in self.config.items() if value is not None}
        self.config_path.write_text(json.dumps(given, indent=1))

    def launch(self, step: tuple[str, int] | None = None) -> Self:
        """Start it and do not wait; given a step and n, a proxy stops itself when it passes the step the n-th time."""
        self.write_config()
        self._log_begins = self.log_path.stat().st_size if self.log_path.exists() else 0
        if self.executed or self._python is not None or "LD_PRELOAD" in os.environ:
            with self.log_path.open("ab") as log, self.error_path.open("ab") as errors:
                self.process = subprocess.Popen(
                    self.command(),
                    cwd=self.folder,
                    env={**environment(), **self.variables},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=errors,
                )
        else:
            self.process = forked.start(
                "twistd",
                [*FOREGROUND, *self.arguments()],
                cwd=self.folder,
                out=self.log_path,
                err=self.error_path,
                environment={**environment(), **self.variables},
                step=step,
            )
        return self

    def start(self, *, seconds: float = PATIENCE) -> Self:
        """
        Start it and wait until it is ready.

        Raises:
            DaemonFailed: it ended, or was not ready in time.
        """
        self.launch()
        deadline = time.monotonic() + seconds
        while not self.is_ready():
            if self.process is None or self.process.poll() is not None:
                raise DaemonFailed(f"it ended: {self.log[-2000:]}{self.errors[-2000:]}")
            if time.monotonic() > deadline:
                message = f"not ready after {seconds} s: {self.state()} {self.log[-2000:]}{self.errors[-2000:]}"
                self.kill()
                raise DaemonFailed(message)
            time.sleep(0.01)
        return self

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait until it ends by itself; gives its exit status."""
        if self.process is None:
            raise DaemonFailed("it does not run")
        status = self.process.wait(seconds)
        assert_log_conforms(self.log_path, self._log_begins)
        return status

    def wait_until_stopped(self) -> None:
        """Wait until it has stopped itself at the step that :meth:`launch` named."""
        assert isinstance(self.process, forked.ForkedProcess)
        self.process.wait_until_stopped()

    def stop(self) -> None:
        """End it as an operator does, and remove its folder."""
        try:
            self.halt()
        finally:
            if self._own_folder:
                remove_folder(self.folder)

    def halt(self) -> int | None:
        """End it as an operator does and give its exit status; the folder stays."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int | None:
        """End it as a crash does and give its exit status; the folder stays."""
        return self._end(signal.SIGKILL)

    def signal(self, number: Signals) -> None:
        """Send a signal."""
        if self.process is not None:
            self.process.send_signal(number)

    def _end(self, number: Signals) -> int | None:
        process, self.process = self.process, None
        if process is None:
            return None
        status = end_process(process, number)
        assert_log_conforms(self.log_path, self._log_begins, killed=status == -signal.SIGKILL)
        return status

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    # -- What it wrote ------------------------------------------------------------------------------------------------

    @property
    def log(self) -> str:
        """Its standard output."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    @property
    def errors(self) -> str:
        """Its standard error."""
        return self.error_path.read_text(errors="replace") if self.error_path.exists() else ""

    def records(self, event: str | None = None) -> list[dict[str, Any]]:
        """Read the records of its log, or those of one event, without a line that is still being written."""
        found = [json.loads(line) for line in self.log.splitlines(keepends=True) if line.endswith("\n")]
        return [each for each in found if event is None or each["event"]["name"] == event]

    # -- The kernel's view of it -------------------------------------------------------------------------------------

    def memory(self) -> tuple[float, float]:
        """Measure how many MiB are resident now, and at the most since the start."""
        if self.process is None:
            return 0.0, 0.0
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        now, most = (re.search(rf"{key}:\s+(\d+) kB", status) for key in ("VmRSS", "VmHWM"))
        return (int(now[1]) / 1024 if now else 0.0), (int(most[1]) / 1024 if most else 0.0)

    def descriptors(self) -> int:
        """Count its open descriptors."""
        return 0 if self.process is None else len(os.listdir(f"/proc/{self.process.pid}/fd"))


class MonitoredDaemon(RunningDaemon):
    """A daemon with ``adminAddr``, and ``metricsAddr`` where it has metrics; subclasses set the ports."""

    metrics_port: int
    admin_port: int

    def page(self, path: str) -> tuple[int, dict[str, Any]]:
        """Request an operator's page such as ``/readyz``; gives status and content, status 0 where nothing answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}{path}", timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except OSError:
            return 0, {}

    def is_ready(self) -> bool:
        """Whether ``/readyz`` says so."""
        return self.page("/readyz")[0] == 200

    def state(self) -> str:
        """The conditions of ``/readyz``."""
        return json.dumps(self.readiness())

    def readiness(self) -> dict[str, dict[str, Any]]:
        """Read the conditions of ``/readyz`` by their names; empty where nothing answers."""
        return {each["name"]: each for each in self.page("/readyz")[1].get("conditions", [])}

    def samples(self) -> list[tuple[str, dict[str, str], float]]:
        """Scrape the metrics; gives name, labels and value of each sample."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found = []
        for line in text.splitlines():
            match = _SAMPLE.match(line)
            if match is not None and not line.startswith("#"):
                labels = dict(_LABEL.findall(match["labels"] or ""))
                found.append((match["name"], labels, float(match["value"])))
        return found

    def metric(self, name: str, **labels: str) -> float:
        """Sum the samples of a family that have these labels; 0 where there is none."""
        wanted = labels.items()
        return sum(value for each, found, value in self.samples() if each == name and wanted <= found.items())

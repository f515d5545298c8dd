"""
A real ``twistd svc-proxy`` in a temporary folder.

::

    proxy = RunningProxy(authority, upstream="127.0.0.1:8080")
    proxy.start()
    ...                  # proxy.port takes mutual TLS; proxy.metric(), proxy.readiness(), proxy.records() tell of it
    proxy.stop()
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from svc.transport.selection import ENVIRONMENT
from tests.peers.authority import RunningAuthority
from tests.peers.waiting import PATIENCE, TOP, free_port
from tests.telemetry.schema import judge_log

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)\Z")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


class ProxyFailed(Exception):
    """The proxy ended or did not get ready; carries what it wrote."""


def twistd(python: str | Path | None = None) -> list[str]:
    """
    Say how ``twistd`` is run.

    Args:
        python: the interpreter; the current one by default.

    Returns:
        The beginning of an argument list.
    """
    run = "import sys; from twisted.scripts.twistd import run; sys.exit(run())"
    return [str(python or sys.executable), "-c", run, "--nodaemon", "--pidfile="]


def environment() -> dict[str, str]:
    """
    Make the environment of child processes.

    Returns:
        Ours, with this checkout and its packages on the path and without settings of the user's for ``svc``, but for
        the choice of transports.
    """
    kept = {name for name in os.environ if not name.startswith("SVC_")} | {ENVIRONMENT}
    inherited = {name: value for name, value in os.environ.items() if name in kept}
    packages = [path for path in sys.path if path.endswith("site-packages")]
    return {**inherited, "PYTHONPATH": os.pathsep.join([str(TOP), *packages]), "PYTHONUNBUFFERED": "1"}


class RunningProxy:
    """
    One proxy and its folder.

    Args:
        authority: gives identities and post-quantum leaves.
        upstream: the application behind the inbound listener ``web``.
        listener: further keys of that listener.
        listeners: listeners beside it.
        notary: further keys of the section ``notary``; None removes one.
        settings: further top-level keys, replacing what is built here; None removes one.
        folder: where everything lies; a short temporary folder by default.
        python: the interpreter, where it matters for attestation.
    """

    def __init__(
        self,
        authority: RunningAuthority,
        upstream: str,
        *,
        listener: Mapping[str, Any] | None = None,
        listeners: Sequence[Mapping[str, Any]] = (),
        notary: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        folder: Path | None = None,
        python: Path | None = None,
    ) -> None:
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="svc-proxy-"))
        self.port, self.metrics_port, self.admin_port = free_port(), free_port(), free_port()
        self.config_path = self.folder / "proxy.yaml"
        self.log_path, self.error_path = self.folder / "proxy.out", self.folder / "proxy.err"
        self.process: subprocess.Popen[bytes] | None = None
        self._log_begins = 0
        self._python = python
        web = {
            "name": "web",
            "protocol": "http",
            "direction": "inbound",
            "listen": f"127.0.0.1:{self.port}",
            "upstream": upstream,
            "notarization": "workload",
            **(listener or {}),
        }
        self.config: dict[str, Any] = {
            "trustDomain": authority.trust_domain,
            "spiffeSocketPath": authority.address,
            "startTimeout": "60s",
            "drainTimeout": "5s",
            "metricsAddr": f"127.0.0.1:{self.metrics_port}",
            "adminAddr": f"127.0.0.1:{self.admin_port}",
            "notary": {
                "path": str(self.folder / "notary.db"),
                "pqIssuer": authority.pq_address,
                "receiptsPerSecond": 100_000,
                "receiptsBurst": 1_000_000,
                **(notary or {}),
            },
            "workload": {"namespace": "shop", "serviceAccount": "api"},
            "policy": {"default": "allow"},
            "listeners": [web, *listeners],
        }
        self.config["notary"] = {name: value for name, value in self.config["notary"].items() if value is not None}
        self.config.update(settings or {})
        self.config = {name: value for name, value in self.config.items() if value is not None}

    @property
    def url(self) -> str:
        """Where the inbound listener is."""
        return f"https://127.0.0.1:{self.port}"

    def command(self, *options: str) -> list[str]:
        """
        Say how it is started.

        Args:
            options: further options of the plugin.

        Returns:
            The argument list.
        """
        return [*twistd(self._python), "svc-proxy", "--config", str(self.config_path), *options]

    def write_config(self) -> None:
        """Write ``self.config`` to the file; JSON is YAML."""
        self.config_path.write_text(json.dumps(self.config, indent=1))

    def launch(self) -> RunningProxy:
        """
        Start it and do not wait.

        Returns:
            Itself.
        """
        self.write_config()
        self._log_begins = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log, self.error_path.open("ab") as errors:
            self.process = subprocess.Popen(
                self.command(),
                cwd=self.folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=errors,
            )
        return self

    def start(self, *, seconds: float = PATIENCE) -> RunningProxy:
        """
        Start it and wait until it is ready.

        Args:
            seconds: the longest wait.

        Returns:
            Itself.

        Raises:
            ProxyFailed: it ended, or was not ready in time.
        """
        self.launch()
        deadline = time.monotonic() + seconds
        while not self.is_ready():
            if self.process is None or self.process.poll() is not None:
                raise ProxyFailed(f"it ended: {self.log[-2000:]}{self.errors[-2000:]}")
            if time.monotonic() > deadline:
                said = f"{self.readiness()} {self.log[-2000:]}{self.errors[-2000:]}"
                self.kill()
                raise ProxyFailed(f"not ready after {seconds} s: {said}")
            time.sleep(0.02)
        return self

    def wait(self, seconds: float = PATIENCE) -> int:
        """
        Wait until it ends by itself.

        Args:
            seconds: the longest wait.

        Returns:
            Its exit status.
        """
        if self.process is None:
            raise ProxyFailed("it does not run")
        status = self.process.wait(seconds)
        judge_log(self.log_path, self._log_begins)
        return status

    def stop(self) -> None:
        """End it as an operator does, and remove its folder."""
        try:
            self.halt()
        finally:
            if self._own_folder:
                shutil.rmtree(self.folder, ignore_errors=True)

    def halt(self) -> int | None:
        """
        End it as an operator does; the folder stays.

        Returns:
            Its exit status.
        """
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash does; the folder stays."""
        self._end(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """
        Send a signal.

        Args:
            number: which one.
        """
        if self.process is not None:
            self.process.send_signal(number)

    def _end(self, number: signal.Signals) -> int | None:
        process, self.process = self.process, None
        if process is None:
            return None
        process.send_signal(number)
        try:
            status = process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait(60)
        judge_log(self.log_path, self._log_begins, killed=status == -signal.SIGKILL)
        return status

    # -- What it tells ------------------------------------------------------------------------------------------------

    @property
    def log(self) -> str:
        """Its standard output."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    @property
    def errors(self) -> str:
        """Its standard error."""
        return self.error_path.read_text(errors="replace") if self.error_path.exists() else ""

    def records(self, event: str | None = None) -> list[dict[str, Any]]:
        """
        Read the log.

        Args:
            event: only records of this event.

        Returns:
            The records; a line that is still being written is left out.
        """
        found = [json.loads(line) for line in self.log.splitlines(keepends=True) if line.endswith("\n")]
        return [each for each in found if event is None or each["event"]["name"] == event]

    def page(self, path: str) -> tuple[int, dict[str, Any]]:
        """
        Ask an operator's page.

        Args:
            path: such as ``/readyz``.

        Returns:
            Status and content; status 0 where nothing answers.
        """
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}{path}", timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except OSError:
            return 0, {}

    def is_ready(self) -> bool:
        """
        Ask for readiness.

        Returns:
            True where the page says so.
        """
        return self.page("/readyz")[0] == 200

    def readiness(self) -> dict[str, dict[str, Any]]:
        """
        Read the conditions.

        Returns:
            Each condition by its name; empty where nothing answers.
        """
        return {each["name"]: each for each in self.page("/readyz")[1].get("conditions", [])}

    def samples(self) -> list[tuple[str, dict[str, str], float]]:
        """
        Scrape the metrics.

        Returns:
            Name, labels and value of each sample.
        """
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
        """
        Sum the samples of a family.

        Args:
            name: its name, with ``_total`` where it is a counter.
            labels: those that must be so.

        Returns:
            The sum; 0 where there is none.
        """
        wanted = labels.items()
        return sum(value for each, found, value in self.samples() if each == name and wanted <= found.items())

    def memory(self) -> tuple[float, float]:
        """
        Measure its memory.

        Returns:
            MiB resident now and at the most since the start.
        """
        if self.process is None:
            return 0.0, 0.0
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        now, most = (re.search(rf"{key}:\s+(\d+) kB", status) for key in ("VmRSS", "VmHWM"))
        return (int(now[1]) / 1024 if now else 0.0), (int(most[1]) / 1024 if most else 0.0)

    def descriptors(self) -> int:
        """
        Count its open descriptors.

        Returns:
            How many.
        """
        return 0 if self.process is None else len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def __enter__(self) -> RunningProxy:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

"""
A real ``twistd svc-authority`` in a temporary folder.

::

    authority = RunningAuthority("example.org", entries=[entry("/ns/pay/sa/api")])
    authority.start()
    ...                      # authority.address is unix:///…/agent.sock, authority.pq_address the PQ issuer's
    authority.stop()
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.peers.waiting import PATIENCE, TOP
from tests.telemetry.schema import judge_log


class AuthorityFailed(Exception):
    """The authority ended or did not begin to serve; carries what it wrote."""


def entry(path: str, **keys: object) -> dict[str, object]:
    """
    Make a registration entry for the user that runs the tests.

    Args:
        path: the path of the SPIFFE ID, or a whole SPIFFE ID.
        keys: further keys; ``uid=None`` leaves the selector out.

    Returns:
        The entry as the configuration has it; a bare path is completed by :class:`RunningAuthority`.
    """
    made: dict[str, object] = {"spiffeID": path, "uid": os.geteuid(), **keys}
    return {name: value for name, value in made.items() if value is not None}


class RunningAuthority:
    """
    One authority and its folder.

    Args:
        trust_domain: its name.
        entries: registration entries, see :func:`entry`; by default one that gives ``/workload`` to this user.
        ttl: the life of X.509-SVIDs where an entry does not say it.
        pq: whether it runs a PQ issuer at ``pq.sock``.
        settings: further top-level keys of the configuration, replacing what is built here.
        folder: where everything lies; a short temporary folder by default, since socket paths are short.
    """

    def __init__(
        self,
        trust_domain: str = "example.org",
        *,
        entries: Sequence[Mapping[str, object]] | None = None,
        ttl: str = "1h",
        pq: bool = True,
        settings: Mapping[str, object] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        self.trust_domain = trust_domain
        self._own_folder = folder is None
        self.folder = Path(folder or tempfile.mkdtemp(prefix="svc-authority-"))
        self.socket_path = self.folder / "agent.sock"
        self.pq_socket_path = self.folder / "pq.sock"
        self.config_path = self.folder / "authority.yaml"
        self.bundle_path = self.folder / "bundle.json"
        self.pq_bundle_path = self.folder / "pq-bundle.json"
        self.archive_path = self.folder / "bundle-archive.json"
        self.log_path, self.error_path = self.folder / "authority.log", self.folder / "authority.err"
        self._log_begins = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.config: dict[str, Any] = {
            "trustDomain": trust_domain,
            "socket": self.address,
            "bundleFile": str(self.bundle_path),
            "entries": [self._completed(each, ttl) for each in ([entry("/workload")] if entries is None else entries)],
        }
        if pq:
            self.config["pqIssuer"] = {"socket": self.pq_address}
        self.config.update(settings or {})
        self.config = {name: value for name, value in self.config.items() if value is not None}

    @property
    def address(self) -> str:
        """The address of the Workload API."""
        return f"unix://{self.socket_path}"

    @property
    def pq_address(self) -> str:
        """The address of the PQ issuer."""
        return f"unix://{self.pq_socket_path}"

    @property
    def log(self) -> str:
        """Everything that the process wrote."""
        paths = (self.log_path, self.error_path)
        return "".join(path.read_text(errors="replace") for path in paths if path.exists())

    def records(self, event: str | None = None) -> list[dict[str, Any]]:
        """
        Read the log.

        Args:
            event: only records of this event.

        Returns:
            The JSON records; a line that is still being written is left out.
        """
        lines = self.log.splitlines(keepends=True)
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]
        return [each for each in found if event is None or each["event"]["name"] == event]

    def write_config(self) -> None:
        """Write ``self.config`` to the file; JSON is YAML."""
        self.config_path.write_text(json.dumps(self.config, indent=1))

    def command(self) -> list[str]:
        """
        Say how it is started.

        Returns:
            The argument list.
        """
        return [
            str(Path(sys.executable).with_name("twistd")),
            "--nodaemon",
            "--pidfile=",
            "svc-authority",
            "--config",
            str(self.config_path),
        ]

    def start(self, *, seconds: float = PATIENCE) -> RunningAuthority:
        """
        Start it and wait until it serves.

        Args:
            seconds: the longest wait.

        Returns:
            Itself.

        Raises:
            AuthorityFailed: it ended, or did not serve in time.
        """
        self.write_config()
        environment = {**os.environ, "PYTHONPATH": str(TOP), "PYTHONUNBUFFERED": "1"}
        self._log_begins = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log, self.error_path.open("ab") as errors:
            self.process = subprocess.Popen(
                self.command(), cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=errors
            )
        deadline = time.monotonic() + seconds
        waiting = [Path(path) for path in self._sockets()]
        while not all(_answers(path) for path in waiting):
            if self.process.poll() is not None:
                raise AuthorityFailed(f"exit status {self.process.returncode}: {self.log[-2000:]}")
            if time.monotonic() > deadline:
                self.kill()
                raise AuthorityFailed(f"no socket after {seconds} s: {self.log[-2000:]}")
            time.sleep(0.02)
        return self

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

    def __enter__(self) -> RunningAuthority:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

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

    def _completed(self, each: Mapping[str, object], ttl: str) -> dict[str, object]:
        spiffe_id = str(each["spiffeID"])
        whole = spiffe_id if spiffe_id.startswith("spiffe://") else f"spiffe://{self.trust_domain}{spiffe_id}"
        return {"ttl": ttl, **each, "spiffeID": whole}

    def _sockets(self) -> list[str]:
        pq = self.config.get("pqIssuer") or {}
        addresses = [self.config.get("socket"), pq.get("socket")]
        # Without any it cannot start: the wait then ends with the process.
        return [str(each).removeprefix("unix://") for each in addresses if each] or [str(self.socket_path)]


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True

"""
Processes that the quickstart starts, watches and ends.

Owns their logs, and the file that remembers what is still running for ``--stop``.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from svc.errors import SvcError

_END_SECONDS: Final = 10.0


class ProcessEnded(SvcError):
    """{name} ended with status {status}: {last}"""

    reason = "process_ended"
    hint = "the whole log is in {log}"


class NotReady(SvcError):
    """{name} was not ready within {seconds} s: {last}"""

    reason = "not_ready"
    hint = "the whole log is in {log}"


class Running:
    """
    One started process.

    Args:
        name: what messages call it.
        process: the process.
        log: where it writes.
    """

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._log = log

    @classmethod
    def start(cls, name: str, command: Sequence[str], folder: Path) -> Running:
        """
        Start a process with its log in a folder.

        Args:
            name: what messages call it; also the name of the log.
            command: the argument list.
            folder: where it runs.

        Returns:
            The process.
        """
        log = folder / f"{name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                list(command),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return cls(name, process, log)

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """
        Wait for readiness.

        Args:
            ready: asks it.
            seconds: the longest wait.

        Raises:
            ProcessEnded: it ended meanwhile.
            NotReady: the time is over.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            status = self._process.poll()
            if status is not None:
                raise ProcessEnded(name=self.name, status=status, last=self._last_line(), log=self._log)
            if time.monotonic() > deadline:
                raise NotReady(name=self.name, seconds=seconds, last=self._last_line(), log=self._log)
            time.sleep(0.05)

    def end(self) -> None:
        """End it in order; by force after ten seconds."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        for line in reversed(lines):
            try:
                record = json.loads(line)
            except ValueError:
                return line[:300]
            if isinstance(record, dict) and record.get("severity") in ("ERROR", "FATAL"):
                return str(record.get("detail") or record.get("message"))[:300]
        return lines[-1][:300] if lines else "it wrote nothing"


def answers_tcp(port: int) -> bool:
    """
    Ask whether something listens on a loopback port.

    Args:
        port: the port.

    Returns:
        True where a connection is accepted.
    """
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answers_unix(path: Path) -> bool:
    """
    Ask whether something listens on a Unix socket.

    Args:
        path: the socket.

    Returns:
        True where a connection is accepted.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(str(path)) == 0


def free_port() -> int:
    """
    Find a loopback port that nobody uses.

    Returns:
        The port.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class State:
    """
    Remembers what runs on after the quickstart.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def keep(self, folder: Path, processes: Sequence[Running]) -> None:
        """
        Write down what runs.

        Args:
            folder: where its files are.
            processes: the processes.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        started = [{"name": each.name, "pid": each.pid, "started": _started(each.pid)} for each in processes]
        self._path.write_text(json.dumps({"folder": str(folder), "processes": started}))

    def stop(self) -> list[str]:
        """
        End what was written down, the last first.

        Returns:
            The names of the processes that were ended.
        """
        if not self._path.exists():
            return []
        state = json.loads(self._path.read_text())
        alive = [each for each in reversed(state["processes"]) if _started(each["pid"]) == each["started"]]
        for each in alive:
            os.kill(each["pid"], signal.SIGTERM)
        deadline = time.monotonic() + _END_SECONDS
        while any(_started(each["pid"]) == each["started"] for each in alive) and time.monotonic() < deadline:
            time.sleep(0.05)
        for each in alive:
            if _started(each["pid"]) == each["started"]:
                os.kill(each["pid"], signal.SIGKILL)
        self._path.unlink()
        return [each["name"] for each in alive]


def _started(pid: int) -> str | None:
    """The start time of a process, which tells it from a later one with the same number; None where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]

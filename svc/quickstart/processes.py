"""
Processes that the quickstart starts, watches and stops.

Owns their logs, and the file with what is still running for ``--stop``.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final, TypedDict

from svc.errors import Reason, SvcError

_END_SECONDS: Final = 10.0
#: Below those that Linux gives to outgoing connections, and apart from those that the tests choose among.
_PORTS: Final = range(13_000, 20_000)
_CHOSEN: Final[set[int]] = set()
_INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class QuickstartError(SvcError):
    """the quickstart failed"""

    reasons = {
        "port_taken": Reason(
            "127.0.0.1:{port} is taken: --port PORT uses another one, --port 0 any free one",
            "an earlier run with --keep is ended by bin/quickstart --stop",
        ),
        "upstream_absent": Reason(
            "nothing answers at {upstream}",
            "start your application first, or leave --upstream out to use the built-in one",
        ),
        "identity_unavailable": Reason(
            "the SPIRE agent at {socket} gives this user no identity: {what}",
            "is that the path of a running agent? then make a registration entry for uid {uid}",
        ),
        "request_failed": Reason("svc curl ended with status {status}", "what it wrote is above, and in {folder}"),
        "root_needed": Reason("a cluster needs root: it has network, mount and PID namespaces of its own", "use sudo"),
        "step_failed": Reason(
            "{what} ended with status {status}: {last}", "{advice}the whole output of each step is in {folder}"
        ),
        "not_refused": Reason(
            "a pod without permission was not answered 403 but {answer}", "the output of each step is in {folder}"
        ),
        "refusal_unlogged": Reason(
            "the proxy logged no refusal of the pod without permission", "the output of each step is in {folder}"
        ),
        "left_behind": Reason(
            "helm uninstall with purge left {left}", "the output of each step is in {folder}; report it as a defect"
        ),
        "process_ended": Reason("{name} ended with status {status}: {last}", "the whole log is in {log}"),
        "not_ready": Reason("{name} was not ready within {seconds} s: {last}", "the whole log is in {log}"),
        "state_unreadable": Reason(
            "the file {path} does not say what an earlier run left", "end the processes yourself and remove it"
        ),
    }


def raise_interrupts() -> None:
    """Let SIGTERM and SIGHUP raise ``KeyboardInterrupt`` as SIGINT does; what is ignored (``nohup``) stays ignored."""
    for number in _not_ignored():
        signal.signal(number, signal.default_int_handler)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold interrupts back inside the block; one that arrived raises ``KeyboardInterrupt`` at its end."""
    arrived: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: arrived.append(number)) for number in _not_ignored()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if arrived:
        raise KeyboardInterrupt


def run(
    command: Sequence[str],
    stderr: IO[bytes],
    stdout: IO[bytes] | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> int:
    """
    Run a command without input and return its status; an interrupt at any moment kills it.

    Args:
        command: the program and its arguments.
        stderr: where its standard error goes.
        stdout: where its standard output goes; by default that of this process.
        meanwhile: called each second while it runs.
    """
    with contextlib.ExitStack() as stack:
        # An interrupt inside Popen would leave a started process without a reference to kill it by.
        with uninterrupted():
            process = stack.enter_context(
                subprocess.Popen(list(command), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
            )
            stack.callback(process.kill)
        while meanwhile is not None and process.poll() is None:
            meanwhile()
            time.sleep(1.0)
        return process.wait()


def _not_ignored() -> list[signal.Signals]:
    return [number for number in _INTERRUPTS if signal.getsignal(number) is not signal.SIG_IGN]


class Running:
    """One started process; messages name it ``name``."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._log = log

    @classmethod
    def start(cls, name: str, command: Sequence[str], folder: Path) -> Running:
        """Start a process whose log is in ``folder``."""
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
        Wait until ``ready``; raises :class:`QuickstartError` if the process ends first or ``seconds`` have passed.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            status = self._process.poll()
            if status is not None:
                raise QuickstartError(
                    "process_ended", name=self.name, status=status, last=self._last_line(), log=self._log
                )
            if time.monotonic() > deadline:
                raise QuickstartError(
                    "not_ready", name=self.name, seconds=seconds, last=self._last_line(), log=self._log
                )
            time.sleep(0.05)

    def end(self) -> None:
        """Terminate the process; kill it after ten seconds."""
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


def port_taken(port: int) -> bool:
    """Whether another socket has a loopback port, so that no listener can get it."""
    with socket.socket() as probe:
        # As listeners do: connections of a listener that has ended do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def answers_tcp(port: int) -> bool:
    """Whether a loopback port accepts connections."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answers_unix(path: Path) -> bool:
    """Whether a Unix socket accepts connections."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(str(path)) == 0


def free_port() -> int:
    """An unused loopback port that the kernel assigns to no outgoing connection; never the same one twice."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _CHOSEN:
            _CHOSEN.add(port)
            return port


class Machine:
    """Access to the processes of this machine; replaced in tests."""

    #: Seconds that a process may take to stop after SIGTERM.
    patience = _END_SECONDS

    def started(self, pid: int) -> str | None:
        """
        The start time of a process, which distinguishes it from a later one with the same number; None if it is gone.
        """
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] == "Z" else fields[19]

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a process that may have ended already."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class State:
    """The file with the processes that keep running after the quickstart."""

    def __init__(self, path: Path, machine: Machine | None = None) -> None:
        self._path = path
        self._machine = machine or Machine()

    def keep(self, folder: Path, processes: Sequence[Running]) -> None:
        """Add running processes to those of earlier runs."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        now = [{"name": each.name, "pid": each.pid, "started": self._machine.started(each.pid)} for each in processes]
        self._path.write_text(json.dumps({"folder": str(folder), "processes": [*self._alive(), *now]}))

    def stop(self) -> list[str]:
        """Stop the processes, the last one first; returns their names."""
        alive = self._alive()[::-1]
        for each in alive:
            self._machine.signal(each["pid"], signal.SIGTERM)
        deadline = time.monotonic() + self._machine.patience
        while any(self._runs(each) for each in alive) and time.monotonic() < deadline:
            time.sleep(0.05)
        for each in alive:
            if self._runs(each):
                self._machine.signal(each["pid"], signal.SIGKILL)
        self._path.unlink(missing_ok=True)
        return [each["name"] for each in alive]

    def _alive(self) -> list[_Kept]:
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return []
        try:
            kept: list[_Kept] = json.loads(text)["processes"]
            return [each for each in kept if self._runs(each)]
        except (ValueError, KeyError, TypeError) as error:
            raise QuickstartError("state_unreadable", path=self._path) from error

    def _runs(self, kept: _Kept) -> bool:
        """Whether the process runs, and not a later one with the same number."""
        return kept["started"] is not None and self._machine.started(kept["pid"]) == kept["started"]


class _Kept(TypedDict):
    name: str
    pid: int
    started: str | None

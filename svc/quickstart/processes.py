"""
Processes that the quickstart starts, watches and ends.

Owns their logs, and the file that remembers what is still running for ``--stop``.
"""

from __future__ import annotations

import contextlib
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

from svc.errors import SvcError

_END_SECONDS: Final = 10.0
#: Above those of well-known services, below those that Linux gives to outgoing connections.
_PORTS: Final = range(20_000, 32_000)
_GIVEN: Final[set[int]] = set()
_INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def raise_interrupts() -> None:
    """Let SIGTERM and SIGHUP raise ``KeyboardInterrupt`` as SIGINT does; what is ignored (``nohup``) stays ignored."""
    for number in _heeded():
        signal.signal(number, signal.default_int_handler)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold interrupts back inside the block; one that arrived raises ``KeyboardInterrupt`` at its end."""
    arrived: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: arrived.append(number)) for number in _heeded()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if arrived:
        raise KeyboardInterrupt


def run(command: Sequence[str], stderr: IO[bytes]) -> int:
    """Run a command without input and return its status; an interrupt at any moment kills it."""
    with contextlib.ExitStack() as stack:
        # An interrupt inside Popen would leave a started process that nobody can end.
        with uninterrupted():
            process = stack.enter_context(subprocess.Popen(list(command), stdin=subprocess.DEVNULL, stderr=stderr))
            stack.callback(process.kill)
        return process.wait()


def _heeded() -> list[signal.Signals]:
    return [number for number in _INTERRUPTS if signal.getsignal(number) is not signal.SIG_IGN]


class ProcessEnded(SvcError):
    """{name} ended with status {status}: {last}"""

    reason = "process_ended"
    hint = "the whole log is in {log}"


class NotReady(SvcError):
    """{name} was not ready within {seconds} s: {last}"""

    reason = "not_ready"
    hint = "the whole log is in {log}"


class StateUnreadable(SvcError):
    """the file {path} does not say what an earlier run left"""

    reason = "state_unreadable"
    hint = "end the processes yourself and remove it"


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
    Find a loopback port that nobody uses and that the kernel gives to no outgoing connection.

    Returns:
        The port, which this process is given only once: whoever got it may not listen there yet.
    """
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _GIVEN:
            _GIVEN.add(port)
            return port


class Machine:
    """The processes of this machine, as far as :class:`State` needs them."""

    #: Seconds that a process may take to end in order.
    patience = _END_SECONDS

    def started(self, pid: int) -> str | None:
        """
        Ask when a process started, which tells it from a later one with the same number.

        Args:
            pid: its number.

        Returns:
            The time as the kernel counts it; None where it is gone.
        """
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] == "Z" else fields[19]

    def signal(self, pid: int, number: signal.Signals) -> None:
        """
        Send a signal.

        Args:
            pid: the process; it may have ended a moment ago.
            number: the signal.
        """
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class State:
    """
    Remembers what runs on after the quickstart.

    Args:
        path: the file.
        machine: the processes of this machine.
    """

    def __init__(self, path: Path, machine: Machine | None = None) -> None:
        self._path = path
        self._machine = machine or Machine()

    def keep(self, folder: Path, processes: Sequence[Running]) -> None:
        """
        Write down what runs, beside what an earlier run left.

        Args:
            folder: where its files are.
            processes: the processes.

        Raises:
            StateUnreadable: the file of an earlier run cannot be understood.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        now = [{"name": each.name, "pid": each.pid, "started": self._machine.started(each.pid)} for each in processes]
        self._path.write_text(json.dumps({"folder": str(folder), "processes": [*self._alive(), *now]}))

    def stop(self) -> list[str]:
        """
        End what was written down, the last first.

        Returns:
            The names of the processes that were ended.

        Raises:
            StateUnreadable: the file cannot be understood.
        """
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
            raise StateUnreadable(path=self._path) from error

    def _runs(self, kept: _Kept) -> bool:
        """Whether it is still this process, and not a later one with its number."""
        return kept["started"] is not None and self._machine.started(kept["pid"]) == kept["started"]


class _Kept(TypedDict):
    name: str
    pid: int
    started: str | None

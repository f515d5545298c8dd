"""Waiting by asking, ports nobody uses, and what is cleaned up when the run ends."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

TOP = Path(__file__).resolve().parents[2]
#: How long a test waits for what comes at once on an idle machine; a busy one suspends a process for seconds.
PATIENCE = 60.0
_T = TypeVar("_T")
_PICK = random.SystemRandom()
_GIVEN: set[int] = set()
#: Each process that gives out ports has so many of its own, from here on; outgoing connections get higher ones.
FIRST_PORT, PORTS = 20000, 500
_RANGES = 24
#: The first port of the own range; a lock that is kept open keeps other processes from it.
_CLAIMED: list[int] = []


class NotInTime(AssertionError):
    """What a test waited for did not happen in time."""


def eventually(
    ask: Callable[..., _T | Literal[False] | None], seconds: float = PATIENCE, what: str = "the condition"
) -> _T:
    """
    Ask until the answer is true.

    Args:
        ask: gives something true when it is so.
        seconds: the longest wait.
        what: names the condition in the failure.

    Returns:
        The first true answer.

    Raises:
        NotInTime: the time is over.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = ask()
        if found:
            return found
        if time.monotonic() > deadline:
            raise NotInTime(f"{what} did not hold within {seconds:g} s; last answer: {found!r}")
        time.sleep(0.02)


def rounds(short: int, whole: int) -> int:
    """How often a loop that looks for rare faults is run: a short form, and the whole with ``bin/test --long``."""
    return whole if "SVC_TEST_LONG" in os.environ else short


def free_port() -> int:
    """
    Find a loopback port that nobody uses and that the kernel gives to no outgoing connection.

    Returns:
        Its number. It is not given again for long, since its user may not listen there yet.
    """
    first = _first_own_port()
    if len(_GIVEN) > PORTS * 3 // 4:
        _GIVEN.clear()
    while True:
        port = _PICK.randrange(first, first + PORTS)
        if port in _GIVEN:
            continue
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _GIVEN.add(port)
        return port


def _first_own_port() -> int:
    """Claim a range of ports among all test processes of this machine; the claim ends with the process."""
    while not _CLAIMED:
        for number in range(_RANGES):
            with contextlib.suppress(OSError):
                path = Path(tempfile.gettempdir(), f"svc-test-ports-{number}.lock")
                lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(lock)
                    continue
                _CLAIMED.append(FIRST_PORT + number * PORTS)
                break
        else:
            # More processes than ranges: one of them ends before long.
            time.sleep(0.5)
    return _CLAIMED[0]


def answers(port: int, host: str = "127.0.0.1") -> bool:
    """
    Ask whether something listens on a port of this machine.

    Args:
        port: the port.
        host: the address.

    Returns:
        True where a connection is accepted.
    """
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def runs(pid: int) -> bool:
    """
    Ask whether a process runs; one that has ended and that nobody has waited for does not.

    Args:
        pid: the process.

    Returns:
        True where it runs, or is stopped.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


class Ending(Protocol):
    """A process as ``subprocess.Popen`` and :class:`tests.peers.forked.ForkedProcess` have it."""

    def send_signal(self, sig: int, /) -> None:
        """Send a signal, unless it has ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ends; gives its exit status."""

    def kill(self) -> None:
        """Send SIGKILL."""


def end_process(process: Ending, number: int = signal.SIGTERM) -> int:
    """Send a signal that ends a process, and kill the process where it is not gone in a minute; gives its status."""
    process.send_signal(number)
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(PATIENCE)


class Shared:
    """
    What several tests of a module use and nobody breaks: made at the first use, ended when the next module makes its
    own, or at exit.

    Args:
        make: gets a stack for what is to be ended, and returns the thing.
    """

    _current: Shared | None = None
    _making = False

    def __init__(self, make: Callable[[ExitStack], Any]) -> None:
        self._make = make
        self._made: Any = None
        self._stack = ExitStack()

    def get(self) -> Any:
        """
        Give it.

        Returns:
            What ``make`` made.
        """
        if Shared._current is not self:
            assert not Shared._making, "what is shared inside of another thing would never be ended"
            Shared.end()
            Shared._making = True
            try:
                with ExitStack() as stack:
                    self._made = self._make(stack)
                    self._stack = stack.pop_all()
            finally:
                Shared._making = False
            Shared._current = self
        return self._made

    @classmethod
    def end(cls) -> None:
        """End what is there."""
        current, cls._current = cls._current, None
        if current is not None:
            current._stack.close()


atexit.register(Shared.end)

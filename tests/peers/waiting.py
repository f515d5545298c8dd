"""Waiting by asking, ports nobody uses, folders with short names, and what is cleaned up when the run ends."""

from __future__ import annotations

import atexit
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

TOP = Path(__file__).resolve().parents[2]
#: How long a test waits for what comes at once on an idle machine; a busy one lets a process stand still for seconds.
PATIENCE = 60.0
_T = TypeVar("_T")
_PICK = random.SystemRandom()
_GIVEN: set[int] = set()


class NotInTime(AssertionError):
    """What a test waited for did not happen in time."""


def eventually(ask: Callable[[], _T], seconds: float = PATIENCE, what: str = "the condition") -> _T:
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


def free_port() -> int:
    """
    Find a loopback port that nobody uses and that the kernel gives to no outgoing connection.

    Returns:
        Its number, which this process is given only once: whoever got it may not listen there yet.
    """
    while True:
        port = _PICK.randrange(20000, 32000)
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


def answers(port: int) -> bool:
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


def short_folder(stack: ExitStack, prefix: str = "svc-it-") -> Path:
    """
    Make a folder whose name leaves room for the 107 octets of a socket's path.

    Args:
        stack: removes it.
        prefix: of its name.

    Returns:
        The folder.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


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

"""
Processes that start by a fork; they are used like those of ``subprocess.Popen``.

::

    process = forked.start("twistd", ["svc-proxy", "--config", str(path)], cwd=folder, out=log, err=errors, ...)
    process.wait()
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

_PR_SET_CHILD_SUBREAPER = 36
_START_SECONDS = 60.0
_asking = threading.Lock()
_server: subprocess.Popen[bytes] | None = None


class ForkFailed(AssertionError):
    """The fork server did not start a process, or a process did not do what the test waits for."""


class ForkedProcess:
    """
    A process that the fork server has made; a child of this process.

    Args:
        pid: its identifier.

    Attributes:
        returncode: its exit status, negative for a signal; None as long as nobody saw it end.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Give its exit status; None while it runs."""
        self._look(os.WNOHANG)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """
        Wait until it ends.

        Args:
            timeout: the longest wait in seconds.

        Returns:
            Its exit status; a signal's number negative.

        Raises:
            subprocess.TimeoutExpired: it runs on.
        """
        self._until_ended(timeout)
        assert self.returncode is not None
        return self.returncode

    def wait_until_stopped(self, timeout: float = 60.0) -> None:
        """
        Wait until a signal has stopped it.

        Raises:
            ForkFailed: it ended.
        """
        deadline = time.monotonic() + timeout
        while not self._look(os.WNOHANG | os.WUNTRACED):
            if self.returncode is not None:
                raise ForkFailed(f"it ended with status {self.returncode}")
            if time.monotonic() > deadline:
                raise ForkFailed(f"it did not stop within {timeout:g} s")
            time.sleep(0.001)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _until_ended(self, timeout: float | None) -> None:
        if self.poll() is not None:
            return
        descriptor = os.pidfd_open(self.pid)
        try:
            # Readable once the process has ended.
            if not select.select([descriptor], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        finally:
            os.close(descriptor)
        self._look(0)

    def _look(self, options: int) -> bool:
        """Ask the kernel; true where it has stopped."""
        if self.returncode is not None:
            return False
        pid, status = os.waitpid(self.pid, options)
        if pid and os.WIFSTOPPED(status):
            return True
        if pid:
            self.returncode = os.waitstatus_to_exitcode(status)
        return False


def start(
    program: Literal["svc", "twistd"],
    arguments: Sequence[str],
    *,
    cwd: Path,
    out: Path,
    err: Path,
    environment: Mapping[str, str],
    step: tuple[str, int] | None = None,
) -> ForkedProcess:
    """
    Start a program.

    Args:
        program: which one.
        arguments: its arguments; with a step, the last one is the configuration of a proxy.
        cwd: its working directory.
        out: takes its standard output, behind what is there.
        err: takes its standard error.
        environment: its variables.
        step: a step of the proxy and n: at the n-th passing it stops itself with SIGSTOP.

    Returns:
        The process.
    """
    order = {
        "program": program,
        "arguments": list(arguments),
        "cwd": str(cwd),
        "out": str(out),
        "err": str(err),
        "env": dict(environment),
        "step": step,
    }
    with _asking:
        server = _running(environment)
        assert server.stdin is not None
        server.stdin.write(json.dumps(order).encode() + b"\n")
        return ForkedProcess(_answer(server))


def _running(environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    global _server
    if _server is None or _server.poll() is not None:
        # Forks become children of this process when the one in between has ended.
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            raise ForkFailed(f"prctl: {os.strerror(ctypes.get_errno())}")
        _server = subprocess.Popen(
            [sys.executable, "-m", "tests.peers.fork_server"],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        atexit.register(_server.communicate)
        _answer(_server)
    return _server


def _answer(server: subprocess.Popen[bytes]) -> int:
    assert server.stdout is not None
    if not select.select([server.stdout], [], [], _START_SECONDS)[0]:
        raise ForkFailed(f"the fork server did not answer within {_START_SECONDS:g} s")
    # One line to one order, written in one piece.
    line = server.stdout.readline()
    if not line:
        raise ForkFailed("the fork server ended")
    return int(line)

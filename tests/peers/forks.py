"""
Proxies that begin in a few hundredths of a second and stop where a test wants to kill them.

A helper process imports everything once and forks for each proxy; the fork makes its reactor and the same tree of
services as ``twistd svc-proxy``, with an observer of steps that no configuration could name: at the wanted step it
stops itself with SIGSTOP, threads and all, so that a SIGKILL hits exactly there.

::

    with Forks() as forks:
        proxy = forks.start(running_proxy.config_path, folder, step="receipt.committed", after=3)
        ...                      # clients ask
        proxy.stopped()          # waits for the third passing of that step
        proxy.kill()
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.peers.proxy import environment


class ForkFailed(AssertionError):
    """A proxy or the helper did not do what it was told; carries what was logged."""


class ForkedProxy:
    """
    One proxy.

    Args:
        forks: the helper.
        pid: its process.
        log: what it writes.
    """

    def __init__(self, forks: Forks, pid: int, log: Path) -> None:
        self._forks = forks
        self.pid = pid
        self.log = log

    def stopped(self) -> None:
        """
        Wait until it has stopped at its step.

        Raises:
            ForkFailed: it did not get there.
        """
        if self._forks.wait(self.pid) is not None:
            raise ForkFailed(f"it ended: {self.log.read_text()[-2000:]}")

    def kill(self) -> int | None:
        """
        End it as a crash does.

        Returns:
            Its exit status; a signal's number negative.
        """
        return self._forks.wait(self.pid, signal.SIGKILL)

    def halt(self) -> int | None:
        """
        End it as an operator does.

        Returns:
            Its exit status.
        """
        return self._forks.wait(self.pid, signal.SIGTERM)

    def ended(self) -> int | None:
        """
        Wait until it ends by itself.

        Returns:
            Its exit status.
        """
        return self._forks.wait(self.pid)


class Forks:
    """The helper, seen from the test; all its proxies end with it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.peers.forked"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.living: set[int] = set()
        if self._answer(60.0) != {"ready": True}:
            raise ForkFailed("the helper did not begin")

    def start(self, config: Path, folder: Path, *, step: str | None = None, after: int = 1) -> ForkedProxy:
        """
        Fork a proxy; it listens a few hundredths of a second later.

        Args:
            config: its configuration.
            folder: where its log goes.
            step: where it stops; None nowhere.
            after: at which passing of that step.

        Returns:
            The proxy.
        """
        log = folder / "forked.out"
        order = {"config": str(config), "log": str(log), "step": step, "after": after}
        pid = int(self._ordered(order, 60.0)["started"])
        self.living.add(pid)
        return ForkedProxy(self, pid, log)

    def wait(self, pid: int, number: signal.Signals | None = None, seconds: float = 60.0) -> int | None:
        """
        Wait until a proxy ends or stops.

        Args:
            pid: its process.
            number: a signal that is sent before.
            seconds: the longest wait; then it is killed.

        Returns:
            Its exit status; None where it has stopped.

        Raises:
            ForkFailed: it did neither.
        """
        order = {"wait": pid, "signal": number}
        try:
            answer = self._ordered(order, seconds)
        except ForkFailed:
            os.kill(pid, signal.SIGKILL)
            self.living.discard(pid)
            self._answer(60.0)
            raise
        if "stopped" in answer:
            return None
        self.living.discard(pid)
        return int(answer["ended"])

    def _ordered(self, order: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        answer = self._answer(seconds)
        if answer is None:
            raise ForkFailed(f"nothing came of {order} within {seconds:g} s")
        return answer

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return None
        # One answer to one order, written in one piece.
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in list(self.living):
            self.wait(pid, signal.SIGKILL)
        self._process.communicate()

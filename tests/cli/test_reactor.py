"""Tests of running the reactor until work is done."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.errors import Interrupted
from svc.cli.reactor import run_until_done
from svc.errors import SvcError


class FakeReactor(Clock):
    """A reactor that runs what is due, and may be stopped as by a signal."""

    def __init__(self, *, signal_after: float | None = None) -> None:
        super().__init__()
        self.signal_after = signal_after
        self.begin: list[Any] = []
        self.before: list[Any] = []
        self.stopped = False

    def callWhenRunning(self, function: Any) -> None:
        self.begin.append(function)

    def addSystemEventTrigger(self, _phase: str, _event: str, function: Any) -> None:
        self.before.append(function)

    def stop(self) -> None:
        if self.stopped:
            raise AssertionError("stopped twice")
        self.stopped = True
        for function in self.before:
            function()

    def run(self) -> None:
        for function in self.begin:
            function()
        while not self.stopped:
            self.advance(0.5)
            if self.signal_after is not None and self.seconds() >= self.signal_after and not self.stopped:
                self.stop()


class ReactorTests(SynchronousTestCase):
    """Running until the work is done."""

    def run_on(self, reactor: FakeReactor, start: Any) -> Any:
        self.closed = 0

        async def close() -> None:
            self.closed += 1

        try:
            return run_until_done(reactor, start, close)
        finally:
            self.assertEqual(reactor.stopped, True)

    def test_result(self) -> None:
        """The result is returned once the reactor has stopped and everything was released."""
        self.assertEqual(self.run_on(FakeReactor(), lambda: succeed(7)), 7)
        self.assertEqual(self.closed, 1)

    def test_error(self) -> None:
        """An error is raised as it is."""

        def start() -> Deferred[None]:
            async def work() -> None:
                raise SvcError

            return Deferred.fromCoroutine(work())

        self.assertRaises(SvcError, self.run_on, FakeReactor(), start)
        self.assertEqual(self.closed, 1)

    def test_signal(self) -> None:
        """A signal cancels the work and releases everything."""
        cancelled: list[Deferred[None]] = []
        waiting: Deferred[None] = Deferred(cancelled.append)
        self.assertRaises(Interrupted, self.run_on, FakeReactor(signal_after=2), lambda: waiting)
        self.assertEqual((len(cancelled), self.closed), (1, 1))

"""How often, and how long after each other, a registry is asked again."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.install.registry.errors import RegistryInterrupted
from svc.install.registry.exchanges import ATTEMPTS, LONGEST_WAIT, PACE, Retries


class RetriesTests(SynchronousTestCase):
    """The attempts of one transfer."""

    def setUp(self) -> None:
        """Make a clock."""
        self.clock = Clock()
        self.retries = Retries(self.clock, lambda: 1.0, PACE)

    def waited(self, after: float = 0.0) -> float:
        """Wait before the next attempt; gives the seconds."""
        error = RegistryInterrupted("registry_failing", registry="r.io", answer=503, after=after)
        waiting = Deferred.fromCoroutine(self.retries.pause(error))
        (call,) = self.clock.getDelayedCalls()
        seconds = call.getTime() - self.clock.seconds()
        self.clock.advance(seconds)
        self.successResultOf(waiting)
        return seconds

    def refused(self, after: float = 0.0) -> None:
        """Expect that there is no further attempt."""
        error = RegistryInterrupted("registry_failing", registry="r.io", answer=503, after=after)
        waiting = Deferred.fromCoroutine(self.retries.pause(error))
        self.assertIs(error, self.failureResultOf(waiting).value)

    def test_pauses(self) -> None:
        """Pauses grow, and after six attempts that brought nothing there is none."""
        self.assertEqual([0.5, 1.0, 2.0, 4.0, 8.0], [self.waited() for _ in range(ATTEMPTS - 1)])
        self.refused()

    def test_moved(self) -> None:
        """An attempt that brought something begins the count anew."""
        for _ in range(3):
            for _each in range(ATTEMPTS - 1):
                self.waited()
            self.retries.moved()
        self.assertEqual(0.5, self.waited())

    def test_longest_wait(self) -> None:
        """A registry that asks to wait is waited for up to two minutes, and no second longer."""
        self.assertEqual(LONGEST_WAIT, self.waited(LONGEST_WAIT))
        self.refused(LONGEST_WAIT + 1)

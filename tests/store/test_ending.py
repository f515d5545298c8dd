"""An end is waited for, and not for ever."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.store.ending import BoundedEnd
from svc.store.errors import StoreStuck


class BoundedEndTests(SynchronousTestCase):
    """Ten seconds on a clock."""

    def setUp(self) -> None:
        """An end that nobody waits for yet."""
        self.clock = Clock()
        self.asked = 0
        self.end = BoundedEnd(self.clock, 10.0, self.stuck)

    def stuck(self) -> StoreStuck:
        """Give the error."""
        self.asked += 1
        return StoreStuck(seconds=10.0)

    def test_in_time(self) -> None:
        """An end that comes in time is the end; nothing is left behind."""
        ended = self.end.begin()
        self.clock.advance(9.9)
        self.assertNoResult(ended)
        self.assertTrue(self.end.awaited)
        self.end.come()
        self.successResultOf(ended)
        self.assertEqual((self.clock.getDelayedCalls(), self.end.awaited, self.asked), ([], False, 0))

    def test_too_late(self) -> None:
        """One that does not come is given up when the time is over; if it comes after that, it is no matter."""
        ended = self.end.begin()
        self.clock.advance(10.0)
        self.failureResultOf(ended, StoreStuck)
        self.assertFalse(self.end.awaited)
        self.end.come()
        self.assertEqual((self.clock.getDelayedCalls(), self.asked), ([], 1))

    def test_unasked(self) -> None:
        """A thread that ends while nobody waits is no end."""
        self.end.come()
        self.assertNoResult(self.end.begin())
        self.end.come()

"""Tests of ``svc.process.clock``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.process.clock import TOLERANCE, ClockWatch

START = datetime(2026, 11, 21, tzinfo=UTC)


class ClockWatchTests(SynchronousTestCase):
    """Two clocks, one of which can be set."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.set = 0.0
        self.slow = 0.0
        self.watch = ClockWatch(self.wall, self.clock.seconds)

    def wall(self) -> datetime:
        """The time, read after ``self.slow`` seconds."""
        self.clock.advance(self.slow)
        return START + timedelta(seconds=self.clock.seconds() + self.set)

    def test_even(self) -> None:
        """Clocks that agree were not set, however long it was since the last check."""
        for seconds in (0.0, 0.5, 3600.0, 86400.0):
            self.clock.advance(seconds)
            self.assertIsNone(self.watch.check())

    def test_set(self) -> None:
        """A step is reported once, with its sign and size, and so is the step back."""
        for step in (3600.0, -3600.0, -3600.0, 3600.0, TOLERANCE):
            self.clock.advance(0.5)
            self.set += step
            self.assertAlmostEqual(step, self.watch.check() or 0.0, places=3)
            self.assertIsNone(self.watch.check())

    def test_slewed(self) -> None:
        """A correction in small pieces is no step, however large it becomes."""
        for _turn in range(100):
            self.set += TOLERANCE * 0.9
            self.assertIsNone(self.watch.check())

    def test_suspended(self) -> None:
        """A check during which the process was suspended reports nothing, and does not spoil the next one."""
        self.slow = 5.0
        self.assertIsNone(self.watch.check())
        self.slow = 0.0
        self.assertIsNone(self.watch.check())
        self.set += 60.0
        self.assertAlmostEqual(60.0, self.watch.check() or 0.0, places=3)

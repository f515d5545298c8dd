"""Tests of ``svc.telemetry.clock``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.clock import TOLERANCE, ClockWatch

START = datetime(2026, 11, 21, tzinfo=UTC)


class ClockWatchTests(SynchronousTestCase):
    """Two clocks, one of which can be set."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.set = 0.0
        self.slow = 0.0
        self.watch = ClockWatch(self.wall, self.clock.seconds)

    def wall(self) -> datetime:
        """Tell the time, after a while where that is wanted."""
        self.clock.advance(self.slow)
        return START + timedelta(seconds=self.clock.seconds() + self.set)

    def test_even(self) -> None:
        """However long it was since the last look, clocks that agree were not set."""
        for seconds in (0.0, 0.5, 3600.0, 86400.0):
            self.clock.advance(seconds)
            self.assertIsNone(self.watch.look())

    def test_set(self) -> None:
        """A step is told once, with its sign and size, and so is the step back."""
        for step in (3600.0, -3600.0, -3600.0, 3600.0, TOLERANCE):
            self.clock.advance(0.5)
            self.set += step
            self.assertAlmostEqual(step, self.watch.look() or 0.0, places=3)
            self.assertIsNone(self.watch.look())

    def test_slewed(self) -> None:
        """A correction in small pieces is no step, however far it leads."""
        for _turn in range(100):
            self.set += TOLERANCE * 0.9
            self.assertIsNone(self.watch.look())

    def test_held_up(self) -> None:
        """A look during which the process had to wait says nothing, and the next one is as good as ever."""
        self.slow = 5.0
        self.assertIsNone(self.watch.look())
        self.slow = 0.0
        self.assertIsNone(self.watch.look())
        self.set += 60.0
        self.assertAlmostEqual(60.0, self.watch.look() or 0.0, places=3)

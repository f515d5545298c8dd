"""Pauses between attempts to reach a broker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.mqtt.backoff import FullJitter


class FullJitterTests(SynchronousTestCase):
    """Bounds of the pauses."""

    def test_doubles(self) -> None:
        """The bound doubles with each failure up to the longest pause, and a success resets it."""
        backoff = FullJitter(0.5, 3.0, lambda: 1.0)
        self.assertEqual([0.5, 1.0, 2.0, 3.0, 3.0], [backoff.pause() for _ in range(5)])
        self.assertEqual(5, backoff.failures)
        backoff.succeeded()
        self.assertEqual((0, 0.5), (backoff.failures, backoff.pause()))

    def test_full(self) -> None:
        """The jitter is full: a pause may be none at all."""
        numbers = iter((0.0, 0.25, 0.5))
        backoff = FullJitter(4.0, 60.0, lambda: next(numbers))
        self.assertEqual([0.0, 2.0, 8.0], [backoff.pause() for _ in range(3)])

    @given(st.floats(0.001, 10), st.floats(0.001, 600), st.integers(0, 5000), st.floats(0, 1))
    def test_bounded(self, base: float, longest: float, failures: int, random: float) -> None:
        """However many attempts fail, no pause is longer than the longest, and none overflows."""
        backoff = FullJitter(base, longest, lambda: random)
        backoff.failures = failures
        self.assertTrue(0 <= backoff.pause() <= longest)

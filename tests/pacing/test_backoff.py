"""Tests of svc.pacing.backoff."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.pacing.backoff import Backoff


class BackoffTests(SynchronousTestCase):
    """The pauses."""

    @given(st.integers(1, 10_000), st.floats(0, 1))
    def test_bounds(self, failures: int, random: float) -> None:
        """Every pause is above zero and at most the longest one."""
        pause = Backoff(0.1, 5.0).pause(failures, random)
        self.assertGreaterEqual(pause, 0.05)
        self.assertLessEqual(pause, 5.0)

    def test_jitter(self) -> None:
        """Randomness spreads a pause over half of its bound."""
        self.assertEqual(Backoff(0.1, 5.0).pause(1, 0.0), 0.05)
        self.assertEqual(Backoff(0.1, 5.0).pause(1, 1.0), 0.1)

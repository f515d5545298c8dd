"""Tests of svc.workload.authority.rotation."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.workload.authority.rotation import KeyRing
from tests.workload.messages import NOW

TTL = timedelta(hours=24)
HOUR = timedelta(hours=1)


def ring() -> KeyRing[int]:
    """Make a ring whose keys are counted."""
    made: list[int] = []

    def make(now: datetime, expires: datetime) -> int:
        made.append(len(made) + 1)
        return made[-1]

    return KeyRing(make, TTL)


class KeyRingTests(SynchronousTestCase):
    """The calendar of keys."""

    def announced(self, keys: KeyRing[int]) -> list[int]:
        """List the announced keys."""
        return [slot.key for slot in keys.announced]

    def test_life(self) -> None:
        """At half of its life a key gets a successor, at two thirds that one signs, at its end the key is gone."""
        keys = ring()
        self.assertTrue(keys.advance(NOW))
        self.assertFalse(keys.advance(NOW + 11 * HOUR))
        self.assertEqual((self.announced(keys), keys.active(NOW + 11 * HOUR).key), ([1], 1))
        self.assertTrue(keys.advance(NOW + 12 * HOUR))
        self.assertEqual((self.announced(keys), keys.active(NOW + 12 * HOUR).key), ([1, 2], 1))
        self.assertFalse(keys.advance(NOW + 15 * HOUR))
        self.assertTrue(keys.advance(NOW + 16 * HOUR))
        self.assertEqual((self.announced(keys), keys.active(NOW + 16 * HOUR).key), ([1, 2], 2))
        self.assertTrue(keys.advance(NOW + 24 * HOUR))
        self.assertEqual(self.announced(keys), [2, 3])

    def test_clock_set_forward(self) -> None:
        """After a jump beyond every key there is a new one that signs at once."""
        keys = ring()
        keys.advance(NOW)
        self.assertTrue(keys.advance(NOW + 100 * HOUR))
        self.assertEqual((self.announced(keys), keys.active(NOW + 100 * HOUR).key), ([2], 2))

    def test_clock_set_back(self) -> None:
        """After a jump back the oldest key signs, which every consumer knows."""
        keys = ring()
        keys.advance(NOW)
        keys.advance(NOW + 12 * HOUR)
        self.assertFalse(keys.advance(NOW - HOUR))
        self.assertEqual(keys.active(NOW - HOUR).key, 1)

    def test_active_before_advance(self) -> None:
        """A ring that was never advanced makes its first key when it is needed."""
        self.assertEqual(ring().active(NOW).key, 1)

    @given(st.lists(st.integers(-3600 * 30, 3600 * 60), min_size=1, max_size=30))
    def test_any_clock(self, steps: list[int]) -> None:
        """However the clock moves, one announced key signs, and few are announced."""
        keys, now = ring(), NOW
        for step in steps:
            now += timedelta(seconds=step)
            keys.advance(now)
            self.assertIn(keys.active(now), keys.announced)
            self.assertLessEqual(len(keys.announced), 3)
            self.assertTrue(all(now < slot.expires for slot in keys.announced))

    @given(st.lists(st.integers(1, 3600), min_size=1, max_size=80))
    def test_signed_things_end_before_their_key(self, steps: list[int]) -> None:
        """With a steady clock, what lives a quarter of a key's life never outlives the key that signs it."""
        keys, now = ring(), NOW
        for step in steps:
            keys.advance(now)
            self.assertLessEqual(now + TTL / 4, keys.active(now).expires)
            now += timedelta(seconds=step)

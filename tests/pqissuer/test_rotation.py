"""Tests of svc.pqissuer.rotation."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.pqissuer.rotation import BACKDATE, KeyRing, Slot
from tests.workload.messages import NOW

TTL = timedelta(hours=24)
HOUR = timedelta(hours=1)


def ring() -> KeyRing[int]:
    """A ring whose keys are numbers."""
    made: list[int] = []

    def make(now: datetime, expires: datetime) -> int:
        made.append(len(made) + 1)
        return made[-1]

    return KeyRing(make, TTL)


class StoredTests(SynchronousTestCase):
    """Stored keys."""

    def setUp(self) -> None:
        """A ring whose changes are collected, or fail."""
        self.noted: list[list[int]] = []
        self.error: Exception | None = None
        self.keys = ring()
        self.keys.resume((), self.keep)

    def keep(self, slots: tuple[Slot[int], ...]) -> None:
        if self.error is not None:
            raise self.error
        self.noted.append([slot.key for slot in slots])

    def test_stored_before_use(self) -> None:
        """Each change is stored once; a change of the signing key alone is not one."""
        for hours in (0, 1, 12, 13, 16, 24):
            self.keys.advance(NOW + hours * HOUR)
        self.assertEqual(self.noted, [[1], [1, 2], [2, 3]])

    def test_not_stored(self) -> None:
        """
        A key that could not be stored is not used; unexpired ones sign, expired ones do not, and the next attempt may
        succeed.
        """
        self.keys.advance(NOW)
        self.error = ZeroDivisionError()
        self.assertRaises(ZeroDivisionError, self.keys.advance, NOW + 12 * HOUR)
        self.assertEqual([slot.key for slot in self.keys.announced], [1])
        self.assertEqual(self.keys.active(NOW + 23 * HOUR).key, 1)
        self.assertRaises(ZeroDivisionError, self.keys.active, NOW + 24 * HOUR)
        self.assertEqual(self.keys.announced, ())
        self.error = None
        self.assertEqual(self.keys.active(NOW + 24 * HOUR).key, 4)

    def test_resumed(self) -> None:
        """Rotation continues where it was."""
        self.keys.advance(NOW)
        again = ring()
        again.resume(self.keys.announced, self.keep)
        again.advance(NOW + 11 * HOUR)
        self.assertEqual(again.announced, self.keys.announced)
        again.advance(NOW + 12 * HOUR)
        self.assertEqual(len(again.announced), 2)
        self.assertEqual(again.active(NOW + 16 * HOUR), again.announced[1])

    def test_replaced(self) -> None:
        """
        A newest key of another kind gets a successor early, which signs a sixth of a lifetime later; one of the right
        kind does not.
        """
        asked: list[int] = []
        self.keys.ensure(lambda key: bool(asked.append(key)), NOW)
        self.assertEqual([], asked)
        self.keys.advance(NOW)
        self.keys.ensure(lambda key: key == 1, NOW + HOUR)
        self.keys.advance(NOW + HOUR)
        self.assertEqual([slot.key for slot in self.keys.announced], [1])
        self.keys.ensure(lambda key: key != 1, NOW + HOUR)
        self.keys.advance(NOW + HOUR)
        self.assertEqual([slot.key for slot in self.keys.announced], [1, 2])
        self.assertEqual((self.keys.active(NOW + 4 * HOUR).key, self.keys.active(NOW + 5 * HOUR).key), (1, 2))


class KeyRingTests(SynchronousTestCase):
    """The times of keys."""

    def announced(self, keys: KeyRing[int]) -> list[int]:
        return [slot.key for slot in keys.announced]

    def test_lifetime(self) -> None:
        """
        At half of its lifetime a key gets a successor, at two thirds that one signs, at its end the key is dropped.
        """
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

    def test_begin(self) -> None:
        """An announced key can sign before its time; the former one stays announced to its end."""
        keys = ring()
        keys.advance(NOW)
        keys.advance(NOW + 12 * HOUR)
        keys.begin(keys.announced[1], NOW + 13 * HOUR)
        self.assertTrue(keys.advance(NOW + 13 * HOUR))
        self.assertEqual((self.announced(keys), keys.active(NOW + 13 * HOUR).key), ([1, 2], 2))
        self.assertFalse(keys.advance(NOW + 16 * HOUR))
        self.assertTrue(keys.advance(NOW + 24 * HOUR))
        self.assertEqual(self.announced(keys), [2, 3])

    def test_clock_set_forward(self) -> None:
        """After a step beyond every key there is a new one that signs at once."""
        keys = ring()
        keys.advance(NOW)
        self.assertTrue(keys.advance(NOW + 100 * HOUR))
        self.assertEqual((self.announced(keys), keys.active(NOW + 100 * HOUR).key), ([2], 2))

    def test_clock_set_back(self) -> None:
        """A key of the future signs nothing: there is a new one at once, and the previous one stays announced."""
        keys = ring()
        keys.advance(NOW)
        self.assertTrue(keys.advance(NOW - HOUR))
        self.assertEqual((self.announced(keys), keys.active(NOW - HOUR).key), ([1, 2], 2))
        self.assertFalse(keys.advance(NOW - HOUR / 2))
        keys.advance(NOW)
        self.assertEqual(self.announced(keys), [1, 2])

    def test_clock_set_back_a_little(self) -> None:
        """If the oldest key is active, or the backdating of certificates covers the step, that key goes on signing."""
        keys = ring()
        keys.advance(NOW)
        keys.advance(NOW + 12 * HOUR)
        for now in (NOW + HOUR, NOW, NOW - BACKDATE):
            self.assertFalse(keys.advance(now))
            self.assertEqual(keys.active(now).key, 1)
        self.assertTrue(keys.advance(NOW - BACKDATE - timedelta(seconds=1)))
        self.assertEqual(self.announced(keys), [1, 3])

    def test_active_before_advance(self) -> None:
        """A ring that was never advanced makes its first key when it is needed."""
        self.assertEqual(ring().active(NOW).key, 1)

    @given(st.lists(st.integers(-3600 * 30, 3600 * 60), min_size=1, max_size=30))
    def test_any_clock(self, steps: list[int]) -> None:
        """However the clock moves, an announced key signs, and few are announced."""
        keys, now = ring(), NOW
        for step in steps:
            now += timedelta(seconds=step)
            keys.advance(now)
            self.assertIn(keys.active(now), keys.announced)
            self.assertLessEqual(len(keys.announced), 3)
            self.assertTrue(all(now < slot.expires for slot in keys.announced))

    @given(st.lists(st.integers(1, 3600), min_size=1, max_size=80))
    def test_signed_things_end_before_their_key(self, steps: list[int]) -> None:
        """With a steady clock, what is valid for a quarter of a key's lifetime never outlives the key that signs it."""
        keys, now = ring(), NOW
        for step in steps:
            keys.advance(now)
            self.assertLessEqual(now + TTL / 4, keys.active(now).expires)
            now += timedelta(seconds=step)

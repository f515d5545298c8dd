"""What one read brought is handled in turns of the reactor, between which other connections are served."""

from __future__ import annotations

from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from svc.pacing.turns import TURN_SECONDS, Turns
from tests.process.test_reauthorization import TurnClock


class Reading:
    """A connection with messages that are read; each takes so long."""

    def __init__(self, rig: TurnsTests, name: str, messages: int, seconds: float = 0.001) -> None:
        self._rig = rig
        self._name = name
        self.left = messages
        self._seconds = seconds
        self.dropped = False

    def read_on(self) -> None:
        """Handle messages as the connections of the proxy do."""
        deadline = self._rig.turns.deadline()
        while self.left:
            self.left -= 1
            self._rig.handled.append(self._name)
            self._rig.clock.now += self._seconds
            if self.left and self._rig.turns.over(deadline):
                self._rig.turns.wait(self)
                return

    def abort_defective(self) -> None:
        """Record it."""
        self.dropped = True


class Broken(Reading):
    """A connection with a defect."""

    def read_on(self) -> None:
        """Fail."""
        raise ValueError(self._name)


class TurnsTests(SynchronousTestCase):
    """Who goes on, when, and for how long."""

    def setUp(self) -> None:
        """Make a reactor whose turns the test takes."""
        self.clock = TurnClock()
        self.turns = Turns(cast(Any, self.clock))
        self.handled: list[str] = []

    def test_a_read_is_left_at_its_deadline(self) -> None:
        """One connection has a whole turn, and goes on in the next until nothing is left."""
        reading = Reading(self, "a", 8)
        reading.read_on()
        self.assertEqual(reading.left, 5)
        for left in (2, 0):
            self.assertLess(self.clock.turn(), TURN_SECONDS + 0.001)
            self.assertEqual(reading.left, left)
        self.assertEqual(self.clock.calls, [])

    def test_slices_of_a_read(self) -> None:
        """Slices are taken until the turn is over, and the rest is left; a read of two is not measured."""
        taken: list[int] = []

        def take(data: bytes, begin: int) -> int:
            taken.append(begin)
            self.clock.now += 0.002
            return min(begin + 2, len(data))

        self.assertEqual(b"gh", self.turns.take_slices(b"abcdefgh", take))
        self.assertEqual([0, 2, 4], taken)
        self.clock.now += 1.0
        self.assertEqual(b"", self.turns.take_slices(b"abcd", take))
        self.assertEqual(b"", self.turns.take_slices(b"a", take))

    def test_shares(self) -> None:
        """All that wait share each turn, one after the other, and a turn does not last longer for them."""
        for name in "abc":
            self.turns.wait(Reading(self, name, 4))
        while self.clock.calls:
            self.assertLess(self.clock.turn(), TURN_SECONDS + 0.001)
        self.assertEqual("".join(self.handled), "abc" * 4)

    def test_a_read_beside_those_that_wait(self) -> None:
        """A read has no more than its share while others wait."""
        for name in "abc":
            self.turns.wait(Reading(self, name, 4))
        reading = Reading(self, "d", 4)
        reading.read_on()
        self.assertEqual(reading.left, 3)

    def test_at_the_deadline(self) -> None:
        """The time is over at the deadline, and not before it."""
        deadline = self.turns.deadline()
        self.assertEqual(deadline, TURN_SECONDS)
        self.clock.now = deadline - 1e-9
        self.assertFalse(self.turns.over(deadline))
        self.clock.now = deadline
        self.assertTrue(self.turns.over(deadline))

    def test_discarded(self) -> None:
        """A connection that has ended does not go on; without any no call is left in the reactor."""
        first, second = Reading(self, "a", 1), Reading(self, "b", 1)
        for each in (first, second):
            self.turns.wait(each)
        self.turns.discard(first)
        self.turns.discard(first)
        self.clock.turn()
        self.assertEqual(self.handled, ["b"])
        self.turns.wait(first)
        self.turns.discard(first)
        self.assertEqual(self.clock.calls, [])

    def test_a_defect_drops_its_connection(self) -> None:
        """What fails in one connection is logged and drops it; the others go on."""
        broken, reading = Broken(self, "a", 1), Reading(self, "b", 1)
        self.turns.wait(broken)
        self.turns.wait(reading)
        self.clock.turn()
        self.assertEqual((broken.dropped, reading.dropped, self.handled), (True, False, ["b"]))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

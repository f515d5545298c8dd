"""Limits of the records, and of their octets, that a client may cause."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.errors import NotaryRate
from svc.proxy.records.budget import MAX_CLIENTS, Allowance, RecordBudget

RECORDS = Allowance(2.0, 3.0)
OCTETS = Allowance(100.0, 1000.0)
#: Seconds to wait, the most octets of a record, and the octets that it used.
REQUESTS = st.lists(st.tuples(st.floats(0, 10), st.integers(1, 1000), st.integers(0, 1000)), max_size=30)


class RecordBudgetTests(SynchronousTestCase):
    """Two token buckets for each client."""

    def setUp(self) -> None:
        """Two records a second, burst three; a hundred octets a second, burst a thousand."""
        self.clock = Clock()
        self.budget = RecordBudget(RECORDS, OCTETS, self.clock)

    def taken(self, client: str = "a", octets: int = 1, most: int = 100) -> int:
        """Return how many records are admitted now."""
        count = 0
        while count < most and self.budget.take(client, octets) is None:
            count += 1
        return count

    def test_records(self) -> None:
        """A new client has the whole burst; records return with time, and refused requests cost nothing."""
        self.assertEqual(self.taken(), 3)
        self.clock.advance(0.25)
        self.assertEqual(self.taken(), 0)
        self.clock.advance(0.25)
        self.assertEqual(self.taken(), 1)
        self.clock.advance(3600)
        self.assertEqual(self.taken(), 3)

    def test_octets(self) -> None:
        """Octets at the limit are admitted, one more is not; they return with time."""
        self.assertIsNone(self.budget.take("a", 999))
        self.assertIsNone(self.budget.take("a", 1))
        self.assertEqual(self.budget.take("a", 1), (OCTETS, 0.01))
        self.clock.advance(1)
        self.assertIsNotNone(self.budget.take("a", 101))
        self.assertIsNone(self.budget.take("a", 100))

    def test_what_is_used_up_for_longer(self) -> None:
        """The refusal names the bucket that needs the longer wait."""
        self.taken(octets=333)
        self.assertEqual(self.budget.take("a", 1), (RECORDS, 0.5))
        self.assertEqual(self.budget.take("a", 1000), (OCTETS, 9.99))

    def test_refusals_cost_nothing(self) -> None:
        """A refusal by octets takes no record, and one by records takes no octets."""
        self.budget.take("a", 1000)
        self.assertIsNotNone(self.budget.take("a", 1))
        self.budget.give_back("a", 1000)
        self.assertEqual(self.taken(octets=500), 2)

    def test_given_back(self) -> None:
        """Octets that a record did not use return at once, up to the burst."""
        self.budget.take("a", 1000)
        self.budget.give_back("a", 400)
        self.assertIsNone(self.budget.take("a", 400))
        self.clock.advance(100)
        self.budget.give_back("a", 1000)
        self.assertIsNone(self.budget.take("a", 1000))
        self.assertIsNotNone(self.budget.take("a", 1))
        self.budget.give_back("nobody", 1)

    def test_clients_do_not_share(self) -> None:
        """The records of one client do not change the budget of another."""
        self.taken("a", 1000)
        self.assertEqual(self.taken("b"), 3)

    def test_bounded(self) -> None:
        """Beyond the maximum the least recently seen client is removed; the others keep their counts."""
        self.taken("0")
        for number in range(1, MAX_CLIENTS):
            self.budget.take(str(number), 1)
        self.assertEqual(self.taken("0"), 0)
        self.budget.take("one too many", 1)
        self.assertEqual(len(self.budget._clients), MAX_CLIENTS)
        self.assertEqual((self.taken("0"), self.taken("1")), (0, 3))

    @given(REQUESTS)
    def test_no_more_than_promised(self, requests: list[tuple[float, int, int]]) -> None:
        """In any sequence of requests, records and octets stay below burst plus rate times time."""
        clock = Clock()
        budget = RecordBudget(RECORDS, OCTETS, clock)
        records = octets = 0
        for wait, most, used in requests:
            clock.advance(wait)
            if budget.take("a", most) is None:
                records, octets = records + 1, octets + min(most, used)
                budget.give_back("a", most - min(most, used))
            self.assertLessEqual(records, RECORDS.burst + RECORDS.rate * clock.seconds() + 1e-6)
            self.assertLessEqual(octets, OCTETS.burst + OCTETS.rate * clock.seconds() + 1e-6)

    @given(REQUESTS, st.integers(1, 1000))
    def test_the_wait_is_enough_and_needed(self, requests: list[tuple[float, int, int]], wanted: int) -> None:
        """After the seconds of a refusal the same request is admitted, and a moment earlier it is not."""
        clock = Clock()
        budget = RecordBudget(RECORDS, OCTETS, clock)
        for wait, most, used in requests:
            clock.advance(wait)
            if budget.take("a", most) is None:
                budget.give_back("a", most - min(most, used))
        refused = budget.take("a", wanted)
        if refused is not None and refused[1] > 0.01:
            clock.advance(refused[1] - 0.01)
            self.assertIsNotNone(budget.take("a", wanted))
            clock.advance(math.ceil(refused[1]) - refused[1] + 0.011)
            self.assertIsNone(budget.take("a", wanted))


class WaitingTests(SynchronousTestCase):
    """Reservations for which there is no room."""

    def setUp(self) -> None:
        """Two records a second, burst three; a hundred octets a second, burst a thousand. Nothing waits over 3 s."""
        self.clock = Clock()
        self.budget = RecordBudget(RECORDS, OCTETS, self.clock, 3.0)

    def lines(self, client: str = "a", count: int = 1, octets: int = 1) -> list[Deferred[Any]]:
        """Return reservations that wait."""
        made = [self.budget.reserve(client, octets) for _ in range(count)]
        return [each for each in made if each is not None]

    def called(self, waiting: list[Deferred[Any]]) -> list[bool]:
        """Which have come to an end."""
        return [each.called for each in waiting]

    def test_in_turn(self) -> None:
        """Each is taken in its turn as the budget refills; one that comes later does not overtake."""
        waiting = self.lines(count=6)
        self.assertEqual((3, 3), (len(waiting), self.budget.waiting))
        self.clock.advance(0.499)
        self.assertEqual([False] * 3, self.called(waiting))
        self.clock.advance(0.001)
        self.assertEqual([True, False, False], self.called(waiting))
        waiting += self.lines()
        self.assertEqual([], self.lines("b"))
        self.clock.pump([0.5] * 3)
        self.assertEqual([None] * 4, [self.successResultOf(each) for each in waiting])
        self.assertEqual((0, []), (self.budget.waiting, self.clock.getDelayedCalls()))
        self.clock.advance(0.5)
        self.assertEqual([], self.lines())

    def test_too_long(self) -> None:
        """At the longest wait one is taken where there is room, or refused with the seconds; not a moment before."""
        waiting = self.lines(count=10)
        self.clock.pump([0.5] * 5 + [0.49])
        self.assertEqual([True] * 5 + [False] * 2, self.called(waiting))
        self.clock.advance(0.01)
        self.successResultOf(waiting[5])
        error = self.failureResultOf(waiting[6], NotaryRate).value
        self.assertEqual(1, error.retry_after)
        self.assertIn("receiptsPerSecond", str(error))
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_refused_at_once(self) -> None:
        """Without a time to wait it is refused at once."""
        self.budget = RecordBudget(RECORDS, OCTETS, self.clock)
        [refused] = self.lines(octets=600, count=2)
        error = self.failureResultOf(refused, NotaryRate).value
        self.assertEqual(2, error.retry_after)
        self.assertIn("recordOctetsPerSecond", str(error))
        self.assertEqual((0, []), (self.budget.waiting, self.clock.getDelayedCalls()))

    def test_given_back(self) -> None:
        """Octets that come back let the next one go at once."""
        [first, second] = self.lines(octets=900, count=3)
        self.budget.give_back("a", 800)
        self.clock.advance(0.001)
        self.assertEqual([True, False], self.called([first, second]))
        # What comes back over and over puts nothing off.
        for _ in range(100):
            self.budget.give_back("a", 10)
            self.clock.advance(0.0005)
        self.assertTrue(second.called)
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_withdrawn(self) -> None:
        """One that is not needed any more takes nothing, and does not fire; with the last one the line ends."""
        first, second, third = self.lines(count=6)
        self.budget.withdraw("a", first)
        self.clock.advance(0.5)
        self.assertEqual([False, True, False], self.called([first, second, third]))
        for _ in range(2):
            self.budget.withdraw("a", third)
        self.budget.withdraw("nobody", third)
        self.assertEqual((0, []), (self.budget.waiting, self.clock.getDelayedCalls()))

    def test_from_within(self) -> None:
        """What is reserved or withdrawn while a line moves is part of it."""
        later: list[Deferred[Any]] = []
        first, second, third = self.lines(count=6)
        first.addCallback(lambda _taken: later.extend(self.lines()))
        first.addCallback(lambda _taken: self.budget.withdraw("a", second))
        self.clock.pump([0.5] * 3)
        self.assertEqual([True, False, True, True], self.called([first, second, third, *later]))
        self.assertEqual((0, []), (self.budget.waiting, self.clock.getDelayedCalls()))

    def test_one_rate_alone(self) -> None:
        """What has no rate is never used up."""
        budget = RecordBudget(Allowance.of(None, 1), OCTETS, self.clock)
        for _each in range(1000):
            self.assertIsNone(budget.take("a", 1))
        self.assertEqual((OCTETS, 0.01), budget.take("a", 1))
        budget.give_back("a", 10**6)
        self.assertIsNone(budget.take("a", 1000))

    @given(REQUESTS)
    def test_no_more_than_promised(self, requests: list[tuple[float, int, int]]) -> None:
        """In any sequence of requests records and octets stay below burst plus rate times time, and each ends."""
        clock = Clock()
        budget = RecordBudget(RECORDS, OCTETS, clock, 3.0)
        taken, order, refused = [0, 0], list[int](), list[int]()

        def take(_taken: None, number: int, most: int, used: int) -> None:
            order.append(number)
            taken[0] += 1
            taken[1] += min(most, used)
            budget.give_back("a", most - min(most, used))

        for number, (wait, most, used) in enumerate([*requests, (3.0, 1, 1)]):
            # As a reactor does, in small steps.
            for _step in range(20):
                clock.advance(wait / 20)
                self.assertLessEqual(taken[0], RECORDS.burst + RECORDS.rate * clock.seconds() + 1e-6)
                self.assertLessEqual(taken[1], OCTETS.burst + OCTETS.rate * clock.seconds() + 1e-6)
            waits = budget.reserve("a", most)
            if waits is None:
                take(None, number, most, used)
            else:
                waits.addCallbacks(
                    take,
                    lambda _failure, number: refused.append(number),
                    callbackArgs=(number, most, used),
                    errbackArgs=(number,),
                )
        clock.advance(3.0)
        self.assertEqual(order, sorted(order))
        self.assertEqual(list(range(len(requests) + 1)), sorted(order + refused))
        self.assertEqual([], clock.getDelayedCalls())

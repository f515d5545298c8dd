"""Limits of the records, and of their octets, that a client may cause."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.record_budget import MAX_CLIENTS, Allowance, RecordBudget

RECORDS = Allowance(2.0, 3.0)
OCTETS = Allowance(100.0, 1000.0)
#: Seconds to wait, the most octets of a record, and the octets that it used.
REQUESTS = st.lists(st.tuples(st.floats(0, 10), st.integers(1, 1000), st.integers(0, 1000)), max_size=30)


class RecordBudgetTests(SynchronousTestCase):
    """Two token buckets for each client."""

    def setUp(self) -> None:
        """Two records a second, burst three; a hundred octets a second, burst a thousand."""
        self.clock = Clock()
        self.budget = RecordBudget(RECORDS, OCTETS, self.clock.seconds)

    def taken(self, client: str = "a", octets: int = 1, most: int = 100) -> int:
        """Return how many records are admitted now."""
        count = 0
        while count < most and self.budget.reserve(client, octets) is None:
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
        self.assertIsNone(self.budget.reserve("a", 999))
        self.assertIsNone(self.budget.reserve("a", 1))
        self.assertEqual(self.budget.reserve("a", 1), (OCTETS, 0.01))
        self.clock.advance(1)
        self.assertIsNotNone(self.budget.reserve("a", 101))
        self.assertIsNone(self.budget.reserve("a", 100))

    def test_what_is_used_up_for_longer(self) -> None:
        """The refusal names the bucket that needs the longer wait."""
        self.taken(octets=333)
        self.assertEqual(self.budget.reserve("a", 1), (RECORDS, 0.5))
        self.assertEqual(self.budget.reserve("a", 1000), (OCTETS, 9.99))

    def test_refusals_cost_nothing(self) -> None:
        """A refusal by octets takes no record, and one by records takes no octets."""
        self.budget.reserve("a", 1000)
        self.assertIsNotNone(self.budget.reserve("a", 1))
        self.budget.give_back("a", 1000)
        self.assertEqual(self.taken(octets=500), 2)

    def test_given_back(self) -> None:
        """Octets that a record did not use return at once, up to the burst."""
        self.budget.reserve("a", 1000)
        self.budget.give_back("a", 400)
        self.assertIsNone(self.budget.reserve("a", 400))
        self.clock.advance(100)
        self.budget.give_back("a", 1000)
        self.assertIsNone(self.budget.reserve("a", 1000))
        self.assertIsNotNone(self.budget.reserve("a", 1))
        self.budget.give_back("nobody", 1)

    def test_clients_do_not_share(self) -> None:
        """The records of one client do not change the budget of another."""
        self.taken("a", 1000)
        self.assertEqual(self.taken("b"), 3)

    def test_bounded(self) -> None:
        """Beyond the maximum the least recently seen client is removed; the others keep their counts."""
        self.taken("0")
        for number in range(1, MAX_CLIENTS):
            self.budget.reserve(str(number), 1)
        self.assertEqual(self.taken("0"), 0)
        self.budget.reserve("one too many", 1)
        self.assertEqual(len(self.budget._clients), MAX_CLIENTS)
        self.assertEqual((self.taken("0"), self.taken("1")), (0, 3))

    @given(REQUESTS)
    def test_no_more_than_promised(self, requests: list[tuple[float, int, int]]) -> None:
        """In any sequence of requests, records and octets stay below burst plus rate times time."""
        clock = Clock()
        budget = RecordBudget(RECORDS, OCTETS, clock.seconds)
        records = octets = 0
        for wait, most, used in requests:
            clock.advance(wait)
            if budget.reserve("a", most) is None:
                records, octets = records + 1, octets + min(most, used)
                budget.give_back("a", most - min(most, used))
            self.assertLessEqual(records, RECORDS.burst + RECORDS.rate * clock.seconds() + 1e-6)
            self.assertLessEqual(octets, OCTETS.burst + OCTETS.rate * clock.seconds() + 1e-6)

    @given(REQUESTS, st.integers(1, 1000))
    def test_the_wait_is_enough_and_needed(self, requests: list[tuple[float, int, int]], wanted: int) -> None:
        """After the seconds of a refusal the same request is admitted, and a moment earlier it is not."""
        clock = Clock()
        budget = RecordBudget(RECORDS, OCTETS, clock.seconds)
        for wait, most, used in requests:
            clock.advance(wait)
            if budget.reserve("a", most) is None:
                budget.give_back("a", most - min(most, used))
        refused = budget.reserve("a", wanted)
        if refused is not None and refused[1] > 0.01:
            clock.advance(refused[1] - 0.01)
            self.assertIsNotNone(budget.reserve("a", wanted))
            clock.advance(math.ceil(refused[1]) - refused[1] + 0.011)
            self.assertIsNone(budget.reserve("a", wanted))

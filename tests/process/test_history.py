"""The last hour as rates and quantiles."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.process.history import MAX_SAMPLES, History, Totals, quantile

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BOUNDS = (0.1, 1.0, 10.0)


class QuantileTests(SynchronousTestCase):
    """:func:`quantile`."""

    def test_values(self) -> None:
        """It is linear within a bucket, the last bound above it, and nothing without observations."""
        for share, counts, expected in (
            (0.5, (0, 0, 0, 0), None),
            (0.5, (10, 0, 0, 0), 0.05),
            (0.5, (0, 10, 0, 0), 0.55),
            (0.99, (50, 0, 50, 0), 9.82),
            (0.5, (0, 0, 0, 3), 10.0),
        ):
            found = quantile(share, BOUNDS, counts)
            self.assertEqual(expected, None if found is None else round(found, 6), (share, counts))

    @given(st.lists(st.integers(0, 1000), min_size=4, max_size=4))
    def test_order(self, counts: list[int]) -> None:
        """A higher share gives no smaller value, and none beyond the last bound."""
        found = [quantile(share, BOUNDS, counts) for share in (0.01, 0.5, 0.99, 1.0)]
        values = [each for each in found if each is not None]
        self.assertEqual(len(values), 4 if any(counts) else 0)
        self.assertEqual(sorted(values), values)
        self.assertTrue(all(0 <= each <= BOUNDS[-1] for each in values))


class HistoryTests(SynchronousTestCase):
    """:class:`History`."""

    def setUp(self) -> None:
        self.history = History()

    def add(self, seconds: float, totals: Totals) -> None:
        self.history.add(START + timedelta(seconds=seconds), seconds, totals)

    def test_rates(self) -> None:
        """Each sample has what happened since the one before, by the time that really passed."""
        self.add(0, Totals(requests=100, refusals=1, bounds=BOUNDS, durations=(100, 0, 0, 0), denials={"a": 1}))
        self.assertIsNone(self.history.rates)
        now = Totals(
            requests=150, refusals=2, bounds=BOUNDS, durations=(100, 50, 0, 0), connections=3, denials={"a": 1, "b": 1}
        )
        self.add(20, now)
        [sample] = self.history.samples
        self.assertEqual((2.5, 0.05, 20.0), (sample.rates.requests, sample.rates.refusals, sample.rates.seconds))
        self.assertEqual((0.55, 0.991), (sample.rates.p50, sample.rates.p99))
        self.assertEqual((None, None, 3), (sample.rates.errors, sample.rates.sent, sample.connections))
        self.assertEqual({"b": 1}, self.history.denials(now.denials))

    def test_denials_of_the_hour(self) -> None:
        """Denials are added up, also those after the last sample, the most frequent first, but not those before."""
        for number, denials in enumerate(({"old": 9}, {"old": 9, "a": 1}, {"old": 9, "a": 2, "b": 4})):
            self.add(10.0 * number, Totals(denials=denials))
        now = {"old": 9, "a": 2, "b": 4, "c": 9}
        self.assertEqual([("c", 9), ("b", 4), ("a", 2)], list(self.history.denials(now).items()))

    def test_bound(self) -> None:
        """An hour is kept, whatever follows."""
        for number in range(MAX_SAMPLES + 5):
            self.add(10.0 * number, Totals(requests=number))
        self.assertEqual(MAX_SAMPLES, len(self.history.samples))
        self.assertEqual(START + timedelta(seconds=50), self.history.samples[0].at)

    def test_no_time(self) -> None:
        """Two readings at one time give no sample."""
        self.add(5, Totals(requests=1))
        self.add(5, Totals(requests=2))
        self.assertEqual((), self.history.samples)

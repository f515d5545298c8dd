"""Plain families say to a scrape what those of the client library say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.unlocked import UnlockedCounter, UnlockedHistogram

BUCKETS = (0.0005, 0.01, 1.0, 30.0)


def page(registry: CollectorRegistry) -> list[str]:
    """A scrape without the times of creation, which the proxy switches off."""
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


class UnlockedTests(SynchronousTestCase):
    """Counters and histograms against the library's own."""

    @given(
        st.lists(st.tuples(st.sampled_from(["GET", "PUT"]), st.sampled_from([0.0, *BUCKETS, 0.2, 99.0])), max_size=8)
    )
    def test_histogram(self, observations: list[tuple[str, float]]) -> None:
        """Buckets, counts and sums are the same, with an observation on a bound in the bucket of that bound."""
        plain, stock = CollectorRegistry(), CollectorRegistry()
        ours = UnlockedHistogram("a_seconds", "Times.", ("m",), buckets=BUCKETS, registry=plain)
        theirs = Histogram("a_seconds", "Times.", ("m",), buckets=BUCKETS, registry=stock)
        for method, seconds in observations:
            ours.labels(method).observe(seconds)
            theirs.labels(method).observe(seconds)
        self.assertEqual(page(plain), page(stock))

    @given(st.lists(st.tuples(st.sampled_from(["x", "y"]), st.integers(0, 9)), max_size=8))
    def test_counter(self, counts: list[tuple[str, int]]) -> None:
        """Totals are the same."""
        plain, stock = CollectorRegistry(), CollectorRegistry()
        ours = UnlockedCounter("a", "Things.", ("l",), registry=plain)
        theirs = Counter("a", "Things.", ("l",), registry=stock)
        for label, amount in counts:
            ours.labels(label).inc(amount)
            theirs.labels(label).inc(amount)
        self.assertEqual(page(plain), page(stock))

    def test_parts(self) -> None:
        """The parts of a series are counted apart and scraped as one."""
        registry = CollectorRegistry()
        counter = UnlockedCounter("a", "Things.", ("l", "m"), registry=registry)
        histogram = UnlockedHistogram("b_seconds", "Times.", ("l",), buckets=BUCKETS, registry=registry)
        for part, amount in (("web", 2), ("bank", 3)):
            counter.labels("x", "y", part=part).inc(amount)
            counter.labels("z", "y", part=part).inc(amount)
            for _turn in range(amount):
                histogram.labels("x", part=part).observe(0.5)
                histogram.labels("y", part=part).observe(99.0)
        self.assertEqual((5, 10, 0), (counter.total("x"), counter.total(), counter.total("y")))
        self.assertEqual([0, 0, 5, 0, 5], histogram.counts())
        lines = page(registry)
        self.assertIn('a_total{l="x",m="y"} 5.0', lines)
        self.assertIn('b_seconds_bucket{l="x",le="1.0"} 5.0', lines)
        self.assertIn('b_seconds_count{l="y"} 5.0', lines)

    def test_same_child(self) -> None:
        """The same labels give the same child, so that it can be kept."""
        registry = CollectorRegistry()
        counter = UnlockedCounter("a", "Things.", ("l",), registry=registry)
        histogram = UnlockedHistogram("b_seconds", "Times.", ("l",), buckets=BUCKETS, registry=registry)
        self.assertIs(counter.labels("x"), counter.labels("x"))
        self.assertIs(histogram.labels("x"), histogram.labels("x"))

    def test_names_are_taken(self) -> None:
        """Two families of one name in one registry are refused."""
        registry = CollectorRegistry()
        UnlockedCounter("a", "Things.", (), registry=registry)
        self.assertRaises(ValueError, UnlockedCounter, "a", "Things.", (), registry=registry)

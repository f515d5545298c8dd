"""
Families for what moves with every request: plain numbers, moved and read on the reactor's thread.

The client library guards each number with a lock and asks several questions before it moves one, which costs more than
a request's parsing. These say the same to a scrape. Owns how the numbers are kept; knows no names and no labels.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class UnlockedCount:
    """One counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, amount: int = 1) -> None:
        """
        Count.

        Args:
            amount: how many; never negative.
        """
        self.value += amount


class UnlockedCounter(Collector):
    """
    A family of counters.

    Args:
        name: without ``_total``.
        documentation: the help text.
        labels: the names of the labels.
        registry: where it is registered.
    """

    def __init__(self, name: str, documentation: str, labels: Sequence[str], *, registry: CollectorRegistry) -> None:
        self._name: Final = name
        self._documentation: Final = documentation
        self._label_names: Final = tuple(labels)
        self._children: dict[tuple[str, ...], UnlockedCount] = {}
        registry.register(self)

    def labels(self, *values: str) -> UnlockedCount:
        """
        Find a counter.

        Args:
            values: of the labels, in order.

        Returns:
            The counter; always the same for the same values.
        """
        return self._children.setdefault(values, UnlockedCount())

    def describe(self) -> Iterable[Metric]:
        """See the client library's ``Collector``."""
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        """See the client library's ``Collector``."""
        family = self._family()
        for values, child in self._children.items():
            family.add_metric(values, child.value)
        return [family]

    def _family(self) -> CounterMetricFamily:
        return CounterMetricFamily(self._name, self._documentation, labels=self._label_names)


class UnlockedDurations:
    """
    One histogram.

    Args:
        bounds: the upper bounds of its buckets, rising, without infinity.
    """

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        #: Observations by bucket, the last being beyond all bounds.
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """
        Take an observation.

        Args:
            seconds: what was measured.
        """
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.total += seconds


class UnlockedHistogram(Collector):
    """
    A family of histograms.

    Args:
        name: of the family.
        documentation: the help text.
        labels: the names of the labels.
        buckets: the upper bounds in seconds, rising, without infinity.
        registry: where it is registered.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        *,
        buckets: tuple[float, ...],
        registry: CollectorRegistry,
    ) -> None:
        self._name: Final = name
        self._documentation: Final = documentation
        self._label_names: Final = tuple(labels)
        self._bounds: Final = buckets
        self._children: dict[tuple[str, ...], UnlockedDurations] = {}
        registry.register(self)

    def labels(self, *values: str) -> UnlockedDurations:
        """
        Find a histogram.

        Args:
            values: of the labels, in order.

        Returns:
            The histogram; always the same for the same values.
        """
        return self._children.setdefault(values, UnlockedDurations(self._bounds))

    def describe(self) -> Iterable[Metric]:
        """See the client library's ``Collector``."""
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        """See the client library's ``Collector``."""
        family = self._family()
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        for values, child in self._children.items():
            below, buckets = 0, []
            for name, count in zip(names, child.counts, strict=True):
                below += count
                buckets.append((name, float(below)))
            family.add_metric(values, buckets, child.total)
        return [family]

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._name, self._documentation, labels=self._label_names)

"""
Counters and histograms without locks, for what changes with every request.

The counters of the client library take a lock for each change, which costs more than parsing a request. These give the
same text to a scrape; they are changed and read on the reactor's thread only.
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
    """The counter of one combination of label values."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, amount: int = 1) -> None:
        self.value += amount


class UnlockedCounter(Collector):
    """
    A family of counters; ``name`` is without ``_total``.

    A series may have several parts, which a scrape adds up.
    """

    def __init__(self, name: str, documentation: str, labels: Sequence[str], *, registry: CollectorRegistry) -> None:
        self._name: Final = name
        self._documentation: Final = documentation
        self._label_names: Final = tuple(labels)
        self._children: dict[tuple[str, ...], dict[str, UnlockedCount]] = {}
        registry.register(self)

    def labels(self, *values: str, part: str = "") -> UnlockedCount:
        """The counter of these label values and this part, the same object each time."""
        return self._children.setdefault(values, {}).setdefault(part, UnlockedCount())

    def total(self, *first: str) -> int:
        """The sum of all counters whose label values begin with these."""
        matching = (parts for values, parts in self._children.items() if values[: len(first)] == first)
        return sum(each.value for parts in matching for each in parts.values())

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        for values, parts in self._children.items():
            family.add_metric(values, sum(each.value for each in parts.values()))
        return [family]

    def _family(self) -> CounterMetricFamily:
        return CounterMetricFamily(self._name, self._documentation, labels=self._label_names)


class UnlockedDurations:
    """The histogram of one combination of label values."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        #: Observations for each bucket; the last bucket has no upper bound.
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.total += seconds


class UnlockedHistogram(Collector):
    """
    A family of histograms; ``buckets`` are the upper bounds in seconds, ascending, without infinity.

    A series may have several parts, which a scrape adds up.
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
        self._children: dict[tuple[str, ...], dict[str, UnlockedDurations]] = {}
        registry.register(self)

    def labels(self, *values: str, part: str = "") -> UnlockedDurations:
        """The histogram of these label values and this part, the same object each time."""
        return self._children.setdefault(values, {}).setdefault(part, UnlockedDurations(self._bounds))

    def counts(self) -> list[int]:
        """Observations of all histograms together for each bucket; the last bucket has no upper bound."""
        children = (each.counts for parts in self._children.values() for each in parts.values())
        return _sums(children, len(self._bounds) + 1)

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        for values, parts in self._children.items():
            below, buckets = 0, []
            for name, count in zip(names, _sums((each.counts for each in parts.values()), len(names)), strict=True):
                below += count
                buckets.append((name, float(below)))
            family.add_metric(values, buckets, sum(each.total for each in parts.values()))
        return [family]

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._name, self._documentation, labels=self._label_names)


def _sums(counts: Iterable[Sequence[int]], length: int) -> list[int]:
    return [sum(bucket) for bucket in zip([0] * length, *counts, strict=True)]

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
    """A family of counters; ``name`` is without ``_total``."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str], *, registry: CollectorRegistry) -> None:
        self._name: Final = name
        self._documentation: Final = documentation
        self._label_names: Final = tuple(labels)
        self._children: dict[tuple[str, ...], UnlockedCount] = {}
        registry.register(self)

    def labels(self, *values: str) -> UnlockedCount:
        """The counter of these label values, the same object each time."""
        return self._children.setdefault(values, UnlockedCount())

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        for values, child in self._children.items():
            family.add_metric(values, child.value)
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
    """A family of histograms; ``buckets`` are the upper bounds in seconds, ascending, without infinity."""

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
        """The histogram of these label values, the same object each time."""
        return self._children.setdefault(values, UnlockedDurations(self._bounds))

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
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

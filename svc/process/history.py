"""
The last hour of a process: its counters, sampled every ten seconds, as rates.

Owns the differences between samples and the quantiles. Counts nothing by itself: a sample reads counters that exist
anyway, so that no request costs more. Is passed the time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from svc.process.status import Rates

#: Seconds between two samples.
SAMPLE_EVERY: Final = 10.0
#: Samples that are kept: an hour of them.
MAX_SAMPLES: Final = 360


@dataclass(frozen=True)
class Totals:
    """
    Counters of a process since its start; None for what it does not count.

    Attributes:
        bounds: upper bounds of the durations of requests, in seconds, ascending.
        durations: requests for each of them, and those above the last.
        connections: open connections of clients, now.
        denials: denials by precise reason.
    """

    requests: int | None = None
    refusals: int | None = None
    errors: int | None = None
    received: int | None = None
    sent: int | None = None
    dropped: int | None = None
    bounds: Sequence[float] = ()
    durations: Sequence[int] = ()
    connections: int | None = None
    denials: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """
    What happened between two readings of the counters.

    Attributes:
        at: when the second one was.
        denials: those of these seconds.
    """

    at: datetime
    rates: Rates
    connections: int | None
    denials: Mapping[str, int]


class History:
    """The samples of the last hour."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)
        self._last: tuple[float, Totals] | None = None

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Oldest first."""
        return tuple(self._samples)

    @property
    def rates(self) -> Rates | None:
        """Those of the last sample; None until there is one."""
        return self._samples[-1].rates if self._samples else None

    def denials(self, now: Mapping[str, int]) -> dict[str, int]:
        """
        Denials of the last hour by precise reason, the most frequent first.

        Args:
            now: those since the start of the process, for what the last sample does not contain yet.
        """
        found = Counter(_since({} if self._last is None else self._last[1].denials, now))
        for sample in self._samples:
            found.update(sample.denials)
        return dict(found.most_common())

    def add(self, at: datetime, seconds: float, totals: Totals) -> None:
        """Take a reading at a monotonic time; the first one only gives the others something to differ from."""
        last, self._last = self._last, (seconds, totals)
        if last is None or seconds <= last[0]:
            return
        before = last[1]
        rates = _rates(seconds - last[0], before, totals)
        self._samples.append(Sample(at, rates, totals.connections, _since(before.denials, totals.denials)))


def quantile(share: float, bounds: Sequence[float], counts: Sequence[int]) -> float | None:
    """
    Estimate a quantile from a histogram, linearly within its bucket as Prometheus does.

    Args:
        share: between 0 and 1.
        bounds: upper bounds, ascending.
        counts: for each of them, and for what is above the last; a quantile there is the last bound.

    Returns:
        None without observations.
    """
    rank = share * sum(counts)
    if rank <= 0:
        return None
    lower, below = 0.0, 0
    for bound, count in zip(bounds, counts, strict=False):
        if count and below + count >= rank:
            return lower + (bound - lower) * (rank - below) / count
        lower, below = bound, below + count
    return lower


def _since(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in now.items() if count > before.get(name, 0)}


def _rates(seconds: float, before: Totals, now: Totals) -> Rates:
    def per_second(name: str) -> float | None:
        first, second = getattr(before, name), getattr(now, name)
        return None if first is None or second is None else round((second - first) / seconds, 3)

    counts = [second - first for first, second in zip(before.durations, now.durations, strict=True)]
    p50, p99 = (quantile(share, now.bounds, counts) for share in (0.5, 0.99))
    return Rates(
        seconds=round(seconds, 3),
        **{name: per_second(name) for name in ("requests", "refusals", "errors", "received", "sent", "dropped")},
        p50=None if p50 is None else round(p50, 6),
        p99=None if p99 is None else round(p99, 6),
    )

"""The metrics of the agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from svc.errors import SvcError
from svc.identity.svid import X509Svid
from svc.workload.errors import IdentityNotIssued
from svc.workload.interface import SourceState


class SvidSource(Protocol):
    """What the metrics read of a source."""

    @property
    def svids(self) -> tuple[X509Svid, ...]:
        """All SVIDs; raises ``SvcError`` where there is none."""

    @property
    def state(self) -> SourceState:
        """The current state."""


class AgentMetrics:
    """
    The families of the agent, which follow the state of its Workload API source.

    Args:
        registry: holds them; all series without a SPIFFE ID exist from the start.
        now: returns the time, aware.
    """

    def __init__(self, registry: CollectorRegistry, now: Callable[[], datetime]) -> None:
        self._registry = registry
        self._now = now
        self._connected = Gauge(
            "svc_agent_workload_api_connected",
            "1 while the SPIFFE Workload API socket is reachable, else 0",
            registry=registry,
        )
        renewals = Counter("svc_agent_svid_renewals", "Received SVIDs by result", ["result"], registry=registry)
        self._renewed, self._not_renewed = renewals.labels("success"), renewals.labels("error")
        self._errors = Counter(
            "svc_agent_workload_api_watch_errors", "Errors on the Workload API watch stream", registry=registry
        )
        self._svids: frozenset[X509Svid] = frozenset()
        self._rejected = self._failures = 0

    def follow(self, source: SvidSource) -> None:
        """Read the expiry of the SVIDs of a source at each scrape."""
        self._registry.register(_Expiry(source, self._now))

    def changed(self, source: SvidSource) -> None:
        """Count what has changed of the source since the last call."""
        state = source.state
        self._not_renewed.inc(state.rejected - self._rejected)
        self._errors.inc(state.failures - self._failures)
        self._rejected, self._failures = state.rejected, state.failures
        self._connected.set(_reachable(state))
        svids = _svids(source)
        self._renewed.inc(len(svids - self._svids))
        # After a withdrawal the former ones are remembered: the same SVID again is no renewal.
        self._svids = svids or self._svids

    def stopped(self) -> None:
        """The agent does not read the Workload API any more."""
        self._connected.set(0)


def _reachable(state: SourceState) -> bool:
    """A socket that answers that there is no identity is reachable."""
    if state.outage is not None:
        return isinstance(state.outage, IdentityNotIssued)
    return state.phase in ("connected", "stale", "withdrawn") or state.rejected > 0


def _svids(source: SvidSource) -> frozenset[X509Svid]:
    try:
        return frozenset(source.svids)
    except SvcError:
        return frozenset()


class _Expiry(Collector):
    def __init__(self, source: SvidSource, now: Callable[[], datetime]) -> None:
        self._source = source
        self._now = now

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "svc_agent_svid_expiry_seconds", "Seconds until the current SVID expires", labels=["spiffe_id"]
        )
        ends: dict[str, datetime] = {}
        for svid in _svids(self._source):
            name = str(svid.spiffe_id)
            ends[name] = min(svid.not_after, ends.get(name, svid.not_after))
        for name, end in sorted(ends.items()):
            family.add_metric([name], (end - self._now()).total_seconds())
        yield family

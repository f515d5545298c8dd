"""
The metrics of the proxy.

Hands out children that are resolved once: :meth:`ProxyMetrics.listener` gives an object for a listener whose attributes
are counters ready to move. Also observes the store, whose errors and commits it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from svc.telemetry.children import ListenerMetrics, NotaryMetrics
from svc.telemetry.families import ConnectionFamilies, NotaryFamilies, TlsFamilies, WorkloadFamilies
from svc.telemetry.labels import DB_ERRORS, DENIALS, Direction, NotaryProtocol, Protocol, denial

#: SPIFFE IDs and the instants at which their SVIDs expire, read at each scrape.
SvidExpiries = Callable[[], Iterable[tuple[str, datetime]]]


class ProxyMetrics:
    """
    All families of the proxy in one registry.

    Every series is there from the start, at zero: a rate sees its first event, and nothing that a peer sends adds one.

    Args:
        registry: where the families are registered; a process has one, a test makes its own.
        notary: whether there is a notary; without one its families are not shown, so that nobody is alerted by them.
    """

    def __init__(self, registry: CollectorRegistry, *, notary: bool = True) -> None:
        self._registry = registry
        self._connections = ConnectionFamilies(registry)
        self._tls = TlsFamilies(registry)
        self._notary = NotaryFamilies(registry if notary else CollectorRegistry())
        self._workload = WorkloadFamilies(registry)
        self._db_errors = {pair: self._notary.db_errors.labels(*pair) for pair in DB_ERRORS}
        self._suppressed = {word: self._connections.suppressed.labels(word) for word in DENIALS}
        self._expiries: _SvidExpiryCollector | None = None

    def listener(self, protocol: Protocol, direction: Direction) -> ListenerMetrics:
        """
        Resolve what a listener moves.

        Args:
            protocol: what the listener speaks.
            direction: ``inbound`` makes the TLS role ``server``, ``outbound`` makes it ``client``.

        Returns:
            The resolved children; listeners of one protocol and direction share their series.
        """
        return ListenerMetrics(self._connections, self._tls, protocol, direction)

    def notary(self, protocol: NotaryProtocol) -> NotaryMetrics:
        """
        Resolve what the notary of a protocol moves.

        Args:
            protocol: a protocol whose exchanges can be recorded.

        Returns:
            The resolved children.
        """
        return NotaryMetrics(self._notary, protocol)

    def denial_suppressed(self, reason: str, count: int) -> None:
        """
        Count denials that were not logged one by one.

        Args:
            reason: the precise reason that they share.
            count: how many.
        """
        self._suppressed[denial(reason)].inc(count)

    def watch_svids(self, expiries: SvidExpiries) -> None:
        """
        Show when the current SVIDs expire, read anew at each scrape.

        Args:
            expiries: gives SPIFFE IDs with the ends of their SVIDs; called at each scrape.
        """
        if self._expiries is not None:
            self._registry.unregister(self._expiries)
        self._expiries = _SvidExpiryCollector(expiries)
        self._registry.register(self._expiries)

    def watch_workload_api(self, last_contact: Callable[[], datetime | None]) -> None:
        """
        Show when the Workload API was last there, read anew at each scrape.

        Args:
            last_contact: gives the instant, None for never; called at each scrape.
        """

        def seconds() -> float:
            instant = last_contact()
            return 0.0 if instant is None else instant.timestamp()

        self._workload.last_contact.set_function(seconds)

    # What a store reports: svc.store.interface.StoreObserver.

    def db_error(self, op: str, entity: str) -> None:
        """
        Count an error of the notary database.

        Args:
            op: ``put``, ``get``, ``init`` or ``close``.
            entity: ``certificate_blob``, ``workload_statement``, ``receipt`` or ``db``.
        """
        (self._db_errors.get((op, entity)) or self._db_errors[op, "db"]).inc()

    def committed(self, count: int, seconds: float) -> None:
        """
        Observe a group commit.

        Args:
            count: records in the group.
            seconds: how long the commit took.
        """
        self._notary.commit_seconds.observe(seconds)

    def writable_changed(self, writable: bool) -> None:
        """
        Show whether the store takes new records.

        Args:
            writable: as the store says.
        """
        self._notary.writable.set(1 if writable else 0)


class _SvidExpiryCollector(Collector):
    def __init__(self, expiries: SvidExpiries) -> None:
        self._expiries = expiries

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        for spiffe_id, not_after in self._expiries():
            family.add_metric((spiffe_id,), not_after.timestamp())
        return [family]

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(
            "svc_proxy_svid_not_after_seconds",
            "When the current SVID expires, in seconds since 1970-01-01 UTC.",
            labels=("spiffe_id",),
        )

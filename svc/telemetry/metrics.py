"""
The metric families of the proxy.

Owns their names, types, labels and buckets. Label children are resolved once: :meth:`ProxyMetrics.listener` gives an
object for a listener whose attributes are counters ready to move, so nothing looks up labels for a request. Must not
know what a connection or a request is; families that only MQTT can move are registered by the MQTT capability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final
from typing import Protocol as Structural

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from svc.telemetry.labels import (
    LEVELS,
    OTHER,
    Direction,
    Level,
    NotaryProtocol,
    Protocol,
    ReasonWords,
    Role,
    http_method,
    tls_group,
)

HANDSHAKE_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
REQUEST_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
COMMIT_BUCKETS: Final = (0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.05, 0.1, 0.5, 1.0, 5.0)


class HandshakeEvidence(Structural):
    """What a metric needs of a finished handshake."""

    @property
    def group(self) -> str:
        """The key exchange group."""

    @property
    def post_quantum(self) -> bool:
        """Whether the group is post-quantum."""


#: SPIFFE IDs and the instants at which their SVIDs expire, read at each scrape.
SvidExpiries = Callable[[], Iterable[tuple[str, datetime]]]


class ProxyMetrics:
    """
    All families of the proxy in one registry.

    Args:
        registry: where the families are registered; a process has one, a test makes its own.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._reasons = ReasonWords()
        self._causes = ReasonWords(32)
        self._expiries: _SvidExpiryCollector | None = None
        self._connection_families(registry)
        self._tls_families(registry)
        self._notary_families(registry)

    def _connection_families(self, registry: CollectorRegistry) -> None:
        self._connections = Counter(
            "svc_proxy_connections",
            "Connections by how they ended up.",
            ("protocol", "direction", "result"),
            registry=registry,
        )
        self._active = Gauge(
            "svc_proxy_active_connections", "Open connections.", ("protocol", "direction"), registry=registry
        )
        self._received = Counter(
            "svc_proxy_bytes_received",
            "Application octets received from clients.",
            ("protocol",),
            registry=registry,
        )
        self._sent = Counter(
            "svc_proxy_bytes_sent",
            "Application octets forwarded to backends.",
            ("protocol",),
            registry=registry,
        )
        self._closed = Counter(
            "svc_proxy_connections_closed",
            "Connections closed, by what ended them.",
            ("protocol", "cause"),
            registry=registry,
        )
        self._requests = Histogram(
            "svc_proxy_request_duration_seconds",
            "Time from the head of a request to the last octet of its response.",
            ("protocol", "http_method"),
            buckets=REQUEST_BUCKETS,
            registry=registry,
        )
        self._decisions = Counter(
            "svc_proxy_auth_decisions",
            "Authorization decisions.",
            ("result", "reason", "protocol", "role"),
            registry=registry,
        )
        self._suppressed = Counter(
            "svc_proxy_denial_logs_suppressed",
            "Denials counted but not logged one by one.",
            ("reason",),
            registry=registry,
        )

    def _tls_families(self, registry: CollectorRegistry) -> None:
        self._handshakes = Histogram(
            "svc_proxy_tls_handshake_duration_seconds",
            "Time of mTLS handshakes, validation of the SVID included.",
            ("protocol", "role"),
            buckets=HANDSHAKE_BUCKETS,
            registry=registry,
        )
        self._handshake_failures = Counter(
            "svc_proxy_tls_handshake_failures",
            "mTLS handshakes that failed, by the precise reason.",
            ("role", "reason"),
            registry=registry,
        )
        self._tls_connections = Counter(
            "svc_proxy_tls_connections",
            "Finished mTLS handshakes by key exchange group.",
            ("protocol", "role", "group", "post_quantum"),
            registry=registry,
        )

    def _notary_families(self, registry: CollectorRegistry) -> None:
        self._records = Counter(
            "svc_proxy_notary_records",
            "Records written by the notary.",
            ("result", "protocol"),
            registry=registry,
        )
        self._levels = Counter(
            "svc_proxy_notary_level",
            "Exchanges by the notarization level in force.",
            ("level",),
            registry=registry,
        )
        self._db_errors = Counter(
            "svc_proxy_notary_db_errors",
            "Errors of the notary database.",
            ("op", "entity"),
            registry=registry,
        )
        self._commit_seconds = Histogram(
            "svc_proxy_notary_commit_duration_seconds",
            "Time of durable group commits of the notary database.",
            buckets=COMMIT_BUCKETS,
            registry=registry,
        )
        self._writable = Gauge(
            "svc_proxy_notary_writable",
            "1 while new records can be promised a place, else 0.",
            registry=registry,
        )

    def listener(self, protocol: Protocol, direction: Direction) -> ListenerMetrics:
        """
        Resolve what a listener moves.

        Args:
            protocol: what the listener speaks.
            direction: ``inbound`` makes the TLS role ``server``, ``outbound`` makes it ``client``.

        Returns:
            The resolved children; listeners of one protocol and direction share their series.
        """
        return ListenerMetrics(self, protocol, direction)

    def notary(self, protocol: NotaryProtocol) -> NotaryMetrics:
        """
        Resolve what the notary of a protocol moves.

        Args:
            protocol: a protocol whose exchanges can be recorded.

        Returns:
            The resolved children.
        """
        return NotaryMetrics(self._records, self._levels, protocol)

    def denial_suppressed(self, reason: str, count: int) -> None:
        """
        Count denials that were not logged one by one.

        Args:
            reason: the reason that they share.
            count: how many.
        """
        self._suppressed.labels(self._reasons.bounded(reason)).inc(count)

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

    # What a store reports: svc.store.interface.StoreObserver.

    def db_error(self, op: str, entity: str) -> None:
        """
        Count an error of the notary database.

        Args:
            op: ``put``, ``get``, ``init`` or ``close``.
            entity: ``certificate_blob``, ``workload_statement``, ``receipt`` or ``db``.
        """
        self._db_errors.labels(op, entity).inc()

    def committed(self, count: int, seconds: float) -> None:
        """
        Observe a group commit.

        Args:
            count: records in the group.
            seconds: how long the commit took.
        """
        self._commit_seconds.observe(seconds)

    def writable_changed(self, writable: bool) -> None:
        """
        Show whether the store takes new records.

        Args:
            writable: as the store says.
        """
        self._writable.set(1 if writable else 0)


class NotaryMetrics:
    """
    The resolved children of one protocol's notary.

    Args:
        records: the family of records.
        levels: the family of levels.
        protocol: the protocol.

    Attributes:
        records_written: records that became durable.
        records_failed: records that did not.
        level: the counter of exchanges for each level.
    """

    def __init__(self, records: Counter, levels: Counter, protocol: NotaryProtocol) -> None:
        self.records_written: Final[Counter] = records.labels("success", protocol)
        self.records_failed: Final[Counter] = records.labels("error", protocol)
        self.level: Final[dict[Level, Counter]] = {level: levels.labels(level) for level in LEVELS}


class ListenerMetrics:
    """
    The resolved children of one listener; also counts what its TLS connections report.

    Args:
        metrics: the families.
        protocol: what the listener speaks.
        direction: where its connections go.

    Attributes:
        role: the TLS role of this listener's connections.
        active: open connections; ``inc()`` when one is accepted, ``dec()`` when it is gone.
        succeeded: connections that were accepted for service; the listener counts them.
        auth_failed: connections refused for who their peer is; counted here for handshakes, by the listener for policy.
        failed: connections that failed otherwise; counted here for handshakes and limits.
        bytes_received: application octets from clients; ``inc(n)``.
        bytes_sent: application octets to backends; ``inc(n)``.
        auth_allowed: decisions that let something pass.
        denied_svid: decisions that refused an invalid SVID.
        denied_policy: decisions of policy that refused something.
    """

    def __init__(self, metrics: ProxyMetrics, protocol: Protocol, direction: Direction) -> None:
        self.protocol: Final = protocol
        self.direction: Final = direction
        self.role: Final[Role] = "server" if direction == "inbound" else "client"
        self._metrics = metrics
        self.active: Final[Gauge] = metrics._active.labels(protocol, direction)
        self.succeeded: Final[Counter] = metrics._connections.labels(protocol, direction, "success")
        self.auth_failed: Final[Counter] = metrics._connections.labels(protocol, direction, "auth_failed")
        self.failed: Final[Counter] = metrics._connections.labels(protocol, direction, "error")
        self.bytes_received: Final[Counter] = metrics._received.labels(protocol)
        self.bytes_sent: Final[Counter] = metrics._sent.labels(protocol)
        self.auth_allowed: Final[Counter] = metrics._decisions.labels("allowed", "ok", protocol, self.role)
        self.denied_svid: Final[Counter] = metrics._decisions.labels("denied", "svid_invalid", protocol, self.role)
        self.denied_policy: Final[Counter] = metrics._decisions.labels("denied", "policy_deny", protocol, self.role)
        self._handshake: Histogram = metrics._handshakes.labels(protocol, self.role)
        self._tls: dict[tuple[str, bool], Counter] = {}
        self._closed: dict[str, Counter] = {}
        self._methods: dict[bytes, Histogram] = {}

    def request_duration(self, method: bytes) -> Histogram:
        """
        Find the histogram for a request.

        Args:
            method: the request's method as it stands on the wire.

        Returns:
            The child of that method; one child serves all methods that are not registered.
        """
        found = self._methods.get(method)
        if found is not None:
            return found
        name = http_method(method)
        child: Histogram = self._metrics._requests.labels(self.protocol, name)
        if name != OTHER:
            self._methods[method] = child
        return child

    def closed(self, cause: str) -> None:
        """
        Count a connection that was closed.

        Args:
            cause: one word for what ended it, such as ``client``, ``idle``, ``drain`` or ``reauthorization``.
        """
        counter = self._closed.get(cause)
        if counter is None:
            word = self._metrics._causes.bounded(cause)
            counter = self._metrics._closed.labels(self.protocol, word)
            if word != OTHER:
                self._closed[cause] = counter
        counter.inc()

    # What a TLS connection reports: svc.transport.observer.ConnectionObserver.

    def handshake_started(self, role: Role) -> None:
        """
        Count nothing: only handshakes that ended are counted.

        Args:
            role: which side this process is.
        """

    def handshake_done(self, role: Role, seconds: float, evidence: HandshakeEvidence) -> None:
        """
        Observe a finished handshake.

        Args:
            role: which side this process is.
            seconds: its duration, validation of the SVID included.
            evidence: the negotiated group and its verdict.
        """
        self._handshake.observe(seconds)
        key = (evidence.group, evidence.post_quantum)
        counter = self._tls.get(key)
        if counter is None:
            group = tls_group(evidence.group)
            verdict = "true" if evidence.post_quantum else "false"
            counter = self._metrics._tls_connections.labels(self.protocol, role, group, verdict)
            if group != OTHER:
                self._tls[key] = counter
        counter.inc()

    def handshake_failed(self, role: Role, reason: str, detail: str, address: str, alert: str) -> None:
        """
        Count a handshake that failed, its connection and, where the SVID was refused, the decision.

        Args:
            role: which side this process is.
            reason: the reason of the error.
            detail: the precise reason below it, or an empty string.
            address: the peer's address, not counted.
            alert: the TLS alert, not counted.
        """
        word = self._metrics._reasons.bounded(detail or reason)
        self._metrics._handshake_failures.labels(role, word).inc()
        if reason == "svid_invalid":
            self.auth_failed.inc()
            self.denied_svid.inc()
        else:
            self.failed.inc()

    def connection_refused(self, reason: str, address: str) -> None:
        """
        Count a connection that a limit closed before its handshake.

        Args:
            reason: which limit.
            address: the peer's address, not counted.
        """
        self.failed.inc()
        self.closed(reason)


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

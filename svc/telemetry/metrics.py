"""
The metrics of the proxy.

The children of each family are resolved once, for a listener or a notary, so that no request looks up labels. All
series exist from the start, at zero: a rate includes its first event, and nothing that a peer sends adds a series.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Final
from typing import Protocol as Structural

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from svc.telemetry.labels import (
    ADMISSION_WAITS,
    ARTIFACTS,
    CAUSES,
    CONNACK_REASONS,
    DB_ERRORS,
    DEAD_LETTERS,
    DENIALS,
    FOREIGN_CAUSES,
    HANDSHAKE_REASONS,
    HTTP_METHODS,
    LEVELS,
    OTHER,
    TLS_GROUPS,
    UPSTREAM_CAUSES,
    AdmissionWait,
    Cause,
    Direction,
    Level,
    NotaryProtocol,
    Protocol,
    Role,
    UpstreamCause,
    denial,
    tls_group,
)
from svc.telemetry.unlocked import UnlockedCount, UnlockedCounter, UnlockedDurations, UnlockedHistogram

_HANDSHAKE_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: Upper bounds of the durations of requests, in seconds.
REQUEST_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_COMMIT_BUCKETS: Final = (0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.05, 0.1, 0.5, 1.0, 5.0)

#: Reasons for which a listener's configuration refuses a verified peer.
_UNWANTED: Final = frozenset(("identity_unexpected", "policy_deny"))


class HandshakeEvidence(Structural):
    """The part of :class:`svc.transport.evidence.PeerEvidence` that is counted; the transport is not imported here."""

    @property
    def group(self) -> str:
        """The key exchange group, as the TLS library spells it."""


class NotaryMetrics:
    """
    The counters of one protocol's notary.

    Attributes:
        records_failed: includes those refused because the notary cannot write.
        lookups: durations of requests for statements and receipts.
    """

    def __init__(self, families: _NotaryFamilies, protocol: NotaryProtocol) -> None:
        self.records_written: Final[UnlockedCount] = families.records.labels("success", protocol)
        self.records_failed: Final[UnlockedCount] = families.records.labels("error", protocol)
        self.level: Final[dict[Level, UnlockedCount]] = {level: families.levels.labels(level) for level in LEVELS}
        self.lookups: Final[UnlockedDurations] = families.lookups.labels()


class MqttMetrics:
    """
    What only MQTT has.

    Attributes:
        forwarded: messages with QoS 1 or 2 that were handed over to the connection to the broker.
        durable: messages that became durable in the buffer.
        at_workload: messages at the level ``workload``, of which there is no record.
        acknowledged: those that the broker has acknowledged with success.
        acknowledged_early: those that the proxy has acknowledged with success.
        queued: messages in the buffer.
        replay_failures: brokers that stayed away for the whole budget of the backoff.
        reconnected: connections to the broker of sessions that had one before.
        not_reconnected: attempts at those that failed.
        artifacts: statements and receipts for the broker, by kind and result.
        dead_letters: messages that the broker will not accept, by cause.
        dead_letters_kept: those that are kept now.
    """

    def __init__(self, families: _MqttFamilies, notary: _NotaryFamilies) -> None:
        self.forwarded: Final[UnlockedCount] = families.stored.labels()
        self.durable: Final[UnlockedCount] = families.durable.labels()
        self.at_workload: Final[UnlockedCount] = notary.levels.labels("workload")
        self.acknowledged: Final[UnlockedCount] = families.acknowledged.labels("upstream")
        self.acknowledged_early: Final[UnlockedCount] = families.acknowledged.labels("middleware")
        self.queued: Final = families.queued
        self.replay_failures: Final[UnlockedCount] = families.replay_failures.labels()
        self.reconnected: Final[UnlockedCount] = families.reconnections.labels("success")
        self.not_reconnected: Final[UnlockedCount] = families.reconnections.labels("error")
        self.artifacts: Final[dict[tuple[str, str], UnlockedCount]] = {
            pair: families.artifacts.labels(*pair) for pair in ARTIFACTS
        }
        self.dead_letters: Final[dict[str, UnlockedCount]] = {
            cause: families.dead_letters.labels(cause) for cause in DEAD_LETTERS
        }
        self.dead_letters_kept: Final = families.dead_letters_kept
        self._rejected = {reason: families.rejected.labels(reason) for reason in CONNACK_REASONS}

    def connack_rejected(self, reason: str) -> None:
        """Count a session that the broker refused, by the name of its code."""
        self._rejected[reason].inc()


class ListenerMetrics:
    """
    The counters of one listener.

    Each connection is counted once as ``succeeded``, ``auth_failed`` or ``failed``: here for handshakes, limits and
    unreachable peers, else by the listener.

    Attributes:
        role: the TLS role of this side: ``server`` inbound, ``client`` outbound.
        auth_failed: connections refused for the identity of their peer.
        bytes_received: application octets from clients.
        bytes_sent: application octets to backends.
        auth_allowed: allowed requests inbound, verified peers outbound.
        dry_run_allowed: requests that would be allowed if the policies in dry run were enforced.
        dry_run_denied: those that would be denied.
    """

    def __init__(
        self, connections: _ConnectionFamilies, tls: _TlsFamilies, protocol: Protocol, direction: Direction, part: str
    ) -> None:
        self.protocol: Final = protocol
        self.direction: Final = direction
        self.role: Final[Role] = "server" if direction == "inbound" else "client"
        self.active: Final[Gauge] = connections.active.labels(protocol, direction)
        self.succeeded: Final[Counter] = connections.connections.labels(protocol, direction, "success")
        self.auth_failed: Final[Counter] = connections.connections.labels(protocol, direction, "auth_failed")
        self.failed: Final[Counter] = connections.connections.labels(protocol, direction, "error")
        self.bytes_received: Final[Counter] = connections.received.labels(protocol)
        self.bytes_sent: Final[Counter] = connections.sent.labels(protocol)
        decisions = connections.decisions
        self.auth_allowed: Final[UnlockedCount] = decisions.labels("allowed", "ok", protocol, self.role, part=part)
        self.denied_svid: Final[UnlockedCount] = decisions.labels(
            "denied", "svid_invalid", protocol, self.role, part=part
        )
        self.denied_policy: Final[UnlockedCount] = decisions.labels(
            "denied", "policy_deny", protocol, self.role, part=part
        )
        self.dry_run_allowed: Final[UnlockedCount] = connections.dry_runs.labels("allowed", protocol)
        self.dry_run_denied: Final[UnlockedCount] = connections.dry_runs.labels("denied", protocol)
        self._handshake: Histogram = tls.handshakes.labels(protocol, self.role)
        self._groups = {
            name: tls.tls_connections.labels(protocol, self.role, name, "true" if post_quantum else "false")
            for name, post_quantum in (*TLS_GROUPS.items(), (OTHER, False))
        }
        self._failures = {
            reason: tls.handshake_failures.labels(self.role, reason) for reason in HANDSHAKE_REASONS[self.role]
        }
        self._closed: dict[str, Counter] = {
            cause: connections.closed.labels(protocol, cause)
            for cause in CAUSES
            if cause not in FOREIGN_CAUSES[protocol]
        }
        self._upstream_closed = {
            cause: connections.upstream_closed.labels(protocol, cause) for cause in UPSTREAM_CAUSES
        }
        #: By method; all others are at the empty one. Other protocols have no such requests.
        self._requests: dict[bytes, UnlockedDurations] = {}
        if protocol == "http":
            for name in HTTP_METHODS:
                self._requests[name.encode("ascii")] = connections.requests.labels(protocol, name, part=part)
            self._requests[b""] = connections.requests.labels(protocol, OTHER, part=part)

    @property
    def requests(self) -> int:
        """Requests of this listener that got a response."""
        return sum(sum(each.counts) for each in self._requests.values())

    @property
    def denied(self) -> int:
        """Decisions of this listener against a client or a peer."""
        return self.denied_svid.value + self.denied_policy.value

    def request_duration(self, method: bytes) -> UnlockedDurations:
        """The histogram of a method as it is on the wire; unregistered methods share one."""
        return self._requests.get(method, self._requests[b""])

    def closed(self, cause: Cause) -> None:
        """Count a connection of a client that was closed."""
        self._closed[cause].inc()

    def upstream_closed(self, cause: UpstreamCause) -> None:
        """Count a connection to a peer that was closed for the credentials of one side."""
        self._upstream_closed[cause].inc()

    def upstream_unreachable(self) -> None:
        """Count a peer that could not be reached; an application behind an inbound listener is not counted."""
        if self.direction == "outbound":
            self.failed.inc()

    def upstream_accepted(self) -> None:
        """Count a connection whose peer accepted the SVID of this side."""
        self.succeeded.inc()

    def upstream_unverified(self) -> None:
        """Count a peer whose workload statement the listener refused."""
        self.auth_failed.inc()
        self.denied_policy.inc()

    def handshake_done(self, role: Role, seconds: float, evidence: HandshakeEvidence) -> None:
        """Observe a finished handshake; ``seconds`` includes the verification of the SVID."""
        self._handshake.observe(seconds)
        self._groups[tls_group(evidence.group)].inc()
        if self.role == "client":
            # Inbound the decision is made for each request.
            self.auth_allowed.inc()

    def handshake_failed(self, role: Role, reason: str, detail: str, address: str, alert: str) -> None:
        """
        Count a failed handshake, its connection and, where the peer's identity was refused, the decision.

        ``detail`` is the precise reason below ``reason``, or empty.
        """
        word = detail if reason == "svid_invalid" else reason
        (self._failures.get(word) or self._failures[OTHER]).inc()
        if reason == "svid_invalid":
            self.auth_failed.inc()
            self.denied_svid.inc()
        elif reason in _UNWANTED:
            self.auth_failed.inc()
            self.denied_policy.inc()
        else:
            self.failed.inc()
        if self.role == "server":
            self.closed("handshake")

    def connection_refused(self, reason: str, address: str) -> None:
        """Count a connection that was closed before its handshake by the limit ``reason``."""
        self.failed.inc()
        (self._closed.get(reason) or self._closed[OTHER]).inc()


#: SPIFFE IDs and the times at which their SVIDs expire, read at each scrape.
SvidExpiries = Callable[[], Iterable[tuple[str, datetime]]]


class ProxyMetrics:
    """All families of the proxy; without ``notary`` its families are not shown, so that no alert matches them."""

    def __init__(self, registry: CollectorRegistry, *, notary: bool = True) -> None:
        self._registry = registry
        self._connections = _ConnectionFamilies(registry)
        self._tls = _TlsFamilies(registry)
        self._notary = _NotaryFamilies(registry if notary else CollectorRegistry())
        self._workload = _WorkloadFamilies(registry)
        self._db_errors = {pair: self._notary.db_errors.labels(*pair) for pair in DB_ERRORS}
        self._held = {reason: self._notary.held.labels(reason) for reason in ADMISSION_WAITS}
        self._suppressed = {word: self._connections.suppressed.labels(word) for word in DENIALS}
        self.policies_loaded: Final[Counter] = self._connections.policy_reloads.labels("success")
        self.policies_rejected: Final[Counter] = self._connections.policy_reloads.labels("error")
        self.policy_watch_errors: Final[Counter] = self._connections.policy_watch_errors
        self._expiries: _SvidExpiryCollector | None = None
        self._mqtt: MqttMetrics | None = None

    def mqtt(self) -> MqttMetrics:
        """What all MQTT listeners count; without one its families are not shown."""
        if self._mqtt is None:
            self._mqtt = MqttMetrics(_MqttFamilies(self._registry), self._notary)
        return self._mqtt

    def listener(self, protocol: Protocol, direction: Direction, name: str = "") -> ListenerMetrics:
        """
        The children of a listener; listeners of one protocol and direction share their series.

        Requests and decisions are counted apart for each name, for :attr:`ListenerMetrics.requests`.
        """
        return ListenerMetrics(self._connections, self._tls, protocol, direction, name)

    @property
    def durations(self) -> list[int]:
        """Requests that got a response, by duration: for each of :data:`REQUEST_BUCKETS`, and those above the last."""
        return self._connections.requests.counts()

    @property
    def denied(self) -> int:
        """Decisions against a client or a peer."""
        return self._connections.decisions.total("denied")

    def notary(self, protocol: NotaryProtocol) -> NotaryMetrics:
        return NotaryMetrics(self._notary, protocol)

    def denial_suppressed(self, reason: str, count: int) -> None:
        """Count denials of one precise reason that were not logged one by one."""
        self._suppressed[denial(reason)].inc(count)

    def watch_svids(self, expiries: SvidExpiries) -> None:
        """Show when the current SVIDs expire; replaces an earlier source."""
        if self._expiries is not None:
            self._registry.unregister(self._expiries)
        self._expiries = _SvidExpiryCollector(expiries)
        self._registry.register(self._expiries)

    def watch_workload_api(self, last_contact: Callable[[], datetime | None]) -> None:
        """Show when the Workload API was last connected; ``last_contact`` is called at each scrape."""

        def seconds() -> float:
            instant = last_contact()
            return 0.0 if instant is None else instant.timestamp()

        self._workload.last_contact.set_function(seconds)

    def watch_signing(self, waiting: Callable[[], int]) -> None:
        """Show how many signatures wait; ``waiting`` is called at each scrape."""
        self._notary.waiting.set_function(waiting)

    def watch_admissions(self, waiting: Callable[[], int]) -> None:
        """Show how many admissions wait; ``waiting`` is called at each scrape."""
        self._notary.admissions_waiting.set_function(waiting)

    def admission_held(self, reason: AdmissionWait) -> None:
        self._held[reason].inc()

    # svc.store.interface.StoreObserver

    def db_error(self, op: str, entity: str) -> None:
        (self._db_errors.get((op, entity)) or self._db_errors[op, "db"]).inc()

    def committed(self, count: int, seconds: float) -> None:
        self._notary.commit_seconds.observe(seconds)

    def writable_changed(self, writable: bool) -> None:
        self._notary.writable.set(1 if writable else 0)

    def room_measured(self, octets: int, left: int | None, seconds: float) -> None:
        """Show what the records take, what is left for more, infinite without a bound, and for how long."""
        self._notary.octets.set(octets)
        self._notary.room.set(math.inf if left is None else left)
        self._notary.lasts.set(seconds)


class _ConnectionFamilies:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.connections: Final = Counter(
            "svc_proxy_connections",
            "Connections by how they ended up.",
            ("protocol", "direction", "result"),
            registry=registry,
        )
        self.active: Final = Gauge(
            "svc_proxy_active_connections", "Open connections.", ("protocol", "direction"), registry=registry
        )
        self.received: Final = Counter(
            "svc_proxy_bytes_received",
            "Application octets received from clients.",
            ("protocol",),
            registry=registry,
        )
        self.sent: Final = Counter(
            "svc_proxy_bytes_sent",
            "Application octets forwarded to backends.",
            ("protocol",),
            registry=registry,
        )
        self.closed: Final = Counter(
            "svc_proxy_connections_closed",
            "Connections closed, by what ended them.",
            ("protocol", "cause"),
            registry=registry,
        )
        self.upstream_closed: Final = Counter(
            "svc_proxy_upstream_connections_closed",
            "Connections to peers that the proxy closed for the credentials of one side.",
            ("protocol", "cause"),
            registry=registry,
        )
        self.requests: Final = UnlockedHistogram(
            "svc_proxy_request_duration_seconds",
            "Time from the head of a request to the last octet of its response.",
            ("protocol", "http_method"),
            buckets=REQUEST_BUCKETS,
            registry=registry,
        )
        self.decisions: Final = UnlockedCounter(
            "svc_proxy_auth_decisions",
            "Authorization decisions.",
            ("result", "reason", "protocol", "role"),
            registry=registry,
        )
        self.dry_runs: Final = UnlockedCounter(
            "svc_proxy_policy_dry_run",
            "Decisions that would be made if the policies in dry run were enforced.",
            ("result", "protocol"),
            registry=registry,
        )
        self.policy_reloads: Final = Counter(
            "svc_proxy_policy_reloads",
            "Changed policy files by whether they were applied.",
            ("result",),
            registry=registry,
        )
        text = "Requests to the manager for policies that failed; the next one follows after 5 s."
        self.policy_watch_errors: Final = Counter("svc_proxy_policy_watch_errors", text, registry=registry)
        self.suppressed: Final = Counter(
            "svc_proxy_denial_logs_suppressed",
            "Denials counted but not logged one by one.",
            ("reason",),
            registry=registry,
        )


class _TlsFamilies:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.handshakes: Final = Histogram(
            "svc_proxy_tls_handshake_duration_seconds",
            "Time of mTLS handshakes, validation of the SVID included.",
            ("protocol", "role"),
            buckets=_HANDSHAKE_BUCKETS,
            registry=registry,
        )
        self.handshake_failures: Final = Counter(
            "svc_proxy_tls_handshake_failures",
            "mTLS handshakes that failed, by the precise reason.",
            ("role", "reason"),
            registry=registry,
        )
        self.tls_connections: Final = Counter(
            "svc_proxy_tls_connections",
            "Finished mTLS handshakes by key exchange group.",
            ("protocol", "role", "group", "post_quantum"),
            registry=registry,
        )


class _MqttFamilies:
    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(UnlockedCounter, registry=registry)
        prefix = "svc_proxy_mqtt_"
        text = "Messages with QoS 1 or 2 forwarded to the upstream broker."
        self.stored: Final = counter(f"{prefix}buffer_messages_stored", text, ())
        text = "Messages that became durable in the buffer."
        self.durable: Final = counter(f"{prefix}buffer_messages_durable", text, ())
        name, text = f"{prefix}buffer_messages_queued", "Messages in the buffer."
        self.queued: Final = Gauge(name, text, registry=registry)
        text = "Sessions whose attempts to reach the broker used up the backoff."
        self.replay_failures: Final = counter(f"{prefix}buffer_replay_failures", text, ())
        text = "Further connections to the broker of stored sessions, by result."
        self.reconnections: Final = counter(f"{prefix}upstream_reconnections", text, ("result",))
        text = "Messages acknowledged to clients, by who acknowledged them."
        self.acknowledged: Final = counter(f"{prefix}buffer_messages_acked", text, ("source",))
        text = "Sessions refused by the upstream broker."
        self.rejected: Final = counter(f"{prefix}upstream_connack_rejected", text, ("reason",))
        text = "Statements and receipts for the upstream broker, by what became of them."
        self.artifacts: Final = counter(f"{prefix}artifacts", text, ("kind", "result"))
        text = "Acknowledged messages that the broker will not accept, by cause."
        self.dead_letters: Final = counter(f"{prefix}dead_letters", text, ("cause",))
        text = "Acknowledged messages that the broker will not accept and that are kept."
        self.dead_letters_kept: Final = Gauge(f"{prefix}dead_letters_kept", text, registry=registry)


class _WorkloadFamilies:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.last_contact: Final = Gauge(
            "svc_proxy_workload_api_last_contact_timestamp_seconds",
            "When the Workload API was last there, in seconds since 1970-01-01 UTC; 0 for never.",
            registry=registry,
        )


class _NotaryFamilies:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.records: Final = UnlockedCounter(
            "svc_proxy_notary_records",
            "Records written by the notary.",
            ("result", "protocol"),
            registry=registry,
        )
        self.waiting: Final = Gauge(
            "svc_proxy_notary_signatures_waiting",
            "Receipts that wait for their signatures, or are being signed.",
            registry=registry,
        )
        self.held: Final = UnlockedCounter(
            "svc_proxy_notary_admissions_held",
            "Admissions of records that had to wait.",
            ("reason",),
            registry=registry,
        )
        self.admissions_waiting: Final = Gauge(
            "svc_proxy_notary_admissions_waiting",
            "Admissions of records that wait.",
            registry=registry,
        )
        self.lookups: Final = UnlockedHistogram(
            "svc_proxy_notary_lookup_duration_seconds",
            "Time of requests for statements and receipts, which the notary answers itself.",
            (),
            buckets=REQUEST_BUCKETS,
            registry=registry,
        )
        self.levels: Final = UnlockedCounter(
            "svc_proxy_notary_level",
            "Exchanges by the notarization level in force.",
            ("level",),
            registry=registry,
        )
        self.db_errors: Final = Counter(
            "svc_proxy_notary_db_errors",
            "Errors of the notary database.",
            ("op", "entity"),
            registry=registry,
        )
        self.commit_seconds: Final = Histogram(
            "svc_proxy_notary_commit_duration_seconds",
            "Time of durable group commits of the notary database.",
            buckets=_COMMIT_BUCKETS,
            registry=registry,
        )
        self.writable: Final = Gauge(
            "svc_proxy_notary_writable",
            "1 while new records can be promised a place, else 0.",
            registry=registry,
        )
        self.octets: Final = Gauge("svc_proxy_notary_bytes", "Octets that the records take.", registry=registry)
        text = "Octets that are left for more records."
        self.room: Final = Gauge("svc_proxy_notary_room_bytes", text, registry=registry)
        self.lasts: Final = Gauge(
            "svc_proxy_notary_room_seconds",
            "Seconds until no room is left, at the rate of the last day.",
            registry=registry,
        )
        self.room.set(math.inf)
        self.lasts.set(math.inf)


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

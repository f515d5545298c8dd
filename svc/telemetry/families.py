"""
The metric families of the proxy: names, types, labels, buckets.

Knows nothing of who moves them. Families that only MQTT can move are registered by the MQTT capability.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from svc.telemetry.unlocked import UnlockedCounter, UnlockedHistogram

HANDSHAKE_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
REQUEST_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
COMMIT_BUCKETS: Final = (0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.05, 0.1, 0.5, 1.0, 5.0)


class ConnectionFamilies:
    """
    What connections and requests move.

    Args:
        registry: where the families are registered.
    """

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
        self.suppressed: Final = Counter(
            "svc_proxy_denial_logs_suppressed",
            "Denials counted but not logged one by one.",
            ("reason",),
            registry=registry,
        )


class TlsFamilies:
    """
    What handshakes move.

    Args:
        registry: where the families are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.handshakes: Final = Histogram(
            "svc_proxy_tls_handshake_duration_seconds",
            "Time of mTLS handshakes, validation of the SVID included.",
            ("protocol", "role"),
            buckets=HANDSHAKE_BUCKETS,
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


class WorkloadFamilies:
    """
    What the Workload API moves.

    Args:
        registry: where the families are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.last_contact: Final = Gauge(
            "svc_proxy_workload_api_last_contact_timestamp_seconds",
            "When the Workload API was last there, in seconds since 1970-01-01 UTC; 0 for never.",
            registry=registry,
        )


class NotaryFamilies:
    """
    What the notary and its store move.

    Args:
        registry: where the families are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.records: Final = Counter(
            "svc_proxy_notary_records",
            "Records written by the notary.",
            ("result", "protocol"),
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
            buckets=COMMIT_BUCKETS,
            registry=registry,
        )
        self.writable: Final = Gauge(
            "svc_proxy_notary_writable",
            "1 while new records can be promised a place, else 0.",
            registry=registry,
        )

"""The metric families, letter by letter, and what moves them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.labels import HTTP_METHODS, OTHER, ReasonWords, http_method, tls_group
from svc.telemetry.metrics import ProxyMetrics

#: Name as scraped, type, labels: the table of the specification, then our own.
FAMILIES = {
    "svc_proxy_connections_total": ("counter", ("protocol", "direction", "result")),
    "svc_proxy_active_connections": ("gauge", ("protocol", "direction")),
    "svc_proxy_bytes_received_total": ("counter", ("protocol",)),
    "svc_proxy_bytes_sent_total": ("counter", ("protocol",)),
    "svc_proxy_tls_handshake_duration_seconds": ("histogram", ("protocol", "role")),
    "svc_proxy_request_duration_seconds": ("histogram", ("protocol", "http_method")),
    "svc_proxy_auth_decisions_total": ("counter", ("result", "reason", "protocol", "role")),
    "svc_proxy_notary_records_total": ("counter", ("result", "protocol")),
    "svc_proxy_notary_level_total": ("counter", ("level",)),
    "svc_proxy_notary_db_errors_total": ("counter", ("op", "entity")),
    "svc_proxy_tls_connections_total": ("counter", ("protocol", "role", "group", "post_quantum")),
    "svc_proxy_svid_not_after_seconds": ("gauge", ("spiffe_id",)),
    "svc_proxy_tls_handshake_failures_total": ("counter", ("role", "reason")),
    "svc_proxy_connections_closed_total": ("counter", ("protocol", "cause")),
    "svc_proxy_denial_logs_suppressed_total": ("counter", ("reason",)),
    "svc_proxy_notary_commit_duration_seconds": ("histogram", ()),
    "svc_proxy_notary_writable": ("gauge", ()),
}


@dataclass(frozen=True)
class Evidence:
    group: str
    post_quantum: bool


class MetricsCase(SynchronousTestCase):
    """Metrics in a registry of their own."""

    def setUp(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = ProxyMetrics(self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


class FamilyTests(MetricsCase):
    """Names, types and labels are those of the table."""

    def test_exactly_these(self) -> None:
        """After everything moved once, the page has exactly these families with exactly these labels."""
        listener = self.metrics.listener("http", "inbound")
        listener.handshake_done("server", 0.01, Evidence("X25519MLKEM768", True))
        listener.handshake_failed("server", "svid_invalid", "expired", "192.0.2.1:1", "")
        listener.request_duration(b"GET").observe(0.1)
        listener.closed("idle")
        self.metrics.notary("http")
        self.metrics.db_error("put", "receipt")
        self.metrics.committed(3, 0.001)
        self.metrics.denial_suppressed("policy_deny", 2)
        self.metrics.watch_svids(lambda: [("spiffe://example.org/a", datetime(2026, 11, 21, tzinfo=UTC))])
        found = {}
        for family in text_string_to_metric_families(generate_latest(self.registry).decode()):
            if family.name.endswith("_created"):
                continue
            labels = {name for sample in family.samples for name in sample.labels} - {"le"}
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = (family.type, frozenset(labels))
            self.assertTrue(family.documentation, name)
        self.assertEqual({name: (kind, frozenset(labels)) for name, (kind, labels) in FAMILIES.items()}, found)

    def test_nothing_of_mqtt_before_mqtt(self) -> None:
        """Families that nothing can move yet are not on the page."""
        self.assertNotIn(b"mqtt", generate_latest(self.registry))


class ListenerTests(MetricsCase):
    """A listener's events move its own series."""

    def test_directions_have_roles(self) -> None:
        """Inbound connections are the server's, outbound the client's."""
        self.metrics.listener("http", "inbound").auth_allowed.inc()
        self.metrics.listener("tcp", "outbound").denied_policy.inc()
        name = "svc_proxy_auth_decisions_total"
        self.assertEqual(1, self.value(name, result="allowed", reason="ok", protocol="http", role="server"))
        self.assertEqual(1, self.value(name, result="denied", reason="policy_deny", protocol="tcp", role="client"))

    def test_listeners_share_series(self) -> None:
        """Two listeners of a kind count together."""
        for _number in range(2):
            listener = self.metrics.listener("http", "inbound")
            listener.active.inc()
            listener.succeeded.inc()
            listener.bytes_received.inc(10)
            listener.bytes_sent.inc(5)
        self.assertEqual(2, self.value("svc_proxy_active_connections", protocol="http", direction="inbound"))
        connections = {"protocol": "http", "direction": "inbound", "result": "success"}
        self.assertEqual(2, self.value("svc_proxy_connections_total", **connections))
        self.assertEqual(20, self.value("svc_proxy_bytes_received_total", protocol="http"))
        self.assertEqual(10, self.value("svc_proxy_bytes_sent_total", protocol="http"))

    def test_invalid_svid(self) -> None:
        """A handshake refused for its SVID is a failed handshake, a failed connection and a denial."""
        listener = self.metrics.listener("http", "inbound")
        listener.handshake_started("server")
        listener.handshake_failed("server", "svid_invalid", "expired", "192.0.2.1:1", "certificate_expired")
        failures = "svc_proxy_tls_handshake_failures_total"
        self.assertEqual(1, self.value(failures, role="server", reason="expired"))
        connections = {"protocol": "http", "direction": "inbound"}
        self.assertEqual(1, self.value("svc_proxy_connections_total", result="auth_failed", **connections))
        self.assertEqual(0, self.value("svc_proxy_connections_total", result="error", **connections))
        denied = {"result": "denied", "reason": "svid_invalid", "protocol": "http", "role": "server"}
        self.assertEqual(1, self.value("svc_proxy_auth_decisions_total", **denied))

    def test_other_handshake_failures(self) -> None:
        """A handshake that failed otherwise is an error, not a denial."""
        self.metrics.listener("http", "inbound").handshake_failed("server", "handshake_timeout", "", "a:1", "")
        failures = "svc_proxy_tls_handshake_failures_total"
        self.assertEqual(1, self.value(failures, role="server", reason="handshake_timeout"))
        connections = {"protocol": "http", "direction": "inbound", "result": "error"}
        self.assertEqual(1, self.value("svc_proxy_connections_total", **connections))

    def test_handshakes(self) -> None:
        """A handshake is timed and counted by its group and verdict; unknown groups count as one."""
        listener = self.metrics.listener("http", "inbound")
        for group, verdict in (("X25519MLKEM768", True), ("x25519", False), ("made-up-1", False), ("made-up-2", False)):
            listener.handshake_done("server", 0.003, Evidence(group, verdict))
        timed = {"protocol": "http", "role": "server"}
        self.assertEqual(4, self.value("svc_proxy_tls_handshake_duration_seconds_count", **timed))
        for group, verdict, count in (("X25519MLKEM768", "true", 1), ("x25519", "false", 1), (OTHER, "false", 2)):
            found = self.value("svc_proxy_tls_connections_total", group=group, post_quantum=verdict, **timed)
            self.assertEqual(count, found, group)

    def test_hostile_methods(self) -> None:
        """However many methods a client makes up, they are one series."""
        listener = self.metrics.listener("http", "inbound")
        for number in range(500):
            listener.request_duration(b"M%d" % number).observe(0.1)
        listener.request_duration(b"get").observe(0.1)
        count = "svc_proxy_request_duration_seconds_count"
        self.assertEqual(501, self.value(count, protocol="http", http_method=OTHER))
        self.assertIs(listener.request_duration(b"GET"), listener.request_duration(b"GET"))
        self.assertLessEqual(generate_latest(self.registry).count(b"http_method="), 2 * 20)

    def test_refused_connections(self) -> None:
        """A connection beyond a limit is an error closed by that limit."""
        self.metrics.listener("tcp", "inbound").connection_refused("connection_limit", "192.0.2.1:1")
        closed = "svc_proxy_connections_closed_total"
        self.assertEqual(1, self.value(closed, protocol="tcp", cause="connection_limit"))

    def test_causes_are_bounded(self) -> None:
        """A cause that is no word cannot become a label."""
        listener = self.metrics.listener("http", "inbound")
        listener.closed('x"} 1\n')
        self.assertEqual(1, self.value("svc_proxy_connections_closed_total", protocol="http", cause=OTHER))


class NotaryTests(MetricsCase):
    """What the notary and the store report."""

    def test_records_and_levels(self) -> None:
        """Records and levels have a counter for each value."""
        notary = self.metrics.notary("http")
        notary.records_written.inc()
        notary.records_failed.inc(2)
        notary.level["signRequest"].inc()
        self.assertEqual(1, self.value("svc_proxy_notary_records_total", result="success", protocol="http"))
        self.assertEqual(2, self.value("svc_proxy_notary_records_total", result="error", protocol="http"))
        levels = [self.value("svc_proxy_notary_level_total", level=level) for level in notary.level]
        self.assertEqual([0, 0, 1], levels)

    def test_store(self) -> None:
        """Errors, commits and writability of the store are shown."""
        self.metrics.db_error("get", "workload_statement")
        self.metrics.committed(8, 0.003)
        self.metrics.writable_changed(True)
        self.assertEqual(1, self.value("svc_proxy_notary_db_errors_total", op="get", entity="workload_statement"))
        self.assertEqual(1, self.value("svc_proxy_notary_commit_duration_seconds_count"))
        self.assertEqual(1, self.value("svc_proxy_notary_writable"))
        self.metrics.writable_changed(False)
        self.assertEqual(0, self.value("svc_proxy_notary_writable"))

    def test_svid_expiry_is_read_at_each_scrape(self) -> None:
        """A rotated SVID shows its own end without anybody setting it, a replaced watch only its own."""
        ends = {"spiffe://example.org/a": datetime.fromtimestamp(1000, UTC)}
        self.metrics.watch_svids(lambda: ends.items())
        name = "svc_proxy_svid_not_after_seconds"
        self.assertEqual(1000, self.value(name, spiffe_id="spiffe://example.org/a"))
        ends["spiffe://example.org/a"] = datetime.fromtimestamp(2000, UTC)
        self.assertEqual(2000, self.value(name, spiffe_id="spiffe://example.org/a"))
        self.metrics.watch_svids(list)
        self.assertIsNone(self.value(name, spiffe_id="spiffe://example.org/a"))


class LabelTests(SynchronousTestCase):
    """Bounded sets."""

    def test_methods(self) -> None:
        """Registered methods are themselves, case and all; everything else is other."""
        for name in HTTP_METHODS:
            self.assertEqual(name, http_method(name.encode()))
        for octets in (b"", b"get", b"PROPFIND", b"\xff", b"GET "):
            self.assertEqual(OTHER, http_method(octets))

    def test_groups(self) -> None:
        """Groups are known whatever case the library spells them in."""
        self.assertEqual("X25519MLKEM768", tls_group("x25519mlkem768"))
        self.assertEqual("x25519", tls_group("X25519"))
        self.assertEqual(OTHER, tls_group(""))

    def test_words(self) -> None:
        """As many words as the limit says are told apart; the next, and what is no word, are other."""
        words = ReasonWords(2)
        self.assertEqual(["a", "b", OTHER, "a"], [words.bounded(word) for word in ("a", "b", "c", "a")])
        for wrong in ("", "A", "a b", "9", "x" * 49, "a\n"):
            self.assertEqual(OTHER, ReasonWords().bounded(wrong))

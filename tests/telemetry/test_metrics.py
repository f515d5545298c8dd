"""The metric families, letter by letter, and what moves them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import errors as identity_errors
from svc.sqlite.kind import Operation
from svc.store.interface import Entity
from svc.telemetry.labels import (
    CAUSES,
    CONNACK_REASONS,
    DB_ERRORS,
    DENIALS,
    FOREIGN_CAUSES,
    HANDSHAKE_REASONS,
    HTTP_METHODS,
    OTHER,
    SVID_REASONS,
    TLS_GROUPS,
    Role,
    denial,
    tls_group,
)
from svc.telemetry.metrics import ProxyMetrics
from svc.transport import errors as transport_errors
from svc.transport.groups import CLASSICAL_GROUPS, HYBRID_GROUPS, iana_name, is_hybrid
from svc.wire.mqtt import PacketType, ReasonCode, ReturnCode
from svc.wire.mqtt.codes import REASONS

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
    "svc_proxy_workload_api_last_contact_timestamp_seconds": ("gauge", ()),
    "svc_proxy_tls_handshake_failures_total": ("counter", ("role", "reason")),
    "svc_proxy_connections_closed_total": ("counter", ("protocol", "cause")),
    "svc_proxy_upstream_connections_closed_total": ("counter", ("protocol", "cause")),
    "svc_proxy_denial_logs_suppressed_total": ("counter", ("reason",)),
    "svc_proxy_policy_dry_run_total": ("counter", ("result", "protocol")),
    "svc_proxy_policy_reloads_total": ("counter", ("result",)),
    "svc_proxy_policy_watch_errors_total": ("counter", ()),
    "svc_proxy_notary_commit_duration_seconds": ("histogram", ()),
    "svc_proxy_notary_lookup_duration_seconds": ("histogram", ()),
    "svc_proxy_notary_bytes": ("gauge", ()),
    "svc_proxy_notary_room_bytes": ("gauge", ()),
    "svc_proxy_notary_room_seconds": ("gauge", ()),
    "svc_proxy_notary_signatures_waiting": ("gauge", ()),
    "svc_proxy_notary_admissions_waiting": ("gauge", ()),
    "svc_proxy_notary_admissions_held_total": ("counter", ("reason",)),
    "svc_proxy_notary_writable": ("gauge", ()),
}
#: SVID reasons that no handshake has: roots of the tree, own keys, archives.
ELSEWHERE = {
    "svid_invalid",
    "svid_key_mismatch",
    "certificate_not_valid_at_time",
    "anchor_outside_window",
    "signing_certificate_invalid",
}


@dataclass(frozen=True)
class Evidence:
    group: str


class MetricsCase(SynchronousTestCase):
    """Metrics in a registry of their own."""

    def setUp(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = ProxyMetrics(self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def series(self) -> int:
        """How many series a scrape finds."""
        return sum(not line.startswith(b"#") for line in generate_latest(self.registry).splitlines())


class FamilyTests(MetricsCase):
    """Names, types and labels are those of the table."""

    def test_exactly_these(self) -> None:
        """From the start the page has exactly these families with exactly these labels."""
        for direction in ("inbound", "outbound"):
            self.metrics.listener("http", direction)
        self.metrics.notary("http")
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

    def test_listeners_are_counted_apart(self) -> None:
        """Requests and denials of each listener can be read apart; a scrape adds them up."""
        web, bank = (self.metrics.listener("http", "inbound", name) for name in ("web", "bank"))
        web.request_duration(b"GET").observe(0.002)
        web.request_duration(b"BREW").observe(0.002)
        bank.request_duration(b"GET").observe(99.0)
        bank.denied_policy.inc()
        web.denied_svid.inc(2)
        self.assertEqual(((2, 2), (1, 1)), ((web.requests, web.denied), (bank.requests, bank.denied)))
        self.assertEqual(3, self.metrics.denied)
        self.assertEqual((3, 1), (sum(self.metrics.durations), self.metrics.durations[-1]))
        name = "svc_proxy_request_duration_seconds_count"
        self.assertEqual(2, self.value(name, protocol="http", http_method="GET"))
        # A listener that a reload opens again goes on counting.
        self.assertEqual(2, self.metrics.listener("http", "inbound", "web").requests)

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

    def refused(self, role: Role, reason: str, detail: str = "") -> Iterator[float | None]:
        """Fail a handshake, then read results, decisions and causes."""
        direction = "inbound" if role == "server" else "outbound"
        self.metrics.listener("http", direction).handshake_failed(role, reason, detail, "192.0.2.1:1", "")  # type: ignore[arg-type]
        for result in ("auth_failed", "error"):
            yield self.value("svc_proxy_connections_total", protocol="http", direction=direction, result=result)
        for word in ("svid_invalid", "policy_deny"):
            labels = {"result": "denied", "reason": word, "protocol": "http", "role": role}
            yield self.value("svc_proxy_auth_decisions_total", **labels)
        yield self.value("svc_proxy_connections_closed_total", protocol="http", cause="handshake")

    def test_invalid_svid(self) -> None:
        """A handshake refused for its SVID is a failed handshake, a refused connection, a denial and an end."""
        self.assertEqual([1, 0, 1, 0, 1], list(self.refused("server", "svid_invalid", "expired")))
        failures = "svc_proxy_tls_handshake_failures_total"
        self.assertEqual(1, self.value(failures, role="server", reason="expired"))

    def test_wrong_peer(self) -> None:
        """A peer that is somebody else is denied by the configuration; no client's connection has ended."""
        self.assertEqual([1, 0, 0, 1, 0], list(self.refused("client", "identity_unexpected")))

    def test_other_handshake_failures(self) -> None:
        """A handshake that failed otherwise is an error, not a denial."""
        self.assertEqual([0, 1, 0, 0, 1], list(self.refused("server", "handshake_timeout")))
        failures = "svc_proxy_tls_handshake_failures_total"
        self.assertEqual(1, self.value(failures, role="server", reason="handshake_timeout"))

    def test_handshakes(self) -> None:
        """A handshake is timed and counted by its group and verdict; unknown groups count as one."""
        listener = self.metrics.listener("http", "inbound")
        for group in ("X25519MLKEM768", "X25519", "made-up-1", "made-up-2"):
            listener.handshake_done("server", 0.003, Evidence(group))
        timed = {"protocol": "http", "role": "server"}
        self.assertEqual(4, self.value("svc_proxy_tls_handshake_duration_seconds_count", **timed))
        for group, verdict, count in (("X25519MLKEM768", "true", 1), ("x25519", "false", 1), (OTHER, "false", 2)):
            found = self.value("svc_proxy_tls_connections_total", group=group, post_quantum=verdict, **timed)
            self.assertEqual(count, found, group)
        labels = {"result": "allowed", "reason": "ok", "protocol": "http", "role": "server"}
        self.assertEqual(0, self.value("svc_proxy_auth_decisions_total", **labels))

    def test_verified_peer(self) -> None:
        """Outbound the handshake is the decision: the peer is who it must be."""
        self.metrics.listener("http", "outbound").handshake_done("client", 0.003, Evidence("x25519"))
        labels = {"result": "allowed", "reason": "ok", "protocol": "http", "role": "client"}
        self.assertEqual(1, self.value("svc_proxy_auth_decisions_total", **labels))

    def test_one_result(self) -> None:
        """Each outbound connection has one result, whatever came of it."""
        listener = self.metrics.listener("http", "outbound")
        labels = {"protocol": "http", "direction": "outbound"}

        def finish() -> None:
            listener.handshake_done("client", 0.003, Evidence("x25519"))

        for count, (result, event) in enumerate(
            (
                ("success", lambda: (finish(), listener.upstream_accepted())),
                ("error", lambda: (finish(), listener.handshake_failed("client", "own_svid_refused", "", "a:1", ""))),
                ("auth_failed", lambda: listener.handshake_failed("client", "svid_invalid", "expired", "a:1", "")),
                ("auth_failed", lambda: listener.handshake_failed("client", "identity_unexpected", "", "a:1", "")),
                ("error", lambda: listener.handshake_failed("client", "handshake_timeout", "", "a:1", "")),
                ("error", listener.upstream_unreachable),
                ("error", lambda: listener.connection_refused("credentials_missing", "a:1")),
            ),
            start=1,
        ):
            before = self.value("svc_proxy_connections_total", **labels, result=result) or 0
            event()
            found = {
                word: self.value("svc_proxy_connections_total", **labels, result=word)
                for word in ("success", "auth_failed", "error")
            }
            self.assertEqual((before + 1, count), (found[result], sum(value or 0 for value in found.values())))

    def test_nothing_adds_a_series(self) -> None:
        """Whatever peers make up is counted, and the page has as many series as before."""
        listener = self.metrics.listener("http", "inbound")
        before = self.series()
        for number in range(200):
            listener.request_duration(b"M%d" % number).observe(0.1)
            listener.handshake_done("server", 0.1, Evidence(f"group-{number}"))
            listener.handshake_failed("server", f"reason_{number}", "", "a:1", "")
            listener.handshake_failed("server", "svid_invalid", f'"}} {number}', "a:1", "")
            listener.connection_refused(f"cause_{number}", "a:1")
            self.metrics.denial_suppressed(f"reason_{number}", 1)
            self.metrics.db_error("put", f"entity_{number}")
        self.assertEqual(before, self.series())
        for name, count, labels in (
            ("svc_proxy_request_duration_seconds_count", 200, {"protocol": "http", "http_method": OTHER}),
            ("svc_proxy_tls_handshake_failures_total", 400, {"role": "server", "reason": OTHER}),
            ("svc_proxy_connections_closed_total", 200, {"protocol": "http", "cause": OTHER}),
            ("svc_proxy_denial_logs_suppressed_total", 200, {"reason": "request"}),
            ("svc_proxy_notary_db_errors_total", 200, {"op": "put", "entity": "db"}),
        ):
            self.assertEqual(count, self.value(name, **labels), name)

    def test_methods(self) -> None:
        """Registered methods are counted under their names, case-sensitively; all others under ``other``."""
        listener = self.metrics.listener("http", "inbound")
        for octets in (*(name.encode() for name in HTTP_METHODS), b"", b"get", b"PROPFIND", b"\xff", b"GET "):
            listener.request_duration(octets).observe(0.1)
        for name, count in (*((name, 1) for name in HTTP_METHODS), (OTHER, 5)):
            found = self.value("svc_proxy_request_duration_seconds_count", protocol="http", http_method=name)
            self.assertEqual(count, found, name)

    def test_only_what_can_move(self) -> None:
        """No protocol has series that only events of the other one move."""
        self.metrics.listener("tcp", "inbound")
        requests, closed = "svc_proxy_request_duration_seconds_count", "svc_proxy_connections_closed_total"
        self.assertNotIn(requests.encode() + b"{", generate_latest(self.registry))
        for protocol, others in FOREIGN_CAUSES.items():
            self.metrics.listener(protocol, "inbound")
            found = {each for each in CAUSES if self.value(closed, protocol=protocol, cause=each) is not None}
            self.assertEqual(set(CAUSES) - others, found)
        self.assertEqual(0, self.value(requests, protocol="http", http_method="GET"))

    def test_brokers_refusals(self) -> None:
        """Each code by which a broker refuses a session has a series, by its name in the standards."""
        names = {ReasonCode(code).name for code in REASONS[PacketType.CONNACK] if code}
        names |= {code.name for code in ReturnCode if code}
        self.assertEqual({name.lower() for name in names}, set(CONNACK_REASONS))
        self.assertIs(self.metrics.mqtt(), self.metrics.mqtt())
        self.metrics.mqtt().connack_rejected("not_authorized")
        counter = "svc_proxy_mqtt_upstream_connack_rejected_total"
        self.assertEqual(1, self.value(counter, reason="not_authorized"))
        self.assertEqual(0, self.value(counter, reason="banned"))

    def test_refused_connections(self) -> None:
        """A connection beyond a limit is an error closed by that limit."""
        self.metrics.listener("tcp", "inbound").connection_refused("connection_limit", "192.0.2.1:1")
        closed = "svc_proxy_connections_closed_total"
        self.assertEqual(1, self.value(closed, protocol="tcp", cause="connection_limit"))

    def test_unreachable(self) -> None:
        """A peer that cannot be reached is an error outbound; inbound the connections are those of clients."""
        for direction, count in (("outbound", 1), ("inbound", 0)):
            self.metrics.listener("http", direction).upstream_unreachable()  # type: ignore[arg-type]
            labels = {"protocol": "http", "direction": direction, "result": "error"}
            self.assertEqual(count, self.value("svc_proxy_connections_total", **labels))


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

    def test_room(self) -> None:
        """What records take and what is left are shown; before a measurement, and without a bound, it is infinite."""
        names = ("svc_proxy_notary_bytes", "svc_proxy_notary_room_bytes", "svc_proxy_notary_room_seconds")
        self.assertEqual([0, math.inf, math.inf], [self.value(name) for name in names])
        self.metrics.room_measured(5, 7, 1.5)
        self.assertEqual([5, 7, 1.5], [self.value(name) for name in names])
        self.metrics.room_measured(5, None, math.inf)
        self.assertEqual([5, math.inf, math.inf], [self.value(name) for name in names])

    def test_signing(self) -> None:
        """The signatures that wait are read at each scrape."""
        waiting = [object()]
        self.metrics.watch_signing(waiting.__len__)
        self.assertEqual(1, self.value("svc_proxy_notary_signatures_waiting"))
        waiting.clear()
        self.assertEqual(0, self.value("svc_proxy_notary_signatures_waiting"))

    def test_admissions(self) -> None:
        """Admissions that had to wait are counted by what they wait for; those that wait are read at each scrape."""
        waiting = [object()]
        self.metrics.watch_admissions(waiting.__len__)
        self.metrics.admission_held("place")
        self.metrics.admission_held("place")
        held = [self.value("svc_proxy_notary_admissions_held_total", reason=each) for each in ("place", "rate")]
        self.assertEqual(([2, 0], 1), (held, self.value("svc_proxy_notary_admissions_waiting")))
        waiting.clear()
        self.assertEqual(0, self.value("svc_proxy_notary_admissions_waiting"))

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
    """Closed sets, and the code that their words come from."""

    def test_groups(self) -> None:
        """Groups are those that a context agrees to, with their verdict, whatever case the library spells them in."""
        known = {iana_name(name): is_hybrid(name) for name in (*HYBRID_GROUPS, *CLASSICAL_GROUPS)}
        self.assertEqual(known, TLS_GROUPS)
        self.assertEqual("X25519MLKEM768", tls_group("x25519mlkem768"))
        self.assertEqual("x25519", tls_group("X25519"))
        self.assertEqual(OTHER, tls_group(""))

    def test_svid_reasons(self) -> None:
        """Every reason for which an SVID is invalid is a label value."""
        words = {
            reason
            for each in vars(identity_errors).values()
            if isinstance(each, type) and issubclass(each, identity_errors.SvidInvalid)
            for reason in (each.reason, *each.reasons)
        }
        self.assertEqual(words - ELSEWHERE, SVID_REASONS - {"internal_error"})

    def test_transport_reasons(self) -> None:
        """Every other word for a failed handshake or a refused connection is one of the transport's."""
        words = {
            reason
            for each in vars(transport_errors).values()
            if isinstance(each, type) and issubclass(each, transport_errors.TransportError)
            for reason in (each.reason, *each.reasons)
        }
        own = {OTHER, "certificate_missing"}
        for reasons in HANDSHAKE_REASONS.values():
            self.assertEqual(reasons - SVID_REASONS - own - words, set())
        limits = {cause for cause in CAUSES if cause.endswith("_limit") or cause == "credentials_missing"}
        self.assertEqual(limits - words, set())

    def test_database(self) -> None:
        """Every operation and every entity of a store has a label value, and only those."""
        self.assertEqual({op for op, _ in DB_ERRORS}, set(Operation.__args__))  # type: ignore[attr-defined]
        self.assertEqual({entity for _, entity in DB_ERRORS}, set(Entity.__args__))  # type: ignore[attr-defined]

    def test_denials(self) -> None:
        """Each reason says whose fault it was."""
        for reason, whose in (
            ("expired", "svid_invalid"),
            ("svid_invalid", "svid_invalid"),
            ("certificate_missing", "svid_invalid"),
            ("policy_deny", "policy_deny"),
            ("identity_unexpected", "policy_deny"),
            ("handshake_timeout", "handshake"),
            ("connection_limit", "limit"),
            ("proxy_header_timeout", "limit"),
            ("upstream_closed", "upstream"),
            ("notary_rate", "notary"),
            ("malformed_message", "request"),
            ("unknown_reason", "request"),
        ):
            self.assertEqual(whose, denial(reason), reason)
            self.assertIn(whose, DENIALS)

"""Log records, metrics and audit records of each report, and their rate limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding
from prometheus_client import CollectorRegistry
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from svc.policy.engine import Decision, MatchedRule
from svc.proxy.credential_rotation import CredentialsUnmade
from svc.proxy.observers import (
    DRY_RUN_INTERVAL,
    HELD_INTERVAL,
    MAX_HELD,
    CredentialReports,
    ListenerObserver,
    NotaryStoreReports,
    Reports,
)
from svc.proxy.reporter import ConnectionSummary, ExchangeSummary, MessageSummary, PolicyDecision
from svc.telemetry.events.base import Category, Severity
from svc.telemetry.events.notary import NotaryEvent
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.events.store import StoreEvent
from svc.telemetry.events.workload import WorkloadEvent
from svc.telemetry.health import Health
from svc.telemetry.metrics import ProxyMetrics
from svc.testing.ca import TestAuthority
from svc.transport.errors import (
    HandshakeFailed,
    HandshakeTimeout,
    OwnSvidExpired,
    OwnSvidRefused,
    PeerIdentityUnexpected,
    PeerSvidInvalid,
)
from svc.workload.errors import IdentityWithdrawn, PqIssuerError
from tests.proxy.parts import LoggedEvent, LogTestCase, settings_of
from tests.proxy.records.test_notarizer import GENERATION
from tests.proxy.rig import BASE, CALLER, OWN, evidence_of
from tests.proxy.test_credential_rotation import leaf_of
from tests.proxy.test_decisions import head_of

SUMMARY = ExchangeSummary(
    listener="web",
    direction="inbound",
    peer="spiffe://a/b",
    method=b"G\xc9T",
    path=b"/a\xc9",
    lookup=False,
    status=204,
    request_octets=3,
    response_octets=4,
    seconds=0.12345678,
    level=Level.SIGN_REQUEST,
    recorded=True,
    receipt_id="r" * 43,
    outcome=ExchangeOutcome.COMPLETE,
    decision=PolicyDecision("p", "r", ""),
)
FOREIGN = TestAuthority("foreign.example", now=BASE)
EXPIRED = PeerSvidInvalid(
    address="192.0.2.1:9", alert="certificate_expired", detail="expired", cause="its certificate ended at noon"
)
_DRY_RUN = ("policy", "rule", "result", "repeated")
_FAILURES = "svc_proxy_tls_handshake_failures_total"


class HandshakeTests(SynchronousTestCase):
    """Reports of a failed handshake."""

    def setUp(self) -> None:
        self.events = self.enterContext(capturedLogs())
        self.registry = CollectorRegistry()
        metrics, self.clock = ProxyMetrics(self.registry), Clock()
        self.reports = Reports(metrics, self.clock)
        self.addCleanup(self.reports.close)
        self.observer = ListenerObserver(metrics.listener("http", "inbound"), self.reports, "web")

    def count(self, reason: str) -> float | None:
        """Read the counter of a reason."""
        return self.registry.get_sample_value(_FAILURES, {"role": "server", "reason": reason})

    def fields(self) -> dict[str, Any]:
        """Return the fields of the only record."""
        [event] = [
            each
            for each in self.events
            if getattr(each.get("svc_event"), "event_name", "")
            in ("svc.proxy.handshake.failed", "svc.proxy.auth.denied")
        ]
        fields: dict[str, Any] = event["svc_fields"]
        return fields

    def test_precise_reason(self) -> None:
        """The precise reason below ``svid_invalid`` is counted and logged."""
        self.observer.handshake_failed("server", EXPIRED, "192.0.2.1:9")
        self.assertEqual((1.0, None), (self.count("expired"), self.count("svid_invalid")))
        self.assertEqual("expired", self.fields()["detail_reason"])

    def test_error_text_of_openssl(self) -> None:
        """OpenSSL's error text is logged as the detail; the reason is ours."""
        self.observer.handshake_failed(
            "server", HandshakeFailed(address="192.0.2.1:9", alert="", detail="http request"), "192.0.2.1:9"
        )
        self.assertEqual((1.0, 0.0), (self.count("handshake_failed"), self.count("other")))
        fields = self.fields()
        self.assertEqual("handshake_failed", fields["detail_reason"])
        self.assertIn("http request", fields["detail"])


class ReportsTestCase(LogTestCase):
    """Base class: reports with a manual clock."""

    def setUp(self) -> None:
        """Create the reports."""
        super().setUp()
        self.clock = Clock()
        self.registry = CollectorRegistry()
        self.metrics = ProxyMetrics(self.registry)
        self.reports = Reports(self.metrics, self.clock)

    def value(self, name: str, **labels: str) -> float | None:
        """Read a metric."""
        return self.registry.get_sample_value(name, labels)


class ExchangeReportTests(ReportsTestCase):
    """Denials, failed exchanges and the access log."""

    def test_policy_denial(self) -> None:
        """A denial by the policy is logged as a denied request with the peer and its address."""
        self.reports.denied("policy_deny", "192.0.2.1", "spiffe://a/b", "not permitted here", listener="web")
        record = self.only(ProxyEvent.REQUEST_DENIED)
        self.assertEqual(
            record.fields,
            {
                "reason": "policy_deny",
                "detail_reason": "policy_deny",
                "detail": "not permitted here",
                "peer_spiffe_id": "spiffe://a/b",
            },
        )
        self.assertEqual(record.attributes, {"source.address": "192.0.2.1"})

    def test_counts(self) -> None:
        """Denials by precise reason and failed exchanges are counted, logged or not."""
        for _turn in range(3):
            self.reports.denied("policy_deny", "192.0.2.1", "spiffe://a/b", "not permitted here", listener="web")
            self.reports.exchange_failed("upstream_timeout", "spiffe://a/b", "late")
        self.reports.handshake_failed("server", EXPIRED, "192.0.2.1:9")
        self.reports.connection_refused("connection_limit", "192.0.2.1:9")
        self.assertEqual({"policy_deny": 3, "expired": 1, "connection_limit": 1}, self.reports.denials)
        self.assertEqual(3, self.reports.failed_exchanges)

    def test_revoked(self) -> None:
        """A peer that would now be refused is logged as a revoked connection, with the reason that the metric has."""
        self.reports.denied("chain_untrusted", "192.0.2.1", "spiffe://a/b", "no chain", listener="web")
        record = self.only(ProxyEvent.CONNECTION_REVOKED)
        self.assertEqual((record.fields["reason"], record.fields["detail_reason"]), ("svid_invalid", "chain_untrusted"))

    def test_failed_exchanges(self) -> None:
        """Each failure is logged as the event of its cause: the application, the notary or the client."""
        for reason, event in (
            ("credentials_expired", ProxyEvent.UPSTREAM_FAILED),
            ("identity_withdrawn", ProxyEvent.UPSTREAM_FAILED),
            ("own_svid_refused", ProxyEvent.UPSTREAM_FAILED),
            ("upstream_unreachable", ProxyEvent.UPSTREAM_FAILED),
            ("upstream_closed", ProxyEvent.UPSTREAM_FAILED),
            ("upstream_timeout", ProxyEvent.UPSTREAM_FAILED),
            ("upstream_identity_refused", ProxyEvent.UPSTREAM_FAILED),
            ("upstream_malformed", ProxyEvent.UPSTREAM_MISBEHAVED),
            ("notary_unavailable", NotaryEvent.RECORD_FAILED),
            ("notary_rate", NotaryEvent.NOTARY_OVERLOADED),
            ("replayed", ProxyEvent.REQUEST_REJECTED),
            ("head_too_large", ProxyEvent.REQUEST_REJECTED),
            ("body_too_large", ProxyEvent.REQUEST_REJECTED),
        ):
            self.logged.clear()
            self.reports.exchange_failed(reason, "spiffe://a/b", "what happened")
            record = self.only(event)
            self.assertEqual((record.fields["detail_reason"], record.fields["detail"]), (reason, "what happened"))
            self.assertEqual(record.fields["peer_spiffe_id"], "spiffe://a/b")

    def test_held_back(self) -> None:
        """An identity that is held back is named once in an interval, and every admission is counted."""
        for _ in range(3):
            self.reports.admission_held("spiffe://a/b", "place", 16)
        self.reports.admission_held("spiffe://a/b", "rate", 0)
        self.reports.admission_held("spiffe://a/c", "place", 1)
        first, rate, other = self.of(NotaryEvent.ADMISSIONS_HELD)
        self.assertEqual({"peer_spiffe_id": "spiffe://a/b"}, first.fields)
        self.assertEqual({"reason": "place", "places": 16, "repeated": None}, first.attributes)
        self.assertEqual(("rate", "spiffe://a/c"), (rate.attributes["reason"], other.fields["peer_spiffe_id"]))
        held = "svc_proxy_notary_admissions_held_total"
        self.assertEqual((4, 1), (self.value(held, reason="place"), self.value(held, reason="rate")))
        self.logged.clear()
        self.clock.advance(HELD_INTERVAL)
        self.reports.admission_held("spiffe://a/b", "place", 15)
        self.assertEqual(
            {"reason": "place", "places": 15, "repeated": 2}, self.only(NotaryEvent.ADMISSIONS_HELD).attributes
        )

    def test_many_held_back(self) -> None:
        """Of the identities that are held back so many are remembered; the one that was named first is named again."""
        for number in range(MAX_HELD + 1):
            self.reports.admission_held(f"spiffe://a/{number}", "place", 1)
        self.logged.clear()
        for number in (MAX_HELD, 1, 0):
            self.reports.admission_held(f"spiffe://a/{number}", "place", 1)
        self.assertEqual("spiffe://a/0", self.only(NotaryEvent.ADMISSIONS_HELD).fields["peer_spiffe_id"])

    def test_precise_reason(self) -> None:
        """The precise reason is in ``detail_reason``, the code of the response in an attribute."""
        self.reports.exchange_failed("upstream_identity_refused", "", "it ended at noon", "expired")
        record = self.only(ProxyEvent.UPSTREAM_FAILED)
        self.assertEqual("expired", record.fields["detail_reason"])
        self.assertEqual({"code": "upstream_identity_refused"}, record.attributes)

    def test_caller_without_identity(self) -> None:
        """A caller behind an outbound listener has no identity to log."""
        self.reports.exchange_failed("upstream_closed", "", "it closed")
        self.reports.configure(settings_of(("web", 1), accessLog="on"))
        self.reports.exchange_ended(replace(SUMMARY, peer=""))
        self.assertEqual(len(self.logged), 2)
        for record in self.logged:
            self.assertNotIn("peer_spiffe_id", record.fields)

    def test_access_log(self) -> None:
        """An exchange is logged with all its attributes; the path only if that is configured."""
        attributes = {
            "listener": "web",
            "direction": "inbound",
            "http.request.method": "G\xc9T",
            "http.response.status_code": 204,
            "outcome": "complete",
            "request_octets": 3,
            "response_octets": 4,
            "duration_seconds": 0.123457,
            "level": "signRequest",
            "policy": "p",
            "rule": "r",
            "receipt_id": "r" * 43,
        }
        for value, path in (("on", {}), ("path", {"url.path": "/a\xc9"})):
            self.logged.clear()
            self.reports.configure(settings_of(("web", 1), accessLog=value))
            self.reports.exchange_ended(SUMMARY)
            record = self.only(ProxyEvent.REQUEST_SERVED)
            self.assertEqual(
                {name: each for name, each in record.attributes.items() if each is not None}, attributes | path
            )
            self.assertEqual(record.fields, {"outcome": "success", "peer_spiffe_id": "spiffe://a/b"})

    def test_access_log_of_an_unread_request(self) -> None:
        """A request that could not be parsed has neither method nor path nor duration."""
        self.reports.configure(settings_of(("web", 1), accessLog="path"))
        self.reports.exchange_ended(replace(SUMMARY, method=b"", path=b"", seconds=None, receipt_id=None))
        record = self.only(ProxyEvent.REQUEST_SERVED)
        for name in ("http.request.method", "url.path", "duration_seconds", "receipt_id", "notary_lookup"):
            self.assertIsNone(record.attributes[name], name)

    def test_access_log_of_a_connection(self) -> None:
        """A relayed connection is logged with its cause and the octets of both directions."""
        summary = ConnectionSummary(
            "db", "inbound", "spiffe://a/b", "192.0.2.1", 3, 4, 0.1234567, "client", True, PolicyDecision("p", "r", "")
        )
        self.reports.connection_ended(summary)
        self.reports.connection_ended(replace(summary, complete=False, direction="outbound", decision=None, peer=""))
        first, second = self.of(ProxyEvent.CONNECTION_SERVED)
        attributes = {
            "listener": "db",
            "direction": "inbound",
            "source.address": "192.0.2.1",
            "cause": "client",
            "received_octets": 3,
            "sent_octets": 4,
            "duration_seconds": 0.123457,
            "policy": "p",
            "rule": "r",
            "decision": None,
        }
        self.assertEqual(first.attributes, attributes)
        self.assertEqual(first.fields, {"outcome": "success", "peer_spiffe_id": "spiffe://a/b"})
        self.assertEqual((second.fields, "policy" in second.attributes), ({"outcome": "failure"}, False))

    def test_outcomes(self) -> None:
        """An exchange that did not complete is logged as a failure."""
        self.reports.configure(settings_of(("web", 1), accessLog="on"))
        for outcome in ExchangeOutcome:
            self.logged.clear()
            self.reports.exchange_ended(replace(SUMMARY, outcome=outcome))
            record = self.only(ProxyEvent.REQUEST_SERVED)
            self.assertEqual(record.attributes["outcome"], outcome.value)
            self.assertEqual(record.fields["outcome"] == "success", outcome.value in ("complete", "upgraded"))

    def test_access_log_is_not_rate_limited(self) -> None:
        """Every exchange is logged, and none while the access log is off."""
        self.reports.exchange_ended(SUMMARY)
        self.reports.configure(settings_of(("web", 1), accessLog="on"))
        for _ in range(5):
            self.reports.exchange_ended(SUMMARY)
        self.assertEqual(len(self.of(ProxyEvent.REQUEST_SERVED)), 5)

    def test_one_a_second(self) -> None:
        """One record of a kind is logged each second; suppressed ones are counted and logged as a number."""
        for _ in range(4):
            self.reports.denied("policy_deny", "192.0.2.1", "spiffe://a/b", "no", listener="web")
        self.reports.denied("policy_deny", "192.0.2.2", "spiffe://a/c", "no", listener="web")
        self.assertEqual(len(self.of(ProxyEvent.REQUEST_DENIED)), 2)
        self.clock.advance(1)
        record = self.only(ProxyEvent.DENIALS_SUPPRESSED)
        self.assertEqual(record.fields["detail_reason"], "policy_deny")
        self.assertEqual(record.attributes, {"source.address": "192.0.2.1", "suppressed": 3})
        self.assertEqual(self.value("svc_proxy_denial_logs_suppressed_total", reason="policy_deny"), 3.0)
        self.reports.denied("policy_deny", "192.0.2.1", "spiffe://a/b", "no", listener="web")
        self.assertEqual(len(self.of(ProxyEvent.REQUEST_DENIED)), 3)
        self.reports.close()

    def test_suppressed_of_an_identity(self) -> None:
        """A suppression counted by identity has the identity and no address."""
        for _ in range(3):
            self.reports.exchange_failed("notary_rate", "spiffe://a/b", "no")
        self.clock.advance(1)
        record = self.only(ProxyEvent.DENIALS_SUPPRESSED)
        self.assertEqual(record.fields["peer_spiffe_id"], "spiffe://a/b")
        self.assertEqual({name: value for name, value in record.attributes.items() if value}, {"suppressed": 2})
        for _ in range(2):
            self.reports.denied("expired", "", "spiffe://a/up", "no", listener="web")
        [revoked] = self.of(ProxyEvent.CONNECTION_REVOKED)
        self.assertEqual(
            (revoked.attributes, revoked.fields["peer_spiffe_id"]), ({"source.address": None}, "spiffe://a/up")
        )
        self.reports.close()

    def test_each_kind_is_rate_limited(self) -> None:
        """Failed exchanges are limited by peer, handshakes by address, connection limits together."""
        for number in range(3):
            self.reports.exchange_failed("upstream_closed", "spiffe://a/b", "no")
            self.reports.handshake_failed("server", EXPIRED, f"192.0.2.1:{number + 1}", listener="web")
            self.reports.connection_refused("connection_limit", f"192.0.2.{number}")
            self.reports.evicted("evicted_idle", f"192.0.2.{number}", "spiffe://a/b", "full")
            self.reports.connection_aborted("key_update_limit", f"192.0.2.1:{number + 1}")
        limited = (
            ProxyEvent.UPSTREAM_FAILED,
            ProxyEvent.AUTH_DENIED,
            ProxyEvent.CONNECTION_REFUSED,
            ProxyEvent.CONNECTION_EVICTED,
            ProxyEvent.CONNECTION_ABORTED,
        )
        for event in limited:
            self.assertEqual(len(self.of(event)), 1)
        self.reports.close()

    def test_close(self) -> None:
        """Closing logs the suppressed counts and leaves no delayed call."""
        for _ in range(2):
            self.reports.denied("policy_deny", "192.0.2.1", "spiffe://a/b", "no", listener="web")
        self.reports.close()
        self.assertEqual(self.only(ProxyEvent.DENIALS_SUPPRESSED).attributes["suppressed"], 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class AuditTests(ReportsTestCase):
    """Access attempts in the audit chain."""

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(self.reports.close)

    def audited(self) -> list[LoggedEvent]:
        """Return the audit records."""
        return [each for each in self.logged if each.event.category is Category.AUDIT]

    def test_decision(self) -> None:
        """Both records of a denied request have policy, rule and the id of the answer."""
        self.reports.denied(
            "policy_deny", "192.0.2.1", "spiffe://a/b", "no", listener="web", decision=PolicyDecision("p", "r", "id1")
        )
        expected = {"policy": "p", "rule": "r", "decision": "id1"}
        for record in self.logged:
            self.assertEqual(expected, {name: record.attributes.get(name) for name in expected})
        self.assertEqual([ProxyEvent.REQUEST_DENIED, ProxyEvent.ACCESS_DENIED], [each.event for each in self.logged])

    def test_audit_policy(self) -> None:
        """Each permitted request that an Audit rule matches has a record, of refused ones one a second."""
        request, matched = head_of(line=b"GET /a?b HTTP/1.1"), MatchedRule("p", "r")
        for permitted in (True, True, False, False):
            self.reports.audited("spiffe://a/b", matched, permitted=permitted, listener="web", request=request)
        self.assertEqual([ProxyEvent.POLICY_AUDITED] * 3, [each.event for each in self.audited()])
        self.assertEqual(["success", "success", "failure"], [each.fields["outcome"] for each in self.audited()])
        attributes = {"listener": "web", "policy": "p", "rule": "r", "http.request.method": "GET", "url.path": "/a"}
        self.assertEqual(attributes, self.audited()[0].attributes)
        self.reports.configure(settings_of(("web", 1), auditLog="off"))
        self.logged.clear()
        self.reports.audited("spiffe://a/b", matched, permitted=True, listener="web", request=request)
        self.assertEqual([], self.logged)

    def test_dry_run(self) -> None:
        """What a dry run would change is logged once in ten seconds for each client and rule."""
        decision = Decision(False, (MatchedRule("p", "r"),))
        for _ in range(3):
            self.reports.dry_run_differs("spiffe://a/b", decision, listener="web", request=head_of())
        self.clock.advance(DRY_RUN_INTERVAL)
        self.reports.dry_run_differs("spiffe://a/b", decision, listener="web", request=head_of())
        first, second = self.of(ProxyEvent.POLICY_DRY_RUN)
        self.assertEqual(("p", "r", "denied", None), tuple(first.attributes[name] for name in _DRY_RUN))
        self.assertEqual(2, second.attributes["repeated"])

    def test_denied_request(self) -> None:
        """A denied request is audited with peer, method and path, but without the query."""
        request = head_of(line=b"GET http://api/a?token=hunter2 HTTP/1.1")
        self.reports.denied("policy_deny", "192.0.2.1", "spiffe://a/b", "no", listener="web", request=request)
        [record] = self.audited()
        self.assertIs(record.event, ProxyEvent.ACCESS_DENIED)
        self.assertEqual(
            record.fields,
            {
                "reason": "policy_deny",
                "detail_reason": "policy_deny",
                "detail": "no",
                "user": "spiffe://a/b",
                "peer_spiffe_id": "spiffe://a/b",
            },
        )
        self.assertEqual(
            record.attributes,
            {
                "source.address": "192.0.2.1",
                "listener": "web",
                "http.request.method": "GET",
                "url.path": "/a",
                "http.response.status_code": 403,
            },
        )

    def test_denied_connections(self) -> None:
        """A refused or revoked connection is audited; a peer that was not verified is not named as user."""
        self.reports.denied("chain_untrusted", "192.0.2.1", "spiffe://a/b", "no chain", listener="web")
        observer = ListenerObserver(self.metrics.listener("http", "inbound"), self.reports, "web")
        observer.handshake_failed("server", EXPIRED, "192.0.2.1:9")
        observer.handshake_failed("server", HandshakeTimeout(address="192.0.2.1:9", seconds=10), "192.0.2.1:9")
        revoked, refused, failed = self.audited()
        self.assertEqual(revoked.fields["user"], "spiffe://a/b")
        self.assertNotIn("url.path", revoked.attributes)
        for record, reason in ((refused, "expired"), (failed, "handshake_timeout")):
            self.assertNotIn("user", record.fields)
            self.assertEqual((record.fields["detail_reason"], record.attributes["listener"]), (reason, "web"))
            self.assertEqual(record.attributes["role"], "server")

    def test_failures_are_no_access_attempts(self) -> None:
        """Failures for other reasons than the identity of the peer are not audited."""
        self.reports.configure(settings_of(("web", 1), auditLog="all"))
        self.reports.exchange_failed("upstream_closed", "spiffe://a/b", "no")
        self.reports.connection_refused("connection_limit", "192.0.2.1")
        self.reports.evicted("evicted_idle", "192.0.2.1", "spiffe://a/b", "full")
        self.reports.connection_aborted("key_update_limit", "192.0.2.1:9")
        self.assertEqual(self.audited(), [])

    def test_suppressed(self) -> None:
        """Denials pass the rate limiter of the log; the suppressed count is audited for denials only."""
        for _ in range(4):
            self.reports.denied("policy_deny", "192.0.2.1", "spiffe://a/b", "no", listener="web")
            self.reports.exchange_failed("upstream_closed", "spiffe://a/b", "no")
        self.clock.advance(1)
        denied, suppressed = self.audited()
        self.assertEqual((denied.event, suppressed.event), (ProxyEvent.ACCESS_DENIED, ProxyEvent.ACCESS_SUPPRESSED))
        self.assertEqual(suppressed.fields, {"detail_reason": "policy_deny"})
        self.assertEqual(suppressed.attributes, {"source.address": "192.0.2.1", "suppressed": 3})
        self.assertEqual(len(self.of(ProxyEvent.DENIALS_SUPPRESSED)), 2)

    def test_off(self) -> None:
        """With ``off`` denials are only logged, and the suppressed count is not audited."""
        self.reports.configure(settings_of(("web", 1), auditLog="off"))
        for _ in range(2):
            self.reports.denied("policy_deny", "192.0.2.1", "spiffe://a/b", "no", listener="web")
            self.reports.handshake_failed("server", EXPIRED, "192.0.2.1:9", listener="web")
        self.reports.exchange_ended(SUMMARY)
        self.reports.close()
        self.assertEqual(self.audited(), [])
        self.assertEqual(len(self.of(ProxyEvent.REQUEST_DENIED)), 1)

    def test_turned_off(self) -> None:
        """Turning the audit off audits the count suppressed until then, and nothing after it."""
        for value in ("denials", "off"):
            self.reports.configure(settings_of(("web", 1), auditLog=value))
            for _ in range(3):
                self.reports.denied("policy_deny", "192.0.2.1", "spiffe://a/b", "no", listener="web")
        self.clock.advance(1)
        denied, suppressed = self.audited()
        self.assertEqual((denied.event, suppressed.attributes["suppressed"]), (ProxyEvent.ACCESS_DENIED, 2))
        self.assertEqual([each.attributes["suppressed"] for each in self.of(ProxyEvent.DENIALS_SUPPRESSED)], [2, 2])

    def test_recorded_exchanges(self) -> None:
        """With ``all`` each recorded exchange is audited, whatever the access log is, and no other exchange."""
        for value, count in (("off", 0), ("denials", 0), ("all", 1)):
            self.logged.clear()
            self.reports.configure(settings_of(("web", 1), auditLog=value))
            self.reports.exchange_ended(SUMMARY)
            self.reports.exchange_ended(replace(SUMMARY, recorded=False, receipt_id=None))
            self.assertEqual(len(self.logged), count)
        [record] = self.audited()
        self.assertIs(record.event, ProxyEvent.ACCESS_RECORDED)
        who = {"outcome": "success", "user": "spiffe://a/b", "peer_spiffe_id": "spiffe://a/b"}
        self.assertEqual(record.fields, who)
        self.assertEqual(
            {name: record.attributes[name] for name in ("listener", "url.path", "outcome", "receipt_id", "level")},
            {
                "listener": "web",
                "url.path": "/a\xc9",
                "outcome": "complete",
                "receipt_id": "r" * 43,
                "level": "signRequest",
            },
        )

    def test_recorded_messages(self) -> None:
        """A message of MQTT with a record is audited with its topic."""
        self.reports.configure(settings_of(("web", 1), auditLog="all"))
        summary = MessageSummary(
            listener="iot",
            peer="spiffe://a/b",
            topic="meters/1",
            qos=1,
            octets=4,
            level=Level.SIGN_REQUEST,
            seconds=0.5,
            code=0,
            receipt_id="r" * 43,
            outcome=ExchangeOutcome.COMPLETE,
        )
        self.reports.message_recorded(summary)
        self.reports.message_recorded(replace(summary, receipt_id=None))
        written, lost = self.audited()
        self.assertIs(written.event, ProxyEvent.ACCESS_RECORDED)
        who = {"outcome": "success", "user": "spiffe://a/b", "peer_spiffe_id": "spiffe://a/b"}
        self.assertEqual((written.fields, lost.fields), (who, {**who, "outcome": "failure"}))
        self.assertEqual(
            ("meters/1", 1, 0), tuple(written.attributes[f"mqtt.{name}"] for name in ("topic", "qos", "reason_code"))
        )

    def test_lost_records(self) -> None:
        """An exchange whose record was lost is audited as a failure."""
        self.reports.configure(settings_of(("web", 1), auditLog="all"))
        self.reports.exchange_ended(replace(SUMMARY, receipt_id=None, outcome=ExchangeOutcome.SERVER_ABORTED))
        [record] = self.audited()
        self.assertEqual((record.fields["outcome"], record.attributes["receipt_id"]), ("failure", None))


class ListenerObserverTests(ReportsTestCase):
    """Reports from the TLS layer of one listener."""

    def setUp(self) -> None:
        """Create an inbound and an outbound listener."""
        super().setUp()
        self.addCleanup(self.reports.close)
        self.inbound = ListenerObserver(self.metrics.listener("http", "inbound"), self.reports, "web")
        self.outbound = ListenerObserver(self.metrics.listener("http", "outbound"), self.reports, "bank")

    def test_done(self) -> None:
        """A finished handshake is timed and counted by its group, with the role of this process."""
        self.inbound.handshake_started("server")
        self.inbound.handshake_done("server", 0.02, evidence_of(CALLER))
        self.outbound.handshake_done("client", 0.02, evidence_of(CALLER))
        for role in ("server", "client"):
            labels = {"protocol": "http", "role": role}
            self.assertEqual(self.value("svc_proxy_tls_handshake_duration_seconds_count", **labels), 1.0)
            labels |= {"group": "X25519MLKEM768", "post_quantum": "true"}
            self.assertEqual(self.value("svc_proxy_tls_connections_total", **labels), 1.0)
        self.assertEqual(self.logged, [])

    def test_svid_refused(self) -> None:
        """A refused SVID is a failed connection with an identity reason, and a policy decision."""
        self.inbound.handshake_failed("server", EXPIRED, "192.0.2.1:9")
        connections = {"protocol": "http", "direction": "inbound"}
        self.assertEqual(self.value("svc_proxy_connections_total", **connections, result="auth_failed"), 1.0)
        self.assertEqual(self.value("svc_proxy_connections_total", **connections, result="error"), 0.0)
        decision = {"result": "denied", "reason": "svid_invalid", "protocol": "http", "role": "server"}
        self.assertEqual(self.value("svc_proxy_auth_decisions_total", **decision), 1.0)
        self.assertEqual(self.of(ProxyEvent.HANDSHAKE_FAILED), [])
        record = self.only(ProxyEvent.AUTH_DENIED)
        fields = {"reason": "svid_invalid", "detail_reason": "expired", "detail": str(EXPIRED)}
        self.assertEqual(record.fields, fields)
        self.assertEqual(
            record.attributes,
            {"source.address": "192.0.2.1:9", "role": "server", "tls.alert": "certificate_expired"},
        )

    def test_claimed_identity(self) -> None:
        """A refused peer is logged with the identity in its certificate, in a field for unverified identities."""
        error = PeerSvidInvalid(address="192.0.2.1:9", alert="", detail="chain_untrusted", cause="no root")
        error.presented_leaf = FOREIGN.svid("/x").leaf.public_bytes(Encoding.DER)
        self.inbound.handshake_failed("server", error, "192.0.2.1:9")
        fields = self.only(ProxyEvent.AUTH_DENIED).fields
        self.assertEqual("spiffe://foreign.example/x", fields["claimed_spiffe_id"])
        self.assertNotIn("peer_spiffe_id", fields)

    def test_unexpected_identity(self) -> None:
        """A peer with an unexpected identity gives one security event with both identities, and a policy decision."""
        found, wanted = "spiffe://example.org/b", "spiffe://example.org/a"
        error = PeerIdentityUnexpected(address="192.0.2.1:9", alert="", spiffe_id=found, expected=wanted)
        self.outbound.handshake_failed("client", error, "192.0.2.1:9")
        self.assertEqual(self.of(ProxyEvent.HANDSHAKE_FAILED), [])
        record = self.only(ProxyEvent.AUTH_DENIED)
        self.assertEqual(
            ("policy_deny", "identity_unexpected"), (record.fields["reason"], record.fields["detail_reason"])
        )
        self.assertEqual((found, wanted), (record.fields["peer_spiffe_id"], record.attributes["expected_spiffe_id"]))
        self.assertNotIn("claimed_spiffe_id", record.fields)

    def test_own_svid_refused(self) -> None:
        """A server that refuses our SVID gives a failed handshake; its record has the expiry of the SVID."""
        ends = "2031-05-04T13:00:00+00:00"
        for kind, reason in ((OwnSvidRefused, "own_svid_refused"), (OwnSvidExpired, "credentials_expired")):
            self.logged.clear()
            error = kind(address="192.0.2.1:9", alert="a", detail="", spiffe_id="spiffe://a/b", ends=ends)
            self.outbound.handshake_failed("client", error, "192.0.2.1:9")
            failures = "svc_proxy_tls_handshake_failures_total"
            self.assertEqual(1.0, self.value(failures, role="client", reason=reason))
            record = self.only(ProxyEvent.HANDSHAKE_FAILED)
            self.assertEqual(reason, record.fields["detail_reason"])
            self.assertIn(ends, record.fields["detail"])

    def test_other_failures(self) -> None:
        """Any other failure is an error and not a decision; it has no decision reason."""
        self.inbound.handshake_failed("server", HandshakeTimeout(address="192.0.2.1:9", seconds=10), "192.0.2.1:9")
        connections = {"protocol": "http", "direction": "inbound"}
        self.assertEqual(self.value("svc_proxy_connections_total", **connections, result="error"), 1.0)
        decision = {"result": "denied", "reason": "svid_invalid", "protocol": "http", "role": "server"}
        self.assertEqual(self.value("svc_proxy_auth_decisions_total", **decision), 0.0)
        record = self.only(ProxyEvent.HANDSHAKE_FAILED)
        self.assertEqual(record.fields["detail_reason"], "handshake_timeout")
        self.assertNotIn("reason", record.fields)

    def test_limit(self) -> None:
        """A connection over a limit is counted and logged."""
        self.inbound.connection_refused("connection_limit", "192.0.2.1")
        connections = {"protocol": "http", "direction": "inbound", "result": "error"}
        self.assertEqual(self.value("svc_proxy_connections_total", **connections), 1.0)
        closed = {"protocol": "http", "cause": "connection_limit"}
        self.assertEqual(self.value("svc_proxy_connections_closed_total", **closed), 1.0)
        record = self.only(ProxyEvent.CONNECTION_REFUSED)
        self.assertEqual(record.fields, {"detail_reason": "connection_limit"})
        self.assertEqual(record.attributes, {"source.address": "192.0.2.1"})

    def test_aborted(self) -> None:
        """A connection that a TLS limit closed is logged; its own protocol counts the cause, once."""
        self.inbound.connection_aborted("key_update_limit", "192.0.2.1:9")
        record = self.only(ProxyEvent.CONNECTION_ABORTED)
        self.assertEqual(record.fields, {"detail_reason": "key_update_limit"})
        self.assertEqual(record.attributes, {"source.address": "192.0.2.1:9"})
        closed = {"protocol": "http", "cause": "key_update_limit"}
        self.assertEqual(self.value("svc_proxy_connections_closed_total", **closed), 0.0)


class CredentialReportsTests(LogTestCase):
    """Reports of issued, failed and withdrawn credentials."""

    def setUp(self) -> None:
        """Create a health page with an unset condition."""
        super().setUp()
        self.health = Health(("credentials", "pqIssuer"), optional=("pqIssuer",), now=lambda: BASE)
        self.reports = CredentialReports(self.health)

    def test_issued(self) -> None:
        """New credentials make the condition hold and are logged with identity and expiry."""
        self.reports.credentials_issued(GENERATION)
        self.assertTrue(self.health.ready)
        record = self.only(NotaryEvent.GENERATION_ISSUED)
        self.assertEqual(record.fields, {"spiffe_id": str(GENERATION.spiffe_id)})
        self.assertEqual(
            record.attributes,
            {
                "statement_id": GENERATION.statement.id,
                "issuer": str(GENERATION.spiffe_id),
                "not_after": GENERATION.expires.isoformat(),
                "profile": "classical",
            },
        )

    def test_failed(self) -> None:
        """A failure before the first credentials gives the condition its reason; a later one does not change it."""
        self.reports.credentials_failed(CredentialsUnmade(what="ValueError"))
        found = self.health.condition("credentials")
        self.assertEqual((found.holds, found.reason), (False, "internal_error"))
        self.assertEqual(found.message, "new credentials could not be made: ValueError")
        record = self.only(NotaryEvent.GENERATION_FAILED)
        self.assertEqual(
            record.fields,
            {"detail_reason": "internal_error", "detail": "new credentials could not be made: ValueError"},
        )
        self.reports.credentials_issued(GENERATION)
        self.reports.credentials_failed(CredentialsUnmade(what="KeyError"))
        self.assertTrue(self.health.ready)

    def test_repeated_failures_are_rate_limited(self) -> None:
        """Repeated failures are logged at the first, second, fourth, eighth time; a success resets the count."""
        for _attempt in range(10):
            self.reports.credentials_failed(CredentialsUnmade(what="ValueError"))
        attempts = [each.attributes["attempts"] for each in self.of(NotaryEvent.GENERATION_FAILED)]
        self.assertEqual(attempts, [1, 2, 4, 8])
        self.reports.credentials_issued(GENERATION)
        self.reports.credentials_failed(CredentialsUnmade(what="ValueError"))
        self.assertEqual(len(self.of(NotaryEvent.GENERATION_FAILED)), 5)

    def test_leaf(self) -> None:
        """A leaf and its absence are logged with their attributes; the condition follows."""
        error = PqIssuerError("pq_issuer_unavailable", address="unix:///pq.sock", what="no such file")
        for _attempt in range(3):
            self.reports.leaf_failed(error)
        failed = self.of(WorkloadEvent.PQ_LEAF_FAILED)
        self.assertEqual([each.attributes for each in failed], [{"attempts": 1}, {"attempts": 2}])
        self.assertEqual(failed[0].fields, {"detail_reason": "pq_issuer_unavailable", "detail": str(error)})
        self.assertEqual(self.health.condition("pqIssuer").reason, "pq_issuer_unavailable")
        leaf = leaf_of(OWN)
        self.reports.leaf_obtained(leaf)
        self.assertTrue(self.health.condition("pqIssuer").holds)
        record = self.only(WorkloadEvent.PQ_LEAF_OBTAINED)
        self.assertEqual(record.attributes, {"not_after": leaf.not_after.isoformat(), "algorithm": "ML-DSA-65"})

    def test_issuer_between_renewals(self) -> None:
        """An unreachable issuer fails the condition, logged once; a leaf that it refused stays refused."""
        lost = PqIssuerError("pq_issuer_unavailable", address="unix:///pq.sock", what="no such file")
        self.reports.leaf_obtained(leaf_of(OWN))
        for _attempt in range(3):
            self.reports.issuer_reached(lost)
        found = self.health.condition("pqIssuer")
        self.assertEqual((found.holds, found.reason, found.message), (False, "pq_issuer_unavailable", str(lost)))
        self.assertEqual(self.only(WorkloadEvent.PQ_ISSUER_UNREACHABLE).fields["detail"], str(lost))
        self.reports.issuer_reached(None)
        self.assertTrue(self.health.condition("pqIssuer").holds)
        self.only(WorkloadEvent.PQ_ISSUER_REACHABLE)
        refused = PqIssuerError("pq_issuer_refused", address="unix:///pq.sock", status=403, code="no")
        self.reports.leaf_failed(refused)
        self.reports.issuer_reached(lost)
        self.reports.issuer_reached(None)
        self.assertEqual(self.health.condition("pqIssuer").reason, "pq_issuer_refused")
        self.reports.leaf_obtained(leaf_of(OWN))
        self.reports.issuer_reached(None)
        self.assertTrue(self.health.condition("pqIssuer").holds)

    def test_withdrawn(self) -> None:
        """A withdrawn identity ends the credentials condition; the log has the identity."""
        self.reports.credentials_issued(GENERATION)
        self.reports.identity_ended(IdentityWithdrawn(socket="unix:///s", spiffe_id="spiffe://a/b", what="no"))
        self.assertEqual(
            (self.health.condition("credentials").reason, self.health.ready), ("identity_withdrawn", False)
        )
        record = self.only(NotaryEvent.IDENTITY_ENDED)
        self.assertEqual(record.fields["detail_reason"], "identity_withdrawn")
        self.assertIn("spiffe://a/b", record.fields["detail"])
        self.reports.credentials_issued(GENERATION)
        self.assertTrue(self.health.ready)


class StoreReportsTests(ReportsTestCase):
    """Reports of the notary database."""

    def setUp(self) -> None:
        """Create a health page with the store condition."""
        super().setUp()
        self.health = Health(("store",), now=lambda: BASE)
        self.store = NotaryStoreReports(self.metrics, self.health, "notary.db")

    def test_error(self) -> None:
        """An error is counted and logged by operation and entity."""
        self.store.db_error("put", "receipt")
        self.assertEqual(self.value("svc_proxy_notary_db_errors_total", op="put", entity="receipt"), 1.0)
        record = self.only(StoreEvent.FAILED)
        self.assertEqual(
            (record.attributes, record.fields.get("detail")),
            ({"op": "put", "entity": "receipt", "path": "notary.db"}, None),
        )
        self.store.db_error("put", "db", "too many connections for role")
        self.assertEqual(self.of(StoreEvent.FAILED)[-1].fields["detail"], "too many connections for role")

    def test_committed(self) -> None:
        """Commits are timed and not logged."""
        self.store.committed(3, 0.002)
        self.assertEqual(self.value("svc_proxy_notary_commit_duration_seconds_count"), 1.0)
        self.assertEqual(self.logged, [])

    def test_writable(self) -> None:
        """While the store is not writable the proxy is not ready, and the condition has the reason."""
        self.store.writable_changed(True)
        self.assertTrue(self.health.ready)
        self.assertEqual(self.value("svc_proxy_notary_writable"), 1.0)
        trouble = "disk full, 0 octets free on its file system: database or disk is full"
        self.store.writable_changed(False, trouble)
        [condition] = self.health.conditions
        self.assertEqual((condition.holds, condition.reason), (False, "notary_unavailable"))
        self.assertEqual(condition.message, f"the notary database notary.db takes no records: {trouble}")
        record = self.only(StoreEvent.READ_ONLY)
        self.assertEqual((record.fields["detail"], record.attributes), (trouble, {"path": "notary.db"}))
        self.assertEqual(self.value("svc_proxy_notary_writable"), 0.0)
        self.store.writable_changed(True)
        self.assertTrue(self.health.ready)
        self.assertEqual(
            [record.event for record in self.logged], [StoreEvent.OPENED, StoreEvent.READ_ONLY, StoreEvent.WRITABLE]
        )

    def test_end(self) -> None:
        """An orderly close of the database is not a failure."""
        self.store.writable_changed(True)
        self.store.closing()
        self.store.writable_changed(False)
        self.assertEqual([record.event for record in self.logged], [StoreEvent.OPENED])
        self.store.closed()
        self.assertEqual([record.event for record in self.logged], [StoreEvent.OPENED, StoreEvent.CLOSED])
        self.assertTrue(self.health.ready)

    def test_close_without_open(self) -> None:
        """A database that was never opened is not logged as closed."""
        self.store.closing()
        self.store.closed()
        self.assertEqual(self.logged, [])

    def test_damage(self) -> None:
        """Damage is logged with the path, a renamed database with both paths, quarantined ones at each start."""
        self.store.damaged("/n.db")
        self.store.set_aside("/n.db", "/n.db.corrupt-1")
        self.store.lies_aside(["/n.db.corrupt-1", "/n.db.corrupt-2"])
        self.assertEqual(
            [(record.event, record.attributes) for record in self.logged],
            [
                (StoreEvent.DAMAGED, {"path": "/n.db"}),
                (StoreEvent.SET_ASIDE, {"path": "/n.db", "aside": "/n.db.corrupt-1"}),
                (StoreEvent.LIES_ASIDE, {"databases": 2, "newest": "/n.db.corrupt-2"}),
            ],
        )
        self.assertEqual(
            [Severity.ERROR, Severity.ERROR, Severity.WARN], [record.event.severity for record in self.logged]
        )

    def test_pruned(self) -> None:
        """Pruned records are logged by their number."""
        self.store.pruned(7)
        self.assertEqual(self.only(StoreEvent.PRUNED).attributes, {"records": 7})

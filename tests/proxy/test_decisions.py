"""Pure decisions: notary headers, time limits, callers, and what a reload changes."""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.ids import parse_nonce
from svc.identity import ExactID
from svc.notary.level import Level
from svc.policy import Denied, Permit
from svc.policy.attributes import Attributes, AttributeSource
from svc.policy.denylist import DenyList
from svc.policy.engine import MatchedRule
from svc.policy.paths import HostPattern, RequestAmbiguous
from svc.policy.rules import (
    Action,
    AuthorizationPolicy,
    Patterns,
    Rule,
    RuleCondition,
    RuleTarget,
    Source,
    Values,
)
from svc.policyfiles.settings import Policies
from svc.proxy.config import ListenerSettings, ProxySettings
from svc.proxy.connection_settings import TimeoutSettings
from svc.proxy.errors import LevelInvalid, ProxyError, RequestRefused, RequestTimeout, UpstreamTimeout
from svc.proxy.http.caller import PlainCaller, VerifiedCaller, asked_level, given_nonce
from svc.proxy.http.exchange import overdue
from svc.proxy.records.notarizer import Reservation
from svc.proxy.reload import RELOADABLE, RestartNeeded, plan_reload
from svc.settings import parse
from svc.strictjson import b64u_encode
from svc.wire.forwarded import ForwardedHop
from svc.wire.http1 import RequestHead, RequestParser
from tests.proxy.parts import settings_of
from tests.proxy.policies import admit_domain, admit_nobody, allow_paths, path_rule, policy
from tests.proxy.records.test_notarizer import GENERATION
from tests.proxy.rig import CALLER, OWN, Rig, evidence_of
from tests.refusals import assert_refused

NONCE = b64u_encode(bytes(16))
DECISIONS = "svc_proxy_auth_decisions_total"
CONNECTIONS = "svc_proxy_connections_total"
RESULTS = ("success", "auth_failed")


def head_of(lines: bytes = b"", *, line: bytes = b"GET /a?b HTTP/1.1", host: bytes = b"api") -> RequestHead:
    """Parse the head of a request with these field lines."""
    [head, *_rest] = RequestParser().feed(b"%b\r\nHost: %b\r\n%b\r\n" % (line, host, lines))
    assert isinstance(head, RequestHead), head
    return head


class NotaryHeaderTests(SynchronousTestCase):
    """Notary headers of a request."""

    def test_levels(self) -> None:
        """Three levels can be requested; without the header none is requested."""
        self.assertIs(asked_level(head_of()), Level.NONE)
        for value, level in (
            (b"workload", Level.WORKLOAD),
            (b"logRequest", Level.LOG_REQUEST),
            (b"signRequest", Level.SIGN_REQUEST),
        ):
            self.assertIs(asked_level(head_of(b"Svc-Notarization-Level: %b\r\n" % value)), level)

    def test_wrong_levels(self) -> None:
        """Every other value is refused, ``none`` too, so that no client relies on a level that is ignored."""
        for value in (b"none", b"", b"Workload", b"signrequest", b"signRequest, workload", b"sign\xffRequest", b"1"):
            head = head_of(b"Svc-Notarization-Level: %b\r\n" % value)
            self.assertRaises(LevelInvalid, asked_level, head)

    def test_nonce(self) -> None:
        """A nonce is 22 characters of canonical base64url, or absent."""
        self.assertIsNone(given_nonce(head_of()))
        self.assertEqual(given_nonce(head_of(b"Svc-Notary-Nonce: %b\r\n" % NONCE.encode())), NONCE)
        for text in ("", NONCE[:-1], NONCE + "A", NONCE[:-1] + "B", NONCE[:-1] + "=", NONCE[:-1] + "+"):
            head = head_of(b"Svc-Notary-Nonce: %b\r\n" % text.encode())
            assert_refused(self, "nonce_malformed", given_nonce, head)

    @given(st.binary(max_size=30).map(lambda octets: bytes(33 + each % 94 for each in octets)))
    def test_any_text(self, text: bytes) -> None:
        """Any text is accepted unchanged or refused."""
        level, nonce = head_of(b"Svc-Notarization-Level: %b\r\n" % text), head_of(b"Svc-Notary-Nonce: %b\r\n" % text)
        try:
            self.assertEqual(asked_level(level).value.encode(), text)
        except LevelInvalid as error:
            self.assertEqual(error.http_status, 400)
        try:
            self.assertEqual(str(given_nonce(nonce)).encode(), text)
        except RequestRefused as error:
            self.assertEqual(error.http_status, 400)


class DeadlineTests(SynchronousTestCase):
    """When an exchange exceeds a time limit."""

    #: 60 s for the response, 300 s without progress, 3600 s in total.
    limits = TimeoutSettings()

    def check(
        self,
        now: float,
        *,
        started: float = 0.0,
        activity: float = 0.0,
        ended: float | None = None,
        answered: bool = False,
        client_slow: bool = False,
        upstream_slow: bool = False,
    ) -> ProxyError | None:
        """Check the time limits."""
        return overdue(
            self.limits,
            "the application",
            now=now,
            started=started,
            activity=activity,
            request_ended_at=ended,
            answer_begun=answered,
            client_slow=client_slow,
            upstream_slow=upstream_slow,
        )

    def test_whole_exchange(self) -> None:
        """An exchange has a total time limit, however active it is."""
        for ended, answered in ((None, False), (3599.0, False), (3599.0, True)):
            self.assertIsNone(self.check(3599.9, activity=3599.0, ended=ended, answered=answered))
            error = self.check(3600.0, activity=3600.0, ended=ended, answered=answered)
            self.assertIsInstance(error, UpstreamTimeout)
            self.assertIn("3600", str(error))

    def test_answer(self) -> None:
        """After the complete request the response must begin in time, regardless of other activity."""
        self.assertIsNone(self.check(159.9, activity=0.0, ended=100.0))
        error = self.check(160.0, activity=160.0, ended=100.0)
        self.assertIsInstance(error, UpstreamTimeout)
        self.assertIn("60", str(error))

    def test_slow_request(self) -> None:
        """A stalled request is the client's fault: 408."""
        self.assertIsNone(self.check(399.9, activity=100.0))
        error = self.check(400.0, activity=100.0)
        self.assertIsInstance(error, RequestTimeout)
        assert error is not None
        self.assertEqual(error.http_status, 408)

    def test_slow_response(self) -> None:
        """A stalled response is the upstream's fault, even if the request is incomplete."""
        for ended in (50.0, None):
            self.assertIsNone(self.check(399.9, activity=100.0, ended=ended, answered=True))
            error = self.check(400.0, activity=100.0, ended=ended, answered=True)
            self.assertIsInstance(error, UpstreamTimeout)
            self.assertIn("300", str(error))

    def test_slow_side_is_named(self) -> None:
        """If a side does not read octets that wait for it, the error names that side."""
        slow_client = self.check(400.0, activity=100.0, ended=50.0, answered=True, client_slow=True)
        self.assertEqual(str(slow_client), "the client took nothing of the answer for 300.0 s")
        assert slow_client is not None
        self.assertEqual((slow_client.reason, slow_client.http_status), ("answer_not_taken", 408))
        slow_upstream = self.check(400.0, activity=100.0, upstream_slow=True)
        self.assertEqual(str(slow_upstream), "the application took nothing of the request for 300.0 s")
        assert slow_upstream is not None
        self.assertEqual((slow_upstream.reason, slow_upstream.http_status), ("upstream_timeout", 504))
        for client_slow in (False, True):
            self.assertIsNone(self.check(399.9, activity=100.0, client_slow=client_slow, upstream_slow=True))

    @given(st.floats(0, 4000), st.floats(0, 4000), st.floats(0, 4000), st.none() | st.floats(0, 4000), st.booleans())
    def test_late_stays_late(
        self, now: float, later: float, activity: float, ended: float | None, answered: bool
    ) -> None:
        """What is overdue stays overdue at every later time; everything is overdue after the total limit."""
        early = self.check(now, activity=activity, ended=ended, answered=answered)
        late = self.check(now + later, activity=activity, ended=ended, answered=answered)
        self.assertTrue(early is None or late is not None)
        self.assertIsNotNone(self.check(3600.0 + now, activity=activity, ended=ended, answered=answered))


def one(value: Hashable) -> Values:
    """A list of one value."""
    return Values(frozenset({value}))


class VerifiedCallerTests(SynchronousTestCase):
    """The client of an inbound connection."""

    def setUp(self) -> None:
        """Create a listener."""
        self.rig = Rig()
        self.registry = self.rig.registry

    def caller(self, policies: Policies | None = None, *, credentials: bool = True) -> VerifiedCaller:
        """Create the caller under test."""
        given = GENERATION if credentials else None
        return VerifiedCaller(evidence_of(CALLER), given, policies or admit_domain(), self.rig.context)

    def allowed(self) -> float:
        """Return the number of decisions that allowed something."""
        labels = {"result": "allowed", "reason": "ok", "protocol": "http", "role": "server"}
        return self.registry.get_sample_value(DECISIONS, labels) or 0.0

    def test_forwarded(self) -> None:
        """The application gets the identity of the caller, its certificate hash, and the identity that was called."""
        line = self.caller().request_lines(head_of(), os.urandom)
        digest = evidence_of(CALLER).svid.certificate_sha256.hex()
        self.assertEqual(
            line.decode(),
            f"X-Forwarded-Client-Cert: By={OWN.spiffe_id};Hash={digest};URI={CALLER.spiffe_id}\r\n"
            "X-Forwarded-Proto: https\r\n",
        )

    def test_forwarded_lines_of_a_connection(self) -> None:
        """The lines are made once for a connection; with ``Forwarded`` once for each Host."""
        caller = self.caller()
        self.assertIs(caller.request_lines(head_of(), os.urandom), caller.forwarded_lines)
        hop = ForwardedHop(b"[2001:db8::7]:4711", b"_web", b"https")
        with_hop = VerifiedCaller(evidence_of(CALLER), GENERATION, admit_domain(), self.rig.context, hop)
        self.assertEqual(with_hop.forwarded_lines, b"")
        lines = with_hop.request_lines(head_of(), os.urandom)
        added = b'Forwarded: for="[2001:db8::7]:4711";by=_web;host=%b;proto=https\r\n'
        self.assertEqual(lines, caller.forwarded_lines + added % b"api")
        self.assertIs(with_hop.request_lines(head_of(), os.urandom), lines)
        [other, *_rest] = RequestParser().feed(b"GET / HTTP/1.1\r\nHost: b:1\r\n\r\n")
        assert isinstance(other, RequestHead)
        self.assertEqual(with_hop.request_lines(other, os.urandom), caller.forwarded_lines + added % b'"b:1"')

    def connections(self) -> tuple[float, float]:
        """Return how many connections were accepted and refused."""
        labels = {"protocol": "http", "direction": "inbound"}
        results = [self.registry.get_sample_value(CONNECTIONS, {**labels, "result": r}) for r in RESULTS]
        return results[0] or 0.0, results[1] or 0.0

    def test_policy_evaluated_once(self) -> None:
        """A policy that does not look at requests is evaluated once a connection; every request is then allowed."""
        caller = self.caller()
        self.assertEqual(caller.evidence, evidence_of(CALLER))
        self.assertIs(caller.permit(head_of()), caller.permit(head_of(line=b"POST /b HTTP/1.1")))
        self.assertEqual(caller.permit(head_of()).identity, CALLER.spiffe_id)
        self.assertEqual((self.allowed(), self.connections()), (3.0, (1.0, 0.0)))

    def test_connection_without_a_request(self) -> None:
        """A connection without a request counts as accepted, once, when it ends."""
        caller = self.caller()
        self.assertEqual(self.connections(), (0.0, 0.0))
        caller.count()
        caller.count()
        self.assertEqual(self.connections(), (1.0, 0.0))

    def test_refused_for_the_connection(self) -> None:
        """A denial by such a policy applies to the whole connection."""
        for policies in (admit_nobody(), admit_domain("bank.example")):
            caller = self.caller(policies)
            for _ in range(2):
                self.assertRaises(Denied, caller.permit, head_of())
            caller.count()
        self.assertEqual((self.allowed(), self.connections()), (0.0, (0.0, 2.0)))

    def test_policy_evaluated_for_each_request(self) -> None:
        """A policy that looks at requests is evaluated for each; the first decision counts for the connection."""
        caller = self.caller(allow_paths("/open"))
        self.assertRaises(Denied, caller.permit, head_of(line=b"GET /a?b HTTP/1.1"))
        for line in (b"POST /open?x HTTP/1.1", b"POST http://api/op%65n HTTP/1.1"):
            self.assertEqual(caller.permit(head_of(line=line)).rule, "open")
        self.assertEqual((self.connections(), self.allowed()), ((0.0, 1.0), 2.0))

    def test_path_with_several_readings(self) -> None:
        """Where policies look at the path it must have one reading; where they do not, it is not looked at."""
        ambiguous = head_of(line=b"GET /open/..;/admin HTTP/1.1")
        self.assertRaises(RequestAmbiguous, self.caller(allow_paths("/open/*")).permit, ambiguous)
        self.assertEqual("allow spiffe://prod.example/*", self.caller().permit(ambiguous).rule)
        trial = policy(Action.DENY, path_rule("admin", "/admin"), enforced=False)
        watched = Policies.of(policy(Action.ALLOW, Rule("all")), trial)
        self.assertEqual("all", self.caller(watched).permit(ambiguous).rule)

    def test_host_with_several_readings(self) -> None:
        """So must the host: what others read as a host that is denied is not permitted."""
        hosts = Patterns(tuple(map(HostPattern.parse, ("admin.example", "[::1]"))))
        denied = policy(Action.DENY, Rule("admin", targets=(RuleTarget(hosts=hosts),)))
        caller = self.caller(Policies.of(policy(Action.ALLOW, Rule("all")), denied))
        for host in (b"%61dmin.example", b"admin.example,x"):
            self.assertRaises(RequestAmbiguous, caller.permit, head_of(host=host))
            self.assertEqual("allow spiffe://prod.example/*", self.caller().permit(head_of(host=host)).rule)
        [absent, _end] = RequestParser().feed(b"GET / HTTP/1.0\r\n\r\n")
        assert isinstance(absent, RequestHead)
        self.assertRaises(RequestAmbiguous, caller.permit, absent)
        self.assertEqual("allow spiffe://prod.example/*", self.caller().permit(absent).rule)
        for host in (b"[0:0:0:0:0:0:0:1]", b"[::1]:443", b"Admin.example.:80"):
            self.assertRaises(Denied, caller.permit, head_of(host=host))
        self.assertEqual("all", caller.permit(head_of(host=b"shop.example")).rule)
        watched = Policies.of(policy(Action.ALLOW, Rule("all")), replace(denied, enforced=False))
        self.assertEqual("all", self.caller(watched).permit(head_of(host=b"%61dmin.example")).rule)

    def level(self, policies: Policies, lines: bytes = b"") -> Level:
        """The level of a request to ``/a``."""
        caller, head = self.caller(policies), head_of(lines)
        return caller.notarization(head, caller.permit(head))[0]

    def test_levels_of_rules(self) -> None:
        """Rules raise and lower the level; a minimum is stronger than a maximum, the listener than both."""
        ask = b"Svc-Notarization-Level: signRequest\r\n"
        for minimum, maximum, lines, expected in (
            (None, None, b"", Level.NONE),
            ("logRequest", None, b"", Level.LOG_REQUEST),
            ("logRequest", None, ask, Level.SIGN_REQUEST),
            ("workload", "logRequest", ask, Level.LOG_REQUEST),
            (None, "workload", b"", Level.NONE),
        ):
            policies = Policies.of(policy(Action.ALLOW, path_rule("r", "/a", minimum=minimum, maximum=maximum)))
            self.assertIs(expected, self.level(policies, lines), (minimum, maximum))
        narrowing = AuthorizationPolicy("n", Action.ALLOW, (Rule("n", maximum="workload"),), "shop")
        both = Policies.of(policy(Action.ALLOW, Rule("c", minimum="logRequest")), narrowing)
        self.assertIs(Level.LOG_REQUEST, self.level(both, ask))
        self.rig.context.demanded = Level.SIGN_REQUEST
        low = Policies.of(policy(Action.ALLOW, Rule("c", maximum="workload")))
        self.assertIs(Level.WORKLOAD, self.level(low))
        self.rig.context.demanded, self.rig.context.maximum = Level.NONE, Level.WORKLOAD
        self.assertIs(Level.WORKLOAD, self.level(both, ask))

    def test_facts(self) -> None:
        """Rules see listener, port, server name, key agreement, and the attributes of both sides."""
        self.rig.context.port = 8443
        wanted = RuleTarget(listeners=one("web"), ports=one(8443), snis=Patterns((HostPattern.parse("api.example"),)))
        source = Source(namespaces=one("web"), same_compartment=True)
        rule = Rule("r", (source,), (wanted,), (RuleCondition(post_quantum=True),))
        attributes = {each.spiffe_id: Attributes(compartment="red") for each in (OWN, CALLER)}
        templates = AttributeSource.of(OWN.spiffe_id.trust_domain, given=attributes)
        policies = replace(Policies.of(policy(Action.ALLOW, rule)), attributes=templates)
        for server_name, allowed in (("api.example", True), ("other.example", False), ("", False)):
            evidence = replace(evidence_of(CALLER), server_name=server_name)
            caller = VerifiedCaller(evidence, GENERATION, policies, self.rig.context)
            try:
                self.assertEqual((True, "r"), (allowed, caller.permit(head_of()).rule))
            except Denied:
                self.assertFalse(allowed)

    def test_dry_run_and_audit(self) -> None:
        """What a dry run would decide is counted for each request, what differs and what is audited is reported."""
        trial = policy(Action.DENY, path_rule("no", "/no"), name="trial", enforced=False)
        audit = policy(Action.AUDIT, path_rule("seen", "/no", "/seen"), name="audit")
        caller = self.caller(Policies.of(policy(Action.ALLOW, Rule("all")), trial, audit))
        for path in (b"/yes", b"/no", b"/seen"):
            self.assertEqual("all", caller.permit(head_of(line=b"GET %b HTTP/1.1" % path)).rule)
        self.assertIsNone(caller.connection_permit)
        self.assertEqual([("trial", "no", False)], self.rig.reporter.dry_runs)
        self.assertEqual([("audit", "seen", True)] * 2, self.rig.reporter.audits)
        counts = [
            self.registry.get_sample_value("svc_proxy_policy_dry_run_total", {"result": each, "protocol": "http"})
            for each in ("allowed", "denied")
        ]
        self.assertEqual([2.0, 1.0], counts)

    def test_deny_list(self) -> None:
        """Who is on a deny list is refused whatever is allowed, and an open connection is closed once."""
        listed = DenyList("stolen", (ExactID(CALLER.spiffe_id),))
        policies = Policies.of(policy(Action.ALLOW, Rule("all")), denied=[listed])
        caller = self.caller(policies)
        denied = self.assertRaises(Denied, caller.permit, head_of())
        self.assertEqual(("stolen", f"identity {CALLER.spiffe_id}"), (denied.policy, denied.rule))
        self.assertEqual((0.0, 1.0), self.connections())
        caller = self.caller()
        self.assertRaises(Denied, self.again, caller, policies)
        self.again(caller, replace(policies))

    def again(self, caller: VerifiedCaller, policies: Policies, under_way: RequestHead | None = None) -> None:
        """Reauthorize when only the policies have changed."""
        caller._context.policies = policies
        caller.reauthorize(under_way)

    def test_other_policy(self) -> None:
        """A client that the new policy refuses is reported once; one that it admits is served from then on."""
        allow, deny = admit_domain(), admit_nobody()
        caller = self.caller(allow)
        caller.permit(head_of())
        self.again(caller, allow)
        self.again(caller, admit_domain())
        caller.permit(head_of())
        self.assertRaises(Denied, self.again, caller, deny)
        self.assertRaises(Denied, caller.permit, head_of())
        # A client that was refused before is not reported again, and may be admitted later.
        self.again(caller, admit_nobody())
        self.again(caller, allow)
        caller.permit(head_of())
        # A client without a request yet is refused as well.
        self.assertRaises(Denied, self.again, self.caller(allow), deny)

    def test_other_policy_that_depends_on_the_request(self) -> None:
        """A policy that depends on the request is evaluated for what is served, and at the next request."""
        caller = self.caller()
        caller.permit(head_of())
        self.again(caller, allow_paths("/open"))
        self.again(caller, allow_paths("/open"), head_of(line=b"GET /open HTTP/1.1"))
        self.assertRaises(Denied, caller.permit, head_of(line=b"GET /a HTTP/1.1"))
        self.assertRaises(Denied, self.again, caller, allow_paths("/b"), head_of(line=b"GET /open HTTP/1.1"))
        # Nobody looked at its path so far.
        other = self.caller()
        other.permit(head_of(line=b"GET /open//a HTTP/1.1"))
        self.assertRaises(Denied, self.again, other, allow_paths("/open/*"), head_of(line=b"GET /open//a HTTP/1.1"))

    def test_response_lines(self) -> None:
        """The response has the workload ID and the level; a signed exchange adds the location of its receipt."""
        caller = self.caller()
        line = f"Svc-Workload-ID: {GENERATION.statement.id}\r\n".encode()
        self.assertEqual(caller.response_lines(Level.NONE, None, own=False), b"")
        for level, own in ((Level.NONE, True), (Level.WORKLOAD, False), (Level.WORKLOAD, True)):
            self.assertEqual(
                caller.response_lines(level, None, own=own), line + b"Svc-Notarization-Level: workload\r\n"
            )
        for level, nonce, key in (
            (Level.SIGN_REQUEST, NONCE, NONCE),
            (Level.SIGN_REQUEST, None, "B" * 22),
            (Level.SIGN_REQUEST, NONCE, NONCE),
        ):
            reservation = Reservation(level, caller.text, nonce, "B" * 22, GENERATION, 0)  # type: ignore[arg-type]
            self.assertEqual(
                caller.response_lines(level, reservation, own=False),
                line
                + b"Svc-Notarization-Level: signRequest\r\n"
                + f"Svc-Receipt-Location: /.well-known/svc-notary/v1/receipts/by-request/{key}\r\n".encode(),
            )
        reservation = Reservation(Level.LOG_REQUEST, caller.text, NONCE, "B" * 22, GENERATION, 0)  # type: ignore[arg-type]
        self.assertNotIn(b"Receipt", caller.response_lines(Level.LOG_REQUEST, reservation, own=False))

    def test_without_a_statement(self) -> None:
        """If the credentials of a connection have no statement, the response names none."""
        caller = self.caller(credentials=False)
        for level in Level:
            self.assertEqual(caller.response_lines(level, None, own=True), b"")


class PlainCallerTests(SynchronousTestCase):
    """The application behind an outbound listener."""

    def setUp(self) -> None:
        """A caller."""
        self.caller = PlainCaller(lambda: OWN.spiffe_id)

    def test_permit(self) -> None:
        """The permit has the proxy's own identity; the peer authorizes it."""
        self.assertEqual(self.caller.permit(head_of()), Permit(OWN.spiffe_id, (MatchedRule("", "outbound listener"),)))

    def lines(self, asked: bytes) -> bytes:
        """Return the lines that are added to a request with these lines."""
        return self.caller.request_lines(head_of(asked), lambda size: bytes(range(size)))

    def test_level_requested(self) -> None:
        """The level is sent anew, with a fresh nonce if recorded; the application's own headers are not forwarded."""
        own = b"Svc-Notary-Nonce: %b\r\n" % NONCE.encode()
        fresh = b64u_encode(bytes(range(16)))
        self.assertEqual(parse_nonce(fresh), fresh)
        for level in (b"logRequest", b"signRequest"):
            line = b"Svc-Notarization-Level: %b\r\n" % level
            self.assertEqual(self.lines(line + own), line + b"Svc-Notary-Nonce: %b\r\n" % fresh.encode())
        line = b"Svc-Notarization-Level: workload\r\n"
        self.assertEqual(self.lines(line + own), line)

    def test_no_level_requested(self) -> None:
        """No level, or an invalid one, adds nothing."""
        for asked in (b"", b"Svc-Notarization-Level: none\r\n", b"Svc-Notarization-Level: all\r\n"):
            self.assertEqual(self.lines(asked), b"")

    def test_no_response_lines(self) -> None:
        """An outbound listener adds no notary headers to responses: the peer's notary does."""
        for level in Level:
            self.assertEqual(self.caller.response_lines(level, None, own=True), b"")


def whole(listeners: list[ListenerSettings], **changes: object) -> ProxySettings:
    """Build a configuration with these listeners."""
    return settings_of(("any", 1)).model_copy(update={"listeners": tuple(listeners), **changes})


def listeners_of(text: list[tuple[str, int, str]]) -> list[ListenerSettings]:
    """Build listeners from name, port and level."""
    made = []
    for name, port, level in text:
        (one,) = settings_of((name, port)).listeners
        made.append(one.model_copy(update={"notarization": level}))
    return made


LISTENERS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from([1, 2]), st.sampled_from(["none", "workload"])),
    min_size=1,
    max_size=4,
    unique_by=lambda each: each[0],
).map(listeners_of)


class ReloadPlanTests(SynchronousTestCase):
    """What a new configuration changes."""

    @given(LISTENERS, LISTENERS)
    def test_nothing_is_lost(self, old: list[ListenerSettings], new: list[ListenerSettings]) -> None:
        """Each new listener is kept or opened, each old one is kept or closed, and no name occurs twice."""
        plan = plan_reload(whole(old), whole(new))
        opened = [each.name for each in plan.open]
        self.assertEqual(sorted([*plan.keep, *opened]), sorted(each.name for each in new))
        self.assertEqual(sorted([*plan.keep, *plan.close]), sorted(each.name for each in old))
        self.assertTrue(all(each in new for each in plan.open))
        kept = [each for each in old if each in new]
        self.assertEqual(sorted(plan.keep), sorted(each.name for each in kept))

    @given(LISTENERS)
    def test_same(self, listeners: list[ListenerSettings]) -> None:
        """The same file changes nothing, whatever the order of its listeners."""
        plan = plan_reload(whole(listeners), whole(listeners[::-1]))
        self.assertEqual((plan.close, plan.open), ((), ()))
        self.assertEqual(plan.keep, tuple(each.name for each in listeners[::-1]))

    def test_taken_over_without_listeners(self) -> None:
        """A change of any other reloadable key is applied, and every listener stays open."""
        old = settings_of(("web", 1), ("pay", 2))
        for key, value in (
            ("accessLog", "path"),
            ("auditLog", "all"),
            ("policy", "{default: allow}"),
            ("drainTimeout", "1s"),
            ("workload", "{namespace: a}"),
        ):
            plan = plan_reload(old, settings_of(("web", 1), ("pay", 2), **{key: value}))
            self.assertEqual((plan.close, plan.open, plan.keep), ((), (), ("web", "pay")), key)
            self.assertEqual(plan.changed, (key,))

    def test_restart(self) -> None:
        """A change of a key that needs a restart refuses the whole file; all such keys are named."""
        old = settings_of(("web", 1))
        for key, value in (
            ("spiffeSocketPath", "unix:///other.sock"),
            ("startTimeout", "1s"),
            ("metricsAddr", '"0"'),
            ("adminAddr", '"0"'),
            ("notary", "{profile: classical}"),
        ):
            new = settings_of(("other", 2), **{key: value})
            error = self.assertRaises(RestartNeeded, plan_reload, old, new)
            self.assertEqual(str(error), f"the new configuration changes {key}, which needs a restart")
        new = settings_of(("web", 1), startTimeout="1s", metricsAddr='"0"')
        self.assertIn("startTimeout, metricsAddr", str(self.assertRaises(RestartNeeded, plan_reload, old, new)))
        text = 'trustDomain: a.example\nlisteners: [{name: web, protocol: http, direction: inbound, listen: ":1",'
        other = parse(text + ' upstream: "a:1"}]', ProxySettings)
        self.assertIn("trustDomain", str(self.assertRaises(RestartNeeded, plan_reload, old, other)))

    def test_every_key_is_classified(self) -> None:
        """Every key that is classified as changeable exists."""
        self.assertEqual(RELOADABLE - set(ProxySettings.model_fields), set())

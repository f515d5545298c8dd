"""Decisions of policy sets, compared with a naive evaluation of the same rules."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import SpiffeID, TrustDomain, parse_matcher
from svc.policy.attributes import Attributes, SecurityLevel
from svc.policy.engine import DEFAULT_DENY, Denied, MatchedRule, PolicySet
from svc.policy.mqtt import ClientIdPattern
from svc.policy.paths import HostPattern, PathPattern
from svc.policy.rules import (
    Action,
    AuthorizationPolicy,
    ConnectionFacts,
    MqttTarget,
    Patterns,
    RequestFacts,
    Rule,
    RuleCondition,
    RuleTarget,
    Source,
    TopicFilters,
    Values,
)
from svc.policyfiles.document import CLUSTER_RANK, LOCAL_RANK, NAMESPACE_RANK
from tests.wire.mqtt.test_topics import FILTERS, TOPICS

ALICE = SpiffeID.parse("spiffe://prod.example/ns/shop/sa/web")
GET = RequestFacts("GET", "/orders", "shop.example", "none")


def facts(identity: SpiffeID = ALICE, **given: object) -> ConnectionFacts:
    """A connection to the listener web."""
    known = {"listener": "web", "port": 8443, "identity": identity, "attributes": Attributes("shop", "web")}
    return ConnectionFacts(**{**known, **given})  # type: ignore[arg-type]


def policy(
    action: Action, *rules: Rule, name: str = "p", namespace: str = "", enforced: bool = True
) -> AuthorizationPolicy:
    """A policy with rules."""
    return AuthorizationPolicy(name, action, rules, namespace, enforced, NAMESPACE_RANK if namespace else CLUSTER_RANK)


def everything(name: str = "all") -> Rule:
    """A rule that matches every request."""
    return Rule(name)


def paths(*texts: str) -> Patterns:
    """Paths of a target."""
    return Patterns(tuple(PathPattern.parse(text) for text in texts))


class OrderTests(SynchronousTestCase):
    """Which policy decides."""

    def decided(self, *policies: AuthorizationPolicy, request: RequestFacts = GET) -> tuple[bool, str, str]:
        """Whether a request is allowed, and the policy and rule of the decision."""
        decision = PolicySet(policies).connection(facts()).decide(request)
        return decision.allowed, decision.matched[-1].policy, decision.matched[-1].rule

    def test_nothing_is_allowed_by_default(self) -> None:
        """Without policies, and by an Allow policy without rules, nothing is allowed."""
        self.assertEqual((False, DEFAULT_DENY, DEFAULT_DENY), self.decided())
        self.assertEqual((False, DEFAULT_DENY, DEFAULT_DENY), self.decided(policy(Action.ALLOW)))

    def test_deny_comes_first(self) -> None:
        """A Deny rule refuses what an Allow rule of an earlier policy permits."""
        allow, deny = policy(Action.ALLOW, everything(), name="a"), policy(Action.DENY, everything("no"), name="d")
        self.assertEqual((False, "d", "no"), self.decided(allow, deny))

    def test_first_matching_rule_is_named(self) -> None:
        """Of several matching rules the first one decides, in the order of the policies."""
        other = Rule("other", targets=(RuleTarget(paths=paths("/x")),))
        first = policy(Action.ALLOW, other, Rule("r1", targets=(RuleTarget(paths=paths("/orders")),)), name="a")
        second = policy(Action.ALLOW, everything("r2"), name="b")
        self.assertEqual((True, "a", "r1"), self.decided(first, second))
        self.assertEqual((True, "b", "r2"), self.decided(second, first))

    def test_namespace_only_narrows(self) -> None:
        """A policy of the namespace refuses what the cluster allows, and allows nothing that the cluster does not."""
        cluster = policy(Action.ALLOW, Rule("c", targets=(RuleTarget(paths=paths("/orders")),)), name="cluster")
        narrow = policy(
            Action.ALLOW, Rule("n", targets=(RuleTarget(methods=Values(frozenset({"GET"}))),)), namespace="shop"
        )
        self.assertEqual((True, "shop/p", "n"), self.decided(cluster, narrow))
        post = RequestFacts("POST", "/orders", "shop.example", "none")
        self.assertEqual((False, DEFAULT_DENY, DEFAULT_DENY), self.decided(cluster, narrow, request=post))
        other = RequestFacts("GET", "/other", "shop.example", "none")
        self.assertEqual((False, DEFAULT_DENY, DEFAULT_DENY), self.decided(cluster, narrow, request=other))

    def test_each_rank_has_to_allow(self) -> None:
        """Of the ranks that there are; a namespace alone decides, and a policy without rules allows nobody."""
        own = dataclasses.replace(policy(Action.ALLOW, everything("l"), name="local"), rank=LOCAL_RANK)
        narrow = policy(Action.ALLOW, Rule("n", targets=(RuleTarget(paths=paths("/orders")),)), namespace="shop")
        cluster = policy(Action.ALLOW, name="cluster")
        self.assertEqual((True, "shop/p", "n"), self.decided(narrow))
        self.assertEqual((True, "local", "l"), self.decided(own))
        self.assertEqual((True, "shop/p", "n"), self.decided(own, narrow))
        for others in ((), (own,), (narrow,), (own, narrow)):
            self.assertEqual((False, DEFAULT_DENY, DEFAULT_DENY), self.decided(cluster, *others))
        # One that only denies asks nobody else for an allowance.
        denying = policy(Action.DENY, Rule("d", targets=(RuleTarget(paths=paths("/admin")),)), name="cluster")
        self.assertEqual((True, "shop/p", "n"), self.decided(denying, narrow))

    def test_permit_has_all_rules(self) -> None:
        """A permit names the rule of the cluster and that of the namespace, with their notarization levels."""
        cluster = policy(Action.ALLOW, Rule("c", minimum="workload"), name="cluster")
        narrow = policy(Action.ALLOW, Rule("n", maximum="logRequest"), namespace="shop")
        permit = PolicySet([cluster, narrow]).connection(facts()).authorize(GET)
        expected = (MatchedRule("cluster", "c", "workload"), MatchedRule("shop/p", "n", None, "logRequest"))
        self.assertEqual(
            ((ALICE, expected), "shop/p", "n"), ((permit.identity, permit.matched), permit.policy, permit.rule)
        )

    def test_refusal_names_policy_and_rule(self) -> None:
        """The error has the identity, the policy and the rule."""
        denying = PolicySet([policy(Action.DENY, everything("no"), name="d")]).connection(facts())
        error = self.assertRaises(Denied, denying.authorize, GET)
        self.assertEqual((ALICE, "d", "no", 403), (error.identity, error.policy, error.rule, error.http_status))

    def test_dry_run_changes_nothing(self) -> None:
        """A policy in dry run does not decide; what it would decide is returned apart."""
        allow = policy(Action.ALLOW, everything(), name="a")
        dry = policy(Action.DENY, everything("no"), name="d", enforced=False)
        connection = PolicySet([allow, dry]).connection(facts())
        self.assertTrue(connection.decide(GET).allowed)
        dry_run = connection.dry_run(GET)
        assert dry_run is not None
        self.assertEqual((False, "no"), (dry_run.allowed, dry_run.matched[0].rule))
        self.assertIsNone(PolicySet([allow]).connection(facts()).dry_run(GET))

    def test_dry_run_of_a_namespace(self) -> None:
        """A namespace's policy in dry run does not narrow what is enforced."""
        allow = policy(Action.ALLOW, everything(), name="a")
        dry = policy(
            Action.ALLOW, Rule("n", targets=(RuleTarget(paths=paths("/x")),)), namespace="shop", enforced=False
        )
        connection = PolicySet([allow, dry]).connection(facts())
        dry_run = connection.dry_run(GET)
        assert dry_run is not None
        self.assertEqual((True, False), (connection.decide(GET).allowed, dry_run.allowed))

    def test_audit_decides_nothing(self) -> None:
        """All matching rules of Audit policies are returned, and none decides."""
        audit = policy(
            Action.AUDIT, everything("x"), Rule("y", targets=(RuleTarget(paths=paths("/orders")),)), name="au"
        )
        connection = PolicySet([audit]).connection(facts())
        self.assertFalse(connection.decide(GET).allowed)
        self.assertEqual(["x", "y"], [each.rule for each in connection.audited(GET)])


class FactTests(SynchronousTestCase):
    """What single fields match."""

    def allowed(self, rule: Rule, *, request: RequestFacts = GET, **given: object) -> bool:
        """Whether one Allow rule permits a request."""
        return PolicySet([policy(Action.ALLOW, rule)]).connection(facts(**given)).decide(request).allowed  # type: ignore[arg-type]

    def test_sources(self) -> None:
        """Each field of a source, and its exclusion."""
        for source, matches in (
            (Source((parse_matcher(str(ALICE)),)), True),
            (Source((parse_matcher("spiffe://prod.example/ns/shop/*"),)), True),
            (
                Source(
                    (parse_matcher("spiffe://prod.example/ns/*"),), (parse_matcher("spiffe://prod.example/ns/shop/*"),)
                ),
                False,
            ),
            (Source((parse_matcher("spiffe://prod.example/*"),)), True),
            (Source((parse_matcher("spiffe://prod.example/ns/sho/*"),)), False),
            (Source(trust_domains=Values(frozenset({TrustDomain.parse("prod.example")}))), True),
            (Source(trust_domains=Values(excluded=frozenset({TrustDomain.parse("prod.example")}))), False),
            (Source(namespaces=Values(frozenset({"shop"}))), True),
            (Source(namespaces=Values(frozenset({"pay"}))), False),
            (
                Source(namespaces=Values(frozenset({"shop"})), service_accounts=Values(excluded=frozenset({"web"}))),
                False,
            ),
            (Source(service_accounts=Values(frozenset({"web"}))), True),
        ):
            self.assertEqual(matches, self.allowed(Rule("r", (source,))), source)

    def test_unknown_facts(self) -> None:
        """What is not known satisfies no list; an exclusion only of a rule that denies."""
        wanted = Source(compartments=Values(frozenset({"alpha"})))
        excluded = Source(compartments=Values(excluded=frozenset({"alpha"})))
        self.assertEqual([False, False], [self.allowed(Rule("r", (each,))) for each in (wanted, excluded)])
        for source, denied in ((wanted, False), (excluded, True)):
            policies = [policy(Action.ALLOW, everything()), policy(Action.DENY, Rule("r", (source,)))]
            self.assertEqual(denied, not PolicySet(policies).connection(facts()).decide(GET).allowed)

    def test_compartments_and_levels(self) -> None:
        """A compartment is compared with that of the workload; a level must dominate it, in the same country."""
        own = Attributes(level=SecurityLevel.parse("DE:S"), compartment="alpha")
        rule = Rule("r", (Source(same_compartment=True, dominates=True),))
        for level, compartment, allowed in (
            ("DE:S", "alpha", True),
            ("de:ts", "alpha", True),
            ("DE:C", "alpha", False),
            ("FR:TS", "alpha", False),
            ("DE:TS", "beta", False),
        ):
            known = Attributes(level=SecurityLevel.parse(level), compartment=compartment)
            self.assertEqual(allowed, self.allowed(rule, attributes=known, own=own), (level, compartment))
            self.assertFalse(self.allowed(rule, attributes=known))
            self.assertFalse(self.allowed(rule, own=own))

    def test_targets(self) -> None:
        """Each field of a target, and its exclusion."""
        for target, matches in (
            (RuleTarget(listeners=Values(frozenset({"web"})), ports=Values(frozenset({8443}))), True),
            (RuleTarget(listeners=Values(frozenset({"web"})), ports=Values(frozenset({443}))), False),
            (RuleTarget(listeners=Values(excluded=frozenset({"web"}))), False),
            (RuleTarget(methods=Values(frozenset({"GET", "HEAD"}))), True),
            (RuleTarget(methods=Values(excluded=frozenset({"GET"}))), False),
            (RuleTarget(hosts=Patterns((HostPattern.parse("*.example"),))), True),
            (RuleTarget(hosts=Patterns((HostPattern.parse("shop.example"),)), paths=paths("/orders")), True),
            (RuleTarget(hosts=Patterns((HostPattern.parse("other.example"),)), paths=paths("/orders")), False),
            (RuleTarget(paths=paths("/x", "/{what}")), True),
            (RuleTarget(paths=Patterns((PathPattern.parse("/*"),), (PathPattern.parse("/orders"),))), False),
            (RuleTarget(snis=Patterns((HostPattern.parse("shop.example"),))), False),
        ):
            self.assertEqual(matches, self.allowed(Rule("r", targets=(target,))), target)
        alpn = RuleTarget(alpns=Values(frozenset({"h2"})))
        self.assertTrue(self.allowed(Rule("r", targets=(alpn,)), alpn="h2"))
        self.assertFalse(self.allowed(Rule("r", targets=(alpn,))))
        sni = RuleTarget(snis=Patterns((HostPattern.parse("shop.example"),)))
        self.assertTrue(self.allowed(Rule("r", targets=(sni,)), sni="shop.example"))

    def test_conditions(self) -> None:
        """The key agreement, and the level that the client asks for."""
        for condition, post_quantum, asked, matches in (
            (RuleCondition(post_quantum=True), True, "none", True),
            (RuleCondition(post_quantum=True), False, "none", False),
            (RuleCondition(post_quantum=False), False, "none", True),
            (RuleCondition(asked=Values(frozenset({"signRequest"}))), False, "signRequest", True),
            (RuleCondition(asked=Values(frozenset({"signRequest"}))), False, "none", False),
        ):
            request = RequestFacts("GET", "/", "h", asked)
            rule = Rule("r", conditions=(condition,))
            self.assertEqual(matches, self.allowed(rule, request=request, post_quantum=post_quantum))

    def test_protocols_without_requests(self) -> None:
        """A connection without requests satisfies no list of methods or paths; an exclusion only denies it."""
        nothing = RequestFacts()
        for target in (RuleTarget(methods=Values(frozenset({"GET"}))), RuleTarget(paths=paths("/*"))):
            self.assertFalse(self.allowed(Rule("r", targets=(target,)), request=nothing))
        excluded = Rule("r", targets=(RuleTarget(methods=Values(excluded=frozenset({"GET"}))),))
        self.assertFalse(self.allowed(excluded, request=nothing))
        denying = [policy(Action.ALLOW, everything()), policy(Action.DENY, excluded)]
        self.assertFalse(PolicySet(denying).connection(facts()).decide(nothing).allowed)

    def test_dependencies(self) -> None:
        """A set says whether a request, and its path, can make a difference."""
        for rule, request, path in (
            (everything(), False, False),
            (Rule("r", targets=(RuleTarget(listeners=Values(frozenset({"web"}))),)), False, False),
            (Rule("r", targets=(RuleTarget(methods=Values(frozenset({"GET"}))),)), True, False),
            (Rule("r", targets=(RuleTarget(paths=paths("/x")),)), True, True),
            (Rule("r", conditions=(RuleCondition(asked=Values(frozenset({"workload"}))),)), True, False),
            (
                Rule("r", (Source(namespaces=Values(frozenset({"pay"}))),), (RuleTarget(paths=paths("/x")),)),
                False,
                False,
            ),
        ):
            connection = PolicySet([policy(Action.ALLOW, rule)]).connection(facts())
            self.assertEqual((request, path), (connection.depends_on_request, connection.depends_on_path), rule)
            self.assertFalse(connection.depends_on_host, rule)
        hosts = Patterns(excluded=(HostPattern.parse("admin.example"),))
        connection = PolicySet([policy(Action.DENY, Rule("r", targets=(RuleTarget(hosts=hosts),)))]).connection(facts())
        self.assertTrue(connection.depends_on_host)


# A small world, so that rules often match.
_NAMES = st.sampled_from(["a", "b", "c"])
_IDS = st.builds(
    lambda td, ns, sa: SpiffeID.parse(f"spiffe://{td}/ns/{ns}/sa/{sa}"),
    st.sampled_from(["x.org", "y.org"]),
    _NAMES,
    _NAMES,
)
_MATCHERS = st.one_of(
    _IDS.map(lambda each: parse_matcher(str(each))),
    st.builds(lambda td, ns: parse_matcher(f"spiffe://{td}/ns/{ns}/*"), st.sampled_from(["x.org", "y.org"]), _NAMES),
    st.sampled_from([parse_matcher("spiffe://x.org/*"), parse_matcher("spiffe://y.org/ns/*")]),
)
_LEVELS = st.sampled_from(["DE:U", "DE:S", "FR:S"]).map(SecurityLevel.parse)
_PATTERNS = st.sampled_from(["/", "/*", "/a", "/a/*", "/a/b/*", "/a/{x}", "/{x}/b", "/{x}/{y}/c"]).map(
    PathPattern.parse
)
_HOSTS = st.sampled_from(["h.org", "*.org", "*.h.org"]).map(HostPattern.parse)


def _values(values: st.SearchStrategy[object]) -> st.SearchStrategy[Values]:
    some = st.frozensets(values, max_size=2)
    return st.builds(Values, st.one_of(st.just(frozenset()), some), st.one_of(st.just(frozenset()), some))


def _patterns(patterns: st.SearchStrategy[object]) -> st.SearchStrategy[Patterns]:
    some = st.lists(patterns, max_size=2).map(tuple)
    return st.builds(Patterns, some, st.one_of(st.just(()), some))


_ATTRIBUTES = st.builds(Attributes, st.none() | _NAMES, st.none() | _NAMES, st.none() | _LEVELS, st.none() | _NAMES)
_SOURCES = st.builds(
    Source,
    st.lists(_MATCHERS, max_size=2).map(tuple),
    st.lists(_MATCHERS, max_size=1).map(tuple),
    _values(st.sampled_from([TrustDomain.parse("x.org"), TrustDomain.parse("y.org")])),
    _values(_NAMES),
    _values(_NAMES),
    _values(_LEVELS),
    _values(_NAMES),
    st.booleans(),
    st.booleans(),
)
_FILTERS = st.lists(FILTERS, max_size=2).map(tuple)
_MQTT = st.builds(
    MqttTarget,
    _values(st.sampled_from(["Connect", "Publish", "Subscribe"])),
    st.builds(TopicFilters, _FILTERS, st.just(()) | _FILTERS),
    _patterns(st.sampled_from(["a", "a*", "*b", "*"]).map(ClientIdPattern.parse)),
)
_ALPNS = st.sampled_from(["h2", "postgresql"])
_TARGETS = st.builds(
    RuleTarget,
    _values(_NAMES),
    _values(st.sampled_from([1, 2])),
    _patterns(_HOSTS),
    _values(_ALPNS),
    _patterns(_HOSTS),
    _values(st.sampled_from(["GET", "PUT"])),
    _patterns(_PATTERNS),
)
_TARGETS = st.one_of(_TARGETS, st.builds(RuleTarget, _values(_NAMES), mqtt=_MQTT), st.builds(RuleTarget, mqtt=_MQTT))
_ASKED = st.sampled_from(["none", "signRequest"])
_CONDITIONS = st.builds(RuleCondition, st.none() | st.booleans(), _values(_ASKED))
RULES = st.builds(
    Rule,
    st.sampled_from(["r1", "r2", "r3"]),
    st.lists(st.one_of(st.just(Source()), _SOURCES), max_size=2).map(tuple),
    st.lists(st.one_of(st.just(RuleTarget()), _TARGETS), max_size=2).map(tuple),
    st.lists(_CONDITIONS, max_size=1).map(tuple),
)
POLICIES = st.builds(
    AuthorizationPolicy,
    st.sampled_from(["p", "q"]),
    st.sampled_from(Action),
    st.lists(RULES, max_size=4).map(tuple),
    st.sampled_from(["", "", "ns"]),
    st.booleans(),
    st.sampled_from([CLUSTER_RANK, CLUSTER_RANK, LOCAL_RANK, NAMESPACE_RANK]),
)
CONNECTIONS = st.builds(
    ConnectionFacts, _NAMES, st.sampled_from([1, 2]), _IDS, _ATTRIBUTES, _ATTRIBUTES, st.booleans(),
    st.sampled_from(["", "h.org", "x.h.org"]), st.sampled_from(["", "h2", "postgresql"]),
)  # fmt: skip
_CLIENT_IDS = st.sampled_from(["a", "ab", "b"])
REQUESTS = st.one_of(
    st.just(RequestFacts()),
    st.builds(
        lambda *of: RequestFacts(*of),
        st.sampled_from(["GET", "PUT", "HEAD"]),
        st.sampled_from(["/", "/a", "/a/", "/a/b", "/a/b/c", "/c/b", "/b", "*"]),
        st.sampled_from(["h.org", "x.h.org", "y"]),
        _ASKED,
    ),
    st.builds(lambda client: RequestFacts(None, None, None, None, "Connect", None, client), _CLIENT_IDS),
    st.builds(lambda *of: RequestFacts(None, None, None, None, "Publish", *of), st.sampled_from(TOPICS), _CLIENT_IDS),
    st.builds(lambda *of: RequestFacts(None, None, None, None, "Subscribe", *of), FILTERS, _CLIENT_IDS),
)


def rule_matches(action: Action, rule: Rule, connection: ConnectionFacts, request: RequestFacts) -> bool:
    unknown = action is not Action.ALLOW
    return (
        (not rule.sources or any(each.matches(connection, unknown=unknown) for each in rule.sources))
        and (
            not rule.targets
            or any(
                each.matches_connection(connection, unknown=unknown) and each.matches_request(request, unknown=unknown)
                for each in rule.targets
            )
        )
        and (
            not rule.conditions
            or any(
                each.matches_connection(connection) and each.asked.admits(request.asked, unknown=unknown)
                for each in rule.conditions
            )
        )
    )


def _naive(
    policies: list[AuthorizationPolicy], connection: ConnectionFacts, request: RequestFacts
) -> tuple[bool, list[tuple[str, str]]]:
    """Evaluate every rule of every policy in order."""

    def matching(action: Action, chosen: list[AuthorizationPolicy]) -> list[tuple[str, str]]:
        return [
            (each.qualified_name, rule.name)
            for each in chosen
            if each.action is action
            for rule in each.rules
            if rule_matches(action, rule, connection, request)
        ]

    denied = matching(Action.DENY, policies)
    if denied:
        return False, denied[:1]
    decided = []
    ranks = sorted({each.rank for each in policies if each.action is Action.ALLOW})
    for rank in ranks or [CLUSTER_RANK]:
        allowed = matching(Action.ALLOW, [each for each in policies if each.rank == rank])
        if not allowed:
            return False, [(DEFAULT_DENY, DEFAULT_DENY)]
        decided.append(allowed[0])
    return True, decided


def assert_as_naive(policies: list[AuthorizationPolicy], asked: list[tuple[ConnectionFacts, RequestFacts]]) -> None:
    """A set decides on requests as the evaluation of all its rules does, enforced, in dry run and audited."""
    policy_set = PolicySet(policies)
    enforced = [each for each in policies if each.enforced]
    for connection, request in asked:
        narrowed = policy_set.connection(connection)
        decision = narrowed.decide(request)
        found = decision.allowed, [(each.policy, each.rule) for each in decision.matched]
        assert found == _naive(enforced, connection, request)
        other = narrowed.decide(RequestFacts("OTHER", "/else", "else", "else"))
        if not narrowed.depends_on_request or (not narrowed.depends_on_http and request.action is None):
            assert decision == other
        dry_run = narrowed.dry_run(request)
        if dry_run is not None:
            found = dry_run.allowed, [(each.policy, each.rule) for each in dry_run.matched]
            assert found == _naive(policies, connection, request)
        audited = [
            (each.qualified_name, rule.name)
            for each in policies
            if each.action is Action.AUDIT
            for rule in each.rules
            if rule_matches(Action.AUDIT, rule, connection, request)
        ]
        assert audited == [(each.policy, each.rule) for each in narrowed.audited(request)]


class AgreementTests(SynchronousTestCase):
    """The index and the narrowing change no decision."""

    @given(st.lists(POLICIES, max_size=5), st.lists(st.tuples(CONNECTIONS, REQUESTS), min_size=1, max_size=4))
    def test_as_naive(
        self, policies: list[AuthorizationPolicy], asked: list[tuple[ConnectionFacts, RequestFacts]]
    ) -> None:
        """Any set decides on any request as the evaluation of all its rules does."""
        assert_as_naive(policies, asked)

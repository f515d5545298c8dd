"""What rules match of MQTT packets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.policy.engine import PolicySet
from svc.policy.mqtt import ClientIdPattern, parse_topic_filter
from svc.policy.paths import MAX_PATTERN, PatternMalformed
from svc.policy.rules import (
    Action,
    AuthorizationPolicy,
    MqttTarget,
    Patterns,
    RequestFacts,
    Rule,
    RuleTarget,
    TopicFilters,
    Values,
)
from tests.policy.test_engine import GET, everything, facts, paths, policy
from tests.wire.mqtt.test_topics import FILTERS, TOPICS, topics_of

NO_REQUEST = RequestFacts()


def connect(client_id: str = "c") -> RequestFacts:
    """The facts of a CONNECT."""
    return RequestFacts(action="Connect", client_id=client_id)


def publish(topic: str, client_id: str = "c") -> RequestFacts:
    """The facts of a PUBLISH."""
    return RequestFacts(action="Publish", topic=topic, client_id=client_id)


def subscribe(topic_filter: str, client_id: str = "c") -> RequestFacts:
    """The facts of one filter of a SUBSCRIBE."""
    return RequestFacts(action="Subscribe", topic=topic_filter, client_id=client_id)


def on_topics(*wanted: str, but: tuple[str, ...] = (), actions: tuple[str, ...] = ()) -> Rule:
    """A rule on topics."""
    mqtt = MqttTarget(Values(frozenset(actions)), TopicFilters(wanted, but))
    return Rule("topics", targets=(RuleTarget(mqtt=mqtt),))


def decided(*policies: AuthorizationPolicy, request: RequestFacts) -> bool:
    """Whether a packet is allowed."""
    return PolicySet(policies).connection(facts()).decide(request).allowed


class TopicFiltersTests(SynchronousTestCase):
    """The filters of a rule, compared with the sets of topics that they match."""

    @given(st.lists(FILTERS, max_size=3), st.lists(FILTERS, max_size=2), FILTERS)
    def test_subscribe(self, wanted: list[str], excluded: list[str], requested: str) -> None:
        """A rule that allows matches nothing but subsets of its topics; one that denies whatever has any of them."""
        filters, asked = TopicFilters(tuple(wanted), tuple(excluded)), subscribe(requested)
        inside = set(TOPICS).intersection(*([set().union(*map(topics_of, wanted))] if wanted else []))
        inside -= set().union(*map(topics_of, excluded))
        if filters.admits(asked, unknown=False):
            self.assertLessEqual(topics_of(requested), inside)
        if topics_of(requested) & inside:
            self.assertTrue(filters.admits(asked, unknown=True))

    @given(st.lists(FILTERS, max_size=1), st.lists(FILTERS, max_size=1), FILTERS)
    def test_subscribe_exactly(self, wanted: list[str], excluded: list[str], requested: str) -> None:
        """With one filter of a kind it matches these exactly."""
        filters, asked = TopicFilters(tuple(wanted), tuple(excluded)), subscribe(requested)
        inside = (topics_of(wanted[0]) if wanted else set(TOPICS)) - (topics_of(excluded[0]) if excluded else set())
        self.assertIs(topics_of(requested) <= inside, filters.admits(asked, unknown=False))
        self.assertIs(bool(topics_of(requested) & inside), filters.admits(asked, unknown=True))

    @given(st.lists(FILTERS, max_size=3), st.lists(FILTERS, max_size=2), st.sampled_from(TOPICS), st.booleans())
    def test_publish(self, wanted: list[str], excluded: list[str], topic: str, unknown: bool) -> None:
        """A topic name is matched by a wanted filter and by no excluded one."""
        inside = set(TOPICS).intersection(*([set().union(*map(topics_of, wanted))] if wanted else []))
        inside -= set().union(*map(topics_of, excluded))
        filters = TopicFilters(tuple(wanted), tuple(excluded))
        self.assertIs(topic in inside, filters.admits(publish(topic), unknown=unknown))

    def test_a_union_allows_nothing(self) -> None:
        """An Allow rule matches only if one filter covers all that is requested."""
        filters = TopicFilters(("a", "a/+/#"))
        self.assertFalse(filters.admits(subscribe("a/#"), unknown=False))
        self.assertTrue(filters.admits(subscribe("a/+"), unknown=False))


class DecisionTests(SynchronousTestCase):
    """Policies with rules on MQTT."""

    def test_allow(self) -> None:
        """Names are matched, filters must be covered; what begins with $ is not matched by a leading wildcard."""
        allow = policy(Action.ALLOW, on_topics("devices/+/state", "public/#"))
        for request, allowed in (
            (publish("devices/7/state"), True),
            (publish("devices/7/command"), False),
            (subscribe("devices/+/state"), True),
            (subscribe("devices/7/state"), True),
            (subscribe("devices/#"), False),
            (subscribe("public"), True),
            (subscribe("#"), False),
            (connect(), False),
            (GET, False),
            (NO_REQUEST, False),
        ):
            self.assertIs(allowed, decided(allow, request=request), request)
        self.assertFalse(decided(policy(Action.ALLOW, on_topics("#")), request=subscribe("$SYS/#")))

    def test_deny(self) -> None:
        """A filter that could match a forbidden topic is refused; nothing else is."""
        policies = [
            policy(Action.ALLOW, everything()),
            policy(Action.DENY, on_topics("secret/#", "+/keys"), name="no"),
        ]
        for request, allowed in (
            (publish("secret/a"), False),
            (publish("a/b"), True),
            (subscribe("#"), False),
            (subscribe("+/a"), False),
            (subscribe("a/+"), False),
            (subscribe("a/b/#"), True),
            (subscribe("$SYS/keys"), True),
            (connect(), True),
            (GET, True),
            (NO_REQUEST, True),
        ):
            self.assertIs(allowed, decided(*policies, request=request), request)

    def test_excluded_topics(self) -> None:
        """What an Allow rule excludes may not be matched; what a Deny rule excludes is not denied."""
        allow = policy(Action.ALLOW, on_topics("devices/#", but=("devices/+/keys",)))
        for topic_filter, allowed in (("devices/7/state", True), ("devices/7/#", False), ("devices/+/state", True)):
            self.assertIs(allowed, decided(allow, request=subscribe(topic_filter)), topic_filter)
        denying = on_topics("devices/#", but=("devices/7/#",))
        policies = [policy(Action.ALLOW, everything()), policy(Action.DENY, denying)]
        for topic_filter, allowed in (("devices/7/+", True), ("+/7/x", True), ("devices/+/x", False), ("#", False)):
            self.assertIs(allowed, decided(*policies, request=subscribe(topic_filter)), topic_filter)

    def test_audit_and_dry_run(self) -> None:
        """Both look at what a filter could match."""
        audit = policy(Action.AUDIT, on_topics("a/b"), name="seen")
        trial = policy(Action.DENY, on_topics("a/b"), name="trial", enforced=False)
        narrowed = PolicySet([policy(Action.ALLOW, everything()), audit, trial]).connection(facts())
        for topic_filter, matched in (("#", True), ("a/+", True), ("b/#", False)):
            self.assertIs(matched, bool(narrowed.audited(subscribe(topic_filter))), topic_filter)
            dry_run = narrowed.dry_run(subscribe(topic_filter))
            assert dry_run is not None
            self.assertIs(not matched, dry_run.allowed)
            self.assertTrue(narrowed.decide(subscribe(topic_filter)).allowed)

    def test_actions_and_client_identifiers(self) -> None:
        """Only those that are listed; without any of the keys all."""
        connecting = RuleTarget(
            mqtt=MqttTarget(Values(frozenset({"Connect"})), client_ids=Patterns((ClientIdPattern.parse("shop-*"),)))
        )
        allow = policy(Action.ALLOW, Rule("r", targets=(connecting,)))
        for request, allowed in (
            (connect("shop-1"), True),
            (connect("web-1"), False),
            (RequestFacts(action="Connect"), False),
            (publish("a", "shop-1"), False),
            (subscribe("a", "shop-1"), False),
            (GET, False),
        ):
            self.assertIs(allowed, decided(allow, request=request), request)
        for request in (connect(), publish("a"), subscribe("#")):
            self.assertTrue(decided(policy(Action.ALLOW, everything()), request=request))

    def test_rules_on_requests(self) -> None:
        """A rule on methods, paths or hosts matches no packet; one that denies all but some does."""
        for target in (RuleTarget(methods=Values(frozenset({"GET"}))), RuleTarget(paths=paths("/*"))):
            for action in (Action.ALLOW, Action.DENY):
                rules = policy(action, Rule("r", targets=(target,)))
                narrowed = PolicySet([policy(Action.ALLOW, everything()), rules]).connection(facts())
                self.assertEqual("all", narrowed.decide(publish("a")).matched[0].rule)
        excluding = Rule("r", targets=(RuleTarget(methods=Values(excluded=frozenset({"GET"}))),))
        policies = [policy(Action.ALLOW, everything()), policy(Action.DENY, excluding)]
        self.assertFalse(decided(*policies, request=publish("a")))

    def test_unknown_topics(self) -> None:
        """An exclusion alone matches what has no topic where the rule denies."""
        excluding = on_topics(but=("a",))
        self.assertFalse(decided(policy(Action.ALLOW, excluding), request=connect()))
        policies = [policy(Action.ALLOW, everything()), policy(Action.DENY, excluding)]
        for request in (connect(), GET, NO_REQUEST):
            self.assertFalse(decided(*policies, request=request))
        self.assertTrue(decided(*policies, request=publish("a")))

    def test_dependence(self) -> None:
        """A rule on MQTT makes the decision on packets depend on them, and changes nothing for HTTP."""
        on_path = Rule("r", targets=(RuleTarget(paths=paths("/a")),))
        for rules, depends in (
            ((on_topics("a"),), (True, False, False)),
            ((on_topics("a"), everything(), on_path), (True, False, False)),
            ((everything(), on_topics("a")), (False, False, False)),
            ((on_topics("a"), on_path), (True, True, True)),
        ):
            found = PolicySet([policy(Action.ALLOW, *rules)]).connection(facts())
            self.assertEqual(depends, (found.depends_on_request, found.depends_on_http, found.depends_on_path), rules)

    def test_few_candidates(self) -> None:
        """Of many rules a PUBLISH is compared with those whose first levels are its own."""
        rules = [on_topics(f"devices/{number}/#") for number in range(500)] + [on_topics("+/0/state"), on_topics("#")]
        asked: list[str] = []

        class Counted(TopicFilters):
            def admits(self, facts: RequestFacts, *, unknown: bool) -> bool:
                asked.append(self.wanted[0])
                return TopicFilters.admits(self, facts, unknown=unknown)

        counted = [
            Rule("r", targets=(RuleTarget(mqtt=MqttTarget(topics=Counted(rule.targets[0].mqtt.topics.wanted))),))
            for rule in rules
        ]
        narrowed = PolicySet([policy(Action.AUDIT, *counted)]).connection(facts())
        self.assertEqual(2, len(narrowed.audited(publish("devices/7/state"))))
        self.assertEqual(["devices/7/#", "+/0/state", "#"], asked)


class PatternTests(SynchronousTestCase):
    """The texts of rules."""

    def test_topic_filters(self) -> None:
        """Valid filters are read as they are; shared ones and those above the limit are refused."""
        for text in ("a", "#", "+/a/#", "/", "$SYS/#", "a" * MAX_PATTERN):
            self.assertEqual(text, parse_topic_filter(text))
        for text in ("", "a#", "#/a", "a+/b", "$share/g/a", "a\0", "a" * (MAX_PATTERN + 1)):
            self.assertRaises(PatternMalformed, parse_topic_filter, text)

    def test_client_identifiers(self) -> None:
        """One star stands for any characters; the beginning and the end do not overlap."""
        for pattern, matched, others in (
            ("a", ("a",), ("", "ab", "A")),
            ("a*", ("a", "ab", "a*"), ("", "ba")),
            ("*", ("", "a"), ()),
            ("ab*ba", ("abba", "ab-ba"), ("aba", "abab")),
        ):
            parsed = ClientIdPattern.parse(pattern)
            for text in matched:
                self.assertTrue(parsed.matches(text), (pattern, text))
            for text in others:
                self.assertFalse(parsed.matches(text), (pattern, text))
        for text in ("", "a*b*", "a" * (MAX_PATTERN + 1)):
            self.assertRaises(PatternMalformed, ClientIdPattern.parse, text)
        self.assertEqual("a" * MAX_PATTERN, str(ClientIdPattern.parse("a" * MAX_PATTERN)))

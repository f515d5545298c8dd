"""Rules that never decide."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import parse_matcher
from svc.policy.rules import Action, ConnectionFacts, Patterns, RequestFacts, Rule, RuleTarget, Source, Values
from svc.policy.shadowing import Shadowed, covers, shadowed_rules
from tests.policy.test_engine import CONNECTIONS, REQUESTS, RULES, everything, paths, policy, rule_matches

GETS = Rule("gets", targets=(RuleTarget(methods=Values(frozenset({"GET"})), paths=paths("/a/*")),))
ONE = Rule("one", targets=(RuleTarget(methods=Values(frozenset({"GET"})), paths=paths("/a/b", "/a/{x}/c")),))


class CoversTests(SynchronousTestCase):
    """Whether one rule matches all that another matches."""

    def test_examples(self) -> None:
        """Entry by entry, and value by value."""
        shop = Rule("shop", (Source((parse_matcher("spiffe://x.org/ns/shop/*"),)),))
        web = Rule("web", (Source((parse_matcher("spiffe://x.org/ns/shop/sa/web"),)),))
        not_web = Rule(
            "not-web", (Source((parse_matcher("spiffe://x.org/ns/*"),), (parse_matcher("spiffe://x.org/ns/shop/*"),)),)
        )
        for wide, narrow, covered in (
            (everything(), GETS, True),
            (GETS, everything(), False),
            (GETS, ONE, True),
            (ONE, GETS, False),
            (shop, web, True),
            (web, shop, False),
            (not_web, web, False),
            (shop, GETS, False),
            (Rule("r", targets=(RuleTarget(paths=Patterns((), paths("/x").wanted)),)), GETS, False),
        ):
            self.assertEqual(covered, covers(wide, narrow), (wide.name, narrow.name))

    @given(RULES, RULES, st.lists(st.tuples(CONNECTIONS, REQUESTS), min_size=1, max_size=8))
    def test_sound(self, wide: Rule, narrow: Rule, asked: list[tuple[ConnectionFacts, RequestFacts]]) -> None:
        """What matches a covered rule matches the one that covers it."""
        for rule in (wide, Rule("all"), narrow):
            if covers(rule, narrow):
                for connection, request in asked:
                    for action in Action:
                        if rule_matches(action, narrow, connection, request):
                            self.assertTrue(rule_matches(action, rule, connection, request))
        self.assertTrue(covers(Rule("all"), narrow))


class ShadowedTests(SynchronousTestCase):
    """Rules of several policies."""

    def test_order(self) -> None:
        """Deny comes before Allow; policies of the namespace and of the cluster do not shadow each other."""
        policies = [
            policy(Action.ALLOW, ONE, GETS, ONE, name="a"),
            policy(Action.DENY, GETS, name="d"),
            policy(Action.ALLOW, everything(), name="dry", enforced=False),
            policy(Action.ALLOW, everything(), name="n", namespace="shop"),
        ]
        expected = [
            Shadowed("a", "one", "d", "gets"),
            Shadowed("a", "gets", "d", "gets"),
            Shadowed("a", "one", "d", "gets"),
        ]
        self.assertEqual(expected, list(shadowed_rules(policies)))
        self.assertEqual(
            [Shadowed("a", "one", "a", "gets")], list(shadowed_rules([policy(Action.ALLOW, GETS, ONE, name="a")]))
        )
        self.assertEqual([], list(shadowed_rules([policy(Action.ALLOW, ONE, GETS, name="a")])))

"""Rules of access."""

from __future__ import annotations

from hypothesis import given
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import CACHED_IDENTITIES, AccessRule, AllowAll, Principal, Rules
from svc.identity import SpiffeID
from svc.identity.matchers import parse_matcher
from tests.broker.topics import SHARED

DEVICE = Principal(SpiffeID.parse("spiffe://example.org/device/7"))
NOBODY = Principal(None)


class RulesTests(SynchronousTestCase):
    """Several rules."""

    def test_what_any_allows(self) -> None:
        """Rules add up; each applies to the identities that it names only."""
        rules = Rules(
            (
                AccessRule(parse_matcher("spiffe://example.org/device/*"), ("a",), ("b/#",)),
                AccessRule(parse_matcher("spiffe://example.org/device/7"), ("c",), ("d",)),
                AccessRule(parse_matcher("spiffe://example.org/device/8"), ("e",), ("f",)),
                AccessRule(None, ("g",), ("h",)),
            )
        )
        self.assertEqual([rules.may_publish(DEVICE, each) for each in "aceg"], [True, True, False, False])
        self.assertEqual([rules.may_publish(NOBODY, each) for each in "aceg"], [False, False, False, True])
        self.assertEqual(
            [rules.may_subscribe(DEVICE, each) for each in ("b/+", "d", "f", "h")], [True, True, False, False]
        )
        self.assertEqual(
            [rules.may_subscribe(NOBODY, each) for each in ("b/+", "d", "f", "h")], [False, False, False, True]
        )

    def test_none(self) -> None:
        """Without rules nothing is allowed."""
        for who in (DEVICE, NOBODY):
            self.assertFalse(Rules(()).may_publish(who, "a"))
            self.assertFalse(Rules(()).may_subscribe(who, "a"))

    def test_rules_are_found_once(self) -> None:
        """The rules of an identity are looked up once and cached, for a bounded number of identities."""
        asked: list[SpiffeID] = []

        class Counting:
            def matches(self, spiffe_id: SpiffeID) -> bool:
                asked.append(spiffe_id)
                return spiffe_id.path.endswith("/0")

        rules = Rules((AccessRule(Counting(), ("a",), ("a",)), AccessRule(None, ("b",), ("b",))))  # type: ignore[arg-type]
        names = [SpiffeID.parse(f"spiffe://example.org/device/{number}") for number in range(CACHED_IDENTITIES + 1)]
        for number, name in enumerate(names):
            for _ in range(2):
                self.assertIs(rules.may_publish(Principal(name), "a"), number == 0)
                self.assertIs(rules.may_subscribe(Principal(name), "a"), number == 0)
                self.assertFalse(rules.may_publish(Principal(name), "b"))
        self.assertEqual(asked, names)
        self.assertTrue(rules.may_publish(NOBODY, "b"))
        self.assertFalse(rules.may_publish(NOBODY, "a"))
        self.assertLessEqual(len(rules._cache), CACHED_IDENTITIES)

    def test_a_union_is_not_enough(self) -> None:
        """One filter must cover a subscription: that two do together is not seen, and refused."""
        rules = Rules((AccessRule(None, (), ("a", "a/+/#")),))
        self.assertFalse(rules.may_subscribe(NOBODY, "a/#"))

    @given(SHARED)
    def test_shared(self, wanted: str) -> None:
        """A shared subscription is allowed where its filter is, and the share's name opens nothing."""
        inner = wanted.split("/", 2)[2]
        self.assertTrue(Rules((AccessRule(None, (), (inner,)),)).may_subscribe(NOBODY, wanted))
        self.assertFalse(Rules((AccessRule(None, (), ("$share/#",)),)).may_subscribe(NOBODY, wanted))

    def test_sys_is_of_the_broker(self) -> None:
        """Clients cannot publish below $SYS, whatever the rules."""
        for guard in (Rules((AccessRule(None, ("$SYS/#", "$SYS"), ()),)), AllowAll()):
            for topic in ("$SYS", "$SYS/broker/x"):
                self.assertFalse(guard.may_publish(NOBODY, topic))
        self.assertTrue(AllowAll().may_publish(NOBODY, "$SYSTEM/x"))

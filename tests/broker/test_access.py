"""Rules of access."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import CACHED_IDENTITIES, AccessRule, AllowAll, Principal, Rules, covers
from svc.identity import SpiffeID
from svc.identity.matchers import parse_matcher
from svc.wire.mqtt import matches
from tests.broker.topics import FILTERS, SHARED, TOPICS

DEVICE = Principal(SpiffeID.parse("spiffe://example.org/device/7"))
NOBODY = Principal(None)


def fitting(wanted: str, names: list[str]) -> str:
    """Make a topic that a filter matches."""
    levels = wanted.split("/")
    rest = iter([*names, "a", "a", "a", "a"])
    made = [next(rest) if level == "+" else level for level in levels if level != "#"]
    if levels[-1] == "#":
        made += names
    return "/".join(made)


class CoversTests(SynchronousTestCase):
    """Whether one filter matches everything that another one can match."""

    @given(FILTERS, FILTERS, st.lists(st.sampled_from(["a", "b", "", "q"]), max_size=3))
    @example("#", "#", [])
    @example("a/#", "a", [])
    @example("+", "$own", [])
    @example("$own/#", "$own", [])
    def test_never_too_much(self, allowed: str, wanted: str, names: list[str]) -> None:
        """Where it returns True, every topic of the requested filter is a topic of the allowed one."""
        topic = fitting(wanted, names)
        if covers(allowed, wanted) and topic and matches(wanted, topic):
            self.assertTrue(matches(allowed, topic), (allowed, wanted, topic))

    @given(FILTERS, FILTERS, TOPICS)
    def test_any_topic(self, allowed: str, wanted: str, topic: str) -> None:
        """The same holds for any topic."""
        if covers(allowed, wanted) and matches(wanted, topic):
            self.assertTrue(matches(allowed, topic))

    @given(FILTERS)
    def test_itself(self, wanted: str) -> None:
        """Every filter covers itself; # covers all but what begins with $."""
        self.assertTrue(covers(wanted, wanted))
        self.assertIs(covers("#", wanted), wanted[0] != "$")

    @given(FILTERS, TOPICS)
    def test_a_topic_is_a_filter(self, allowed: str, topic: str) -> None:
        """For a filter without wildcards it is the same as matching."""
        self.assertIs(covers(allowed, topic), matches(allowed, topic))

    def test_never_too_little(self) -> None:
        """The table of what is covered and what is not."""
        rows = [
            ("a/#", "a", True),
            ("a/#", "a/#", True),
            ("a/#", "a/+/b", True),
            ("a/+", "a/b", True),
            ("a/+", "a/+", True),
            ("a/+", "a/#", False),
            ("a/b", "a/+", False),
            ("+/b", "a/b", True),
            ("+/+", "a/#", False),
            ("+/#", "a", True),
            ("+/#", "#", False),
            ("#", "+/#", True),
            ("#", "$SYS/#", False),
            ("+/x", "$SYS/x", False),
            ("$SYS/#", "$SYS/x", True),
            ("a/#", "b/#", False),
            ("a", "a/b", False),
            ("a/b", "a", False),
        ]
        for allowed, wanted, expected in rows:
            self.assertIs(covers(allowed, wanted), expected, (allowed, wanted))


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

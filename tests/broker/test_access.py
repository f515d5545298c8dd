"""Rules of access."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import (
    CACHED_IDENTITIES,
    AccessRule,
    AllowAll,
    ClientName,
    ListenerGuard,
    NamePattern,
    Principal,
    Rules,
    substitute,
)
from svc.identity import SpiffeID
from svc.identity.matchers import parse_matcher
from svc.wire.mqtt import covers, matches
from tests.broker.topics import SHARED

DEVICE = Principal(SpiffeID.parse("spiffe://example.org/device/7"))
NOBODY = Principal(None)


_SMALL = st.lists(st.sampled_from(["a", "b", "", "$x", "+"]), max_size=2)
#: Filters of up to three levels, and all topics of as many that differ for them.
SMALL_FILTERS = (
    st.tuples(_SMALL, st.sampled_from(["a", "b", "", "$x", "+", "#"]))
    .map(lambda parts: "/".join([*parts[0], parts[1]]))
    .filter(bool)
)
ALL_TOPICS = [
    topic
    for count in range(1, 4)
    for levels in product(["a", "b", "", "$x", "z"], repeat=count)
    if (topic := "/".join(levels))
]


def matched(topic_filter: str) -> set[str]:
    """All topics of a filter."""
    return {each for each in ALL_TOPICS if matches(topic_filter, each)}


class DenyTests(SynchronousTestCase):
    """Rules that deny."""

    @given(
        st.lists(st.tuples(st.lists(SMALL_FILTERS, max_size=2), st.lists(SMALL_FILTERS, max_size=2)), max_size=3),
        SMALL_FILTERS,
    )
    def test_by_brute_force(self, made: list[tuple[list[str], list[str]]], wanted: str) -> None:
        """Deny wins whatever the order of rules, and no topic is received that could not be allowed by itself."""
        rules = [AccessRule(None, tuple(a), tuple(a), tuple(d), tuple(d)) for a, d in made]
        allowed = {topic for a, _ in made for each in a for topic in matched(each)}
        denied = {topic for _, d in made for each in d for topic in matched(each)}
        for guard in (Rules(tuple(rules)), Rules(tuple(reversed(rules)))):
            self.assertEqual({each for each in ALL_TOPICS if guard.may_publish(NOBODY, each)}, allowed - denied)
            granted = guard.may_subscribe(NOBODY, wanted)
            covered = any(covers(each, wanted) for a, _ in made for each in a)
            self.assertIs(granted, covered and not matched(wanted) & denied)
            if granted:
                self.assertLessEqual(matched(wanted), allowed - denied)

    def test_table(self) -> None:
        """What intersects a denied filter is refused, shared or not; publishing and subscribing are denied apart."""
        rules = Rules((AccessRule(None, ("#",), ("#", "$own/#"), ("keys/+/new",), ("keys/#",)),))
        for wanted, expected in (
            ("lights/#", True),
            ("#", False),
            ("+/a", False),
            ("keys", False),
            ("$share/g/keys/a", False),
            ("$share/g/lights/a", True),
            ("$own/#", True),
        ):
            self.assertIs(rules.may_subscribe(NOBODY, wanted), expected, wanted)
        for topic, expected in (("keys/a", True), ("keys/a/new", False), ("lights", True)):
            self.assertIs(rules.may_publish(NOBODY, topic), expected, topic)

    def test_connect(self) -> None:
        """A rule that only denies lets nobody in; one that names a client and nothing else does."""
        self.assertFalse(Rules((AccessRule(None, deny_publish=("a",)),)).may_connect(NOBODY))
        self.assertFalse(Rules((AccessRule(None, deny_subscribe=("a",)),)).may_connect(NOBODY))
        self.assertTrue(Rules((AccessRule(None),)).may_connect(NOBODY))
        self.assertTrue(Rules((AccessRule(None, ("b",), deny_publish=("a",)),)).may_connect(NOBODY))


def user(name: str, client_id: str = "") -> Principal:
    """A client that logged in."""
    return Principal(None, name=ClientName("user", name), client_id=client_id)


class PatternTests(SynchronousTestCase):
    """Filters with the identifier or the name of a client."""

    def test_levels(self) -> None:
        """Whole levels are replaced, and nothing else."""
        who = user("u1", "c1")
        for pattern, expected in (
            ("a/%c/%u", "a/c1/u1"),
            ("%u", "u1"),
            ("%c/#", "c1/#"),
            ("a/%x/%%", "a/%x/%%"),
            ("a%c/b", "a%c/b"),
        ):
            self.assertEqual(substitute(pattern, who), expected)

    def test_values_that_are_no_level(self) -> None:
        """They allow nothing, and are denied everything."""
        rules = Rules((AccessRule(NamePattern("user", "*"), ("d/%u/#", "all"), ("d/%u/#",)),))
        strict = Rules((AccessRule(NamePattern("user", "*"), ("#",), ("#",), ("d/%u/#",), ("d/%u/#",)),))
        for name in ("a/b", "+", "#", "a+", "", "$SYS", "/"):
            self.assertIsNone(substitute("%u/x", user(name)), name)
            self.assertFalse(rules.may_publish(user(name), f"d/{name}/x"))
            self.assertFalse(rules.may_subscribe(user(name), "d/+/x"))
            self.assertTrue(rules.may_publish(user(name), "all"))
            self.assertFalse(strict.may_publish(user(name), "other"))
            self.assertFalse(strict.may_subscribe(user(name), "other"))
        self.assertTrue(strict.may_publish(user("a"), "d/b/x"))
        self.assertFalse(strict.may_publish(user("a"), "d/a/x"))

    @given(SMALL_FILTERS, st.text(alphabet="ab/+#$", max_size=3), st.sampled_from(["%c", "%u"]))
    def test_never_wider(self, topic_filter: str, value: str, level: str) -> None:
        """What a client may publish to, a + in place of its value matches; so it reaches no tree of another level."""
        levels = topic_filter.split("/")
        at = len(levels) // 2
        pattern = "/".join([*levels[:at], level, *levels[at:]])
        plain = "/".join([*levels[:at], "+", *levels[at:]])
        rules = Rules((AccessRule(NamePattern("user", "*"), (pattern,), (pattern,)),))
        who = user(value, value)
        for topic in ALL_TOPICS:
            if rules.may_publish(who, topic):
                self.assertTrue(matches(plain, topic), (pattern, value, topic))
                self.assertEqual(topic.split("/")[at], value)

    def test_others(self) -> None:
        """A SPIFFE ID has no name for %u, and has an identifier."""
        who = Principal(SpiffeID.parse("spiffe://example.org/a"), client_id="c")
        self.assertEqual((substitute("%u", who), substitute("%c", who)), (None, "c"))


class NameTests(SynchronousTestCase):
    """Clients without a SPIFFE ID that have names."""

    def test_patterns(self) -> None:
        """An asterisk stands for any characters of a name of the same kind."""
        for pattern, name, expected in (
            ("a", "a", True),
            ("a", "A", False),
            ("*", "", True),
            ("a*", "a/b\nc", True),
            ("a*c*e", "abcde", True),
            ("a*c*e", "acce", True),
            ("a*c*e", "abde", False),
            ("*.x", "y.x", True),
            ("*.x", "yzx", False),
            ("a**b", "ab", True),
            ("ab*ba", "aba", False),
        ):
            self.assertIs(NamePattern("user", pattern).matches(ClientName("user", name)), expected, (pattern, name))
            self.assertFalse(NamePattern("certificate", pattern).matches(ClientName("user", name)))

    @given(st.text("ab*", max_size=6), st.text("ab", max_size=6))
    def test_pattern_by_recursion(self, pattern: str, name: str) -> None:
        """The same as trying every length for each asterisk."""

        def fits(pattern: str, name: str) -> bool:
            if not pattern:
                return not name
            if pattern[0] == "*":
                return any(fits(pattern[1:], name[at:]) for at in range(len(name) + 1))
            return bool(name) and pattern[0] == name[0] and fits(pattern[1:], name[1:])

        self.assertIs(NamePattern("user", pattern).matches(ClientName("user", name)), fits(pattern, name))

    def test_kinds_are_apart(self) -> None:
        """A rule for one kind is none for the others, however the names are spelled."""
        text = "spiffe://example.org/device/7"
        rules = {
            "id": Rules((AccessRule(parse_matcher(text), ("a",)),)),
            "user": Rules((AccessRule(NamePattern("user", text), ("a",)),)),
            "certificate": Rules((AccessRule(NamePattern("certificate", text), ("a",)),)),
            "nobody": Rules((AccessRule(None, ("a",)),)),
        }
        clients = {
            "id": DEVICE,
            "user": user(text),
            "certificate": Principal(None, name=ClientName("certificate", text)),
            "nobody": NOBODY,
        }
        for kind, rule in rules.items():
            for other, client in clients.items():
                self.assertIs(rule.may_publish(client, "a"), kind == other, (kind, other))
                self.assertIs(rule.may_connect(client), kind == other)

    @given(st.text(max_size=5), st.text(st.sampled_from("ab-"), max_size=3), st.text(max_size=5))
    def test_owners(self, name: str, listener: str, other: str) -> None:
        """Owners of different kinds are never the same, and each is parsed back."""
        owners = [
            DEVICE,
            Principal(None, listener=listener),
            user(name),
            Principal(None, listener=listener, name=ClientName("certificate", name)),
            Principal(None, listener=f"{listener}x", name=ClientName("certificate", name)),
        ]
        self.assertEqual(len({each.owner for each in owners}), len(owners))
        for each in owners:
            found = Principal.from_owner(each.owner, "c")
            self.assertEqual((found.identity, found.owner, found.client_id), (each.identity, each.owner, "c"))
            if each.name is None or each.name.kind == "certificate":
                self.assertEqual(found.listener, each.listener)

    def test_stored_sessions(self) -> None:
        """A user keeps what any listener with passwords allows, a name in a certificate what its own listener does."""
        users, names = (
            Rules((AccessRule(NamePattern(kind, "*"), subscribe=("a",)),)) for kind in ("user", "certificate")
        )
        guard = ListenerGuard({"u": users, "c": names}, (), {"u"})
        stored = Principal.from_owner
        self.assertTrue(guard.may_connect(stored("user x")))
        self.assertTrue(guard.may_subscribe(stored("user x"), "a"))
        self.assertTrue(guard.may_connect(stored("certificate c x")))
        for owner in ("certificate u x", "certificate gone x", "anonymous u", "anonymous c", "spiffe://example.org/x"):
            self.assertFalse(guard.may_connect(stored(owner)), owner)
        self.assertFalse(ListenerGuard({"c": names}).may_connect(stored("user x")))


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

        rules = Rules((AccessRule(Counting(), ("a",), ("a",)), AccessRule(None, ("b",), ("b",))))
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

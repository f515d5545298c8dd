"""Which identities a matcher covers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import AnyOf, ExactID, MatcherMalformed, MemberOf, PathPrefix, SpiffeID, TrustDomain, parse_matcher

_SEGMENT = st.text(alphabet="aAb-", min_size=1, max_size=3)
_PATH = st.lists(_SEGMENT, max_size=3).map(lambda segments: "".join(f"/{segment}" for segment in segments))
_ID = st.tuples(st.sampled_from(["a", "a.b", "b"]), _PATH).map(lambda p: SpiffeID.parse(f"spiffe://{p[0]}{p[1]}"))


def matched(pattern: str, *texts: str) -> list[bool]:
    """Ask a matcher for several identities."""
    matcher = parse_matcher(pattern)
    return [matcher.matches(SpiffeID.parse(text)) for text in texts]


class MatcherTests(SynchronousTestCase):
    """Matchers and their written form."""

    def test_exact(self) -> None:
        """An exact matcher covers its identity, not siblings, children or another case."""
        found = matched(
            "spiffe://td/ns/pay", "spiffe://td/ns/pay", "spiffe://td/ns/Pay", "spiffe://td/ns/pay/a", "spiffe://td/ns"
        )
        self.assertEqual(found, [True, False, False, False])
        self.assertEqual(matched("spiffe://td/a", "spiffe://td2/a"), [False])

    def test_prefix_ends_at_a_path_boundary(self) -> None:
        """A prefix covers what is below the path, not the path itself and not longer names of the last segment."""
        found = matched(
            "spiffe://td/ns/pay/*",
            "spiffe://td/ns/pay/sa/api",
            "spiffe://td/ns/pay",
            "spiffe://td/ns/payroll/sa/api",
            "spiffe://td/NS/pay/sa/api",
            "spiffe://td.evil/ns/pay/sa/api",
        )
        self.assertEqual(found, [True, False, False, False, False])

    def test_trust_domain(self) -> None:
        """A trust domain covers its workloads, not its own ID and not similar trust domains."""
        found = matched("spiffe://td/*", "spiffe://td/a", "spiffe://td/a/b", "spiffe://td", "spiffe://x.td/a")
        self.assertEqual(found, [True, True, False, False])
        self.assertEqual(matched("spiffe://td/*", "spiffe://td.x/a", "spiffe://tdx/a"), [False, False])

    def test_any_of(self) -> None:
        """A union covers what one of its matchers covers; an empty one covers no identity."""
        union = AnyOf((parse_matcher("spiffe://a/x"), parse_matcher("spiffe://b/*")))
        ids = [SpiffeID.parse(text) for text in ("spiffe://a/x", "spiffe://b/y", "spiffe://a/y")]
        self.assertEqual([union.matches(each) for each in ids], [True, True, False])
        self.assertEqual([AnyOf(()).matches(each) for each in ids], [False, False, False])
        self.assertEqual((str(union), str(AnyOf(()))), ("spiffe://a/x, spiffe://b/*", "nobody"))

    def test_malformed(self) -> None:
        """Wildcards in other positions, identities without a path and other texts are refused."""
        for text in (
            "*",
            "spiffe://*",
            "spiffe://*/a",
            "spiffe://td",
            "spiffe://td/",
            "spiffe://td/a*",
            "spiffe://td/a/**",
            "spiffe://td/*/b",
            "spiffe://td/a/*/*",
            "spiffe://TD/*",
            "td/*",
            "",
            None,
        ):
            self.assertRaises(MatcherMalformed, parse_matcher, text)

    def test_a_prefix_needs_a_path(self) -> None:
        """A prefix without a path is refused: that is a trust domain."""
        self.assertRaises(MatcherMalformed, PathPrefix, TrustDomain("td").id)

    @given(_ID.filter(lambda found: found.path), _ID)
    def test_any_matcher(self, named: SpiffeID, other: SpiffeID) -> None:
        """Any matcher is read back from its text and gives the same result as a comparison of segments."""
        segments, others = named.path.split("/"), other.path.split("/")
        same = named.trust_domain == other.trust_domain
        below = len(others) > len(segments) and others[: len(segments)] == segments
        for matcher, covers in (
            (ExactID(named), named == other),
            (PathPrefix(named), same and below),
            (MemberOf(named.trust_domain), same and other.path != ""),
        ):
            self.assertEqual(parse_matcher(str(matcher)), matcher)
            self.assertEqual(matcher.matches(other), covers)

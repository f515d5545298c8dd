"""Topic filters as sets of topics, compared with every topic of a small alphabet."""

from __future__ import annotations

from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import covers, filter_defect, intersection, intersects, matches

_LEVELS = ["a", "b", "", "$s"]
#: One level that no filter names, and one level more than a filter has.
TOPICS = [
    topic for depth in range(1, 5) for each in product([*_LEVELS, "z"], repeat=depth) if (topic := "/".join(each))
]
FILTERS = (
    st.tuples(st.lists(st.sampled_from([*_LEVELS, "+"]), max_size=2), st.sampled_from([*_LEVELS, "+", "#"]))
    .map(lambda parts: "/".join([*parts[0], parts[1]]))
    .filter(bool)
)


def topics_of(topic_filter: str) -> set[str]:
    """The topics that a filter matches, of the small alphabet."""
    return {topic for topic in TOPICS if matches(topic_filter, topic)}


class CoversTests(SynchronousTestCase):
    """Whether one filter matches everything that another one can match."""

    @given(FILTERS, FILTERS)
    @example("#", "#")
    @example("+/#", "#")
    @example("/+/#", "/#")
    @example("a/#", "a")
    @example("+", "$s")
    @example("$s/#", "$s")
    def test_is_inclusion(self, allowed: str, requested: str) -> None:
        """It is the inclusion of the sets of topics."""
        self.assertIs(covers(allowed, requested), topics_of(allowed) >= topics_of(requested))

    def test_table(self) -> None:
        """What is covered and what is not."""
        for allowed, requested, expected in (
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
            ("+/#", "#", True),
            ("+/+/#", "#", False),
            ("#", "+/#", True),
            ("#", "$SYS/#", False),
            ("+/x", "$SYS/x", False),
            ("$SYS/#", "$SYS/x", True),
            ("a/#", "b/#", False),
            ("a", "a/b", False),
            ("a/b", "a", False),
        ):
            self.assertIs(covers(allowed, requested), expected, (allowed, requested))


class IntersectionTests(SynchronousTestCase):
    """The topics that two filters both match."""

    @given(FILTERS, FILTERS)
    @example("a/#", "a")
    @example("#", "$s/#")
    @example("+/#", "#")
    @example("/#", "+")
    def test_is_intersection(self, first: str, second: str) -> None:
        """It is the filter of the intersection of the sets of topics; None where that is empty."""
        both = topics_of(first) & topics_of(second)
        found = intersection(first, second)
        self.assertEqual(both, set() if found is None else topics_of(found))
        self.assertIs(intersects(first, second), bool(both))
        self.assertTrue(found is None or not filter_defect(found))

    def test_table(self) -> None:
        """Filters and what they have in common."""
        for first, second, expected in (
            ("a/+", "+/b", "a/b"),
            ("a/#", "+/b/#", "a/b/#"),
            ("a/#", "a", "a"),
            ("a/+/#", "a/#", "a/+/#"),
            ("a/+", "a/b/c", None),
            ("#", "$SYS/x", None),
            ("+/x", "$SYS/x", None),
            ("$SYS/#", "$SYS/+/x", "$SYS/+/x"),
            ("$SYS/#", "$own/#", None),
        ):
            self.assertEqual(expected, intersection(first, second), (first, second))
            self.assertEqual(expected, intersection(second, first), (second, first))

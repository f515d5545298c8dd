"""What the subscriptions of one session may take together."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.filters import (
    LEAST_OCTETS,
    LEAST_WILDCARD_LEVELS,
    OCTETS,
    WILDCARD_LEVELS,
    FilterCost,
    SessionSubscriptions,
    filter_cost,
)
from svc.broker.hub import HubLimits
from svc.broker.journal import RecoveredSession, RecoveredState, SessionRecord
from svc.broker.session import SessionLimits
from svc.wire.mqtt import Suback, Subscription, Version
from tests.broker.rig import Rig
from tests.broker.topics import FILTERS, SHARED

#: No topic has more levels, whatever the limits are.
DEEPEST = 1000


def put(filters: SessionSubscriptions, *wanted: str) -> SessionSubscriptions:
    """Subscribe."""
    for each in wanted:
        filters[each] = (Subscription(each), None)
    return filters


def open_filter(number: int, levels: int) -> str:
    """A filter with so many levels from its first ``+`` on."""
    return "/".join([str(number), *["+"] * levels])


class WeightTests(SynchronousTestCase):
    """One filter."""

    def test_open_levels(self) -> None:
        """The levels from the first + on count; without one a message follows one way."""
        for wanted, count in (("a/b/c/d", 0), ("a/#", 0), ("+", 1), ("+/a/#", 3), ("a/b/+/c", 2), ("$share/g/+/a", 2)):
            self.assertEqual(filter_cost(wanted).wildcard_levels, count, wanted)

    def test_octets(self) -> None:
        """Longer and deeper filters take more, in octets and not in characters."""
        self.assertGreater(filter_cost("a" * 1000).octets, filter_cost("a").octets + 1000)
        self.assertGreater(filter_cost("/".join("a" * 100)).octets, filter_cost("a" * 199).octets + 20_000)
        self.assertGreater(filter_cost("\U0001f600" * 1000).octets, filter_cost("a" * 1000).octets + 3000)


class SessionFiltersTests(SynchronousTestCase):
    """All of a session."""

    @given(st.lists(st.tuples(st.booleans(), FILTERS | SHARED), max_size=12))
    def test_what_is_counted(self, changes: list[tuple[bool, str]]) -> None:
        """After any changes the sums are those of what is there, and nothing is left behind."""
        filters, model = SessionSubscriptions(1000), set[str]()
        for add, wanted in changes:
            if add:
                put(filters, wanted)
                model.add(wanted)
            else:
                self.assertIs(filters.pop(wanted, None) is not None, wanted in model)
                model.discard(wanted)
            self.assertEqual(set(filters), model)
            weights = [filter_cost(each) for each in model]
            found = FilterCost(filters.octets, filters.wildcard_levels)
            self.assertEqual(
                found, (sum(each.octets for each in weights), sum(each.wildcard_levels for each in weights))
            )
        filters.clear()
        self.assertEqual((filters.octets, filters.wildcard_levels, len(filters)), (0, 0, 0))

    def test_any_single_filter_fits(self) -> None:
        """However few are allowed, the deepest and longest filter is no reason to refuse it."""
        for wanted in ("/".join("+" * DEEPEST), "\U0001f600" * 16_000, "/".join("a" * DEEPEST) + "b" * 63_000):
            self.assertTrue(SessionSubscriptions(1).has_room_for(wanted), wanted[:9])

    def test_open_levels(self) -> None:
        """At the bound and one level beyond it."""
        for limit, most in ((1, LEAST_WILDCARD_LEVELS), (1000, 1000 * WILDCARD_LEVELS)):
            filters = put(SessionSubscriptions(limit), open_filter(0, most - 10))
            self.assertEqual(
                [filters.has_room_for(open_filter(1, each)) for each in (10, 11)], [limit > 1, False], limit
            )
            self.assertTrue(filters.has_room_for(open_filter(0, most - 10)))

    def test_octets(self) -> None:
        """At the bound and one octet beyond it; what goes makes room."""
        for limit, most in ((10, LEAST_OCTETS), (1000, 1000 * OCTETS)):
            base = filter_cost("0").octets - 2
            filters = put(SessionSubscriptions(limit), "a" * ((most - filter_cost("1").octets - base) // 2))
            room = (most - filters.octets - base) // 2
            self.assertEqual([filters.has_room_for("1" * each) for each in (room, room + 1)], [True, False])
            filters.clear()
            self.assertTrue(filters.has_room_for("1" * (room + 1)))

    def test_usual_filters(self) -> None:
        """As many usual filters as the number allows fit, with and without wildcards."""
        for form in ("building/{0}/floor/{0}/room/{0}/temperature/value", "devices/{0}/+/state"):
            filters = put(SessionSubscriptions(1000), *map(form.format, range(999)))
            self.assertTrue(filters.has_room_for(form.format("last")))


class BrokerTests(SynchronousTestCase):
    """What clients see."""

    def setUp(self) -> None:
        """Make a broker."""
        self.rig = Rig(limits=HubLimits(session=SessionLimits(subscriptions=10)))

    def subscribes(self, version: Version, *wanted: str) -> Any:
        """Subscribe with a new client."""
        return self.rig.connect("c", version).subscribes(*(Subscription(each, 1) for each in wanted))

    def test_refused_by_itself(self) -> None:
        """A filter beyond the bound is refused with the word for too many; the others are granted."""
        half = LEAST_WILDCARD_LEVELS // 2
        wanted = [open_filter(number, half) for number in range(3)]
        for version, code in ((Version.V5, 0x97), (Version.V311, 0x80)):
            self.assertEqual(self.subscribes(version, *wanted, "a/b"), [Suback(1, [1, 1, code, 1])])
        self.assertEqual(len(self.rig.hub.subscriptions), 3)

    def test_what_was_taken_in_stays(self) -> None:
        """A start with narrower limits keeps what a session has, and counts it."""
        wanted = [(Subscription(open_filter(each, 900), 1), None) for each in range(3)]
        self.rig.hub.restore(
            RecoveredState([RecoveredSession(SessionRecord("c", "anonymous ", Version.V5, 100), wanted)])  # type: ignore[arg-type]
        )
        filters = self.rig.hub.sessions["c"].subscriptions
        self.assertEqual((len(filters), filters.has_room_for("+")), (3, False))

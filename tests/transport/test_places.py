"""Tests of ``svc.transport.places``."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.trial.unittest import SynchronousTestCase

from svc.transport.errors import HandshakeLimitReached, TransportError, WaitingLimitReached
from svc.transport.places import Places, give_up_place, source_of


class Guest:
    """Holds a place and remembers why it had to go."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.told: TransportError | None = None

    def give_way(self, error: TransportError) -> None:
        """Remember it."""
        self.told = error


class Seated:
    """A transport that holds a place in its listener."""

    places = 1

    def give_up_place(self) -> None:
        """Free it."""
        self.places -= 1


class GivenUpTests(SynchronousTestCase):
    """The place of a connection that gives way."""

    def test_place(self) -> None:
        """A transport with a place frees it at once; one without, or none at all, is left alone."""
        seated = Seated()
        for transport in (seated, object(), None):
            give_up_place(transport)
        self.assertEqual(0, seated.places)


class WaitingTests(SynchronousTestCase):
    """Places that cost nothing: whoever comes gets one."""

    def setUp(self) -> None:
        self.places = Places(4, WaitingLimitReached)

    def enter(self, source: str, now: float = 0.0) -> Guest:
        """Come from somewhere."""
        guest = Guest(source)
        self.places.enter(guest, source, now)
        return guest

    def test_up_to_the_limit_and_one_more(self) -> None:
        """The last place can be taken; one more makes the first of the same address give way, told with the limit."""
        guests = [self.enter("a") for _ in range(4)]
        self.assertEqual((4, [None] * 4), (self.places.held, [each.told for each in guests]))
        self.enter("a")
        self.assertEqual(4, self.places.held)
        self.assertIsInstance(guests[0].told, WaitingLimitReached)
        self.assertEqual(4, guests[0].told.limit)  # type: ignore[union-attr]
        self.assertEqual([None] * 3, [each.told for each in guests[1:]])

    def test_the_one_with_most_gives_way(self) -> None:
        """Whoever fills all places loses one to each other address, the longest first; the others lose none."""
        many = [self.enter("many") for _ in range(4)]
        others = [self.enter(f"other-{number}") for number in range(3)]
        self.assertEqual([True, True, True, False], [each.told is not None for each in many])
        more = [self.enter("many") for _ in range(10)]
        self.assertEqual([None] * 3, [each.told for each in others])
        self.assertIsNone(more[-1].told)
        self.assertEqual(4, self.places.held)

    def test_all_alike(self) -> None:
        """Where every address holds one place, the longest held is given to whoever comes."""
        guests = [self.enter(f"{number}") for number in range(5)]
        self.assertEqual([True, False, False, False, False], [each.told is not None for each in guests])

    def test_leaving(self) -> None:
        """A place that was given back is free, and can be given back twice."""
        first = self.enter("a")
        rest = [self.enter("a") for _ in range(3)]
        self.places.leave(first)
        self.places.leave(first)
        self.assertEqual(3, self.places.held)
        self.enter("a")
        self.assertEqual([None] * 4, [each.told for each in (first, *rest)])

    def test_dismissal(self) -> None:
        """For a need elsewhere the longest of the address with most goes; where nobody is, nobody can."""
        self.assertFalse(self.places.dismiss())
        other, *many = self.enter("other"), self.enter("many"), self.enter("many")
        self.assertTrue(self.places.dismiss())
        self.assertEqual([False, True, False], [each.told is not None for each in (other, *many)])
        self.assertEqual(2, self.places.held)

    def test_misuse(self) -> None:
        """There is at least one place."""
        self.assertRaises(ValueError, Places, 0, WaitingLimitReached)


class PatienceTests(SynchronousTestCase):
    """Places that have cost something."""

    def setUp(self) -> None:
        self.places = Places(3, HandshakeLimitReached, patience=1.0)

    def enter(self, source: str, now: float) -> Guest:
        """Come from somewhere at some time."""
        guest = Guest(source)
        self.places.enter(guest, source, now)
        return guest

    def test_work_is_finished(self) -> None:
        """Nobody loses a fresh place to the same address: what was begun gets done."""
        guests = [self.enter("a", 0.0) for _ in range(3)]
        error = self.assertRaises(HandshakeLimitReached, self.enter, "a", 0.9)
        self.assertEqual((3, "handshake_limit"), (error.limit, error.reason))
        self.assertEqual([None] * 3, [each.told for each in guests])

    def test_stalled(self) -> None:
        """After the patience the longest held gives way, of the own address first."""
        self.enter("b", 0.0)
        own = self.enter("a", 0.5)
        self.enter("c", 0.6)
        self.enter("a", 1.5)
        self.assertIsNotNone(own.told)

    def test_stalled_elsewhere(self) -> None:
        """While the own ones are fresh, the longest held of all gives way once its time is over."""
        stalled = self.enter("b", 0.0)
        self.enter("a", 0.9)
        self.enter("a", 0.9)
        self.assertRaises(HandshakeLimitReached, self.enter, "a", 0.95)
        self.enter("a", 1.0)
        self.assertIsNotNone(stalled.told)

    def test_share(self) -> None:
        """An address with more than its share gives way to others at once, however fresh its places are."""
        first, *_rest = [self.enter("a", 0.0) for _ in range(3)]
        self.enter("b", 0.0)
        self.assertIsNotNone(first.told)
        # Two and one: a second place for b would only turn the tables.
        self.assertRaises(HandshakeLimitReached, self.enter, "b", 0.0)


class AnyOrderTests(SynchronousTestCase):
    """Whatever comes and goes."""

    @given(
        st.integers(1, 6),
        st.sampled_from([0.0, 1.0]),
        st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0, 2), st.integers(0, 9)), max_size=60),
    )
    def test_never_more_and_nobody_forgotten(
        self, maximum: int, patience: float, steps: list[tuple[str, float, int]]
    ) -> None:
        """At most the maximum is held, by exactly those who entered and neither left nor were told to."""
        places, inside, now = Places(maximum, HandshakeLimitReached, patience=patience), [], 0.0
        for source, pause, choice in steps:
            now += pause
            if choice < 3 and inside:
                places.leave(inside.pop(choice % len(inside)))
            else:
                before = Counter(each.name for each in inside)
                guest = Guest(source)
                try:
                    places.enter(guest, source, now)
                except HandshakeLimitReached:
                    self.assertEqual((maximum, 1.0), (len(inside), patience))
                    self.assertLessEqual(max(before.values()), before[source] + 1)
                else:
                    inside.append(guest)
                gone = [each for each in inside if each.told is not None]
                self.assertLessEqual(len(gone), 1)
                for each in gone:
                    self.assertGreaterEqual(before[each.name] + 1, before[source])
                    inside.remove(each)
            self.assertEqual(len(inside), places.held)
            self.assertLessEqual(places.held, maximum)
        while inside:
            self.assertTrue(places.dismiss())
            inside = [each for each in inside if each.told is None]
        self.assertFalse(places.dismiss())


class SourceTests(SynchronousTestCase):
    """Whom a connection counts for."""

    def test_addresses(self) -> None:
        """An IPv4 address for itself, also inside IPv6; an IPv6 address for its network; the rest together."""
        for address, expected in (
            (IPv4Address("TCP", "192.0.2.7", 1), "192.0.2.7"),
            (IPv6Address("TCP", "::ffff:192.0.2.7", 1), "192.0.2.7"),
            (IPv6Address("TCP", "2001:db8:1:2:3:4:5:6", 1), "2001:db8:1:2::/64"),
            (IPv6Address("TCP", "2001:db8:1:2::1", 2), "2001:db8:1:2::/64"),
            (IPv6Address("TCP", "fe80::1%eth0", 2), "fe80::/64"),
            (UNIXAddress("/run/x"), "local"),
            (None, "local"),
        ):
            self.assertEqual(expected, source_of(address))

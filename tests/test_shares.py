"""The rule by which holders share places."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.shares import MAX_REMEMBERED, OF_FREE, Holdings, SharedRoom, Shares, fits_left

_HOLDERS = st.sampled_from("abcdef")
#: Who wants a place, or (a number) which of the places that are held is given back; and the seconds until then.
_STEPS = st.lists(st.tuples(_HOLDERS | st.integers(0, 1000), st.sampled_from([0.0, 0.4, 3.0])), max_size=120)
_LIMITS = st.integers(1, 12)
LINGER = 1.0


class Places:
    """A user of shares: what may have no place waits until it may."""

    def __init__(self, limit: int, together: int | None = None) -> None:
        self.shares: Shares[str, int] = Shares(limit, limit if together is None else together, LINGER)
        self.now = 0.0
        self.held: list[str] = []
        self.waiting: list[tuple[str, int]] = []
        self.count = 0

    def want(self, *holders: str) -> None:
        """Take places, or wait for them."""
        for holder in holders:
            self.shares.wait(holder, self.count)
            self.waiting.append((holder, self.count))
            self.count += 1
            self.settle()

    def settle(self) -> list[str]:
        """Let those have a place who may; returns them."""
        placed = []
        while (found := self.shares.next(self.now)) is not None:
            self.waiting.remove(found)
            placed.append(found[0])
        self.held += placed
        return placed

    def give_back(self, number: int = 0) -> list[str]:
        """Give a place back; returns who has it next."""
        self.shares.give_back(self.held.pop(number % len(self.held)), self.now)
        return self.settle()

    def run(self, steps: list[tuple[str | int, float]]) -> None:
        """Take these steps."""
        for what, seconds in steps:
            self.now += seconds
            if isinstance(what, str):
                self.want(what)
            elif self.held:
                self.give_back(what)

    @property
    def wanting(self) -> set[str]:
        """Those who wait."""
        return {holder for holder, _number in self.waiting}


class LeftTests(SynchronousTestCase):
    """What fills up and is given back much later."""

    def test_bounds(self) -> None:
        """Far from the end only what does not fit is refused; from there on twice what is free is the most."""
        self.assertTrue(fits_left(10**9, 100, 100, 100))
        self.assertFalse(fits_left(0, 101, 100, 100))
        self.assertTrue(fits_left(198, 99, 99, 100))
        self.assertFalse(fits_left(199, 99, 99, 100))
        self.assertFalse(fits_left(0, 1, 0, 100))

    @given(
        st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 2000)), max_size=20),
        st.integers(0, 10_000),
        st.integers(1, 5000),
    )
    def test_a_part_is_left(self, wanting: list[tuple[str, int]], held: int, scarce: int) -> None:
        """However holders take one after the other, a part is left, and who holds most is refused first."""
        holding, free = Counter({"first": held}), scarce
        for each, count in wanting:
            for _each in range(count):
                if fits_left(holding[each], 1, free, scarce):
                    holding[each], free = holding[each] + 1, free - 1
        # One alone leaves a third, each further one a third of that; less what is lost by rounding.
        self.assertGreaterEqual(free, scarce / (OF_FREE + 1) ** 6 - 1.5)
        refused = [holding[each] for each in holding if not fits_left(holding[each], 1, free, scarce)]
        self.assertEqual(sorted(holding.values())[len(holding) - len(refused) :], sorted(refused))


class SharedRoomTests(SynchronousTestCase):
    """Room that fills up, by who holds it."""

    def test_bounds(self) -> None:
        """Who has most gets none of the last tenth, others get some, and nobody gets more than there is."""
        room = SharedRoom(100)
        self.assertTrue(room.fits("one", 100))
        self.assertFalse(room.fits("one", 101))
        room.take("one", 90)
        self.assertTrue(room.fits("one", 1))
        room.take("one", 1)
        self.assertFalse(room.fits("one", 1))
        self.assertTrue(room.fits("other", 9))
        self.assertFalse(room.fits("other", 10))

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 100))))
    def test_most(self, taken: list[tuple[str, int]]) -> None:
        """Who has most is found; who gave all back is forgotten, and the room is as before."""
        room, model = SharedRoom(1000), Counter[str]()
        for holder, amount in taken:
            room.take(holder, amount)
            model[holder] += amount
        self.assertEqual(room.most()[1], max(model.values(), default=0))
        self.assertEqual(model[room.most()[0]], room.most()[1])
        for holder, amount in taken:
            room.take(holder, -amount)
        self.assertEqual((room.most(), room._held), (("", 0), {}))
        self.assertTrue(room.fits("a", 1000))


class HoldingsTests(SynchronousTestCase):
    """What holders have of something."""

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5))))
    def test_any_changes(self, changes: list[tuple[str, int]]) -> None:
        """However amounts change, those with something are listed, who has most first."""
        holdings, model = Holdings[str](), Counter[str]()
        self.assertIsNone(holdings.most())
        for holder, amount in changes:
            amount = max(amount, -model[holder])
            holdings.change(holder, amount)
            model[holder] += amount
        listed = list(holdings.largest_first())
        self.assertEqual(set(listed), set(+model))
        self.assertEqual(set(listed), set(holdings))
        self.assertEqual([holdings.held(each) for each in listed], sorted((+model).values(), reverse=True))
        self.assertEqual((holdings.total, holdings.most()), (model.total(), listed[0] if listed else None))


class SharesTests(SynchronousTestCase):
    """Places that holders take, wait for, and give back."""

    def test_alone(self) -> None:
        """One that is alone has all places, and waits at the limit."""
        places = Places(10, together=4)
        places.want(*"a" * 10)
        self.assertEqual((10, 0), (places.shares.total, places.shares.waiting))
        self.assertFalse(places.shares.fits("a", 0.0))
        places.want("a")
        self.assertEqual((10, 1), (places.shares.total, places.shares.waiting))
        self.assertEqual(["a"], places.give_back())

    def test_together(self) -> None:
        """Beside another one it has no more than its share of fewer places; the other one has its own at once."""
        places = Places(10, together=4)
        places.want(*"aaaaaaa", *"bbb", "a")
        self.assertEqual({"a": 7, "b": 2}, Counter(places.held))
        self.assertEqual([("b", 9), ("a", 10)], places.waiting)
        self.assertEqual([[]] * 5, [places.give_back() for _each in range(5)])
        self.assertEqual([["a"], []], [places.give_back() for _each in range(2)])
        self.assertEqual(["b"], places.give_back(places.held.index("b")))

    def test_as_they_come(self) -> None:
        """Half of these places it has beyond its share, as long as they are free."""
        places = Places(10, together=8)
        places.want("b", "c")
        for _each in range(2):
            places.give_back()
        places.want(*"aaaaaa")
        self.assertEqual((2, 4, 2), (places.shares.share("a", 0.0), places.shares.held("a"), len(places.waiting)))
        places.want("b", "b", "b")
        self.assertEqual({"a": 4, "b": 2}, Counter(places.held))

    def test_share(self) -> None:
        """A share is what all who have something or wait may have alike: all for one that is alone; at least one."""
        shares: Shares[str, int] = Shares(20, 7)
        self.assertEqual(20, shares.share("a", 0.0))
        shares.take("a")
        self.assertEqual((20, 3), (shares.share("a", 0.0), shares.share("b", 0.0)))
        shares.wait("b", 1)
        self.assertEqual((3, 2), (shares.share("b", 0.0), shares.share("c", 0.0)))
        for holder in "bcdefghi":
            shares.take(holder)
        self.assertEqual(1, shares.share("j", 0.0))

    def test_lingers(self) -> None:
        """One that has nothing any more counts a little longer, unless it waited in vain."""
        places = Places(10, together=4)
        places.want("b", *"aaaa")
        places.give_back()
        places.now += LINGER - 0.001
        self.assertEqual((2, 2), (places.shares.holders(places.now), places.shares.share("a", places.now)))
        places.now += 0.001
        self.assertEqual((1, 10), (places.shares.holders(places.now), places.shares.share("a", places.now)))
        places.want(*"a" * 7, "c")
        places.shares.withdraw("c", places.count - 1)
        self.assertEqual(1, places.shares.holders(places.now))

    def test_remembered(self) -> None:
        """Of those who have nothing any more so many are remembered, and one more is not."""
        shares: Shares[int, int] = Shares(1, 1, LINGER)
        for holder in range(MAX_REMEMBERED + 1):
            shares.take(holder)
            shares.give_back(holder, 0.0)
        self.assertEqual(MAX_REMEMBERED, shares.holders(0.5))
        shares.take(0)
        self.assertEqual((MAX_REMEMBERED + 1, 1), (shares.holders(0.5), shares.holders(LINGER)))

    def test_most(self) -> None:
        """Who has most is named; of several the one who has had that for longest."""
        places = Places(10)
        self.assertIsNone(places.shares.most())
        places.want(*"aabb")
        self.assertEqual("a", places.shares.most())
        places.want("b")
        self.assertEqual("b", places.shares.most())

    def test_withdrawn(self) -> None:
        """What waits no more has no place; without anything nothing is stored."""
        shares: Shares[str, int] = Shares(1, 1)
        shares.take("a")
        shares.wait("b", 1)
        self.assertEqual((False, False, True), tuple(shares.withdraw(*each) for each in (("c", 1), ("b", 2), ("b", 1))))
        shares.give_back("a", 0.0)
        self.assertIsNone(shares.next(0.0))
        self.assertEqual((0, 0, 0), (shares.holders(0.0), shares.waiting, shares.total))
        self.assertEqual([], [value for value in vars(shares).values() if isinstance(value, dict) and value])

    @given(_LIMITS, _LIMITS, _STEPS)
    def test_nothing_idle(self, limit: int, together: int, steps: list[tuple[str | int, float]]) -> None:
        """
        While anyone waits all places are taken that it may have, and never more than there are; nobody below its share
        waits while there is a place.
        """
        places = Places(limit, together)
        shares = places.shares
        for step in steps:
            places.run([step])
            counts, now = Counter(places.held), places.now
            self.assertEqual((counts.total(), len(places.waiting)), (shares.total, shares.waiting))
            self.assertLessEqual(shares.total, limit)
            for holder in places.wanting:
                alone = len(counts.keys() | places.wanting) == 1 and shares.holders(now) == 1
                self.assertGreaterEqual(shares.total, limit if alone else min(limit, together // 2))
                self.assertTrue(shares.total == limit or counts[holder] >= shares.share(holder, now))
            self.assertGreaterEqual(shares.holders(now), len(counts.keys() | places.wanting))
            most = shares.most()
            self.assertEqual(max(counts.values(), default=0), 0 if most is None else counts[most])

    @given(_LIMITS, _LIMITS, _STEPS, st.integers(0, 1000))
    def test_who_has_least_is_next(
        self, limit: int, together: int, steps: list[tuple[str | int, float]], number: int
    ) -> None:
        """What is given back goes to one that waits and has least, to its first item."""
        places = Places(limit, together)
        places.run(steps)
        if not places.waiting:
            return
        before, waiting = Counter(places.held), list(places.waiting)
        before[places.held[number % len(places.held)]] -= 1
        for holder in places.give_back(number):
            self.assertEqual(before[holder], min(before[each] for each, _number in waiting))
            before[holder] += 1
            waiting.remove(next(each for each in waiting if each[0] == holder))
        self.assertEqual(waiting, places.waiting)

    @given(_LIMITS, _LIMITS, _STEPS)
    def test_nobody_with_nothing_waits_for_long(
        self, limit: int, together: int, steps: list[tuple[str | int, float]]
    ) -> None:
        """However much others want, each with nothing has one of the next places that are given back."""
        places = Places(limit, together)
        places.run(steps)
        places.want(*"ab" * limit, "new")
        nothing, placed = places.wanting - set(places.held), set[str]()
        # Those that have more than they now may have give theirs back before.
        for _each in range(limit + len(nothing)):
            placed.update(places.give_back())
            places.want("a")
        self.assertEqual(set(), nothing - placed)

    @given(_LIMITS, _LIMITS, st.integers(2, 5), _STEPS)
    def test_equal_parts(self, limit: int, together: int, greedy: int, steps: list[tuple[str | int, float]]) -> None:
        """Holders that all want more than there is come to have parts that differ by one at most."""
        places = Places(limit, together)
        places.run(steps)
        places.want(*"abcde"[:greedy] * limit * 3)
        for _each in range(limit):
            most = places.shares.most()
            assert most is not None
            places.give_back(places.held.index(most))
        counts = Counter(places.held)
        self.assertLessEqual(max(counts.values()) - min(counts[holder] for holder in places.wanting), 1)

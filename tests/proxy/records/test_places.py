"""Who may begin an exchange with a record, and who waits."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.errors import NotaryRate
from svc.proxy.records.budget import Allowance, RecordBudget
from svc.proxy.records.places import TOGETHER, Place, RecordPlaces

LONGEST = 3.0
#: Who wants a place, or which exchange goes on: its record is made, is durable, comes to nothing, or its client leaves.
_STEPS = st.lists(
    st.tuples(
        st.sampled_from("abc") | st.sampled_from(range(4)), st.integers(0, 1000), st.sampled_from([0.0, 0.01, 1])
    ),
    max_size=80,
)


class PlacesTestCase(SynchronousTestCase):
    """Base class: the places, and what was taken of them."""

    def setUp(self) -> None:
        """Make places that are shared by several identities from the first one on."""
        self.make(1000)

    def make(self, limit: int, longest: float = LONGEST, budget: RecordBudget | None = None) -> None:
        """Make places."""
        self.clock = Clock()
        #: What was reported of admissions that have to wait: whose, for what, and with how many places.
        self.reported: list[tuple[str, str, int]] = []
        self.places = RecordPlaces(limit, self.clock, longest, budget, lambda *report: self.reported.append(report))

    def recording(self, client: str = "a", count: int = 1) -> list[Place]:
        """Take places, for records that are made at once."""
        taken = [self.place(client) for _ in range(count)]
        for each in taken:
            self.places.recording(each)
        return taken

    def place(self, client: str = "a") -> Place:
        """Take a place that is free."""
        taken = self.places.take(client, 1)
        return taken if isinstance(taken, Place) else self.successResultOf(taken)

    def give_back(self, place: Place) -> None:
        """Give a place back, and come to the next turn of the reactor."""
        self.places.give_back(place)
        self.clock.advance(0)

    def abandon(self, place: Place) -> None:
        """The same without a record."""
        self.places.abandon(place)
        self.clock.advance(0)

    def held(self, client: str = "a", count: int = 1) -> list[Deferred[Place]]:
        """Want places that are not free."""
        wanted = [self.places.take(client, 1) for _ in range(count)]
        for each in wanted:
            assert isinstance(each, Deferred)
            self.assertNoResult(each)
        return [each for each in wanted if isinstance(each, Deferred)]


class RecordPlacesTests(PlacesTestCase):
    """Admissions without rates."""

    def test_alone(self) -> None:
        """One identity has all places; beyond them it waits, in order, and each durable record admits one."""
        places = self.recording(count=1000)
        waiting = self.held(count=3)
        for number in range(3):
            self.give_back(places[number])
            self.assertEqual([True] * (number + 1) + [False] * (2 - number), [each.called for each in waiting])
        self.clock.advance(LONGEST)
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_answered_before_others_come(self) -> None:
        """Of records that become durable together none waits until others are admitted: those come in the next turn."""
        places = self.recording(count=1000)
        waiting = self.held(count=3)
        for each in places[:2]:
            self.places.give_back(each)
        self.assertEqual([False] * 3, [each.called for each in waiting])
        self.clock.advance(0)
        self.assertEqual([True] * 2 + [False], [each.called for each in waiting])

    def test_reports(self) -> None:
        """Who has to wait is reported with its places, once for each admission; who need not, is not."""
        places = self.recording(count=1000)
        self.assertEqual([], self.reported)
        self.held(count=2)
        self.assertEqual([("a", "place", 1000)] * 2, self.reported)
        self.give_back(places[0])
        self.clock.advance(1)
        self.assertEqual(2, len(self.reported))

    def test_reports_of_a_refusal(self) -> None:
        """What is refused at once does not wait."""
        self.make(1, longest=0)
        self.recording()
        self.failureResultOf(self.places.take("a", 1), NotaryRate)
        self.assertEqual([], self.reported)

    def test_several(self) -> None:
        """Beside a greedy identity others have their part at once; the greedy one waits until it has no more."""
        places = self.recording(count=200)
        others = self.recording("b", TOGETHER // 2)
        [waiting], [greedy] = self.held("b"), self.held("a")
        for each in places[: 200 - TOGETHER // 2]:
            self.give_back(each)
        self.assertEqual((False, False), (waiting.called, greedy.called))
        self.give_back(places[-1])
        self.assertEqual((False, True), (waiting.called, greedy.called))
        self.give_back(others[0])
        self.assertEqual((True, True), (waiting.called, greedy.called))

    def test_alone_again(self) -> None:
        """When others have had no record for a while, one identity takes all again."""
        [place] = self.recording("b")
        self.recording(count=TOGETHER // 2)
        waiting = self.held(count=5)
        self.give_back(place)
        self.assertEqual([False] * 5, [each.called for each in waiting])
        self.clock.pump([0.01] * 101)
        self.assertEqual([True] * 5, [each.called for each in waiting])
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_too_long(self) -> None:
        """At the longest wait one is refused, not a moment before; who has something in the queue is in the message."""
        self.recording("b")
        self.recording(count=TOGETHER // 2)
        [first] = self.held()
        self.clock.pump([0.01] * 100)
        [second] = self.held()
        self.clock.pump([0.01] * 198)
        self.assertEqual((False, False), (first.called, second.called))
        self.clock.pump([0.01] * 3)
        error = self.failureResultOf(first, NotaryRate).value
        self.assertIn(f"{TOGETHER // 2 + 1} records already wait, {TOGETHER // 2} of this identity", str(error))
        self.assertNoResult(second)
        self.places.withdraw(second)
        self.assertEqual(0, self.places.waiting)

    def test_refused_at_once(self) -> None:
        """Without a time to wait it is refused at once."""
        self.make(1, longest=0.0)
        self.recording()
        refused = self.places.take("b", 1)
        assert isinstance(refused, Deferred)
        self.failureResultOf(refused, NotaryRate)
        self.assertEqual((0, []), (self.places.waiting, self.clock.getDelayedCalls()))

    def test_slow_applications(self) -> None:
        """An exchange that waits for its application keeps nobody waiting, and has a place again for its record."""
        self.make(4)
        slow = [self.place() for _ in range(4)]
        waiting = self.held(count=9)
        self.clock.advance(0.01)
        self.assertEqual([False] * 9, [each.called for each in waiting])
        self.clock.advance(0.01)
        self.assertEqual([True] * 4 + [False] * 5, [each.called for each in waiting])
        for each in slow:
            self.places.recording(each)
        self.clock.pump([0.01] * 2)
        # The places of the second four are free, and taken by the records of the first.
        self.assertEqual([True] * 4 + [False] * 5, [each.called for each in waiting])
        for each in slow:
            self.give_back(each)
        self.assertEqual([True] * 8 + [False], [each.called for each in waiting])

    def test_places_given_back_from_within(self) -> None:
        """What is admitted may come to nothing at once."""
        self.make(1)
        [place] = self.recording()
        waiting = self.held(count=100)
        for each in waiting[:-1]:
            each.addCallback(self.places.abandon)
        self.give_back(place)
        self.assertEqual([True] * 100, [each.called for each in waiting])

    @given(st.integers(1, 6), _STEPS)
    def test_any_steps(self, limit: int, steps: list[tuple[str | int, int, float]]) -> None:
        """Each admission ends once; nothing is lost, and what is not slow is never more than the limit."""
        self.make(limit)
        admitted: list[Place] = []
        wanted: list[Deferred[Place]] = []
        counts = Counter[str]()

        def refused(_failure: object) -> None:
            counts["refused"] += 1

        for what, number, seconds in steps:
            if isinstance(what, str):
                counts["wanted"] += 1
                taken = self.places.take(what, 1)
                if isinstance(taken, Place):
                    admitted.append(taken)
                else:
                    taken.addCallbacks(admitted.append, refused)
                    wanted.append(taken)
            elif what == 3 and wanted:
                left = wanted.pop(number % len(wanted))
                counts["withdrawn"] += not left.called
                self.places.withdraw(left)
            elif admitted and what == 0:
                self.places.recording(admitted[number % len(admitted)])
            elif admitted:
                place = admitted.pop(number % len(admitted))
                counts["over"] += 1
                (self.places.give_back if what == 1 else self.places.abandon)(place)
            self.clock.advance(seconds)
        self.clock.pump([0.01] * 400)
        self.assertEqual(counts["wanted"], len(admitted) + counts["refused"] + counts["withdrawn"] + counts["over"])
        for each in admitted:
            self.give_back(each)
        self.assertEqual((0, 0, []), (self.places.waiting, self.places.total, self.clock.getDelayedCalls()))


class BudgetedPlacesTests(PlacesTestCase):
    """The same where identities have rates."""

    def setUp(self) -> None:
        """Two records a second, two at once, and a hundred octets."""
        clock = Clock()
        self.budget = RecordBudget(Allowance(2.0, 2.0), Allowance(0.001, 100.0), clock, LONGEST)
        self.make(2, budget=self.budget)
        self.budget._clock = self.clock

    def test_first_the_rate(self) -> None:
        """What waits for its rate has no place, and one that waits for a place has taken what its record may take."""
        places = self.recording(count=2)
        [rated] = self.held()
        self.assertEqual((1, 1), (self.places.waiting, self.budget.waiting))
        [other] = self.held("b")
        self.clock.pump([0.01] * 51)
        self.assertEqual((2, 0), (self.places.waiting, self.budget.waiting))
        for each in places:
            self.give_back(each)
        self.assertEqual((True, True), (rated.called, other.called))

    def test_octets(self) -> None:
        """Octets come back that a record did not take, of one that comes to nothing all."""
        place = self.places.take("a", 100)
        assert isinstance(place, Place)
        self.places.settle(place, 40)
        self.give_back(place)
        self.assertIsInstance(self.places.take("a", 60), Place)
        [waiting] = self.held("a")
        self.places.withdraw(waiting)
        self.assertEqual((0, 0), (self.places.waiting, self.budget.waiting))
        other = self.places.take("b", 100)
        assert isinstance(other, Place)
        self.abandon(other)
        self.assertIsInstance(self.places.take("b", 100), Place)

    def test_withdrawn(self) -> None:
        """One that waits for a place and is withdrawn has taken nothing."""
        self.recording("b", 2)
        waiting = self.places.take("a", 100)
        assert isinstance(waiting, Deferred)
        self.assertIsNotNone(self.budget.take("a", 100))
        self.places.withdraw(waiting)
        self.assertIsNone(self.budget.take("a", 100))

    def test_refused(self) -> None:
        """One that waits for its rate for too long is refused by that, and one for both no later."""
        self.recording("a", 2)
        waiting = self.held(count=8)
        self.clock.pump([0.01] * 301)
        messages = [str(self.failureResultOf(each, NotaryRate).value) for each in waiting]
        self.assertEqual([True] * 6 + [False] * 2, ["notary.queue" in each for each in messages], messages)
        self.assertEqual((0, 0, []), (self.places.waiting, self.budget.waiting, self.clock.getDelayedCalls()))

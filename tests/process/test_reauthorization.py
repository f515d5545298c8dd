"""Open connections are decided on again after changes, in slices of a reactor turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from svc.pacing.turns import TURN_SECONDS
from svc.process.reauthorization import Reauthorization, ReauthorizationSummary


class Call:
    """A call that is due in the next turn."""

    def __init__(self, clock: TurnClock, function: Callable[[], object]) -> None:
        self._calls = clock.calls
        self.function = function
        self._calls.append(self)

    def cancel(self) -> None:
        """Make it no more."""
        self._calls.remove(self)


class TurnClock:
    """A reactor whose turns the test takes one by one, and which counts how often its time is read."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reads = 0
        self.calls: list[Call] = []

    def seconds(self) -> float:
        """Count the reading."""
        self.reads += 1
        return self.now

    def callLater(self, delay: float, function: Callable[[], object]) -> Call:
        """Make a call in the next turn."""
        assert delay == 0
        return Call(self, function)

    def turn(self) -> float:
        """Make the calls that are due, but none that they make; returns the seconds that the turn took."""
        began = self.now
        for call in self.calls[:]:
            call.cancel()
            call.function()
        return self.now - began


class WalkTests(SynchronousTestCase):
    """The walk over open connections."""

    def setUp(self) -> None:
        """Make a walk whose decisions take no time and refuse nothing."""
        self.clock = TurnClock()
        self.decided: list[str] = []
        self.refused: set[str] = set()
        self.during: Callable[[str], Any] = lambda _connection: None
        self.summaries: list[ReauthorizationSummary] = []
        self.walk = Reauthorization(cast(Any, self.clock), self.decide, self.summaries.append)

    def decide(self, connection: str) -> bool:
        """Record the decision."""
        self.decided.append(connection)
        self.during(connection)
        return connection in self.refused

    def add(self, *connections: str) -> None:
        """Open connections."""
        for each in connections:
            self.walk.add(each)

    def takes(self, seconds: float) -> None:
        """Let each decision take so long."""
        self.during = lambda _connection: setattr(self.clock, "now", self.clock.now + seconds)

    def test_in_a_later_turn(self) -> None:
        """Nothing is decided in the turn of the change, and everything once in the next."""
        self.add("a", "b")
        self.walk.begin()
        self.assertEqual([], self.decided)
        self.assertTrue(self.walk.running)
        self.clock.turn()
        self.assertEqual(["a", "b"], self.decided)
        self.assertFalse(self.walk.running or self.clock.calls)

    def test_no_connections(self) -> None:
        """Without open connections nothing is scheduled or reported."""
        self.walk.begin()
        self.assertEqual(([], []), (self.clock.calls, self.summaries))

    def test_slices(self) -> None:
        """A slice ends after 3 ms: a turn takes no longer than that and the decision under way."""
        self.add(*(str(number) for number in range(1000)))
        for each in (0.0001, 0.004, 0.0049, 0.2):
            self.takes(each)
            self.walk.begin()
            while self.clock.calls:
                took = self.clock.turn()
                self.assertLess(took, TURN_SECONDS + each)
                if self.clock.calls:
                    self.assertGreaterEqual(took, TURN_SECONDS - 1e-9)
        self.assertEqual(4000, len(self.decided))
        self.assertEqual(0.003, TURN_SECONDS)

    def test_the_time_is_read_for_each_decision(self) -> None:
        """So one slow decision alone can make a slice longer."""
        self.add(*"abcdefgh")
        self.walk.begin()
        self.clock.reads = 0
        self.clock.turn()
        self.assertEqual(len(self.decided) + 1, self.clock.reads)

    def test_summary(self) -> None:
        """The end of a walk is reported once, with decisions, refusals and seconds."""
        self.add(*"abcd")
        self.refused = {"b", "d"}
        self.takes(TURN_SECONDS / 2)
        self.walk.begin()
        self.clock.turn()
        self.assertEqual([], self.summaries)
        self.clock.turn()
        (summary,) = self.summaries
        self.assertEqual((4, 2), (summary.decisions, summary.refusals))
        self.assertEqual(
            {"connections": 4, "refused": 2, "duration_seconds": 0.006, "longest_slice_seconds": 0.003},
            summary.attributes,
        )

    def test_before_its_turn(self) -> None:
        """A connection that is asked for first is decided at once, once, and its result is returned."""
        self.add("a", "b")
        self.refused = {"b"}
        self.assertFalse(self.walk.decide("b"))
        self.walk.begin()
        self.assertEqual([True, False, False], [self.walk.decide(each) for each in ("b", "b", "stranger")])
        self.clock.turn()
        self.assertEqual(["b", "a"], self.decided)
        self.assertEqual((2, 1), (self.summaries[0].decisions, self.summaries[0].refusals))

    def test_connection_that_ends(self) -> None:
        """A connection that ends before its turn, or by the decision on another one, is skipped."""
        self.add("a", "b", "c")
        self.walk.begin()
        self.walk.discard("a")
        self.during = lambda _connection: self.walk.discard("c")
        self.clock.turn()
        self.assertEqual(["b"], self.decided)
        self.assertEqual(["b"], list(self.walk))
        self.assertEqual(1, len(self.walk))

    def test_new_connection(self) -> None:
        """A connection that is made during a walk is decided by what is in force already."""
        self.add("a")
        self.walk.begin()
        self.add("b")
        self.clock.turn()
        self.assertEqual(["a"], self.decided)

    def test_change_during_a_walk(self) -> None:
        """After another change the walk goes on with those whose decision is the oldest, and reaches all of them."""
        self.add("a", "b", "c")
        self.takes(2 * TURN_SECONDS)
        self.walk.begin()
        for _change in range(6):
            self.clock.turn()
            self.walk.begin()
        self.assertEqual([*"abc", *"abc"], self.decided)
        self.assertEqual([], self.summaries)
        while self.clock.calls:
            self.clock.turn()
        self.assertEqual([*"abc"] * 3, self.decided)
        self.assertEqual([9], [each.decisions for each in self.summaries])

    def test_change_by_a_decision(self) -> None:
        """A change that a decision causes has all decided again."""
        self.add("a", "b")
        changes = [self.walk.begin]
        self.during = lambda _connection: changes and changes.pop()()
        self.walk.begin()
        self.clock.turn()
        self.assertEqual(["a", "b", "a"], self.decided)

    def test_stop(self) -> None:
        """No timer is left after the stop, during a walk or without one."""
        self.walk.stop()
        self.add("a")
        self.walk.begin()
        self.walk.stop()
        self.assertEqual(([], False), (self.clock.calls, self.walk.running))


class AnyOrder(RuleBasedStateMachine):
    """Changes, connections, requests and turns in any order, against a list in which the oldest decision leads."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = TurnClock()
        self.walk = Reauthorization(cast(Any, self.clock), self.decide)
        self.world = 0
        self.refusing = 0
        #: Number and deciding world of each open connection, in the order in which they were decided on.
        self.open: list[tuple[int, int]] = []
        self.made = 0
        self.order: list[int] = []
        self.cost = 0.0

    def decide(self, connection: int) -> bool:
        """Decide by the newest world: every ``refusing``-th connection is refused and ends."""
        self.order.append(connection)
        self.clock.now += self.cost
        refused = self.refuses(connection)
        if refused:
            self.walk.discard(connection)
        return refused

    def refuses(self, connection: int) -> bool:
        """Whether the newest world refuses a connection."""
        return bool(self.refusing) and connection % self.refusing == 0

    def expect(self, connection: int) -> bool:
        """The same decision in the model."""
        self.open = [each for each in self.open if each[0] != connection]
        if not self.refuses(connection):
            self.open.append((connection, self.world))
        return self.refuses(connection)

    @rule()
    def connects(self) -> None:
        """A connection is made, if the newest world authorizes it."""
        self.made += 1
        if not self.refuses(self.made):
            self.walk.add(self.made)
            self.open.append((self.made, self.world))

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 30))
    def leaves(self, which: int) -> None:
        """A connection ends by itself."""
        connection, _world = self.open.pop(which % len(self.open))
        self.walk.discard(connection)

    @rule(refusing=st.integers(0, 3))
    def changes(self, refusing: int) -> None:
        """Another world."""
        self.world += 1
        self.refusing = refusing
        self.walk.begin()

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 30))
    def requests(self, which: int) -> None:
        """A connection has a request."""
        connection, world = self.open[which % len(self.open)]
        self.order.clear()
        refused = self.walk.decide(connection)
        self.assert_equal([connection] if world < self.world else [], self.order)
        self.assert_equal(self.expect(connection) if world < self.world else False, refused)

    @rule(decisions=st.integers(1, 4))
    def turns(self, decisions: int) -> None:
        """A turn with time for some decisions: those that are due go first, the oldest leading."""
        self.cost = TURN_SECONDS / decisions * 1.0001
        self.order.clear()
        self.clock.turn()
        expected = []
        while self.open and self.open[0][1] < self.world and len(expected) < decisions:
            expected.append(self.open[0][0])
            self.expect(self.open[0][0])
        self.assert_equal(expected, self.order)
        self.cost = 0.0

    @invariant()
    def all_known(self) -> None:
        """The walk runs while a connection may be undecided, and knows the open ones in their order."""
        self.assert_equal([each for each, _world in self.open], list(self.walk))
        if any(world < self.world for _each, world in self.open):
            assert self.walk.running and self.clock.calls

    def teardown(self) -> None:
        """In the end every connection is decided by the newest world, and no timer is left."""
        for _turn in range(len(self.open) + 1):
            self.clock.turn()
        assert not self.walk.running and not self.clock.calls
        assert not any(map(self.refuses, self.walk))

    @staticmethod
    def assert_equal(expected: object, found: object) -> None:
        """Compare."""
        assert expected == found, (expected, found)


class AnyOrderTests(SynchronousTestCase):
    """Any sequence of steps."""

    def test_any_order(self) -> None:
        """Decisions are made as in the model."""
        run_state_machine_as_test(AnyOrder)

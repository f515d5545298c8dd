"""Repeated denials are counted, not logged one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.log_limits import MANY_SOURCES, DenialLimiter, FailureStreak


class DenialLimiterTests(SynchronousTestCase):
    """One a second for each reason and source."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.told: list[tuple[str, str, int]] = []
        self.limiter = DenialLimiter(self.clock, lambda *report: self.told.append(report), limit=3)

    def test_first_is_logged_others_counted(self) -> None:
        """Within a second the first passes and the rest come as one number when the second is over."""
        answers = [self.limiter.admit("policy_deny", "192.0.2.1") for _number in range(5)]
        self.assertEqual([True, False, False, False, False], answers)
        self.assertEqual([], self.told)
        self.clock.advance(1)
        self.assertEqual([("policy_deny", "192.0.2.1", 4)], self.told)

    def test_next_second(self) -> None:
        """A steady flood gives one line and one number a second."""
        logged = 0
        for _tick in range(30):
            logged += self.limiter.admit("policy_deny", "192.0.2.1")
            self.clock.advance(0.125)
        self.limiter.close()
        self.assertLessEqual(logged, 5)
        self.assertEqual(30, logged + sum(count for _reason, _source, count in self.told))

    def test_kinds_are_apart(self) -> None:
        """Another reason or another source is another kind."""
        self.assertTrue(self.limiter.admit("policy_deny", "192.0.2.1"))
        self.assertTrue(self.limiter.admit("svid_invalid", "192.0.2.1"))
        self.assertTrue(self.limiter.admit("policy_deny", "192.0.2.2"))

    def test_ports_do_not_matter(self) -> None:
        """Another port of a source is the same source; what only looks like a port is left alone."""
        self.assertTrue(self.limiter.admit("policy_deny", "192.0.2.1:1000"))
        self.assertFalse(self.limiter.admit("policy_deny", "192.0.2.1:1001"))
        self.assertFalse(self.limiter.admit("policy_deny", "192.0.2.1"))
        self.assertTrue(self.limiter.admit("policy_deny", "[2001:db8::1]:1000"))
        self.assertFalse(self.limiter.admit("policy_deny", "[2001:db8::1]:1001"))
        self.assertTrue(self.limiter.admit("policy_deny", "2001:db8::1:1000"))

    def test_bounded(self) -> None:
        """Sources beyond the limit are counted together, and the memory does not grow."""
        logged = [self.limiter.admit("policy_deny", f"192.0.2.{number}") for number in range(50)]
        self.assertEqual(3, sum(logged))
        self.assertLessEqual(len(self.limiter._until), 3 + 1)
        self.clock.advance(1)
        self.assertEqual([("policy_deny", MANY_SOURCES, 47)], self.told)
        self.assertEqual({}, self.limiter._until)

    def test_no_timer_left(self) -> None:
        """With nothing to watch, and after close, no timer runs."""
        self.limiter.admit("policy_deny", "192.0.2.1")
        self.clock.advance(2)
        self.assertEqual([], self.clock.getDelayedCalls())
        self.limiter.admit("policy_deny", "192.0.2.1")
        self.limiter.admit("policy_deny", "192.0.2.1")
        self.limiter.close()
        self.assertEqual([], self.clock.getDelayedCalls())
        self.assertEqual([("policy_deny", "192.0.2.1", 1)], self.told)

    @given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("123456"), st.floats(0, 1.5)), max_size=60))
    def test_every_denial_is_told_once(self, denials: list[tuple[str, str, float]]) -> None:
        """Whatever comes when, logged lines and counted ones add up to what came."""
        clock = Clock()
        told: list[int] = []
        limiter = DenialLimiter(clock, lambda _reason, _source, count: told.append(count), limit=3)
        logged = 0
        for reason, source, wait in denials:
            logged += limiter.admit(reason, source)
            clock.advance(wait)
        limiter.close()
        self.assertEqual(len(denials), logged + sum(told))
        self.assertEqual([], clock.getDelayedCalls())


class FailureStreakTests(SynchronousTestCase):
    """Failures of something that is tried again and again."""

    def test_powers_of_two(self) -> None:
        """The first, the second, the fourth time and so on are logged; 1000 failures are ten records."""
        streak = FailureStreak()
        told = [number for number in range(1, 1001) if streak.failed("gone")]
        self.assertEqual([1, 2, 4, 8, 16, 32, 64, 128, 256, 512], told)
        self.assertEqual(1000, streak.count)

    def test_another_reason(self) -> None:
        """Another reason, and the first failure after a success, are logged at once."""
        streak = FailureStreak()
        self.assertEqual([True, True, False, True], [streak.failed(each) for each in ("a", "a", "a", "b")])
        streak.failed("b")
        streak.failed("b")
        streak.succeeded()
        self.assertTrue(streak.failed("b"))

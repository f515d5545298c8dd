"""Rate limits of log records."""

from __future__ import annotations

import errno
import io
import json
import os
import socket
import sys
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import tcp
from twisted.internet.task import Clock
from twisted.logger import LogBeginner, LogPublisher
from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.log_limits import (
    INTERVAL,
    MANY_SOURCES,
    DenialLimiter,
    EventLimiter,
    FailureStreak,
    GroupedLimiter,
    RecordLimiter,
)
from svc.telemetry.records import KEY_ATTRIBUTES
from tests.telemetry.test_logs import TIME, LogCase

CLOSED = "EMFILE recovery: Closed socket from {address}"


def event(form: str | None, time: float) -> dict[str, Any]:
    """A log event."""
    return {"log_format": form, "log_time": time, "address": ("192.0.2.1", 1)}


class DenialLimiterTests(SynchronousTestCase):
    """One a second for each reason and source."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.reports: list[tuple[str, str, int]] = []
        self.limiter = DenialLimiter(self.clock, lambda *report: self.reports.append(report), limit=3)

    def test_first_is_logged_others_counted(self) -> None:
        """Within a second the first is logged, and the number of the others is reported when the second is over."""
        answers = [self.limiter.admit("policy_deny", "192.0.2.1") for _number in range(5)]
        self.assertEqual([True, False, False, False, False], answers)
        self.assertEqual([], self.reports)
        self.clock.advance(1)
        self.assertEqual([("policy_deny", "192.0.2.1", 4)], self.reports)

    def test_next_second(self) -> None:
        """A steady flood gives one line and one number a second."""
        logged = 0
        for _tick in range(30):
            logged += self.limiter.admit("policy_deny", "192.0.2.1")
            self.clock.advance(0.125)
        self.limiter.close()
        self.assertLessEqual(logged, 5)
        self.assertEqual(30, logged + sum(count for _reason, _source, count in self.reports))

    def test_kinds_are_apart(self) -> None:
        """Another reason or another source is another kind."""
        self.assertTrue(self.limiter.admit("policy_deny", "192.0.2.1"))
        self.assertTrue(self.limiter.admit("svid_invalid", "192.0.2.1"))
        self.assertTrue(self.limiter.admit("policy_deny", "192.0.2.2"))

    def test_ports_do_not_matter(self) -> None:
        """Another port of a source is the same source; an IPv6 address without brackets has no port."""
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
        self.assertEqual([("policy_deny", MANY_SOURCES, 47)], self.reports)
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
        self.assertEqual([("policy_deny", "192.0.2.1", 1)], self.reports)

    @given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("123456"), st.floats(0, 1.5)), max_size=60))
    def test_every_denial_is_reported_once(self, denials: list[tuple[str, str, float]]) -> None:
        """Logged denials and reported ones add up to all denials."""
        clock = Clock()
        reported: list[int] = []
        limiter = DenialLimiter(clock, lambda _reason, _source, count: reported.append(count), limit=3)
        logged = 0
        for reason, source, wait in denials:
            logged += limiter.admit(reason, source)
            clock.advance(wait)
        limiter.close()
        self.assertEqual(len(denials), logged + sum(reported))
        self.assertEqual([], clock.getDelayedCalls())


class FailureStreakTests(SynchronousTestCase):
    """Failures of something that is tried again and again."""

    def test_powers_of_two(self) -> None:
        """The first, the second, the fourth time and so on are logged; 1000 failures are ten records."""
        streak = FailureStreak()
        reported = [number for number in range(1, 1001) if streak.failed("gone")]
        self.assertEqual([1, 2, 4, 8, 16, 32, 64, 128, 256, 512], reported)
        self.assertEqual(1000, streak.count)

    def test_another_reason(self) -> None:
        """Another reason, and the first failure after a success, are logged at once."""
        streak = FailureStreak()
        self.assertEqual([True, True, False, True], [streak.failed(each) for each in ("a", "a", "a", "b")])
        streak.failed("b")
        streak.failed("b")
        streak.succeeded()
        self.assertTrue(streak.failed("b"))


class RecordLimiterTests(SynchronousTestCase):
    """One record of each kind in an interval."""

    def test_counts(self) -> None:
        """The first is admitted; the next one after the interval says how many were omitted."""
        limiter = RecordLimiter(1.0, 2)
        self.assertEqual([limiter.admit("a", time) for time in (0.0, 0.5, 0.9, 1.0, 2.0)], [0, None, None, 2, 0])

    def test_limit(self) -> None:
        """With one kind more than the limit, the least recently admitted one is evicted."""
        limiter = RecordLimiter(10.0, 2)
        self.assertEqual([limiter.admit(kind, 1.0) for kind in "abab"], [0, 0, None, None])
        self.assertEqual([limiter.admit(kind, 1.0) for kind in "cb"], [0, None])
        self.assertEqual(limiter.admit("a", 1.0), 0)


class GroupedLimiterTests(SynchronousTestCase):
    """One record of each kind in an interval, and few of all kinds of a group."""

    def test_share(self) -> None:
        """What is beyond the share of a group is omitted, whatever its kind, and counted; other groups have theirs."""
        limiter = GroupedLimiter(10.0, 8, 2)
        self.assertEqual([limiter.admit("g", kind, 0.0) for kind in "aabcda"], [0, None, 0, None, None, None])
        self.assertEqual([limiter.admit("h", kind, 0.0) for kind in "abc"], [0, 0, None])
        self.assertEqual([limiter.admit("g", kind, 10.0) for kind in "eae"], [3, 1, None])

    def test_limit(self) -> None:
        """With one group more than the limit, one without records is forgotten."""
        limiter = GroupedLimiter(10.0, 2, 1)
        self.assertEqual([limiter.admit(group, "a", 0.0) for group in "ghg"], [0, 0, None])
        self.assertEqual([limiter.admit(group, "b", 0.0) for group in "igh"], [0, None, 0])

    def test_a_clock_that_is_set_back(self) -> None:
        """It begins another interval."""
        limiter = GroupedLimiter(10.0, 2, 1)
        self.assertEqual([limiter.admit("g", "a", time) for time in (20.0, 21.0, 5.0)], [0, None, 1])


class EventLimiterTests(SynchronousTestCase):
    """Which events are written."""

    def setUp(self) -> None:
        self.limiter = EventLimiter()

    def test_once_in_ten_seconds(self) -> None:
        """An event is written once in ten seconds; the next one says how many were omitted."""
        events = [self.limiter.admit(event(CLOSED, TIME + each)) for each in (0, 1, INTERVAL - 0.1, INTERVAL, 25)]
        self.assertEqual([each is not None for each in events], [True, False, False, True, True])
        counts = [each.get(KEY_ATTRIBUTES) for each in events if each is not None]
        self.assertEqual(counts, [None, {"repeated": 2}, None])

    def test_events_are_limited_separately(self) -> None:
        """Other events are limited separately."""
        for form in (CLOSED, "EMFILE encountered; releasing reserved file descriptor."):
            first = event(form, TIME)
            self.assertIs(self.limiter.admit(first), first)

    def test_warnings_of_python(self) -> None:
        """A warning is written once in ten seconds for its line of code, whatever its text."""
        written: list[dict[str, Any]] = []

        def observer(events: dict[str, Any]) -> None:
            admitted = self.limiter.admit({**events, "log_time": TIME + events["lineno"] / 1000})
            if admitted is not None:
                written.append(admitted)

        # As twisted.logger passes on what the module warnings shows.
        beginner = LogBeginner(LogPublisher(observer), io.StringIO(), sys, SimpleNamespace(showwarning=None))  # type: ignore[arg-type]
        for position in (1, 2):
            for number in range(50):
                beginner.showwarning(f"{number} is too long", UserWarning, "library.py", position)
        found = [(each["lineno"], str(each["warning"])) for each in written]
        self.assertEqual(found, [(1, "0 is too long"), (2, "0 is too long")])

    def test_defects_of_the_verification(self) -> None:
        """The traceback of a defect that a peer can cause is written once in ten seconds."""
        events = [
            self.limiter.admit(event("the verification of a peer failed by a defect", TIME + each))
            for each in range(20)
        ]
        self.assertEqual([each is not None for each in events], ([True] + [False] * 9) * 2)

    def test_tracked_events_are_bounded(self) -> None:
        """With one event more than the limit, the least recently written one is evicted."""
        limiter = EventLimiter(limit=2)
        events = [event(f"EMFILE recovery {number}", TIME) for number in range(3)]
        for each in events[:2] * 2:
            limiter.admit(each)
        self.assertIsNone(limiter.admit(events[0]))
        self.assertIsNotNone(limiter.admit(events[2]))
        self.assertIsNone(limiter.admit(events[1]))
        self.assertIsNotNone(limiter.admit(events[0]))

    def test_everything_else_passes(self) -> None:
        """Any other event is written each time."""
        for form in ("starting", "the client said EMFILE", None, ""):
            for _ in range(3):
                each = event(form, TIME)
                self.assertIs(self.limiter.admit(each), each)

    def test_a_clock_that_is_set_back(self) -> None:
        """After the clock was set back, a event is written at once."""
        self.assertIsNotNone(self.limiter.admit(event(CLOSED, TIME)))
        self.assertIsNotNone(self.limiter.admit(event(CLOSED, TIME - 1000)))

    def test_events_of_this_twisted(self) -> None:
        """What this version of Twisted logs when it has no file descriptors is limited."""
        logged: list[dict[str, Any]] = []

        class Log:
            def info(self, form: str, **more: object) -> None:
                logged.append({"log_format": form, "log_time": TIME, **more})

        class Listener:
            def __init__(self) -> None:
                self.codes = [errno.EMFILE, 0, errno.EAGAIN]

            def accept(self) -> tuple[socket.socket, tuple[str, int]]:
                code = self.codes.pop(0)
                if code:
                    raise OSError(code, os.strerror(code))
                return socket.socket(), ("192.0.2.1", 1)

        class Reserved:
            def available(self) -> bool:
                return True

            def __enter__(self) -> None:
                return None

            def __exit__(self, *more: object) -> None:
                return None

        self.assertEqual(list(tcp._accept(Log(), range(9), Listener(), Reserved())), [])
        self.assertEqual(len(logged), 3)
        repeats = [self.limiter.admit(each) for each in logged + logged]
        self.assertEqual([each is not None for each in repeats], [True] * 3 + [False] * 3)


class WrittenTests(LogCase):
    """In the log of a process."""

    def test_written(self) -> None:
        """Thousands of connections that had to be closed are one line, and the next one counts them."""
        for number in range(5000):
            self.observer({**event(CLOSED, TIME + number / 1000), "log_level": None})
        self.observer({**event(CLOSED, TIME + INTERVAL), "log_level": None})
        lines = [json.loads(each) for each in self.stream.getvalue().splitlines()]
        self.assertEqual([each["message"] for each in lines], [CLOSED.format(address=("192.0.2.1", 1))] * 2)
        self.assertEqual(lines[1]["attributes"]["repeated"], 4999)

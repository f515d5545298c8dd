"""Records that a peer can cause without bound are limited."""

from __future__ import annotations

import errno
import io
import json
import os
import socket
import sys
from types import SimpleNamespace
from typing import Any

from twisted.internet import tcp
from twisted.logger import LogBeginner, LogPublisher
from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.records import KEY_ATTRIBUTES
from svc.telemetry.repeats import INTERVAL, EventLimiter, RecordLimiter
from tests.telemetry.test_logs import TIME, LogCase

CLOSED = "EMFILE recovery: Closed socket from {address}"


def event(said: str | None, time: float) -> dict[str, Any]:
    """A log event."""
    return {"log_format": said, "log_time": time, "address": ("192.0.2.1", 1)}


class RecordLimiterTests(SynchronousTestCase):
    """One record of each kind in an interval."""

    def test_counts(self) -> None:
        """The first is admitted; the next one after the interval says how many were left out."""
        limiter = RecordLimiter(1.0, 2)
        self.assertEqual([limiter.admit("a", time) for time in (0.0, 0.5, 0.9, 1.0, 2.0)], [0, None, None, 2, 0])

    def test_limit(self) -> None:
        """With one kind more than the limit, the least recently admitted one is forgotten."""
        limiter = RecordLimiter(10.0, 2)
        self.assertEqual([limiter.admit(kind, 1.0) for kind in "abab"], [0, 0, None, None])
        self.assertEqual([limiter.admit(kind, 1.0) for kind in "cb"], [0, None])
        self.assertEqual(limiter.admit("a", 1.0), 0)


class EventLimiterTests(SynchronousTestCase):
    """Which events are written."""

    def setUp(self) -> None:
        self.limiter = EventLimiter()

    def test_once_in_ten_seconds(self) -> None:
        """A sentence is written once in ten seconds; the next one says how many were left out."""
        given = [self.limiter.admit(event(CLOSED, TIME + each)) for each in (0, 1, INTERVAL - 0.1, INTERVAL, 25)]
        self.assertEqual([each is not None for each in given], [True, False, False, True, True])
        counts = [each.get(KEY_ATTRIBUTES) for each in given if each is not None]
        self.assertEqual(counts, [None, {"repeated": 2}, None])

    def test_each_sentence_by_itself(self) -> None:
        """One sentence does not silence another one."""
        for said in (CLOSED, "EMFILE encountered; releasing reserved file descriptor."):
            first = event(said, TIME)
            self.assertIs(self.limiter.admit(first), first)

    def test_warnings_of_python(self) -> None:
        """A warning is written once in ten seconds for its place in the code, whatever it says."""
        written: list[dict[str, Any]] = []

        def observer(given: dict[str, Any]) -> None:
            admitted = self.limiter.admit({**given, "log_time": TIME + given["lineno"] / 1000})
            if admitted is not None:
                written.append(admitted)

        # As twisted.logger passes on what the module warnings shows.
        beginner = LogBeginner(LogPublisher(observer), io.StringIO(), sys, SimpleNamespace(showwarning=None))
        for place in (1, 2):
            for number in range(50):
                beginner.showwarning(f"{number} is too long", UserWarning, "library.py", place)
        found = [(each["lineno"], str(each["warning"])) for each in written]
        self.assertEqual(found, [(1, "0 is too long"), (2, "0 is too long")])

    def test_defects_of_the_verification(self) -> None:
        """The traceback of a defect that a peer can cause is written once in ten seconds."""
        given = [
            self.limiter.admit(event("the verification of a peer failed by a defect", TIME + each))
            for each in range(20)
        ]
        self.assertEqual([each is not None for each in given], ([True] + [False] * 9) * 2)

    def test_sentences_are_bounded(self) -> None:
        """With one sentence more than the limit, the least recently written one is forgotten."""
        limiter = EventLimiter(limit=2)
        sentences = [event(f"EMFILE recovery {number}", TIME) for number in range(3)]
        for each in sentences[:2] * 2:
            limiter.admit(each)
        self.assertIsNone(limiter.admit(sentences[0]))
        self.assertIsNotNone(limiter.admit(sentences[2]))
        self.assertIsNone(limiter.admit(sentences[1]))
        self.assertIsNotNone(limiter.admit(sentences[0]))

    def test_everything_else_passes(self) -> None:
        """Any other event is written each time."""
        for said in ("starting", "the client said EMFILE", None, ""):
            for _ in range(3):
                each = event(said, TIME)
                self.assertIs(self.limiter.admit(each), each)

    def test_a_clock_that_is_set_back(self) -> None:
        """After the clock was set back, a sentence is written at once."""
        self.assertIsNotNone(self.limiter.admit(event(CLOSED, TIME)))
        self.assertIsNotNone(self.limiter.admit(event(CLOSED, TIME - 1000)))

    def test_the_sentences_of_this_twisted(self) -> None:
        """The sentences that this version of Twisted logs without descriptors are among them."""
        said: list[dict[str, Any]] = []

        class Log:
            def info(self, form: str, **more: object) -> None:
                said.append({"log_format": form, "log_time": TIME, **more})

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
        self.assertEqual(len(said), 3)
        repeats = [self.limiter.admit(each) for each in said + said]
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

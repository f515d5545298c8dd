"""What libraries repeat for each connection does not fill the log."""

from __future__ import annotations

import errno
import json
import os
import socket
from typing import Any

from twisted.internet import tcp
from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.records import KEY_ATTRIBUTES
from svc.telemetry.repeats import INTERVAL, Repeats
from tests.telemetry.test_logs import TIME, LogCase

CLOSED = "EMFILE recovery: Closed socket from {address}"


def event(said: str | None, time: float) -> dict[str, Any]:
    """A log event."""
    return {"log_format": said, "log_time": time, "address": ("192.0.2.1", 1)}


class RepeatsTests(SynchronousTestCase):
    """The judgement."""

    def setUp(self) -> None:
        """Nothing was said yet."""
        self.repeats = Repeats()

    def test_once_in_ten_seconds(self) -> None:
        """A sentence is written once in ten seconds; the next one says how many were left out, and then it is anew."""
        given = [self.repeats.judged(event(CLOSED, TIME + each)) for each in (0, 1, INTERVAL - 0.1, INTERVAL, 25)]
        self.assertEqual([each is not None for each in given], [True, False, False, True, True])
        counts = [each.get(KEY_ATTRIBUTES) for each in given if each is not None]
        self.assertEqual(counts, [None, {"repeated": 2}, None])

    def test_each_sentence_by_itself(self) -> None:
        """One sentence does not silence another one."""
        for said in (CLOSED, "EMFILE encountered; releasing reserved file descriptor."):
            first = event(said, TIME)
            self.assertIs(self.repeats.judged(first), first)

    def test_everything_else_passes(self) -> None:
        """Whatever else is said is written each time."""
        for said in ("starting", "the client said EMFILE", None, ""):
            for _ in range(3):
                each = event(said, TIME)
                self.assertIs(self.repeats.judged(each), each)

    def test_a_clock_that_is_set_back(self) -> None:
        """Nothing is silent until a time that is far away."""
        self.assertIsNotNone(self.repeats.judged(event(CLOSED, TIME)))
        self.assertIsNotNone(self.repeats.judged(event(CLOSED, TIME - 1000)))

    def test_the_sentences_of_this_twisted(self) -> None:
        """What Twisted says without descriptors is among them, so that another version is noticed."""
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
        repeats = [self.repeats.judged(each) for each in said + said]
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

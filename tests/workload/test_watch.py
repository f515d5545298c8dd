"""Tests of svc.workload.watch."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.workload.watch import (
    STABLE_SECONDS,
    StreamBroken,
    StreamProblem,
    WatchThread,
    open_x509_stream,
)

LOST = StreamProblem("failed", "UNAVAILABLE", "gone")


class Stream:
    """A stream with prepared items."""

    def __init__(self, *items: object) -> None:
        self.items = items
        self.cancelled = 0

    def __iter__(self) -> Iterator[Any]:
        """Return the items; raise problems, call functions."""
        for item in self.items:
            if isinstance(item, StreamProblem):
                raise StreamBroken(item)
            if callable(item):
                item()
            else:
                yield item

    def cancel(self) -> object:
        self.cancelled += 1
        return None


class Recorder:
    """A listener that collects its calls."""

    def __init__(self) -> None:
        self.received: list[object] = []

    def stream_opening(self) -> None:
        self.received.append("opening")

    def got_message(self, message: Any) -> None:
        self.received.append(message)

    def stream_failed(self, problem: StreamProblem) -> None:
        self.received.append(problem)


class Reactor:
    """Runs at once what a thread passes to it."""

    def callFromThread(self, function: Callable[..., object], *arguments: object) -> None:
        function(*arguments)


class Pauses(threading.Event):
    """An event that records pauses without waiting."""

    def __init__(self, kept: list[float]) -> None:
        super().__init__()
        self.kept = kept

    def wait(self, timeout: float | None = None) -> bool:
        self.kept.append(timeout or 0.0)
        return self.is_set()


class WatchThreadTests(SynchronousTestCase):
    """The loop of the thread, run in the test's own thread."""

    def watch(self, *streams: object, clock: Callable[[], float] = lambda: 0.0) -> WatchThread:
        """A watch over the streams, stopped after the last one."""
        waiting = list(streams)
        self.listener = Recorder()
        self.pauses: list[float] = []

        def open_stream() -> Stream:
            if not waiting:
                watch.stop()
                raise StreamBroken(LOST)
            stream = waiting.pop(0)
            if isinstance(stream, StreamProblem):
                raise StreamBroken(stream)
            assert isinstance(stream, Stream)
            return stream

        watch = WatchThread(
            open_stream,
            self.listener,
            Reactor(),  # type: ignore[arg-type]
            random=lambda: 1.0,
            monotonic=clock,
            stopping=Pauses(self.pauses),
        )
        return watch

    def test_messages(self) -> None:
        """Messages are delivered in order; the end of a stream is reported, and another one is opened."""
        self.watch(Stream("a", "b"), Stream("c", LOST)).run()
        ended = StreamProblem("ended", "OK", "the server ended the stream")
        self.assertEqual(self.listener.received, ["opening", "a", "b", ended, "opening", "c", LOST])

    def test_backoff_grows(self) -> None:
        """Pauses grow while attempts fail and stay bounded."""
        self.watch(*[LOST] * 9).run()
        self.assertEqual([round(each, 3) for each in self.pauses], [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0])

    def test_backoff_of_a_flapping_server(self) -> None:
        """A server that answers and closes at once is not called in a busy loop."""
        self.watch(*[Stream("a")] * 4).run()
        self.assertEqual([round(each, 3) for each in self.pauses], [0.1, 0.2, 0.4, 0.8])

    def test_backoff_resets(self) -> None:
        """After a long stream the next attempt comes soon."""
        times = iter([0.0, 0.0, 1.0, 1.0, 2.0, 2.0 + STABLE_SECONDS, 9.0, 9.0])
        self.watch(LOST, LOST, Stream("a"), clock=lambda: next(times)).run()
        self.assertEqual([round(each, 3) for each in self.pauses], [0.1, 0.2, 0.1])

    def test_unexpected_failure(self) -> None:
        """An unexpected exception is reported and does not end the thread."""
        self.watch(Stream("a", lambda: 1 // 0), Stream("b")).run()
        problem: Any = self.listener.received[2]
        self.assertIsInstance(problem, StreamProblem)
        self.assertEqual(problem.code, "ZeroDivisionError")
        self.assertIn("b", self.listener.received)

    def test_stop_in_a_stream(self) -> None:
        """Stopping cancels the open call, reports nothing more and fires when the loop has ended."""
        fired: list[object] = []
        stream = Stream("a", lambda: watch.stop().addCallback(fired.append), "b", LOST)  # type: ignore[has-type]
        watch = self.watch(stream)
        watch.run()
        self.assertEqual(stream.cancelled, 1)
        self.assertEqual(self.listener.received, ["opening", "a"])
        self.assertEqual(fired, [None])
        self.assertEqual(self.pauses, [])

    def test_stop_before_the_first_stream(self) -> None:
        """A watch that is stopped before it starts opens nothing."""
        watch = self.watch(Stream("a"))
        fired: list[object] = []
        watch.stop().addCallback(fired.append)
        self.assertEqual(fired, [])
        watch.run()
        self.assertEqual(fired, [None])
        self.assertEqual(self.listener.received, [])

    def test_reopen(self) -> None:
        """Reopening cancels the call only; its end is not a failure, and the next one is opened as usual."""
        cancelled = StreamProblem("silent", "CANCELLED", "Locally cancelled by application!")
        first = Stream("a", lambda: watch.reopen(), cancelled)  # type: ignore[has-type]
        watch = self.watch(first, Stream("b", cancelled))
        watch.run()
        self.assertEqual(first.cancelled, 1)
        self.assertEqual(self.listener.received, ["opening", "a", "opening", "b", cancelled])
        watch.reopen()

    def test_reopen_of_a_broken_stream(self) -> None:
        """A call that fails by itself while it is being cancelled is a failure."""
        watch = self.watch(Stream("a", lambda: watch.reopen(), LOST))  # type: ignore[has-type]
        watch.run()
        self.assertEqual(self.listener.received, ["opening", "a", LOST])


class SocketCheckTests(SynchronousTestCase):
    """The cause of a failure is found before gRPC hides it."""

    def cause(self, path: str) -> str:
        """The cause of the failure to open a stream."""
        return self.assertRaises(StreamBroken, open_x509_stream, path).problem.cause

    def test_missing(self) -> None:
        """A missing file, also below a file, is missing."""
        folder = self.mktemp()
        os.makedirs(folder)
        self.assertEqual(self.cause(f"{folder}/no.sock"), "missing")
        self.assertEqual(self.cause(f"{__file__}/no.sock"), "missing")

    def test_unserved(self) -> None:
        """A socket file that no process listens on is unserved."""
        path = os.path.relpath(self.mktemp())
        os.makedirs(path)
        path = f"{path}/a.sock"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            self.assertEqual(self.cause(path), "unserved")
        self.assertEqual(self.cause(path), "unserved")

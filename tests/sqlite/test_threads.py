"""Named threads that run jobs in groups, and the bounded wait for their end."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.sqlite.threads import GROUP_LIMIT, BoundedClose, JobThread, WatchingThread
from tests.mixins import TestsMixin


class GroupMixin(TestsMixin):
    """A group is what is queued, up to the limit; a subclass starts the thread."""

    def start(self, work: Callable[[Sequence[int]], None], finish: Callable[[], None]) -> JobThread[int]:
        """Start a thread."""
        raise NotImplementedError

    def test_groups(self) -> None:
        """Jobs queued while one group runs are the next group; a stop ends the thread after the queued jobs."""
        groups: list[list[int]] = []
        names: set[str] = set()
        begun, go, finished = threading.Event(), threading.Event(), threading.Event()

        def work(jobs: Sequence[int]) -> None:
            begun.set()
            go.wait(60)
            groups.append(list(jobs))
            names.add(threading.current_thread().name)

        thread = self.start(work, finished.set)
        thread.submit(0)
        self.assertTrue(begun.wait(60))
        for number in range(1, GROUP_LIMIT + 3):
            thread.submit(number)
        thread.stop()
        go.set()
        self.assertTrue(finished.wait(60))
        self.assertEqual([1, GROUP_LIMIT, 2], [len(group) for group in groups])
        self.assertEqual(list(range(GROUP_LIMIT + 3)), [number for group in groups for number in group])
        self.assertEqual({"svc-test-thread"}, names)


class JobThreadTests(GroupMixin, SynchronousTestCase):
    """The thread that waits for jobs only."""

    def start(self, work: Callable[[Sequence[int]], None], finish: Callable[[], None]) -> JobThread[int]:
        return JobThread("svc-test-thread", work, finish)


class WatchingThreadTests(GroupMixin, SynchronousTestCase):
    """The thread that also watches a descriptor."""

    def setUp(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.addCleanup(self.ours.close)
        self.addCleanup(self.theirs.close)
        self.readable = threading.Event()
        self.open = True

    def start(self, work: Callable[[Sequence[int]], None], finish: Callable[[], None]) -> JobThread[int]:
        return WatchingThread("svc-test-thread", work, finish, fileno=self.fileno, readable=self.receive)

    def fileno(self) -> int:
        return self.ours.fileno() if self.open else -1

    def receive(self) -> None:
        self.open = bool(self.ours.recv(10))
        self.readable.set()

    def test_readable_while_it_waits(self) -> None:
        """Data and the end of data are reported once each while no job is queued; jobs run afterwards."""
        done, finished = threading.Event(), threading.Event()
        thread = self.start(lambda _jobs: done.set(), finished.set)
        for act in (lambda: self.theirs.send(b"x"), self.theirs.close):
            self.readable.clear()
            act()
            self.assertTrue(self.readable.wait(60))
        thread.submit(1)
        self.assertTrue(done.wait(60))
        thread.stop()
        self.assertTrue(finished.wait(60))

    def test_ends_without_a_descriptor_left(self) -> None:
        """Threads that are stopped at any moment leave no descriptor open and write to no other thread's descriptor."""
        before = len(os.listdir("/proc/self/fd"))
        for _number in range(200):
            finished = threading.Event()
            thread = self.start(lambda _jobs: None, finished.set)
            thread.submit(1)
            thread.stop()
            thread.submit(2)
            self.assertTrue(finished.wait(60))
            thread._thread.join(60)
        self.assertEqual(before, len(os.listdir("/proc/self/fd")))


class BoundedCloseTests(SynchronousTestCase):
    """A close with a limit of ten seconds, on a clock."""

    def setUp(self) -> None:
        """Create a close that has not begun."""
        self.clock = Clock()
        self.given_up = 0
        self.closing = BoundedClose(self.clock, 10.0, self.stuck)

    def stuck(self) -> TimeoutError:
        """Return the error."""
        self.given_up += 1
        return TimeoutError("stuck")

    def test_in_time(self) -> None:
        """A finish in time ends the wait and leaves no timer."""
        closed = self.closing.begin()
        self.clock.advance(9.9)
        self.assertNoResult(closed)
        self.assertTrue(self.closing.waiting)
        self.closing.finish()
        self.successResultOf(closed)
        self.assertEqual((self.clock.getDelayedCalls(), self.closing.waiting, self.given_up), ([], False, 0))

    def test_too_late(self) -> None:
        """Without a finish the wait fails at the limit; a later finish has no effect."""
        closed = self.closing.begin()
        self.clock.advance(10.0)
        self.failureResultOf(closed, TimeoutError)
        self.assertFalse(self.closing.waiting)
        self.closing.finish()
        self.assertEqual((self.clock.getDelayedCalls(), self.given_up), ([], 1))

    def test_before_it_begins(self) -> None:
        """A finish before the close begins has no effect."""
        self.closing.finish()
        self.assertNoResult(self.closing.begin())
        self.closing.finish()

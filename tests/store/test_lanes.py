"""Lanes are named threads that work in groups; the store on them works as it does without."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import SynchronousTestCase, TestCase

from svc.store.lanes import GROUP_LIMIT, ThreadLane, WatchingLane
from svc.store.sqlite import SqliteStore
from tests.store.doubles import RecordingObserver, receipt


class GroupMixin:
    """Groups are what has queued up, never more than the limit; a subclass starts the lane."""

    def start(self, work: Callable[[Sequence[int]], None], finish: Callable[[], None]) -> ThreadLane[int]:
        """Start a lane."""
        raise NotImplementedError

    def test_groups(self) -> None:
        """What queues up during one piece of work is the next group; a stop ends the thread after the rest."""
        groups: list[list[int]] = []
        names: set[str] = set()
        begun, go, finished = threading.Event(), threading.Event(), threading.Event()

        def work(jobs: Sequence[int]) -> None:
            begun.set()
            go.wait(60)
            groups.append(list(jobs))
            names.add(threading.current_thread().name)

        lane = self.start(work, finished.set)
        lane.submit(0)
        self.assertTrue(begun.wait(60))
        for number in range(1, GROUP_LIMIT + 3):
            lane.submit(number)
        lane.stop()
        go.set()
        self.assertTrue(finished.wait(60))
        self.assertEqual([1, GROUP_LIMIT, 2], [len(group) for group in groups])
        self.assertEqual(list(range(GROUP_LIMIT + 3)), [number for group in groups for number in group])
        self.assertEqual({"svc-test-lane"}, names)


class ThreadLaneTests(GroupMixin, SynchronousTestCase):
    """The lane that waits for jobs alone."""

    def start(self, work: Callable[[Sequence[int]], None], finish: Callable[[], None]) -> ThreadLane[int]:
        return ThreadLane("svc-test-lane", work, finish)


class WatchingLaneTests(GroupMixin, SynchronousTestCase):
    """The lane that listens to a descriptor too."""

    def setUp(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.addCleanup(self.ours.close)
        self.addCleanup(self.theirs.close)
        self.heard = threading.Event()
        self.listening = True

    def start(self, work: Callable[[Sequence[int]], None], finish: Callable[[], None]) -> ThreadLane[int]:
        return WatchingLane("svc-test-lane", work, finish, fileno=self.fileno, readable=self.hear)

    def fileno(self) -> int:
        return self.ours.fileno() if self.listening else -1

    def hear(self) -> None:
        self.listening = bool(self.ours.recv(10))
        self.heard.set()

    def test_hears_while_it_waits(self) -> None:
        """What arrives and what ends is heard while there is no job, and not a second time; jobs go on."""
        done, finished = threading.Event(), threading.Event()
        lane = self.start(lambda _jobs: done.set(), finished.set)
        for act in (lambda: self.theirs.send(b"x"), self.theirs.close):
            self.heard.clear()
            act()
            self.assertTrue(self.heard.wait(60))
        lane.submit(1)
        self.assertTrue(done.wait(60))
        lane.stop()
        self.assertTrue(finished.wait(60))

    def test_ends_without_a_descriptor_left(self) -> None:
        """Lanes that come and go, stopped at any moment, leave no descriptor behind and ring no other's bell."""
        before = len(os.listdir("/proc/self/fd"))
        for _number in range(200):
            finished = threading.Event()
            lane = self.start(lambda _jobs: None, finished.set)
            lane.submit(1)
            lane.stop()
            lane.submit(2)
            self.assertTrue(finished.wait(60))
            lane._thread.join(60)
        self.assertEqual(before, len(os.listdir("/proc/self/fd")))


class ThreadedStoreTests(TestCase):
    """The store on its real threads and the real reactor."""

    def test_many_records_few_commits(self) -> None:
        """Records put in one turn of the reactor are committed in groups and all found again."""
        observer = RecordingObserver()
        path = os.path.join(self.mktemp(), "notary.db")
        store = SqliteStore(path, reactor=reactor, observer=observer, reserve_size=4096)  # type: ignore[arg-type]
        store.init()
        self.addCleanup(store.close)
        names = {thread.name for thread in threading.enumerate()}
        self.assertTrue({"svc-store-writer", "svc-store-reader"} <= names, names)
        puts = [store.put_receipt(receipt(f"r{number}", nonce=f"n{number}")) for number in range(200)]

        def check(found: list[object]) -> None:
            self.assertNotIn(None, found)
            self.assertEqual(200, sum(observer.commits))
            self.assertLess(len(observer.commits), 50)

        def ask(_stored: object) -> Deferred[list[object]]:
            return gatherResults([store.get_receipt(f"r{number}") for number in range(0, 200, 10)])

        return gatherResults(puts).addCallback(ask).addCallback(check)

    def test_threads_end_with_close(self) -> None:
        """After close neither thread is left, and the database can be opened at once."""
        path = os.path.join(self.mktemp(), "notary.db")
        store = SqliteStore(path, reactor=reactor, reserve_size=4096)  # type: ignore[arg-type]
        store.init()
        waiting = store.put_receipt(receipt("r1"))

        def check(_closed: object) -> Deferred[None]:
            self.successResultOf(waiting)
            again = SqliteStore(path, reactor=reactor, reserve_size=4096)  # type: ignore[arg-type]
            again.init()
            return again.close()

        return store.close().addCallback(check)

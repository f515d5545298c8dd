"""
Named threads that do blocking work in groups, and a close that waits for them only so long.

A thread takes all jobs that are queued and never waits for more, so one commit and one call on the reactor's thread
serve many callers. The work is a function of the caller.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorFromThreads, IReactorTime

Job = TypeVar("Job")

#: The most jobs in a group; as many receipts can be signed together.
GROUP_LIMIT: Final = 256
#: Seconds that a commit, and the close of a database, may take before it counts as late.
COMMIT_SECONDS: Final = 10.0


class ThreadReactor(IReactorFromThreads, IReactorTime):
    """Makes calls on its thread and measures times."""


class JobThread(Generic[Job]):
    """A thread that does queued jobs in order: ``work`` a group, without raising, ``finish`` after the last."""

    def __init__(self, name: str, work: Callable[[Sequence[Job]], None], finish: Callable[[], None]) -> None:
        self._work = work
        self._finish = finish
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        # A daemon: the interpreter must not wait for a thread that hangs in its disk.
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue a job."""
        self._put(job)

    def stop(self) -> None:
        """Do what is queued, then end the thread."""
        self._put(None)

    def _put(self, job: Job | None) -> None:
        self._queue.put(job)

    def _next(self) -> Job | None:
        return self._queue.get()

    def _run(self) -> None:
        running = True
        while running:
            group: list[Job] = []
            job = self._next()
            while job is not None:
                group.append(job)
                if len(group) == GROUP_LIMIT:
                    break
                try:
                    job = self._queue.get_nowait()
                except Empty:
                    break
            else:
                running = False
            if group:
                self._work(group)
        self._finish()


#: Starts a job thread by the arguments of the class; tests start one that they run by hand.
StartThread = Callable[[str, Callable[[Sequence[Any]], None], Callable[[], None]], JobThread[Any]]


class WatchingThread(JobThread[Job]):
    """
    A job thread that watches a descriptor while no job is queued.

    ``fileno`` returns it, -1 for none, before each wait; ``readable`` is called in the thread when the descriptor is
    readable or was closed by the peer.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sequence[Job]], None],
        finish: Callable[[], None],
        *,
        fileno: Callable[[], int],
        readable: Callable[[], None],
    ) -> None:
        self._fileno = fileno
        self._readable = readable
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._wakeup_lock = Lock()
        self._ended = False
        super().__init__(name, work, finish)

    def _put(self, job: Job | None) -> None:
        self._queue.put(job)
        with self._wakeup_lock:
            # The thread may have taken the last job and closed the descriptor already.
            if not self._ended:
                os.eventfd_write(self._wakeup, 1)

    def _next(self) -> Job | None:
        while True:
            try:
                return self._queue.get_nowait()
            except Empty:
                self._wait()

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        watched = self._fileno()
        if watched >= 0:
            poll.register(watched, select.POLLIN)
        ready = [descriptor for descriptor, _event in poll.poll()]
        if self._wakeup in ready:
            os.eventfd_read(self._wakeup)
        if watched in ready:
            self._readable()

    def _run(self) -> None:
        super()._run()
        with self._wakeup_lock:
            self._ended = True
            os.close(self._wakeup)


class BoundedClose:
    """
    Waits for threads to finish, and no longer than a limit, at which ``stuck`` is called for the error.

    A thread may hang in its disk, in a lock or in the network; a process of ours then ends with
    ``svc.process.lifecycle.stop_with_failure``.
    """

    def __init__(self, reactor: IReactorTime, seconds: float, stuck: Callable[[], Exception]) -> None:
        self._reactor = reactor
        self._seconds = seconds
        self._stuck = stuck
        self._timer: IDelayedCall | None = None
        self._done: Deferred[None] = Deferred()

    @property
    def waiting(self) -> bool:
        """Whether :meth:`begin` was called, and neither :meth:`finish` nor the limit has come."""
        return self._timer is not None

    def begin(self) -> Deferred[None]:
        """Wait for :meth:`finish`, or fail with the error of ``stuck``; called once."""
        self._timer = self._reactor.callLater(self._seconds, self._give_up)
        return self._done

    def finish(self) -> None:
        """Fire what :meth:`begin` returned; without effect before it and after the limit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._done.callback(None)

    def _give_up(self) -> None:
        self._timer = None
        self._done.errback(self._stuck())

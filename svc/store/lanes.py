"""
Named threads that work in groups.

A lane takes what has queued up since it last looked, so one pass, one commit and one hand-off serve many callers; it
never waits for more to come. Must not know what the work is.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Final, Generic, Protocol, TypeVar

Job = TypeVar("Job")
JobIn = TypeVar("JobIn", contravariant=True)

GROUP_LIMIT: Final = 64


class Lane(Protocol[JobIn]):
    """Does work in order, elsewhere."""

    def submit(self, job: JobIn) -> None:
        """Queue a job."""

    def stop(self) -> None:
        """Finish what is queued, then end."""


class ThreadLane(Generic[Job]):
    """
    A lane that is a thread.

    Args:
        name: the thread's name.
        work: does a group of jobs; must not raise.
        finish: called in the thread after the last group.
        group_limit: the most jobs in a group.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sequence[Job]], None],
        finish: Callable[[], None],
        *,
        group_limit: int = GROUP_LIMIT,
    ) -> None:
        self._work = work
        self._finish = finish
        self._group_limit = group_limit
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        # A daemon: a process that was not asked to close its store must still be able to end.
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """
        Queue a job.

        Args:
            job: given to ``work`` in its turn.
        """
        self._put(job)

    def stop(self) -> None:
        """Finish what is queued, then end the thread."""
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
                if len(group) == self._group_limit:
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


class WatchingLane(ThreadLane[Job]):
    """
    A lane whose thread listens to a descriptor while it has nothing to do.

    Args:
        name: the thread's name.
        work: does a group of jobs; must not raise.
        finish: called in the thread after the last group.
        fileno: gives the descriptor, -1 for none; asked in the thread, each time it begins to wait.
        readable: called in the thread when the descriptor is readable or closed by the other side.
        group_limit: the most jobs in a group.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sequence[Job]], None],
        finish: Callable[[], None],
        *,
        fileno: Callable[[], int],
        readable: Callable[[], None],
        group_limit: int = GROUP_LIMIT,
    ) -> None:
        self._fileno = fileno
        self._readable = readable
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ringing = Lock()
        self._over = False
        super().__init__(name, work, finish, group_limit=group_limit)

    def _put(self, job: Job | None) -> None:
        self._queue.put(job)
        with self._ringing:
            # The thread may have taken the last job already.
            if not self._over:
                os.eventfd_write(self._bell, 1)

    def _next(self) -> Job | None:
        while True:
            try:
                return self._queue.get_nowait()
            except Empty:
                self._listen()

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        watched = self._fileno()
        if watched >= 0:
            poll.register(watched, select.POLLIN)
        heard = [descriptor for descriptor, _event in poll.poll()]
        if self._bell in heard:
            os.eventfd_read(self._bell)
        if watched in heard:
            self._readable()

    def _run(self) -> None:
        super()._run()
        with self._ringing:
            self._over = True
            os.close(self._bell)

"""
Named threads that work in groups.

A lane takes what has queued up since it last looked, so one pass, one commit and one hand-off serve many callers; it
never waits for more to come. Must not know what the work is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
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
        self._queue.put(job)

    def stop(self) -> None:
        """Finish what is queued, then end the thread."""
        self._queue.put(None)

    def _run(self) -> None:
        running = True
        while running:
            group: list[Job] = []
            job = self._queue.get()
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

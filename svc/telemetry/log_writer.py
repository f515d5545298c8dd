"""
The way of log lines out of the process, which never holds the process up.

A reader that stops reading, a terminal that is paused and a disk that is full stop a thread and nothing else: what
waits is bounded, what does not fit is counted, and one line says how many are missing as soon as lines can be written
again. No line is ever cut in two. Owns the thread and the bound; must not know what a line says.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

#: Octets of lines that may wait: a thousand long records, or some minutes of an access log.
MAX_WAITING: Final = 1024 * 1024
#: Seconds between two attempts to write to what takes nothing.
RETRY_SECONDS: Final = 0.5
#: Seconds that the end of the process waits for lines to be written.
FLUSH_SECONDS: Final = 2.0
_BATCH: Final = 64 * 1024


class LogWriter:
    """
    Writes lines to a descriptor in the order in which they came.

    Until :meth:`start` the caller's own thread writes, since ``twistd`` forks in between.

    Args:
        descriptor: where lines go; stays open.
        missing: makes the line that says how many are missing.
        limit: the most octets of lines that wait.
        retry: seconds between two attempts to write to what takes nothing.
    """

    def __init__(
        self,
        descriptor: int,
        missing: Callable[[int], bytes],
        *,
        limit: int = MAX_WAITING,
        retry: float = RETRY_SECONDS,
    ) -> None:
        self._descriptor = descriptor
        self._missing = missing
        self._limit = limit
        self._retry = retry
        self._changed = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._waiting = 0
        #: What is left of lines whose writing has begun.
        self._rest: memoryview = memoryview(b"")
        self._dropped = 0
        self._idle = True
        self._draining = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def dropped(self) -> int:
        """How many lines were dropped and not told of yet."""
        return self._dropped

    def start(self) -> None:
        """Write in a thread from now on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="svc-log", daemon=True)
            self._thread.start()

    def write(self, line: bytes) -> None:
        """
        Take a line.

        Args:
            line: a whole one; dropped and counted where too much waits, or where the number of those that were dropped
                before has not been told yet.
        """
        with self._changed:
            if self._dropped or self._waiting + len(line) > self._limit:
                self._dropped += 1
            else:
                self._lines.append(line)
                self._waiting += len(line)
            self._idle = False
            self._changed.notify_all()
        if self._thread is None:
            self._drain()

    def flush(self, seconds: float = FLUSH_SECONDS) -> bool:
        """
        Wait until everything is written.

        Args:
            seconds: the longest wait.

        Returns:
            Whether it is.
        """
        if self._thread is None:
            return self._drain()
        with self._changed:
            return self._changed.wait_for(lambda: self._idle, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._idle)
            if not self._drain():
                self._pause()

    def _drain(self) -> bool:
        """Write what waits; tells whether nothing is left."""
        # A collected object may log in the middle of a line: its line comes after it.
        if not self._draining.acquire(blocking=False):
            return False
        try:
            while data := self._next():
                try:
                    while data:
                        data = data[os.write(self._descriptor, data) :]
                except OSError:
                    self._rest = data
                    return False
            return True
        finally:
            self._draining.release()

    def _next(self) -> memoryview:
        """Take what is to be written next: the rest of what was begun, further lines, or how many are missing."""
        if self._rest:
            data, self._rest = self._rest, memoryview(b"")
            return data
        with self._changed:
            batch, size = [], 0
            while self._lines and size < _BATCH:
                batch.append(self._lines.popleft())
                size += len(batch[-1])
            self._waiting -= size
            missing = 0 if batch else self._dropped
            if missing:
                self._dropped = 0
            elif not batch:
                self._idle = True
                self._changed.notify_all()
        return memoryview(self._missing(missing) if missing else b"".join(batch))

    def _pause(self) -> None:
        """Wait until another attempt is worth it; a descriptor that would have blocked tells when."""
        poll = select.poll()
        try:
            poll.register(self._descriptor, select.POLLOUT)
            ready = poll.poll(self._retry * 1000)
        except OSError:
            ready = []
        if ready:
            # Writable and yet refused: the disk is full, or nobody reads any more.
            time.sleep(self._retry)


def open_standard_descriptors() -> None:
    """
    Give ``/dev/null`` to standard descriptors that are closed; called before anything else opens a file.

    Otherwise a socket or a database could get the number 1, and what is meant for standard output would be written to
    it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free: those below it are open by now.
            os.open(os.devnull, os.O_RDWR)


def take_standard_output() -> int:
    """
    Keep standard output for records alone.

    Whatever writes to descriptor 1 past Python's ``sys.stdout``, and whatever is printed before the log begins, goes to
    standard error from then on.

    Returns:
        A descriptor of the true standard output that nobody else knows.
    """
    if sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    return own

"""
Writes log lines in a thread, so that the process never waits for a reader of its log or for a disk.

Waiting lines are bounded; lines beyond the bound are counted, and one line reports how many are missing as soon as
lines can be written again. No line is ever cut in two.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

#: Octets of waiting lines: a thousand long records, or some minutes of an access log.
MAX_WAITING: Final = 1024 * 1024
#: Seconds between two attempts to write to a descriptor that accepts nothing.
RETRY_SECONDS: Final = 0.5
#: Seconds that the exit of the process waits for lines to be written.
FLUSH_SECONDS: Final = 2.0
_BATCH: Final = 64 * 1024


class LogWriter:
    """
    Writes lines to a descriptor in order.

    Until :meth:`start` the calling thread writes, since ``twistd`` forks in between.

    Args:
        descriptor: stays open.
        missing: makes the line that reports how many lines are missing.
        limit: octets of waiting lines.
        retry: seconds between two attempts to write to a descriptor that accepts nothing.
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
        #: The unwritten part of lines whose writing has begun.
        self._rest: memoryview = memoryview(b"")
        self._dropped = 0
        self._idle = True
        self._draining = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def dropped(self) -> int:
        """How many lines were dropped and are not reported yet."""
        return self._dropped

    def start(self) -> None:
        """Write in a thread from now on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="svc-log", daemon=True)
            self._thread.start()

    def write(self, line: bytes) -> None:
        """Write a whole line, or drop it where too much waits or earlier dropped lines are not reported yet."""
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
        """Wait until everything is written; False if it is not after ``seconds``."""
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
        """Write what waits; False if something is left."""
        # The destructor of a collected object may log while a line is written: that line is written after it.
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
        """What to write next: the rest of what was begun, waiting lines, or the report of missing ones."""
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
        """Wait until another attempt may succeed: until a blocking descriptor is writable, at most ``retry``."""
        poll = select.poll()
        try:
            poll.register(self._descriptor, select.POLLOUT)
            ready = poll.poll(self._retry * 1000)
        except OSError:
            ready = []
        if ready:
            # Writable and yet refused: the disk is full, or the reader has closed the pipe.
            time.sleep(self._retry)

"""The clocks of a process, and the detection of steps of the wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.task import LoopingCall

#: Seconds by which the wall clock may differ from the monotonic one between two checks. Gradual corrections (at most
#: half a millisecond a second) stay below.
TOLERANCE: Final = 1.0
#: Seconds between two checks.
CHECK_EVERY: Final = 1.0
#: A check whose reading of the clocks took longer, since the process was suspended in between, is ignored.
_LONGEST_READING: Final = 0.2


def utc_now() -> datetime:
    """The current time, aware, in UTC."""
    return datetime.now(UTC)


def use_monotonic_clock(reactor: Any) -> None:
    """
    Let the timers of one of Twisted's reactors follow the monotonic clock; called before the first timer is set.

    By default they follow the wall clock: set forward, all of them fire at once; set back, none fires until the time
    has come again.
    """
    reactor.seconds = time.monotonic


class ClockWatch:
    """Detects steps of the wall clock by comparing it with the monotonic clock."""

    def __init__(self, wall: Callable[[], datetime], seconds: Callable[[], float]) -> None:
        self._wall = wall
        self._seconds = seconds
        self._offset: float | None = None
        self.check()

    def check(self) -> float | None:
        """The seconds by which the wall clock was set since the last check, negative for back; None if it was not."""
        began = self._seconds()
        wall = self._wall().timestamp()
        if self._seconds() - began > _LONGEST_READING:
            return None
        offset, before = wall - began, self._offset
        self._offset = offset
        if before is None or abs(offset - before) < TOLERANCE:
            return None
        return offset - before


class ClockService(Service):
    """Checks the wall clock once a second and calls ``stepped`` with the seconds by which it was set."""

    def __init__(self, wall: Callable[[], datetime], clock: Any, stepped: Callable[[float], None]) -> None:
        self._wall = wall
        self._clock = clock
        self._stepped = stepped
        self._loop: LoopingCall | None = None

    def startService(self) -> None:
        super().startService()
        watch = ClockWatch(self._wall, self._clock.seconds)

        def check() -> None:
            step = watch.check()
            if step is not None:
                self._stepped(step)

        self._loop = LoopingCall(check)
        self._loop.clock = self._clock
        self._loop.start(CHECK_EVERY, now=False)

    def stopService(self) -> None:
        super().stopService()
        if self._loop is not None and self._loop.running:
            self._loop.stop()
        self._loop = None

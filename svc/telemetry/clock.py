"""
Noticing that the clock on the wall was set.

Owns the comparison of two clocks; whoever looks from time to time is told how far the wall clock went on its own. Slow
corrections, which move it by less than half a thousandth, are none.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.task import LoopingCall

#: A clock that goes on its own by less between two looks was not set.
TOLERANCE: Final = 1.0
#: Seconds between two looks.
LOOK_EVERY: Final = 1.0
#: Between the readings of the two clocks this process may have been made to wait; such a look says nothing.
_LONGEST_LOOK: Final = 0.2


class ClockWatch:
    """
    Compares the wall clock with the monotonic one.

    Args:
        wall: tells the time, aware.
        seconds: the monotonic clock.
    """

    def __init__(self, wall: Callable[[], datetime], seconds: Callable[[], float]) -> None:
        self._wall = wall
        self._seconds = seconds
        self._before: float | None = None
        self.look()

    def look(self) -> float | None:
        """
        Compare.

        Returns:
            By how many seconds the wall clock was set since the last look, negative for back; None where it was not.
        """
        began = self._seconds()
        wall = self._wall().timestamp()
        if self._seconds() - began > _LONGEST_LOOK:
            return None
        ahead, before = wall - began, self._before
        self._before = ahead
        if before is None or abs(ahead - before) < TOLERANCE:
            return None
        return ahead - before


class ClockService(Service):
    """
    Looks at the clock once a second.

    Args:
        wall: tells the time, aware.
        clock: the reactor, whose clock is monotonic.
        stepped: called with the seconds by which the wall clock was set, negative for back.
    """

    def __init__(self, wall: Callable[[], datetime], clock: Any, stepped: Callable[[float], None]) -> None:
        self._wall = wall
        self._clock = clock
        self._stepped = stepped
        self._loop: LoopingCall | None = None

    def startService(self) -> None:
        """Look from now on."""
        super().startService()
        watch = ClockWatch(self._wall, self._clock.seconds)

        def look() -> None:
            step = watch.look()
            if step is not None:
                self._stepped(step)

        self._loop = LoopingCall(look)
        self._loop.clock = self._clock
        self._loop.start(LOOK_EVERY, now=False)

    def stopService(self) -> None:
        """Look no more."""
        super().stopService()
        if self._loop is not None and self._loop.running:
            self._loop.stop()
        self._loop = None

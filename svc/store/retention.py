"""
The service that prunes old records.

What is deleted is gone, so nothing is deleted by a clock that may be wrong: only by one that has run evenly for a
while.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from svc.store.errors import StoreError
from svc.store.interface import INotaryStore

INTERVAL: Final = 600.0
#: A clock that differs by more than this between two checks was set; slow corrections stay far below.
_EVEN: Final = 2.0
#: A clock must have run evenly for so long, after the start too: clocks are set soon after the start of a machine.
_SETTLE: Final = 3600.0
#: A clock that was set forward must have run evenly for as long as it was set, but no longer than this.
_MOST: Final = 86400.0


class RetentionService(Service):
    """
    Prunes a store at intervals, while the clock is reliable.

    Records are kept for up to an hour longer than the retention after a start, or a tenth of the retention where that
    is less, and for up to a day longer after the clock was set forward.

    Args:
        store: the store.
        retention: seconds for which a record is kept.
        clock: measures the interval.
        now: returns the current time.
        interval: seconds between two runs.
        pruned: called with the number of deleted records when there are any.

    Attributes:
        last_error: why the last pruning failed, or None; the store has reported it to its observer.
    """

    def __init__(
        self,
        store: INotaryStore,
        *,
        retention: float,
        clock: IReactorTime,
        now: Callable[[], datetime],
        interval: float = INTERVAL,
        pruned: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.last_error: StoreError | None = None
        self._store = store
        self._retention = retention
        self._now = now
        self._interval = interval
        self._settle = min(_SETTLE, retention / 10)
        self._seconds = clock.seconds
        self._ahead: float | None = None
        self._reliable_from = 0.0
        self._pruned = pruned
        self._loop = LoopingCall(self._prune)
        self._loop.clock = clock
        self._ended: Deferred[LoopingCall] = succeed(self._loop)

    def startService(self) -> None:
        super().startService()
        self._ahead = None
        self._ended = self._loop.start(self._interval, now=True)

    def stopService(self) -> Deferred[LoopingCall]:
        """Stop; fires when a pruning that runs has ended."""
        super().stopService()
        if self._loop.running:
            self._loop.stop()
        return self._ended

    def _prune(self) -> Deferred[None]:
        now, seconds = self._now().timestamp(), self._seconds()
        self._check_clock(now - seconds, seconds)
        if seconds < self._reliable_from:
            return succeed(None)
        return self._store.prune(int(now - self._retention)).addCallbacks(self._succeeded, self._failed)

    def _check_clock(self, ahead: float, seconds: float) -> None:
        before, self._ahead = self._ahead, ahead
        if before is None:
            self._reliable_from = seconds + self._settle
        elif abs(ahead - before) > _EVEN:
            self._reliable_from = seconds + max(self._settle, min(ahead - before, _MOST))

    def _succeeded(self, count: int) -> None:
        self.last_error = None
        if count:
            self._pruned(count)

    def _failed(self, failure: Failure) -> None:
        # What the store cannot do now it may do next time; anything else ends the loop and is logged.
        error = failure.value
        if not isinstance(error, StoreError):
            failure.raiseException()
        else:
            self.last_error = error

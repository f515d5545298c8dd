"""
The service that lets a store forget.

Owns when; the store knows how.
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


class RetentionService(Service):
    """
    Prunes a store when it starts and from time to time.

    Args:
        store: what forgets.
        retention: seconds for which a record is kept.
        clock: measures the interval.
        now: the current time, from which ages are reckoned.
        interval: seconds between two prunings.
        pruned: called with the number of forgotten records when there are any.

    Attributes:
        last_error: why the last pruning failed, or None; the store has told its observer.
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
        self._pruned = pruned
        self._loop = LoopingCall(self._prune)
        self._loop.clock = clock
        self._over: Deferred[LoopingCall] = succeed(self._loop)

    def startService(self) -> None:
        """Prune now and from now on."""
        super().startService()
        self._over = self._loop.start(self._interval, now=True)

    def stopService(self) -> Deferred[LoopingCall]:
        """
        Prune no more.

        Returns:
            Fires when a pruning that runs is over.
        """
        super().stopService()
        if self._loop.running:
            self._loop.stop()
        return self._over

    def _prune(self) -> Deferred[None]:
        before = int(self._now().timestamp() - self._retention)
        return self._store.prune(before).addCallbacks(self._succeeded, self._failed)

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

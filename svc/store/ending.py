"""
The end of threads that work with a database, and how long it is waited for.

One rule for every database: a thread that hangs in its disk, in a lock or in the network holds an end for so many
seconds and no longer. Threads of lanes are daemons, so the interpreter does not wait for them; a process of ours then
ends with ``svc.process.lifecycle.stop_with_failure``. Must not know what the threads do.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from svc.store.errors import StoreError


class BoundedEnd:
    """
    Waits for an end, and not for ever.

    Args:
        reactor: measures the time.
        seconds: how long it is waited for.
        stuck: called when that is over; gives the error.
    """

    def __init__(self, reactor: IReactorTime, seconds: float, stuck: Callable[[], StoreError]) -> None:
        self._reactor = reactor
        self._seconds = seconds
        self._stuck = stuck
        self._timer: IDelayedCall | None = None
        self._done: Deferred[None] = Deferred()

    @property
    def awaited(self) -> bool:
        """Whether the end has begun, has not come, and its time is not over."""
        return self._timer is not None

    def begin(self) -> Deferred[None]:
        """
        Begin to wait; called once.

        Returns:
            Fires when the end has come; fails with the error of ``stuck``.
        """
        self._timer = self._reactor.callLater(self._seconds, self._give_up)
        return self._done

    def come(self) -> None:
        """Say that the end has come; too late or unasked for, it is no matter any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._done.callback(None)

    def _give_up(self) -> None:
        self._timer = None
        self._done.errback(self._stuck())

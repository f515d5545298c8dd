"""
Signals, the ordered end of a daemon, and its garbage collector.

SIGTERM ends a daemon with status 0. ``twistd`` alone would stop and then kill itself with the signal, which a
supervisor takes for a crash.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ReactorNotRunning
from twisted.python.failure import Failure

from svc.telemetry.log_writer import LogWriter

#: With a larger threshold, tens of kilobytes of unreachable objects remain for each closed connection.
_YOUNG_OBJECTS: Final = 5000


def install_signal_handlers(
    reactor: Any, reload: Callable[[], object], leave: Callable[[Callable[[], object]], object]
) -> None:
    """
    Stop on SIGTERM, reload on SIGHUP, and on SIGUSR1 call ``leave`` with what stops.

    To be called once the reactor runs, which installs its own handlers before.
    """
    stop = partial(_stop, reactor)
    handlers: dict[signal.Signals, Callable[[], object]] = {
        signal.SIGTERM: stop,
        signal.SIGHUP: reload,
        signal.SIGUSR1: partial(leave, stop),
    }
    for number in handlers:
        signal.signal(number, lambda given, _frame: reactor.callFromThread(handlers[signal.Signals(given)]))


def stop_with_failure(reactor: Any, log_writer: LogWriter) -> None:
    """Stop the reactor, and exit with status 1 when all services have stopped and the log is written."""

    def end() -> None:
        log_writer.flush()
        os._exit(1)

    reactor.addSystemEventTrigger("after", "shutdown", end)
    if reactor.running:
        # It may be stopping already.
        _stop(reactor)
    else:
        reactor.callWhenRunning(reactor.stop)


def _stop(reactor: Any) -> None:
    with contextlib.suppress(ReactorNotRunning):
        reactor.stop()


async def stop_in_order(steps: Iterable[Callable[[], object]], failed: Callable[[Failure], None]) -> None:
    """Run the steps of a stop one after the other, each to its end; a failed step does not prevent the next."""
    for step in steps:
        ended: Deferred[object] = maybeDeferred(step)
        await ended.addErrback(failed)


def stop_if_running(service: Service | None) -> object:
    """Stop a service, if there is one and it runs; the result may be a Deferred."""
    return service.stopService() if service is not None and service.running else None


def when_finished(running: Deferred[None]) -> Deferred[None]:
    """A new Deferred that fires with None when ``running`` has fired or failed, for one of several that wait for it."""
    waiting: Deferred[None] = Deferred()
    running.addBoth(lambda _result: waiting.callback(None))
    return waiting


@contextlib.contextmanager
def pause_gc() -> Iterator[None]:
    """
    Pause the garbage collector while many lasting objects are made, and exclude them from all later collections.

    With a million objects a full collection takes seconds, in which no thread runs.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def freeze_gc() -> None:
    """Exclude what the start made from later collections, and collect young objects less often than by default."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 10, 10)


#: Fewer connections than this leave too little memory behind.
_CROWD: Final = 64
_RETURN_EVERY: Final = 60.0


class FreedMemory:
    """
    Decides when the memory of closed connections is returned to the system.

    The C library keeps freed memory between memory that is in use. Returning it takes milliseconds, so it is done when
    at least half of at least 64 connections are gone, and once a minute at the most.
    """

    def __init__(self) -> None:
        self._most = 0
        self._next = 0.0

    def due(self, connections: int, now: float) -> bool:
        """Whether to call :func:`return_memory` now, with this number of open connections at this monotonic time."""
        self._most = max(self._most, connections)
        if self._most < _CROWD or 2 * connections > self._most or now < self._next:
            return False
        self._most, self._next = connections, now + _RETURN_EVERY
        return True


def return_memory() -> None:
    """Return freed memory to the system, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

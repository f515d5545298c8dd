"""
Connecting to a name: its addresses in the order of the resolver, the next one as soon as one fails (RFC 8305, 5).

Does not depend on how one address is connected to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.error import DNSLookupError
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IHostnameResolver,
    IHostResolution,
    IProtocol,
    IReactorTime,
    IResolutionReceiver,
)
from twisted.python.failure import Failure
from zope.interface import implementer

#: Seconds after which the next address is tried beside one that has neither connected nor failed.
ATTEMPT_DELAY: Final = 0.25


@implementer(IResolutionReceiver)
class _Resolution:
    """Collects the addresses of a name."""

    def __init__(self) -> None:
        self.result: Deferred[list[str]] = Deferred()
        self._hosts: list[str] = []

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        pass

    def addressResolved(self, address: IAddress) -> None:
        host = getattr(address, "host", None)
        if host is not None:
            self._hosts.append(host)

    def resolutionComplete(self) -> None:
        if self._hosts:
            self.result.callback(self._hosts)
        else:
            self.result.errback(DNSLookupError())


def resolve_name(resolver: IHostnameResolver, name: str, port: int) -> Deferred[list[str]]:
    """Resolve a name; fires with at least one IP address, or fails with ``DNSLookupError``."""
    resolution = _Resolution()
    resolver.resolveHostName(resolution, name, portNumber=port)
    return resolution.result


class Attempts:
    """
    Attempts to connect, of which the first that succeeds is kept and all others are cancelled.

    Args:
        clock: measures :data:`ATTEMPT_DELAY`.
        connects: begin one attempt each; at least one.
    """

    def __init__(self, clock: IReactorTime, connects: Iterable[Callable[[], Deferred[IProtocol]]]) -> None:
        self._clock = clock
        self._waiting = deque(connects)
        self._running: list[Deferred[IProtocol]] = []
        self._timer: IDelayedCall | None = None
        self._result: Deferred[IProtocol] | None = Deferred(self._cancel)

    def start(self) -> Deferred[IProtocol]:
        """Begin; fires with the connected protocol, or fails as the last attempt that failed."""
        result: Any = self._result
        self._next()
        return result  # type: ignore[no-any-return]

    def _next(self) -> None:
        """Begin the next attempt: those before have failed or take long."""
        self._stop_timer()
        attempt = self._waiting.popleft()()
        self._running.append(attempt)
        if self._waiting:
            self._timer = self._clock.callLater(ATTEMPT_DELAY, self._late)
        attempt.addCallbacks(self._connected, self._failed, callbackArgs=(attempt,), errbackArgs=(attempt,))

    def _late(self) -> None:
        self._timer = None
        self._next()

    def _connected(self, protocol: IProtocol, attempt: Deferred[IProtocol]) -> None:
        self._running.remove(attempt)
        result = self._end()
        if result is not None:
            result.callback(protocol)

    def _failed(self, failure: Failure, attempt: Deferred[IProtocol]) -> None:
        self._running.remove(attempt)
        if self._result is None:
            return
        if self._waiting:
            self._next()
        elif not self._running and (result := self._end()) is not None:
            result.errback(failure)

    def _cancel(self, _result: Deferred[IProtocol]) -> None:
        self._end()

    def _end(self) -> Deferred[IProtocol] | None:
        """Cancel what is under way; returns the result where it was not fired before."""
        result, self._result = self._result, None
        self._waiting.clear()
        self._stop_timer()
        for attempt in list(self._running):
            attempt.cancel()
        return result

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

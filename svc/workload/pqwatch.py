"""
Checks whether the post-quantum issuer is reachable, between two renewals of the leaf.

It connects and sends nothing; only :mod:`svc.workload.pqclient` requests a leaf.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IProtocol
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.transport.addresses import parse_address
from svc.transport.endpoints import PlainClientEndpoint
from svc.workload.errors import PqIssuerError
from svc.workload.pqclient import issuer_failure

#: Seconds between the starts of two attempts, which do not overlap; an attempt is one connection.
WATCH_EVERY: Final = 10.0
#: The same while the issuer cannot be reached: what waits for it goes on soon after it has come.
LOST_EVERY: Final = 1.0
#: Seconds for one attempt.
WATCH_TIMEOUT: Final = 5.0


class IssuerWatch(Service):
    """
    Connects to the issuer at regular intervals, which are shorter while it cannot be reached.

    ``reached`` is called after each attempt, with None or the reason why the issuer cannot be reached.
    """

    log = Logger()

    def __init__(
        self,
        address: str,
        reactor: Any,
        reached: Callable[[PqIssuerError | None], None],
    ) -> None:
        self._address = address
        self._endpoint = PlainClientEndpoint(reactor, parse_address(address), timeout=WATCH_TIMEOUT)
        self._reached = reached
        self._factory = Factory.forProtocol(Protocol)
        self._factory.noisy = False
        self._reactor = reactor
        self._attempt: Deferred[None] | None = None
        self._next: IDelayedCall | None = None
        self._every = WATCH_EVERY

    def startService(self) -> None:
        super().startService()
        self._connect()

    def stopService(self) -> None:
        super().stopService()
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._attempt is not None:
            self._attempt.cancel()

    def look_soon(self) -> None:
        """Make the next attempt within a second: something else could not reach the issuer."""
        if self._next is not None and self._next.getTime() - self._reactor.seconds() > LOST_EVERY:
            self._next.reset(LOST_EVERY)

    def _connect(self) -> None:
        self._next = None
        began = self._reactor.seconds()
        connecting: Deferred[IProtocol] = self._endpoint.connect(self._factory)
        attempt = self._attempt = connecting.addCallbacks(self._connected, self._failed)
        attempt.addErrback(self._defect)
        attempt.addCallback(lambda _none: self._attempted(began))

    def _attempted(self, began: float) -> None:
        self._attempt = None
        if self.running:
            wait = max(0.0, began + self._every - self._reactor.seconds())
            self._next = self._reactor.callLater(wait, self._connect)

    def _connected(self, protocol: IProtocol) -> None:
        protocol.transport.abortConnection()  # type: ignore[attr-defined]
        self._every = WATCH_EVERY
        self._reached(None)

    def _failed(self, failure: Failure) -> None:
        error = issuer_failure(failure, self._address).value
        # Stopping the service cancels the attempt, which fails then.
        if self.running and isinstance(error, PqIssuerError):
            self._every = LOST_EVERY
            self._reached(error)

    def _defect(self, failure: Failure) -> None:
        self.log.failure("checking the post-quantum issuer failed unexpectedly", failure)

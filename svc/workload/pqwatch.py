"""
Checks whether the post-quantum issuer is reachable, between two renewals of the leaf.

It connects and sends nothing; only :mod:`svc.workload.pqclient` requests a leaf.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.transport.addresses import parse_address
from svc.transport.endpoints import PlainClientEndpoint
from svc.workload.errors import PqIssuerError
from svc.workload.pqclient import issuer_failure

#: Seconds between the starts of two attempts, which do not overlap; an attempt is one connection.
WATCH_EVERY: Final = 10.0
#: Seconds for one attempt.
WATCH_TIMEOUT: Final = 5.0


class IssuerWatch(Service):
    """
    Connects to the issuer at regular intervals.

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
        self._attempt: Deferred[None] | None = None
        self._loop = LoopingCall(self._connect)
        self._loop.clock = reactor

    def startService(self) -> None:
        super().startService()
        self._loop.start(WATCH_EVERY).addErrback(self._defect)

    def stopService(self) -> None:
        super().stopService()
        if self._loop.running:
            self._loop.stop()
        if self._attempt is not None:
            self._attempt.cancel()

    def _connect(self) -> Deferred[None]:
        connecting: Deferred[IProtocol] = self._endpoint.connect(self._factory)
        self._attempt = connecting.addCallbacks(self._connected, self._failed)
        return self._attempt

    def _connected(self, protocol: IProtocol) -> None:
        protocol.transport.abortConnection()  # type: ignore[attr-defined]
        self._reached(None)

    def _failed(self, failure: Failure) -> None:
        error = issuer_failure(failure, self._address).value
        # Stopping the service cancels the attempt, which fails then.
        if self.running and isinstance(error, PqIssuerError):
            self._reached(error)

    def _defect(self, failure: Failure) -> None:
        self.log.failure("checking the post-quantum issuer failed unexpectedly", failure)

"""A listener for callers over mutual TLS."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort, IProtocolFactory

from svc.pages.listening import ListenFailed
from svc.transport.addresses import TcpAddress
from svc.transport.creators import TlsIdentity, server_creator
from svc.transport.endpoints import MutualTlsServerEndpoint
from svc.transport.observer import ConnectionObserver
from svc.transport.verification import Authorize


class AddressUnusable(ListenFailed):
    """{what} cannot be opened at {address}: {why}"""

    reason = "address_unusable"


class TlsListener(Service):
    """
    Serves a Twisted factory over mutual TLS.

    ``observer`` receives failed handshakes; ``what`` and ``key`` name it and its address for errors.
    """

    def __init__(
        self,
        address: TcpAddress,
        identity: TlsIdentity,
        authorize: Authorize,
        factory: IProtocolFactory,
        now: Callable[[], datetime],
        reactor: Any,
        observer: ConnectionObserver,
        *,
        what: str,
        key: str,
    ) -> None:
        self._address = address
        self._identity = identity
        self._authorize = authorize
        self._observer = observer
        self._factory = factory
        self._now = now
        self._reactor = reactor
        self._what = what
        self._key = key
        self._port: IListeningPort | None = None

    @property
    def port(self) -> IListeningPort | None:
        return self._port

    def startService(self) -> None:
        """Open the port; raises :class:`AddressUnusable`."""
        creator = server_creator(self._identity, clock=self._now, authorize=self._authorize, observer=self._observer)
        endpoint = MutualTlsServerEndpoint(self._reactor, self._address, creator)
        failures: list[Exception] = []
        opened: list[IListeningPort] = []
        # The endpoint's Deferred has already fired.
        endpoint.listen(self._factory).addCallbacks(opened.append, lambda failure: failures.append(failure.value))
        for error in failures:
            raise AddressUnusable.from_error(error, what=self._what, address=self._address, key=self._key) from error
        self._port = opened[0]
        super().startService()

    def stopService(self) -> Deferred[None] | None:
        super().stopService()
        port, self._port = self._port, None
        return None if port is None else port.stopListening()

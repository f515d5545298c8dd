"""
The listening sides of the authority: the Workload API and the PQ issuer.

Owns opening and closing; what is spoken is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.internet.unix import Port as UnixPort

from svc.errors import SvcError
from svc.identity.bundle import BundleSet
from svc.identity.spiffeid import SpiffeID
from svc.identity.svid import X509Svid
from svc.transport.addresses import TcpAddress
from svc.transport.creators import TlsIdentity, server_creator
from svc.transport.endpoints import MutualTlsServerEndpoint
from svc.workload.authority.domain import LocalDomain
from svc.workload.authority.grpcborder import AttestedServer, ConnectionLimits
from svc.workload.authority.server import WorkloadApi
from svc.workload.authority.socketfile import SocketFile, listen

#: The life of the SVID that the authority itself shows over TLS.
OWN_TTL: Final = timedelta(hours=1)
CLOSE_SECONDS: Final = 3.0


class AddressUnusable(SvcError):
    """cannot listen on {address}: {what}"""

    reason = "address_unusable"


class WorkloadApiListener(Service):
    """
    Serves the Workload API on a Unix socket; needs the asyncio reactor.

    Args:
        path: the socket.
        mode: its permissions.
        group: its group, or None.
        api: what is served.
        reactor: the reactor.
    """

    def __init__(self, path: str, mode: int, group: int | None, api: WorkloadApi, reactor: Any) -> None:
        self._path = path
        self._mode = mode
        self._group = group
        self._api = api
        self._reactor = reactor
        self._file: SocketFile | None = None
        self._server: AttestedServer | None = None

    def startService(self) -> None:
        """
        Make the socket and serve it as soon as the reactor runs.

        Raises:
            SocketUnusable: it cannot be made, or another process serves it.
            SvcError: its folder is refused.
        """
        self._file = listen(self._path, mode=self._mode, group=self._group)
        super().startService()
        # Until then the kernel queues callers: they wait, and are not refused.
        self._reactor.callWhenRunning(self._begin)

    def stopService(self) -> Deferred[None]:
        """
        Stop serving and remove the socket.

        Returns:
            A Deferred that fires when every call has ended.
        """
        super().stopService()
        if self._file is not None:
            self._file.close()
            self._file = None
        server, self._server = self._server, None
        if server is None:
            return succeed(None)
        return Deferred.fromFuture(asyncio.ensure_future(_end(server)))

    def _begin(self) -> None:
        if self._file is not None:
            self._server = AttestedServer([self._api], ConnectionLimits())
            asyncio.ensure_future(self._server.start(sock=self._file.socket))  # noqa: RUF006 - done within one turn


async def _end(server: AttestedServer) -> None:
    try:
        server.close()
        await asyncio.wait_for(server.wait_closed(), CLOSE_SECONDS)
    except (RuntimeError, TimeoutError):
        # Not started yet, or a call that does not end: the connections are closed either way.
        return


class UnixListener(Service):
    """
    Serves a Twisted factory on a Unix socket.

    Args:
        path: the socket.
        mode: its permissions.
        group: its group, or None.
        factory: what is spoken.
        reactor: the reactor.
    """

    def __init__(self, path: str, mode: int, group: int | None, factory: IProtocolFactory, reactor: Any) -> None:
        self._path = path
        self._mode = mode
        self._group = group
        self._factory = factory
        self._reactor = reactor
        self._file: SocketFile | None = None
        self._port: IListeningPort | None = None

    def startService(self) -> None:
        """
        Make the socket and serve it.

        Raises:
            SocketUnusable: it cannot be made, or another process serves it.
            SvcError: its folder is refused.
        """
        self._file = listen(self._path, mode=self._mode, group=self._group)
        # Not adoptStreamPort: Twisted's port for Unix sockets sets mode 0666 on any socket that it is given.
        port = UnixPort._fromListeningDescriptor(self._reactor, self._file.socket.fileno(), self._factory)
        port.mode = self._mode
        port.startListening()
        self._port = port
        super().startService()

    def stopService(self) -> Deferred[None] | None:
        """
        Stop serving and remove the socket.

        Returns:
            A Deferred that fires when the port is closed.
        """
        super().stopService()
        file, self._file = self._file, None
        port, self._port = self._port, None
        if file is None or port is None:
            return None
        # The port removes the socket itself; the lock goes last, so that nobody else's socket is removed.
        return maybeDeferred(port.stopListening).addCallback(lambda _: file.close())


class TlsListener(Service):
    """
    Serves a Twisted factory over mutual TLS.

    Args:
        address: where to listen.
        identity: gives SVID and bundles of this side.
        factory: what is spoken.
        now: tells the time.
        reactor: the reactor.
    """

    def __init__(
        self,
        address: TcpAddress,
        identity: TlsIdentity,
        factory: IProtocolFactory,
        now: Callable[[], datetime],
        reactor: Any,
    ) -> None:
        self._address = address
        self._identity = identity
        self._factory = factory
        self._now = now
        self._reactor = reactor
        self._port: IListeningPort | None = None

    @property
    def port(self) -> IListeningPort | None:
        """The open port."""
        return self._port

    def startService(self) -> None:
        """
        Open the port.

        Raises:
            AddressUnusable: it cannot be opened.
        """
        creator = server_creator(self._identity, clock=self._now)
        endpoint = MutualTlsServerEndpoint(self._reactor, self._address, creator)
        failures: list[Exception] = []
        opened: list[IListeningPort] = []
        # The endpoint fires at once; a Deferred is only its interface.
        endpoint.listen(self._factory).addCallbacks(opened.append, lambda failure: failures.append(failure.value))
        for error in failures:
            what = str(error.socketError) if isinstance(error, CannotListenError) else str(error)
            raise AddressUnusable(address=self._address, what=what) from error
        self._port = opened[0]
        super().startService()

    def stopService(self) -> Deferred[None] | None:
        """
        Close the port.

        Returns:
            A Deferred that fires when it is closed.
        """
        super().stopService()
        port, self._port = self._port, None
        return None if port is None else port.stopListening()


class OwnIdentity:
    """
    The SVID of the authority itself, signed by itself; implements ``TlsIdentity``.

    Args:
        domain: the trust domain.
        spiffe_id: the identity of the authority.
        now: tells the time.
    """

    def __init__(self, domain: LocalDomain, spiffe_id: SpiffeID, now: Callable[[], datetime]) -> None:
        self._domain = domain
        self._spiffe_id = spiffe_id
        self._now = now
        self._svid: X509Svid | None = None
        self._renew_at: datetime | None = None
        self._bundles = BundleSet()

    @property
    def svid(self) -> X509Svid:
        """The current SVID; a new one is signed at half of its life."""
        now = self._now()
        if self._svid is None or self._renew_at is None or now >= self._renew_at:
            self._svid = self._domain.own_svid(self._spiffe_id, OWN_TTL, now)
            self._renew_at = now + (self._svid.not_after - now) / 2
        return self._svid

    @property
    def bundles(self) -> BundleSet:
        """The bundles of the domain; the same object as long as they do not change."""
        current = self._domain.bundles()
        if current != self._bundles:
            self._bundles = current
        return self._bundles

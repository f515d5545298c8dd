"""The listeners of the authority, for the Workload API and the PQ issuer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.internet.unix import Port as UnixPort

from svc.authority.domain import LocalDomain
from svc.authority.grpc_server import AttestedServer, CallerLimits
from svc.authority.socketfile import SocketFile, listen
from svc.authority.workload_api import WorkloadApi
from svc.identity.bundle import BundleSet
from svc.identity.spiffeid import SpiffeID
from svc.identity.svid import X509Svid

#: The life of the SVID that the authority itself shows over TLS.
OWN_TTL: Final = timedelta(hours=1)
CLOSE_SECONDS: Final = 3.0


class WorkloadApiListener(Service):
    """Serves the Workload API on a Unix socket; needs the asyncio reactor."""

    def __init__(self, path: str, mode: int, group: int | None, api: WorkloadApi, reactor: Any) -> None:
        self._path = path
        self._mode = mode
        self._group = group
        self._api = api
        self._reactor = reactor
        self._file: SocketFile | None = None
        self._server: AttestedServer | None = None

    def startService(self) -> None:
        """Make the socket, and serve it as soon as the reactor runs."""
        self._file = listen(self._path, mode=self._mode, group=self._group)
        super().startService()
        # Until then the kernel queues callers.
        self._reactor.callWhenRunning(self._serve)

    def stopService(self) -> Deferred[None]:
        """Stop serving and remove the socket; fires when every call has ended."""
        super().stopService()
        file, self._file = self._file, None
        server, self._server = self._server, None
        if server is None or file is None:
            if file is not None:
                file.close()
            return succeed(None)
        return Deferred.fromFuture(asyncio.ensure_future(_close(server, file)))

    def _serve(self) -> None:
        if self._file is not None:
            self._server = AttestedServer([self._api], CallerLimits())
            asyncio.ensure_future(self._server.start(sock=self._file.socket))  # noqa: RUF006 - done within one turn


async def _close(server: AttestedServer, file: SocketFile) -> None:
    # Not started yet, or a call that does not end: the connections are closed either way.
    with suppress(RuntimeError, TimeoutError):
        try:
            # While its socket has a descriptor, by which the loop knows it.
            server.close()
        finally:
            file.close()
        await asyncio.wait_for(server.wait_closed(), CLOSE_SECONDS)


class UnixListener(Service):
    """Serves a Twisted factory on a Unix socket."""

    def __init__(self, path: str, mode: int, group: int | None, factory: IProtocolFactory, reactor: Any) -> None:
        self._path = path
        self._mode = mode
        self._group = group
        self._factory = factory
        self._reactor = reactor
        self._file: SocketFile | None = None
        self._port: IListeningPort | None = None

    def startService(self) -> None:
        self._file = listen(self._path, mode=self._mode, group=self._group)
        # Not adoptStreamPort: Twisted's port for Unix sockets sets mode 0666 on any socket that it is given.
        port = UnixPort._fromListeningDescriptor(self._reactor, self._file.socket.fileno(), self._factory)
        port.mode = self._mode
        port.startListening()
        self._port = port
        super().startService()

    def stopService(self) -> Deferred[None] | None:
        """Stop serving and remove the socket."""
        super().stopService()
        file, self._file = self._file, None
        port, self._port = self._port, None
        if file is None or port is None:
            return None
        # The port removes the socket itself; the lock goes last, so that no socket of another process is removed.
        return maybeDeferred(port.stopListening).addCallback(lambda _: file.close())


class OwnIdentity:
    """The SVID of the authority, signed by itself; implements ``TlsIdentity``."""

    def __init__(self, domain: LocalDomain, spiffe_id: SpiffeID, now: Callable[[], datetime]) -> None:
        self._domain = domain
        self._spiffe_id = spiffe_id
        self._now = now
        self._svid: X509Svid | None = None
        self._renew_at: datetime | None = None
        self._bundles = BundleSet()

    @property
    def svid(self) -> X509Svid:
        """The current SVID, renewed at half of its lifetime."""
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

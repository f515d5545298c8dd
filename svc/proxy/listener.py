"""One listener: its endpoint, the set of its open connections, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IListeningPort, IProtocol, IStreamServerEndpoint
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from svc.identity import SpiffeID
from svc.policyfiles.settings import Policies
from svc.proxy.context import ListenerContext
from svc.telemetry.labels import Cause
from svc.transport.handshake import address_text


class Connection(Protocol):
    """A connection of a client, which adds itself to the open ones of its listener and removes itself."""

    @property
    def identity(self) -> SpiffeID | None:
        """The verified identity of the client; None outbound."""

    def sweep(self, now: float, wall: datetime) -> None:
        """Check the time limits; called about twice a second."""

    def reauthorize(self) -> bool:
        """See :class:`svc.proxy.context.AuthorizedConnection`."""

    def cut(self, cause: Cause) -> None:
        """End at once, whatever is under way."""

    def abort(self, cause: Cause) -> None:
        """Drop the connection, so that the client sees that something is missing."""


class _ClientFactory(Factory):
    noisy = False

    def __init__(self, build: Callable[[], IProtocol]) -> None:
        self._build = build

    def buildProtocol(self, addr: IAddress | None) -> IProtocol:  # type: ignore[override]  # it needs no factory
        return self._build()


class Listener:
    """
    A listener that can be opened, drained and closed.

    ``build`` makes the protocol of a client from the set of open connections, to which the protocol adds itself.
    """

    log = Logger()

    def __init__(
        self,
        context: ListenerContext,
        endpoint: IStreamServerEndpoint,
        build: Callable[[set[Connection]], IProtocol],
    ) -> None:
        self.context = context
        self._endpoint = endpoint
        self._build = build
        self._port: IListeningPort | None = None
        self._connections: set[Connection] = set()

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.context.name

    @property
    def address(self) -> IAddress | None:
        """Where it listens, once it does."""
        return self._port.getHost() if self._port is not None else None

    @property
    def address_text(self) -> str:
        """The same as ``host:port``; empty while it does not listen."""
        address = self.address
        return "" if address is None else address_text(address)

    @property
    def open_connections(self) -> int:
        """Connections of clients that are open."""
        return len(self._connections)

    @property
    def peers(self) -> set[SpiffeID]:
        """The verified identities of their clients."""
        identities = (connection.identity for connection in self._connections)
        return {each for each in identities if each is not None}

    async def open(self) -> None:
        """Listen."""
        self._port = await self._endpoint.listen(_ClientFactory(lambda: self._build(self._connections)))
        self.context.port = getattr(self._port.getHost(), "port", 0)
        self.context.opened()

    def announce_end(self) -> None:
        """Ask clients to end their connections with the next response; go on accepting."""
        self.context.leaving = True

    def stop_accepting(self) -> Deferred[None]:
        """Close the port; open connections go on and are asked to end. Fires when the port is closed."""
        self.context.draining = True
        return self.close_port()

    def close_port(self) -> Deferred[None]:
        """Close the port alone. Fires when it is closed."""
        port, self._port = self._port, None
        stopped = port.stopListening() if port is not None else None
        return stopped if stopped is not None else succeed(None)

    def close(self) -> None:
        """Cut what is still open."""
        for connection in list(self._connections):
            connection.cut("drain")
        self.context.close()

    def sweep(self, now: float, wall: datetime) -> None:
        """Check the time limits of all connections; called about twice a second."""
        self.context.tick = now
        self.context.sweep(now)
        for connection in list(self._connections):
            try:
                connection.sweep(now, wall)
            except Exception:  # noqa: BLE001 (a defect in one connection must not stop the times of all others)
                self.log.failure("the time limits of a connection could not be checked; it is dropped")
                connection.abort("defect")

    def take_policies(self, policies: Policies) -> None:
        """Decide by other policies from now on, whatever is not decided yet."""
        if self.context.inbound:
            self.context.policies = policies

    def credentials_changed(self) -> None:
        """Let new exchanges use new credentials."""
        self.context.credentials_changed()

"""One listener: its endpoint, the set of its open connections, its pool, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IListeningPort, IStreamServerEndpoint
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from svc.identity import BundleSet, SpiffeID
from svc.identity.errors import SvidInvalid
from svc.notary.exchange import ExchangeOutcome
from svc.policy.engine import Denied
from svc.policyfiles.settings import Policies
from svc.proxy.http.client import ClientConnection
from svc.proxy.http.context import ListenerContext
from svc.proxy.http.notary_endpoint import NotaryEndpoint
from svc.proxy.http.reporter import PolicyDecision
from svc.transport.errors import OwnIdentityWithdrawn
from svc.transport.evidence import PeerEvidence
from svc.transport.handshake import address_text


class _ClientFactory(Factory):
    noisy = False

    def __init__(self, build: Callable[[], ClientConnection]) -> None:
        self._build = build

    def buildProtocol(self, addr: IAddress | None) -> ClientConnection:  # type: ignore[override]  # it needs no factory
        return self._build()


class Listener:
    """A listener that can be opened, drained and closed."""

    log = Logger()

    def __init__(
        self,
        context: ListenerContext,
        endpoint: IStreamServerEndpoint,
        notary: NotaryEndpoint | None,
        random: Callable[[int], bytes],
    ) -> None:
        self.context = context
        self._endpoint = endpoint
        self._notary = notary
        self._random = random
        self._port: IListeningPort | None = None
        self._connections: set[ClientConnection] = set()

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
        identities = (connection.caller.identity for connection in self._connections)
        return {each for each in identities if each is not None}

    async def open(self) -> None:
        """Listen."""
        self._port = await self._endpoint.listen(_ClientFactory(self._build))
        self.context.port = getattr(self._port.getHost(), "port", 0)

    def stop_accepting(self) -> Deferred[None]:
        """Close the port; open connections go on and are asked to end. Fires when the port is closed."""
        self.context.draining = True
        port, self._port = self._port, None
        stopped = port.stopListening() if port is not None else None
        return stopped if stopped is not None else succeed(None)

    def close(self) -> None:
        """Cut what is still open."""
        for connection in list(self._connections):
            connection.end_now(ExchangeOutcome.SERVER_ABORTED, "drain")
        self.context.pool.close()

    def sweep(self, now: float, wall: datetime) -> None:
        """Check the time limits of all connections; called about twice a second."""
        self.context.tick = now
        self.context.pool.sweep(now)
        for connection in list(self._connections):
            try:
                connection.sweep(now, wall)
            except Exception:  # noqa: BLE001 (a defect in one connection must not stop the times of all others)
                self.log.failure("the time limits of a connection could not be checked; it is dropped")
                connection.abort("defect")

    def take_policies(self, policies: Policies) -> None:
        """Decide by other policies from now on; :meth:`reauthorize` applies them to the connections that are open."""
        if self.context.inbound:
            self.context.policies = policies

    def reauthorize(self, bundles: BundleSet, wall: datetime) -> None:
        """Reauthorize all peers, and let new exchanges use new credentials."""
        if not self.context.inbound:
            self.context.pool.reauthorize(lambda evidence: self._verify_upstream(evidence, bundles, wall))
        for connection in list(self._connections):
            connection.reauthorize(bundles, wall)

    def _verify_upstream(self, evidence: PeerEvidence, bundles: BundleSet, wall: datetime) -> None:
        """Refuse a connection under a former identity of ours, or to a peer that would now be refused."""
        context = self.context
        peer = str(evidence.svid.spiffe_id)
        try:
            evidence.reauthorize(context.rotation.identity, bundles, wall)
            listed = context.listed(evidence.svid)
            if listed is not None:
                raise listed
        except OwnIdentityWithdrawn:
            context.metrics.upstream_closed("identity_withdrawn")
            raise
        except SvidInvalid as error:
            context.metrics.denied_svid.inc()
            context.metrics.upstream_closed("reauthorization")
            context.reporter.denied(error.reason, "", peer, str(error), listener=context.name)
            raise
        except Denied as denied:
            context.metrics.denied_policy.inc()
            context.metrics.upstream_closed("reauthorization")
            decision = PolicyDecision(denied.policy, denied.rule, "")
            context.reporter.denied(denied.reason, "", peer, str(denied), listener=context.name, decision=decision)
            raise

    def _build(self) -> ClientConnection:
        return ClientConnection(self.context, self._notary, self._random, self._connections)

"""The connection of one client's session to the broker, or to the proxy of a peer."""

from __future__ import annotations

from typing import Any, Protocol

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IProtocol, IPushProducer
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.pacing.turns import Turns
from svc.proxy.relayed_context import RelayedContext
from svc.transport.errors import OwnSvidRefused
from svc.transport.evidence import PeerEvidence, peer_evidence


class UpstreamClient(Protocol):
    """The client's connection, as that to the broker sees it."""

    @property
    def context(self) -> RelayedContext:
        """What all connections of the listener share."""

    @property
    def turns(self) -> Turns:
        """How long what one read brought may be handled."""

    def upstream_opened(self, upstream: MqttUpstream) -> None:
        """The broker is connected to."""

    def upstream_received(self, data: bytes) -> None:
        """Octets of the broker, behind those that wait."""

    def upstream_lost(self, reason: Failure) -> None:
        """The connection to the broker is closed."""

    def client_full(self, *, full: bool) -> None:
        """The client's transport is full, or has sent everything."""

    def abort_defective(self) -> None:
        """Drop both connections, which a defect of this proxy left undecided."""


@implementer(IProtocol, IPushProducer)
class MqttUpstream:
    """
    The other side of a client's connection, and the producer of its transport.

    Attributes:
        evidence: what the handshake proved; None where the upstream is a broker without TLS.
        gone: whether the transport is closed.
        octets: received.
        joined: whether each transport has the other side as its producer.
    """

    transport: Any = None

    def __init__(self, client: UpstreamClient) -> None:
        self._client = client
        self.evidence: PeerEvidence | None = None
        self.gone = self.joined = False
        self.octets = 0
        #: Whether the peer may still refuse the SVID of this side, after the handshake (RFC 8446, section 4.4.2.4).
        self._may_refuse = False
        #: Whether octets wait for a turn, what came behind them, and how the connection ended behind that.
        self._awaits_turn = self._held = self._finished = False
        self._behind = b""
        self._loss: Failure | None = None

    def makeConnection(self, transport: Any) -> None:
        """Take the transport."""
        self.transport = transport
        set_no_delay = getattr(transport, "setTcpNoDelay", None)
        if set_no_delay is not None:
            set_no_delay(True)
        if not self._client.context.inbound:
            self.evidence = peer_evidence(transport)
            self._may_refuse = True
        self.connectionMade()

    def connectionMade(self) -> None:
        """Begin the session."""
        self._client.upstream_opened(self)

    def dataReceived(self, data: bytes) -> None:
        """Octets of the broker; the first show that the peer has accepted the SVID of this side."""
        self.octets += len(data)
        if self._may_refuse:
            self._accepted()
        if self._awaits_turn:
            self._behind += data
        else:
            self._client.upstream_received(data)

    def wait(self) -> None:
        """Read nothing until the octets that wait have had their turn."""
        self._awaits_turn = True
        if not self.gone:
            self.transport.pauseProducing()
        self._client.turns.wait(self)

    def read_on(self) -> None:
        """See :class:`svc.pacing.turns.UnfinishedRead`."""
        self._awaits_turn = False
        data, self._behind = self._behind, b""
        self._client.upstream_received(data)
        if self._awaits_turn:
            return
        if self._loss is not None:
            self._client.upstream_lost(self._loss)
        elif not (self._held or self._finished or self.gone):
            self.transport.resumeProducing()

    def abort_defective(self) -> None:
        """See :class:`svc.pacing.turns.UnfinishedRead`."""
        self._client.abort_defective()

    def _drop_waiting(self) -> None:
        self._finished = True
        if self._awaits_turn:
            self._awaits_turn = False
            self._client.turns.discard(self)

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 (Twisted's signature)
        """The connection is closed; what was read before is handled first."""
        self.gone = True
        if self._may_refuse and not isinstance(reason.value, OwnSvidRefused):
            self._accepted()
        if self._awaits_turn:
            self._loss = reason
        else:
            self._client.upstream_lost(reason)

    def _accepted(self) -> None:
        self._may_refuse = False
        self._client.context.accepted()

    def finish(self) -> None:
        """Close behind what was sent."""
        self._drop_waiting()
        if not self.gone and self.transport is not None:
            if self.joined:
                self.transport.unregisterProducer()
            self.transport.resumeProducing()
            self.transport.loseConnection()

    def drop(self) -> None:
        """Close at once."""
        self._drop_waiting()
        if not self.gone and self.transport is not None:
            self.transport.abortConnection()

    # The producer of the client's transport.

    def pauseProducing(self) -> None:
        """The client reads slower than the broker sends."""
        self._client.client_full(full=True)
        self._held = True
        if not self.gone:
            self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        """The client caught up."""
        self._client.client_full(full=False)
        self._held = False
        if not (self.gone or self._awaits_turn):
            self.transport.resumeProducing()

    def stopProducing(self) -> None:
        """The client's transport is closed; its own protocol is called."""


class BrokerFactory(Factory):
    """Builds the connection of one client."""

    noisy = False

    def __init__(self, client: UpstreamClient) -> None:
        self._client = client

    def buildProtocol(self, addr: IAddress | None) -> MqttUpstream:  # type: ignore[override]  # it needs no factory
        return MqttUpstream(self._client)

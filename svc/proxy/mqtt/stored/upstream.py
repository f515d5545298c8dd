"""One connection of a stored session to the broker, or to the proxy of a peer: packets, no rules of sessions."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectingCancelledError, ConnectionDone
from twisted.internet.interfaces import IAddress, IDelayedCall, IProtocol, IPushProducer, IReactorTime
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.proxy.errors import ProxyError, UpstreamMalformed, UpstreamTimeout
from svc.proxy.evaluation import Kept, Refused
from svc.proxy.mqtt.context import MqttContext
from svc.transport.errors import ConnectFailed, OwnSvidRefused, TransportError
from svc.transport.evidence import PeerEvidence, peer_evidence
from svc.wire.mqtt import Connack, Connect, Decoder, Disconnect, Packet, PacketLimits, PacketRefused, encode

#: Seconds in which a broker may take the last octets; then its connection is dropped.
CLOSE_SECONDS: Final = 30.0


class UpstreamOwner(Protocol):
    """Whose connection it is; it is called, too, while a method of the connection runs, and not once it is closed."""

    @property
    def has_client(self) -> bool:
        """Whether a client is connected."""

    def upstream_sent(self, packet: Packet) -> None:
        """The broker sent a packet; the first one is CONNACK."""

    def upstream_full(self, *, full: bool) -> None:
        """The broker reads slower than is sent, or has caught up."""

    def upstream_ended(self, error: ProxyError | None) -> None:
        """There is no connection, or no longer; ``error`` is None where the broker closed it."""

    def upstream_closed(self) -> None:
        """The transport of a connection that this side closed is closed; it is reported even then."""


@implementer(IProtocol, IPushProducer)
class BufferedUpstream:
    """See the module; connects as soon as it is made."""

    transport: Any = None

    def __init__(
        self, context: MqttContext, connect: Connect, limits: PacketLimits, owner: UpstreamOwner, clock: IReactorTime
    ) -> None:
        self._context = context
        self._connect = connect
        self._version = connect.version
        self._decoder = Decoder("server", connect.version, limits)
        self._owner = owner
        self._clock = clock
        self._evidence: PeerEvidence | None = None
        #: Whether the peer may still refuse the SVID of this side, after the handshake (RFC 8446, section 4.4.2.4).
        self._may_refuse = False
        self._opened = self._over = self._lost = self._paused = False
        #: Octets that wait for a turn, and with which error the connection ended behind them.
        self._undecoded = b""
        self._loss: ProxyError | None = None
        self._timer: IDelayedCall | None = None
        self._changes = context.reauthorization.changes
        self._attempt: Deferred[IProtocol] | None = context.endpoint.connect(_Factory(self))
        self._attempt.addErrback(self._not_connected)

    # -- For the session ---------------------------------------------------------------------------------------------

    @property
    def closing(self) -> bool:
        """Whether it is closed by this side and its transport is not."""
        return self._over and self.transport is not None and not self._lost

    def send(self, packet: Packet) -> None:
        """Send a packet."""
        octets = encode(packet, self._version, "client")
        self._context.metrics.bytes_sent.inc(len(octets))
        if not self._lost:
            self.transport.write(octets)

    def pause(self, *, paused: bool) -> None:
        """Do not read the broker, or read it again."""
        self._paused = paused
        if not (self._over or self._lost or self._undecoded) and self.transport is not None:
            (self.transport.pauseProducing if paused else self.transport.resumeProducing)()

    def close(self, last: Disconnect | None) -> None:
        """Send the last packet and close, or abort; nothing more is reported but ``upstream_closed``."""
        if self._over:
            return
        opened = self._opened
        self._end()
        if self.transport is None:
            attempt, self._attempt = self._attempt, None
            if attempt is not None:
                attempt.cancel()
        elif last is None or not opened or self._lost:
            self._abort()
        else:
            self.send(last)
            self.transport.unregisterProducer()
            self.transport.resumeProducing()
            self._timer = self._clock.callLater(CLOSE_SECONDS, self._abort)
            self.transport.loseConnection()

    def verify_time(self, wall: datetime) -> None:
        """End with the credentials of either side."""
        if self._evidence is None or self._over:
            return
        try:
            self._evidence.verify_time(wall)
        except TransportError as error:
            self._context.ended(self._evidence, error)
            self._fail(None)

    # -- Twisted -----------------------------------------------------------------------------------------------------

    def makeConnection(self, transport: Any) -> None:
        """Take the transport."""
        self.transport = transport
        set_no_delay = getattr(transport, "setTcpNoDelay", None)
        if set_no_delay is not None:
            set_no_delay(True)
        self.connectionMade()

    def connectionMade(self) -> None:
        """Send CONNECT."""
        self._attempt = None
        context = self._context
        if self._over:
            self._abort()
            return
        if not context.inbound:
            self._evidence = peer_evidence(self.transport)
            self._may_refuse = True
            context.reauthorization.add(self)
            if self._changes != context.reauthorization.changes and self.reauthorize():
                return
        self._timer = self._clock.callLater(context.timeouts.connect, self._late)
        self.transport.registerProducer(self, True)
        self.send(self._connect)

    def dataReceived(self, data: bytes) -> None:
        """Octets of the broker; the first show that the peer has accepted the SVID of this side."""
        self._accepted()
        if self._undecoded:
            self._undecoded += data
        else:
            self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        """Report the packets of octets, and keep what takes longer than a turn for a later one."""
        if self._context.reauthorization.running:
            self._context.reauthorization.decide(self)
        left = self._context.turns.take_slices(data, self._take_slice)
        if left:
            self._undecoded = left
            if not self._lost:
                self.transport.pauseProducing()
            self._context.turns.wait(self)

    def _take_slice(self, data: bytes, begin: int) -> int:
        packets, begin = self._decoder.feed_slice(data, begin)
        for packet in packets:
            if self._over:
                break
            if isinstance(packet, PacketRefused):
                self._fail(UpstreamMalformed(upstream=self._context.upstream, what=str(packet.error)))
                break
            if isinstance(packet, Connack):
                self._opened = True
                self._cancel_timer()
            self._owner.upstream_sent(packet)
        return len(data) if self._over else begin

    def read_on(self) -> None:
        """See :class:`svc.pacing.turns.UnfinishedRead`."""
        data, self._undecoded = self._undecoded, b""
        self._deliver(data)
        if self._over or self._undecoded:
            return
        if self._lost:
            self._end()
            self._owner.upstream_ended(self._loss)
        elif not self._paused:
            self.transport.resumeProducing()

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 (Twisted's signature)
        """The connection is closed; what was read before is handled first."""
        self._lost = True
        self._cancel_timer()
        error = None
        if isinstance(reason.value, OwnSvidRefused):
            error = self._context.explained(reason.value)
        else:
            self._accepted()
        if self._over:
            self._owner.upstream_closed()
        elif self._undecoded:
            self._loss = error
        else:
            self._end()
            self._owner.upstream_ended(error)

    def pauseProducing(self) -> None:
        """The broker reads slower than is sent."""
        self._owner.upstream_full(full=True)

    def resumeProducing(self) -> None:
        """The broker caught up."""
        if not self._over:
            self._owner.upstream_full(full=False)

    def stopProducing(self) -> None:
        """The transport is closed."""

    # -- svc.proxy.context.AuthorizedConnection ------------------------------------------------------------------------

    def reauthorize(self) -> bool:
        """See :class:`svc.proxy.context.AuthorizedConnection`; another connection follows."""
        if self._over or self._evidence is None:
            return False
        evaluation = self._context.evaluate_upstream(self._evidence)
        if isinstance(evaluation, Refused):
            self._fail(None)
            return True
        if evaluation is Kept.DRAIN:
            # Without its client the broker publishes the will, which would be due later.
            self.close(Disconnect() if self._owner.has_client else None)
            self._owner.upstream_ended(None)
        return False

    def abort_defective(self) -> None:
        """See :class:`svc.proxy.context.AuthorizedConnection` and :class:`svc.pacing.turns.UnfinishedRead`."""
        self._fail(None)

    # -- The end -----------------------------------------------------------------------------------------------------

    def _accepted(self) -> None:
        if self._may_refuse:
            self._may_refuse = False
            self._context.accepted()

    def _not_connected(self, failure: Failure) -> None:
        self._attempt = None
        if self._over or failure.check(CancelledError, ConnectingCancelledError):
            return
        if failure.check(ConnectFailed):
            self._context.unreachable()
        self._end()
        self._owner.upstream_ended(self._context.explained(failure.value))

    def _late(self) -> None:
        self._fail(UpstreamTimeout(upstream=self._context.upstream, seconds=self._context.timeouts.connect))

    def _fail(self, error: ProxyError | None) -> None:
        if self._over:
            return
        self._end()
        self._abort()
        self._owner.upstream_ended(error)

    def _end(self) -> None:
        self._over = True
        self._cancel_timer()
        self._context.reauthorization.discard(self)
        if self._undecoded:
            self._undecoded = b""
            self._context.turns.discard(self)

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _abort(self) -> None:
        if self.transport is not None and not self._lost:
            self.transport.abortConnection()


class _Factory(Factory):
    noisy = False

    def __init__(self, upstream: BufferedUpstream) -> None:
        self._upstream = upstream

    def buildProtocol(self, addr: IAddress | None) -> BufferedUpstream:  # type: ignore[override]  # it needs no factory
        return self._upstream

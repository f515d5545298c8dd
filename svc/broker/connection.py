"""
One client's connection: the Twisted shell around :class:`svc.broker.client.Client`.

Owns the waits for time and transport: for CONNECT, keep alive, congestion, and for the close.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Flag, auto
from functools import partial
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.broker.access import Principal
from svc.broker.client import Client, admit_client, refusal_connack
from svc.broker.errors import BrokerError, ConnectionEnded
from svc.broker.hub import Hub
from svc.broker.logins import PasswordLogins, UserEvidence
from svc.broker.sharing import LargestShare
from svc.errors import SvcError
from svc.pacing.turns import Turns
from svc.process.reauthorization import Reauthorization, ReauthorizationSummary
from svc.shares import Holdings, one_fits, share_evidence
from svc.transport.client_certificates import ClientCertificate
from svc.transport.errors import KeyUpdateLimitReached
from svc.transport.evidence import PeerEvidence
from svc.transport.fair_limiter import source_network
from svc.wire.mqtt import (
    DEFAULT_LIMITS,
    ClientIdInvalid,
    Connack,
    Connect,
    Decoder,
    Disconnect,
    MqttError,
    Packet,
    PacketLimits,
    PacketRefused,
    Publish,
    ReasonCode,
    ReturnCode,
    Version,
    VersionUnsupported,
    encode,
)
from svc.workload.interface import CredentialSource

#: Seconds in which the last packets may be sent and TLS be closed; then the connection is aborted.
CLOSE_TIMEOUT: Final = 5.0
#: Octets of responses to a client that does not read, beyond what the transport buffers, before it is not read either.
MAX_UNREAD_OCTETS: Final = 64 * 1024
#: Responses to a client that may wait until something is durable; then it is not read until they are sent.
MAX_PENDING_RESPONSES: Final = 1000
#: Octets of an incomplete packet that count as activity of the client: a large one may take long to arrive.
PROGRESS_OCTETS: Final = 1000
#: Packets, and octets, of one read that are processed without checking the clock.
INLINE_PACKETS: Final = 8
INLINE_OCTETS: Final = 1024
#: The first octet of a TLS record, which begins no MQTT connection.
_TLS: Final = b"\x16"
_HTTP: Final = re.compile(rb"(GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT|PRI) ")
_NOBODY: Final = Principal(None)


class PauseReason(Flag):
    """Why nothing is read from a client."""

    CONNACK_PENDING = auto()
    RESPONSES_UNREAD = auto()
    RESPONSES_PENDING = auto()
    TURN_OVER = auto()
    RECEIVE_MAXIMUM = auto()


_NOT_PAUSED: Final = PauseReason(0)


class ConnectionReporter(Protocol):
    """Reports events of connections."""

    def connected(self, principal: Principal, client_id: str, version: Version) -> None:
        """A client was admitted."""

    def refused(self, principal: Principal, error: SvcError) -> None:
        """A client was not admitted."""

    def broken(self, principal: Principal, client_id: str, error: SvcError) -> None:
        """A client's connection was ended because of an error."""

    def denied(self, principal: Principal, client_id: str, action: str) -> None:
        """Access rules did not allow a client to ``publish`` or ``subscribe``."""

    def no_room(self, reason: str, owner: str, most: Callable[[], LargestShare]) -> None:
        """A message was not queued or retained for want of room that all share; ``most`` finds who has most."""

    def reauthorized(self, summary: ReauthorizationSummary) -> None:
        """All connections that were open at a change are decided on again."""


class SilentReporter:
    """Reports nothing."""

    def connected(self, principal: Principal, client_id: str, version: Version) -> None: ...

    def refused(self, principal: Principal, error: SvcError) -> None: ...

    def broken(self, principal: Principal, client_id: str, error: SvcError) -> None: ...

    def denied(self, principal: Principal, client_id: str, action: str) -> None: ...

    def no_room(self, reason: str, owner: str, most: Callable[[], LargestShare]) -> None: ...

    def reauthorized(self, summary: ReauthorizationSummary) -> None: ...


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of one connection."""

    packet: PacketLimits = DEFAULT_LIMITS
    #: Seconds in which CONNECT must be received.
    connect: float = 10.0
    #: The longest keep alive in seconds.
    keep_alive: int = 1200


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """What all connections of a broker share; each has one reference to it."""

    hub: Hub
    limits: ConnectionLimits
    #: The monotonic time.
    seconds: Callable[[], float]
    turns: Turns
    reporter: ConnectionReporter
    #: The open connections.
    connections: Reauthorization[BrokerConnection]
    #: How many connections the listener may have, which identities share near that number; None shares nothing.
    connection_limit: int | None = None
    #: Those of each identity.
    held: Holdings[str] = field(default_factory=Holdings)


def _other_protocol(data: bytes) -> SvcError | None:
    """Recognize a TLS record or an HTTP request line (PRI: HTTP/2), which begin no MQTT connection."""
    if data[:1] == _TLS:
        return ConnectionEnded("mqtt_tls_at_plain_listener")
    request = _HTTP.match(data)
    return None if request is None else ConnectionEnded("mqtt_http_at_listener", method=request[1].decode("ascii"))


@implementer(IPushProducer)
class BrokerConnection(TwistedProtocol):
    """
    One connection; the :class:`~svc.broker.client_sink.ClientSink` of its client.

    Args:
        context: shared with the other connections.
        identify: returns the client, given the transport.
        logins: verifies the credentials in CONNECT; None ignores them.

    Attributes:
        congested: whether the transport's buffer is full.
        ended: whether the connection is closed or being closed.
    """

    log = Logger()

    # Most connections never set these.
    #: Packets that were read and wait to be processed, and the octets behind them, from a position on.
    _pending: deque[Packet | PacketRefused] | None = None
    _undecoded = b""
    _begin = 0
    #: Whether the transport is closed, while what was read before is processed.
    _lost = False
    _paused = _NOT_PAUSED
    #: Whether the first pending packet waits for acknowledgements to be written.
    _awaiting_acks = False
    _unread_octets = 0
    _incomplete_octets = 0
    _with_will = True
    #: Whether access rules have changed between CONNECT and CONNACK.
    _rules_changed = False

    def __init__(
        self, context: BrokerContext, identify: Callable[[Any], Principal], logins: PasswordLogins | None = None
    ) -> None:
        self._context = context
        self._identify = identify
        self._logins = logins
        #: The login whose password is being verified.
        self._login: Deferred[UserEvidence] | None = None
        self._decoder = Decoder("client", limits=context.limits.packet)
        # What every connection sets at some time is set here: attributes that are added later, when many connections
        # have been made meanwhile, cost each of them a dictionary of its own, 280 octets more.
        self._client: Client | None = None
        self._client_id = ""
        self._principal = _NOBODY
        self._version = Version.V5
        self._connect_received = False
        self._last_active = 0.0
        self.congested = False
        self.ended = False
        #: Whether it counts for the identity of its client.
        self._counted = False

    @property
    def principal(self) -> Principal:
        """Who is at its other end."""
        return self._principal

    # From the transport.

    def connectionMade(self) -> None:
        """Identify the client and wait for CONNECT."""
        self._principal = self._identify(self.transport)
        self._last_active = self._context.seconds()
        self._context.connections.add(self)
        self._transport.registerProducer(self, True)
        try:
            self._count()
        except BrokerError as error:
            # It frees its place at once: what its client answers is not waited for.
            self._end(error, error.mqtt_reason)
            self.abort()

    def _count(self) -> None:
        """Count the connection for the identity of its client, once that is known; raises BrokerError."""
        principal, limit = self._principal, self._context.connection_limit
        if limit is None or principal.identity is None:
            return
        held = self._context.held
        if not one_fits(held, principal.owner, limit):
            raise BrokerError("mqtt_connection_share", **share_evidence(held, principal.owner, limit))
        held.change(principal.owner, 1)
        self._counted = True

    def dataReceived(self, data: bytes) -> None:
        """Process octets; a whole packet, or many octets of one, count as activity of the client."""
        self._decide_before_packets()
        if not self._connect_received and not self._incomplete_octets and not self.ended:
            other = _other_protocol(data)
            if other is not None:
                self._end(other, ReasonCode.MALFORMED_PACKET)
                return
        if self._pending is not None or (self._connect_received and self._client is None):
            # Packets that follow CONNECT wait for CONNACK, which waits until the session is durable.
            if not self.ended:
                self._enqueue(data)
            return
        if len(data) > INLINE_OCTETS:
            events, begin = self._decoder.feed_slice(data, 0)
        else:
            events, begin = self._decoder.feed(data), len(data)
        if (events or self._has_progressed(len(data))) and not self.ended:
            self._last_active = self._context.seconds()
        if len(events) > INLINE_PACKETS or len(data) > INLINE_OCTETS:
            self._pending, self._undecoded, self._begin = deque(events), data if begin < len(data) else b"", begin
            self._process_pending()
            return
        for event in events:
            if self.ended:
                return
            if self._pending is not None or (self._connect_received and self._client is None):
                if self._pending is None:
                    self._pending = deque()
                self._pending.append(event)
            else:
                self._process(event)
        self._check_pending_responses()

    def _decide_before_packets(self) -> None:
        """Process no packet under credentials or rules that are not in force any more."""
        connections = self._context.connections
        if connections.running:
            connections.decide(self)

    def _check_pending_responses(self) -> None:
        client = self._client
        if client is not None and client.session.pending_responses > MAX_PENDING_RESPONSES:
            self._pause(PauseReason.RESPONSES_PENDING)
            self._context.hub.journal.when_durable(partial(self._resume, PauseReason.RESPONSES_PENDING))

    def _has_progressed(self, octets: int) -> bool:
        """Count octets of an incomplete packet; those of CONNECT do not extend its time."""
        self._incomplete_octets += octets
        if self._incomplete_octets < PROGRESS_OCTETS or not self._connect_received:
            return False
        self._incomplete_octets = 0
        return True

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End the connection in the core, once what was read before is processed."""
        self._lost = True
        if isinstance(reason.value, KeyUpdateLimitReached):
            self._context.hub.statistics.refused[reason.value.reason] += 1
        if self.ended or self._client is None or self._pending is None:
            self._end_lost()
        elif self._awaiting_acks:
            # What its client did not get an acknowledgement for is sent again.
            self._take_last()
            self._end_lost()

    def _take_last(self) -> None:
        """Process a DISCONNECT behind all that is dropped; it is looked for as long as a turn lasts."""
        pending, client, turns = self._pending, self._client, self._context.turns
        if pending is None or client is None:
            return
        deadline = turns.deadline()
        while self._undecoded and not turns.over(deadline):
            self._decode_slice(pending)
        if pending and not self._undecoded and isinstance(last := pending[-1], Disconnect):
            with suppress(MqttError):
                client.received(last)
                self._with_will = last.code != 0

    def _end_lost(self) -> None:
        self.ended = True
        if self._login is not None:
            self._login.cancel()
        self._drop_pending()
        self._context.connections.discard(self)
        if self._counted:
            self._counted = False
            self._context.held.change(self._principal.owner, -1)
        self._detach()

    def _drop_pending(self) -> None:
        if self._pending is not None:
            self._pending, self._undecoded, self._begin = None, b"", 0
            self._context.turns.discard(self)

    def pauseProducing(self) -> None:
        """
        Stop adding messages: the transport's buffer is full.

        The client is read still: its acknowledgements make room, and PINGREQ shows that it is slow and not gone.
        """
        self.congested = True
        self._unread_octets = 0

    def resumeProducing(self) -> None:
        """Go on sending: the transport's buffer is empty."""
        self.congested = False
        self._resume(PauseReason.RESPONSES_UNREAD)
        if self._client is not None and not self.ended:
            self._client.on_writable()

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""

    @property
    def _transport(self) -> Any:
        return self.transport

    def _resume(self, reason: PauseReason) -> None:
        """Remove a reason for which nothing is read."""
        if reason not in self._paused:
            return
        self._paused &= ~reason
        if not self._paused and not (self.ended or self._lost):
            self._last_active = self._context.seconds()
            self._transport.resumeProducing()

    def _pause(self, reason: PauseReason) -> None:
        if not (self.ended or self._lost):
            self._paused |= reason
            self._transport.pauseProducing()

    # Packets.

    def _process(self, event: Packet | PacketRefused) -> None:
        try:
            if isinstance(event, PacketRefused):
                raise event.error
            client = self._client
            if client is not None:
                result = client.received(event)
                if result is None:
                    return
                if isinstance(result, Publish):
                    self._await_acks(result)
                else:
                    # DISCONNECT with reason 0 removes the will [MQTT-3.14.4-3]; any other one does not.
                    self._with_will = result.code != 0
                    self._start_closing()
            elif isinstance(event, Connect):
                self._admit(event)
        except (BrokerError, MqttError) as error:
            self._end(error, error.mqtt_reason)

    def _enqueue(self, data: bytes) -> None:
        if self._pending is None:
            self._pending = deque()
        self._undecoded, self._begin = self._undecoded[self._begin :] + data, 0

    def _await_acks(self, packet: Publish) -> None:
        """Pause a client that has as many unacknowledged messages as it may, until acknowledgements are written."""
        if self._pending is None:
            self._pending = deque()
        self._pending.appendleft(packet)
        self._awaiting_acks = True
        self._pause(PauseReason.RECEIVE_MAXIMUM)
        self._context.hub.journal.when_durable(self._on_acks_written)

    def _on_acks_written(self) -> None:
        """Go on in a later turn, after the other callbacks of the same commit."""
        self._awaiting_acks = False
        if self._pending is not None:
            self._context.turns.wait(self)

    def read_on(self) -> None:
        """See :class:`svc.pacing.turns.UnfinishedRead`."""
        self._process_pending()

    def abort_defective(self) -> None:
        """See :class:`svc.pacing.turns.UnfinishedRead`."""
        self.abort()

    def _process_pending(self) -> None:
        """Process pending packets until the turn is over; nothing is read until all are processed."""
        pending, seconds = self._pending, self._context.seconds
        if pending is None:
            return
        self._decide_before_packets()
        deadline = self._context.turns.deadline()
        while not self.ended:
            if self._awaiting_acks or (self._connect_received and self._client is None):
                if self._lost:
                    self._take_last()
                    self._end_lost()
                return
            if not pending:
                if not self._undecoded:
                    break
                self._decode_slice(pending)
                continue
            self._process_or_abort(pending.popleft())
            if seconds() >= deadline and (pending or self._undecoded) and not self.ended:
                self._last_active = seconds()
                self._pause(PauseReason.TURN_OVER)
                self._context.turns.wait(self)
                return
        self._pending, self._undecoded, self._begin = None, b"", 0
        if self._lost:
            self._end_lost()
            return
        self._resume(PauseReason.TURN_OVER)
        self._resume(PauseReason.RECEIVE_MAXIMUM)
        self._check_pending_responses()

    def _decode_slice(self, pending: deque[Packet | PacketRefused]) -> None:
        events, self._begin = self._decoder.feed_slice(self._undecoded, self._begin)
        if self._begin == len(self._undecoded):
            self._undecoded, self._begin = b"", 0
        pending.extend(events)

    def _process_or_abort(self, event: Packet | PacketRefused) -> None:
        try:
            self._process(event)
        except Exception:  # noqa: BLE001 (a defect that one client's packet triggers ends its connection, as in a read)
            self.log.failure("a packet could not be processed; the connection is aborted")
            self.abort()

    def _admit(self, packet: Connect) -> None:
        self._connect_received = True
        self._client_id, self._version = packet.client_id, packet.version
        if self._logins is None:
            self._open_session(packet)
            return
        self._pause(PauseReason.CONNACK_PENDING)
        source = source_network(self._transport.getPeer())
        self._login = login = self._logins.login(packet.username, packet.password, source)
        login.addCallback(self._logged_in, packet)
        login.addErrback(self._login_failed)

    def _logged_in(self, user: UserEvidence, packet: Connect) -> None:
        self._login = None
        if not self.ended:
            self._principal = replace(self._principal, evidence=user.password, name=user.name)
            self._count()
            self._open_session(packet)

    def _login_failed(self, failure: Failure) -> None:
        self._login = None
        error = failure.value
        if self.ended:
            return
        if isinstance(error, (BrokerError, MqttError)):
            self._end(error, error.mqtt_reason)
            return
        self.log.failure("a login could not be processed; the connection is aborted", failure)
        self.abort()

    def _open_session(self, packet: Connect) -> None:
        limits = self._context.limits
        admit_client(
            self._context.hub,
            packet,
            self._principal,
            self,
            self._on_admitted,
            packet_limit=limits.packet.packet,
            keep_alive_limit=limits.keep_alive,
        )
        if self._client is None and not self.ended:
            self._pause(PauseReason.CONNACK_PENDING)

    def _on_admitted(self, client: Client) -> None:
        self._client = client
        if self._rules_changed:
            client.rules_changed()
        self._client_id = client.session.client_id
        self._context.reporter.connected(self._principal, self._client_id, self._version)
        if PauseReason.CONNACK_PENDING in self._paused:
            self._process_pending()
            self._resume(PauseReason.CONNACK_PENDING)

    def _end(self, error: SvcError, reason: ReasonCode) -> None:
        """End the connection because of an error; the reason is for a client that has got CONNACK."""
        self._context.hub.statistics.refused[error.reason] += 1
        if self._client is not None:
            self._context.reporter.broken(self._principal, self._client_id, error)
            self._drop_pending()
            self.close(reason)
            return
        self._context.reporter.refused(self._principal, error)
        connack = self._connack(error)
        if connack is not None:
            self.send(connack)
        self._start_closing()

    def _connack(self, error: SvcError) -> Connack | None:
        if isinstance(error, BrokerError):
            return refusal_connack(error, self._version) if self._connect_received else None
        # A client of an unsupported version can parse at least the return code of MQTT 3.1.1.
        self._version = Version.V311
        if isinstance(error, VersionUnsupported):
            return Connack(code=ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION)
        if isinstance(error, ClientIdInvalid):
            return Connack(code=ReturnCode.IDENTIFIER_REJECTED)
        # Anything else that is no CONNECT gets no response [MQTT-3.1.4-1].
        return None

    # As ClientSink.

    def send(self, packet: Packet) -> None:
        """Write a packet."""
        self.write(encode(packet, self._version, "server"))

    def write(self, octets: bytes) -> None:
        """Write an encoded packet."""
        if self.ended or self._lost:
            return
        self.transport.write(octets)  # type: ignore[union-attr]
        if self.congested:
            self._unread_octets += len(octets)
            if self._unread_octets > MAX_UNREAD_OCTETS:
                self._pause(PauseReason.RESPONSES_UNREAD)

    def close(self, reason: ReasonCode) -> None:
        """Send the reason, where the protocol version can, and close."""
        if self.ended:
            return
        if self._lost:
            self._take_last()
        if self._client is not None and self._version is Version.V5:
            self.send(Disconnect(reason))
        elif self._client is None and self._connect_received and self._version is Version.V5:
            self.send(Connack(code=ReasonCode.SERVER_BUSY))
        self._start_closing()

    def _start_closing(self) -> None:
        self.ended = True
        self._drop_pending()
        if self._lost:
            self._end_lost()
            return
        self._detach()
        # TLS sends close_notify only without a producer, and receives that of the client only while it reads.
        self._transport.unregisterProducer()
        if self._paused:
            self._transport.resumeProducing()
        self._last_active = self._context.seconds()
        self._transport.loseConnection()

    def _detach(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.connection_lost(with_will=self._with_will)

    def abort(self) -> None:
        """Abort the connection without sending a reason."""
        self.ended = True
        if self._lost:
            self._end_lost()
        else:
            self._transport.abortConnection()

    # Authorization.

    def reauthorize(self, source: CredentialSource, now: datetime) -> None:
        """End the connection unless its handshake would succeed with the credentials in force; see :class:`Broker`."""
        evidence = self._principal.evidence
        if self.ended or not isinstance(evidence, PeerEvidence):
            return
        try:
            evidence.reauthorize(source.svid.spiffe_id, source.bundles, now)
        except SvcError as error:
            self._end(error, ReasonCode.NOT_AUTHORIZED)

    def end_if_expired(self, now: datetime) -> None:
        """End the connection if a certificate of the client's verified path has expired."""
        evidence = self._principal.evidence
        if self.ended or not isinstance(evidence, (PeerEvidence, ClientCertificate)):
            return
        try:
            evidence.verify_peer_time(now)
        except SvcError as error:
            self._end(error, ReasonCode.NOT_AUTHORIZED)

    def rules_changed(self) -> None:
        """Apply changed access rules and evidence; a client that is refused as a whole is disconnected."""
        if self.ended or not self._connect_received or self._login is not None:
            # A login is decided on by what is in force at its end.
            return
        try:
            self._context.hub.check_may_connect(self._principal)
        except BrokerError as error:
            self._end(error, error.mqtt_reason)
            return
        if self._client is None:
            self._rules_changed = True
        else:
            self._client.rules_changed()

    # Time.

    def check_timeouts(self, now: float) -> None:
        """End the connection where CONNECT, a packet within the keep alive or the close is overdue."""
        idle = now - self._last_active
        if self.ended:
            if idle >= CLOSE_TIMEOUT:
                self._transport.abortConnection()
            return
        if self._client is None:
            limit = self._context.limits.connect
            if not self._connect_received and idle >= limit:
                self._end(ConnectionEnded("mqtt_connect_timeout", seconds=limit), ReasonCode.UNSPECIFIED_ERROR)
            return
        keep_alive = self._client.keep_alive
        # A PINGREQ is not seen while the broker does not read a client because of itself or its disk. A client that
        # does not read its responses is closed all the same: nothing else would end its connection.
        read = not (self._paused & ~PauseReason.RESPONSES_UNREAD or self._lost)
        if keep_alive and idle >= keep_alive * 1.5 and read:
            self._end(ConnectionEnded("mqtt_keep_alive", seconds=keep_alive), ReasonCode.KEEP_ALIVE_TIMEOUT)

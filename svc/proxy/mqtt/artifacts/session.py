"""
The proxy's own session with an upstream broker, on which it publishes artifacts: one connection, without I/O.

Theory: the session starts clean and is not resumed. Artifacts name themselves by their content, so one that is sent
again on the next connection is the same artifact, and QoS 2 would give nothing. MQTT 5.0 shows the refusal of a
message in its PUBACK. A server of MQTT 3.1.1 can only acknowledge, also what it drops (Mosquitto with an ACL does):
there the session first subscribes to a topic of its own below the prefix and publishes a probe, and nothing else is
sent before the probe is delivered. ``_TRANSITIONS`` is the legality of what the server sends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from svc.errors import Reason, SvcError
from svc.wire.mqtt import (
    NO_PROPERTIES,
    Acknowledgement,
    Connack,
    Connect,
    Decoder,
    Disconnect,
    MqttError,
    Packet,
    PacketLimits,
    PacketRefused,
    PacketType,
    Pingreq,
    Properties,
    Publish,
    ReasonCode,
    ReturnCode,
    Suback,
    Subscribe,
    Subscription,
    Version,
    encode,
)
from svc.wire.mqtt.codes import SUBSCRIPTION_REFUSED
from svc.wire.mqtt.refusals import OLDER_REFUSAL, refusal_text

#: Seconds after which a connection without packets may be taken for dead, where the server sets no other time.
KEEP_ALIVE: Final = 30
#: Messages that are sent before the first of them is acknowledged, unless the server takes fewer.
MAX_IN_FLIGHT: Final = 64
#: What a server sends is small: acknowledgements, and the probe.
MAX_PACKET: Final = 64 * 1024
_LIMITS: Final = PacketLimits(packet=MAX_PACKET)
_SUBSCRIBE_ID: Final = 65535
_REFUSED: Final = 0x80

ArtifactKind = Literal["workload", "receipt"]


class ArtifactsUnpublished(SvcError):
    """artifacts are not published at {broker}"""

    reason = "artifacts_unpublished"
    hint = "a defect of svc, which the log shows: report it"
    reasons = {
        "artifacts_refused": Reason(
            "the broker at {broker} refuses artifacts below {prefix}: {answer}",
            "grant the user of artifacts.username to publish below the prefix, or choose another artifacts.prefix",
        ),
        "artifacts_probe_refused": Reason(
            "the broker at {broker} refuses the subscription to the probe below {prefix}: {answer}",
            "with MQTT 3.1.1 the user of artifacts.username must be granted to publish and to subscribe below the"
            " prefix; or let the broker accept MQTT 5.0",
        ),
        "artifacts_probe_missing": Reason(
            "the broker at {broker} acknowledges messages below {prefix} and does not deliver them",
            "grant the user of artifacts.username to publish and to subscribe below the prefix, or choose another"
            " artifacts.prefix",
        ),
        "artifacts_connection_refused": Reason(
            "the broker at {broker} refuses the session that publishes artifacts: {answer}",
            "check artifacts.username and artifacts.passwordFile; the log of the broker says why",
        ),
        "artifacts_session_ended": Reason(
            "the broker at {broker} ended the session that publishes artifacts: {answer}",
            "the log of the broker says why; a session that was taken over means that another proxy has the same"
            " identity and a listener of the same name",
        ),
        "artifacts_broker_invalid": Reason(
            "the broker at {broker} broke MQTT: {defect}", "is the upstream of the listener an MQTT broker?"
        ),
        "artifacts_broker_closed": Reason(
            "the broker at {broker} closed the session that publishes artifacts{cause}", "look at the log of the broker"
        ),
        "artifacts_broker_silent": Reason(
            "the broker at {broker} has not answered for {seconds} s", "the broker is stopped or overloaded"
        ),
        "artifacts_broker_unreachable": Reason(
            "the broker at {broker} cannot be reached to publish artifacts: {what}",
            "is the upstream of the listener running?",
        ),
        "artifacts_left": Reason(
            "{count} receipts were not published at {broker} before the listener or the process ended",
            "they are in the notary database and can be fetched there",
        ),
        "artifacts_dropped": Reason(
            "{waiting} receipts wait for the broker at {broker}, and no more are taken",
            "they are in the notary database and can be fetched there; the broker is slow or away, or raise"
            " artifacts.queue",
        ),
    }


@dataclass(frozen=True, slots=True)
class ArtifactMessage:
    """A message with an artifact; an empty payload removes the retained one."""

    kind: ArtifactKind
    id: str
    topic: str
    payload: bytes
    retain: bool = False
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class PublishingBegan:
    """Messages can be published; ``keep_alive`` is in seconds, 0 where the server waits for ever."""

    version: Version
    keep_alive: int


@dataclass(frozen=True, slots=True)
class ArtifactAccepted:
    """The server acknowledged a message with success."""

    message: ArtifactMessage


@dataclass(frozen=True, slots=True)
class ArtifactRefused:
    """The server refused a message, or says that it takes no such messages."""

    message: ArtifactMessage
    error: ArtifactsUnpublished


@dataclass(frozen=True, slots=True)
class OlderServer:
    """The server does not support MQTT 5.0; always the last event."""


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """The connection has no further use; always the last event."""

    error: ArtifactsUnpublished


ArtifactEvent = PublishingBegan | ArtifactAccepted | ArtifactRefused | OlderServer | SessionFailed


class ArtifactSessionState(Enum):
    """Which packet of the server is due."""

    CONNECTING = "connecting"
    SUBSCRIBING = "subscribing"
    PROBING = "probing"
    PUBLISHING = "publishing"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Probe:
    """A topic of this session alone, and a payload that no other session has."""

    topic: str
    payload: bytes


class _Violation(Exception):
    """What the server sent is not allowed; with the reason code for DISCONNECT."""

    def __init__(self, defect: str, code: ReasonCode = ReasonCode.PROTOCOL_ERROR) -> None:
        super().__init__(defect)
        self.code = code


class ArtifactSession:
    """
    The client's side of one connection; what is to be sent is in :meth:`data_to_send` after each call.

    Args:
        broker: its address, for errors.
        prefix: of the topics, for errors.
        probe: sent with MQTT 3.1.1.
    """

    def __init__(
        self,
        version: Version,
        *,
        broker: str,
        prefix: str,
        probe: Probe,
        client_id: str,
        username: str | None = None,
        password: bytes | None = None,
    ) -> None:
        self.version = version
        self.state = ArtifactSessionState.CONNECTING
        #: Messages without their acknowledgement, the oldest first; None is the probe.
        self._in_flight: dict[int, ArtifactMessage | None] = {}
        self._broker = broker
        self._prefix = prefix
        self._probe = probe
        self._server = Properties()
        self._window = MAX_IN_FLIGHT
        self._keep_alive = KEEP_ALIVE
        self._last_id = 0
        self._decoder = Decoder("server", version, _LIMITS)
        self._first = b""
        properties = Properties(maximum_packet_size=MAX_PACKET)
        self._outgoing = bytearray(
            encode(
                Connect(client_id, version, True, KEEP_ALIVE, None, username, password, properties), version, "client"
            )
        )

    @property
    def closed(self) -> bool:
        """Whether the connection has no further use."""
        return self.state is ArtifactSessionState.CLOSED

    @property
    def unacknowledged(self) -> tuple[ArtifactMessage, ...]:
        """The messages whose fate is not known, the oldest first."""
        return tuple(each for each in self._in_flight.values() if each is not None)

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def room(self) -> int:
        """How many messages can be published now."""
        if self.state is not ArtifactSessionState.PUBLISHING:
            return 0
        return self._window - len(self._in_flight)

    def data_to_send(self) -> bytes:
        """Return what has become due since the last call."""
        data = bytes(self._outgoing)
        self._outgoing.clear()
        return data

    def feed_slice(self, data: bytes, begin: int) -> tuple[list[ArtifactEvent], int]:
        """
        Return the events of a slice of received octets, and where the next one begins.

        After the last event of a connection none follows.
        """
        if self.closed:
            return [], len(data)
        if len(self._first) < len(OLDER_REFUSAL):
            self._first += data[begin : begin + len(OLDER_REFUSAL) - len(self._first)]
        events: list[ArtifactEvent] = []
        packets, begin = self._decoder.feed_slice(data, begin)
        for packet in packets:
            try:
                event = self._undecodable(packet.error) if isinstance(packet, PacketRefused) else self._got(packet)
            except _Violation as violation:
                event = self._fail(str(violation), violation.code)
            if event is not None:
                events.append(event)
            if isinstance(event, OlderServer | SessionFailed):
                return events, len(data)
        return events, begin

    def publish(self, message: ArtifactMessage) -> ArtifactRefused | None:
        """Send a message with QoS 1, where there is :attr:`room`; returns why the server would not take it."""
        code = self._unsendable(message)
        if code is not None:
            return self._refused(message, code, NO_PROPERTIES)
        packet_id = self._take_id()
        packet = Publish(message.topic, message.payload, 1, message.retain, False, packet_id, message.properties)
        data = encode(packet, self.version, "client")
        limit = self._server.maximum_packet_size
        if limit is not None and len(data) > limit:
            return self._refused(message, ReasonCode.PACKET_TOO_LARGE, NO_PROPERTIES)
        self._in_flight[packet_id] = message
        self._outgoing += data
        return None

    def ping(self) -> None:
        """Send PINGREQ."""
        if not self.closed:
            self._send(Pingreq())

    def overdue(self, seconds: float) -> SessionFailed:
        """End the session because the server has not sent for so long what it has to."""
        if self.state is ArtifactSessionState.PROBING:
            return self._end(ArtifactsUnpublished("artifacts_probe_missing", broker=self._broker, prefix=self._prefix))
        return self._end(ArtifactsUnpublished("artifacts_broker_silent", broker=self._broker, seconds=f"{seconds:g}"))

    def connection_lost(self, cause: str) -> SessionFailed:
        """End the session because the connection has ended; ``cause`` may be empty."""
        return self._end(
            ArtifactsUnpublished("artifacts_broker_closed", broker=self._broker, cause=f": {cause}" if cause else "")
        )

    def disconnect(self) -> None:
        """Send DISCONNECT; nothing is sent or accepted after it."""
        if not self.closed:
            self._send(Disconnect())
            self.state = ArtifactSessionState.CLOSED

    def _unsendable(self, message: ArtifactMessage) -> ReasonCode | None:
        """What MQTT 5.0 would have the server send, had the message been sent (sections 3.2.2.3.4 and 3.2.2.3.5)."""
        if self._server.maximum_qos == 0:
            return ReasonCode.QOS_NOT_SUPPORTED
        if message.retain and self._server.retain_available == 0:
            return ReasonCode.RETAIN_NOT_SUPPORTED
        return None

    def _take_id(self) -> int:
        while True:
            self._last_id = self._last_id % (_SUBSCRIBE_ID - 1) + 1
            if self._last_id not in self._in_flight:
                return self._last_id

    def _send(self, packet: Packet) -> None:
        self._outgoing += encode(packet, self.version, "client")

    def _got(self, packet: Packet) -> ArtifactEvent | None:
        row = _TRANSITIONS.get((self.state, packet.type))
        if row is None:
            raise _Violation(f"{packet.type.name} is not allowed while {self.state.value}")
        return row(self, packet)

    def _got_connack(self, packet: Connack) -> ArtifactEvent | None:
        v5 = self.version is Version.V5
        if packet.code:
            if v5 and packet.code == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
                self.state = ArtifactSessionState.CLOSED
                return OlderServer()
            codes = ReasonCode if v5 else ReturnCode
            return self._end(
                ArtifactsUnpublished(
                    "artifacts_connection_refused",
                    broker=self._broker,
                    answer=refusal_text(codes, packet.code, packet.properties),
                )
            )
        if packet.session_present:
            raise _Violation("it resumes a session that was to start clean")
        self._server = packet.properties
        self._window = min(MAX_IN_FLIGHT, packet.properties.receive_maximum or MAX_IN_FLIGHT)
        if packet.properties.server_keep_alive is not None:
            self._keep_alive = packet.properties.server_keep_alive
        if v5:
            return self._begin()
        self.state = ArtifactSessionState.SUBSCRIBING
        self._send(Subscribe(_SUBSCRIBE_ID, [Subscription(self._probe.topic)]))
        return None

    def _begin(self) -> PublishingBegan:
        self.state = ArtifactSessionState.PUBLISHING
        return PublishingBegan(self.version, self._keep_alive)

    def _got_suback(self, packet: Suback) -> ArtifactEvent | None:
        if packet.packet_id != _SUBSCRIBE_ID or len(packet.codes) != 1:
            raise _Violation("SUBACK does not belong to the SUBSCRIBE")
        if packet.codes[0] >= SUBSCRIPTION_REFUSED:
            answer = refusal_text(ReasonCode, packet.codes[0], packet.properties)
            return self._end(
                ArtifactsUnpublished("artifacts_probe_refused", broker=self._broker, prefix=self._prefix, answer=answer)
            )
        self.state = ArtifactSessionState.PROBING
        packet_id = self._take_id()
        self._in_flight[packet_id] = None
        self._send(Publish(self._probe.topic, self._probe.payload, 1, packet_id=packet_id))
        return None

    def _got_publish(self, packet: Publish) -> ArtifactEvent | None:
        if self.version is Version.V5 or packet.topic != self._probe.topic:
            raise _Violation("a message of a topic that is not subscribed")
        if packet.qos:
            raise _Violation("a message with QoS above 0, and QoS 0 is subscribed")
        # Others may publish there, before and after: that proves nothing.
        proven = self.state is ArtifactSessionState.PROBING and packet.payload == self._probe.payload
        return self._begin() if proven else None

    def _got_puback(self, packet: Acknowledgement) -> ArtifactEvent | None:
        if packet.packet_id not in self._in_flight:
            raise _Violation("PUBACK of a message that is not in flight")
        message = self._in_flight.pop(packet.packet_id)
        if message is None:
            return None
        if packet.code >= _REFUSED:
            return self._refused(message, packet.code, packet.properties)
        return ArtifactAccepted(message)

    def _got_pingresp(self, _packet: Packet) -> None:
        return None

    def _got_disconnect(self, packet: Disconnect) -> ArtifactEvent:
        return self._end(
            ArtifactsUnpublished(
                "artifacts_session_ended",
                broker=self._broker,
                answer=refusal_text(ReasonCode, packet.code, packet.properties),
            )
        )

    def _refused(self, message: ArtifactMessage, code: int, properties: Properties) -> ArtifactRefused:
        answer = refusal_text(ReasonCode, code, properties)
        error = ArtifactsUnpublished("artifacts_refused", broker=self._broker, prefix=self._prefix, answer=answer)
        return ArtifactRefused(message, error)

    def _undecodable(self, error: MqttError) -> ArtifactEvent:
        if self.version is Version.V5 and self._first == OLDER_REFUSAL:
            self.state = ArtifactSessionState.CLOSED
            return OlderServer()
        return self._fail(str(error), error.mqtt_reason)

    def _fail(self, defect: str, code: ReasonCode) -> SessionFailed:
        if self.version is Version.V5 and self.state is not ArtifactSessionState.CONNECTING:
            self._send(Disconnect(code))
        return self._end(ArtifactsUnpublished("artifacts_broker_invalid", broker=self._broker, defect=defect))

    def _end(self, error: ArtifactsUnpublished) -> SessionFailed:
        self.state = ArtifactSessionState.CLOSED
        return SessionFailed(error)


_State = ArtifactSessionState
_TRANSITIONS: Final[
    dict[tuple[ArtifactSessionState, PacketType], Callable[[ArtifactSession, Any], ArtifactEvent | None]]
] = {
    (_State.CONNECTING, PacketType.CONNACK): ArtifactSession._got_connack,
    (_State.SUBSCRIBING, PacketType.SUBACK): ArtifactSession._got_suback,
    # Messages may precede the SUBACK (MQTT 3.1.1 section 3.8.4).
    (_State.SUBSCRIBING, PacketType.PUBLISH): ArtifactSession._got_publish,
    (_State.SUBSCRIBING, PacketType.PINGRESP): ArtifactSession._got_pingresp,
    (_State.PROBING, PacketType.PUBLISH): ArtifactSession._got_publish,
    (_State.PROBING, PacketType.PUBACK): ArtifactSession._got_puback,
    (_State.PROBING, PacketType.PINGRESP): ArtifactSession._got_pingresp,
    (_State.PUBLISHING, PacketType.PUBLISH): ArtifactSession._got_publish,
    (_State.PUBLISHING, PacketType.PUBACK): ArtifactSession._got_puback,
    (_State.PUBLISHING, PacketType.PINGRESP): ArtifactSession._got_pingresp,
    (_State.PUBLISHING, PacketType.DISCONNECT): ArtifactSession._got_disconnect,
}

"""
A subscriber of MQTT without I/O: one connection, one SUBSCRIBE, then messages until the end.

Theory: a session that starts clean and is not resumed, with a fixed set of filters at QoS 1. Duplicates of QoS 1 arise
only on another connection, so QoS 2 would give nothing, and QoS 0 would lose messages where the reader is slow. Nothing
is published. No Topic Alias Maximum is announced, so aliases are not allowed. ``_TRANSITIONS`` is the legality of what
the server sends; what is not in it ends the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from svc.client.errors import BrokerFailed
from svc.envelope.envelope import MAX_ENVELOPE
from svc.wire.mqtt import (
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
    matches,
)
from svc.wire.mqtt.codes import SUBSCRIPTION_REFUSED
from svc.wire.mqtt.refusals import OLDER_REFUSAL, refusal_text

#: Seconds after which a connection without packets may be taken for dead, where the server sets no other time.
KEEP_ALIVE: Final = 60
#: Messages that the server may send before the first of them is acknowledged (MQTT 5.0). More are taken, as with MQTT
#: 3.1.1: Mosquitto 2.0.11 sends more, and the connection reads no further while so many wait.
RECEIVE_MAXIMUM: Final = 32
#: An envelope, its topic and properties.
MAX_PACKET: Final = MAX_ENVELOPE + 128 * 1024
_PACKET_ID: Final = 1
_LIMITS: Final = PacketLimits(packet=MAX_PACKET)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The server accepted the connection; ``keep_alive`` is in seconds, 0 where it waits for ever."""

    keep_alive: int


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The server granted every filter."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message of a granted filter; ``packet_id`` is 0 where no acknowledgement is due."""

    topic: str
    payload: bytes
    packet_id: int
    retained: bool


@dataclass(frozen=True, slots=True)
class VersionRefused:
    """The server does not support MQTT 5.0; always the last event."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The server ends the subscription by a DISCONNECT and says why; always the last event."""

    answer: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The connection cannot be used; always the last event."""

    error: BrokerFailed


SubscriberEvent = Accepted | Subscribed | Arrival | VersionRefused | Ended | Failed
_LAST: Final = (VersionRefused, Ended, Failed)


class SubscriberState(Enum):
    """Which packet of the server is due."""

    CONNECTING = "connecting"
    SUBSCRIBING = "subscribing"
    SUBSCRIBED = "subscribed"
    CLOSED = "closed"


class _Violation(Exception):
    """What the server sent is not allowed; with the reason code for DISCONNECT."""

    def __init__(self, defect: str, code: ReasonCode = ReasonCode.PROTOCOL_ERROR) -> None:
        super().__init__(defect)
        self.code = code


class Subscriber:
    """
    The client's side of one connection.

    What is to be sent is in :meth:`data_to_send` after each call.

    Args:
        filters: the topic filters, none of them shared.
        server: host and port, for errors.
    """

    def __init__(
        self,
        version: Version,
        filters: Sequence[str],
        *,
        server: str,
        client_id: str,
        username: str | None = None,
        password: bytes | None = None,
    ) -> None:
        self.version = version
        self.state = SubscriberState.CONNECTING
        self._filters = tuple(filters)
        self._server = server
        self._decoder = Decoder("server", version, _LIMITS)
        self._first = b""
        self._unacknowledged: set[int] = set()
        v5 = Properties(receive_maximum=RECEIVE_MAXIMUM, maximum_packet_size=MAX_PACKET)
        self._outgoing = encode(
            Connect(client_id, version, True, KEEP_ALIVE, None, username, password, v5), version, "client"
        )

    @property
    def closed(self) -> bool:
        """Whether the connection has no further use."""
        return self.state is SubscriberState.CLOSED

    def data_to_send(self) -> bytes:
        """Return what has become due since the last call."""
        data, self._outgoing = self._outgoing, b""
        return data

    def feed(self, data: bytes) -> list[SubscriberEvent]:
        """Return the events of received octets; after the last event of a connection none follows."""
        if self.closed:
            return []
        if len(self._first) < len(OLDER_REFUSAL):
            self._first += data[: len(OLDER_REFUSAL) - len(self._first)]
        events: list[SubscriberEvent] = []
        for packet in self._decoder.feed(data):
            try:
                event = self._refused(packet.error) if isinstance(packet, PacketRefused) else self._got(packet)
            except _Violation as violation:
                event = self._fail(str(violation), violation.code)
            if event is not None:
                events.append(event)
            if isinstance(event, _LAST):
                break
        return events

    def acknowledge(self, message: Arrival) -> None:
        """Send PUBACK for a message that has been processed, where one is due."""
        if message.packet_id and not self.closed:
            self._unacknowledged.discard(message.packet_id)
            self._send(Acknowledgement(PacketType.PUBACK, message.packet_id))

    def ping(self) -> None:
        """Send PINGREQ."""
        self._send(Pingreq())

    def disconnect(self) -> None:
        """Send DISCONNECT; nothing is sent or accepted after it."""
        if not self.closed:
            self._send(Disconnect())
            self.state = SubscriberState.CLOSED

    def _send(self, packet: Packet) -> None:
        self._outgoing += encode(packet, self.version, "client")

    def _got(self, packet: Packet) -> SubscriberEvent | None:
        row = _TRANSITIONS.get((self.state, packet.type))
        if row is None:
            raise _Violation(f"{packet.type.name} is not allowed while {self.state.value}")
        action, following = row
        event = action(self, packet)
        if not self.closed:
            self.state = following
        return event

    def _got_connack(self, packet: Connack) -> SubscriberEvent:
        v5 = self.version is Version.V5
        if packet.code:
            self.state = SubscriberState.CLOSED
            if v5 and packet.code == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
                return VersionRefused()
            codes = ReasonCode if v5 else ReturnCode
            answer = refusal_text(codes, packet.code, packet.properties)
            return Failed(BrokerFailed("mqtt_connection_refused", server=self._server, answer=answer))
        if packet.session_present:
            raise _Violation("it resumes a session that was to start clean")
        self._send(Subscribe(_PACKET_ID, [Subscription(each, 1) for each in self._filters]))
        keep_alive = packet.properties.server_keep_alive
        return Accepted(KEEP_ALIVE if keep_alive is None else keep_alive)

    def _got_suback(self, packet: Suback) -> SubscriberEvent:
        if packet.packet_id != _PACKET_ID or len(packet.codes) != len(self._filters):
            raise _Violation("SUBACK does not belong to the SUBSCRIBE")
        granted = zip(self._filters, packet.codes, strict=True)
        refused = [(each, code) for each, code in granted if code >= SUBSCRIPTION_REFUSED]
        if not refused:
            return Subscribed()
        self.disconnect()
        filters = " and ".join(each for each, _code in refused)
        answer = refusal_text(ReasonCode, refused[0][1], packet.properties)
        return Failed(BrokerFailed("mqtt_subscription_refused", server=self._server, filters=filters, answer=answer))

    def _got_publish(self, packet: Publish) -> SubscriberEvent | None:
        if packet.properties.topic_alias is not None:
            raise _Violation("a topic alias, and none is allowed", ReasonCode.TOPIC_ALIAS_INVALID)
        if not any(matches(each, packet.topic) for each in self._filters):
            raise _Violation("a message of a topic that is not subscribed")
        if packet.qos == 2:
            raise _Violation("a message with QoS 2, and QoS 1 is subscribed")
        if packet.qos:
            if packet.packet_id in self._unacknowledged:
                if packet.dup:  # servers of MQTT 3.1.1 may repeat a message that is not acknowledged for long
                    return None
                raise _Violation("a packet identifier that is in use")
            self._unacknowledged.add(packet.packet_id)
        return Arrival(packet.topic, packet.payload, packet.packet_id, packet.retain)

    def _got_pingresp(self, _packet: Packet) -> None:
        return None

    def _got_disconnect(self, packet: Disconnect) -> SubscriberEvent:
        answer = refusal_text(ReasonCode, packet.code, packet.properties)
        subscribed = self.state is SubscriberState.SUBSCRIBED
        self.state = SubscriberState.CLOSED
        if subscribed:
            return Ended(answer)
        return Failed(BrokerFailed("mqtt_connection_refused", server=self._server, answer=answer))

    def _refused(self, error: MqttError) -> SubscriberEvent:
        if self.version is Version.V5 and self._first == OLDER_REFUSAL:
            self.state = SubscriberState.CLOSED
            return VersionRefused()
        return self._fail(str(error), error.mqtt_reason)

    def _fail(self, defect: str, code: ReasonCode) -> SubscriberEvent:
        if self.version is Version.V5 and self.state is not SubscriberState.CONNECTING:
            self._send(Disconnect(code))
        self.state = SubscriberState.CLOSED
        return Failed(BrokerFailed("mqtt_broker_invalid", server=self._server, defect=defect))


_TRANSITIONS: Final[
    dict[
        tuple[SubscriberState, PacketType], tuple[Callable[[Subscriber, Any], SubscriberEvent | None], SubscriberState]
    ]
] = {
    (SubscriberState.CONNECTING, PacketType.CONNACK): (Subscriber._got_connack, SubscriberState.SUBSCRIBING),
    (SubscriberState.SUBSCRIBING, PacketType.SUBACK): (Subscriber._got_suback, SubscriberState.SUBSCRIBED),
    # Messages may precede the SUBACK (MQTT 3.1.1 section 3.8.4, MQTT 5.0 section 3.8.4).
    (SubscriberState.SUBSCRIBING, PacketType.PUBLISH): (Subscriber._got_publish, SubscriberState.SUBSCRIBING),
    (SubscriberState.SUBSCRIBING, PacketType.PINGRESP): (Subscriber._got_pingresp, SubscriberState.SUBSCRIBING),
    (SubscriberState.SUBSCRIBING, PacketType.DISCONNECT): (Subscriber._got_disconnect, SubscriberState.CLOSED),
    (SubscriberState.SUBSCRIBED, PacketType.PUBLISH): (Subscriber._got_publish, SubscriberState.SUBSCRIBED),
    (SubscriberState.SUBSCRIBED, PacketType.PINGRESP): (Subscriber._got_pingresp, SubscriberState.SUBSCRIBED),
    (SubscriberState.SUBSCRIBED, PacketType.DISCONNECT): (Subscriber._got_disconnect, SubscriberState.CLOSED),
}

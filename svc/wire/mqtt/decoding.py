"""
Packets from their bytes (chapter 3 of both standards): one complete packet in, one value or one typed error out.

Packet types, reserved flags and the order of packets are checked by :mod:`svc.wire.mqtt.stream`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, cast

from svc.wire.mqtt.codes import (
    AUTH_REASONS,
    DISCONNECT_REASONS,
    FLAG_CLEAN,
    FLAG_PASSWORD,
    FLAG_RESERVED,
    FLAG_USERNAME,
    FLAG_WILL,
    FLAG_WILL_RETAIN,
    REASONS,
    SUBSCRIPTION_REFUSED,
    PacketType,
    ReasonCode,
    ReturnCode,
    Sender,
    Version,
)
from svc.wire.mqtt.errors import ClientIdInvalid, ProtocolViolation, QuotaExceeded, VersionUnsupported
from svc.wire.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    QoS,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from svc.wire.mqtt.primitives import Cursor
from svc.wire.mqtt.properties import NO_PROPERTIES, Properties, PropertyOwner, read_properties
from svc.wire.mqtt.topics import SHARE, filter_defect, name_defect

#: Octets of a complete packet, fixed header included. Brokers accept up to 256 MB by default; telemetry needs far less.
DEFAULT_MAX_PACKET: Final = 1024 * 1024
PROTOCOL_NAME: Final = b"MQTT"

_V5: Final = Version.V5
_VERSIONS: Final[dict[int, Version]] = {version.value: version for version in Version}
#: A broker that refuses a message with a code that the packet must not have refuses it all the same: Mosquitto 2.0 says
#: 0x95 in PUBACK where the message is too large, which it always is. Such a code is read as the one that comes nearest.
_REFUSALS: Final = frozenset(range(0x80, 0x100))
_NEAREST: Final[dict[int, ReasonCode]] = {ReasonCode.PACKET_TOO_LARGE: ReasonCode.PAYLOAD_FORMAT_INVALID}
_SUBSCRIBED: Final = frozenset({0, 1, 2, SUBSCRIPTION_REFUSED})


@dataclass(frozen=True, slots=True)
class PacketLimits:
    """
    What one packet may use.

    Args:
        packet: octets of a complete packet.
        properties: properties of a packet, user properties included; the will may have as many again.
        levels: levels of a topic name or filter.
        filters: topic filters of SUBSCRIBE or UNSUBSCRIBE.
        first_packet: octets of the first packet, when the sender is still unknown; at most ``packet``.
    """

    packet: int = DEFAULT_MAX_PACKET
    properties: int = 100
    levels: int = 200
    filters: int = 1000
    first_packet: int = 128 * 1024


DEFAULT_LIMITS: Final = PacketLimits()


class PacketReader(Cursor):
    """
    Reads the body of one packet by the rules that several packets share: identifiers, topics, reason codes, properties.

    ``name`` is that of ``kind``, ``flags`` the lower half of the first octet; CONNECT sets ``v5`` while it is read.
    """

    __slots__ = ("flags", "kind", "limits", "sender", "v5")

    def __init__(
        self,
        kind: PacketType,
        name: str,
        flags: int,
        sender: Sender,
        v5: bool,
        limits: PacketLimits,
        data: bytes,
        position: int,
        end: int,
    ) -> None:
        # Not by super(), because each packet off the fast path makes one.
        self._packet = name
        self._data = data
        self.position = position
        self.end = end
        self.kind = kind
        self.flags = flags
        self.sender: Final[Sender] = sender
        self.v5 = v5
        self.limits = limits

    def violation(self, defect: str) -> ProtocolViolation:
        """Return the error for a packet that is well-formed and not allowed."""
        return ProtocolViolation(packet=self._packet, defect=defect)

    def properties(self, owner: PropertyOwner) -> Properties:
        """Read properties where the version has them."""
        if not self.v5:
            return NO_PROPERTIES
        return read_properties(self, owner, self.sender, self.limits.properties)

    def packet_id(self) -> int:
        """Read a packet identifier, which is not 0 ([MQTT-2.2.1-3], in MQTT 3.1.1 [MQTT-2.3.1-1])."""
        value = self.u16()
        if not value:
            raise self.violation("its packet identifier is 0")
        return value

    def topic_name(self) -> str:
        """Read a topic name that is not empty."""
        topic = self.text()
        if defect := name_defect(topic):
            raise self.malformed(defect)
        return self.check_levels(topic)

    def topic_filter(self) -> str:
        """Read a topic filter, shared or not."""
        topic_filter = self.text()
        if defect := filter_defect(topic_filter):
            raise self.malformed(defect)
        return self.check_levels(topic_filter)

    def check_levels(self, topic: str) -> str:
        """Return a topic that has no more levels than allowed."""
        if topic.count("/") >= self.limits.levels:
            raise QuotaExceeded(packet=self._packet, limit=self.limits.levels, items="levels of a topic")
        return topic

    def check_count(self, count: int) -> None:
        """Refuse a further topic filter, or response to one, where there are as many as allowed."""
        if count == self.limits.filters:
            raise QuotaExceeded(packet=self._packet, limit=self.limits.filters, items="topic filters")

    def reason(self, allowed: frozenset[int]) -> int:
        """Read a reason code that the packet may carry."""
        code = self.u8()
        if code not in allowed:
            raise self.violation(f"the reason code 0x{code:02x} is not allowed in it")
        return code

    def reasons(self, allowed: frozenset[int]) -> list[int]:
        """Read reason codes up to the end of the packet."""
        codes: list[int] = []
        while self.remaining:
            self.check_count(len(codes))
            codes.append(self.reason(allowed))
        return codes


def decode(
    data: bytes, first: int, body: int, end: int, sender: Sender, version: Version | None, limits: PacketLimits
) -> Packet:
    """
    Decode the packet whose body is ``data[body:end]``, or raise an MqttError with the reason code to respond with.

    ``version`` is that of the connection, None for CONNECT, which names it.
    """
    kind, name, read = _KINDS[first >> 4]
    reader = PacketReader(kind, name, first & 0x0F, sender, version is _V5, limits, data, body, end)
    packet = read(reader)
    reader.expect_end()
    return packet


def _connect(reader: PacketReader) -> Connect:
    """Check in the order of the octets, so that another version is refused before anything else is read."""
    # [MQTT-3.1.2-1, MQTT-3.1.2-2]
    if reader.binary() != PROTOCOL_NAME:
        raise VersionUnsupported
    version = _VERSIONS.get(reader.u8())
    if version is None:
        raise VersionUnsupported
    reader.v5 = version is _V5
    flags = reader.u8()
    _check_connect_flags(reader, flags)
    keep_alive = reader.u16()
    properties = reader.properties("CONNECT")
    client_id = reader.text()
    clean = flags & FLAG_CLEAN != 0
    if not client_id and not clean and not reader.v5:
        # [MQTT-3.1.3-8]
        raise ClientIdInvalid
    will = _will(reader, flags) if flags & FLAG_WILL else None
    username = reader.text() if flags & FLAG_USERNAME else None
    password = reader.binary() if flags & FLAG_PASSWORD else None
    return Connect(client_id, version, clean, keep_alive, will, username, password, properties)


def _check_connect_flags(reader: PacketReader, flags: int) -> None:
    if flags & FLAG_RESERVED:
        raise reader.malformed("the reserved connect flag is set")
    if flags >> 3 & 3 == 3:
        raise reader.malformed("the QoS of its will is 3")
    if not flags & FLAG_WILL and flags & (FLAG_WILL_RETAIN | 0x18):
        raise reader.malformed("it has flags of a will and no will")
    if not reader.v5 and flags & FLAG_PASSWORD and not flags & FLAG_USERNAME:
        raise reader.malformed("it has a password and no user name")


def _will(reader: PacketReader, flags: int) -> Will:
    properties = reader.properties("WILL")
    topic = reader.topic_name()
    payload = reader.binary()
    return Will(topic, payload, cast(QoS, flags >> 3 & 3), flags & FLAG_WILL_RETAIN != 0, properties)


def _connack(reader: PacketReader) -> Connack:
    flags = reader.u8()
    if flags > 1:
        raise reader.malformed("a reserved acknowledge flag is set")
    present = flags == 1
    if reader.v5:
        code = reader.reason(REASONS[reader.kind])
    else:
        code = reader.u8()
        if code > max(ReturnCode):
            raise reader.violation(f"the return code {code} is reserved")
    if present and code:
        raise reader.violation("a refusal has a session")
    return Connack(present, code, reader.properties("CONNACK"))


def _publish(reader: PacketReader) -> Publish:
    flags = reader.flags
    qos = flags >> 1 & 3
    if qos == 3:
        raise reader.malformed("its QoS is 3")
    dup = flags & 8 != 0
    if dup and not qos:
        raise reader.malformed("DUP is set with QoS 0")
    topic = reader.text()
    if topic or not reader.v5:
        if defect := name_defect(topic):
            raise reader.malformed(defect)
        reader.check_levels(topic)
    packet_id = reader.packet_id() if qos else 0
    properties = reader.properties("PUBLISH")
    if not topic and properties.topic_alias is None:
        raise reader.violation("it has neither topic name nor topic alias")
    payload = reader.octets(reader.remaining)
    return Publish(topic, payload, cast(QoS, qos), flags & 1 != 0, dup, packet_id, properties)


def _acknowledgement(reader: PacketReader) -> Acknowledgement:
    kind = reader.kind
    packet_id = reader.packet_id()
    code, properties = 0, NO_PROPERTIES
    if reader.v5 and reader.remaining:
        known = REASONS[kind]
        refuses = reader.sender == "server" and kind in (PacketType.PUBACK, PacketType.PUBREC)
        code = reader.reason(known | _REFUSALS if refuses else known)
        if code not in known:
            code = _NEAREST.get(code, ReasonCode.UNSPECIFIED_ERROR)
        if reader.remaining:
            properties = reader.properties(cast(PropertyOwner, kind.name))
    return Acknowledgement(cast("Literal[PacketType.PUBACK]", kind), packet_id, code, properties)


def _subscribe(reader: PacketReader) -> Subscribe:
    packet_id = reader.packet_id()
    properties = reader.properties("SUBSCRIBE")
    subscriptions: list[Subscription] = []
    while reader.remaining:
        reader.check_count(len(subscriptions))
        subscriptions.append(_subscription(reader))
    if not subscriptions:
        raise reader.violation("it names no topic filter")
    return Subscribe(packet_id, subscriptions, properties)


def _subscription(reader: PacketReader) -> Subscription:
    topic_filter = reader.topic_filter()
    options = reader.u8()
    if options & (0xC0 if reader.v5 else 0xFC):
        raise reader.malformed("a reserved subscription option is set")
    qos, handling = options & 3, options >> 4 & 3
    if qos == 3:
        raise reader.malformed("a requested QoS is 3")
    if handling == 3:
        raise reader.violation("a retain handling is 3")
    no_local = options & 4 != 0
    if no_local and topic_filter.startswith(SHARE):
        raise reader.violation("No Local is set for a shared subscription")
    return Subscription(topic_filter, cast(QoS, qos), no_local, options & 8 != 0, cast("Literal[0, 1, 2]", handling))


def _suback(reader: PacketReader) -> Suback:
    packet_id = reader.packet_id()
    properties = reader.properties("SUBACK")
    codes = reader.reasons(REASONS[reader.kind] if reader.v5 else _SUBSCRIBED)
    if not codes:
        raise reader.violation("it responds to no subscription")
    return Suback(packet_id, codes, properties)


def _unsubscribe(reader: PacketReader) -> Unsubscribe:
    packet_id = reader.packet_id()
    properties = reader.properties("UNSUBSCRIBE")
    filters: list[str] = []
    while reader.remaining:
        reader.check_count(len(filters))
        filters.append(reader.topic_filter())
    if not filters:
        raise reader.violation("it names no topic filter")
    return Unsubscribe(packet_id, filters, properties)


def _unsuback(reader: PacketReader) -> Unsuback:
    packet_id = reader.packet_id()
    if not reader.v5:
        return Unsuback(packet_id)
    properties = reader.properties("UNSUBACK")
    codes = reader.reasons(REASONS[reader.kind])
    if not codes:
        raise reader.violation("it responds to no topic filter")
    return Unsuback(packet_id, codes, properties)


def _disconnect(reader: PacketReader) -> Disconnect:
    if not reader.v5 or not reader.remaining:
        return Disconnect()
    code = reader.reason(DISCONNECT_REASONS[reader.sender])
    return Disconnect(code, reader.properties("DISCONNECT") if reader.remaining else NO_PROPERTIES)


def _auth(reader: PacketReader) -> Auth:
    # Section 3.15.2.1 allows 0x00 to be omitted, although section 3.15.2.2.2 requires a method: accepted as it is.
    code = reader.reason(AUTH_REASONS[reader.sender]) if reader.remaining else 0
    if code not in AUTH_REASONS[reader.sender]:
        raise reader.violation("a client does not report that the authentication succeeded")
    properties = reader.properties("AUTH") if reader.remaining else NO_PROPERTIES
    if code and properties.authentication_method is None:
        raise reader.violation("it names no authentication method")
    return Auth(code, properties)


_READERS: Final[dict[PacketType, Callable[[PacketReader], Packet]]] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    PacketType.PUBLISH: _publish,
    PacketType.PUBACK: _acknowledgement,
    PacketType.PUBREC: _acknowledgement,
    PacketType.PUBREL: _acknowledgement,
    PacketType.PUBCOMP: _acknowledgement,
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: lambda _reader: Pingreq(),
    PacketType.PINGRESP: lambda _reader: Pingresp(),
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
#: By number, with its name: looking up a member of an enumeration or its name is a call each time.
_KINDS: Final = {kind.value: (kind, kind.name, reader) for kind, reader in _READERS.items()}

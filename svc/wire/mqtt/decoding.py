"""
Packets from their octets (chapter 3 of both standards).

Pure: one whole packet in, one value or one typed error out. Types, reserved flags and the order of packets are judged
by :mod:`svc.wire.mqtt.stream`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, cast

from svc.wire.mqtt.codes import (
    AUTH_REASONS,
    DISCONNECT_REASONS,
    REASONS,
    SUBSCRIPTION_REFUSED,
    PacketType,
    ReturnCode,
    Sender,
    Version,
)
from svc.wire.mqtt.connecting import read_connect
from svc.wire.mqtt.errors import QuotaExceeded
from svc.wire.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
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
)
from svc.wire.mqtt.primitives import Cursor
from svc.wire.mqtt.properties import NONE, Place
from svc.wire.mqtt.reading import DEFAULT_LIMITS, Limits, Reading
from svc.wire.mqtt.scanner import Frame
from svc.wire.mqtt.topics import SHARE, name_defect

_V5: Final = Version.V5
_SUBSCRIBED: Final = frozenset({0, 1, 2, SUBSCRIPTION_REFUSED})


def decode(
    data: bytes, frame: Frame, sender: Sender, version: Version | None, limits: Limits = DEFAULT_LIMITS
) -> Packet:
    """
    Read one packet.

    Args:
        data: octets that hold the whole packet.
        frame: where it stands.
        sender: who sent it.
        version: the version of the connection; None for CONNECT, which names it.
        limits: what it may use.

    Returns:
        The packet.

    Raises:
        MqttError: the class says what is wrong and with which reason code it is answered.
    """
    first, _, body, end = frame
    kind, name, reader = _KINDS[first >> 4]
    cursor = Cursor(name, data, body, end)
    packet = reader(Reading(kind, first & 0x0F, cursor, sender, version is _V5, limits))
    cursor.finished()
    return packet


def _connack(reading: Reading) -> Connack:
    flags = reading.cursor.u8()
    if flags > 1:
        raise reading.cursor.malformed("a reserved acknowledge flag is set")
    present = flags == 1
    if reading.v5:
        code = reading.reason(REASONS[reading.kind])
    else:
        code = reading.cursor.u8()
        if code > max(ReturnCode):
            raise reading.violation(f"the return code {code} is reserved")
    if present and code:
        raise reading.violation("a refusal comes with a session")
    return Connack(present, code, reading.properties("CONNACK"))


def _publish(reading: Reading) -> Publish:
    cursor, flags = reading.cursor, reading.flags
    qos = flags >> 1 & 3
    if qos == 3:
        raise cursor.malformed("its QoS is 3")
    dup = flags & 8 != 0
    if dup and not qos:
        raise cursor.malformed("DUP is set with QoS 0")
    topic = cursor.text()
    if topic or not reading.v5:
        if defect := name_defect(topic):
            raise cursor.malformed(defect)
        reading.shallow(topic)
    packet_id = reading.packet_id() if qos else 0
    properties = reading.properties("PUBLISH")
    if not topic and properties.topic_alias is None:
        raise reading.violation("it has neither topic name nor topic alias")
    payload = cursor.octets(cursor.left)
    return Publish(topic, payload, cast(QoS, qos), flags & 1 != 0, dup, packet_id, properties)


def _acknowledgement(reading: Reading) -> Acknowledgement:
    kind = reading.kind
    packet_id = reading.packet_id()
    code, properties = 0, NONE
    if reading.v5 and reading.cursor.left:
        code = reading.reason(REASONS[kind])
        if reading.cursor.left:
            properties = reading.properties(cast(Place, kind.name))
    return Acknowledgement(cast("Literal[PacketType.PUBACK]", kind), packet_id, code, properties)


def _subscribe(reading: Reading) -> Subscribe:
    packet_id = reading.packet_id()
    properties = reading.properties("SUBSCRIBE")
    subscriptions: list[Subscription] = []
    while reading.cursor.left:
        _bound(reading, len(subscriptions))
        subscriptions.append(_subscription(reading))
    if not subscriptions:
        raise reading.violation("it names no topic filter")
    return Subscribe(packet_id, subscriptions, properties)


def _subscription(reading: Reading) -> Subscription:
    topic_filter = reading.topic_filter()
    options = reading.cursor.u8()
    if options & (0xC0 if reading.v5 else 0xFC):
        raise reading.cursor.malformed("a reserved subscription option is set")
    qos, handling = options & 3, options >> 4 & 3
    if qos == 3:
        raise reading.cursor.malformed("a requested QoS is 3")
    if handling == 3:
        raise reading.violation("a retain handling is 3")
    no_local = options & 4 != 0
    if no_local and topic_filter.startswith(SHARE):
        raise reading.violation("No Local is set for a shared subscription")
    return Subscription(topic_filter, cast(QoS, qos), no_local, options & 8 != 0, cast("Literal[0, 1, 2]", handling))


def _bound(reading: Reading, count: int) -> None:
    if count == reading.limits.filters:
        raise QuotaExceeded(packet=reading.kind.name, limit=reading.limits.filters, items="topic filters")


def _suback(reading: Reading) -> Suback:
    packet_id = reading.packet_id()
    properties = reading.properties("SUBACK")
    allowed = REASONS[reading.kind] if reading.v5 else _SUBSCRIBED
    codes = _codes(reading, allowed)
    if not codes:
        raise reading.violation("it answers no subscription")
    return Suback(packet_id, codes, properties)


def _codes(reading: Reading, allowed: frozenset[int]) -> list[int]:
    codes: list[int] = []
    while reading.cursor.left:
        _bound(reading, len(codes))
        codes.append(reading.reason(allowed))
    return codes


def _unsubscribe(reading: Reading) -> Unsubscribe:
    packet_id = reading.packet_id()
    properties = reading.properties("UNSUBSCRIBE")
    filters: list[str] = []
    while reading.cursor.left:
        _bound(reading, len(filters))
        filters.append(reading.topic_filter())
    if not filters:
        raise reading.violation("it names no topic filter")
    return Unsubscribe(packet_id, filters, properties)


def _unsuback(reading: Reading) -> Unsuback:
    packet_id = reading.packet_id()
    if not reading.v5:
        return Unsuback(packet_id)
    properties = reading.properties("UNSUBACK")
    codes = _codes(reading, REASONS[reading.kind])
    if not codes:
        raise reading.violation("it answers no topic filter")
    return Unsuback(packet_id, codes, properties)


def _disconnect(reading: Reading) -> Disconnect:
    if not reading.v5 or not reading.cursor.left:
        return Disconnect()
    code = reading.reason(DISCONNECT_REASONS[reading.sender])
    return Disconnect(code, reading.properties("DISCONNECT") if reading.cursor.left else NONE)


def _auth(reading: Reading) -> Auth:
    # Section 3.15.2.1 lets 0x00 be left out, although section 3.15.2.2.2 demands a method: read as it stands.
    code = reading.reason(AUTH_REASONS[reading.sender]) if reading.cursor.left else 0
    if code not in AUTH_REASONS[reading.sender]:
        raise reading.violation("a client does not say that the authentication succeeded")
    properties = reading.properties("AUTH") if reading.cursor.left else NONE
    if code and properties.authentication_method is None:
        raise reading.violation("it names no authentication method")
    return Auth(code, properties)


def _pingreq(_reading: Reading) -> Pingreq:
    return Pingreq()


def _pingresp(_reading: Reading) -> Pingresp:
    return Pingresp()


_READERS: Final[dict[PacketType, Callable[[Reading], Packet]]] = {
    PacketType.CONNECT: read_connect,
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
    PacketType.PINGREQ: _pingreq,
    PacketType.PINGRESP: _pingresp,
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
#: By number, with its name: a member of an enumeration and its name are looked up by a call each time.
_KINDS: Final = {kind.value: (kind, kind.name, reader) for kind, reader in _READERS.items()}

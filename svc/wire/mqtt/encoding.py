"""Bytes from packets (chapter 3 of both standards)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from svc.wire.mqtt.codes import (
    FLAG_CLEAN,
    FLAG_PASSWORD,
    FLAG_USERNAME,
    FLAG_WILL,
    FLAG_WILL_RETAIN,
    FLAGS_0010,
    PacketType,
    Sender,
    Version,
)
from svc.wire.mqtt.decoding import PROTOCOL_NAME
from svc.wire.mqtt.errors import Unencodable
from svc.wire.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from svc.wire.mqtt.primitives import encode_binary, encode_text, encode_variable
from svc.wire.mqtt.properties import PropertyOwner, encode_properties

#: Looking up a member of an enumeration is a call each time.
_V5: Final = Version.V5
_PUBLISH: Final = PacketType.PUBLISH << 4


def encode(packet: Packet, version: Version, sender: Sender) -> bytes:
    """
    Encode a packet of valid values, or raise Unencodable where a value does not fit its field.

    For CONNECT its own version counts. What MQTT 3.1.1 has no field for is left out.
    """
    try:
        if isinstance(packet, Publish):
            first, body = _publish(packet, version, sender)
        else:
            first = packet.type << 4 | (2 if packet.type in FLAGS_0010 else 0)
            writer = _WRITERS.get(packet.type)
            body = writer(packet, version, sender) if writer is not None else b""
        return bytes((first,)) + encode_variable(len(body)) + body
    except (ValueError, OverflowError) as error:
        raise Unencodable(packet=packet.type.name, defect=str(error)) from error


def _publish(packet: Publish, version: Version, sender: Sender) -> tuple[int, bytes]:
    first = _PUBLISH | packet.dup << 3 | packet.qos << 1 | packet.retain
    head = encode_text(packet.topic)
    if packet.qos:
        head += packet.packet_id.to_bytes(2, "big")
    if version is _V5:
        head += encode_properties(packet.properties, "PUBLISH", sender)
    return first, head + packet.payload


def _connect(packet: Connect, _version: Version, _sender: Sender) -> bytes:
    v5 = packet.version is _V5
    flags = FLAG_CLEAN if packet.clean_start else 0
    will = packet.will
    parts: list[bytes] = []
    if will is not None:
        flags |= FLAG_WILL | will.qos << 3 | (FLAG_WILL_RETAIN if will.retain else 0)
        parts += [encode_properties(will.properties, "WILL", "client")] if v5 else []
        parts += [encode_text(will.topic), encode_binary(will.payload)]
    if packet.username is not None:
        flags |= FLAG_USERNAME
        parts.append(encode_text(packet.username))
    if packet.password is not None:
        flags |= FLAG_PASSWORD
        parts.append(encode_binary(packet.password))
    head = encode_binary(PROTOCOL_NAME) + bytes((packet.version, flags)) + packet.keep_alive.to_bytes(2, "big")
    if v5:
        head += encode_properties(packet.properties, "CONNECT", "client")
    return head + encode_text(packet.client_id) + b"".join(parts)


def _connack(packet: Connack, version: Version, sender: Sender) -> bytes:
    body = bytes((packet.session_present, packet.code))
    return body + encode_properties(packet.properties, "CONNACK", sender) if version is _V5 else body


def _acknowledgement(packet: Acknowledgement, version: Version, sender: Sender) -> bytes:
    return packet.packet_id.to_bytes(2, "big") + _reason_and_properties(packet, version, sender)


def _disconnect(packet: Disconnect, version: Version, sender: Sender) -> bytes:
    return _reason_and_properties(packet, version, sender)


def _reason_and_properties(packet: Acknowledgement | Disconnect, version: Version, sender: Sender) -> bytes:
    """Encode reason code and properties; both are left out for success without properties."""
    if version is not _V5 or not (packet.code or packet.properties):
        return b""
    code = bytes((packet.code,))
    return (
        code + encode_properties(packet.properties, cast(PropertyOwner, packet.type.name), sender)
        if packet.properties
        else code
    )


def _auth(packet: Auth, version: Version, sender: Sender) -> bytes:
    if version is not _V5:
        raise ValueError("MQTT 3.1.1 has no such packet")
    if not (packet.code or packet.properties):
        return b""
    return bytes((packet.code,)) + encode_properties(packet.properties, "AUTH", sender)


def _subscribe(packet: Subscribe, version: Version, sender: Sender) -> bytes:
    v5 = version is _V5
    head = packet.packet_id.to_bytes(2, "big") + (
        encode_properties(packet.properties, "SUBSCRIBE", sender) if v5 else b""
    )
    return head + b"".join(encode_text(each.filter) + bytes((_options(each, v5),)) for each in packet.subscriptions)


def _options(subscription: Subscription, v5: bool) -> int:
    if not v5:
        return subscription.qos
    flags = subscription.no_local << 2 | subscription.retain_as_published << 3
    return subscription.qos | flags | subscription.retain_handling << 4


def _suback(packet: Suback, version: Version, sender: Sender) -> bytes:
    properties = encode_properties(packet.properties, "SUBACK", sender) if version is _V5 else b""
    return packet.packet_id.to_bytes(2, "big") + properties + bytes(packet.codes)


def _unsubscribe(packet: Unsubscribe, version: Version, sender: Sender) -> bytes:
    properties = encode_properties(packet.properties, "UNSUBSCRIBE", sender) if version is _V5 else b""
    return packet.packet_id.to_bytes(2, "big") + properties + b"".join(map(encode_text, packet.filters))


def _unsuback(packet: Unsuback, version: Version, sender: Sender) -> bytes:
    if version is not _V5:
        return packet.packet_id.to_bytes(2, "big")
    return (
        packet.packet_id.to_bytes(2, "big")
        + encode_properties(packet.properties, "UNSUBACK", sender)
        + bytes(packet.codes)
    )


_WRITERS: Final[dict[PacketType, Callable[..., bytes]]] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    PacketType.PUBACK: _acknowledgement,
    PacketType.PUBREC: _acknowledgement,
    PacketType.PUBREL: _acknowledgement,
    PacketType.PUBCOMP: _acknowledgement,
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}

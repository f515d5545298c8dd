"""
Octets from packets (chapter 3 of both standards).

``encode`` writes what a program made from values that were judged before, and refuses what cannot stand in its place.
``checked`` also reads the octets back by the decoder's rules, for packets whose parts nobody has judged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from svc.wire.mqtt.codes import FLAGGED, PacketType, Sender, Version
from svc.wire.mqtt.connecting import write_connect
from svc.wire.mqtt.decoding import decode
from svc.wire.mqtt.errors import MqttError, Unencodable
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
from svc.wire.mqtt.primitives import MAX_VARIABLE, text, variable
from svc.wire.mqtt.properties import Place, written
from svc.wire.mqtt.reading import Limits
from svc.wire.mqtt.scanner import MAX_HEADER, walk

#: A member of an enumeration is looked up by a call each time.
_V5: Final = Version.V5
_PUBLISH: Final = PacketType.PUBLISH << 4


def encode(packet: Packet, version: Version, sender: Sender) -> bytes:
    """
    Write a packet.

    Args:
        packet: what to write; for CONNECT its own version counts.
        version: the version of the connection.
        sender: who sends it.

    Returns:
        The whole packet. What a packet of MQTT 3.1.1 has no place for is left out.

    Raises:
        Unencodable: a value cannot stand in its place.
    """
    try:
        if isinstance(packet, Publish):
            first, body = _publish(packet, version, sender)
        else:
            first = packet.type << 4 | (2 if packet.type in FLAGGED else 0)
            writer = _WRITERS.get(packet.type)
            body = writer(packet, version, sender) if writer is not None else b""
        return bytes((first,)) + variable(len(body)) + body
    except (ValueError, OverflowError) as error:
        raise Unencodable(packet=packet.type.name, defect=str(error)) from error


def checked(packet: Packet, version: Version, sender: Sender) -> bytes:
    """
    Write a packet and judge it as a receiver would.

    Args:
        packet: what to write.
        version: the version of the connection.
        sender: who sends it.

    Returns:
        The whole packet.

    Raises:
        Unencodable: a receiver would refuse it, or read something else.
    """
    octets = encode(packet, version, sender)
    bound = MAX_VARIABLE
    limits = Limits(packet=bound + MAX_HEADER, properties=bound, levels=bound, filters=bound)
    frame = walk(octets, limits.packet)[0][0]
    try:
        same = decode(octets, frame, sender, version, limits) == packet
    except MqttError as error:
        raise Unencodable(packet=packet.type.name, defect=str(error)) from error
    if not same:
        raise Unencodable(packet=packet.type.name, defect="it holds what its version has no place for")
    return octets


def _publish(packet: Publish, version: Version, sender: Sender) -> tuple[int, bytes]:
    first = _PUBLISH | packet.dup << 3 | packet.qos << 1 | packet.retain
    head = text(packet.topic)
    if packet.qos:
        head += packet.packet_id.to_bytes(2, "big")
    if version is _V5:
        head += written(packet.properties, "PUBLISH", sender)
    return first, head + packet.payload


def _connect(packet: Connect, _version: Version, _sender: Sender) -> bytes:
    return write_connect(packet)


def _connack(packet: Connack, version: Version, sender: Sender) -> bytes:
    body = bytes((packet.session_present, packet.code))
    return body + written(packet.properties, "CONNACK", sender) if version is _V5 else body


def _acknowledgement(packet: Acknowledgement, version: Version, sender: Sender) -> bytes:
    return packet.packet_id.to_bytes(2, "big") + _explained(packet, version, sender)


def _disconnect(packet: Disconnect, version: Version, sender: Sender) -> bytes:
    return _explained(packet, version, sender)


def _explained(packet: Acknowledgement | Disconnect, version: Version, sender: Sender) -> bytes:
    """Write reason code and properties, both left out where they say nothing."""
    if version is not _V5 or not (packet.code or packet.properties):
        return b""
    code = bytes((packet.code,))
    return code + written(packet.properties, cast(Place, packet.type.name), sender) if packet.properties else code


def _auth(packet: Auth, version: Version, sender: Sender) -> bytes:
    if version is not _V5:
        raise ValueError("MQTT 3.1.1 has no such packet")
    if not (packet.code or packet.properties):
        return b""
    return bytes((packet.code,)) + written(packet.properties, "AUTH", sender)


def _subscribe(packet: Subscribe, version: Version, sender: Sender) -> bytes:
    v5 = version is _V5
    head = packet.packet_id.to_bytes(2, "big") + (written(packet.properties, "SUBSCRIBE", sender) if v5 else b"")
    return head + b"".join(text(each.filter) + bytes((_options(each, v5),)) for each in packet.subscriptions)


def _options(subscription: Subscription, v5: bool) -> int:
    if not v5:
        return subscription.qos
    flags = subscription.no_local << 2 | subscription.retain_as_published << 3
    return subscription.qos | flags | subscription.retain_handling << 4


def _suback(packet: Suback, version: Version, sender: Sender) -> bytes:
    properties = written(packet.properties, "SUBACK", sender) if version is _V5 else b""
    return packet.packet_id.to_bytes(2, "big") + properties + bytes(packet.codes)


def _unsubscribe(packet: Unsubscribe, version: Version, sender: Sender) -> bytes:
    properties = written(packet.properties, "UNSUBSCRIBE", sender) if version is _V5 else b""
    return packet.packet_id.to_bytes(2, "big") + properties + b"".join(map(text, packet.filters))


def _unsuback(packet: Unsuback, version: Version, sender: Sender) -> bytes:
    if version is not _V5:
        return packet.packet_id.to_bytes(2, "big")
    return packet.packet_id.to_bytes(2, "big") + written(packet.properties, "UNSUBACK", sender) + bytes(packet.codes)


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

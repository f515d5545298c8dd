"""
The fast path for PUBLISH and acknowledgements of four octets in the common form, which are nearly all packets.

Everything else is left to :mod:`svc.wire.mqtt.decoding`, which alone refuses: the fast path accepts a subset of what
that accepts and returns the same values, which tests verify. Properties are read by the same table.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from svc.wire.mqtt.codes import PacketType, Sender
from svc.wire.mqtt.decoding import PacketLimits
from svc.wire.mqtt.errors import MqttError
from svc.wire.mqtt.packets import Acknowledgement, Packet, Publish, QoS
from svc.wire.mqtt.primitives import Cursor
from svc.wire.mqtt.properties import NO_PROPERTIES, Properties, read_properties

#: Topic names of printable ASCII without wildcards; possessive, so that any input costs one pass.
_TOPIC: Final = re.compile(rb"[ !\"$-*,-~]++")
#: First octets of the four acknowledgements with their required flags.
_ACKNOWLEDGEMENTS: Final[
    dict[int, Literal[PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP]]
] = {
    0x40: PacketType.PUBACK,
    0x50: PacketType.PUBREC,
    0x62: PacketType.PUBREL,
    0x70: PacketType.PUBCOMP,
}
#: First octets of PUBLISH: quality of service, retain, dup.
_PUBLISHES: Final[dict[int, tuple[QoS, bool, bool]]] = {
    0x30 | dup << 3 | qos << 1 | retain: (qos, bool(retain), bool(dup))
    for qos in (0, 1, 2)
    for retain in (0, 1)
    for dup in (0, 1)
    if qos or not dup
}


def read_fast(data: bytes, position: int, limits: PacketLimits, v5: bool, sender: Sender) -> tuple[Packet, int] | None:
    """Return the packet that starts at ``position`` and where it ends; None where the decoder must read it."""
    flags = _PUBLISHES.get(data[position])
    if flags is None:
        return _acknowledgement(data, position)
    have = len(data)
    if have < position + 6:
        return None
    length, body = data[position + 1], position + 2
    if length > 0x7F:
        more = data[body]
        body += 1
        if not 0 < more < 0x80:
            return None
        length = length & 0x7F | more << 7
    end, name = body + length, body + 2
    if end > have or end - position > limits.packet:
        return None
    rest = name + (data[body] << 8 | data[body + 1])
    # A topic has fewer levels than octets.
    if rest > end or rest - name >= limits.levels or (rest > name and _TOPIC.fullmatch(data, name, rest) is None):
        return None
    topic = data[name:rest].decode("ascii")
    qos, retain, dup = flags
    packet_id = 0
    if qos:
        if rest + 2 > end:
            return None
        packet_id = data[rest] << 8 | data[rest + 1]
        rest += 2
        if not packet_id:
            return None
    properties = NO_PROPERTIES
    if v5:
        if rest < end and not data[rest]:
            rest += 1
        elif (block := _properties(data, rest, end, limits, sender)) is not None:
            properties, rest = block
        else:
            return None
    if not topic and properties.topic_alias is None:
        return None
    return Publish(topic, data[rest:end], qos, retain, dup, packet_id, properties), end


def _properties(
    data: bytes, position: int, end: int, limits: PacketLimits, sender: Sender
) -> tuple[Properties, int] | None:
    cursor = Cursor("PUBLISH", data, position, end)
    try:
        properties = read_properties(cursor, "PUBLISH", sender, limits.properties)
    except MqttError:
        return None
    return properties, cursor.position


def _acknowledgement(data: bytes, position: int) -> tuple[Packet, int] | None:
    # No packet that opens a connection is shorter, so four octets are within every limit.
    kind = _ACKNOWLEDGEMENTS.get(data[position])
    if kind is None or len(data) < position + 4 or data[position + 1] != 2:
        return None
    packet_id = data[position + 2] << 8 | data[position + 3]
    return (Acknowledgement(kind, packet_id), position + 4) if packet_id else None

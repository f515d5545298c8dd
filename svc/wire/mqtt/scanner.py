"""
Where packets begin and end: fixed headers alone (section 2.1 of both standards).

The hot path of a proxy forwards runs of original octets by these positions without parsing a packet; the decoder stands
on the same walk. Must not know what a packet's body holds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from svc.wire.mqtt.errors import MalformedPacket, PacketTooLarge

#: Octets of a whole packet, fixed header included. Brokers take up to 256 MB by default; telemetry fits in far less.
DEFAULT_MAX_PACKET: Final = 1024 * 1024
#: Octets of the longest fixed header.
MAX_HEADER: Final = 5


class Frame(NamedTuple):
    """
    One whole packet in a run of octets.

    Args:
        first: its first octet: packet type and flags.
        start: where it starts.
        body: where its body starts, behind the fixed header.
        end: where the next packet starts.
    """

    first: int
    start: int
    body: int
    end: int

    @property
    def minimal(self) -> bool:
        """Whether the remaining length is written in the fewest octets, as MQTT 5.0 demands [MQTT-1.5.5-1]."""
        length = self.end - self.body
        needed = 2 if length < 0x80 else 3 if length < 0x4000 else 4 if length < 0x200000 else 5
        return self.body - self.start == needed


def walk(data: bytes | bytearray, limit: int = DEFAULT_MAX_PACKET, position: int = 0) -> tuple[list[Frame], int]:
    """
    Find the packets in a run of octets that begins with one.

    Args:
        data: the octets.
        limit: octets that a whole packet may have.
        position: where the first packet starts.

    Returns:
        The whole packets, and how many octets from the end of the last one are needed before another one can be whole:
        at least one more than there are.

    Raises:
        MalformedPacket: a remaining length has more than four octets.
        PacketTooLarge: a packet has more octets than the limit; known as soon as its fixed header is.
    """
    frames: list[Frame] = []
    while True:
        found = frame_at(data, position, limit)
        if isinstance(found, int):
            return frames, found
        frames.append(found)
        position = found.end


def frame_at(data: bytes | bytearray, position: int, limit: int) -> Frame | int:
    """
    Find one packet.

    Args:
        data: the octets.
        position: where the packet starts.
        limit: octets that a whole packet may have.

    Returns:
        The packet, or, where it is not whole yet, the octets needed from ``position`` on before it is worth asking
        again.

    Raises:
        MalformedPacket: the remaining length has more than four octets.
        PacketTooLarge: the packet has more octets than the limit.
    """
    have = len(data) - position
    length = 0
    for index in range(1, MAX_HEADER):
        if index >= have:
            return index + 1
        octet = data[position + index]
        length |= (octet & 0x7F) << (7 * (index - 1))
        if octet < 0x80:
            total = index + 1 + length
            if total > limit:
                raise PacketTooLarge(octets=total, limit=limit)
            if total > have:
                return total
            return Frame(data[position], position, position + index + 1, position + total)
    raise MalformedPacket(packet="of an unknown kind", defect="its remaining length has more than four octets")

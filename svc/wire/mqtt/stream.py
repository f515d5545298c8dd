"""
Packets from the bytes of one connection.

However the bytes are split into reads, the events are the same. Nothing is buffered for a packet that will not be
accepted: type, flags and length are checked as soon as they are available.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import Final

from svc.wire.mqtt.codes import FLAGS_0010, SENT_BY, PacketType, Sender, Version
from svc.wire.mqtt.decoding import DEFAULT_LIMITS, PacketLimits, decode
from svc.wire.mqtt.errors import MalformedPacket, MqttError, PacketTooLarge, ProtocolViolation
from svc.wire.mqtt.fast_path import read_fast
from svc.wire.mqtt.packets import Connect, Packet
from svc.wire.mqtt.primitives import encode_variable

_FIRST_PACKET: Final[dict[Sender, PacketType]] = {"client": PacketType.CONNECT, "server": PacketType.CONNACK}
#: Octets of the longest fixed header.
_MAX_HEADER: Final = 5
#: Packets of one slice: together they take less than a millisecond to decode.
SLICE_PACKETS: Final = 16
#: As often as there are packets; counting them would take a twentieth of the time.
_ALL: Final = repeat(None)


@dataclass(slots=True)
class PacketRefused:
    """The bytes are not acceptable and the decoder is closed."""

    error: MqttError


class Decoder:
    """
    Reads the packets of one side of a connection.

    Args:
        sender: whose packets these are. A client's first packet must be CONNECT, and only that one [MQTT-3.1.0-1,
            MQTT-3.1.0-2]; it determines the version. A server's must be CONNACK, except for AUTH [MQTT-3.2.0-1,
            MQTT-3.2.0-2].
        version: the version of the connection, where the sender is the server.
        limits: what a packet may use.

    Attributes:
        version: the version of the connection; None until CONNECT was read.
    """

    _read_fast = staticmethod(read_fast)

    def __init__(self, sender: Sender, version: Version | None = None, limits: PacketLimits = DEFAULT_LIMITS) -> None:
        self._sender: Final[Sender] = sender
        self.version = version
        self._v5 = version is Version.V5
        self._opened = False
        self._limits = limits
        self._max_packet = min(limits.first_packet, limits.packet)
        self._buffer = bytearray()
        self._needed = 0
        self._closed = False
        self._allowed = allowed_first_octets(sender, version, False)

    def feed(self, data: bytes) -> list[Packet | PacketRefused]:
        """Return the packets that are complete now, in order; after ``PacketRefused`` nothing is returned any more."""
        events: list[Packet | PacketRefused] = []
        if self._closed:
            return events
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < self._needed:
                return events
            data = bytes(buffer)
            buffer.clear()
        try:
            self._read(data, 0, _ALL, events)
        except MqttError as error:
            self._closed = True
            events.append(PacketRefused(error))
        return events

    def feed_slice(self, data: bytes, begin: int) -> tuple[list[Packet | PacketRefused], int]:
        """
        As :meth:`feed`, of the octets from ``begin`` on and for at most :data:`SLICE_PACKETS` packets.

        Returns:
            The packets, and where the next slice begins: the length of ``data`` where none follows.
        """
        events: list[Packet | PacketRefused] = []
        buffer, end = self._buffer, len(data)
        try:
            # An incomplete packet takes what it needs: the rest is not copied for each slice.
            while buffer and begin < end and not self._closed:
                after = begin + self._needed - len(buffer)
                buffer += data[begin:after]
                begin = min(after, end)
                if len(buffer) >= self._needed:
                    whole = bytes(buffer)
                    buffer.clear()
                    self._read(whole, 0, _ALL, events)
            if begin < end and not self._closed:
                return events, self._read(data, begin, repeat(None, SLICE_PACKETS - len(events)), events)
        except MqttError as error:
            self._closed = True
            events.append(PacketRefused(error))
        return events, end

    def _read(self, data: bytes, position: int, times: Iterable[None], events: list[Packet | PacketRefused]) -> int:
        """Read a packet each time, and keep an incomplete one; return where the next packet begins."""
        end = len(data)
        for _ in times:
            if position >= end:
                break
            # The fast path reads only packets that are allowed once the first one has been read.
            if self._opened and (read := self._read_fast(data, position, self._limits, self._v5, self._sender)):
                events.append(read[0])
                position = read[1]
                continue
            first = data[position]
            if first not in self._allowed and (
                error := first_octet_error(first, self._sender, self.version, self._opened)
            ):
                raise error
            found = find_packet(data, position, self._max_packet)
            if isinstance(found, int):
                self._needed = found
                self._buffer += data[position:]
                return end
            events.append(self._decode(data, position, *found))
            position = found[1]
        return position

    def _decode(self, data: bytes, start: int, body: int, end: int) -> Packet:
        packet = decode(data, data[start], body, end, self._sender, self.version, self._limits)
        if not self._opened:
            self._first_packet(packet)
        # MQTT 5.0 requires the fewest octets for the remaining length [MQTT-1.5.5-1].
        if self._v5 and body - start - 1 != len(encode_variable(end - body)):
            raise MalformedPacket(packet=packet.type.name, defect="its remaining length is longer than needed")
        return packet

    def _first_packet(self, packet: Packet) -> None:
        """Take the version from CONNECT and open the connection; a server may send AUTH before CONNACK."""
        if isinstance(packet, Connect):
            self.version = packet.version
            self._v5 = packet.version is Version.V5
        if packet.type is _FIRST_PACKET[self._sender]:
            self._opened, self._max_packet = True, self._limits.packet
        self._allowed = allowed_first_octets(self._sender, self.version, self._opened)


def find_packet(data: bytes | bytearray, position: int, limit: int) -> tuple[int, int] | int:
    """
    Read a fixed header (section 2.1 of both standards) and bound the packet by ``limit`` octets.

    Returns where the body begins and where the packet ends; for an incomplete packet the number of octets needed from
    ``position`` on before another attempt can succeed, at least one more than there are.
    """
    have = len(data) - position
    length = 0
    for index in range(1, _MAX_HEADER):
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
            return position + index + 1, position + total
    raise MalformedPacket(packet="of an unknown kind", defect="its remaining length has more than four octets")


@cache
def allowed_first_octets(sender: Sender, version: Version | None, opened: bool) -> frozenset[int]:
    """Return the first octets of the packets that may come next, before or after the one that opens the connection."""
    return frozenset(first for first in range(256) if first_octet_error(first, sender, version, opened) is None)


def first_octet_error(first: int, sender: Sender, version: Version | None, opened: bool) -> MqttError | None:
    """Check the first octet of a packet, before anything of the packet is buffered."""
    number = first >> 4
    if number == 0 or (number == PacketType.AUTH and version is not Version.V5):
        return MalformedPacket(packet=f"type {number}", defect="the type is reserved")
    kind = PacketType(number)
    if kind is not PacketType.PUBLISH and first & 0x0F != (2 if kind in FLAGS_0010 else 0):
        return MalformedPacket(packet=kind.name, defect="a reserved flag of its first octet is set")
    if kind not in SENT_BY[sender]:
        return ProtocolViolation(packet=kind.name, defect=f"a {sender} does not send it")
    if kind is PacketType.DISCONNECT and sender == "server" and version is Version.V311:
        return ProtocolViolation(packet=kind.name, defect="a server of MQTT 3.1.1 does not send it")
    required = _FIRST_PACKET[sender]
    if opened and kind is required:
        return ProtocolViolation(packet=kind.name, defect="only the first packet may be one")
    if not opened and kind is not required and not (kind is PacketType.AUTH and sender == "server"):
        return ProtocolViolation(packet=kind.name, defect=f"the first packet must be {required.name}")
    return None

"""
Packets from the octets of one connection.

``Decoder`` reads what one side sends and never raises for it: a defect is the event ``Refused``, always the last one.
However the octets are cut into reads, the events are the same. Nothing is buffered for a packet that will not be
accepted: type, flags and length are judged as soon as they are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from svc.wire.mqtt.codes import FLAGGED, SENT_BY, PacketType, Sender, Version
from svc.wire.mqtt.decoding import decode
from svc.wire.mqtt.errors import MalformedPacket, MqttError, ProtocolViolation
from svc.wire.mqtt.packets import Connect, Packet
from svc.wire.mqtt.quick import packet_at
from svc.wire.mqtt.reading import DEFAULT_LIMITS, Limits
from svc.wire.mqtt.scanner import Frame, frame_at

_OPENING: Final[dict[Sender, PacketType]] = {"client": PacketType.CONNECT, "server": PacketType.CONNACK}


@dataclass(slots=True)
class Refused:
    """The octets are not acceptable and the decoder is closed."""

    error: MqttError


class Decoder:
    """
    Reads the packets of one side of a connection.

    Args:
        sender: whose packets these are. A client's first packet must be CONNECT, and only that one [MQTT-3.1.0-1,
            MQTT-3.1.0-2]; the version is learnt from it. A server's must be CONNACK, but for AUTH [MQTT-3.2.0-1,
            MQTT-3.2.0-2].
        version: the version of the connection, where the sender is the server.
        limits: what a packet may use.

    Attributes:
        version: the version of the connection; None until CONNECT was read.
    """

    _glance = staticmethod(packet_at)

    def __init__(self, sender: Sender, version: Version | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self._sender: Final[Sender] = sender
        self.version = version
        self._v5 = version is Version.V5
        self._opened = False
        self._limits = limits
        self._largest = min(limits.opening, limits.packet)
        self._buffer = bytearray()
        self._needed = 0
        self._closed = False
        self._welcome = _welcome(sender, version, False)

    def feed(self, data: bytes) -> list[Packet | Refused]:
        """
        Read more octets.

        Args:
            data: what came.

        Returns:
            The packets that are whole now, in order; the event ``Refused`` ends everything.
        """
        events: list[Packet | Refused] = []
        if self._closed:
            return events
        held = self._buffer
        if held:
            held += data
            if len(held) < self._needed:
                return events
            data = bytes(held)
            held.clear()
        try:
            position = self._read(data, events)
        except MqttError as error:
            self._closed = True
            events.append(Refused(error))
        else:
            if position < len(data):
                held += data[position:]
        return events

    def _read(self, data: bytes, events: list[Packet | Refused]) -> int:
        """Read the whole packets; tell where the one begins that is not whole."""
        position, end = 0, len(data)
        while position < end:
            # A packet of the usual form is known to be allowed once the first one has come.
            if self._opened and (read := self._glance(data, position, self._limits, self._v5, self._sender)):
                events.append(read[0])
                position = read[1]
                continue
            first = data[position]
            if first not in self._welcome and (error := _unwelcome(first, self._sender, self.version, self._opened)):
                raise error
            found = frame_at(data, position, self._largest)
            if isinstance(found, int):
                self._needed = found
                break
            events.append(self._decoded(data, found))
            position = found.end
        return position

    def _decoded(self, data: bytes, frame: Frame) -> Packet:
        packet = decode(data, frame, self._sender, self.version, self._limits)
        if not self._opened:
            self._open(packet)
        if self._v5 and not frame.minimal:
            raise MalformedPacket(packet=packet.type.name, defect="its remaining length is longer than needed")
        return packet

    def _open(self, packet: Packet) -> None:
        """Take what the first packet says; a server may send AUTH before it."""
        if isinstance(packet, Connect):
            self.version = packet.version
            self._v5 = packet.version is Version.V5
        if packet.type is _OPENING[self._sender]:
            self._opened, self._largest = True, self._limits.packet
        self._welcome = _welcome(self._sender, self.version, self._opened)


@cache
def _welcome(sender: Sender, version: Version | None, opened: bool) -> frozenset[int]:
    """List the first octets of packets that may come."""
    return frozenset(first for first in range(256) if _unwelcome(first, sender, version, opened) is None)


def _unwelcome(first: int, sender: Sender, version: Version | None, opened: bool) -> MqttError | None:
    """Judge the first octet of a packet, before anything of it is kept."""
    number = first >> 4
    if number == 0 or (number == PacketType.AUTH and version is not Version.V5):
        return MalformedPacket(packet=f"type {number}", defect="the type is reserved")
    kind = PacketType(number)
    if kind is not PacketType.PUBLISH and first & 0x0F != (2 if kind in FLAGGED else 0):
        return MalformedPacket(packet=kind.name, defect="a reserved flag of its first octet is set")
    if kind not in SENT_BY[sender]:
        return ProtocolViolation(packet=kind.name, defect=f"a {sender} does not send it")
    if kind is PacketType.DISCONNECT and sender == "server" and version is Version.V311:
        return ProtocolViolation(packet=kind.name, defect="a server of MQTT 3.1.1 does not send it")
    opening = _OPENING[sender]
    if opened and kind is opening:
        return ProtocolViolation(packet=kind.name, defect="it may stand at the beginning only")
    if not opened and kind is not opening and not (kind is PacketType.AUTH and sender == "server"):
        return ProtocolViolation(packet=kind.name, defect=f"the first packet must be {opening.name}")
    return None

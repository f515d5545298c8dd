"""Bytes of MQTT packets, valid and invalid, written by hand so that tests do not depend on the encoder."""

from __future__ import annotations

from collections.abc import Iterable

from svc.wire.mqtt import Decoder, MqttError, Packet, PacketLimits, PacketRefused, Sender, Version, encode
from svc.wire.mqtt.decoding import decode
from svc.wire.mqtt.stream import find_packet


def text(value: str | bytes) -> bytes:
    """Write a length of two octets and the octets."""
    octets = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return len(octets).to_bytes(2, "big") + octets


def packet(first: int, *parts: bytes) -> bytes:
    """Write a fixed header and the parts."""
    body = b"".join(parts)
    length, octets = len(body), bytearray()
    while True:
        length, low = length >> 7, length & 0x7F
        octets.append(low | 0x80 if length else low)
        if not length:
            return bytes((first,)) + bytes(octets) + body


def connect(version: int = 5, flags: int = 0x02, *payload: bytes, name: bytes = b"MQTT", first: int = 0x10) -> bytes:
    """Write CONNECT; the payload is a client identifier unless given."""
    properties = b"\x00" if version == 5 else b""
    head = text(name) + bytes((version, flags)) + b"\x00\x3c" + properties
    return packet(first, head, *(payload or (text("c"),)))


def connack(version: int = 5) -> bytes:
    """Write CONNACK that accepts."""
    return packet(0x20, b"\x00\x00" + (b"\x00" if version == 5 else b""))


def opening(sender: Sender, version: int) -> bytes:
    """Write the first packet of a side."""
    return connect(version) if sender == "client" else connack(version)


def read(
    octets: bytes,
    sender: Sender = "client",
    version: int = 5,
    cuts: Iterable[int] = (),
    limits: PacketLimits | None = None,
) -> list[Packet | PacketRefused]:
    """Read octets from the beginning of a connection, cut at the given positions."""
    decoder = Decoder(sender, Version(version) if sender == "server" else None, limits or PacketLimits())
    events: list[Packet | PacketRefused] = []
    begin = 0
    for end in [*sorted(cuts), len(octets)]:
        events += decoder.feed(octets[begin:end])
        begin = max(begin, end)
    return events


def after_opening(octets: bytes, sender: Sender = "client", version: int = 5) -> list[Packet | PacketRefused]:
    """Read octets that follow the first packet of their side."""
    return read(opening(sender, version) + octets, sender, version)[1:]


def encode_checked(packet: Packet, version: Version, sender: Sender) -> bytes:
    """Encode a packet and assert that a receiver without limits decodes an equal one."""
    octets = encode(packet, version, sender)
    found = find_packet(octets, 0, len(octets))
    assert isinstance(found, tuple) and found[1] == len(octets), octets
    limits = PacketLimits(properties=len(octets), levels=len(octets) + 1, filters=len(octets))
    try:
        decoded = decode(octets, octets[0], *found, sender, version, limits)
    except MqttError as error:
        raise AssertionError(f"{packet} is not decodable: {error}") from error
    assert decoded == packet, (decoded, packet)
    return octets

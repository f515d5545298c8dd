"""Octets of MQTT packets, right and wrong, written by hand so that no test trusts the encoder."""

from __future__ import annotations

from collections.abc import Iterable

from svc.wire.mqtt import Decoder, Limits, Packet, Refused, Sender, Version


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
    """Write what a side must send first."""
    return connect(version) if sender == "client" else connack(version)


def read(
    octets: bytes, sender: Sender = "client", version: int = 5, cuts: Iterable[int] = (), limits: Limits | None = None
) -> list[Packet | Refused]:
    """Read octets from the beginning of a connection, cut at the given positions."""
    decoder = Decoder(sender, Version(version) if sender == "server" else None, limits or Limits())
    events: list[Packet | Refused] = []
    begin = 0
    for end in [*sorted(cuts), len(octets)]:
        events += decoder.feed(octets[begin:end])
        begin = max(begin, end)
    return events


def after_opening(octets: bytes, sender: Sender = "client", version: int = 5) -> list[Packet | Refused]:
    """Read octets that follow the first packet of their side."""
    return read(opening(sender, version) + octets, sender, version)[1:]

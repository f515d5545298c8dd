"""
The rows of the tables of normative statements, and the packets in them.

A statement is numbered as in appendix B of the standards; the gist is our own wording.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from svc.wire.mqtt import MalformedPacket, MqttError, ProtocolViolation, Sender
from tests.wire.mqtt.building import packet, text

Refusal = tuple[bytes, type[MqttError]]


@dataclass(frozen=True)
class Statement:
    """
    One statement.

    Args:
        version: 4 or 5.
        number: such as ``3.3.1-4``.
        gist: what it demands.
        keeps: packets that keep it; accepted.
        breaks: packets that break it, with the error.
        sender: whose packets they are.
        opens: whether they are the first packet of their side.
    """

    version: int
    number: str
    gist: str
    keeps: tuple[bytes, ...] = ()
    breaks: tuple[Refusal, ...] = ()
    sender: Sender = "client"
    opens: bool = False


def publish(topic: bytes, rest: bytes = b"", first: int = 0x30, v5: bool = True) -> bytes:
    """Write PUBLISH; ``rest`` follows the topic, and without a packet identifier the properties."""
    return packet(first, topic, rest or (b"\x00" if v5 else b""))


def subscribe(payload: bytes, first: int = 0x82, v5: bool = True, identifier: bytes = b"\x00\x01") -> bytes:
    """Write SUBSCRIBE without properties."""
    return packet(first, identifier + (b"\x00" if v5 else b""), payload)


def unsubscribe(payload: bytes, first: int = 0xA2, v5: bool = True, identifier: bytes = b"\x00\x01") -> bytes:
    """Write UNSUBSCRIBE without properties."""
    return packet(first, identifier + (b"\x00" if v5 else b""), payload)


MALFORMED: Final = MalformedPacket
VIOLATION: Final = ProtocolViolation
T: Final = text("t")
ONE: Final = T + b"\x00"
WILL: Final = text("w") + text("payload")
NUL: Final = text("a\x00b")
SURROGATE: Final = text(b"a\xed\xa0\x80")
OVERLONG: Final = text(b"\xc0\xaf")
CUT: Final = text(b"\xe2\x82")
BOM: Final = text("\ufefft")


def malformed(*octets: bytes) -> tuple[Refusal, ...]:
    """Return rows for malformed packets."""
    return tuple((each, MALFORMED) for each in octets)


def violations(*octets: bytes) -> tuple[Refusal, ...]:
    """Return rows for protocol errors."""
    return tuple((each, VIOLATION) for each in octets)


def flags(kind: int, right: int, *body: bytes) -> tuple[tuple[bytes, ...], tuple[Refusal, ...]]:
    """Write a packet with its correct flags, and with the fifteen wrong ones."""
    wrong = [packet(kind << 4 | each, *body) for each in range(16) if each != right]
    return (packet(kind << 4 | right, *body),), malformed(*wrong)

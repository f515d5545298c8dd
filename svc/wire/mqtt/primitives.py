"""The data types of MQTT: integers, UTF-8 strings and binary data (sections 1.5 of both standards)."""

from __future__ import annotations

import re
from typing import Final

from svc.wire.mqtt.errors import MalformedPacket

MAX_VARIABLE: Final = 268_435_455
MAX_TEXT: Final = 65_535
_ONE_OCTET: Final = [bytes((value,)) for value in range(0x80)]

#: What a string should not hold and a receiver may refuse (section 1.5.4): control characters and non-characters.
#: U+0000 must be refused. Lone surrogates are not UTF-8.
_FORBIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff"
    + "".join(f"{chr((plane << 16) + 0xFFFE)}{chr((plane << 16) + 0xFFFF)}" for plane in range(1, 17))
    + "]"
)


def is_valid_text(text: str) -> bool:
    """Return whether a string holds neither a control character nor a non-character (section 1.5.4)."""
    return (text.isascii() and text.isprintable()) or _FORBIDDEN.search(text) is None


def encode_variable(value: int) -> bytes:
    """Encode 0 to 268,435,455 in the fewest octets (MQTT 5.0, 1.5.5; MQTT 3.1.1, 2.2.3), else ValueError."""
    if 0 <= value < 0x80:
        return _ONE_OCTET[value]
    if value < 0:
        raise ValueError("a variable byte integer is not negative")
    octets = bytearray()
    while value:
        value, low = value >> 7, value & 0x7F
        octets.append(low | 0x80 if value else low)
    if len(octets) > 4:
        raise ValueError("a variable byte integer has at most four octets")
    return bytes(octets)


def encode_text(value: str) -> bytes:
    """Encode a string of at most 65,535 octets behind its length; ValueError for a forbidden character too."""
    if not is_valid_text(value):
        raise ValueError("the text holds a character that MQTT does not allow")
    return encode_binary(value.encode("utf-8"))


def encode_binary(value: bytes) -> bytes:
    """Encode at most 65,535 octets behind their length in two octets, else ValueError."""
    if len(value) > MAX_TEXT:
        raise ValueError(f"at most {MAX_TEXT} octets can be encoded")
    return len(value).to_bytes(2, "big") + value


class Cursor:
    """
    Reads the values of one packet in order; every read raises MalformedPacket where the packet ends before.

    Args:
        packet: the packet's name, for errors.
        data: bytes that contain the packet's body.
        position: where the body begins.
        end: where it ends.
    """

    __slots__ = ("_data", "_packet", "end", "position")

    def __init__(self, packet: str, data: bytes, position: int, end: int) -> None:
        self._packet = packet
        self._data = data
        self.position = position
        self.end = end

    @property
    def remaining(self) -> int:
        """The number of octets that have not been read."""
        return self.end - self.position

    def malformed(self, defect: str) -> MalformedPacket:
        """Return the error for a defect, whose text must not contain bytes of the packet."""
        return MalformedPacket(packet=self._packet, defect=defect)

    def octets(self, count: int) -> bytes:
        """Read so many octets."""
        begin, stop = self.position, self.position + count
        if stop > self.end:
            raise self.malformed("it ends in the middle of a value")
        self.position = stop
        return self._data[begin:stop]

    def u8(self) -> int:
        """Read one octet."""
        if self.position >= self.end:
            raise self.malformed("it ends in the middle of a value")
        value = self._data[self.position]
        self.position += 1
        return value

    def u16(self) -> int:
        """Read a two byte integer (section 1.5.2)."""
        begin = self.position
        if begin + 2 > self.end:
            raise self.malformed("it ends in the middle of a value")
        self.position = begin + 2
        return self._data[begin] << 8 | self._data[begin + 1]

    def u32(self) -> int:
        """Read a four byte integer (section 1.5.3)."""
        return int.from_bytes(self.octets(4), "big")

    def variable(self) -> int:
        """Read a variable byte integer in the fewest octets [MQTT-1.5.5-1]."""
        value = self.u8()
        if value < 0x80:
            return value
        value &= 0x7F
        for shift in (7, 14, 21):
            octet = self.u8()
            value |= (octet & 0x7F) << shift
            if octet < 0x80:
                if octet == 0:
                    raise self.malformed("a variable byte integer is longer than needed")
                return value
        raise self.malformed("a variable byte integer has more than four octets")

    def binary(self) -> bytes:
        """Read binary data (section 1.5.6)."""
        # Not built from u16 and octets, because nearly every value is read by this call.
        begin = self.position + 2
        if begin > self.end:
            raise self.malformed("it ends in the middle of a value")
        stop = begin + (self._data[begin - 2] << 8 | self._data[begin - 1])
        if stop > self.end:
            raise self.malformed("it ends in the middle of a value")
        self.position = stop
        return self._data[begin:stop]

    def text(self) -> str:
        """Read valid UTF-8 without forbidden characters [MQTT-1.5.4-1, 1.5.4-2]; a leading U+FEFF stays [1.5.4-3]."""
        try:
            value = self.binary().decode()
        except UnicodeDecodeError:
            raise self.malformed("a text is not UTF-8") from None
        if not is_valid_text(value):
            raise self.malformed("a text holds a control character or a non-character")
        return value

    def expect_end(self) -> None:
        """Refuse octets after the last value."""
        if self.position != self.end:
            raise self.malformed("octets are left over after its last value")

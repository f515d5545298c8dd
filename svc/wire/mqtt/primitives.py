"""
The data types of MQTT: integers, variable byte integers, text and binary data.

Sections 1.5 of both standards. A :class:`Cursor` walks one packet's body and cannot leave it; it must not know what the
values mean.
"""

from __future__ import annotations

import re
from typing import Final

from svc.wire.mqtt.errors import MalformedPacket

MAX_VARIABLE: Final = 268_435_455
MAX_TEXT: Final = 65_535
_ONE_OCTET: Final = [bytes((value,)) for value in range(0x80)]

#: What a text should not hold, and a receiver may refuse (section 1.5.4): controls and code points that are no
#: characters. U+0000 must be refused. Lone surrogates are no UTF-8 at all.
_UNFIT: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff"
    + "".join(f"{chr((plane << 16) + 0xFFFE)}{chr((plane << 16) + 0xFFFF)}" for plane in range(1, 17))
    + "]"
)


def fit(text: str) -> bool:
    """
    Say whether a text may stand in a packet.

    Args:
        text: the decoded text.

    Returns:
        Whether it has neither a control character nor a code point that is no character (section 1.5.4).
    """
    return (text.isascii() and text.isprintable()) or _UNFIT.search(text) is None


def variable(value: int) -> bytes:
    """
    Write a variable byte integer in the fewest octets.

    Args:
        value: 0 to 268,435,455.

    Returns:
        One to four octets (section 1.5.5 of MQTT 5.0, 2.2.3 of MQTT 3.1.1).

    Raises:
        ValueError: the value does not fit.
    """
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


def text(value: str) -> bytes:
    """
    Write a UTF-8 encoded string.

    Args:
        value: at most 65,535 octets in UTF-8.

    Returns:
        The length in two octets, then the octets.

    Raises:
        ValueError: it is too long, or holds what may not stand in a text.
    """
    if not fit(value):
        raise ValueError("the text holds a character that MQTT does not carry")
    return binary(value.encode("utf-8"))


def binary(value: bytes) -> bytes:
    """
    Write binary data.

    Args:
        value: at most 65,535 octets.

    Returns:
        The length in two octets, then the octets.

    Raises:
        ValueError: it is too long.
    """
    if len(value) > MAX_TEXT:
        raise ValueError(f"at most {MAX_TEXT} octets can be written")
    return len(value).to_bytes(2, "big") + value


class Cursor:
    """
    Reads values of one packet in their order.

    Args:
        packet: the packet's name, for errors.
        data: octets that hold the packet's body.
        position: where the body begins.
        end: where it ends; nothing is read from there on.
    """

    __slots__ = ("_data", "_packet", "end", "position")

    def __init__(self, packet: str, data: bytes, position: int, end: int) -> None:
        self._packet = packet
        self._data = data
        self.position = position
        self.end = end

    @property
    def left(self) -> int:
        """The number of octets that have not been read."""
        return self.end - self.position

    def malformed(self, defect: str) -> MalformedPacket:
        """
        Make the error for a defect.

        Args:
            defect: what is wrong, without any octet of the packet.

        Returns:
            The error, to be raised.
        """
        return MalformedPacket(packet=self._packet, defect=defect)

    def octets(self, count: int) -> bytes:
        """
        Read octets.

        Args:
            count: how many.

        Returns:
            These octets.

        Raises:
            MalformedPacket: the packet ends before.
        """
        begin, stop = self.position, self.position + count
        if stop > self.end:
            raise self.malformed("it ends in the middle of a value")
        self.position = stop
        return self._data[begin:stop]

    def u8(self) -> int:
        """Read one octet; raises MalformedPacket as :meth:`octets` does."""
        if self.position >= self.end:
            raise self.malformed("it ends in the middle of a value")
        value = self._data[self.position]
        self.position += 1
        return value

    def u16(self) -> int:
        """Read a two byte integer (section 1.5.2); raises MalformedPacket as :meth:`octets` does."""
        begin = self.position
        if begin + 2 > self.end:
            raise self.malformed("it ends in the middle of a value")
        self.position = begin + 2
        return self._data[begin] << 8 | self._data[begin + 1]

    def u32(self) -> int:
        """Read a four byte integer (section 1.5.3); raises MalformedPacket as :meth:`octets` does."""
        return int.from_bytes(self.octets(4), "big")

    def variable(self) -> int:
        """
        Read a variable byte integer.

        Returns:
            0 to 268,435,455.

        Raises:
            MalformedPacket: it has more than four octets, more than needed [MQTT-1.5.5-1], or is cut short.
        """
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
        """Read binary data (section 1.5.6); raises MalformedPacket as :meth:`octets` does."""
        # Nearly every value is one of these, so it is read by this one call.
        begin = self.position + 2
        if begin > self.end:
            raise self.malformed("it ends in the middle of a value")
        stop = begin + (self._data[begin - 2] << 8 | self._data[begin - 1])
        if stop > self.end:
            raise self.malformed("it ends in the middle of a value")
        self.position = stop
        return self._data[begin:stop]

    def text(self) -> str:
        """
        Read a UTF-8 encoded string (section 1.5.4).

        Returns:
            The text; U+FEFF at its beginning stays [MQTT-1.5.4-3].

        Raises:
            MalformedPacket: it is cut short, no UTF-8 [MQTT-1.5.4-1], or holds U+0000 [MQTT-1.5.4-2], another control
                character or a code point that is no character.
        """
        try:
            value = self.binary().decode()
        except UnicodeDecodeError:
            raise self.malformed("a text is not UTF-8") from None
        if not fit(value):
            raise self.malformed("a text holds a control character or what is no character")
        return value

    def finished(self) -> None:
        """
        Insist that the body ends here.

        Raises:
            MalformedPacket: octets are left over.
        """
        if self.position != self.end:
            raise self.malformed("octets are left over behind its last value")

"""
Packets in the octets of one side: where each ends, and which of them pass without a closer look.

Nothing of an incomplete packet is passed on, so the proxy can send a packet of its own behind each read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from svc.wire.mqtt import MalformedPacket, Packet, PacketLimits, Version
from svc.wire.mqtt.codes import PacketType, Sender
from svc.wire.mqtt.decoding import decode
from svc.wire.mqtt.fast_path import read_fast
from svc.wire.mqtt.primitives import encode_variable
from svc.wire.mqtt.stream import allowed_first_octets, find_packet, first_octet_error

#: First octets of PUBACK, PUBREC, PUBREL and PUBCOMP: how many messages they acknowledge.
_ACKNOWLEDGES: Final = {0x40: 1, 0x50: 1, 0x62: 0, 0x70: 0}
#: The remaining length of one that has neither a reason nor properties.
_SHORT: Final = 2
_OTHER: Final = 3
#: Octets of one run: packets of four octets take less than three milliseconds.
RUN_OCTETS: Final = 32 * 1024
#: The quality of service of a PUBLISH by its first octet, 3 for all that is not a valid one.
_QOS: Final = tuple(
    first >> 1 & 3 if first >> 4 == PacketType.PUBLISH and (first & 6 or not first & 8) else _OTHER
    for first in range(256)
)
#: The identifier of the property Topic Alias.
_TOPIC_ALIAS: Final = b"\x23"


def skip_run(
    data: bytes, position: int, topics: Mapping[bytes, bool] | None, limit: int, aliases: bool, without: bytes = b""
) -> tuple[int, int, int, int]:
    """
    Find the packets from ``position`` on that pass as they are: short acknowledgements, and PUBLISH to ``topics``.

    Args:
        topics: encoded topic names, and whether their messages are counted; None for any topic.
        limit: octets of the largest packet.
        aliases: whether a PUBLISH may assign a topic alias, with which it does not pass.
        without: octets with which it does not pass; empty where they are not in ``data``.

    Returns:
        Where the first packet begins that does not pass so, or that is incomplete; how many of them are PUBLISH with a
        quality of service above 0; how many are PUBACK or PUBREC; how many are PUBLISH that are counted.
    """
    publishes = acknowledged = counted = 0
    counts = False
    end = len(data)
    # An incomplete header ends the loop by IndexError, an unknown topic by KeyError: without a check of each this takes
    # half the time.
    try:
        while True:
            qos = _QOS[data[position]]
            if qos == _OTHER:
                acknowledges = _ACKNOWLEDGES.get(data[position])
                if acknowledges is None or data[position + 1] != _SHORT or position + 4 > end:
                    break
                acknowledged += acknowledges
                position += 4
                continue
            length, body = data[position + 1], position + 2
            if length > 0x7F:
                more = data[body]
                body += 1
                if not 0 < more < 0x80:
                    break
                length = length & 0x7F | more << 7
            stop = body + length
            if stop > end or stop - position > limit:
                break
            if without and data.find(without, body, stop) >= 0:
                break
            if topics is not None:
                name = body + 2
                rest = name + (data[body] << 8 | data[body + 1])
                if rest > stop:
                    break
                counts = topics[data[name:rest]]
                # Property lengths of 128 and more are left to the closer look.
                if aliases:
                    rest += 2 if qos else 0
                    if (
                        rest >= stop
                        or data[rest] > 0x7F
                        or data.find(_TOPIC_ALIAS, rest + 1, rest + 1 + data[rest]) >= 0
                    ):
                        break
            if qos:
                publishes += 1
            counted += counts
            position = stop
    except (IndexError, KeyError):
        pass
    return position, publishes, acknowledged, counted


def is_large(data: bytes, position: int) -> bool:
    """Whether a packet has 16 KiB or more, so that a run with it has few."""
    length = data[position + 1 : position + 3]
    return len(length) == 2 and min(length) > 0x7F


class Framer:
    """
    Finds the packets of one side.

    Args:
        sender: whose packets these are.
        version: the version of the connection; None until the client's CONNECT is read.
        limits: what a packet may use.
    """

    def __init__(self, sender: Sender, version: Version | None, limits: PacketLimits) -> None:
        self._sender: Final[Sender] = sender
        self._limits = limits
        #: The beginning of a packet, or packets that wait.
        self.rest = bytearray()
        self._needed = 0
        self._set(version, opened=False)

    def _set(self, version: Version | None, *, opened: bool) -> None:
        self._version, self._opened = version, opened
        self._v5 = version is Version.V5
        self._allowed = allowed_first_octets(self._sender, version, opened)
        limits = self._limits
        self.limit: int = limits.packet if opened else min(limits.first_packet, limits.packet)

    def open(self, version: Version) -> None:
        """The packet that opens the connection is read."""
        self._set(version, opened=True)

    def join(self, data: bytes) -> bytes:
        """Put octets behind what is kept; empty while a packet is still incomplete."""
        rest = self.rest
        if not rest:
            return data
        rest += data
        if len(rest) < self._needed:
            return b""
        data = bytes(rest)
        rest.clear()
        return data

    def keep(self, data: bytes, position: int) -> None:
        """Keep the octets from ``position`` on."""
        if position < len(data):
            self.rest += data[position:]

    def find(self, data: bytes, position: int) -> tuple[int, int] | None:
        """
        Return where the body of a packet begins and where the packet ends, None where it is incomplete.

        Raises:
            MqttError: its sender must not send it now, or it is too large.
        """
        first = data[position]
        if first not in self._allowed:
            error = first_octet_error(first, self._sender, self._version, self._opened)
            if error is not None:
                raise error
        found = find_packet(data, position, self.limit)
        if isinstance(found, int):
            self._needed = found
            return None
        body, end = found
        # MQTT 5.0 requires the fewest octets for the remaining length [MQTT-1.5.5-1].
        if self._v5 and body - position > 2 and body - position - 1 != len(encode_variable(end - body)):
            raise MalformedPacket(packet=PacketType(first >> 4).name, defect="its remaining length is too long")
        self._needed = 0
        return found

    def decode(self, data: bytes, position: int, body: int, end: int) -> Packet:
        """Decode a packet that was found; raises MqttError."""
        if self._opened:
            fast = read_fast(data, position, self._limits, self._v5, self._sender)
            if fast is not None:
                return fast[0]
        return decode(data, data[position], body, end, self._sender, self._version, self._limits)

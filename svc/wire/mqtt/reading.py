"""
What a packet is read by: its body, who sent it, in which version, and what it may use.

Owns the rules that several packets share: packet identifiers, topics, reason codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from svc.wire.mqtt.codes import PacketType, Sender
from svc.wire.mqtt.errors import ProtocolViolation, QuotaExceeded
from svc.wire.mqtt.primitives import Cursor
from svc.wire.mqtt.properties import NONE, Place, Properties, read
from svc.wire.mqtt.scanner import DEFAULT_MAX_PACKET
from svc.wire.mqtt.topics import filter_defect, name_defect


@dataclass(frozen=True, slots=True)
class Limits:
    """
    What one packet may use.

    Args:
        packet: octets of a whole packet.
        properties: properties of a packet, user properties included; the will has as many again.
        levels: levels of a topic name or filter.
        filters: topic filters of SUBSCRIBE or UNSUBSCRIBE.
        opening: octets of the first packet, before which nothing is known of who sends it; no more than ``packet``.
    """

    packet: int = DEFAULT_MAX_PACKET
    properties: int = 100
    levels: int = 200
    filters: int = 1000
    opening: int = 128 * 1024


DEFAULT_LIMITS: Final = Limits()


@dataclass(slots=True)
class Reading:
    """
    What a packet is read by.

    Args:
        kind: its type.
        flags: the lower half of its first octet.
        cursor: its body.
        sender: who sent it.
        v5: whether the connection speaks MQTT 5.0; CONNECT says so on the way.
        limits: what it may use.
    """

    kind: PacketType
    flags: int
    cursor: Cursor
    sender: Sender
    v5: bool
    limits: Limits

    def violation(self, defect: str) -> ProtocolViolation:
        """Make the error for what is well-formed and not allowed."""
        return ProtocolViolation(packet=self.kind.name, defect=defect)

    def properties(self, place: Place) -> Properties:
        """Read properties where the version has them."""
        if not self.v5:
            return NONE
        return read(self.cursor, place, self.sender, self.limits.properties)

    def packet_id(self) -> int:
        """Read a packet identifier, which is not 0 ([MQTT-2.2.1-3], in MQTT 3.1.1 [MQTT-2.3.1-1])."""
        value = self.cursor.u16()
        if not value:
            raise self.violation("its packet identifier is 0")
        return value

    def topic_name(self) -> str:
        """Read a topic name that is not empty."""
        topic = self.cursor.text()
        if defect := name_defect(topic):
            raise self.cursor.malformed(defect)
        return self.shallow(topic)

    def topic_filter(self) -> str:
        """Read a topic filter, shared or not."""
        topic_filter = self.cursor.text()
        if defect := filter_defect(topic_filter):
            raise self.cursor.malformed(defect)
        return self.shallow(topic_filter)

    def shallow(self, topic: str) -> str:
        """Bound the levels of a topic."""
        if topic.count("/") >= self.limits.levels:
            raise QuotaExceeded(packet=self.kind.name, limit=self.limits.levels, items="levels of a topic")
        return topic

    def reason(self, allowed: frozenset[int]) -> int:
        """Read a reason code that the packet may carry."""
        code = self.cursor.u8()
        if code not in allowed:
            raise self.violation(f"the reason code 0x{code:02x} does not belong there")
        return code

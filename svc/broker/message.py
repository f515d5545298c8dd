"""
One application message and its octets.

Owns what is the same for every receiver, written once: a message for a thousand receivers is encoded once. Must not
know who receives it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from svc.wire.mqtt import Properties, Publish, QoS, Version, encode
from svc.wire.mqtt.primitives import Cursor, text, variable
from svc.wire.mqtt.properties import NONE, written

#: A member of an enumeration is looked up by a call each time, which shows where every delivery does it.
_V5: Final = Version.V5
#: The bits of the fixed header that hold the quality of service.
_QOS: Final = 0x06
_NO_TOPIC: Final = b"\x00\x00"
#: Octets of a message with its delivery beside what it brings, of any properties, and of a pair of them; measured.
_OBJECT: Final = 640
_PROPERTIES: Final = 256
_PAIR: Final = 80
#: The identifier of the property Topic Alias.
_ALIAS: Final = b"\x23"


@dataclass(slots=True, eq=False)
class Message:
    """
    An application message as the broker holds it.

    Args:
        topic: its topic name, aliases resolved.
        payload: its octets.
        qos: the quality of service that it was published with.
        retain: whether it was published to be retained.
        properties: those that every receiver gets unaltered [MQTT-3.3.2-4, -15, -16, -17, -18, -20].
        publisher: the client identifier of who published it, for No Local.
        expires: when it is of no use any more, in seconds since 1970 UTC; None is never.
        number: its row in the journal; 0 while it has none.
        references: what refers to that row; the journal counts.
    """

    topic: str
    payload: bytes
    qos: QoS = 0
    retain: bool = False
    properties: Properties = NONE
    publisher: str = ""
    expires: float | None = None
    number: int = 0
    references: int = 0
    _parts: dict[Version, tuple[bytes, bytes]] | None = field(default=None, init=False, repr=False)
    _whole: dict[tuple[Version, bool], bytes] | None = field(default=None, init=False, repr=False)
    _aliased: tuple[bytes, int, bool, bytes] | None = field(default=None, init=False, repr=False)
    _size: int = field(default=0, init=False, repr=False)
    _settled: bool = field(default=False, init=False, repr=False)

    @classmethod
    def from_publish(cls, packet: Publish, topic: str, publisher: str, now: float) -> Message:
        """
        Take a message out of the packet that brought it.

        Args:
            packet: the packet.
            topic: its topic name, the alias resolved.
            publisher: the client identifier.
            now: seconds since 1970 UTC.

        Returns:
            The message, without what concerned the publisher's connection only (alias, expiry interval, delay).
        """
        properties = packet.properties
        expires = None
        if properties is not NONE:
            if properties.message_expiry is not None:
                expires = now + properties.message_expiry
            if (properties.topic_alias, properties.message_expiry, properties.will_delay) != (None, None, None):
                properties = properties.replaced(topic_alias=None, message_expiry=None, will_delay=None)
        return cls(topic, packet.payload, packet.qos, packet.retain, properties, publisher, expires)

    @property
    def size(self) -> int:
        """About the octets that it takes in memory while it waits or is retained."""
        if not self._size:
            self._size = octets_held(self.topic, self.payload, self.properties)
        return self._size

    def settle(self) -> None:
        """Give up the packets that many receivers shared, now that all who are there have it: the message stays."""
        self._settled = True
        self._whole = self._aliased = None

    def expired(self, now: float) -> bool:
        """
        Say whether it is of no use any more.

        Args:
            now: seconds since 1970 UTC.
        """
        return self.expires is not None and now >= self.expires

    def octets(
        self,
        version: Version,
        qos: QoS,
        *,
        retain: bool,
        dup: bool = False,
        packet_id: int = 0,
        identifiers: tuple[int, ...] = (),
        now: float = 0.0,
    ) -> bytes:
        """
        Write PUBLISH for one receiver.

        Args:
            version: what the receiver speaks.
            qos: the quality of service of this delivery.
            retain: the retain flag of this delivery.
            dup: whether it may have been sent before.
            packet_id: with QoS above 0.
            identifiers: those of the receiver's subscriptions.
            now: seconds since 1970 UTC; the expiry interval that is left is written [MQTT-3.3.2-6].

        Returns:
            The whole packet.
        """
        if version is _V5 and (identifiers or self.expires is not None):
            return encode(self._packet(qos, retain, dup, packet_id, identifiers, now), version, "server")
        if not qos:
            known = None if self._whole is None else self._whole.get((version, retain))
            return self._at_most_once(version, retain) if known is None else known
        head, properties = self._cut(version)
        payload = self.payload
        length = variable(len(head) + 2 + len(properties) + len(payload))
        first = bytes((0x30 | dup << 3 | qos << 1 | retain,))
        return b"".join((first, length, head, packet_id.to_bytes(2, "big"), properties, payload))

    def with_alias(self, octets: bytes, alias: int, *, named: bool) -> bytes:
        """
        Put a topic alias into a packet (section 3.3.2.3.4).

        Args:
            octets: what :meth:`octets` gave for a receiver of MQTT 5.0.
            alias: 1 to 65,535, of the receiver's connection.
            named: False where the alias stands for the topic already, so that the topic is left out.

        Returns:
            The whole packet. Receivers of the same packet that know the topic by the same alias share this one too.
        """
        last = self._aliased
        if last is not None and last[0] is octets and last[1] == alias and last[2] is named:
            return last[3]
        made = _with_alias(octets, alias, named)
        if not octets[0] & _QOS and not self._settled:
            self._aliased = octets, alias, named, made
        return made

    def _at_most_once(self, version: Version, retain: bool) -> bytes:
        head, properties = self._cut(version)
        payload = self.payload
        length = variable(len(head) + len(properties) + len(payload))
        octets = b"".join((bytes((0x30 | retain,)), length, head, properties, payload))
        if not self._settled:
            if self._whole is None:
                self._whole = {}
            self._whole[version, retain] = octets
        return octets

    def _cut(self, version: Version) -> tuple[bytes, bytes]:
        """Write topic and properties, which stand before and behind the packet identifier."""
        parts = None if self._parts is None else self._parts.get(version)
        if parts is None:
            properties = written(self.properties, "PUBLISH", "server") if version is _V5 else b""
            parts = text(self.topic), properties
            if self._parts is None:
                self._parts = {}
            self._parts[version] = parts
        return parts

    def _packet(
        self, qos: QoS, retain: bool, dup: bool, packet_id: int, identifiers: tuple[int, ...], now: float
    ) -> Publish:
        # Rounded up: what has not expired must not be told as expired, and what did not wait as shortened.
        left = None if self.expires is None else max(0, ceil(self.expires - now))
        properties = self.properties.replaced(message_expiry=left, subscription_identifiers=identifiers)
        return Publish(self.topic, self.payload, qos, retain, dup, packet_id, properties)


def octets_held(topic: str, payload: bytes, properties: Properties) -> int:
    """
    Measure what a message takes in memory, about.

    Args:
        topic: its topic.
        payload: its octets.
        properties: what it has.

    Returns:
        Octets: the values, the objects that hold them, and the forms in which topic and properties are sent.
    """
    octets = _OBJECT + 3 * sys.getsizeof(topic) + len(payload)
    if not properties:
        return octets
    for name, value in properties.user:
        octets += _PAIR + sys.getsizeof(name) + sys.getsizeof(value) + len(name) + len(value)
    for text_or_octets in (properties.content_type, properties.response_topic, properties.correlation_data):
        octets += 0 if text_or_octets is None else 2 * sys.getsizeof(text_or_octets)
    return octets + _PROPERTIES


def _with_alias(octets: bytes, alias: int, named: bool) -> bytes:
    begin = 2
    while octets[begin - 1] >= 0x80:
        begin += 1
    end = begin + 2 + (octets[begin] << 8 | octets[begin + 1])
    # With QoS 1 and 2 the packet identifier stands between topic and properties.
    behind = end + 2 if octets[0] & _QOS else end
    size, rest = octets[behind], behind + 1
    if size >= 0x80:
        cursor = Cursor("PUBLISH", octets, behind, len(octets))
        size, rest = cursor.variable(), cursor.position
    head = octets[begin:behind] if named else _NO_TOPIC + octets[end:behind]
    added = variable(size + 3) + _ALIAS + alias.to_bytes(2, "big")
    length = variable(len(head) + len(added) + len(octets) - rest)
    return b"".join((octets[:1], length, head, added, octets[rest:]))

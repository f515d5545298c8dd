"""
One application message and its encoded PUBLISH packets.

A packet that is the same for many receivers is encoded once and shared. Does not depend on the receivers.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from svc.wire.mqtt import Properties, Publish, QoS, Version, encode
from svc.wire.mqtt.primitives import Cursor, encode_text, encode_variable
from svc.wire.mqtt.properties import NO_PROPERTIES, encode_properties

#: Access to a member of an enumeration is a function call each time, which is measurable for each delivery.
_V5: Final = Version.V5
#: The bits of the fixed header that hold the quality of service.
_QOS: Final = 0x06
_NO_TOPIC: Final = b"\x00\x00"
#: Octets of the objects of a message and its delivery, of its properties, and of one user property; measured.
_OBJECT: Final = 640
_PROPERTIES: Final = 256
_PAIR: Final = 80
#: The identifier of the property Topic Alias.
_ALIAS: Final = b"\x23"


@dataclass(slots=True, eq=False)
class Message:
    """An application message as the broker stores it."""

    #: Its topic name; aliases are resolved.
    topic: str
    payload: bytes
    #: The quality of service that it was published with.
    qos: QoS = 0
    retain: bool = False
    #: Those that every receiver gets unchanged [MQTT-3.3.2-4, -15, -16, -17, -18, -20].
    properties: Properties = NO_PROPERTIES
    #: The client identifier of its publisher, for No Local.
    publisher: str = ""
    #: When it expires, in seconds since 1970 UTC; None is never.
    expires: float | None = None
    #: Its row in the journal; 0 while it has none.
    number: int = 0
    #: References to that row; maintained by the journal.
    references: int = 0
    #: Whose room it takes while it is retained, see :attr:`svc.broker.access.Principal.owner`; empty for the broker.
    owner: str = ""
    _parts: dict[Version, tuple[bytes, bytes]] | None = field(default=None, init=False, repr=False)
    #: Whole packets with QoS 0.
    _packets: dict[tuple[Version, bool], bytes] | None = field(default=None, init=False, repr=False)
    _aliased: tuple[bytes, int, bool, bytes] | None = field(default=None, init=False, repr=False)
    _size: int = field(default=0, init=False, repr=False)
    #: Whether whole packets are no longer kept.
    _published: bool = field(default=False, init=False, repr=False)

    @classmethod
    def from_publish(cls, packet: Publish, topic: str, publisher: str, now: float, owner: str = "") -> Message:
        """
        Make the message of a PUBLISH packet.

        The properties that concern the publisher's connection only (alias, expiry interval, will delay) are left out.

        Args:
            packet: the packet.
            topic: its topic name, the alias resolved.
            publisher: the client identifier.
            now: seconds since 1970 UTC.
            owner: of the publisher's session.
        """
        properties = packet.properties
        expires = None
        if properties is not NO_PROPERTIES:
            if properties.message_expiry is not None:
                expires = now + properties.message_expiry
            if (properties.topic_alias, properties.message_expiry, properties.will_delay) != (None, None, None):
                properties = properties.replace(topic_alias=None, message_expiry=None, will_delay=None)
        return cls(topic, packet.payload, packet.qos, packet.retain, properties, publisher, expires, owner=owner)

    @property
    def size(self) -> int:
        """Approximate octets of memory that it takes while it is queued or retained."""
        if not self._size:
            self._size = memory_size(self.topic, self.payload, self.properties)
        return self._size

    def drop_packets(self) -> None:
        """Drop the packets that receivers share, after it was published to all that are connected."""
        self._published = True
        self._packets = self._aliased = None

    def expired(self, now: float) -> bool:
        """Whether its expiry interval has passed; ``now`` is in seconds since 1970 UTC."""
        return self.expires is not None and now >= self.expires

    def encoded(
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
        Encode PUBLISH for one receiver.

        Args:
            version: the protocol level of the receiver.
            qos: the quality of service of this delivery.
            retain: the retain flag of this delivery.
            dup: whether it may have been sent before.
            packet_id: with QoS above 0.
            identifiers: those of the receiver's subscriptions.
            now: seconds since 1970 UTC; the remaining expiry interval is written [MQTT-3.3.2-6].
        """
        if version is _V5 and (identifiers or self.expires is not None):
            return encode(self._packet(qos, retain, dup, packet_id, identifiers, now), version, "server")
        if not qos:
            packet = None if self._packets is None else self._packets.get((version, retain))
            return self._encode_qos0(version, retain) if packet is None else packet
        head, properties = self._encode_parts(version)
        payload = self.payload
        length = encode_variable(len(head) + 2 + len(properties) + len(payload))
        first = bytes((0x30 | dup << 3 | qos << 1 | retain,))
        return b"".join((first, length, head, packet_id.to_bytes(2, "big"), properties, payload))

    def with_alias(self, octets: bytes, alias: int, *, with_topic: bool) -> bytes:
        """
        Insert a topic alias into a packet (section 3.3.2.3.4).

        Args:
            octets: what :meth:`encoded` returned for a receiver of MQTT 5.0.
            alias: 1 to 65,535, of the receiver's connection.
            with_topic: False where the alias is assigned already, so that the topic is left out.

        Returns:
            The packet; receivers of the same packet with the same alias share it.
        """
        last = self._aliased
        if last is not None and last[0] is octets and last[1] == alias and last[2] is with_topic:
            return last[3]
        made = _with_alias(octets, alias, with_topic)
        if not octets[0] & _QOS and not self._published:
            self._aliased = octets, alias, with_topic, made
        return made

    def _encode_qos0(self, version: Version, retain: bool) -> bytes:
        head, properties = self._encode_parts(version)
        payload = self.payload
        length = encode_variable(len(head) + len(properties) + len(payload))
        octets = b"".join((bytes((0x30 | retain,)), length, head, properties, payload))
        if not self._published:
            if self._packets is None:
                self._packets = {}
            self._packets[version, retain] = octets
        return octets

    def _encode_parts(self, version: Version) -> tuple[bytes, bytes]:
        """Encode topic and properties, which come before and after the packet identifier."""
        parts = None if self._parts is None else self._parts.get(version)
        if parts is None:
            properties = encode_properties(self.properties, "PUBLISH", "server") if version is _V5 else b""
            parts = encode_text(self.topic), properties
            if self._parts is None:
                self._parts = {}
            self._parts[version] = parts
        return parts

    def _packet(
        self, qos: QoS, retain: bool, dup: bool, packet_id: int, identifiers: tuple[int, ...], now: float
    ) -> Publish:
        # Rounded up: a message that has not expired must not be sent as expired, nor one that did not wait as
        # shortened. A repetition may have expired, and must not say 0, which some receivers take for no expiry.
        left = None if self.expires is None else max(1, ceil(self.expires - now))
        properties = self.properties.replace(message_expiry=left, subscription_identifiers=identifiers)
        return Publish(self.topic, self.payload, qos, retain, dup, packet_id, properties)


def memory_size(topic: str, payload: bytes, properties: Properties) -> int:
    """
    Estimate the octets of memory that a message takes.

    These are the values, the objects that contain them, and the encoded topic and properties.
    """
    octets = _OBJECT + 3 * sys.getsizeof(topic) + len(payload)
    if not properties:
        return octets
    for name, value in properties.user:
        octets += _PAIR + sys.getsizeof(name) + sys.getsizeof(value) + len(name) + len(value)
    for text_or_octets in (properties.content_type, properties.response_topic, properties.correlation_data):
        octets += 0 if text_or_octets is None else 2 * sys.getsizeof(text_or_octets)
    return octets + _PROPERTIES


def _with_alias(octets: bytes, alias: int, with_topic: bool) -> bytes:
    begin = 2
    while octets[begin - 1] >= 0x80:
        begin += 1
    end = begin + 2 + (octets[begin] << 8 | octets[begin + 1])
    # With QoS 1 and 2 the packet identifier is between topic and properties.
    start = end + 2 if octets[0] & _QOS else end
    size, rest = octets[start], start + 1
    if size >= 0x80:
        cursor = Cursor("PUBLISH", octets, start, len(octets))
        size, rest = cursor.variable(), cursor.position
    head = octets[begin:start] if with_topic else _NO_TOPIC + octets[end:start]
    added = encode_variable(size + 3) + _ALIAS + alias.to_bytes(2, "big")
    length = encode_variable(len(head) + len(added) + len(octets) - rest)
    return b"".join((octets[:1], length, head, added, octets[rest:]))

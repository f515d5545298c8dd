"""
The numbers of MQTT: protocol levels, packet types, return and reason codes, and which packet may carry which.

MQTT 3.1.1 sections 2.2.1, 3.2.2.3, 3.9.3; MQTT 5.0 sections 2.1.2, 2.4.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final, Literal

#: Who sent a packet: some packets, codes and properties are allowed for one side only.
Sender = Literal["client", "server"]


@unique
class Version(IntEnum):
    """A protocol level, as CONNECT names it."""

    V311 = 4
    V5 = 5


@unique
class PacketType(IntEnum):
    """The upper four bits of a packet's first octet."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


#: The connect flags (section 3.1.2); bits 3 and 4 are the QoS of the will.
FLAG_RESERVED: Final = 0x01
FLAG_CLEAN: Final = 0x02
FLAG_WILL: Final = 0x04
FLAG_WILL_RETAIN: Final = 0x20
FLAG_PASSWORD: Final = 0x40
FLAG_USERNAME: Final = 0x80


@unique
class ReturnCode(IntEnum):
    """The return codes of CONNACK in MQTT 3.1.1 (section 3.2.2.3)."""

    ACCEPTED = 0
    UNACCEPTABLE_PROTOCOL_VERSION = 1
    IDENTIFIER_REJECTED = 2
    SERVER_UNAVAILABLE = 3
    BAD_USER_NAME_OR_PASSWORD = 4
    NOT_AUTHORIZED = 5


@unique
class ReasonCode(IntEnum):
    """
    Reason codes of MQTT 5.0 (table 2-6); below 0x80 is success.

    0x00 is also "normal disconnection" and "granted QoS 0".
    """

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


#: The return code of SUBACK in MQTT 3.1.1 for a refused subscription.
SUBSCRIPTION_REFUSED: Final = 0x80

_PUBLISH_REASONS: Final = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
_RELEASE_REASONS: Final = frozenset({0x00, 0x92})

#: The reason codes that each packet of MQTT 5.0 may carry (table 2-6 and the section of each packet).
REASONS: Final[dict[PacketType, frozenset[int]]] = {
    PacketType.CONNACK: frozenset(
        {0x00, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F} | set(range(0x80, 0x8B)) | {0x8C}
    ),
    PacketType.PUBACK: _PUBLISH_REASONS,
    PacketType.PUBREC: _PUBLISH_REASONS,
    PacketType.PUBREL: _RELEASE_REASONS,
    PacketType.PUBCOMP: _RELEASE_REASONS,
    PacketType.SUBACK: frozenset({0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}),
    PacketType.UNSUBACK: frozenset({0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91}),
}

_BOTH_DISCONNECT: Final = frozenset({0x00, 0x80, 0x81, 0x82, 0x83, 0x90, *range(0x93, 0x9A)})

#: The reason codes of DISCONNECT by its sender (section 3.14.2.1); 0x8C is in table 2-6 only.
DISCONNECT_REASONS: Final[dict[Sender, frozenset[int]]] = {
    "client": _BOTH_DISCONNECT | {0x04},
    "server": _BOTH_DISCONNECT | {0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, *range(0x9A, 0xA3)},
}

#: The reason codes of AUTH by its sender (section 3.15.2.1).
AUTH_REASONS: Final[dict[Sender, frozenset[int]]] = {
    "client": frozenset({0x18, 0x19}),
    "server": frozenset({0x00, 0x18}),
}

#: The packets that each side may send (section 2.1.2); AUTH and DISCONNECT of a server exist in MQTT 5.0 only.
SENT_BY: Final[dict[Sender, frozenset[PacketType]]] = {
    "client": frozenset(PacketType) - {PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP},
    "server": frozenset(PacketType)
    - {PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.PINGREQ},
}

#: The packets whose first octet carries the flags 0010 (section 2.1.3).
FLAGS_0010: Final = frozenset({PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE})

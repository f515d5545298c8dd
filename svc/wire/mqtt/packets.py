"""
The control packets as values (MQTT 3.1.1 and 5.0, chapter 3), one class per packet for both versions.

A field that MQTT 3.1.1 does not have is neutral there: no properties, reason code 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from svc.wire.mqtt.codes import PacketType, Version
from svc.wire.mqtt.properties import NO_PROPERTIES, Properties

QoS = Literal[0, 1, 2]


@dataclass(slots=True)
class Will:
    """The message that the server publishes when a connection ends without a DISCONNECT (section 3.1.2.5)."""

    topic: str
    payload: bytes
    qos: QoS = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Connect:
    """CONNECT (section 3.1); ``clean_start`` is "clean session" in MQTT 3.1.1, ``keep_alive`` is in seconds."""

    client_id: str
    version: Version = Version.V5
    clean_start: bool = True
    keep_alive: int = 0
    will: Will | None = None
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    properties: Properties = NO_PROPERTIES
    type: Literal[PacketType.CONNECT] = field(default=PacketType.CONNECT, init=False, repr=False)


@dataclass(slots=True)
class Connack:
    """CONNACK (section 3.2): ``code`` is a return code of MQTT 3.1.1 or a reason code of MQTT 5.0."""

    session_present: bool = False
    code: int = 0
    properties: Properties = NO_PROPERTIES
    type: Literal[PacketType.CONNACK] = field(default=PacketType.CONNACK, init=False, repr=False)


@dataclass(slots=True)
class Publish:
    """PUBLISH (section 3.3); ``topic`` is empty where an alias replaces it, ``packet_id`` is 0 with QoS 0."""

    topic: str
    payload: bytes
    qos: QoS = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NO_PROPERTIES
    type: Literal[PacketType.PUBLISH] = field(default=PacketType.PUBLISH, init=False, repr=False)


@dataclass(slots=True)
class Acknowledgement:
    """PUBACK, PUBREC, PUBREL or PUBCOMP (sections 3.4 to 3.7)."""

    type: Literal[PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP]
    packet_id: int
    code: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Subscription:
    """
    One topic filter of SUBSCRIBE with its options (section 3.8.3.1).

    ``retain_handling``: 0 to send retained messages, 1 only for a new subscription, 2 never.
    """

    filter: str
    qos: QoS = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: Literal[0, 1, 2] = 0


@dataclass(slots=True)
class Subscribe:
    """SUBSCRIBE (section 3.8): ``subscriptions`` in order, at least one."""

    packet_id: int
    subscriptions: list[Subscription]
    properties: Properties = NO_PROPERTIES
    type: Literal[PacketType.SUBSCRIBE] = field(default=PacketType.SUBSCRIBE, init=False, repr=False)


@dataclass(slots=True)
class Suback:
    """SUBACK (section 3.9): ``codes`` one for each subscription, in order."""

    packet_id: int
    codes: list[int]
    properties: Properties = NO_PROPERTIES
    type: Literal[PacketType.SUBACK] = field(default=PacketType.SUBACK, init=False, repr=False)


@dataclass(slots=True)
class Unsubscribe:
    """UNSUBSCRIBE (section 3.10): ``filters`` in order, at least one."""

    packet_id: int
    filters: list[str]
    properties: Properties = NO_PROPERTIES
    type: Literal[PacketType.UNSUBSCRIBE] = field(default=PacketType.UNSUBSCRIBE, init=False, repr=False)


@dataclass(slots=True)
class Unsuback:
    """UNSUBACK (section 3.11): ``codes`` one for each filter in MQTT 5.0, none in MQTT 3.1.1."""

    packet_id: int
    codes: list[int] = field(default_factory=list)
    properties: Properties = NO_PROPERTIES
    type: Literal[PacketType.UNSUBACK] = field(default=PacketType.UNSUBACK, init=False, repr=False)


@dataclass(frozen=True, slots=True)
class Pingreq:
    """PINGREQ (section 3.12)."""

    type: Literal[PacketType.PINGREQ] = field(default=PacketType.PINGREQ, init=False, repr=False)


@dataclass(frozen=True, slots=True)
class Pingresp:
    """PINGRESP (section 3.13)."""

    type: Literal[PacketType.PINGRESP] = field(default=PacketType.PINGRESP, init=False, repr=False)


@dataclass(slots=True)
class Disconnect:
    """DISCONNECT (section 3.14): ``code`` and properties in MQTT 5.0 only."""

    code: int = 0
    properties: Properties = NO_PROPERTIES
    type: Literal[PacketType.DISCONNECT] = field(default=PacketType.DISCONNECT, init=False, repr=False)


@dataclass(slots=True)
class Auth:
    """AUTH (section 3.15), MQTT 5.0 only."""

    code: int = 0
    properties: Properties = NO_PROPERTIES
    type: Literal[PacketType.AUTH] = field(default=PacketType.AUTH, init=False, repr=False)


Packet = (
    Connect
    | Connack
    | Publish
    | Acknowledgement
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)

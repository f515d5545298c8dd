"""
CONNECT, which says what a connection will be (section 3.1 of both standards).

The order of its judgements is the order of its octets, so that a client of another version is told so before anything
else of it is read.
"""

from __future__ import annotations

from typing import Final, cast

from svc.wire.mqtt.codes import Version
from svc.wire.mqtt.errors import ClientIdInvalid, VersionUnsupported
from svc.wire.mqtt.packets import Connect, QoS, Will
from svc.wire.mqtt.primitives import binary, text
from svc.wire.mqtt.properties import written
from svc.wire.mqtt.reading import Reading

PROTOCOL_NAME: Final = b"MQTT"
_VERSIONS: Final[dict[int, Version]] = {version.value: version for version in Version}

_RESERVED: Final = 0x01
_CLEAN: Final = 0x02
_WILL: Final = 0x04
_WILL_RETAIN: Final = 0x20
_PASSWORD: Final = 0x40
_USERNAME: Final = 0x80


def read_connect(reading: Reading) -> Connect:
    """
    Read CONNECT.

    Args:
        reading: stands at its protocol name; its ``v5`` is set on the way.

    Returns:
        The packet.

    Raises:
        VersionUnsupported: protocol name or level is another [MQTT-3.1.2-1, MQTT-3.1.2-2].
        ClientIdInvalid: MQTT 3.1.1 without identifier and clean session [MQTT-3.1.3-8].
        MqttError: anything else that CONNECT must not be.
    """
    cursor = reading.cursor
    if cursor.binary() != PROTOCOL_NAME:
        raise VersionUnsupported
    version = _VERSIONS.get(cursor.u8())
    if version is None:
        raise VersionUnsupported
    reading.v5 = version is Version.V5
    flags = cursor.u8()
    _judge_flags(reading, flags)
    keep_alive = cursor.u16()
    properties = reading.properties("CONNECT")
    client_id = cursor.text()
    clean = flags & _CLEAN != 0
    if not client_id and not clean and not reading.v5:
        raise ClientIdInvalid
    will = _will(reading, flags) if flags & _WILL else None
    username = cursor.text() if flags & _USERNAME else None
    password = cursor.binary() if flags & _PASSWORD else None
    return Connect(client_id, version, clean, keep_alive, will, username, password, properties)


def _judge_flags(reading: Reading, flags: int) -> None:
    malformed = reading.cursor.malformed
    if flags & _RESERVED:
        raise malformed("the reserved connect flag is set")
    if flags >> 3 & 3 == 3:
        raise malformed("the QoS of its will is 3")
    if not flags & _WILL and flags & (_WILL_RETAIN | 0x18):
        raise malformed("it has flags of a will and no will")
    if not reading.v5 and flags & _PASSWORD and not flags & _USERNAME:
        raise malformed("it has a password and no user name")


def _will(reading: Reading, flags: int) -> Will:
    properties = reading.properties("WILL")
    topic = reading.topic_name()
    payload = reading.cursor.binary()
    return Will(topic, payload, cast(QoS, flags >> 3 & 3), flags & _WILL_RETAIN != 0, properties)


def write_connect(packet: Connect) -> bytes:
    """
    Write the body of CONNECT.

    Args:
        packet: what to write.

    Returns:
        Its octets without the fixed header.

    Raises:
        Unencodable: its properties are not allowed.
        ValueError: a text or number does not fit its place.
    """
    v5 = packet.version is Version.V5
    flags = _CLEAN if packet.clean_start else 0
    will = packet.will
    parts: list[bytes] = []
    if will is not None:
        flags |= _WILL | will.qos << 3 | (_WILL_RETAIN if will.retain else 0)
        parts += [written(will.properties, "WILL", "client")] if v5 else []
        parts += [text(will.topic), binary(will.payload)]
    if packet.username is not None:
        flags |= _USERNAME
        parts.append(text(packet.username))
    if packet.password is not None:
        flags |= _PASSWORD
        parts.append(binary(packet.password))
    head = binary(PROTOCOL_NAME) + bytes((packet.version, flags)) + packet.keep_alive.to_bytes(2, "big")
    if v5:
        head += written(packet.properties, "CONNECT", "client")
    return head + text(packet.client_id) + b"".join(parts)

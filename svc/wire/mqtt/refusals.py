"""What a server's refusal says: its words, and whether only the version of MQTT was refused."""

from __future__ import annotations

from typing import Final

from svc.wire.mqtt.codes import PacketType, ReasonCode, ReturnCode
from svc.wire.mqtt.properties import Properties

#: CONNACK of MQTT 3.1.1 with "unacceptable protocol version", which servers of that version send to a client of MQTT
#: 5.0, whose decoder refuses it: CONNACK of MQTT 5.0 has properties.
OLDER_REFUSAL: Final = bytes((PacketType.CONNACK << 4, 2, 0, ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION))


def refusal_text(codes: type[ReasonCode | ReturnCode], code: int, properties: Properties) -> str:
    """Return a refusal in words: the standard's name of its code, and the text that the server adds."""
    name = codes(code).name.lower().replace("_", " ")
    text = f": {properties.reason_string}" if properties.reason_string else ""
    return f"{name} (0x{code:02x}){text}"

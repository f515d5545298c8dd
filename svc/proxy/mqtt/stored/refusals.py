"""What becomes of a message that the next hop refuses, by its reason code: the one table of it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from svc.wire.mqtt import ReasonCode


class Refusal(Enum):
    """Whether the same message may be accepted later."""

    #: It is kept at its place and sent again after a pause.
    PASSES = auto()
    #: As before, with another packet identifier.
    RENUMBERED = auto()
    #: It would be refused again: it makes room for those behind it.
    LASTS = auto()


#: The codes of PUBACK and PUBREC (MQTT 5.0, sections 3.4.2.1 and 3.5.2.1).
OF_MESSAGES: Final[dict[int, Refusal]] = {
    ReasonCode.UNSPECIFIED_ERROR: Refusal.PASSES,
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: Refusal.PASSES,
    ReasonCode.QUOTA_EXCEEDED: Refusal.PASSES,
    ReasonCode.PACKET_IDENTIFIER_IN_USE: Refusal.RENUMBERED,
    ReasonCode.NOT_AUTHORIZED: Refusal.LASTS,
    ReasonCode.TOPIC_NAME_INVALID: Refusal.LASTS,
    ReasonCode.PAYLOAD_FORMAT_INVALID: Refusal.LASTS,
}
#: Those of DISCONNECT that are about a message, and neither about the client nor about the broker (section 3.14.2.1).
_OF_CONNECTIONS: Final = frozenset(
    {
        ReasonCode.TOPIC_NAME_INVALID,
        ReasonCode.PACKET_TOO_LARGE,
        ReasonCode.PAYLOAD_FORMAT_INVALID,
        ReasonCode.RETAIN_NOT_SUPPORTED,
        ReasonCode.QOS_NOT_SUPPORTED,
    }
)


def refusal(code: int) -> Refusal | None:
    """What a reason code of PUBACK or PUBREC means; None is success."""
    return None if code < ReasonCode.UNSPECIFIED_ERROR else OF_MESSAGES[code]


def closed_for_message(code: int) -> bool:
    """Whether a connection was closed, with this code of DISCONNECT, for a message that would be refused again."""
    return code in _OF_CONNECTIONS

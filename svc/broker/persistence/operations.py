"""
What the journal passes to the writer: tuples of plain values, made on the reactor's thread.

Every operation states what is, not what changes, so that a group which may have been written can be written again.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final

from svc.broker.journal import Delivery, SessionRecord
from svc.broker.message import Message
from svc.sqlite.operations import Parameters
from svc.wire.mqtt import Subscription
from svc.wire.mqtt.properties import encode_properties


@unique
class Kind(IntEnum):
    """What an operation does; its parameters are those of the statement of the same name in ``writer``."""

    MESSAGE = 0
    MESSAGE_OVER = 1
    DELIVERY = 2
    DELIVERY_CHANGED = 3
    DELIVERY_OVER = 4
    SESSION = 5
    SESSION_OVER = 6
    SUBSCRIBED = 7
    UNSUBSCRIBED = 8
    RECEIVED = 9
    RELEASED = 10
    RETAINED = 11
    UNRETAINED = 12


_NO_WILL: Final[Parameters] = (None, None, None, None, None)


def session_parameters(record: SessionRecord) -> Parameters:
    """The parameters of ``SESSION``."""
    will = record.will
    last = _NO_WILL
    if will is not None:
        properties = encode_properties(will.properties, "WILL", "client")
        last = (will.topic, will.payload, will.qos, int(will.retain), properties)
    return (record.client_id, record.owner, int(record.version), record.expiry, record.ended, *last, record.will_due)


def subscription_parameters(client_id: str, subscription: Subscription, identifier: int | None) -> Parameters:
    """The parameters of ``SUBSCRIBED``."""
    return (
        client_id,
        subscription.filter,
        subscription.qos,
        int(subscription.no_local),
        int(subscription.retain_as_published),
        subscription.retain_handling,
        identifier,
    )


def message_parameters(message: Message) -> Parameters:
    """The parameters of ``MESSAGE``."""
    return (
        message.number,
        message.topic,
        message.payload,
        message.qos,
        int(message.retain),
        encode_properties(message.properties, "PUBLISH", "client"),
        message.publisher,
        message.expires,
    )


def delivery_parameters(client_id: str, delivery: Delivery) -> Parameters:
    """The parameters of ``DELIVERY``."""
    return (
        delivery.number,
        client_id,
        delivery.message.number,
        delivery.qos,
        int(delivery.retain),
        " ".join(map(str, delivery.identifiers)),
        int(delivery.stage),
        delivery.packet_id,
    )

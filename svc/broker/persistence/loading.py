"""Reads the content of the broker's database at a start; blocks, and reports progress after each slice of rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from sys import intern
from typing import Any, Final

from svc.broker.journal import Delivery, DeliveryStage, RecoveredSession, RecoveredState, SessionRecord
from svc.broker.message import Message
from svc.errors import SvcError
from svc.wire.mqtt import Properties, Subscription, Version, Will
from svc.wire.mqtt.primitives import Cursor
from svc.wire.mqtt.properties import NO_PROPERTIES, PropertyOwner, read_properties

#: Properties of one stored packet; packets of clients have a lower limit.
PROPERTIES: Final = 100_000
#: Rows between two reports of progress.
SLICE: Final = 1000

_STAGES: Final = {int(each): each for each in DeliveryStage}
#: The encoding of no properties.
_NOTHING: Final = b"\x00"

#: Called after each slice; what it raises ends the reading.
Progressed = Callable[[], None]


class Unreadable(Exception):
    """The rows contradict each other or hold what this program never wrote."""


@dataclass(frozen=True, slots=True)
class Found:
    """The content of the database, with the highest numbers of messages and deliveries."""

    recovered: RecoveredState
    last_message: int
    last_delivery: int


def load(connection: sqlite3.Connection, progressed: Progressed) -> Found:
    """
    Read everything, and count the references of messages.

    Raises:
        Unreadable: the rows are not what this program writes.
        sqlite3.Error: the database refuses.
    """
    try:
        return _loaded(connection, progressed)
    except (LookupError, ValueError, TypeError, AttributeError, SvcError) as error:
        raise Unreadable(f"{type(error).__name__} at the start") from error


def _loaded(connection: sqlite3.Connection, progressed: Progressed) -> Found:
    def rows(sql: str) -> Iterator[Any]:
        cursor = connection.execute(sql)
        while found := cursor.fetchmany(SLICE):
            progressed()
            yield from found

    messages = {row[0]: _message(row) for row in rows("SELECT * FROM message")}
    sessions = {row[0]: RecoveredSession(_record(row)) for row in rows("SELECT * FROM session ORDER BY rowid")}
    for client_id, topic_filter, *options, identifier in rows("SELECT * FROM subscription"):
        qos, no_local, as_published, handling = options
        subscription = Subscription(topic_filter, qos, bool(no_local), bool(as_published), handling)
        sessions[client_id].subscriptions.append((subscription, identifier))
    for client_id, packet_id in rows("SELECT * FROM received"):
        sessions[client_id].received.append(packet_id)
    last_delivery = 0
    for number, client_id, message, *rest in rows("SELECT * FROM delivery ORDER BY number"):
        sessions[client_id].deliveries.append(_delivery(number, _referred(messages[message]), *rest))
        last_delivery = number
    retained = []
    for _topic, message, owner in rows("SELECT * FROM retained"):
        # Messages of one owner share one string.
        messages[message].owner = intern(owner)
        retained.append(_referred(messages[message]))
    if not all(each.references for each in messages.values()):
        raise LookupError("a message that nothing refers to")
    return Found(RecoveredState(list(sessions.values()), retained), max(messages, default=0), last_delivery)


def _referred(message: Message) -> Message:
    message.references += 1
    return message


def _delivery(
    number: int, message: Message, qos: Any, retain: Any, identifiers: str, stage: int, packet_id: int
) -> Delivery:
    found = tuple(map(int, identifiers.split())) if identifiers != "" else ()
    return Delivery(message, qos, bool(retain), found, _STAGES[stage], packet_id, number)


def _message(row: tuple[object, ...]) -> Message:
    number, topic, payload, qos, retain, properties, publisher, expires = row
    found = _properties(properties, "PUBLISH")
    return Message(topic, payload, qos, bool(retain), found, publisher, expires, number)  # type: ignore[arg-type]


def _record(row: tuple[object, ...]) -> SessionRecord:
    client_id, owner, version, expiry, ended, topic, payload, qos, retain, properties, due = row
    will = None
    if topic is not None:
        will = Will(topic, payload, qos, bool(retain), _properties(properties, "WILL"))  # type: ignore[arg-type]
    level = Version(version)  # type: ignore[arg-type]
    return SessionRecord(client_id, owner, level, expiry, ended, will, due)  # type: ignore[arg-type]


def _properties(octets: object, place: PropertyOwner) -> Properties:
    if octets == _NOTHING:
        return NO_PROPERTIES
    if not isinstance(octets, bytes):
        raise TypeError("no octets")
    return read_properties(Cursor(place, octets, 0, len(octets)), place, "client", PROPERTIES)

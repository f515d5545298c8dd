"""What a start finds in the broker's database."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from svc.broker.journal import Delivery, Remains, Restored, SessionRecord, Stage
from svc.broker.message import Message
from svc.errors import SvcError
from svc.wire.mqtt import Properties, Subscription, Version, Will
from svc.wire.mqtt.primitives import Cursor
from svc.wire.mqtt.properties import Place, read

#: Properties of one stored packet; what was taken in kept a lower limit.
PROPERTIES = 100_000


class Unreadable(Exception):
    """The rows contradict each other or hold what this program never wrote."""


@dataclass(frozen=True, slots=True)
class Found:
    """
    What there was.

    Args:
        remains: for the core.
        last_message: the highest number of a message.
        last_delivery: the highest number of a delivery.
    """

    remains: Remains
    last_message: int
    last_delivery: int


def load(connection: sqlite3.Connection) -> Found:
    """
    Read everything.

    Args:
        connection: to the database.

    Returns:
        Sessions and retained messages; the references of messages are counted.

    Raises:
        Unreadable: the rows are not what this program writes.
        sqlite3.Error: the database refuses.
    """
    try:
        return _loaded(connection)
    except (LookupError, ValueError, TypeError, AttributeError, SvcError) as error:
        raise Unreadable(f"{type(error).__name__} at the start") from error


def _loaded(connection: sqlite3.Connection) -> Found:
    messages = {row[0]: _message(row) for row in connection.execute("SELECT * FROM message")}
    sessions = {row[0]: Restored(_record(row)) for row in connection.execute("SELECT * FROM session ORDER BY rowid")}
    for client_id, topic_filter, *options, identifier in connection.execute("SELECT * FROM subscription"):
        qos, no_local, as_published, handling = options
        subscription = Subscription(topic_filter, qos, bool(no_local), bool(as_published), handling)
        sessions[client_id].subscriptions.append((subscription, identifier))
    for client_id, packet_id in connection.execute("SELECT * FROM received"):
        sessions[client_id].received.append(packet_id)
    last_delivery = 0
    for number, client_id, message, *rest in connection.execute("SELECT * FROM delivery ORDER BY number"):
        qos, retain, identifiers, stage, packet_id = rest
        delivery = Delivery(
            _referred(messages[message]),
            qos,
            bool(retain),
            tuple(map(int, identifiers.split())),
            Stage(stage),
            packet_id,
            number,
        )
        sessions[client_id].deliveries.append(delivery)
        last_delivery = number
    retained = [_referred(messages[message]) for _topic, message in connection.execute("SELECT * FROM retained")]
    if not all(each.references for each in messages.values()):
        raise LookupError("a message that nobody waits for")
    return Found(Remains(list(sessions.values()), retained), max(messages, default=0), last_delivery)


def _referred(message: Message) -> Message:
    message.references += 1
    return message


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


def _properties(octets: object, place: Place) -> Properties:
    if not isinstance(octets, bytes):
        raise TypeError("no octets")
    return read(Cursor(place, octets, 0, len(octets)), place, "client", PROPERTIES)

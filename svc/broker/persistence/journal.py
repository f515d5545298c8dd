"""
The journal that records changes in a database.

Owns the numbers of messages and deliveries, and the references to a message: it is written with the first of them and
deleted with the last. When all of it is durable is the business of :mod:`svc.sqlite.groups`.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from svc.broker.journal import Delivery, SessionRecord
from svc.broker.message import Message, memory_size
from svc.broker.persistence.loading import Found
from svc.broker.persistence.operations import (
    Kind,
    delivery_parameters,
    message_parameters,
    session_parameters,
    subscription_parameters,
)
from svc.sqlite.groups import Groups
from svc.wire.mqtt import Subscription


class SqliteJournal:
    """A :class:`svc.broker.journal.Journal`; made by :func:`svc.broker.persistence.opening.open_journal`."""

    def __init__(self, groups: Groups, found: Found) -> None:
        self._groups = groups
        self._record = groups.record
        self._last_message, self._last_delivery = found.last_message, found.last_delivery
        self._known = {each.record.client_id for each in found.recovered.sessions}
        self._retained = {each.topic: each for each in found.recovered.retained}

    @property
    def accepting(self) -> bool:
        return self._groups.accepting

    @property
    def waiting(self) -> tuple[int, int]:
        """Operations and octets that are not durable yet."""
        return self._groups.waiting

    def when_durable(self, then: Callable[[], None]) -> None:
        self._groups.when_durable(then)

    def close(self) -> Deferred[None]:
        """
        Make durable what waits, where that is possible, and close the database.

        Returns:
            Fires when it is closed, fails with JournalStuck where a hanging disk prevents that; callbacks that still
            wait are not called.
        """
        return self._groups.close()

    def session(self, record: SessionRecord) -> None:
        self._known.add(record.client_id)
        will = record.will
        octets = 0 if will is None else memory_size(will.topic, will.payload, will.properties)
        self._record(Kind.SESSION, session_parameters(record), octets)

    def session_ended(self, client_id: str) -> None:
        if client_id in self._known:
            self._known.discard(client_id)
            self._record(Kind.SESSION_OVER, (client_id,))

    def subscribed(self, client_id: str, subscription: Subscription, identifier: int | None) -> None:
        octets = len(subscription.filter)
        self._record(Kind.SUBSCRIBED, subscription_parameters(client_id, subscription, identifier), octets)

    def unsubscribed(self, client_id: str, topic_filter: str) -> None:
        self._record(Kind.UNSUBSCRIBED, (client_id, topic_filter), len(topic_filter))

    def delivery(self, client_id: str, delivery: Delivery) -> None:
        self._refer(delivery.message)
        self._last_delivery += 1
        delivery.number = self._last_delivery
        self._record(Kind.DELIVERY, delivery_parameters(client_id, delivery))

    def delivery_changed(self, delivery: Delivery) -> None:
        self._record(Kind.DELIVERY_CHANGED, (delivery.number, int(delivery.stage), delivery.packet_id))

    def delivered(self, delivery: Delivery) -> None:
        self._record(Kind.DELIVERY_OVER, (delivery.number,))
        delivery.number = 0
        self._drop(delivery.message)

    def received(self, client_id: str, packet_id: int) -> None:
        self._record(Kind.RECEIVED, (client_id, packet_id))

    def released(self, client_id: str, packet_id: int) -> None:
        self._record(Kind.RELEASED, (client_id, packet_id))

    def retained(self, message: Message) -> None:
        before = self._retained.get(message.topic)
        self._retained[message.topic] = message
        self._refer(message)
        self._record(Kind.RETAINED, (message.topic, message.number, message.owner), len(message.owner))
        if before is not None:
            self._drop(before)

    def unretained(self, topic: str) -> None:
        message = self._retained.pop(topic, None)
        if message is not None:
            self._record(Kind.UNRETAINED, (topic,), len(topic))
            self._drop(message)

    def _refer(self, message: Message) -> None:
        if not message.number:
            self._last_message += 1
            message.number = self._last_message
            self._record(Kind.MESSAGE, message_parameters(message), message.size)
        message.references += 1

    def _drop(self, message: Message) -> None:
        message.references -= 1
        if not message.references:
            self._record(Kind.MESSAGE_OVER, (message.number,))
            message.number = 0

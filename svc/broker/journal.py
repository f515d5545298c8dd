"""
What must last: the operations that a journal records, and what it gives back after a restart.

The core tells a journal each change of durable state as it happens, and asks to be called when all of it is safe before
anything is acknowledged. What is told within one call from the outside becomes safe as one. ``NoJournal`` keeps nothing
and is always safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from svc.broker.message import Message
from svc.wire.mqtt import QoS, Subscription, Version, Will


class Stage(IntEnum):
    """How far a delivery with QoS 1 or 2 has come (sections 4.3.2 and 4.3.3)."""

    #: Not sent yet.
    QUEUED = 0
    #: PUBLISH was sent, PUBACK or PUBREC is awaited.
    SENT = 1
    #: PUBREL was or will be sent, PUBCOMP is awaited.
    RELEASED = 2


@dataclass(slots=True, eq=False)
class Delivery:
    """
    One message on its way to one session.

    Args:
        message: the message.
        qos: the quality of service of this delivery, 1 or 2.
        retain: the retain flag of this delivery.
        identifiers: those of the session's matching subscriptions.
        stage: how far it has come.
        packet_id: from the stage ``SENT`` on.
        number: its row in the journal; 0 while it has none.
    """

    message: Message
    qos: QoS
    retain: bool
    identifiers: tuple[int, ...] = ()
    stage: Stage = Stage.QUEUED
    packet_id: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """
    What lasts of a session besides its subscriptions and deliveries.

    Args:
        client_id: whose it is.
        owner: who may take it up again; see :attr:`svc.broker.access.Principal.owner`.
        version: the protocol level of its last connection.
        expiry: seconds that it outlives a connection; None is for ever.
        ended: when the last connection ended, in seconds since 1970 UTC; None while one is open.
        will: the will of the open connection, or one that waits for its delay.
        will_due: when a will that waits is published, in seconds since 1970 UTC.
    """

    client_id: str
    owner: str
    version: Version
    expiry: int | None
    ended: float | None = None
    will: Will | None = field(default=None, repr=False)
    will_due: float | None = None


@dataclass(slots=True)
class Restored:
    """
    A session as a journal gives it back.

    Args:
        record: what lasts of it.
        subscriptions: its subscriptions with their identifiers.
        deliveries: what was not acknowledged, in order.
        received: packet identifiers of QoS 2 messages from the client that were not released.
    """

    record: SessionRecord
    subscriptions: list[tuple[Subscription, int | None]] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    received: list[int] = field(default_factory=list)


class Journal(Protocol):
    """Records changes of durable state, in order."""

    @property
    def accepting(self) -> bool:
        """
        Whether it takes more than what ends by itself.

        While it does not, the core begins nothing that would have to be recorded: no message with QoS above 0 or to be
        retained, no subscription, no connection of a session that lasts. What it records all the same, such as
        acknowledgements and ends of connections, is bounded by what is there.
        """

    def safe(self, then: Callable[[], None]) -> None:
        """Call when all that was recorded so far is safe; at once where nothing waits."""

    def session(self, record: SessionRecord) -> None:
        """A session is new or its record changed."""

    def session_ended(self, client_id: str) -> None:
        """A session is over with all that belongs to it."""

    def subscribed(self, client_id: str, subscription: Subscription, identifier: int | None) -> None:
        """A subscription is new or changed."""

    def unsubscribed(self, client_id: str, topic_filter: str) -> None:
        """A subscription is gone."""

    def delivery(self, client_id: str, delivery: Delivery) -> None:
        """A delivery is new: message and delivery get their numbers."""

    def delivery_changed(self, delivery: Delivery) -> None:
        """A delivery has another stage or packet identifier."""

    def delivered(self, delivery: Delivery) -> None:
        """A delivery is over, or its session will not last: it has no number any more."""

    def received(self, client_id: str, packet_id: int) -> None:
        """A QoS 2 message came and is not released."""

    def released(self, client_id: str, packet_id: int) -> None:
        """It was released."""

    def retained(self, message: Message) -> None:
        """A message is the retained one of its topic."""

    def unretained(self, topic: str) -> None:
        """A topic has no retained message any more."""


class NoJournal:
    """A journal that keeps nothing."""

    accepting = True

    def safe(self, then: Callable[[], None]) -> None:
        """Call at once."""
        then()

    def session(self, record: SessionRecord) -> None:
        """Do nothing."""

    def session_ended(self, client_id: str) -> None:
        """Do nothing."""

    def subscribed(self, client_id: str, subscription: Subscription, identifier: int | None) -> None:
        """Do nothing."""

    def unsubscribed(self, client_id: str, topic_filter: str) -> None:
        """Do nothing."""

    def delivery(self, client_id: str, delivery: Delivery) -> None:
        """Do nothing."""

    def delivery_changed(self, delivery: Delivery) -> None:
        """Do nothing."""

    def delivered(self, delivery: Delivery) -> None:
        """Do nothing."""

    def received(self, client_id: str, packet_id: int) -> None:
        """Do nothing."""

    def released(self, client_id: str, packet_id: int) -> None:
        """Do nothing."""

    def retained(self, message: Message) -> None:
        """Do nothing."""

    def unretained(self, topic: str) -> None:
        """Do nothing."""


@dataclass(slots=True)
class Remains:
    """
    All that a journal kept.

    Args:
        sessions: the sessions.
        retained: the retained messages.
    """

    sessions: Sequence[Restored] = ()
    retained: Sequence[Message] = ()

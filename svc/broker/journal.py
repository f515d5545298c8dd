"""
What must survive a restart: the changes that a journal records, and the state that it recovers.

The core passes each change of durable state to the journal as it happens, and registers a callback for when all of it
is durable before it acknowledges anything. Changes made within one call from outside become durable together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from svc.broker.message import Message
from svc.wire.mqtt import QoS, Subscription, Version, Will


class DeliveryStage(IntEnum):
    """The stage of a delivery with QoS 1 or 2 (sections 4.3.2 and 4.3.3)."""

    #: Not sent yet.
    QUEUED = 0
    #: PUBLISH was sent, PUBACK or PUBREC is expected.
    SENT = 1
    #: PUBREL was or will be sent, PUBCOMP is expected.
    RELEASED = 2


@dataclass(slots=True, eq=False)
class Delivery:
    """One message to one session, with QoS 1 or 2."""

    message: Message
    qos: QoS
    retain: bool
    #: Those of the session's matching subscriptions.
    identifiers: tuple[int, ...] = ()
    stage: DeliveryStage = DeliveryStage.QUEUED
    #: Set from the stage ``SENT`` on.
    packet_id: int = 0
    #: Its row in the journal; 0 while it has none.
    number: int = 0


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """The durable part of a session besides its subscriptions and deliveries; times are seconds since 1970 UTC."""

    client_id: str
    #: The identity that may resume it; see :attr:`svc.broker.access.Principal.owner`.
    owner: str
    #: The protocol level of its last connection.
    version: Version
    #: Seconds that it outlives a connection; None is without limit.
    expiry: int | None
    #: When the last connection ended; None while one is open.
    ended: float | None = None
    #: The will of the open connection, or one whose delay has not passed.
    will: Will | None = field(default=None, repr=False)
    #: When a delayed will is published.
    will_due: float | None = None


@dataclass(slots=True)
class RecoveredSession:
    """A session as a journal recovers it."""

    record: SessionRecord
    #: With their subscription identifiers.
    subscriptions: list[tuple[Subscription, int | None]] = field(default_factory=list)
    #: What was not acknowledged, in order.
    deliveries: list[Delivery] = field(default_factory=list)
    #: Packet identifiers of QoS 2 messages from the client that were not released.
    received: list[int] = field(default_factory=list)


@dataclass(slots=True)
class RecoveredState:
    """The state that a journal recovers at a start."""

    sessions: Sequence[RecoveredSession] = ()
    retained: Sequence[Message] = ()


class Journal(Protocol):
    """Records changes of durable state, in order."""

    @property
    def accepting(self) -> bool:
        """
        Whether it accepts changes that create state.

        While it does not, the core begins nothing that would have to be recorded: no message with QoS above 0 or to be
        retained, no subscription, no connection of a persistent session. Changes that it records all the same, such as
        acknowledgements and ends of connections, are bounded by the existing state.
        """

    def when_durable(self, then: Callable[[], None]) -> None:
        """Call when all that was recorded so far is durable; at once where it is."""

    def session(self, record: SessionRecord) -> None:
        """A session is new or its record changed."""

    def session_ended(self, client_id: str) -> None:
        """A session ended with all that belongs to it."""

    def subscribed(self, client_id: str, subscription: Subscription, identifier: int | None) -> None:
        """A subscription is new or changed."""

    def unsubscribed(self, client_id: str, topic_filter: str) -> None:
        """A subscription was removed."""

    def delivery(self, client_id: str, delivery: Delivery) -> None:
        """A delivery is new: the journal sets the numbers of message and delivery."""

    def delivery_changed(self, delivery: Delivery) -> None:
        """A delivery has another stage or packet identifier."""

    def delivered(self, delivery: Delivery) -> None:
        """A delivery is complete, or its session is no longer persistent: its number is cleared."""

    def received(self, client_id: str, packet_id: int) -> None:
        """A QoS 2 message was received and is not released."""

    def released(self, client_id: str, packet_id: int) -> None:
        """A QoS 2 message was released."""

    def retained(self, message: Message) -> None:
        """A message is the retained one of its topic."""

    def unretained(self, topic: str) -> None:
        """A topic has no retained message any more."""


class NoJournal:
    """Records nothing: every change is durable at once."""

    accepting = True

    def when_durable(self, then: Callable[[], None]) -> None:
        """Call at once."""
        then()

    def session(self, record: SessionRecord) -> None: ...

    def session_ended(self, client_id: str) -> None: ...

    def subscribed(self, client_id: str, subscription: Subscription, identifier: int | None) -> None: ...

    def unsubscribed(self, client_id: str, topic_filter: str) -> None: ...

    def delivery(self, client_id: str, delivery: Delivery) -> None: ...

    def delivery_changed(self, delivery: Delivery) -> None: ...

    def delivered(self, delivery: Delivery) -> None: ...

    def received(self, client_id: str, packet_id: int) -> None: ...

    def released(self, client_id: str, packet_id: int) -> None: ...

    def retained(self, message: Message) -> None: ...

    def unretained(self, topic: str) -> None: ...

"""A journal whose commits a test makes by hand."""

from __future__ import annotations

from collections.abc import Callable

from svc.broker.journal import Delivery, NoJournal, SessionRecord
from svc.broker.message import Message
from svc.wire.mqtt import Subscription


class HandJournal(NoJournal):
    """
    Stores what is recorded as text, and is durable when the test commits.

    Attributes:
        recorded: what was recorded, in order.
        waiting: what is called at the next commit.
    """

    def __init__(self) -> None:
        self.accepting = True
        self.recorded: list[str] = []
        self.waiting: list[Callable[[], None]] = []
        self._durable = 0
        self._numbers = 0

    def when_durable(self, then: Callable[[], None]) -> None:
        """Wait, where anything was recorded that is not committed."""
        if self._durable == len(self.recorded):
            then()
        else:
            self.waiting.append(then)

    def commit(self) -> None:
        """Call all that waits; what is recorded by it waits for the next commit."""
        waiting, self.waiting = self.waiting, []
        self._durable = len(self.recorded)
        for then in waiting:
            then()

    def commit_all(self) -> None:
        """Commit until nothing waits."""
        while self.waiting or self._durable < len(self.recorded):
            self.commit()

    def take(self) -> list[str]:
        """Give what was recorded since the last time, and commit it."""
        recorded = list(self.recorded)
        self.commit_all()
        self.recorded.clear()
        self._durable = 0
        return recorded

    def session(self, record: SessionRecord) -> None:
        """Record it."""
        self.recorded.append(f"session {record.client_id} {'ended' if record.ended else 'open'}")

    def session_ended(self, client_id: str) -> None:
        """Record it."""
        self.recorded.append(f"session over {client_id}")

    def subscribed(self, client_id: str, subscription: Subscription, identifier: int | None) -> None:
        """Record it."""
        self.recorded.append(f"subscribed {client_id} {subscription.filter}")

    def unsubscribed(self, client_id: str, topic_filter: str) -> None:
        """Record it."""
        self.recorded.append(f"unsubscribed {client_id} {topic_filter}")

    def delivery(self, client_id: str, delivery: Delivery) -> None:
        """Record it and set its number."""
        self._numbers += 1
        delivery.number = self._numbers
        self.recorded.append(f"delivery {client_id} {delivery.message.topic}")

    def delivery_changed(self, delivery: Delivery) -> None:
        """Record it."""
        self.recorded.append(f"{delivery.stage.name.lower()} {delivery.packet_id}")

    def delivered(self, delivery: Delivery) -> None:
        """Record it."""
        assert delivery.number
        delivery.number = 0
        self.recorded.append(f"delivered {delivery.message.topic}")

    def received(self, client_id: str, packet_id: int) -> None:
        """Record it."""
        self.recorded.append(f"received {client_id} {packet_id}")

    def released(self, client_id: str, packet_id: int) -> None:
        """Record it."""
        self.recorded.append(f"released {client_id} {packet_id}")

    def retained(self, message: Message) -> None:
        """Record it."""
        self.recorded.append(f"retained {message.topic}")

    def unretained(self, topic: str) -> None:
        """Record it."""
        self.recorded.append(f"unretained {topic}")

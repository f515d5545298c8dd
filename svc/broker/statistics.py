"""What a broker counts: plain numbers, read by ``$SYS`` topics and metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Protocol

#: Why a message is not delivered or not retained.
DROPS: Final = ("congested", "expired", "queue_full", "retained_full", "store_refuses", "too_large")
#: What rules of access refuse.
ACTIONS: Final = ("publish", "subscribe")


class SessionObserver(Protocol):
    """Who counts what happens to deliveries."""

    def sent(self, octets: int) -> None:
        """A PUBLISH of this size was sent."""

    def dropped(self, reason: str) -> None:
        """A message was not delivered: ``expired``, ``queue_full``, ``congested``, ``too_large``."""


@dataclass(slots=True)
class Statistics:
    """
    Counts since the start, and what is there now.

    Args:
        received: PUBLISH packets of clients.
        received_octets: octets of their payloads.
        messages_sent: PUBLISH packets to clients.
        octets_sent: octets of these packets.
        drops: messages not delivered, by reason.
        accepted: connections accepted.
        refused: connections refused, by reason.
        denied: what access rules refused, by action (``publish``, ``subscribe``).
        connected: connections that are open.
    """

    received: int = 0
    received_octets: int = 0
    messages_sent: int = 0
    octets_sent: int = 0
    drops: Counter[str] = field(default_factory=Counter)
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    denied: Counter[str] = field(default_factory=Counter)
    connected: int = 0

    def sent(self, octets: int) -> None:
        """
        Count a PUBLISH to a client.

        Args:
            octets: of the packet.
        """
        self.messages_sent += 1
        self.octets_sent += octets

    def dropped(self, reason: str) -> None:
        """
        Count a message that was not delivered.

        Args:
            reason: one word for why.
        """
        self.drops[reason] += 1

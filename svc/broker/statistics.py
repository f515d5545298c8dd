"""Counters of a broker, read by ``$SYS`` topics and metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

#: Why a message is not delivered or not retained.
DROPS: Final = (
    "congested",
    "expired",
    "not_authorized",
    "queue_full",
    "queues_full",
    "retained_full",
    "store_refuses",
    "too_large",
)
#: What access rules refuse.
ACTIONS: Final = ("publish", "subscribe")


@dataclass(slots=True)
class Statistics:
    """Counters since the start, and the number of open connections."""

    #: PUBLISH packets from clients, and the octets of their payloads.
    received: int = 0
    received_octets: int = 0
    #: PUBLISH packets to clients, and the octets of these packets.
    messages_sent: int = 0
    octets_sent: int = 0
    #: Messages not delivered, by reason.
    drops: Counter[str] = field(default_factory=Counter)
    #: Connections accepted.
    accepted: int = 0
    #: Connections refused or ended, by reason.
    refused: Counter[str] = field(default_factory=Counter)
    #: What access rules refused, by action.
    denied: Counter[str] = field(default_factory=Counter)
    #: Connections that are open, from CONNACK on.
    connected: int = 0
    #: Sessions that ended because no access rule applies to their owner any more.
    revoked: int = 0

    def sent(self, octets: int) -> None:
        """Count a PUBLISH packet to a client."""
        self.messages_sent += 1
        self.octets_sent += octets

    def dropped(self, reason: str) -> None:
        """Count a message that was not delivered; the reason is one of :data:`DROPS`."""
        self.drops[reason] += 1

"""The interface of the core to one open connection, and what the connection agreed on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from svc.wire.mqtt import Packet, ReasonCode, Version


@dataclass(frozen=True, slots=True)
class Terms:
    """
    What a client accepts on its connection (section 3.1.2.11).

    Args:
        version: the protocol level.
        receive_maximum: messages with QoS above 0 that may be unacknowledged at once.
        packet: octets of the largest packet; None is no limit.
        aliases: the highest topic alias that it is sent; 0 is none.
    """

    version: Version
    receive_maximum: int = 65_535
    packet: int | None = None
    aliases: int = 0


class Outlet(Protocol):
    """Writes to one client."""

    @property
    def congested(self) -> bool:
        """Whether so much waits to be sent that nothing should be added; :meth:`Session.eased` says when it is over."""

    @property
    def ended(self) -> bool:
        """Whether the connection is over or about to be, so that nothing reaches the client any more."""

    def send(self, packet: Packet) -> None:
        """Write a packet."""

    def write(self, octets: bytes) -> None:
        """Write a packet that was encoded before."""

    def close(self, reason: ReasonCode) -> None:
        """Say why, where the version can, and close."""

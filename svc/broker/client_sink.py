"""The interface of the core to one open connection, and the parameters of its CONNECT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from svc.wire.mqtt import Packet, ReasonCode, Version


@dataclass(frozen=True, slots=True)
class ConnectParameters:
    """What a client accepts on its connection (section 3.1.2.11)."""

    version: Version
    #: Messages with QoS above 0 that may be unacknowledged at once.
    receive_maximum: int = 65_535
    #: Octets of the largest packet; None is no limit.
    packet: int | None = None
    #: The highest topic alias that the client accepts; 0 is none.
    aliases: int = 0


class ClientSink(Protocol):
    """Writes to one client."""

    @property
    def congested(self) -> bool:
        """Whether the transport's buffer is full; :meth:`svc.broker.client.Client.on_writable` is called after that."""

    @property
    def ended(self) -> bool:
        """Whether the connection is closed or being closed, so that the client receives nothing more."""

    def send(self, packet: Packet) -> None:
        """Write a packet."""

    def write(self, octets: bytes) -> None:
        """Write an encoded packet."""

    def close(self, reason: ReasonCode) -> None:
        """Send the reason, where the protocol version can, and close."""

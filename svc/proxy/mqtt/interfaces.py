"""
What meets in an MQTT connection: the session, the two connections that it uses, who decides, and who records.

There are two kinds of session: one passes everything through, the other acknowledges messages itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from svc.errors import SvcError
from svc.notary.level import Level
from svc.pacing.turns import Turns
from svc.policy.rules import MqttAction
from svc.proxy.errors import ProxyError
from svc.telemetry.labels import Cause
from svc.wire.mqtt import Connect, PacketLimits, ReasonCode


@dataclass(frozen=True, slots=True)
class MqttLimits:
    """
    Limits of one session.

    Attributes:
        packet: of one packet.
        client_id: octets of a client identifier.
        subscriptions: topic filters that a client is subscribed to at once.
    """

    packet: PacketLimits
    client_id: int
    subscriptions: int


class RecordDemand(NamedTuple):
    """That a message is to be recorded before it is acknowledged, and how."""

    level: Level
    #: The publisher's, None where it gave none.
    nonce: str | None


class TopicAuthorizer(Protocol):
    """Decides what one client may do; each of the others raises Denied."""

    def named(self, client_id: str) -> None:
        """The client identifier of CONNECT, before anything is decided."""

    def connect(self, packet: Connect) -> None:
        """Decide on a client and count it; ConnectionLimitReached where the listener is full."""

    def reconnect(self, packet: Connect) -> None:
        """Decide on an admitted client again."""

    def publish(self, topic: str) -> Level:
        """Decide on a topic name; returns the level of the messages to it."""

    def subscribe(self, topic_filter: str) -> None:
        """Decide on a topic filter, as the set of the topics that it matches."""


class Forwarding(Protocol):
    """What forwards the stored messages of one listener."""

    def begin(self) -> None:
        """The listener accepts connections."""

    def suspend(self) -> None:
        """The listener has no connections any more."""

    def sweep(self, wall: datetime) -> None:
        """Check the credentials of connections to the peer."""


class SessionEnds(Protocol):
    """The two connections of a session, and where it reports."""

    @property
    def turns(self) -> Turns:
        """How long what one read brought may be handled."""

    def client_waits(self) -> None:
        """Octets of the client wait for a later turn, in which ``client_received`` follows, if only with none."""

    def upstream_waits(self) -> None:
        """The same of the broker, and ``upstream_received``."""

    def open_upstream(self) -> None:
        """Connect to the broker; ``upstream_opened`` or ``upstream_lost`` follows."""

    def write_client(self, octets: bytes) -> None:
        """Send to the client."""

    def write_upstream(self, octets: bytes) -> None:
        """Send to the broker."""

    def hold_client(self, *, held: bool) -> None:
        """Read nothing more of the client, or read it again."""

    def refused(self, error: SvcError, action: MqttAction, topic: str | None) -> None:
        """Count and report what is refused."""

    def close(self, cause: Cause, error: SvcError | None) -> None:
        """Close both connections behind what was sent, and report an error; the session is over."""


class MqttSession(Protocol):
    """
    One client's session.

    Attributes:
        keep_alive: seconds within which the client sends something; 0 without a limit.
    """

    keep_alive: int

    @property
    def connect_received(self) -> bool:
        """Whether the client has sent CONNECT."""

    @property
    def connected(self) -> bool:
        """Whether the client has got CONNACK."""

    @property
    def recording(self) -> bool:
        """Whether responses wait for records."""

    def client_received(self, data: bytes) -> None:
        """Octets of the client, behind those that wait."""

    def client_lost(self) -> None:
        """The client's connection is closed."""

    def upstream_opened(self) -> None:
        """The broker is connected to."""

    def upstream_received(self, data: bytes) -> None:
        """Octets of the broker, behind those that wait."""

    def upstream_lost(self, error: ProxyError | None) -> None:
        """The connection to the broker is closed, or could not be made."""

    def reauthorize(self) -> None:
        """Decide again on all that is open; raises Denied."""

    def end(self, cause: Cause, code: ReasonCode, error: SvcError | None = None, *, will: bool = True) -> None:
        """End the session with a reason for the client; ``will``: whether the broker may publish its will."""

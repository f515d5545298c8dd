"""
What meets in an MQTT connection: the session, the two connections that it uses, who decides, and who records.

There are two kinds of session: one passes everything through, the other acknowledges messages itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from svc.errors import SvcError
from svc.policy.rules import MqttAction
from svc.proxy.errors import ProxyError
from svc.telemetry.labels import Cause
from svc.wire.mqtt import Acknowledgement, Connect, PacketLimits, Publish, ReasonCode

#: Who has acknowledged a message: the broker, or the proxy before that.
AckedBy = Literal["upstream", "middleware"]


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


class TopicAuthorizer(Protocol):
    """Decides what one client may do; each of the others raises Denied."""

    def named(self, client_id: str) -> None:
        """The client identifier of CONNECT, before anything is decided."""

    def connect(self, packet: Connect) -> None:
        """Decide on a client and count it; ConnectionLimitReached where the listener is full."""

    def reconnect(self, packet: Connect) -> None:
        """Decide on an admitted client again."""

    def publish(self, topic: str) -> None:
        """Decide on a topic name."""

    def subscribe(self, topic_filter: str) -> None:
        """Decide on a topic filter, as the set of the topics that it matches."""


class SessionEnds(Protocol):
    """The two connections of a session, and where it reports."""

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


class PublishRecorder(Protocol):
    """Records the messages of one client; a token is whatever it needs to find a message again."""

    def begin(self, publish: Publish, nonce: str | None) -> object:
        """Accept a message, its topic resolved, before it is sent; an SvcError refuses it."""

    def complete(
        self, token: object, response: Acknowledgement | None, acked_by: AckedBy, done: Callable[[object], None]
    ) -> None:
        """
        Record a message and its response, None with QoS 0.

        ``done`` is called with the identifier of the receipt, or None, when what waits for it may be sent. Anything
        else, such as a Failure, ends the session.
        """

    def abandon(self, token: object) -> None:
        """No response will come."""


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
        """Octets of the client."""

    def client_lost(self) -> None:
        """The client's connection is closed."""

    def upstream_opened(self) -> None:
        """The broker is connected to."""

    def upstream_received(self, data: bytes) -> None:
        """Octets of the broker."""

    def upstream_lost(self, error: ProxyError | None) -> None:
        """The connection to the broker is closed, or could not be made."""

    def reauthorize(self) -> None:
        """Decide again on all that is open; raises Denied."""

    def end(self, cause: Cause, code: ReasonCode, error: SvcError | None = None, *, will: bool = True) -> None:
        """End the session with a reason for the client; ``will``: whether the broker may publish its will."""

"""A broker's core with clients in memory: what they send, what they got, and a clock that the test moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from svc.broker.access import AccessRule, Principal, Rules
from svc.broker.client import Client, admit_client, refusal_connack
from svc.broker.errors import BrokerError
from svc.broker.hub import Hub, HubLimits
from svc.broker.journal import Journal
from svc.identity import SpiffeID
from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Connect,
    Decoder,
    Disconnect,
    MqttError,
    Packet,
    PacketRefused,
    PacketType,
    Publish,
    ReasonCode,
    Subscribe,
    Subscription,
    Version,
)
from tests.wire.mqtt.building import encode_checked

ANYTHING = Rules((AccessRule(None, ("#",), ("#", "$SYS/#")),))


class Clock:
    """Seconds since 1970 that a test sets."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self.now = start

    def __call__(self) -> float:
        """The current time."""
        return self.now


class Peer:
    """
    One connection of a client, and its sink on the broker's side.

    What the broker writes is read back by the decoder, so that nothing unreadable passes.
    """

    def __init__(self, rig: Rig, version: Version) -> None:
        self.version = version
        self.got: list[Packet] = []
        self.closed: ReasonCode | None = None
        self.congested = False
        self.client: Client | None = None
        self.error: BrokerError | MqttError | None = None
        self.held: deque[Packet] = deque()
        self._rig = rig
        self._decoder = Decoder("server", version)

    @property
    def reason(self) -> str:
        """The reason of the error that ended the connection, or an empty string."""
        return "" if self.error is None else self.error.reason

    @property
    def ended(self) -> bool:
        """Whether the connection is over."""
        return self.closed is not None

    def send(self, packet: Packet) -> None:
        """Take what the broker sends."""
        self.write(encode_checked(packet, self.version, "server"))

    def write(self, octets: bytes) -> None:
        """Take octets that the broker sends."""
        for event in self._decoder.feed(octets):
            if isinstance(event, PacketRefused):
                raise event.error
            self.got.append(event)

    def close(self, reason: ReasonCode) -> None:
        """Note that the broker ends the connection."""
        self.closed = reason

    def take(self) -> list[Packet]:
        """Give what came since the last time, and what comes in turns."""
        self._rig.take_turns()
        got, self.got = self.got, []
        return got

    def sends(self, *packets: Packet) -> list[Packet]:
        """Send packets; give what is answered. As in the shell an error ends the connection, and what waits is held."""
        self.held.extend(packets)
        return self.continues()

    def continues(self) -> list[Packet]:
        """Have the broker process what is held, as far as it does; give what is answered."""
        while self.held and self.client is not None and self.closed is None:
            packet = self.held.popleft()
            try:
                end = self.client.received(packet)
            except (MqttError, BrokerError) as error:
                self.error = error
                self.closed = error.mqtt_reason
                self.client.connection_lost()
                break
            if isinstance(end, Disconnect):
                self.closed = ReasonCode.SUCCESS
                self.client.connection_lost(with_will=end.code != 0)
            elif end is not None:
                self.held.appendleft(end)
                break
        return self.take()

    def subscribes(self, *filters: str | Subscription, packet_id: int = 1) -> list[Packet]:
        """Subscribe with QoS 2 unless a whole subscription is given."""
        made = [each if isinstance(each, Subscription) else Subscription(each, 2) for each in filters]
        return self.sends(Subscribe(packet_id, made))

    def requests(self, *filters: Any) -> None:
        """Subscribe to filters, the last argument is their QoS; no turn is taken."""
        *wanted, qos = filters
        assert self.client is not None
        self.client.received(Subscribe(1, [Subscription(each, qos) for each in wanted]))

    def acks(self, kind: PacketType, packet_id: int) -> None:
        """Send an acknowledgement; no turn is taken."""
        assert self.client is not None
        self.client.received(Acknowledgement(kind, packet_id))  # type: ignore[arg-type]

    def publishes(
        self, topic: str, payload: bytes = b"x", qos: Any = 0, packet_id: int = 0, **more: Any
    ) -> list[Packet]:
        """Publish one message."""
        return self.sends(Publish(topic, payload, qos, packet_id=packet_id or (7 if qos else 0), **more))

    def answers(self, kind: PacketType, packet_id: int, code: int = 0) -> list[Packet]:
        """Send an acknowledgement."""
        return self.sends(Acknowledgement(kind, packet_id, code))  # type: ignore[arg-type]

    def loses(self) -> None:
        """Lose the connection without a word."""
        if self.client is not None and self.closed is None:
            self.closed = ReasonCode.UNSPECIFIED_ERROR
            self.client.connection_lost()

    @property
    def messages(self) -> list[Publish]:
        """The messages that came and were not taken."""
        return [each for each in self.got if isinstance(each, Publish)]


class Rig:
    """A hub and its clock."""

    def __init__(self, guard: Any = ANYTHING, limits: HubLimits | None = None, journal: Journal | None = None) -> None:
        self.clock = Clock()
        self._names = 0
        self.turns: deque[Callable[[], None]] = deque()
        self.hub = Hub(
            now=self.clock,
            guard=guard,
            random_name=self._name,
            call_soon=self.turns.append,
            limits=limits,
            journal=journal,
        )

    def _name(self) -> str:
        self._names += 1
        return f"auto-{self._names}"

    def connect(
        self,
        client_id: str = "c",
        version: Version = Version.V5,
        *,
        who: str | None = None,
        listener: str = "",
        read_answer: bool = True,
        **more: Any,
    ) -> Peer:
        """Connect a client; CONNACK is taken unless it is to be looked at."""
        peer = Peer(self, version)
        principal = Principal(None if who is None else SpiffeID.parse(who), listener=listener)
        ready: Callable[[Client], None] = lambda client: setattr(peer, "client", client)  # noqa: E731
        packet = Connect(client_id, version, **more)
        try:
            admit_client(self.hub, packet, principal, peer, ready, packet_limit=1 << 20, keep_alive_limit=1200)
        except BrokerError as error:
            peer.error = error
            peer.closed = error.mqtt_reason
            answer = refusal_connack(error, version)
            if answer is not None:
                peer.send(answer)
        if read_answer and peer.got and isinstance(peer.got[0], Connack):
            peer.got.pop(0)
        return peer

    def take_turns(self) -> int:
        """Run turns until none is scheduled; return how many."""
        turns = 0
        while self.turns:
            self.turns.popleft()()
            turns += 1
        return turns

    def passes(self, seconds: float) -> None:
        """Let time pass, in steps of at most a second."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now = min(end, self.clock.now + 1)
            self.hub.tick()

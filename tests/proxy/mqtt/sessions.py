"""A session between two ends in memory, whose policies are functions."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import CollectorRegistry
from twisted.internet.task import Clock

from svc.errors import SvcError
from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from svc.notary.publish import AckedBy
from svc.pacing.turns import Turns
from svc.policy.engine import Denied
from svc.policy.rules import MqttAction
from svc.proxy.errors import ProxyError
from svc.proxy.mqtt.interfaces import MqttLimits
from svc.proxy.mqtt.passing.session import PassThroughSession
from svc.proxy.mqtt.recorder import PublishExchange, PublishRecorder, RecordDone
from svc.telemetry.labels import Cause
from svc.telemetry.metrics import ProxyMetrics
from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Connect,
    Decoder,
    Packet,
    PacketLimits,
    PacketRefused,
    Publish,
    Sender,
    Version,
    encode,
)
from tests.proxy.rig import BASE

LIMITS = MqttLimits(PacketLimits(packet=64 * 1024), client_id=23, subscriptions=3)


#: Of all sessions: to make the families takes longer than a session does.
_REGISTRY = CollectorRegistry()
METRICS = ProxyMetrics(_REGISTRY).mqtt()


def _counters() -> dict[tuple[str, ...], float]:
    """The counters of MQTT, by name and labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in _REGISTRY.collect()
        if family.name.startswith("svc_proxy_mqtt_")
        for sample in family.samples
    }


def denied(rule: str = "no") -> Denied:
    """A refusal."""
    return Denied(identity="client", policy="test", rule=rule)


class Authorizer:
    """Refuses what is in its sets; topics of deliveries are in ``filters``."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.filters: set[str] = set()
        self.connecting: SvcError | None = None
        #: Of all topics but these.
        self.level = Level.NONE
        self.levels: dict[str, Level] = {}
        self.decisions: list[tuple[MqttAction, str]] = []

    def named(self, client_id: str) -> None:
        """Decides by nothing of it."""

    def connect(self, packet: Connect) -> None:
        """Decide on a client."""
        self.reconnect(packet)

    def reconnect(self, packet: Connect) -> None:
        """Decide again."""
        if self.connecting is not None:
            raise self.connecting

    def publish(self, topic: str) -> Level:
        """Decide on a topic name."""
        self.decisions.append(("Publish", topic))
        if topic in self.topics or topic.startswith("$"):
            raise denied()
        return self.levels.get(topic, self.level)

    def subscribe(self, topic_filter: str) -> None:
        """Decide on a filter."""
        self.decisions.append(("Subscribe", topic_filter))
        if topic_filter in self.filters:
            raise denied()


class Recorder:
    """A recorder of messages of the session that records when the test says so."""

    def __init__(self, limit: int = 100) -> None:
        self.limit = limit
        self.may_repeat = False
        self.client: tuple[Version, str] | None = None
        self.begun: list[tuple[Publish, Level, str | None]] = []
        self.completed: list[tuple[Publish, Acknowledgement | None]] = []
        self.acked_by: list[AckedBy] = []
        self.done: list[RecordDone] = []
        self.abandoned: list[Publish] = []
        self.released: list[int] = []
        self.outcome: ExchangeOutcome | None = None
        self.refuse: ProxyError | None = None
        #: Admissions that wait for the test; None where messages are admitted at once.
        self.admissions: list[Callable[[ProxyError | None], None]] | None = None

    def __call__(self, version: Version, client_id: str) -> PublishRecorder:
        """Begin a session."""
        self.client = version, client_id
        return cast(PublishRecorder, self)

    def begin(
        self,
        publish: Publish,
        level: Level,
        nonce: str | None,
        done: Callable[[PublishExchange | ProxyError], object],
    ) -> None:
        """Admit a message, or not."""

        def admit(refuse: ProxyError | None) -> None:
            if refuse is None:
                self.begun.append((publish, level, nonce))
            message = SimpleNamespace(qos=publish.qos, packet=publish)
            exchange = PublishExchange(cast(Any, message), level, BASE, None, None, None, 0)
            done(exchange if refuse is None else refuse)

        if self.admissions is None:
            admit(self.refuse)
        else:
            self.admissions.append(admit)

    def complete(
        self, exchange: PublishExchange, response: Acknowledgement | None, acked_by: AckedBy, done: RecordDone
    ) -> None:
        """Wait for the test."""
        self.acked_by.append(acked_by)
        self.completed.append((cast(Any, exchange.message).packet, response))
        self.done.append(done)

    def abandon(self, exchange: PublishExchange) -> None:
        """Remember it."""
        self.abandoned.append(cast(Any, exchange.message).packet)

    def release(self, packet_id: int) -> None:
        """Remember it."""
        self.released.append(packet_id)

    def disconnected(self, outcome: ExchangeOutcome) -> None:
        """Remember it."""
        self.outcome = outcome


class Pair:
    """
    A session and what it does.

    Attributes:
        to_client: octets that the client got.
        to_upstream: octets that the broker got.
        ended: cause and error, once the session is over.
        refusals: what was reported.
        held: whether the client is not read.
    """

    def __init__(
        self,
        version: Version = Version.V5,
        *,
        recorder: Recorder | None = None,
        limits: MqttLimits = LIMITS,
        peer_is_proxy: bool = False,
    ) -> None:
        self.version = version
        self.to_client = self.to_upstream = b""
        self.ended: tuple[Cause, SvcError | None] | None = None
        self.refusals: list[tuple[MqttAction, str | None]] = []
        self.held = False
        self.opened = 0
        self.authorizer = Authorizer()
        self._counted: dict[tuple[str, ...], float] = _counters()
        self._counted_at_workload = METRICS.at_workload.value
        if recorder is not None:
            self.authorizer.level = Level.SIGN_REQUEST
        self.session = PassThroughSession(
            self,
            self.authorizer,
            limits,
            METRICS,
            "the broker",
            peer_is_proxy=peer_is_proxy,
            recorder=recorder,
        )

    # svc.proxy.mqtt.interfaces.SessionEnds

    #: Time does not pass.
    turns = Turns(Clock())

    def client_waits(self) -> None:
        """No turn ends."""
        raise AssertionError

    upstream_waits = client_waits

    def open_upstream(self) -> None:
        """Count it."""
        self.opened += 1

    def write_client(self, octets: bytes) -> None:
        """Keep the octets."""
        assert self.ended is None
        self.to_client += octets

    def write_upstream(self, octets: bytes) -> None:
        """Keep the octets."""
        assert self.ended is None
        self.to_upstream += octets

    def hold_client(self, *, held: bool) -> None:
        """Remember it."""
        assert held != self.held
        self.held = held

    def refused(self, error: SvcError, action: MqttAction, topic: str | None) -> None:
        """Remember it."""
        self.refusals.append((action, topic))

    def close(self, cause: Cause, error: SvcError | None) -> None:
        """Remember it."""
        assert self.ended is None
        self.ended = (cause, error)

    # For tests.

    def client(self, *packets: Packet) -> None:
        """Send packets of the client in one read."""
        self.session.client_received(b"".join(encode(each, self.version, "client") for each in packets))

    def upstream(self, *packets: Packet) -> None:
        """Send packets of the broker in one read."""
        self.session.upstream_received(b"".join(encode(each, self.version, "server") for each in packets))

    def open(self, connect: Connect | None = None, connack: Connack | None = None) -> Pair:
        """Begin, and forget what was sent for it."""
        self.client(connect or Connect("c", self.version))
        self.session.upstream_opened()
        self.upstream(connack or Connack())
        assert self.session.connected, self.ended
        self.to_client = self.to_upstream = b""
        return self

    def take_client(self) -> list[Packet]:
        """What the client got behind CONNACK, and forget it."""
        data, self.to_client = self.to_client, b""
        return read(data, "server", self.version)

    def take_upstream(self) -> list[Packet]:
        """What the broker got behind CONNECT, and forget it."""
        data, self.to_upstream = self.to_upstream, b""
        return read(data, "client", self.version)

    @property
    def at_workload(self) -> int:
        """By how much the counter of messages at the level ``workload`` has moved."""
        return METRICS.at_workload.value - self._counted_at_workload

    def count(self, name: str, **labels: str) -> float:
        """By how much a counter of MQTT has moved."""
        key = (f"svc_proxy_mqtt_{name}_total", *labels.values())
        return _counters()[key] - self._counted[key]


def read(data: bytes, sender: Sender, version: Version) -> list[Packet]:
    """Decode packets behind the first one of their sender; the last must be whole."""
    decoder = Decoder(sender, version)
    opening: Any = Connect("c", version) if sender == "client" else Connack()
    # A broker may send AUTH before CONNACK, so that is no sign that CONNACK has come.
    begun = data[:1] in (b"\x10", b"\x20")
    packets = [] if begun else decoder.feed(encode(opening, version, sender))
    packets += decoder.feed(data)
    found: list[Packet] = []
    for each in packets:
        assert not isinstance(each, PacketRefused), each
        found.append(each)
    assert not decoder._buffer
    return found if begun else found[1:]

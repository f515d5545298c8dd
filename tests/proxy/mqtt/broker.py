"""A broker in memory for sessions of the proxy, which answers when the test lets it; statements; an observer."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.envelope.envelope import Envelope
from svc.errors import SvcError
from svc.notary.statement import Statement
from svc.proxy.mqtt.artifacts.session import ArtifactKind, ArtifactsUnpublished
from svc.transport.errors import ConnectFailed
from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Connect,
    Decoder,
    Disconnect,
    Packet,
    PacketRefused,
    PacketType,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Version,
    encode,
)

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
SUBJECT = "spiffe://example.org/ns/plant/sa/broker"


def statement_of(name: str, seconds: float = 3600.0, subject: str = SUBJECT) -> Statement:
    """A statement that ends so many seconds after :data:`START`; its signatures are not looked at."""
    envelope = Envelope(payload=name.encode(), signatures=())
    return Statement(name, envelope, {"sub": subject}, START, START + timedelta(seconds=seconds))


class Link(StringTransport):
    """The transport of one connection to the broker."""

    def __init__(self, broker: ModelBroker) -> None:
        super().__init__()
        self.broker = broker
        self.protocol: Any = None
        self.decoder = Decoder("client")
        self.version = Version.V5
        self.answers: list[bytes] = []
        self.unacknowledged: list[tuple[int, int]] = []
        self.filters: list[str] = []
        self.most_unacknowledged = 0
        self.open = True
        self.aborted = False

    def write(self, data: bytes) -> None:
        """Take octets of the client."""
        assert self.open, "written after the end"
        for packet in self.decoder.feed(data):
            assert not isinstance(packet, PacketRefused), packet
            self.broker.got(self, packet)

    def answer(self, *packets: Packet) -> None:
        """Have packets delivered at the next turn."""
        self.answers.append(b"".join(encode(each, self.version, "server") for each in packets))

    def end(self, reason: Exception | None = None) -> None:
        """End the connection, whoever wants it."""
        if self.open:
            self.open = False
            self.protocol.connectionLost(Failure(reason or ConnectionDone()))

    def loseConnection(self) -> None:
        """End in order, at the next turn; a stalled peer takes nothing."""
        super().loseConnection()
        if not self.broker.stalled:
            self.answers.append(b"")

    def abortConnection(self) -> None:
        """End at once."""
        self.aborted = True
        self.end(ConnectionLost())


@implementer(IStreamClientEndpoint)
@dataclass
class ModelBroker:
    """
    The broker, and the endpoint that connects to it.

    Attributes:
        versions: those that it supports.
        refused: topics that begin with one of these are refused, or swallowed with MQTT 3.1.1.
        unreadable: the same for subscriptions.
        holding: whether it keeps its acknowledgements.
        stalled: whether it neither reads nor closes.
        published: all messages that it took.
    """

    clock: Clock
    versions: tuple[Version, ...] = (Version.V5, Version.V311)
    connack: Connack = field(default_factory=Connack)
    refused: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    holding: bool = False
    silent: bool = False
    stalled: bool = False
    unreachable: bool = False
    links: list[Link] = field(default_factory=list)
    connects: list[Connect] = field(default_factory=list)
    published: list[Publish] = field(default_factory=list)
    attempted: list[Publish] = field(default_factory=list)
    retained: dict[str, bytes] = field(default_factory=dict)
    disconnects: int = 0
    pings: int = 0

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        """Connect at the next turn."""
        if self.unreachable:
            return fail(ConnectFailed(address="127.0.0.1:1883", detail="connection refused"))
        connecting: Deferred[Any] = Deferred(lambda _connecting: call.cancel())

        def made() -> None:
            link = Link(self)
            link.protocol = protocolFactory.buildProtocol(None)  # type: ignore[arg-type]
            self.links.append(link)
            link.protocol.makeConnection(link)
            connecting.callback(link.protocol)

        call = self.clock.callLater(0, made)
        return connecting

    def settle(self) -> None:
        """Let both sides go on until neither has anything to do at this moment."""
        for _ in range(10_000):
            due = [each for each in self.clock.getDelayedCalls() if each.getTime() <= self.clock.seconds()]
            busy = [each for each in self.links if each.open and each.answers]
            if not due and not busy:
                return
            self.clock.advance(0)
            for link in busy:
                answers, link.answers = link.answers, []
                for data in answers:
                    if data:
                        if link.open:
                            link.protocol.dataReceived(data)
                    else:
                        link.end()
        raise AssertionError("it never settles")

    @property
    def link(self) -> Link:
        """The last connection."""
        return self.links[-1]

    @property
    def topics(self) -> list[str]:
        """The topics of all messages that it took."""
        return [each.topic for each in self.published]

    def restart(self, *, keeps: bool = False) -> None:
        """Lose every connection, and what is retained unless it ``keeps`` that."""
        if not keeps:
            self.retained.clear()
        for link in self.links:
            link.end(ConnectionLost())

    def release(self, count: int | None = None) -> None:
        """Send acknowledgements that were held, all of them by default."""
        for link in self.links:
            due, link.unacknowledged = link.unacknowledged[:count], link.unacknowledged[count:] if count else []
            if link.open and due:
                link.answer(*(Acknowledgement(PacketType.PUBACK, each, code) for each, code in due))

    def got(self, link: Link, packet: Packet) -> None:
        """React to a packet of the client."""
        if self.silent:
            return
        if isinstance(packet, Connect):
            self._got_connect(link, packet)
        elif isinstance(packet, Publish):
            self._got_publish(link, packet)
        elif isinstance(packet, Subscribe):
            [subscription] = packet.subscriptions
            refused = subscription.filter.startswith(self.unreadable) if self.unreadable else False
            if not refused:
                link.filters.append(subscription.filter)
            link.answer(Suback(packet.packet_id, [0x80 if refused else subscription.qos]))
        elif isinstance(packet, Pingreq):
            self.pings += 1
            link.answer(Pingresp())
        elif isinstance(packet, Disconnect):
            self.disconnects += 1
            link.answers.append(b"")

    def _got_connect(self, link: Link, packet: Connect) -> None:
        self.connects.append(packet)
        link.version = packet.version
        if packet.version not in self.versions:
            link.answers += [b"\x20\x02\x00\x01", b""]
            return
        v5 = packet.version is Version.V5
        link.answer(self.connack if v5 else Connack(code=min(self.connack.code, 5)))

    def _got_publish(self, link: Link, packet: Publish) -> None:
        self.attempted.append(packet)
        refused = packet.topic.startswith(self.refused) if self.refused else False
        if not refused:
            self.published.append(packet)
            if packet.retain:
                self.retained[packet.topic] = packet.payload
                if not packet.payload:
                    del self.retained[packet.topic]
        code = 0x87 if refused and link.version is Version.V5 else 0
        link.unacknowledged.append((packet.packet_id, code))
        link.most_unacknowledged = max(link.most_unacknowledged, len(link.unacknowledged))
        if not self.holding:
            link.unacknowledged.pop()
            link.answer(Acknowledgement(PacketType.PUBACK, packet.packet_id, code))
        if packet.topic in link.filters and not refused:
            link.answer(Publish(packet.topic, packet.payload))


def limits(**properties: Any) -> Connack:
    """A CONNACK with what the broker allows."""
    return Connack(properties=Properties(**properties))


class RecordingObserver:
    """Records what is reported of artifacts."""

    def __init__(self) -> None:
        self.began: list[Version] = []
        self.failures: list[SvcError] = []
        self.taken: list[ArtifactKind] = []
        self.refusals: list[tuple[ArtifactKind, ArtifactsUnpublished]] = []
        self.drops: list[ArtifactsUnpublished] = []
        self.left: list[int] = []

    def session_began(self, version: Version) -> None:
        """Record it."""
        self.began.append(version)

    def session_failed(self, error: SvcError) -> None:
        """Record it."""
        self.failures.append(error)

    def published(self, kind: ArtifactKind) -> None:
        """Record it."""
        self.taken.append(kind)

    def refused(self, kind: ArtifactKind, error: ArtifactsUnpublished) -> None:
        """Record it."""
        self.refusals.append((kind, error))

    def dropped(self, error: ArtifactsUnpublished) -> None:
        """Record it."""
        self.drops.append(error)

    def ended(self, left: int) -> None:
        """Record it."""
        self.left.append(left)

    @property
    def reasons(self) -> list[str]:
        """Of the sessions that failed."""
        return [each.reason for each in self.failures]

"""
Two clients that receive the same, one of which accepts topic aliases (MQTT 5.0, section 3.3.2.3.4).

With its aliases resolved, the one gets what the other gets. There is one exception: without its topic a message may be
small enough for a client where it was too large with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.hub import HubLimits
from svc.broker.session import SessionLimits
from svc.wire.mqtt import Packet, PacketType, Properties, Publish, Subscribe, Subscription, Version, encode
from tests.broker.rig import Peer, Rig
from tests.peers.waiting import rounds

LIMIT = 3
TOPIC_NAMES = [*(f"site/line-{number}/sensor" for number in range(6)), "€€", "tiny", "t", "x" * 130]
QOS = st.sampled_from([0, 1, 2])
PUBLISH = st.tuples(
    st.just("publish"),
    st.sampled_from(TOPIC_NAMES),
    st.integers(0, 60) | st.just(130),
    QOS,
    st.booleans(),
    st.sampled_from([{}, {}, {"message_expiry": 3}, {"content_type": "x" * 20}, {"user": (("name", "x" * 118),)}]),
)
CONNECT = st.tuples(
    st.just("connect"), st.sampled_from([None, 1, 2, 3, 4, 65_535]), st.sampled_from([None, 40, 60, 100, 200])
)
STEP = st.one_of(
    PUBLISH,
    PUBLISH,
    PUBLISH,
    CONNECT,
    st.tuples(st.sampled_from(["leave", "stop reading", "read on", "acknowledge", "time"])),
)


@dataclass
class AliasClient:
    """
    One client.

    Args:
        name: its identifier.
        aliased: whether it takes aliases.
    """

    name: str
    aliased: bool
    peer: Peer | None = None
    most: int = 0
    packet: int | None = None
    known: dict[int, str] = field(default_factory=dict)
    seen: list[Publish] = field(default_factory=list)
    extra: set[bytes] = field(default_factory=set)
    unacknowledged: list[Packet] = field(default_factory=list)
    introduced: int = 0

    def reads(self) -> None:
        """Take what came, as a client does that obeys the standard."""
        if self.peer is None:
            return
        for each in self.peer.take():
            if not isinstance(each, Publish):
                self.unacknowledged.append(each)
                continue
            octets = len(encode(each, Version.V5, "server"))
            assert self.packet is None or octets <= self.packet, "larger than the client takes"
            topic = self.resolved(each)
            named = replace(each, topic=topic, properties=replace(each.properties, topic_alias=None))
            without = len(encode(named, Version.V5, "server"))
            assert each.topic or octets < without, "an alias that saves nothing"
            if self.packet is not None and without > self.packet:
                # To the other client this message is over.
                self.extra.add(each.payload)
            if each.payload not in self.extra:
                self.seen.append(named)
            self.unacknowledged.append(named)

    def resolved(self, packet: Publish) -> str:
        """Give the topic of a message."""
        alias = packet.properties.topic_alias
        if alias is None:
            return packet.topic
        assert 0 < alias <= self.most, "an alias that the client does not take"
        if packet.topic:
            assert self.known.get(alias) != packet.topic, "introduced once more"
            self.introduced += 1
            self.known[alias] = packet.topic
        # An alias that was not assigned on this connection ends the test.
        return self.known[alias]

    def acknowledges(self) -> None:
        """Answer all that came."""
        peer = self.peer
        while peer is not None and self.unacknowledged:
            packets, self.unacknowledged = self.unacknowledged, []
            for each in packets:
                kind = _ANSWERS.get(each.qos if isinstance(each, Publish) else each.type)
                if kind is not None:
                    peer.got += peer.answers(kind, each.packet_id)
            self.reads()

    def leaves(self) -> None:
        """Lose the connection."""
        if self.peer is not None:
            self.peer.loses()
        self.peer, self.unacknowledged = None, []

    def connects(self, rig: Rig, most: int | None, packet: int | None) -> None:
        """Connect again; the assigned aliases are gone."""
        self.leaves()
        self.most, self.packet, self.known = min(most or 0, LIMIT), packet, {}
        properties = Properties(
            session_expiry=1000, topic_alias_maximum=most if self.aliased else None, maximum_packet_size=packet
        )
        self.peer = rig.connect(self.name, clean_start=False, properties=properties)


_ANSWERS: dict[Any, PacketType] = {1: PacketType.PUBACK, 2: PacketType.PUBREC, PacketType.PUBREL: PacketType.PUBCOMP}


class Stage:
    """
    Both clients and a publisher.

    Args:
        identifier: of their subscription, or None.
    """

    def __init__(self, identifier: int | None) -> None:
        self.rig = Rig(limits=HubLimits(session=SessionLimits(aliases=LIMIT)))
        self.publisher = self.rig.connect("publisher")
        self.clients = [AliasClient("aliased", True), AliasClient("plain", False)]
        self.count = 0
        for each_client in self.clients:
            each_client.connects(self.rig, 65_535, None)
            assert each_client.peer is not None
            identifiers = () if identifier is None else (identifier,)
            wanted = Subscription("#", 2, retain_as_published=True)
            each_client.peer.sends(Subscribe(1, [wanted], Properties(subscription_identifiers=identifiers)))

    def plays(self, steps: Iterable[tuple[Any, ...]]) -> None:
        """Do what is asked to both at the same moment."""
        for what, *how in steps:
            if what == "publish":
                self.publishes(*how)
            elif what == "time":
                self.rig.passes(2)
            for each_client in self.clients:
                self.happens(each_client, what, how)
                each_client.reads()

    def happens(self, each_client: AliasClient, what: str, how: list[Any]) -> None:
        """Do what concerns one client."""
        peer = each_client.peer
        if what == "connect":
            each_client.connects(self.rig, *how)
        elif what == "leave":
            each_client.leaves()
        elif what == "acknowledge":
            each_client.acknowledges()
        elif peer is not None and what in ("stop reading", "read on"):
            peer.congested = what == "stop reading"
            if peer.client is not None and not peer.congested:
                peer.client.on_writable()

    def publishes(self, topic: str, size: int, qos: Any, retain: bool, more: dict[str, Any]) -> None:
        """Publish a message that is unlike any other."""
        self.count += 1
        payload = b"%d/" % self.count + b"x" * size
        self.publisher.publishes(topic, payload, qos, retain=retain, properties=Properties(**more))
        self.publisher.answers(PacketType.PUBREL, 7)


class TwinTests(SynchronousTestCase):
    """Both see the same."""

    @settings(max_examples=rounds(100, 4000), deadline=None)
    @given(st.lists(STEP, max_size=60), st.sampled_from([None, 1, 300]))
    def test_same_topics_and_payloads(self, steps: list[tuple[Any, ...]], identifier: int | None) -> None:
        """
        Whatever is published, lost, held back, dropped and sent again, an alias is resolved to the topic that it had.

        Nothing else differs but packet identifiers, and what was too large for the client without aliases.
        """
        stage = Stage(identifier)
        stage.plays([*steps, ("connect", 2, None), ("read on",), ("acknowledge",)])
        aliased, plain = stage.clients
        self.assertEqual(self.compared(aliased), self.compared(plain))
        self.assertEqual(plain.extra, set())

    def compared(self, each_client: AliasClient) -> list[tuple[Any, ...]]:
        """Give what must be the same of what a client saw."""
        return [
            (each.topic, each.payload, each.qos, each.retain, each.dup, each.properties) for each in each_client.seen
        ]

    def test_the_test_sees_aliases(self) -> None:
        """What the other test compares is not two clients without aliases."""
        stage = Stage(None)
        stage.plays([("publish", TOPIC_NAMES[number % 4], 10, number % 3, False, {}) for number in range(40)])
        aliased, plain = stage.clients
        self.assertGreater(aliased.introduced, LIMIT)
        self.assertEqual(plain.introduced, 0)
        self.assertEqual(self.compared(aliased), self.compared(plain))

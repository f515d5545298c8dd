"""Topic aliases towards clients (MQTT 5.0, sections 3.1.2.11.5 and 3.3.2.3.4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.aliases import TopicAliases
from svc.broker.hub import HubLimits
from svc.broker.message import Message
from svc.broker.session import SessionLimits
from svc.wire.mqtt import (
    Connack,
    Decoder,
    Disconnect,
    Packet,
    PacketType,
    Properties,
    Publish,
    Subscribe,
    Subscription,
    Version,
    encode,
)
from tests.broker.rig import Peer, Rig
from tests.broker.slow import HandJournal
from tests.wire.mqtt.packets import TOPICS, properties

V5 = Version.V5
#: Long enough for an alias to be worth it.
LONG, OTHER, THIRD = "site/line/sensor", "site/line/valve", "site/line/motor"


def shown(packets: list[Packet]) -> list[tuple[str, int | None]]:
    """Give topic and alias of each message."""
    return [(each.topic, each.properties.topic_alias) for each in packets if isinstance(each, Publish)]


def size(topic: str, payload: bytes, **more: Any) -> int:
    """Octets of a message with QoS 0."""
    return len(encode(Publish(topic, payload, properties=Properties(**more)), V5, "server"))


def read(octets: bytes) -> Publish:
    """Read one message."""
    _, packet = Decoder("server", V5).feed(encode(Connack(), V5, "server") + octets)
    assert isinstance(packet, Publish), packet
    return packet


class AliasCase(SynchronousTestCase):
    """A publisher, and a subscriber that takes two aliases."""

    journal: HandJournal | None = None

    def setUp(self) -> None:
        """Connect both."""
        self.rig = Rig(journal=self.journal)
        self.publisher = self.rig.connect("publisher")
        self.subscriber = self.client()

    def client(self, client_id: str = "s", most: int | None = 2, **more: Any) -> Peer:
        """Connect a subscriber whose session lasts."""
        wanted = Properties(topic_alias_maximum=most, session_expiry=3600, **more)
        peer = self.rig.connect(client_id, clean_start=False, properties=wanted)
        if not self.rig.hub.sessions[client_id].subscriptions:
            peer.subscribes(Subscription("#", 2))
        peer.take()
        return peer

    def sees(self, *expected: tuple[str, int | None]) -> None:
        """The subscriber got messages with these topics and aliases, and nothing else."""
        self.assertEqual(shown(self.subscriber.take()), list(expected))


class StandardTests(AliasCase):
    """Rules of the standard."""

    def test_introduced_and_used(self) -> None:
        """The first message carries topic and alias, further ones the alias in place of the topic, with every QoS."""
        for qos in (0, 1, 2, 0):
            self.publisher.publishes(LONG, b"m", qos)
            self.publisher.answers(PacketType.PUBREL, 7)
        self.sees((LONG, 1), ("", 1), ("", 1), ("", 1))
        self.publisher.publishes(OTHER)
        self.publisher.publishes(OTHER)
        self.publisher.publishes(LONG)
        self.sees((OTHER, 2), ("", 2), ("", 1))

    def test_none_without_a_maximum(self) -> None:
        """A client without Topic Alias Maximum, with 0, or of MQTT 3.1.1 gets no aliases [MQTT-3.1.2-27]."""
        peers = [self.client("a", None), self.client("b", 0), self.rig.connect("c", Version.V311)]
        peers[2].subscribes("#")
        for _ in range(3):
            self.publisher.publishes(LONG)
        for peer in peers:
            self.assertEqual(shown(peer.take()), [(LONG, None)] * 3)

    def test_never_above_the_maximum(self) -> None:
        """Whatever is published, no alias is above the client's maximum [MQTT-3.1.2-26] [MQTT-3.3.2-11]."""
        for most in (1, 2, 65_535):
            self.subscriber = self.client(f"c{most}", most)
            for number in range(5 * 120):
                self.publisher.publishes(f"topic/{number % 120}")
            aliases = [alias for _, alias in shown(self.subscriber.take()) if alias is not None]
            # Our own limit is 100; an alias is never 0 [MQTT-3.3.2-8].
            self.assertEqual((min(aliases), max(aliases)), (1, min(most, 100)))

    def test_not_over_a_reconnect(self) -> None:
        """What is sent again on another connection has its topic [MQTT-3.3.2-7]."""
        self.publisher.publishes(LONG, b"1")
        self.publisher.publishes(LONG, b"2", 1)
        self.sees((LONG, 1), ("", 1))
        self.subscriber.loses()
        self.publisher.publishes(LONG, b"3", 1)
        back = self.rig.connect("s", clean_start=False, properties=Properties(topic_alias_maximum=2))
        self.assertEqual([(each.payload, each.dup) for each in back.messages], [(b"2", True), (b"3", False)])
        self.assertEqual(shown(back.take()), [(LONG, 1), ("", 1)])

    def test_maximum_of_each_connection(self) -> None:
        """The CONNECT of the new connection decides whether aliases are sent."""
        self.publisher.publishes(LONG)
        self.sees((LONG, 1))
        self.subscriber.sends(Disconnect())
        self.subscriber = self.client("s", None)
        self.publisher.publishes(LONG)
        self.sees((LONG, None))
        # A session that is taken over while it is open.
        self.subscriber = self.client("s", 1)
        self.publisher.publishes(LONG)
        self.publisher.publishes(LONG)
        self.sees((LONG, 1), ("", 1))

    def test_aliases_of_publisher_and_subscriber_are_apart(self) -> None:
        """An alias of the publisher means nothing to a subscriber."""
        self.publisher.publishes(OTHER)
        self.publisher.publishes(LONG, properties=Properties(topic_alias=1))
        self.publisher.publishes("", properties=Properties(topic_alias=1))
        self.sees((OTHER, 1), (LONG, 2), ("", 2))

    def test_everything_else_stays(self) -> None:
        """Flags, properties, identifiers of subscriptions and what is left of the expiry come along."""
        self.subscriber = self.rig.connect("i", properties=Properties(topic_alias_maximum=2))
        self.subscriber.subscribes(Subscription(LONG, 2, retain_as_published=True))
        user = (("a", "b"), ("a", "c" * 200))
        for name, more in (("alone", {}), ("user", {"user": user}), ("expiry", {"message_expiry": 10, "user": user})):
            for _ in range(2):
                self.publisher.publishes(LONG, name.encode(), 1, retain=True, properties=Properties(**more))
            for message in self.subscriber.messages:
                plain = replace(message.properties, topic_alias=None)
                self.assertEqual((message.payload, message.qos, message.retain), (name.encode(), 1, True))
                self.assertEqual(plain, Properties(**more))
            self.assertEqual(shown(self.subscriber.take())[-1], ("", 1))

    def test_with_identifiers(self) -> None:
        """A packet that is made for one subscription has an alias too."""
        peer = self.rig.connect("i", properties=Properties(topic_alias_maximum=2))
        wanted = Properties(subscription_identifiers=(268_435_455,))
        peer.sends(Subscribe(1, [Subscription(LONG, 1)], wanted))
        self.publisher.publishes(LONG)
        self.publisher.publishes(LONG)
        self.assertEqual([each.properties.subscription_identifiers for each in peer.messages], [(268_435_455,)] * 2)
        self.assertEqual(shown(peer.take()), [(LONG, 1), ("", 1)])


class OnlyWhatWasSentTests(AliasCase):
    """An alias replaces its topic after the packet with both was written, and not before."""

    def test_too_large(self) -> None:
        """A message that is too large for the client introduces no alias; the next one that fits does."""
        self.subscriber = self.client("l", maximum_packet_size=50)
        self.publisher.publishes(LONG, b"x" * 100, 1)
        self.sees()
        self.publisher.publishes(LONG, b"y")
        self.publisher.publishes(LONG, b"z")
        self.sees((LONG, 1), ("", 1))

    def test_room_for_the_topic_alone(self) -> None:
        """Where topic and alias are too large by one octet, the topic is sent alone and no alias is assigned."""
        for payload, first in ((b"x" * 9, (LONG, 1)), (b"x" * 10, (LONG, None))):
            limit = size(LONG, b"x" * 9, topic_alias=1)
            self.subscriber = self.client(f"l{len(payload)}", maximum_packet_size=limit)
            self.publisher.publishes(LONG, payload)
            self.sees(first)
        self.publisher.publishes(LONG, b"")
        self.publisher.publishes(LONG, b"")
        self.sees((LONG, 1), ("", 1))

    def test_more_room_without_the_topic(self) -> None:
        """With an assigned alias a message may be larger by the octets of the topic, and not by one octet more."""
        fits = b"x" * (len(LONG) - 3)
        self.subscriber = self.client("l", maximum_packet_size=size(LONG, b"", topic_alias=1))
        self.publisher.publishes(LONG, fits)
        self.sees()
        self.publisher.publishes(LONG, b"")
        self.publisher.publishes(LONG, fits + b"xxx")
        self.publisher.publishes(LONG, fits + b"xxxx")
        self.sees((LONG, 1), ("", 1))
        self.assertEqual(self.rig.hub.statistics.drops["too_large"], 2)

    def test_congested(self) -> None:
        """What is dropped because the client does not read introduces nothing; what waits does when it goes."""
        self.subscriber.congested = True
        self.publisher.publishes(LONG, b"dropped")
        self.publisher.publishes(OTHER, b"waits", 1)
        self.sees()
        self.subscriber.congested = False
        assert self.subscriber.client is not None
        self.subscriber.client.on_writable()
        self.publisher.publishes(LONG)
        self.publisher.publishes(OTHER)
        self.sees((OTHER, 1), (LONG, 2), ("", 1))

    def test_expired(self) -> None:
        """A message whose time was over while it waited introduces nothing."""
        self.subscriber = self.client("e", receive_maximum=1)
        self.publisher.publishes(OTHER, b"holds the line", 1)
        self.publisher.publishes(LONG, b"late", 1, properties=Properties(message_expiry=5))
        self.rig.passes(6)
        self.subscriber.answers(PacketType.PUBACK, 1)
        self.publisher.publishes(LONG)
        self.sees((LONG, 2))

    def test_away(self) -> None:
        """What waits for a client that is away introduces its topic when it is sent."""
        self.subscriber.loses()
        for number in range(2):
            self.publisher.publishes(LONG, b"%d" % number, 1)
        self.subscriber = self.rig.connect("s", clean_start=False, properties=Properties(topic_alias_maximum=1))
        self.sees((LONG, 1), ("", 1))


class SlowJournalTests(AliasCase):
    """QoS 2 waits until it is safe; the alias is introduced by what is sent first."""

    def setUp(self) -> None:
        """Have a journal that the test commits."""
        self.journal = HandJournal()
        super().setUp()

    def client(self, client_id: str = "s", most: int | None = 2, **more: Any) -> Peer:
        """Connect, and be safe."""
        wanted = Properties(topic_alias_maximum=most, session_expiry=3600, **more)
        peer = self.rig.connect(client_id, read_answer=False, clean_start=False, properties=wanted)
        assert self.journal is not None
        self.journal.commit_all()
        if not self.rig.hub.sessions[client_id].subscriptions:
            peer.subscribes(Subscription("#", 2))
            self.journal.commit_all()
        peer.take()
        return peer

    def test_overtaken(self) -> None:
        """A message that overtakes one with QoS 2 introduces the alias, and that one uses it."""
        assert self.journal is not None
        self.publisher.publishes(LONG, b"exactly once", 2)
        self.publisher.publishes(LONG, b"at most once", 0)
        self.journal.commit_all()
        self.assertEqual([each.payload for each in self.subscriber.messages], [b"at most once", b"exactly once"])
        self.sees((LONG, 1), ("", 1))

    def test_lost_meanwhile(self) -> None:
        """What was not written because the connection ended introduces nothing on the next one."""
        assert self.journal is not None
        self.publisher.publishes(LONG, b"exactly once", 2)
        self.subscriber.loses()
        self.journal.commit_all()
        self.sees()
        wanted = Properties(topic_alias_maximum=2)
        back = self.rig.connect("s", clean_start=False, read_answer=False, properties=wanted)
        self.journal.commit_all()
        self.assertEqual(shown(back.take()), [(LONG, 1)])


class LimitTests(SynchronousTestCase):
    """The broker's own limit."""

    def seen(self, limit: int, most: int, rounds: int = 2) -> list[tuple[str, int | None]]:
        """What a client sees of three topics in turn."""
        rig = Rig(limits=HubLimits(session=SessionLimits(aliases=limit)))
        subscriber = rig.connect("s", properties=Properties(topic_alias_maximum=most))
        subscriber.subscribes("#")
        publisher = rig.connect("p")
        for _ in range(rounds):
            for topic in (LONG, OTHER, THIRD):
                publisher.publishes(topic)
        return shown(subscriber.take())

    def test_own_limit(self) -> None:
        """A client that takes more aliases than the limit gets as many as the limit."""
        self.assertEqual(self.seen(2, 1000)[:4], [(LONG, 1), (OTHER, 2), (THIRD, None), ("", 1)])
        self.assertEqual(self.seen(3, 1000)[:4], [(LONG, 1), (OTHER, 2), (THIRD, 3), ("", 1)])

    def test_zero(self) -> None:
        """With a limit of 0 none is sent (and test_limits: none is taken)."""
        self.assertEqual(self.seen(0, 1000), [(LONG, None), (OTHER, None), (THIRD, None)] * 2)


class ChoiceTests(SynchronousTestCase):
    """Which topics get an alias."""

    def setUp(self) -> None:
        """Have room for two."""
        self.aliases = TopicAliases(2)

    def sends(self, *topics: str) -> list[int]:
        """Send messages; give each one's alias, which is negative where it is introduced."""
        seen = []
        for topic in topics:
            message = Message(topic, b"payload")
            octets, introduced = self.aliases.apply(message, message.encoded(V5, 0, retain=False), None)
            if introduced:
                self.aliases.confirm(topic, introduced)
            packet = read(octets)
            alias = packet.properties.topic_alias or 0
            self.assertEqual((packet.topic, introduced), (topic, alias) if packet.topic else ("", 0))
            seen.append(-alias if packet.topic else alias)
        return seen

    def test_short_topics(self) -> None:
        """A topic of fewer than five octets in UTF-8 is shorter than its alias, or as long."""
        self.assertEqual(self.sends("1234", "1234", "é/é", "é/é", "€a", "€a", "1234"), [0, 0, -1, 1, 0, 0, 0])
        for octets in (b"12345", b"x" * 200):
            topic = octets.decode()
            for more in range(110, 125):
                message = Message(topic, b"", properties=Properties(user=(("name", "v" * more),)))
                plain = message.encoded(V5, 0, retain=False)
                self.assertLess(len(message.with_alias(plain, 65_535, with_topic=False)), len(plain))

    def test_long_topics(self) -> None:
        """What a connection remembers of topics is bounded in octets too."""
        longest = "a" * 1024
        self.assertEqual(self.sends(longest, longest + "b", longest + "b", longest), [-1, 0, 0, 1])

    def test_longest_silent_goes(self) -> None:
        """Where no number is left, a topic that comes again takes that of the one that was not used for longest."""
        self.assertEqual(self.sends("first", "second", "first"), [-1, -2, 1])
        self.assertEqual(self.sends("third", "third", "third"), [0, -2, 2])
        self.assertEqual(self.sends("first", "second", "second"), [1, 0, -2])
        self.assertEqual(self.sends("first", "third"), [1, 0])

    def test_once_is_not_enough(self) -> None:
        """Topics that come once drive out none that comes all the time."""
        self.sends("first", "second")
        for number in range(1000):
            self.assertEqual(self.sends("first", "second", f"once/{number}"), [1, 2, 0])

    def test_not_introduced(self) -> None:
        """A packet that is not sent changes nothing for the one that has the number."""
        self.sends("first", "second", "third")
        message = Message("third", b"")
        _, proposed = self.aliases.apply(message, message.encoded(V5, 0, retain=False), None)
        self.assertEqual(proposed, 1)
        self.assertEqual(self.sends("first", "second", "third"), [1, 2, -1])

    def test_never_worse_in_the_long_run(self) -> None:
        """However many topics come in turn, the packets are not larger together than they were without aliases."""
        for most in range(1, 6):
            for topics in range(1, 20):
                self.aliases, octets, without = TopicAliases(most), 0, 0
                for number in range(30 * topics):
                    message = Message(f"site/{number % topics:04}", b"")
                    plain = message.encoded(V5, 0, retain=False)
                    made, introduced = self.aliases.apply(message, plain, None)
                    if introduced:
                        self.aliases.confirm(message.topic, introduced)
                    octets, without = octets + len(made), without + len(plain)
                self.assertLess(octets, without, (most, topics))


class SharedTests(AliasCase):
    """A message for many is encoded once."""

    def written(self, peer: Peer) -> list[bytes]:
        """Keep the very octets that are written to a peer."""
        kept: list[bytes] = []
        peer.write = kept.append  # type: ignore[assignment]
        return kept

    def test_one_packet_for_all(self) -> None:
        """Clients without aliases share their packet, and so do clients with the same alias for the topic."""
        self.publisher.publishes(LONG)
        with_alias = [self.subscriber, self.client("t")]
        without = [self.client("v", 0), self.client("w", 0)]
        self.publisher.publishes(LONG)
        kept = {peer: self.written(peer) for peer in (with_alias[0], without[0], with_alias[1], without[1])}
        self.publisher.publishes(LONG)
        (first,), (second,) = (kept[peer] for peer in with_alias)
        self.assertIs(first, second)
        (third,), (fourth,) = (kept[peer] for peer in without)
        self.assertIs(third, fourth)
        self.assertLess(len(first), len(third))

    def test_different_aliases(self) -> None:
        """Clients with different aliases for a topic get separate packets."""
        self.publisher.publishes(OTHER)
        later = self.client("later")
        for _ in range(2):
            self.publisher.publishes(LONG)
        self.sees((OTHER, 1), (LONG, 2), ("", 2))
        self.assertEqual(shown(later.take()), [(LONG, 1), ("", 1)])


class OctetTests(SynchronousTestCase):
    """What an alias does to a packet."""

    @given(
        TOPICS,
        st.binary(max_size=40) | st.integers(0, 20_000).map(bytes),
        st.sampled_from([0, 1, 2]),
        properties("PUBLISH", V5),
        st.lists(st.integers(1, 268_435_455), max_size=3).map(tuple),
        st.integers(1, 65_535),
        st.booleans(),
        st.integers(0, 17_000),
    )
    def test_reads_as_it_should(
        self,
        topic: str,
        payload: bytes,
        qos: Any,
        made: Properties,
        identifiers: tuple[int, ...],
        alias: int,
        named: bool,
        more: int,
    ) -> None:
        """A reader finds the alias and, but for the topic, everything that was there without it."""
        left = made.message_expiry
        forwarded = replace(made, topic_alias=None, message_expiry=None, user=(*made.user, ("u", "x" * more)))
        message = Message(topic, payload, qos, properties=forwarded, expires=left)
        octets = message.encoded(V5, qos, retain=True, dup=qos > 0, packet_id=9, identifiers=identifiers)
        plain = read(octets)
        self.assertEqual((plain.topic, plain.payload), (topic, payload))
        self.assertEqual(
            plain.properties, replace(forwarded, message_expiry=left, subscription_identifiers=identifiers)
        )
        expected = replace(plain, topic=topic if named else "", properties=replace(plain.properties, topic_alias=alias))
        self.assertEqual(read(message.with_alias(octets, alias, with_topic=named)), expected)

"""What a message takes, and the octets that it is sent as."""

from __future__ import annotations

import itertools

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.message import Message
from svc.wire.mqtt import Connack, Decoder, Properties, Publish, Version, encode
from tests.broker.rig import Rig

USER = Properties(user=(("name", "value"),))
VERSIONS = (Version.V311, Version.V5)


def sent(message: Message, version: Version, *, retain: bool, now: float = 0.0) -> Publish:
    """Read what is sent."""
    octets = encode(Connack(), version, "server") + message.encoded(version, 0, retain=retain, now=now)
    (_connack, packet) = Decoder("server", version).feed(octets)
    assert isinstance(packet, Publish), packet
    return packet


class SizeTests(SynchronousTestCase):
    """About what it takes in memory."""

    def test_each_part_counts(self) -> None:
        """An octet of the payload counts once, one of the rest as often as it is held."""
        base = Message("t", b"").size
        self.assertEqual(Message("t", bytes(10_000)).size, base + 10_000)
        for properties in (
            Properties(user=(("n" * 10_000, ""),)),
            Properties(user=(("", "v" * 10_000),)),
            Properties(user=(("n", "v" * 100),) * 100),
            Properties(content_type="c" * 10_000),
            Properties(response_topic="r" * 10_000),
            Properties(correlation_data=bytes(10_000)),
        ):
            more = Message("t", b"", properties=properties).size - base
            self.assertTrue(20_000 <= more <= 45_000, more)
        self.assertGreater(Message("t" * 10_000, b"").size, base + 20_000)

    def test_empty_properties_count_nothing(self) -> None:
        """A message of MQTT 3.1.1 and one of 5.0 without properties are of one size."""
        self.assertEqual(Message("t", b"", properties=Properties()).size, Message("t", b"").size)

    def test_properties_of_the_connection_do_not_count(self) -> None:
        """What is taken out of the packet is not held."""
        packet = Publish("", b"", properties=Properties(topic_alias=1, message_expiry=9))
        self.assertEqual(Message.from_publish(packet, "t", "", 0.0).size, Message("t", b"").size)


class ExpiryTests(SynchronousTestCase):
    """What receivers of MQTT 5.0 are told."""

    def test_never_none(self) -> None:
        """The rest of the interval is rounded up; the repetition of an expired message says the shortest one."""
        message = Message.from_publish(Publish("t", b"", 1, properties=Properties(message_expiry=9)), "t", "", 100.0)
        for now, left in ((100.0, 9), (100.5, 9), (108.5, 1), (109.0, 1), (200.0, 1)):
            packet = sent(message, Version.V5, retain=False, now=now)
            self.assertEqual(left, packet.properties.message_expiry, now)


class SharedOctetsTests(SynchronousTestCase):
    """One packet for many receivers, as long as there are many."""

    def test_shared_while_it_is_published(self) -> None:
        """Receivers of one kind get the very same octets."""
        message = Message("t", b"m", properties=USER)
        for version, retain in itertools.product(VERSIONS, (False, True)):
            first = message.encoded(version, 0, retain=retain)
            self.assertIs(message.encoded(version, 0, retain=retain), first)

    def test_nothing_is_held_of_what_stays(self) -> None:
        """A message that is retained or queued has one copy of its payload, whichever clients receive it."""
        rig = Rig()
        for version in VERSIONS:
            rig.connect(f"c{version}", version).subscribes("t")
        publisher = rig.connect("p")
        publisher.publishes("t", b"m", 0, retain=True, properties=USER)
        message = rig.hub.retained.get("t")
        assert message is not None
        for version, retain in itertools.product(VERSIONS, (False, True)):
            packet = sent(message, version, retain=retain)
            self.assertEqual((packet.payload, packet.retain), (b"m", retain))
            self.assertEqual(packet.properties, USER if version is Version.V5 else Properties())
            octets = message.encoded(version, 0, retain=retain)
            self.assertIsNot(message.encoded(version, 0, retain=retain), octets)
        octets = message.encoded(Version.V5, 0, retain=True)
        self.assertIsNot(message.with_alias(octets, 1, with_topic=True), message.with_alias(octets, 1, with_topic=True))

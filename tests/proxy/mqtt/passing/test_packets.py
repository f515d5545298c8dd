"""Packets in the octets of one side."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.mqtt.passing.packets import Framer, skip_run
from svc.wire.mqtt import (
    Acknowledgement,
    MalformedPacket,
    Packet,
    PacketLimits,
    PacketTooLarge,
    PacketType,
    Pingreq,
    Properties,
    ProtocolViolation,
    Publish,
    Subscribe,
    Version,
    encode,
)
from tests.wire.mqtt import packets

V311, V5 = Version.V311, Version.V5
LIMIT = 64 * 1024


def message(topic: str = "t", octets: int = 3, qos: int = 1, alias: int | None = None) -> bytes:
    """An encoded PUBLISH of MQTT 5.0."""
    properties = Properties(topic_alias=alias)
    return encode(Publish(topic, b"x" * octets, qos, packet_id=qos and 9, properties=properties), V5, "client")  # type: ignore[arg-type]


ACK = encode(Acknowledgement(PacketType.PUBACK, 9), V5, "client")


class RunTests(SynchronousTestCase):
    """What passes without a closer look."""

    def passes(self, data: bytes, topics: dict[bytes, bool] | None = None, *, aliases: bool = False) -> tuple[int, ...]:
        """From the first octet, with the topic ``t`` permitted."""
        return skip_run(data, 0, {b"t": False} if topics is None else topics, LIMIT, aliases)

    def test_messages_and_acknowledgements(self) -> None:
        """Both pass, and are counted."""
        release = encode(Acknowledgement(PacketType.PUBREL, 9), V5, "client")
        received = encode(Acknowledgement(PacketType.PUBREC, 9), V5, "client")
        data = message() + ACK + message(qos=0) + release + received + message(octets=300)
        self.assertEqual(self.passes(data), (len(data), 2, 2, 0))

    def test_what_ends_a_run(self) -> None:
        """Every other packet, every other topic, and what is not whole."""
        begin = message() + ACK
        for other in (
            message("u"),
            message(""),
            encode(Pingreq(), V5, "client"),
            encode(Acknowledgement(PacketType.PUBACK, 9, 0x10), V5, "server"),
            b"\x36\x05\x00\x01t\x00\x01",
            b"\x38\x05\x00\x01t\x00\x01",
            b"\x30\x84\x00\x00\x01t\x00",
            b"\x30\x85\x80\x00\x00\x01t\x00\x00",
            b"\x30\x02\x00\x01t",
        ):
            self.assertEqual(self.passes(begin + other)[0], len(begin), other)
            self.assertEqual(self.passes(begin + other + begin)[0], len(begin), other)
        for part in (message(octets=200), ACK):
            for end in range(len(part)):
                self.assertEqual(self.passes(begin + part[:end])[0], len(begin))

    def test_counted_topics(self) -> None:
        """Messages of topics that are counted are, with any quality of service, and none that does not pass."""
        topics = {b"t": False, b"counted": True}
        passed = message() + message("counted", qos=0) + message("counted") + ACK
        for more in (b"", message("u"), message("counted", alias=1), message("counted")[:-1]):
            self.assertEqual(self.passes(passed + more, topics, aliases=True), (len(passed), 2, 1, 2))

    def test_any_topic(self) -> None:
        """Where topics are not decided on all messages pass."""
        data = message("u") + message("", alias=1) + ACK
        self.assertEqual(skip_run(data, 0, None, LIMIT, True), (len(data), 2, 1, 0))

    def test_assigned_aliases(self) -> None:
        """Where aliases can be assigned, a message with one does not pass."""
        for alias, aliases, expected in ((None, True, True), (1, False, True), (1, True, False)):
            self.assertEqual(self.passes(message(alias=alias), aliases=aliases)[0] > 0, expected)
        long = encode(Publish("t", b"", properties=Properties(content_type="c" * 200)), V5, "client")
        self.assertEqual((self.passes(long)[0], self.passes(long, aliases=True)[0]), (len(long), 0))
        without_properties = b"\x30\x03\x00\x01t"
        self.assertEqual(self.passes(without_properties + b"\x00", aliases=True)[0], 0)

    def test_octets_that_are_looked_for(self) -> None:
        """A packet that holds them does not pass, its neighbours do."""
        first, second = message(), encode(Publish("t", b"svc-x"), V5, "client")
        found = skip_run(first + second + first, 0, {b"t": True}, LIMIT, False, b"svc-")
        self.assertEqual(found[0], len(first))

    def test_largest_packet(self) -> None:
        """A packet of the most octets passes, a larger one is left to the closer look."""
        data = message(octets=500)
        self.assertEqual(skip_run(data, 0, {b"t": False}, len(data), False)[0], len(data))
        self.assertEqual(skip_run(data, 0, {b"t": False}, len(data) - 1, False)[0], 0)

    @given(st.lists(packets.later(V5, "client"), max_size=5), st.booleans())
    def test_only_what_the_codec_accepts(self, sent: list[Packet], aliases: bool) -> None:
        """What is skipped of valid packets is whole packets, with permitted topics and without aliases."""
        names = {each.topic.encode() for each in sent[::2] if isinstance(each, Publish)} - {b""}
        topics = {name: len(name) % 2 == 0 for name in names}
        encoded = [encode(each, V5, "client") for each in sent]
        end, publishes, acknowledged, counted = skip_run(b"".join(encoded), 0, topics, LIMIT, aliases)
        skipped = []
        for packet, octets in zip(sent, encoded, strict=True):
            if end <= 0:
                break
            end -= len(octets)
            skipped.append(packet)
        self.assertEqual(end, 0)
        messages = [each for each in skipped if isinstance(each, Publish)]
        self.assertEqual(publishes, sum(each.qos > 0 for each in messages))
        self.assertTrue({each.topic.encode() for each in messages} <= names)
        self.assertEqual(counted, sum(topics[each.topic.encode()] for each in messages))
        if aliases:
            self.assertEqual([each for each in messages if each.properties.topic_alias is not None], [])
        acks = [each for each in skipped if isinstance(each, Acknowledgement)]
        self.assertEqual(len(messages) + len(acks), len(skipped))
        self.assertEqual(acknowledged, sum(each.type in (PacketType.PUBACK, PacketType.PUBREC) for each in acks))

    @given(st.binary(max_size=60), st.booleans())
    def test_any_octets(self, data: bytes, aliases: bool) -> None:
        """Any octets end a run somewhere."""
        end, _publishes, _acknowledged, _counted = skip_run(data, 0, None, LIMIT, aliases)
        self.assertTrue(0 <= end <= len(data))


class FramerTests(SynchronousTestCase):
    """One packet after the other."""

    def framer(self, version: Version = V5, *, packet: int = LIMIT) -> Framer:
        """Of a client whose CONNECT was read."""
        framer = Framer("client", None, PacketLimits(packet=packet, first_packet=50))
        framer.open(version)
        return framer

    def test_incomplete_packet(self) -> None:
        """Its octets are kept until it is whole."""
        data = message(octets=200)
        framer = self.framer()
        for end in range(1, len(data)):
            part = framer.join(data[end - 1 : end])
            if part:
                self.assertIsNone(framer.find(part, 0))
                framer.keep(part, 0)
        last = framer.join(data[-1:])
        self.assertEqual((last, framer.find(last, 0), bytes(framer.rest)), (data, (3, len(data)), b""))

    def test_packets_that_must_not_come(self) -> None:
        """They are refused by their first octet; too large ones by their header."""
        cases: list[tuple[bytes, type[Exception]]] = [
            (b"\x10", ProtocolViolation),
            (b"\x20", ProtocolViolation),
            (b"\x63", MalformedPacket),
            (b"\x00", MalformedPacket),
            (b"\x30\xff\xff\x7f", PacketTooLarge),
            (b"\x30\x82\x00\x00\x00", MalformedPacket),
            (b"\x30\xff\xff\xff\xff", MalformedPacket),
        ]
        for data, error in cases:
            self.assertRaises(error, self.framer().find, data, 0)
        self.assertRaises(MalformedPacket, self.framer(V311).find, b"\xf0\x00", 0)
        self.assertEqual(self.framer(V311).find(b"\x82\x82\x00\x00\x00", 0), (3, 5))
        closed = Framer("client", None, PacketLimits(packet=LIMIT, first_packet=50))
        self.assertRaises(ProtocolViolation, closed.find, message(), 0)
        self.assertRaises(PacketTooLarge, closed.find, b"\x10\x31", 0)
        self.assertIsNone(closed.find(b"\x10\x30", 0))

    @given(packets.later(V5, "client"))
    def test_decoding(self, packet: Packet) -> None:
        """A packet that was found is decoded as by the codec."""
        data = b"ab" + encode(packet, V5, "client")
        framer = self.framer()
        found = framer.find(data, 2)
        assert found is not None
        self.assertEqual(framer.decode(data, 2, *found), packet)

    def test_refused_by_the_codec(self) -> None:
        """What the fast path leaves is refused by the codec."""
        data = encode(Subscribe(1, []), V5, "client")
        found = self.framer().find(data, 0)
        assert found is not None
        self.assertRaises(ProtocolViolation, self.framer().decode, data, 0, *found)

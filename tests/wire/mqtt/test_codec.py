"""Properties of all packets, splits and octets."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Connect,
    Decoder,
    MqttError,
    Packet,
    PacketRefused,
    PacketTooLarge,
    PacketType,
    Publish,
    ReasonCode,
    Sender,
    Unencodable,
    Version,
    encode,
)
from svc.wire.mqtt.codes import REASONS
from svc.wire.mqtt.primitives import Cursor, encode_variable
from svc.wire.mqtt.stream import SLICE_PACKETS, find_packet
from tests.peers.waiting import rounds
from tests.wire.mqtt import packets
from tests.wire.mqtt.building import encode_checked, opening, read

SIDES: list[tuple[Version, Sender]] = [
    (Version.V311, "client"),
    (Version.V311, "server"),
    (Version.V5, "client"),
    (Version.V5, "server"),
]
CONNECTIONS = st.sampled_from(SIDES).flatmap(
    lambda side: st.tuples(st.just(side), packets.first(*side), st.lists(packets.later(*side), max_size=5))
)

Connection = tuple[tuple[Version, Sender], Packet, list[Packet]]


class RoundTripTests(SynchronousTestCase):
    """What is written is read again."""

    @settings(max_examples=rounds(100, 4000), deadline=None)
    @given(CONNECTIONS, st.data())
    def test_connections(self, made: Connection, data: st.DataObject) -> None:
        """Any packets of a side are read as they were written, however their bytes are split."""
        (version, sender), first, later = made
        sent = [first, *later]
        octets = b"".join(encode_checked(each, version, sender) for each in sent)
        self.assertEqual(read(octets, sender, version), sent)
        cuts = data.draw(st.lists(st.integers(0, len(octets)), max_size=8))
        self.assertEqual(read(octets, sender, version, cuts), sent)
        self.assertEqual(read(octets, sender, version, range(len(octets))), sent)

    @settings(max_examples=rounds(100, 2000), deadline=None)
    @given(CONNECTIONS)
    def test_find_packet(self, made: Connection) -> None:
        """Each packet is found where it was written, and the missing octets of a cut one are requested."""
        (version, sender), first, later = made
        written = [encode(each, version, sender) for each in [first, *later]]
        octets = b"".join(written)
        position = 0
        for each in written:
            found = find_packet(octets, position, len(octets))
            assert isinstance(found, tuple)
            self.assertEqual(octets[position : found[1]], each)
            for count in range(len(each)):
                needed = find_packet(octets[: position + count], position, len(octets))
                assert isinstance(needed, int)
                self.assertTrue(count < needed <= len(each))
            position = found[1]
        self.assertEqual(find_packet(octets, position, len(octets)), 2)

    @given(st.integers(0, 268_435_455))
    def test_variable(self, value: int) -> None:
        """Every variable byte integer is read as it was written, in the fewest octets."""
        octets = encode_variable(value)
        self.assertEqual(Cursor("TEST", octets, 0, len(octets)).variable(), value)
        self.assertEqual(len(octets), 1 + (value >= 0x80) + (value >= 0x4000) + (value >= 0x200000))


class SliceTests(SynchronousTestCase):
    """Reads in slices: the packets of a whole read, some at a time."""

    @settings(max_examples=rounds(125, 5000), deadline=None)
    @given(CONNECTIONS, st.integers(1, 40), st.data())
    def test_same_packets(self, made: Connection, times: int, data: st.DataObject) -> None:
        """Slices change no packet and no refusal, however the octets are cut into reads."""
        (version, sender), first, later = made
        packets = [first, *later * times]
        octets = bytearray(b"".join(encode(each, version, sender) for each in packets))
        if data.draw(st.booleans()):
            octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=8)))
        decoder = Decoder(sender, version if sender == "server" else None)
        events: list[Packet | PacketRefused] = []
        for begin, end in zip([0, *cuts], [*cuts, len(octets)], strict=True):
            read_octets, position = bytes(octets[begin:end]), 0
            while position < len(read_octets):
                found, following = decoder.feed_slice(read_octets, position)
                self.assertLess(position, following)
                self.assertLessEqual(len(found), SLICE_PACKETS)
                events += found
                position = following
        expected = read(bytes(octets), sender, version)
        self.assertEqual([repr(each) for each in events], [repr(each) for each in expected])

    def test_most_of_a_slice(self) -> None:
        """A slice has as many packets as it may, and one that began in an earlier read is one of them."""
        decoder, pings = Decoder("client"), b"\xc0\x00" * 100
        decoder.feed(opening("client", 5) + b"\xc0")
        events, begin = decoder.feed_slice(b"\x00" + pings, 0)
        self.assertEqual((len(events), begin), (SLICE_PACKETS, 2 * SLICE_PACKETS - 1))
        self.assertEqual(decoder.feed_slice(b"\x00", 0)[1], 1)
        self.assertEqual(decoder.feed_slice(pings, 0), ([], len(pings)))


class AnyOctetsTests(SynchronousTestCase):
    """What a peer may send."""

    def refused_typed(self, events: list[Packet | PacketRefused]) -> None:
        """Check that at most the last event is a refusal, and a typed one."""
        for event in events[:-1]:
            self.assertNotIsInstance(event, PacketRefused)
        if events and isinstance(events[-1], PacketRefused):
            self.assertIsInstance(events[-1].error, MqttError)
            self.assertGreaterEqual(events[-1].error.mqtt_reason, 0x80)
            self.assertTrue(str(events[-1].error))

    @settings(max_examples=rounds(125, 5000), deadline=None)
    @given(st.sampled_from(SIDES), st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=5))
    def test_garbage(self, side: tuple[Version, Sender], octets: bytes, cuts: list[int]) -> None:
        """Any octets give packets or one typed refusal, the same however they are cut."""
        version, sender = side
        whole = opening(sender, version) + octets
        events = read(whole, sender, version)
        self.refused_typed(events)
        again = read(whole, sender, version, cuts)
        self.assertEqual([repr(each) for each in again], [repr(each) for each in events])

    @settings(max_examples=rounds(125, 5000), deadline=None)
    @given(CONNECTIONS, st.data())
    def test_altered(self, made: Connection, data: st.DataObject) -> None:
        """One changed octet gives packets that can be encoded, or one typed refusal."""
        (version, sender), first, later = made
        octets = bytearray(b"".join(encode(each, version, sender) for each in [first, *later]))
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
        events = read(bytes(octets), sender, version)
        self.refused_typed(events)
        seen = version
        for event in events:
            if isinstance(event, PacketRefused):
                continue
            seen = getattr(event, "version", seen)
            encode_checked(event, seen, sender)

    def test_closed(self) -> None:
        """After a refusal nothing is read any more."""
        decoder = Decoder("client")
        self.assertEqual(len(list(decoder.feed(b"\x00"))), 1)
        self.assertEqual(list(decoder.feed(opening("client", 5))), [])


class BufferTests(SynchronousTestCase):
    """What is buffered, and what is refused before that."""

    def buffered(self, decoder: Decoder) -> int:
        """Return how many octets a decoder buffers."""
        return len(decoder._buffer)

    def test_too_large_is_refused_by_its_header(self) -> None:
        """A packet above the limit is refused as soon as its length is known; one at the limit is read."""
        from svc.wire.mqtt import PacketLimits

        limits = PacketLimits(packet=100)
        at = encode(Publish("t", b"x" * (100 - 2 - 3 - 1)), Version.V5, "client")
        self.assertEqual(len(at), 100)
        self.assertEqual(len(read(opening("client", 5) + at, limits=limits)), 2)
        above = encode(Publish("t", b"x" * (101 - 2 - 3 - 1)), Version.V5, "client")
        events = read(opening("client", 5) + above[:2], limits=limits)
        self.assertIsInstance(events[1], PacketRefused)
        assert isinstance(events[1], PacketRefused)
        self.assertIsInstance(events[1].error, PacketTooLarge)
        self.assertEqual(events[1].error.evidence, {"octets": 101, "limit": 100})

    def test_wrong_first_octet_is_refused_at_once(self) -> None:
        """A packet that will not be accepted is refused by its first octet alone, before any length."""
        for octets in (b"\x20", b"\x32", b"\x82"):
            self.assertIsInstance(read(octets)[0], PacketRefused)
        for octets in (b"\x10", b"\x20", b"\x80", b"\x00"):
            self.assertIsInstance(read(opening("client", 5) + octets)[1], PacketRefused)

    def test_long_packet_in_small_pieces(self) -> None:
        """A large packet in small pieces is decoded once, when it is complete."""
        payload = b"x" * 500_000
        octets = encode(Publish("t", payload), Version.V5, "client")
        decoder = Decoder("client")
        list(decoder.feed(opening("client", 5)))
        for position in range(0, len(octets) - 1, 1000):
            self.assertEqual(list(decoder.feed(octets[position : min(position + 1000, len(octets) - 1)])), [])
        self.assertEqual(self.buffered(decoder), len(octets) - 1)
        (packet,) = decoder.feed(octets[-1:])
        self.assertEqual(packet, Publish("t", payload))
        self.assertEqual(self.buffered(decoder), 0)


class RefusalTests(SynchronousTestCase):
    """Codes of a server for a message that it does not take."""

    def test_any_code_of_a_server(self) -> None:
        """One that the packet must not have is read as the nearest one that it may; a client may send none of these."""
        for kind in (PacketType.PUBACK, PacketType.PUBREC):
            for code in range(256):
                octets = bytes((kind << 4, 3, 0, 1, code))
                decoder = Decoder("server", Version.V5)
                decoder.feed(encode(Connack(), Version.V5, "server"))
                (found,) = decoder.feed(octets)
                if code in REASONS[kind]:
                    self.assertEqual(Acknowledgement(kind, 1, code), found)
                elif code >= 0x80:
                    large = code == ReasonCode.PACKET_TOO_LARGE
                    nearest = ReasonCode.PAYLOAD_FORMAT_INVALID if large else ReasonCode.UNSPECIFIED_ERROR
                    self.assertEqual(Acknowledgement(kind, 1, nearest), found)
                else:
                    self.assertIsInstance(found, PacketRefused)
                decoder = Decoder("client", Version.V5)
                decoder.feed(encode(Connect("c"), Version.V5, "client"))
                (found,) = decoder.feed(octets)
                self.assertEqual(code in REASONS[kind], isinstance(found, Acknowledgement))


class UnencodableTests(SynchronousTestCase):
    """What cannot be written."""

    def test_refused(self) -> None:
        """Values that do not fit their field are a defect of the caller."""
        from svc.wire.mqtt import Connack, Properties

        impossible: list[tuple[Packet, Sender]] = [
            (Publish("t\x00", b""), "client"),
            (Publish("t" * 65536, b""), "client"),
            (Publish("t", b"", 1, packet_id=65536), "client"),
            (Publish("t", b"", properties=Properties(topic_alias=0)), "client"),
            (Publish("t", b"", properties=Properties(receive_maximum=1)), "client"),
            (Publish("t", b"", properties=Properties(subscription_identifiers=(1,))), "client"),
            (Connack(code=256), "server"),
        ]
        for packet, sender in impossible:
            error = self.assertRaises(Unencodable, encode, packet, Version.V5, sender)
            self.assertIn(packet.type.name, str(error))

    def test_lost_in_old_version(self) -> None:
        """What MQTT 3.1.1 has no field for is left out."""
        from svc.wire.mqtt import Properties

        packet = Publish("t", b"x", properties=Properties(message_expiry=5))
        self.assertEqual(encode(packet, Version.V311, "client"), encode(Publish("t", b"x"), Version.V311, "client"))


class SecretsTests(SynchronousTestCase):
    """What errors and representations show."""

    def test_representation(self) -> None:
        """The representation of a packet shows neither password nor authentication data."""
        from svc.wire.mqtt import Connect, Properties

        packet = Connect("c", username="u", password=b"hunter2", properties=Properties(authentication_data=b"hunter2"))
        self.assertNotIn("hunter2", repr(packet))

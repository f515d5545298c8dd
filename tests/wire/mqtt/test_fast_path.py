"""The fast path returns the same packets as the general decoder, whatever comes before and after."""

from __future__ import annotations

import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import (
    Acknowledgement,
    Decoder,
    Packet,
    PacketLimits,
    PacketRefused,
    PacketType,
    Properties,
    Publish,
    Sender,
    Version,
    encode,
)
from svc.wire.mqtt.fast_path import _TOPIC, read_fast
from svc.wire.mqtt.primitives import encode_variable
from tests.peers.waiting import rounds
from tests.wire.mqtt import packets
from tests.wire.mqtt.building import opening

SIDES: list[tuple[Version, Sender]] = [(version, sender) for version in Version for sender in ("client", "server")]
FIRSTS = st.sampled_from([0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x3A, 0x3B, 0x3C, 0x3D]) | st.integers(0x30, 0x3F)
TOPICS = st.sampled_from(
    [b"a/b", b"t", b"a b", b"$SYS/x", b"", b"a/#", b"+", b"a+", b"\xc3\xa9", b"\xff", b"a\x00", b"a\x7f", b"/" * 4]
    + [b"/" * 5, b"a" * 130, b"~!\"$%&'()*,-./"]
)
COUNTS = st.sampled_from([b"\x00\x01", b"\x00\x00", b"\xff\xff", b"\x12", b""])
MEMBERS = st.sampled_from(
    [b"\x01\x01", b"\x01\x02", b"\x02\x00\x00\x00\x05", b"\x03\x00\x01c", b"\x08\x00\x01r", b"\x08\x00\x01#"]
    + [b"\x09\x00\x02\x00\x01", b"\x23\x00\x01", b"\x23\x00\x00", b"\x0b\x05", b"\x0b\x00", b"\x26\x00\x01n\x00\x01v"]
    + [b"\x11\x00\x00\x00\x01", b"\x81\x00", b"\x7f", b"\x03\x00\x01\xff", b"\x03\x00\x09c"]
)

BLOCKS = st.lists(MEMBERS, max_size=4).map(b"".join).map(lambda block: encode_variable(len(block)) + block)
PROPERTIES = st.sampled_from([b"\x00", b"", b"\x02\x01\x01", b"\x03\x23\x00\x01", b"\x80\x00", b"\x05"]) | BLOCKS
PAYLOADS = st.sampled_from([b"", b"x", b"x" * 100, b"x" * 130, b"\x00\x01"]) | st.binary(max_size=4)
SMALL = PacketLimits(packet=120, properties=2, levels=5, filters=3)


def framed(first: int, body: bytes, longer: int = 0) -> bytes:
    """Write a packet, its remaining length in more octets than needed where that is asked for."""
    length = encode_variable(len(body))
    for _ in range(longer):
        length = length[:-1] + bytes((length[-1] | 0x80, 0))
    return bytes((first,)) + length + body


LONGER = st.sampled_from([0] * 8 + [1, 3])


@st.composite
def publishes(draw: st.DrawFn) -> bytes:
    """Generate valid and nearly valid PUBLISH packets."""
    topic = draw(TOPICS)
    wrong = draw(st.sampled_from([0] * 8 + [1, 200]))
    name = (len(topic) + wrong).to_bytes(2, "big") + topic
    body = name + draw(COUNTS) + draw(PROPERTIES) + draw(PAYLOADS)
    return framed(draw(FIRSTS), body, draw(LONGER))


@st.composite
def acknowledgements(draw: st.DrawFn) -> bytes:
    """Generate valid and nearly valid acknowledgements."""
    first = draw(st.sampled_from([0x40, 0x50, 0x62, 0x70] * 3 + [0x60, 0x42, 0x4F, 0x72]))
    return framed(first, draw(COUNTS) + draw(st.sampled_from([b""] * 4 + [b"\x00", b"\x10\x00"])), draw(LONGER))


def real(version: Version, sender: Sender) -> st.SearchStrategy[bytes]:
    """Generate any packet."""
    return packets.later(version, sender).map(lambda packet: encode(packet, version, sender))


@st.composite
def connections(draw: st.DrawFn) -> tuple[Version, Sender, list[bytes]]:
    """Generate the reads of a connection that end where a packet does, or anywhere."""
    version, sender = draw(st.sampled_from(SIDES))
    whole = draw(st.lists(publishes() | acknowledgements() | real(version, sender), min_size=1, max_size=4))
    if draw(st.booleans()):
        whole.insert(0, opening(sender, version))
    octets = b"".join(whole)
    if draw(st.booleans()):
        return version, sender, [octets]
    cuts = sorted(draw(st.lists(st.integers(0, len(octets)), max_size=4)))
    return version, sender, [octets[begin:end] for begin, end in itertools.pairwise([0, *cuts, len(octets)])]


def shown(events: list[Packet | PacketRefused]) -> list[str]:
    """Return the events as comparable text."""
    return [repr(each) for each in events]


class SlowDecoder(Decoder):
    """Does not use the fast path."""

    @staticmethod
    def _read_fast(data: bytes, position: int, limits: PacketLimits, v5: bool, sender: Sender) -> None:
        return None


class AgreementTests(SynchronousTestCase):
    """The fast path compared with the general decoder."""

    @settings(max_examples=rounds(175, 7000), deadline=None)
    @given(connections(), st.booleans())
    @example((Version.V311, "client", [opening("client", 4) + framed(0x30, b"\x00\x01t", 1)]), False)
    @example((Version.V5, "client", [opening("client", 5) + framed(0x30, b"\x00\x01t\x00", 1)]), False)
    @example((Version.V5, "client", [opening("client", 5) + framed(0x30, b"\x00\x01t")]), False)
    @example((Version.V5, "client", [opening("client", 5) + framed(0x40, b"\x00\x00")]), False)
    @example((Version.V5, "client", [framed(0x40, b"\x00\x01")]), False)
    def test_connections(self, made: tuple[Version, Sender, list[bytes]], small: bool) -> None:
        """Any octets in any reads give the same events, the limits included."""
        version, sender, reads = made
        known = version if sender == "server" else None
        limits = SMALL if small else PacketLimits()
        fast, slow = Decoder(sender, known, limits), SlowDecoder(sender, known, limits)
        for data in reads:
            self.assertEqual(shown(fast.feed(data)), shown(slow.feed(data)))
            self.assertEqual(fast._buffer, slow._buffer)

    @settings(max_examples=rounds(175, 7000), deadline=None)
    @given(publishes() | acknowledgements(), st.sampled_from(SIDES), st.booleans())
    def test_one_packet(self, octets: bytes, side: tuple[Version, Sender], small: bool) -> None:
        """One packet after the opening one, accepted or not, is read alike."""
        version, sender = side
        reads = [opening(sender, version), octets]
        for limits in (
            (SMALL,)
            if small
            else (PacketLimits(), PacketLimits(packet=len(octets)), PacketLimits(packet=len(octets) - 1))
        ):
            known = version if sender == "server" else None
            fast, slow = Decoder(sender, known, limits), SlowDecoder(sender, known, limits)
            for data in reads:
                self.assertEqual(shown(fast.feed(data)), shown(slow.feed(data)))


class FastPathTests(SynchronousTestCase):
    """Common packets take the fast path; otherwise the comparison would prove nothing."""

    def test_common(self) -> None:
        """Messages and acknowledgements of four octets take the fast path in both versions."""
        kinds = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)
        common: list[Packet] = [Acknowledgement(kind, 0x1234) for kind in kinds]  # type: ignore[arg-type]
        for payload in (b"", b"x" * 100, b"x" * 200, b"x" * 16_000):
            common.append(Publish("site/line 1/sensor", payload, retain=True))
            common += [Publish("site/line 1/sensor", payload, 1, dup=True, packet_id=65_535)]
            common += [Publish("$SYS/x", payload, 2, packet_id=1)]
        for version in Version:
            for packet in common:
                octets = encode(packet, version, "client")
                read = read_fast(b"??" + octets + b"?", 2, PacketLimits(), version is Version.V5, "client")
                self.assertEqual(read, (packet, 2 + len(octets)), version)

    def test_properties(self) -> None:
        """So are messages with properties, and those with an alias in place of a topic."""
        several = Properties(message_expiry=5, response_topic="a/b", user=(("n", "v"), ("n", "w")))
        for packet in (
            Publish("t", b"x" * 200, properties=several),
            Publish("t", b"", 2, packet_id=7, properties=Properties(content_type="")),
            Publish("", b"x", properties=Properties(topic_alias=1)),
        ):
            octets = encode(packet, Version.V5, "client")
            self.assertEqual(read_fast(octets + b"?", 0, PacketLimits(), True, "client"), (packet, len(octets)))

    def test_sender(self) -> None:
        """What a client must not send is left to the decoder that refuses it."""
        packet = Publish("t", b"", properties=Properties(subscription_identifiers=(1,)))
        octets = encode(packet, Version.V5, "server")
        self.assertEqual(read_fast(octets, 0, PacketLimits(), True, "server"), (packet, len(octets)))
        self.assertIsNone(read_fast(octets, 0, PacketLimits(), True, "client"))

    def test_decoder(self) -> None:
        """A decoder uses it after the first packet, and not before."""
        asked: list[int] = []

        class Recording(Decoder):
            @staticmethod
            def _read_fast(data: bytes, position: int, limits: PacketLimits, v5: bool, sender: Sender) -> None:
                asked.append(position)

        first = opening("client", 5)
        Recording("client").feed(first + encode(Publish("t", b""), Version.V5, "client"))
        self.assertEqual(asked, [len(first)])

    def test_linear(self) -> None:
        """A topic costs one pass: the repetition is possessive, so nothing is matched twice."""
        self.assertTrue(_TOPIC.pattern.endswith(b"]++"))

"""What is read at a glance is read exactly as the general decoder reads it, whatever comes before and behind."""

from __future__ import annotations

import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import (
    Acknowledgement,
    Decoder,
    Limits,
    Packet,
    PacketType,
    Properties,
    Publish,
    Refused,
    Sender,
    Version,
    encode,
)
from svc.wire.mqtt.primitives import variable
from svc.wire.mqtt.quick import _TOPIC, packet_at
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
BLOCKS = st.lists(MEMBERS, max_size=4).map(b"".join).map(lambda block: variable(len(block)) + block)
PROPERTIES = st.sampled_from([b"\x00", b"", b"\x02\x01\x01", b"\x03\x23\x00\x01", b"\x80\x00", b"\x05"]) | BLOCKS
PAYLOADS = st.sampled_from([b"", b"x", b"x" * 100, b"x" * 130, b"\x00\x01"]) | st.binary(max_size=4)
SMALL = Limits(packet=120, properties=2, levels=5, filters=3)


def framed(first: int, body: bytes, longer: int = 0) -> bytes:
    """Write a packet, its remaining length in more octets than needed where that is asked for."""
    length = variable(len(body))
    for _ in range(longer):
        length = length[:-1] + bytes((length[-1] | 0x80, 0))
    return bytes((first,)) + length + body


LONGER = st.sampled_from([0] * 8 + [1, 3])


@st.composite
def publishes(draw: st.DrawFn) -> bytes:
    """Make something like PUBLISH."""
    topic = draw(TOPICS)
    wrong = draw(st.sampled_from([0] * 8 + [1, 200]))
    name = (len(topic) + wrong).to_bytes(2, "big") + topic
    body = name + draw(COUNTS) + draw(PROPERTIES) + draw(PAYLOADS)
    return framed(draw(FIRSTS), body, draw(LONGER))


@st.composite
def acknowledgements(draw: st.DrawFn) -> bytes:
    """Make something like an acknowledgement."""
    first = draw(st.sampled_from([0x40, 0x50, 0x62, 0x70] * 3 + [0x60, 0x42, 0x4F, 0x72]))
    return framed(first, draw(COUNTS) + draw(st.sampled_from([b""] * 4 + [b"\x00", b"\x10\x00"])), draw(LONGER))


def real(version: Version, sender: Sender) -> st.SearchStrategy[bytes]:
    """Make a packet that may come."""
    return packets.later(version, sender).map(lambda packet: encode(packet, version, sender))


@st.composite
def connections(draw: st.DrawFn) -> tuple[Version, Sender, list[bytes]]:
    """Make the reads of one connection: some end where a packet does, some anywhere."""
    version, sender = draw(st.sampled_from(SIDES))
    whole = draw(st.lists(publishes() | acknowledgements() | real(version, sender), min_size=1, max_size=4))
    if draw(st.booleans()):
        whole.insert(0, opening(sender, version))
    octets = b"".join(whole)
    if draw(st.booleans()):
        return version, sender, [octets]
    cuts = sorted(draw(st.lists(st.integers(0, len(octets)), max_size=4)))
    return version, sender, [octets[begin:end] for begin, end in itertools.pairwise([0, *cuts, len(octets)])]


def shown(events: list[Packet | Refused]) -> list[str]:
    """Write events so that two readings can be compared."""
    return [repr(each) for each in events]


class SlowDecoder(Decoder):
    """Reads nothing at a glance."""

    @staticmethod
    def _glance(data: bytes, position: int, limits: Limits, v5: bool, sender: Sender) -> None:
        return None


class AgreementTests(SynchronousTestCase):
    """Both ways of reading, side by side."""

    @settings(max_examples=700, deadline=None)
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
        limits = SMALL if small else Limits()
        glance, slow = Decoder(sender, known, limits), SlowDecoder(sender, known, limits)
        for data in reads:
            self.assertEqual(shown(glance.feed(data)), shown(slow.feed(data)))
            self.assertEqual(glance._buffer, slow._buffer)

    @settings(max_examples=700, deadline=None)
    @given(publishes() | acknowledgements(), st.sampled_from(SIDES), st.booleans())
    def test_one_packet(self, octets: bytes, side: tuple[Version, Sender], small: bool) -> None:
        """One packet behind the opening one, accepted or not, is read alike."""
        version, sender = side
        reads = [opening(sender, version), octets]
        for limits in (SMALL,) if small else (Limits(), Limits(packet=len(octets)), Limits(packet=len(octets) - 1)):
            known = version if sender == "server" else None
            glance, slow = Decoder(sender, known, limits), SlowDecoder(sender, known, limits)
            for data in reads:
                self.assertEqual(shown(glance.feed(data)), shown(slow.feed(data)))


class TakenTests(SynchronousTestCase):
    """That usual packets do take the short way, or all of the above would prove nothing."""

    def test_usual(self) -> None:
        """Messages and acknowledgements of four octets are read at a glance in both versions."""
        kinds = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)
        usual: list[Packet] = [Acknowledgement(kind, 0x1234) for kind in kinds]
        for payload in (b"", b"x" * 100, b"x" * 200, b"x" * 16_000):
            usual.append(Publish("site/line 1/sensor", payload, retain=True))
            usual += [Publish("site/line 1/sensor", payload, 1, dup=True, packet_id=65_535)]
            usual += [Publish("$SYS/x", payload, 2, packet_id=1)]
        for version in Version:
            for packet in usual:
                octets = encode(packet, version, "client")
                read = packet_at(b"??" + octets + b"?", 2, Limits(), version is Version.V5, "client")
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
            self.assertEqual(packet_at(octets + b"?", 0, Limits(), True, "client"), (packet, len(octets)))

    def test_who_sent_it(self) -> None:
        """What a client must not send is left to the decoder that refuses it."""
        packet = Publish("t", b"", properties=Properties(subscription_identifiers=(1,)))
        octets = encode(packet, Version.V5, "server")
        self.assertEqual(packet_at(octets, 0, Limits(), True, "server"), (packet, len(octets)))
        self.assertIsNone(packet_at(octets, 0, Limits(), True, "client"))

    def test_decoder(self) -> None:
        """A decoder asks for it once the connection is open, and not before."""
        asked: list[int] = []

        class Noting(Decoder):
            @staticmethod
            def _glance(data: bytes, position: int, limits: Limits, v5: bool, sender: Sender) -> None:
                asked.append(position)

        first = opening("client", 5)
        Noting("client").feed(first + encode(Publish("t", b""), Version.V5, "client"))
        self.assertEqual(asked, [len(first)])

    def test_linear(self) -> None:
        """A topic costs one pass: the repetition is possessive, so nothing is ever tried again."""
        self.assertTrue(_TOPIC.pattern.endswith(b"]++"))

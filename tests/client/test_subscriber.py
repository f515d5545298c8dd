"""Tests of ``svc.client.subscriber``, the subscriber without I/O."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.client.subscriber import (
    KEEP_ALIVE,
    MAX_PACKET,
    RECEIVE_MAXIMUM,
    Accepted,
    Arrival,
    Ended,
    Failed,
    Subscribed,
    Subscriber,
    SubscriberEvent,
    SubscriberState,
    VersionRefused,
)
from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Connect,
    Decoder,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    ReasonCode,
    Suback,
    Subscribe,
    Version,
    encode,
)
from svc.wire.mqtt.codes import SENT_BY
from tests.wire.mqtt.packets import first, later

FILTERS = ("$.svc/workload/#", "$.svc/receipt/#")
TOPIC = "$.svc/workload/a"


class Peer:
    """A subscriber and the server's view of what it sends."""

    def __init__(self, version: Version = Version.V5, **credentials: object) -> None:
        self.version = version
        self.subscriber = Subscriber(version, FILTERS, server="h:1", client_id="c", **credentials)  # type: ignore[arg-type]
        self._decoder = Decoder("client")

    def send(self, *packets: Packet) -> list[SubscriberEvent]:
        """Send packets of the server; returns the events."""
        return self.subscriber.feed(b"".join(encode(packet, self.version, "server") for packet in packets))

    def sent(self) -> list[object]:
        """What the subscriber has sent since."""
        return list(self._decoder.feed(self.subscriber.data_to_send()))

    def subscribed(self) -> Peer:
        """Carry the opening."""
        self.send(Connack(), Suback(1, [1, 1]))
        self.sent()
        return self


class OpeningTests(SynchronousTestCase):
    """CONNECT and SUBSCRIBE, and what a server answers."""

    def test_versions(self) -> None:
        """Both versions start clean, subscribe to all filters with QoS 1, and announce their limits where they can."""
        for version in Version:
            peer = Peer(version, username="u", password=b"p")
            v5 = Properties(receive_maximum=RECEIVE_MAXIMUM, maximum_packet_size=MAX_PACKET)
            own = v5 if version is Version.V5 else Properties()
            self.assertEqual([Connect("c", version, True, KEEP_ALIVE, None, "u", b"p", own)], peer.sent())
            self.assertEqual([Accepted(KEEP_ALIVE)], peer.send(Connack()))
            [subscribe] = peer.sent()
            assert isinstance(subscribe, Subscribe)
            self.assertEqual([(each, 1) for each in FILTERS], [(s.filter, s.qos) for s in subscribe.subscriptions])
            self.assertEqual([Subscribed()], peer.send(Suback(subscribe.packet_id, [0, 1])))
            peer.subscriber.ping()
            self.assertEqual(([], [Pingreq()]), (peer.send(Pingresp()), peer.sent()))
            peer.subscriber.disconnect()
            self.assertEqual([Disconnect()], peer.sent())
            self.assertEqual([], peer.send(Pingresp()))

    def test_keep_alive_of_the_server(self) -> None:
        """A server of MQTT 5.0 sets the keep alive."""
        for seconds in (0, 7):
            properties = Properties(server_keep_alive=seconds)
            self.assertEqual([Accepted(seconds)], Peer().send(Connack(properties=properties)))

    def test_refused_connection(self) -> None:
        """A refusal is reported in words, with the text of the server."""
        for version, code, words in (
            (Version.V5, 0x87, "not authorized (0x87): no grant"),
            (Version.V311, 4, "bad user name or password (0x04)"),
            (Version.V311, 1, "unacceptable protocol version (0x01)"),
        ):
            text = Properties(reason_string="no grant") if version is Version.V5 else Properties()
            [event] = Peer(version).send(Connack(code=code, properties=text))
            assert isinstance(event, Failed)
            self.assertEqual("mqtt_connection_refused", event.error.reason)
            self.assertEqual(f"the broker h:1 refuses the connection: {words}", str(event.error))

    def test_version_refused(self) -> None:
        """Both ways in which a server refuses MQTT 5.0, however their octets are split; one refusal more is none."""
        for octets in (b"\x20\x02\x00\x01", encode(Connack(code=0x84), Version.V5, "server")):
            for cut in range(len(octets)):
                subscriber = Peer().subscriber
                events = [*subscriber.feed(octets[:cut]), *subscriber.feed(octets[cut:])]
                self.assertEqual([VersionRefused()], events)
                self.assertTrue(subscriber.closed)
        [event] = Peer().subscriber.feed(b"\x20\x02\x00\x05")
        assert isinstance(event, Failed)
        self.assertEqual("mqtt_broker_invalid", event.error.reason)

    def test_refused_subscription(self) -> None:
        """One refused filter is enough, the refused ones are named, and the connection is ended in order."""
        for version, code, words in (
            (Version.V5, 0x87, "not authorized (0x87)"),
            (Version.V311, 0x80, "unspecified error (0x80)"),
        ):
            for codes, named in (([1, code], FILTERS[1]), ([code, code], " and ".join(FILTERS))):
                peer = Peer(version)
                peer.send(Connack())
                peer.sent()
                [event] = peer.send(Suback(1, codes))
                assert isinstance(event, Failed)
                self.assertEqual("mqtt_subscription_refused", event.error.reason)
                self.assertIn(f"subscription to {named}: {words}", str(event.error))
                self.assertEqual([Disconnect()], peer.sent())

    def test_suback_of_another(self) -> None:
        """A SUBACK with another identifier, or for another number of filters, is refused."""
        for suback in (Suback(2, [1, 1]), Suback(1, [1]), Suback(1, [1, 1, 1])):
            peer = Peer()
            [_accepted, event] = peer.send(Connack(), suback)
            assert isinstance(event, Failed)
            self.assertEqual("mqtt_broker_invalid", event.error.reason)

    def test_disconnect_instead_of_suback(self) -> None:
        """A server that ends the connection by DISCONNECT before its SUBACK refuses it."""
        [_accepted, event] = Peer().send(Connack(), Disconnect(ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED))
        assert isinstance(event, Failed)
        self.assertIn("wildcard subscriptions not supported (0xa2)", str(event.error))

    def test_kept_session(self) -> None:
        """A session that the server claims to resume was not asked for."""
        [event] = Peer().send(Connack(session_present=True))
        self.assertIsInstance(event, Failed)


class MessageTests(SynchronousTestCase):
    """Messages and their acknowledgements."""

    def violated(self, code: ReasonCode, *packets: Packet, version: Version = Version.V5) -> None:
        """The last packet ends the connection with this reason code."""
        peer = Peer(version).subscribed()
        *before, event = peer.send(*packets)
        self.assertEqual(len(packets) - 1, len(before))
        assert isinstance(event, Failed)
        self.assertEqual("mqtt_broker_invalid", event.error.reason)
        self.assertEqual([Disconnect(code)] if version is Version.V5 else [], peer.sent())

    def test_acknowledged(self) -> None:
        """A message with QoS 1 is acknowledged once it was processed, one with QoS 0 never."""
        for version in Version:
            peer = Peer(version).subscribed()
            [first_one, second] = peer.send(Publish(TOPIC, b"x", 1, True, packet_id=9), Publish(TOPIC, b"y"))
            self.assertEqual([Arrival(TOPIC, b"x", 9, True), Arrival(TOPIC, b"y", 0, False)], [first_one, second])
            self.assertEqual([], peer.sent())
            for message in (first_one, second):
                assert isinstance(message, Arrival)
                peer.subscriber.acknowledge(message)
            self.assertEqual([Acknowledgement(PacketType.PUBACK, 9)], peer.sent())
            self.assertEqual(1, len(peer.send(Publish(TOPIC, b"x", 1, packet_id=9))))

    def test_before_suback(self) -> None:
        """A message may come before the SUBACK."""
        events = Peer().send(Connack(), Publish(TOPIC, b"x"), Suback(1, [1, 1]))
        self.assertEqual([Accepted(KEEP_ALIVE), Arrival(TOPIC, b"x", 0, False), Subscribed()], events)

    def test_receive_maximum(self) -> None:
        """More unacknowledged messages than announced are taken: there are servers that send them."""
        messages = [Publish(TOPIC, b"", 1, packet_id=number) for number in range(1, RECEIVE_MAXIMUM + 2)]
        for version in Version:
            events = Peer(version).subscribed().send(*messages)
            self.assertEqual([Arrival] * len(messages), [type(event) for event in events])

    def test_violations(self) -> None:
        """Another topic, QoS 2, an alias, an identifier in use and a packet of another role end the connection."""
        for version in Version:
            for code, packets in (
                (ReasonCode.PROTOCOL_ERROR, [Publish("other", b"")]),
                (ReasonCode.PROTOCOL_ERROR, [Publish(TOPIC, b"", 2, packet_id=1)]),
                (ReasonCode.PROTOCOL_ERROR, [Publish(TOPIC, b"", 1, packet_id=1)] * 2),
                (ReasonCode.PROTOCOL_ERROR, [Acknowledgement(PacketType.PUBACK, 1)]),
                (ReasonCode.PROTOCOL_ERROR, [Suback(1, [1, 1])]),
            ):
                self.violated(code, *packets, version=version)
        aliased = Publish(TOPIC, b"", properties=Properties(topic_alias=1))
        self.violated(ReasonCode.TOPIC_ALIAS_INVALID, aliased)

    def test_repeated(self) -> None:
        """A repetition of a message that waits is not a second message."""
        peer = Peer(Version.V311).subscribed()
        waiting, again = Publish(TOPIC, b"", 1, packet_id=1), Publish(TOPIC, b"", 1, dup=True, packet_id=1)
        self.assertEqual(1, len(peer.send(waiting, again)))

    def test_size(self) -> None:
        """A packet of the largest size is taken, and one octet more ends the connection."""
        for version in Version:
            overhead = len(encode(Publish(TOPIC, b"x" * MAX_PACKET), version, "server")) - MAX_PACKET
            payload = b"x" * (MAX_PACKET - overhead)
            [event] = Peer(version).subscribed().send(Publish(TOPIC, payload))
            self.assertIsInstance(event, Arrival)
            self.violated(ReasonCode.PACKET_TOO_LARGE, Publish(TOPIC, payload + b"x"), version=version)

    def test_end(self) -> None:
        """A DISCONNECT of the server ends the subscription with its reason; nothing follows."""
        peer = Peer().subscribed()
        [event] = peer.send(Disconnect(ReasonCode.SERVER_SHUTTING_DOWN), Publish(TOPIC, b""))
        self.assertEqual(Ended("server shutting down (0x8b)"), event)
        self.assertEqual([], peer.send(Publish(TOPIC, b"")))
        peer.subscriber.acknowledge(Arrival(TOPIC, b"", 1, False))
        peer.subscriber.disconnect()
        self.assertEqual([], peer.sent())


@st.composite
def sessions(draw: st.DrawFn, version: Version) -> list[Packet]:
    """Packets of a server: often the right ones, in any order from some point on."""
    usual: list[Packet] = [Connack(), Suback(1, [1, 1]), Publish(TOPIC, b"x", 1, packet_id=1), Pingresp()]
    rest = draw(st.lists(later(version, "server") | first(version, "server"), max_size=4))
    return [*usual[: draw(st.integers(0, len(usual)))], *rest]


class PropertyTests(SynchronousTestCase):
    """Any packets in any order, in any pieces."""

    def run_octets(self, version: Version, pieces: list[bytes]) -> tuple[list[SubscriberEvent], bytes, bool]:
        subscriber = Peer(version).subscriber
        events = [event for piece in pieces for event in subscriber.feed(piece)]
        return events, subscriber.data_to_send(), subscriber.closed

    @given(st.data())
    def test_any_order_and_splitting(self, data: st.DataObject) -> None:
        """The events do not depend on the pieces; a last event is the last, and closes."""
        version = data.draw(st.sampled_from(Version))
        octets = b"".join(encode(packet, version, "server") for packet in data.draw(sessions(version)))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=5)))
        pieces = [octets[a:b] for a, b in zip([0, *cuts], [*cuts, len(octets)], strict=True)]
        whole = self.run_octets(version, [octets])
        self.assertEqual(repr(whole), repr(self.run_octets(version, pieces)))
        events, _sent, closed = whole
        last = [isinstance(event, VersionRefused | Ended | Failed) for event in events]
        self.assertEqual([False] * (len(events) - 1) + [closed] if events else [], last)

    @given(st.sampled_from(Version), st.binary(max_size=60), st.booleans())
    def test_any_octets(self, version: Version, octets: bytes, opened: bool) -> None:
        """Any octets give events or one typed error."""
        peer = Peer(version)
        if opened:
            peer.subscribed()
        for event in peer.subscriber.feed(octets):
            if isinstance(event, Failed):
                self.assertNotIn("{", str(event.error))

    def test_every_state(self) -> None:
        """Every packet of a server has a defined result in every state."""
        for version in Version:
            for kind in SENT_BY["server"]:
                for opening in ([], [Connack()], [Connack(), Suback(1, [1, 1])]):
                    peer = Peer(version)
                    peer.send(*opening)
                    state = peer.subscriber.state
                    first_octet = kind << 4 | (2 if kind is PacketType.PUBREL else 0)
                    peer.subscriber.feed(bytes((first_octet, 0)))
                    expected = {SubscriberState.CLOSED}
                    if kind is PacketType.PINGRESP and opening:
                        expected = {state}
                    self.assertIn(peer.subscriber.state, expected, (version, kind, opening))

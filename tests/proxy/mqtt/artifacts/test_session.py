"""The session that publishes artifacts, without I/O."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.mqtt.artifacts.session import (
    KEEP_ALIVE,
    MAX_PACKET,
    ArtifactAccepted,
    ArtifactEvent,
    ArtifactMessage,
    ArtifactRefused,
    ArtifactSession,
    ArtifactSessionState,
    OlderServer,
    Probe,
    PublishingBegan,
    SessionFailed,
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

PROBE = Probe("$.svc/probe/c", b"0123")
MESSAGE = ArtifactMessage("receipt", "R", "$.svc/receipt/R", b"x")
SUBSCRIBED = 65535


def feed(session: ArtifactSession, data: bytes) -> list[ArtifactEvent]:
    """Feed a read in slices."""
    events, begin = session.feed_slice(data, 0)
    while begin < len(data):
        more, begin = session.feed_slice(data, begin)
        events += more
    return events


class Server:
    """The other side of a session."""

    def __init__(self, version: Version = Version.V5, **more: Any) -> None:
        self.version = version
        self.session = ArtifactSession(
            version, broker="b:1", prefix="$.svc", probe=PROBE, client_id="c", username="u", password=b"p", **more
        )
        self._decoder = Decoder("client")

    def send(self, *packets: Packet) -> list[ArtifactEvent]:
        """Send packets in one read."""
        return feed(self.session, b"".join(encode(each, self.version, "server") for each in packets))

    def sent(self) -> list[Any]:
        """What the session has sent since."""
        return list(self._decoder.feed(self.session.data_to_send()))

    def opened(self) -> Server:
        """Carry the opening."""
        self.send(*opening(self.version))
        self.sent()
        return self


def opening(version: Version) -> list[Packet]:
    """The packets of a server until messages can be published."""
    if version is Version.V5:
        return [Connack()]
    puback = Acknowledgement(PacketType.PUBACK, 1)
    return [Connack(), Suback(SUBSCRIBED, [0]), puback, Publish(PROBE.topic, PROBE.payload)]


class OpeningTests(SynchronousTestCase):
    """Until messages can be published."""

    def test_v5(self) -> None:
        """With MQTT 5.0 CONNACK is enough."""
        server = Server()
        [connect] = server.sent()
        properties = Properties(maximum_packet_size=MAX_PACKET)
        self.assertEqual(Connect("c", Version.V5, True, KEEP_ALIVE, None, "u", b"p", properties), connect)
        self.assertEqual(0, server.session.room)
        self.assertEqual([PublishingBegan(Version.V5, KEEP_ALIVE)], server.send(Connack()))
        self.assertEqual([], server.sent())

    def test_probe(self) -> None:
        """With MQTT 3.1.1 the probe must be delivered, before or after its acknowledgement."""
        puback = Acknowledgement(PacketType.PUBACK, 1)
        delivery = Publish(PROBE.topic, PROBE.payload)
        for last in ([puback, delivery], [delivery, puback], [delivery]):
            server = Server(Version.V311)
            self.assertEqual([], server.send(Connack()))
            _connect, subscribe = server.sent()
            assert isinstance(subscribe, Subscribe)
            self.assertEqual((PROBE.topic, 0), (subscribe.subscriptions[0].filter, subscribe.subscriptions[0].qos))
            self.assertEqual([], server.send(Suback(subscribe.packet_id, [0])))
            self.assertEqual([Publish(PROBE.topic, PROBE.payload, 1, packet_id=1)], server.sent())
            self.assertEqual([PublishingBegan(Version.V311, KEEP_ALIVE)], server.send(*last))

    def test_probe_of_others(self) -> None:
        """What else arrives on the topic of the probe proves nothing, and harms nothing later."""
        server = Server(Version.V311)
        early = Publish(PROBE.topic, PROBE.payload)
        self.assertEqual([], server.send(Connack(), early, Suback(SUBSCRIBED, [0]), Publish(PROBE.topic, b"other")))
        self.assertEqual(0, server.session.room)
        self.assertEqual(1, len(server.send(early)))
        self.assertEqual([], server.send(early))

    def test_missing_probe(self) -> None:
        """Without the probe the session ends in time, whether the server acknowledged it or not."""
        for acknowledged in ([], [Acknowledgement(PacketType.PUBACK, 1)]):
            server = Server(Version.V311)
            server.send(Connack(), Suback(SUBSCRIBED, [0]), *acknowledged)
            self.assertEqual("artifacts_probe_missing", server.session.overdue(10.0).error.reason)
            self.assertTrue(server.session.closed)

    def test_version_refused(self) -> None:
        """Both ways in which a server refuses MQTT 5.0, however their octets are split; another refusal is none."""
        for octets in (b"\x20\x02\x00\x01", encode(Connack(code=0x84), Version.V5, "server")):
            for cut in range(len(octets)):
                session = Server().session
                self.assertEqual([OlderServer()], [*feed(session, octets[:cut]), *feed(session, octets[cut:])])
                self.assertTrue(session.closed)
        [event] = feed(Server().session, b"\x20\x02\x00\x05")
        assert isinstance(event, SessionFailed)
        self.assertEqual("artifacts_broker_invalid", event.error.reason)

    def test_refused(self) -> None:
        """A refusal is reported in words; no password is in any of them."""
        for version, code, words in (
            (Version.V5, 0x86, "bad user name or password (0x86)"),
            (Version.V311, 5, "not authorized (0x05)"),
            (Version.V311, 1, "unacceptable protocol version (0x01)"),
        ):
            [event] = Server(version).send(Connack(code=code))
            assert isinstance(event, SessionFailed)
            self.assertEqual("artifacts_connection_refused", event.error.reason)
            self.assertEqual(
                f"the broker at b:1 refuses the session that publishes artifacts: {words}", str(event.error)
            )


class PublishingTests(SynchronousTestCase):
    """Messages and their acknowledgements."""

    def test_acknowledged(self) -> None:
        """A message is in flight until its acknowledgement, whose code says what became of it."""
        for version in Version:
            server = Server(version).opened()
            session = server.session
            self.assertIsNone(session.publish(MESSAGE))
            [publish] = server.sent()
            self.assertEqual((MESSAGE.topic, MESSAGE.payload, 1), (publish.topic, publish.payload, publish.qos))
            self.assertEqual(((MESSAGE,), 1), (session.unacknowledged, session.in_flight))
            done = server.send(Acknowledgement(PacketType.PUBACK, publish.packet_id))
            self.assertEqual(([ArtifactAccepted(MESSAGE)], 0), (done, session.in_flight))

    def test_codes(self) -> None:
        """Codes from 0x80 on are refusals, "no matching subscribers" is none."""
        for code, refused in ((0x00, False), (0x10, False), (0x80, True), (0x87, True), (0x97, True)):
            server = Server().opened()
            server.session.publish(MESSAGE)
            [event] = server.send(Acknowledgement(PacketType.PUBACK, 1, code))
            self.assertEqual(refused, isinstance(event, ArtifactRefused))

    def test_identifiers(self) -> None:
        """Packet identifiers are never those in use, and never that of the SUBSCRIBE."""
        server = Server(Version.V311).opened()
        session = server.session
        session.publish(MESSAGE)
        [held] = server.sent()
        for _ in range(65600):
            session.publish(MESSAGE)
            [publish] = server.sent()
            self.assertNotIn(publish.packet_id, (held.packet_id, SUBSCRIBED, 0))
            server.send(Acknowledgement(PacketType.PUBACK, publish.packet_id))

    def test_violations(self) -> None:
        """What no server may send ends the connection, with its reason where MQTT has one."""
        for version in Version:
            for packet in (
                Acknowledgement(PacketType.PUBACK, 9),
                Publish("other", b""),
                Publish(PROBE.topic, b"", 1, packet_id=1),
                Acknowledgement(PacketType.PUBREC, 1),
                Suback(SUBSCRIBED, [0]),
            ):
                server = Server(version).opened()
                [event] = server.send(packet)
                assert isinstance(event, SessionFailed), packet
                self.assertEqual("artifacts_broker_invalid", event.error.reason)
                expected = [Disconnect(ReasonCode.PROTOCOL_ERROR)] if version is Version.V5 else []
                self.assertEqual(expected, server.sent())
        [event] = Server().send(Connack(session_present=True))
        self.assertIsInstance(event, SessionFailed)
        [event] = Server(Version.V311).send(Connack(), Suback(1, [0]))
        self.assertIsInstance(event, SessionFailed)

    def test_size(self) -> None:
        """A packet of the announced size is taken, and one octet more ends the connection."""
        server = Server(Version.V311).opened()
        overhead = len(encode(Publish(PROBE.topic, b"x" * 60000), Version.V311, "server")) - 60000
        self.assertEqual([], server.send(Publish(PROBE.topic, b"x" * (MAX_PACKET - overhead))))
        [event] = server.send(Publish(PROBE.topic, b"x" * (MAX_PACKET - overhead + 1)))
        self.assertIsInstance(event, SessionFailed)

    def test_end(self) -> None:
        """After DISCONNECT of either side nothing is sent or accepted."""
        server = Server().opened()
        server.session.ping()
        server.session.disconnect()
        self.assertEqual([Pingreq(), Disconnect()], server.sent())
        server.session.disconnect()
        server.session.ping()
        self.assertEqual(([], []), (server.send(Pingresp()), server.sent()))
        server = Server().opened()
        [event] = server.send(Disconnect(ReasonCode.SERVER_SHUTTING_DOWN), Pingresp())
        assert isinstance(event, SessionFailed)
        self.assertIn("server shutting down (0x8b)", str(event.error))


@st.composite
def conversations(draw: st.DrawFn, version: Version) -> list[Packet]:
    """Packets of a server: often the right ones, in any order from some point on."""
    usual = opening(version)
    rest = draw(st.lists(later(version, "server") | first(version, "server"), max_size=4))
    return [*usual[: draw(st.integers(0, len(usual)))], *rest]


class PropertyTests(SynchronousTestCase):
    """Any packets in any order, in any pieces."""

    def run_octets(self, version: Version, pieces: list[bytes]) -> tuple[list[ArtifactEvent], bytes, bool]:
        session = Server(version).session
        events = [event for piece in pieces for event in feed(session, piece)]
        return events, session.data_to_send(), session.closed

    @given(st.data())
    def test_any_order_and_splitting(self, data: st.DataObject) -> None:
        """The events do not depend on the pieces; a last event is the last, and closes."""
        version = data.draw(st.sampled_from(Version))
        octets = b"".join(encode(packet, version, "server") for packet in data.draw(conversations(version)))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=5)))
        pieces = [octets[a:b] for a, b in zip([0, *cuts], [*cuts, len(octets)], strict=True)]
        whole = self.run_octets(version, [octets])
        self.assertEqual(repr(whole), repr(self.run_octets(version, pieces)))
        events, _sent, closed = whole
        last = [isinstance(event, OlderServer | SessionFailed) for event in events]
        self.assertEqual([False] * (len(events) - 1) + [closed] if events else [], last)

    @given(st.sampled_from(Version), st.binary(max_size=60), st.booleans())
    def test_any_octets(self, version: Version, octets: bytes, opened: bool) -> None:
        """Any octets give events or one typed error."""
        server = Server(version)
        if opened:
            server.opened()
            server.session.publish(MESSAGE)
        for event in feed(server.session, octets):
            if isinstance(event, SessionFailed):
                self.assertNotIn("{", str(event.error))

    def test_every_state(self) -> None:
        """Every packet of a server has a defined result in every state."""
        for version in Version:
            for kind in SENT_BY["server"]:
                for count in range(len(opening(version)) + 1):
                    server = Server(version)
                    server.send(*opening(version)[:count])
                    state = server.session.state
                    feed(server.session, bytes((kind << 4 | (2 if kind is PacketType.PUBREL else 0), 0)))
                    pong = kind is PacketType.PINGRESP and count > 0
                    expected = state if pong else ArtifactSessionState.CLOSED
                    self.assertIs(expected, server.session.state, (version, kind, count))

"""Every bound of the broker, at it and one beyond."""

from __future__ import annotations

from typing import Any

from twisted.internet.protocol import Factory
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import AllowAll, Principal
from svc.broker.broker import Broker
from svc.broker.connection import BrokerConnection, ConnectionLimits
from svc.broker.errors import AnswerTooLarge
from svc.broker.hub import HubLimits
from svc.broker.message import Message
from svc.broker.session import SessionLimits
from svc.errors import SvcError
from svc.identity import SpiffeID
from svc.wire.mqtt import (
    Connack,
    Connect,
    Disconnect,
    PacketLimits,
    PacketType,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    ReasonCode,
    Suback,
    Subscribe,
    Subscription,
    TopicAliasInvalid,
    Unsuback,
    Unsubscribe,
    Version,
    encode,
)
from tests.broker.rig import Rig
from tests.broker.test_connection import ConnectionCase, Refusals, Wire

LASTING: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry=3600)}


def rig(**limits: Any) -> Rig:
    """A broker whose sessions have these limits."""
    return Rig(limits=HubLimits(session=SessionLimits(**limits)))


class HubLimitTests(SynchronousTestCase):
    """What the broker holds; retained messages have tests of their own."""

    def test_sessions(self) -> None:
        """As many sessions as the limit, connected or not; a client that has one may always come back."""
        made = Rig(limits=HubLimits(sessions=2))
        made.connect("a", **LASTING).loses()
        second = made.connect("b")
        for version, code in ((Version.V5, ReasonCode.QUOTA_EXCEEDED), (Version.V311, 3)):
            refused = made.connect("c", version, read_answer=False)
            self.assertEqual(refused.reason, "mqtt_session_limit")
            self.assertEqual(refused.got, [Connack(False, code)])
        self.assertIsNone(made.connect("a", **LASTING).error)
        self.assertIsNone(made.connect("b").error)
        self.assertEqual(second.closed, ReasonCode.SESSION_TAKEN_OVER)
        made.hub.end_session(made.hub.sessions["a"])
        self.assertIsNone(made.connect("c").error)

    def test_sessions_are_shared(self) -> None:
        """One identity has nearly all, connected or not; others get theirs; who has most gets none that ends."""
        made = Rig(AllowAll(), limits=HubLimits(sessions=100))
        one, other = "spiffe://prod.example/one", "spiffe://prod.example/other"
        for each in range(91):
            self.assertIsNone(made.connect(f"one-{each}", who=one, **(LASTING if each % 2 else {})).error)
        refused = made.connect("one-91", who=one)
        self.assertEqual(refused.reason, "mqtt_session_limit")
        self.assertIn(f"91 by this identity, and most, 91, by {one}", str(refused.error))
        self.assertIsNone(made.connect("one-90", who=one).error)
        count = 0
        while made.connect(f"other-{count}", who=other).error is None:
            count += 1
        self.assertEqual((count, len(made.hub.sessions)), (7, 98))
        self.assertIsNone(made.connect("anonymous", listener="local").error)
        for each in range(6):
            made.hub.end_session(made.hub.sessions[f"other-{each}"])
        self.assertEqual(made.connect("one-91", who=one).reason, "mqtt_session_limit")
        for each in range(3):
            made.hub.end_session(made.hub.sessions[f"one-{each}"])
        self.assertIsNone(made.connect("one-91", who=one).error)

    def test_shared_sessions_that_expired(self) -> None:
        """A session that has expired counts for nobody."""
        made = Rig(AllowAll(), limits=HubLimits(sessions=20))
        one = "spiffe://prod.example/one"
        for each in range(19):
            made.connect(f"one-{each}", who=one, **LASTING).loses()
        self.assertEqual(made.connect("more", who=one).reason, "mqtt_session_limit")
        made.passes(3600)
        self.assertIsNone(made.connect("more", who=one).error)
        self.assertEqual(len(made.hub.sessions), 1)

    def test_sessions_of_identity(self) -> None:
        """One identity has as many as the limit, others have theirs; ended ones do not count; others are unbounded."""
        made = Rig(AllowAll(), limits=HubLimits(sessions_of_identity=2))
        one, other = "spiffe://prod.example/one", "spiffe://prod.example/other"
        first, _second = made.connect("a", who=one, **LASTING), made.connect("b", who=one)
        for version, code in ((Version.V5, ReasonCode.QUOTA_EXCEEDED), (Version.V311, 3)):
            refused = made.connect("c", version, who=one, read_answer=False)
            self.assertEqual(refused.reason, "mqtt_identity_session_limit")
            self.assertEqual(refused.got, [Connack(False, code)])
        for each in range(5):
            self.assertIsNone(made.connect(f"anonymous-{each}").error)
        self.assertIsNone(made.connect("c", who=other).error)
        first.loses()
        self.assertIsNone(made.connect("a", who=one, **LASTING).error)
        made.hub.end_session(made.hub.sessions["b"])
        self.assertIsNone(made.connect("d", who=one).error)

    def test_client_id(self) -> None:
        """Octets count, not characters."""
        made = Rig(limits=HubLimits(client_id=4))
        for name, refused in (("abcd", False), ("öö", False), ("abcde", True), ("ööa", True)):
            for version, code in ((Version.V5, 0x85), (Version.V311, 2)):
                peer = made.connect(name, version, read_answer=False)
                self.assertIs(peer.reason == "mqtt_client_id_invalid", refused)
                self.assertEqual(peer.got[0].code, code if refused else 0)

    def test_session_expiry(self) -> None:
        """A session may last as long as the limit; a client that requests more gets the limit in CONNACK."""
        made = Rig(limits=HubLimits(session_expiry=100))
        for requested, announced in ((99, None), (100, None), (101, 100), (0xFFFFFFFF, 100), (None, None)):
            peer = made.connect(f"c{requested}", read_answer=False, properties=Properties(session_expiry=requested))
            (answer,) = peer.take()
            self.assertEqual(answer.properties.session_expiry, announced)
        peer = made.connect("d", properties=Properties(session_expiry=1))
        peer.sends(Disconnect(0, Properties(session_expiry=500)))
        old = made.connect("old", Version.V311, clean_start=False)
        old.loses()
        made.passes(99)
        self.assertLessEqual({"d", "old"}, set(made.hub.sessions))
        made.passes(1)
        self.assertFalse({"d", "old"} & set(made.hub.sessions))


class SessionLimitTests(SynchronousTestCase):
    """What one session may use."""

    def test_queued(self) -> None:
        """Waiting messages count together with unacknowledged ones; QoS 0 and other sessions are not concerned."""
        made = rig(queued=2)
        slow, other = made.connect("s", properties=Properties(receive_maximum=1)), made.connect("o")
        for each in (slow, other):
            each.subscribes("t")
        publisher = made.connect("p")
        for number in range(3):
            publisher.publishes("t", b"%d" % number, 1)
            other.answers(PacketType.PUBACK, other.messages[-1].packet_id)
        publisher.publishes("t", b"zero", 0)
        self.assertEqual([each.payload for each in slow.messages], [b"0", b"zero"])
        self.assertEqual(made.hub.statistics.drops, {"queue_full": 1})
        slow.take()
        slow.got = slow.answers(PacketType.PUBACK, 1)
        self.assertEqual([each.payload for each in slow.messages], [b"1"])
        publisher.publishes("t", b"room again", 1)
        self.assertEqual(made.hub.sessions["s"].waiting, 2)

    def test_octets(self) -> None:
        """The octets of what waits are bounded to the octet, and given back."""
        size = Message("t", b"12345").size
        made = rig(octets=2 * size)
        away = made.connect("s", **LASTING)
        away.subscribes("t")
        away.loses()
        publisher = made.connect("p")
        for payload in (b"12345", b"123456", b"12345", b""):
            publisher.publishes("t", payload, 1)
        self.assertEqual(made.hub.statistics.drops, {"queue_full": 2})
        back = made.connect("s", **LASTING)
        self.assertEqual([each.payload for each in back.messages], [b"12345", b"12345"])
        for each in back.messages:
            back.answers(PacketType.PUBACK, each.packet_id)
        publisher.publishes("t", b"x" * (size + 5 - 1), 1)
        self.assertEqual(len(back.messages), 1)

    def test_received(self) -> None:
        """It is announced to MQTT 5.0; what happens at it and beyond is tested in :mod:`tests.broker.test_flow`."""
        (answer,) = rig(received=2).connect("c", read_answer=False).take()
        self.assertEqual(answer.properties.receive_maximum, 2)

    def test_subscriptions(self) -> None:
        """One filter more than the limit is refused by itself; one that is there may change."""
        made = rig(subscriptions=2)
        for version, code in ((Version.V5, 0x97), (Version.V311, 0x80)):
            peer = made.connect("c", version)
            wanted = [Subscription(each, 1) for each in ("a", "b", "c")]
            self.assertEqual(peer.subscribes(*wanted), [Suback(1, [1, 1, code])])
            self.assertEqual(peer.subscribes(Subscription("a", 2), wanted[2]), [Suback(1, [2, code])])
            self.assertEqual(len(made.hub.subscriptions), 2)

    def test_answers_that_the_client_does_not_accept(self) -> None:
        """SUBACK and UNSUBACK as large as it accepts are sent; one octet more ends the connection, nothing begun."""
        made = rig()
        for count, small in ((120, True), (121, False), (124, True), (125, False)):
            filters = [f"f{number}" for number in range(count)]
            header = 2 if count < 125 else 3
            peer = made.connect("c", properties=Properties(maximum_packet_size=3 + count + header - (not small)))
            (answer,) = peer.subscribes(*filters) or (None,)
            self.assertEqual(isinstance(answer, Suback), small)
            if small:
                (answer,) = peer.sends(Unsubscribe(2, filters))
                self.assertIsInstance(answer, Unsuback)
                peer.sends(Unsubscribe(3, [*filters, "one more"]))
            self.assertIsInstance(peer.error, AnswerTooLarge)
            self.assertEqual((peer.closed, len(made.hub.subscriptions)), (ReasonCode.PACKET_TOO_LARGE, 0))

    def test_connack_that_the_client_does_not_accept(self) -> None:
        """Topic aliases may be left unsaid; where that does not do, the client is refused and nothing has changed."""
        made = Rig(limits=HubLimits(session_expiry=100))
        there = made.connect("c", **LASTING)
        for largest in (40, 24, 23, 21):
            properties = Properties(session_expiry=3600, maximum_packet_size=largest)
            there = made.connect("c", clean_start=False, properties=properties, read_answer=False)
            (answer,) = there.take()
            size = len(encode(answer, Version.V5, "server"))
            self.assertEqual(size, 24 if largest >= 24 else 21)
            properties = answer.properties
            self.assertEqual(properties.topic_alias_maximum, 100 if largest >= 24 else None)
            self.assertEqual(
                (properties.session_expiry, properties.receive_maximum, properties.maximum_packet_size),
                (100, 100, 1 << 20),
            )
            there.publishes("t", b"m", properties=Properties(topic_alias=1))
            self.assertIsNone(there.error)
        for largest in (20, 5, 4, 1):
            properties = Properties(session_expiry=3600, maximum_packet_size=largest)
            peer = made.connect("c", clean_start=False, properties=properties, read_answer=False)
            self.assertIsInstance(peer.error, AnswerTooLarge)
            self.assertEqual(peer.got, [Connack(code=ReasonCode.PACKET_TOO_LARGE)] if largest > 4 else [])
        self.assertIsNone(there.closed)

    def test_connack_with_a_name(self) -> None:
        """The identifier that the broker assigns must be sent."""
        made = rig()
        for largest, refused in ((30, False), (25, False), (24, True)):
            properties = Properties(maximum_packet_size=largest)
            peer = made.connect("", properties=properties, read_answer=False)
            self.assertIs(isinstance(peer.error, AnswerTooLarge), refused)
        self.assertEqual(len(made.hub.sessions), 2)

    def test_aliases(self) -> None:
        """The announced highest alias is accepted, one above it ends the connection; without aliases it is absent."""
        made = rig(aliases=2)
        peer = made.connect("c", read_answer=False)
        (answer,) = peer.take()
        self.assertEqual(answer.properties.topic_alias_maximum, 2)
        peer.publishes("t", b"m", 0, properties=Properties(topic_alias=2))
        self.assertIsNone(peer.error)
        peer.publishes("t", b"m", 0, properties=Properties(topic_alias=3))
        self.assertIsInstance(peer.error, TopicAliasInvalid)
        none = rig(aliases=0).connect("c", read_answer=False)
        (answer,) = none.take()
        self.assertIsNone(answer.properties.topic_alias_maximum)
        none.publishes("t", b"m", 0, properties=Properties(topic_alias=1))
        self.assertIsInstance(none.error, TopicAliasInvalid)


class ConnectionLimitTests(ConnectionCase):
    """What a connection may use."""

    def wire(self, **limits: Any) -> Wire:
        """Connect a client of a broker with these limits of a packet."""
        wire = Wire(self.make(connection_limits=ConnectionLimits(PacketLimits(**limits))))
        (answer,) = wire.sends(Connect("c"))
        assert isinstance(answer, Connack)
        self.assertEqual(answer.properties.maximum_packet_size, limits.get("packet", 1024 * 1024))
        return wire

    def assert_limit(self, wire: Wire, good: Any, bad: Any, code: int) -> None:
        """Send what is allowed, and what is one too much."""
        self.assertIn(Pingresp(), wire.sends(good, Pingreq()))
        self.assertEqual(wire.sends(bad), [Disconnect(code)])
        self.assertTrue(wire.ended)

    def test_packet(self) -> None:
        """A packet of as many octets as announced, and one octet more."""
        good, bad = Publish("t", bytes(100 - 6)), Publish("t", bytes(100 - 5))
        self.assert_limit(self.wire(packet=100), good, bad, ReasonCode.PACKET_TOO_LARGE)

    def test_properties(self) -> None:
        """Properties of a packet, user properties included."""

        def message(count: int) -> Publish:
            return Publish("t", b"", properties=Properties(content_type="x", user=(("a", "b"),) * (count - 1)))

        self.assert_limit(self.wire(properties=5), message(5), message(6), ReasonCode.QUOTA_EXCEEDED)

    def test_levels(self) -> None:
        """Levels of a topic."""
        self.assert_limit(self.wire(levels=3), Publish("a/b/c", b""), Publish("a/b/c/", b""), ReasonCode.QUOTA_EXCEEDED)

    def test_filters(self) -> None:
        """Filters of a packet."""

        def packet(count: int) -> Subscribe:
            return Subscribe(1, [Subscription(str(each)) for each in range(count)])

        self.assert_limit(self.wire(filters=3), packet(3), packet(4), ReasonCode.QUOTA_EXCEEDED)

    def test_connect(self) -> None:
        """The time until CONNECT, for whole seconds of a configured bound."""
        wire = Wire(self.make(connection_limits=ConnectionLimits(connect=3)))
        self.passes(2)
        self.assertFalse(wire.ended)
        self.passes(1)
        self.assertTrue(wire.ended)

    def test_keep_alive(self) -> None:
        """The longest keep alive is in force for who asks for a longer one, and cut at one and a half of it."""
        broker = self.make(connection_limits=ConnectionLimits(keep_alive=10))
        asked, version311 = Wire(broker), Wire(broker, Version.V311)
        asked.sends(Connect("c", keep_alive=11))
        version311.sends(Connect("d", Version.V311, keep_alive=11))
        self.passes(14)
        self.assertFalse(asked.ended)
        self.passes(1)
        self.assertTrue(asked.ended)
        # MQTT 3.1.1 has no field for it: what the client requested is in force.
        self.assertFalse(version311.ended)
        self.passes(2)
        self.assertTrue(version311.ended)


class SharedConnectionTests(ConnectionCase):
    """The connections of one listener, which identities share near its limit."""

    def setUp(self) -> None:
        super().setUp()
        self.errors: list[SvcError] = []
        self.broker = self.make(reporter=Refusals(self.errors))
        self.factory = self.broker.factory(lambda _transport: Principal(self.identity), connections=20)
        self.identity: SpiffeID | None = None

    def wire(self, who: str | None) -> Wire:
        """Connect a client of an identity."""
        self.identity = None if who is None else SpiffeID.parse(f"spiffe://prod.example/{who}")
        return SharedWire(self.broker, self.factory)

    def test_shares(self) -> None:
        """One identity has nearly all, with or without CONNECT; another one gets a part; lost ones are free."""
        taken = [self.wire("one") for _ in range(19)]
        refused = self.wire("one")
        self.assertTrue(refused.ended)
        self.assertTrue(refused.transport.disconnected)
        self.assertEqual(refused.receives(), [])
        self.assertEqual([each.reason for each in self.errors], ["mqtt_connection_share"])
        self.assertIn("19 by this identity, and most, 19, by spiffe://prod.example/one", str(self.errors[0]))
        self.assertEqual(self.broker.hub.statistics.refused, {"mqtt_connection_share": 1})
        refused.protocol.connectionLost()
        self.assertFalse(self.wire("other").ended)
        for each in taken[:7]:
            each.protocol.connectionLost()
        self.assertFalse(self.wire("one").ended)

    def test_anonymous(self) -> None:
        """Clients without an identity do not count: the listener has no others."""
        self.assertFalse(any(self.wire(None).ended for _ in range(21)))

    def test_no_limit(self) -> None:
        """Where the listener's limit is not given, nothing is shared."""
        self.factory = self.broker.factory(lambda _transport: Principal(self.identity))
        self.assertFalse(any(self.wire("one").ended for _ in range(21)))


class SharedWire(Wire):
    """A client of a listener that others have, too."""

    def __init__(self, broker: Broker, factory: Factory) -> None:
        self._factory = factory
        super().__init__(broker)

    def protocol_of(self, broker: Broker) -> BrokerConnection:
        """Make the broker's end."""
        protocol = self._factory.buildProtocol(None)
        assert isinstance(protocol, BrokerConnection)
        return protocol

"""A session that passes everything through: what passes, what is refused, and how it ends."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from svc.proxy.errors import NotaryRate, RecordTooLarge, UpstreamUnreachable
from svc.proxy.mqtt.admission import MAX_ALIASES
from svc.proxy.mqtt.errors import ClientIdRefused, UpstreamSessionEnded
from svc.proxy.mqtt.passing.session import MAX_TOPIC_OCTETS, MAX_TOPICS
from svc.proxy.mqtt.recorded import MAX_IN_USE
from svc.proxy.mqtt.subscribing import MAX_FILTER_OCTETS, MAX_WAITING, ClientFilters
from svc.transport.errors import ConnectionLimitReached
from svc.wire.mqtt import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    ReasonCode,
    ReceiveMaximumExceeded,
    ReturnCode,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
    encode,
)
from svc.wire.mqtt.codes import REASONS
from tests.peers.waiting import rounds
from tests.proxy.mqtt.sessions import LIMITS, Pair, Recorder, denied
from tests.wire.mqtt import packets

V311, V5 = Version.V311, Version.V5
VERSIONS = (V311, V5)
NOT_AUTHORIZED = ReasonCode.NOT_AUTHORIZED


def puback(packet_id: int, code: int = 0, **properties: Any) -> Acknowledgement:
    """A PUBACK."""
    return Acknowledgement(PacketType.PUBACK, packet_id, code, Properties(**properties))


def pubrec(packet_id: int, code: int = 0) -> Acknowledgement:
    """A PUBREC."""
    return Acknowledgement(PacketType.PUBREC, packet_id, code)


class BeginningTests(SynchronousTestCase):
    """CONNECT and CONNACK."""

    def test_both_pass(self) -> None:
        """CONNECT is sent when the broker is connected to, and CONNACK comes back."""
        for version in VERSIONS:
            pair = Pair(version)
            connect = Connect("c", version, False, 30, Will("w", b"x", 1, True), "user", b"password")
            pair.client(connect)
            self.assertEqual((pair.opened, pair.held, pair.to_upstream), (1, True, b""))
            pair.session.upstream_opened()
            [sent] = pair.take_upstream()
            assert isinstance(sent, Connect)
            self.assertEqual(replace(sent, properties=connect.properties), connect)
            pair.upstream(Connack(True))
            [answer] = pair.take_client()
            assert isinstance(answer, Connack)
            self.assertEqual((answer.session_present, answer.code, pair.held), (True, 0, False))
            self.assertEqual(pair.session.keep_alive, 30)

    def test_lowered_limits(self) -> None:
        """Maximum Packet Size and Topic Alias Maximum are lowered, and never raised."""
        for given_size, given_aliases, size, aliases in (
            (None, None, 64 * 1024, None),
            (100, 5, 100, 5),
            (10**6, 65535, 64 * 1024, MAX_ALIASES),
        ):
            properties = Properties(maximum_packet_size=given_size, topic_alias_maximum=given_aliases)
            pair = Pair()
            pair.client(Connect("c", properties=properties))
            pair.session.upstream_opened()
            pair.upstream(Connack(properties=properties))
            for [packet] in (pair.take_upstream(), pair.take_client()):
                found = packet.properties
                self.assertEqual((found.maximum_packet_size, found.topic_alias_maximum), (size, aliases))

    def test_server_keep_alive(self) -> None:
        """The keep alive of the broker counts."""
        pair = Pair().open(Connect("c", keep_alive=60), Connack(properties=Properties(server_keep_alive=5)))
        self.assertEqual(pair.session.keep_alive, 5)

    def test_packets_behind_connect(self) -> None:
        """What a client sends without waiting for CONNACK waits for it, undecided; nothing is lost."""
        pair = Pair(V311)
        message = Publish("t", b"1", 1, packet_id=1)
        pair.client(Connect("c", V311), message)
        pair.session.upstream_opened()
        self.assertEqual([each.type for each in pair.take_upstream()], [PacketType.CONNECT])
        self.assertTrue(pair.held)
        self.assertEqual(pair.authorizer.decisions, [])
        pair.upstream(Connack())
        self.assertEqual((pair.take_upstream(), pair.held), ([message], False))

    def test_enhanced_authentication(self) -> None:
        """AUTH passes in both directions before CONNACK and after it."""
        method = Properties(authentication_method="SCRAM", authentication_data=b"x")
        pair = Pair()
        pair.client(Connect("c", properties=method))
        pair.session.upstream_opened()
        pair.take_upstream()
        pair.upstream(Auth(0x18, method))
        pair.client(Auth(0x18, method))
        self.assertEqual(pair.take_client(), [Auth(0x18, method)])
        self.assertEqual(pair.take_upstream(), [Auth(0x18, method)])
        pair.upstream(Connack())
        pair.take_client()
        pair.client(Auth(0x19, method))
        self.assertEqual(pair.take_upstream(), [Auth(0x19, method)])

    def test_refused_client(self) -> None:
        """A refused client gets its reason, and the broker is not connected to."""
        for error, v5, v311, cause in (
            (denied(), NOT_AUTHORIZED, ReturnCode.NOT_AUTHORIZED, "policy_deny"),
            (
                ClientIdRefused(identity="i", policy="p", rule="r"),
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
                ReturnCode.IDENTIFIER_REJECTED,
                "policy_deny",
            ),
            (
                ConnectionLimitReached(limit=1),
                ReasonCode.SERVER_BUSY,
                ReturnCode.SERVER_UNAVAILABLE,
                "connection_limit",
            ),
        ):
            for version, code in ((V5, v5), (V311, v311)):
                pair = Pair(version)
                pair.authorizer.connecting = error
                pair.client(Connect("c", version), Publish("t", b""))
                self.assertEqual(pair.take_client(), [Connack(code=code)])
                assert pair.ended is not None
                self.assertEqual((pair.ended[0], pair.opened, pair.to_upstream), (cause, 0, b""))

    def test_refused_will(self) -> None:
        """A will is decided on as a message; the reserved topics are refused too."""
        for topic in ("secret", "$SYS/x"):
            pair = Pair()
            pair.authorizer.topics = {"secret"}
            pair.client(Connect("c", will=Will(topic, b"")))
            self.assertEqual(pair.take_client(), [Connack(code=NOT_AUTHORIZED)])
            self.assertEqual(pair.refusals, [("Publish", topic)])

    def test_length_of_client_identifiers(self) -> None:
        """An identifier of the most octets passes, a longer one is not valid."""
        Pair().open(Connect("c" * LIMITS.client_id))
        pair = Pair()
        pair.client(Connect("c" * (LIMITS.client_id + 1)))
        self.assertEqual(pair.take_client(), [Connack(code=ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)])

    def test_no_connect(self) -> None:
        """Another version gets a return code, anything else nothing; both are closed."""
        for data, answer in (
            (b"\x10\x0c\x00\x06MQIsdp\x03\x02\x00\x00", Connack(code=ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION)),
            (encode(Connect("", V311, False), V311, "client"), Connack(code=ReturnCode.IDENTIFIER_REJECTED)),
            (b"\x16\x03\x01", None),
            (encode(Pingreq(), V5, "client"), None),
        ):
            pair = Pair(V311)
            pair.session.client_received(data)
            self.assertEqual(pair.take_client(), [] if answer is None else [answer])
            assert pair.ended is not None
            self.assertEqual((pair.ended[0], pair.opened), ("protocol", 0))

    def test_broker_refuses(self) -> None:
        """The CONNACK of the broker is passed on and counted by the name of its code."""
        for version, code, reason in (
            (V311, 5, "not_authorized"),
            (V311, 2, "identifier_rejected"),
            (V5, 0x8A, "banned"),
        ):
            pair = Pair(version)
            pair.client(Connect("c", version))
            pair.session.upstream_opened()
            pair.upstream(Connack(code=code))
            self.assertEqual(pair.take_client(), [Connack(code=code)])
            assert pair.ended is not None
            self.assertEqual(pair.ended[0], "upstream")
            self.assertIsInstance(pair.ended[1], UpstreamSessionEnded)
            self.assertEqual(pair.count("upstream_connack_rejected", reason=reason), 1)

    def test_redirection(self) -> None:
        """A Server Reference is passed on."""
        pair = Pair()
        pair.client(Connect("c"))
        pair.session.upstream_opened()
        elsewhere = Connack(code=ReasonCode.USE_ANOTHER_SERVER, properties=Properties(server_reference="b.example"))
        pair.upstream(elsewhere)
        self.assertEqual(pair.take_client(), [elsewhere])

    def test_unreachable_broker(self) -> None:
        """The client gets Server unavailable in the words of its version."""
        for version, code in ((V5, 0x88), (V311, 3)):
            pair = Pair(version)
            pair.client(Connect("c", version))
            pair.session.upstream_lost(UpstreamUnreachable(upstream="the broker", what="refused"))
            self.assertEqual(pair.take_client(), [Connack(code=code)])
            assert pair.ended is not None
            self.assertEqual(pair.ended[0], "upstream")


class PassingTests(SynchronousTestCase):
    """What is permitted passes octet for octet."""

    @given(st.data(), st.sampled_from(VERSIONS))
    def test_from_clients(self, data: st.DataObject, version: Version) -> None:
        """Any packets of a client, in any reads, reach the broker as they are."""
        sent = data.draw(st.lists(packets.later(version, "client").filter(_ordinary), max_size=6))
        unique = {each.packet_id: each for each in sent if isinstance(each, Unsubscribe)}
        sent = [each for each in sent if not isinstance(each, Unsubscribe) or unique[each.packet_id] is each]
        whole = b"".join(encode(each, version, "client") for each in sent)
        limits = replace(LIMITS, subscriptions=1000)
        pair = Pair(version, limits=limits).open()
        for part in _split(data, whole):
            pair.session.client_received(part)
        self.assertEqual((pair.to_upstream, pair.to_client, pair.ended), (whole, b"", None))

    @given(st.data(), st.sampled_from(VERSIONS), st.booleans())
    def test_from_brokers(self, data: st.DataObject, version: Version, present: bool) -> None:
        """The same of a broker, also where deliveries are decided on."""
        sent = data.draw(st.lists(packets.later(version, "server").filter(_ordinary), max_size=6))
        whole = b"".join(encode(each, version, "server") for each in sent)
        pair = Pair(version).open(connack=Connack(present))
        for part in _split(data, whole):
            pair.session.upstream_received(part)
        self.assertEqual((pair.to_client, pair.to_upstream, pair.ended), (whole, b"", None))

    @given(st.data(), st.sampled_from(VERSIONS))
    def test_refused_among_them(self, data: st.DataObject, version: Version) -> None:
        """Whatever is refused among what is permitted, exactly the rest reaches the broker, each has its answer."""
        topics = st.sampled_from(["open/a", "open/b", "closed/a", "closed/b"])
        messages = st.builds(Publish, topics, packets.BLOBS, packets.QOS, packet_id=packets.IDS)
        sent = data.draw(st.lists(messages, max_size=8))
        for each in sent:
            each.packet_id = each.packet_id if each.qos else 0
        pair = Pair(version).open()
        pair.authorizer.topics = {"closed/a", "closed/b"}
        for part in _split(data, b"".join(encode(each, version, "client") for each in sent)):
            pair.session.client_received(part)
        closed = next((n for n, each in enumerate(sent) if each.topic.startswith("closed")), None)
        if version is V311 and closed is not None:
            self.assertEqual((pair.take_upstream(), pair.take_client()), (sent[:closed], []))
            self.assertEqual(pair.ended, ("policy_deny", None))
            return
        refused = [each for each in sent if each.topic.startswith("closed")]
        self.assertEqual(pair.take_upstream(), [each for each in sent if each not in refused])
        answers = [(puback, pubrec)[each.qos - 1](each.packet_id, NOT_AUTHORIZED) for each in refused if each.qos]
        self.assertEqual(pair.take_client(), answers)
        self.assertEqual(pair.refusals, [("Publish", each.topic) for each in refused])

    @given(st.sampled_from(VERSIONS), st.lists(st.binary(max_size=40), max_size=5), st.booleans(), st.booleans())
    def test_any_octets(self, version: Version, parts: list[bytes], opened: bool, of_client: bool) -> None:
        """Any octets of either side are passed on, or end the session with an error."""
        pair = Pair(version)
        if opened:
            pair.open()
        for part in parts:
            (pair.session.client_received if of_client or not opened else pair.session.upstream_received)(part)
        self.assertTrue(pair.ended is None or pair.ended[0] in ("client", "application", "protocol", "upstream"))

    def test_one_decision_for_a_topic(self) -> None:
        """A topic is decided on once until the policies change; a refused one each time."""
        pair = Pair().open()
        for _ in range(3):
            pair.client(Publish("t", b"", 1, packet_id=1))
        self.assertEqual(pair.authorizer.decisions, [("Publish", "t")])
        pair.session.reauthorize()
        pair.authorizer.topics = {"t"}
        pair.client(Publish("t", b"", 1, packet_id=1))
        self.assertEqual((len(pair.take_upstream()), pair.take_client()), (3, [puback(1, NOT_AUTHORIZED)]))

    def test_bounded_memory_of_topics(self) -> None:
        """As many topics are remembered as allowed, and none that is too long; then all are decided on again."""
        pair = Pair(V311).open()
        long = "x" * (MAX_TOPIC_OCTETS + 1)
        for topic in (*map(str, range(MAX_TOPICS)), long, long, "0", "more", "0"):
            pair.client(Publish(topic, b""))
        asked = [topic for _action, topic in pair.authorizer.decisions]
        self.assertEqual(asked[MAX_TOPICS:], [long, long, "more", "0"])

    def test_messages_at_workload_are_counted(self) -> None:
        """Each that passes, with any quality of service, looked at closely or in a run, also between recorded ones."""
        for version in VERSIONS:
            pair = Pair(version).open()
            pair.authorizer.level = Level.WORKLOAD
            for qos in (0, 1, 2):
                pair.client(*(Publish("t", b"", qos, packet_id=qos and number) for number in (1, 2)))
            self.assertEqual(pair.at_workload, 6)
            pair.authorizer.topics.add("no")
            pair.client(Publish("no", b""))
            self.assertEqual(pair.at_workload, 6)
            pair = Pair(version).open()
            pair.client(Publish("t", b""), Publish("t", b""))
            self.assertEqual(pair.at_workload, 0, "at the level none")
            pair = Pair(version, recorder=Recorder()).open()
            pair.authorizer.levels["plain"] = Level.WORKLOAD
            for number in (1, 2):
                pair.client(Publish("plain", b"", 0), Publish("plain", b"", 0), Publish("t", b"", 0))
                self.assertEqual(pair.at_workload, 2 * number)

    def test_messages_are_counted(self) -> None:
        """Messages with a QoS above 0 that were forwarded, and those that the broker acknowledged with success."""
        for version in VERSIONS:
            pair = Pair(version).open()
            for qos in (0, 1, 2):
                pair.client(*(Publish("t", b"", qos, packet_id=qos and number) for number in (1, 2)))
            self.assertEqual(pair.count("buffer_messages_stored"), 4)
            pair.upstream(puback(1), pubrec(2), Acknowledgement(PacketType.PUBCOMP, 2), Pingresp())
            if version is V5:
                pair.upstream(puback(2, 0x10), puback(3, 0x87))
            self.assertEqual(pair.count("buffer_messages_acked", source="upstream"), 2 if version is V311 else 3)

    def test_largest_packet(self) -> None:
        """A packet of the most octets passes in both directions; a larger one ends the session."""
        topic, most = "t", LIMITS.packet.packet
        overhead = len(encode(Publish(topic, b"x" * (most - 100)), V5, "client")) - (most - 100)
        for extra, ended in ((0, False), (1, True)):
            message = Publish(topic, b"x" * (most - overhead + extra))
            pair = Pair().open()
            pair.client(message)
            self.assertEqual(pair.ended is not None, ended)
            self.assertEqual(pair.take_client(), [Disconnect(ReasonCode.PACKET_TOO_LARGE)] if ended else [])
            pair = Pair().open()
            pair.upstream(message)
            self.assertEqual(pair.ended is not None and pair.ended[0], "upstream" if ended else False)


def _ordinary(packet: Packet) -> bool:
    """Whether a packet does not end a session, uses no alias and no reserved name."""
    properties = getattr(packet, "properties", Properties())
    return not (
        isinstance(packet, Disconnect)
        or any(name.startswith("svc-") for name, _value in properties.user)
        or properties.topic_alias is not None
        or (isinstance(packet, Publish) and packet.topic.startswith("$"))
    )


def _split(data: st.DataObject, whole: bytes) -> list[bytes]:
    """Any reads of octets."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    return [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


class PropertyTests(SynchronousTestCase):
    """User properties of the proxy's own names."""

    def test_removed_in_both_directions(self) -> None:
        """They are removed from every packet that can have them, and the others stay."""
        both = Properties(user=(("a", "1"), ("svc-x", "2"), ("svc-nonce", "3"), ("svc-receipt-id", "4"), ("svc", "5")))
        left = Properties(user=(("a", "1"), ("svc", "5")))
        pair = Pair()
        pair.client(Connect("c", will=Will("w", b"", properties=both), properties=both))
        pair.session.upstream_opened()
        [connect] = pair.take_upstream()
        assert isinstance(connect, Connect) and connect.will is not None
        self.assertEqual((connect.properties.user, connect.will.properties.user), (left.user, left.user))
        pair.upstream(Connack(properties=both))
        [connack] = pair.take_client()
        assert isinstance(connack, Connack)
        self.assertEqual(connack.properties.user, left.user)
        release = Acknowledgement(PacketType.PUBREL, 1, 0x92)
        for packet in (
            Publish("t", b"x", 1, packet_id=1),
            puback(1),
            release,
            Subscribe(1, [Subscription("t")]),
            Unsubscribe(2, ["t"]),
            Auth(0x18, Properties(authentication_method="m")),
            Disconnect(4),
        ):
            with_both = replace(packet, properties=packet.properties.replace(user=both.user))
            pair.client(with_both)
            self.assertEqual(
                pair.take_upstream(), [replace(packet, properties=packet.properties.replace(user=left.user))]
            )
        pair = Pair().open()
        for packet in (
            Publish("t", b"x"),
            puback(1),
            release,
            Suback(1, [0]),
            Unsuback(2, [0]),
            Auth(0x18, Properties(authentication_method="m")),
            Disconnect(0x8B),
        ):
            pair.upstream(replace(packet, properties=packet.properties.replace(user=both.user)))
            self.assertEqual(
                pair.take_client(), [replace(packet, properties=packet.properties.replace(user=left.user))]
            )

    def test_between_proxies(self) -> None:
        """To and from the proxy of a peer nonces and identifiers of receipts pass, and nothing else of that kind."""
        pair = Pair(peer_is_proxy=True).open()
        user = (("svc-nonce", "n"), ("svc-receipt-id", "r"), ("svc-x", "x"))
        pair.client(Publish("t", b"", 1, packet_id=1, properties=Properties(user=user)))
        [message] = pair.take_upstream()
        pair.upstream(puback(1, user=user))
        [answer] = pair.take_client()
        self.assertEqual(message.properties.user, user[:1])
        self.assertEqual(answer.properties.user, user[1:2])

    def test_name_in_a_payload(self) -> None:
        """Where such a name is not a property the octets pass as they are."""
        message = encode(Publish("svc-t", b"svc-x", properties=Properties(content_type="svc-y")), V5, "client")
        pair = Pair().open()
        pair.session.client_received(message)
        self.assertEqual(pair.to_upstream, message)


class AliasTests(SynchronousTestCase):
    """Topic aliases of clients, and of brokers to clients whose deliveries are decided on."""

    def setUp(self) -> None:
        """A session with five aliases in each direction."""
        properties = Properties(topic_alias_maximum=5)
        self.pair = Pair().open(Connect("c", properties=properties), Connack(True, properties=properties))

    def publish(self, topic: str, alias: int | None, qos: Any = 0) -> None:
        """Publish with an alias."""
        self.pair.client(Publish(topic, b"", qos, packet_id=qos, properties=Properties(topic_alias=alias)))

    def test_resolved_for_the_decision(self) -> None:
        """A message with an alias alone is decided on by the topic that it stands for, and passes as it is."""
        self.pair.authorizer.topics = {"secret"}
        self.publish("t", 1)
        self.publish("", 1)
        self.assertEqual([each.topic for each in self.pair.take_upstream() if isinstance(each, Publish)], ["t", ""])
        self.publish("secret", 1)
        self.publish("", 1, 1)
        self.assertEqual((self.pair.take_upstream(), self.pair.take_client()), ([], [puback(1, NOT_AUTHORIZED)]))

    def test_topic_with_a_decision_assigns_too(self) -> None:
        """A message to a topic with a decision that assigns an alias is not overlooked."""
        self.publish("t", None)
        self.publish("other", 1)
        self.publish("t", 1)
        self.pair.authorizer.topics = {"other"}
        self.pair.session.reauthorize()
        self.publish("", 1)
        self.assertEqual(len(self.pair.take_upstream()), 4)

    def test_alias_that_the_broker_did_not_get(self) -> None:
        """An alias that a refused message assigned is sent with its topic once that is permitted."""
        self.publish("t", 1)
        self.pair.authorizer.topics = {"late"}
        self.publish("late", 1)
        self.pair.authorizer.topics = set()
        self.pair.take_upstream()
        self.publish("", 1)
        self.publish("", 1)
        self.assertEqual([each.topic for each in self.pair.take_upstream() if isinstance(each, Publish)], ["late", ""])

    def test_unknown_alias(self) -> None:
        """An alias that stands for nothing ends the session, also where the broker takes none."""
        for pair in (self.pair, Pair().open()):
            pair.client(Publish("", b"", properties=Properties(topic_alias=2)))
            self.assertEqual(pair.take_client(), [Disconnect(ReasonCode.TOPIC_ALIAS_INVALID)])
            self.assertEqual(pair.ended and pair.ended[0], "protocol")

    def test_alias_above_the_maximum(self) -> None:
        """It is left to the broker, and stands for nothing here."""
        self.publish("t", 6)
        self.assertEqual(len(self.pair.take_upstream()), 1)
        self.publish("", 6)
        self.assertEqual(self.pair.take_client(), [Disconnect(ReasonCode.TOPIC_ALIAS_INVALID)])

    def test_deliveries(self) -> None:
        """The aliases of a broker are resolved for the decision on a delivery."""
        self.pair.authorizer.filters = {"secret"}
        self.pair.upstream(Publish("t", b"", properties=Properties(topic_alias=1)))
        self.pair.upstream(Publish("", b"", properties=Properties(topic_alias=1)))
        self.assertEqual(len(self.pair.take_client()), 2)
        self.pair.upstream(Publish("secret", b"x", properties=Properties(topic_alias=1)))
        self.assertEqual(self.pair.take_client(), [Disconnect(NOT_AUTHORIZED)])
        self.assertEqual(self.pair.refusals, [("Subscribe", "secret")])


class SubscriptionTests(SynchronousTestCase):
    """SUBSCRIBE, UNSUBSCRIBE and their responses."""

    def test_some_are_refused(self) -> None:
        """The others are passed on, and the codes are put together."""
        for version, code in ((V5, 0x87), (V311, 0x80)):
            pair = Pair(version).open()
            pair.authorizer.filters = {"a", "c"}
            pair.client(Subscribe(7, [Subscription(each, 1) for each in "abc"]))
            self.assertEqual(pair.take_upstream(), [Subscribe(7, [Subscription("b", 1)])])
            self.assertEqual(pair.take_client(), [])
            pair.upstream(Suback(7, [1]))
            self.assertEqual(pair.take_client(), [Suback(7, [code, 1, code])])
            self.assertEqual(pair.refusals, [("Subscribe", "a"), ("Subscribe", "c")])

    def test_all_are_refused(self) -> None:
        """The broker gets nothing."""
        for version, code in ((V5, 0x87), (V311, 0x80)):
            pair = Pair(version).open()
            pair.authorizer.filters = {"#", "$share/g/#"}
            pair.client(Subscribe(7, [Subscription("#"), Subscription("$share/g/#")]))
            self.assertEqual((pair.take_upstream(), pair.take_client()), ([], [Suback(7, [code, code])]))

    def test_number_of_filters(self) -> None:
        """A client is subscribed to as many filters as allowed; one more is over its quota, until one is removed."""
        pair = Pair().open()
        pair.client(Subscribe(1, [Subscription(each) for each in "abcd"]))
        pair.upstream(Suback(1, [0, 0, 0]))
        self.assertEqual(pair.take_client(), [Suback(1, [0, 0, 0, 0x97])])
        pair.client(Subscribe(2, [Subscription("a")]))
        pair.client(Unsubscribe(3, ["b", "c"]))
        pair.upstream(Suback(2, [0]), Unsuback(3, [0, 0x87]))
        pair.client(Subscribe(4, [Subscription("e"), Subscription("f")]))
        pair.upstream(Suback(4, [0]))
        found = pair.take_client()
        self.assertEqual(found, [Suback(2, [0]), Unsuback(3, [0, 0x87]), Suback(4, [0, 0x97])])
        old = Pair(V311).open()
        old.client(Subscribe(1, [Subscription(each) for each in "abcd"]))
        old.upstream(Suback(1, [0, 0, 0]))
        old.client(Unsubscribe(2, ["a"]))
        old.upstream(Unsuback(2))
        old.client(Subscribe(3, [Subscription("d")]))
        self.assertEqual(old.take_client(), [Suback(1, [0, 0, 0, 0x80]), Unsuback(2)])

    def test_octets_of_filters(self) -> None:
        """All filters together have as many octets as allowed."""
        filters = ClientFilters(1000)
        piece = MAX_FILTER_OCTETS // 8
        self.assertTrue(all(filters.add(f"{number}".rjust(piece, "x")) for number in range(8)))
        self.assertFalse(filters.add("y"))

    def test_requests_that_wait(self) -> None:
        """A packet identifier that waits is in use; no more requests wait than allowed."""
        for again in (Unsubscribe(5, ["a"]), Subscribe(5, [Subscription("a"), Subscription("no")])):
            pair = Pair().open()
            pair.authorizer.filters = {"no"}
            pair.client(Unsubscribe(5, ["a"]), again)
            self.assertEqual(pair.take_client(), [Disconnect(ReasonCode.PROTOCOL_ERROR)])
        pair = Pair().open()
        pair.client(*(Unsubscribe(number, ["a"]) for number in range(1, MAX_WAITING + 1)))
        self.assertEqual(pair.take_client(), [])
        pair.client(Unsubscribe(MAX_WAITING + 1, ["a"]))
        self.assertEqual(pair.take_client(), [Disconnect(ReasonCode.QUOTA_EXCEEDED)])

    def test_response_of_another_length(self) -> None:
        """A broker that responds to another number of filters breaks MQTT."""
        pair = Pair().open()
        pair.authorizer.filters = {"a"}
        pair.client(Subscribe(7, [Subscription("a"), Subscription("b")]))
        pair.upstream(Suback(7, [0, 0]))
        self.assertEqual(pair.ended and pair.ended[0], "upstream")

    def test_subscriptions_of_an_earlier_connection(self) -> None:
        """Where a session was present each delivery is decided on, once for a topic; a refused one ends the session."""
        for present, ended in ((True, True), (False, False)):
            pair = Pair().open(connack=Connack(present))
            pair.authorizer.filters = {"old"}
            pair.upstream(Publish("new", b""), Publish("new", b""))
            pair.upstream(Publish("new", b""))
            self.assertEqual(pair.authorizer.decisions, [("Subscribe", "new")] if present else [])
            pair.upstream(Publish("old", b"secret"), Publish("new", b""))
            delivered = [each.topic for each in pair.take_client() if isinstance(each, Publish)]
            self.assertEqual(delivered, ["new"] * 3 if ended else ["new", "new", "new", "old", "new"])
            self.assertEqual(pair.ended, ("reauthorization", None) if ended else None)


class EndTests(SynchronousTestCase):
    """How a session ends, and what both sides get."""

    def test_disconnect_of_the_client(self) -> None:
        """It is passed on, what follows is not, and what came before is."""
        for version in VERSIONS:
            pair = Pair(version).open()
            pair.client(Publish("t", b""), Disconnect(), Publish("t", b""))
            self.assertEqual([each.type for each in pair.take_upstream()], [PacketType.PUBLISH, PacketType.DISCONNECT])
            self.assertEqual((pair.ended, pair.to_client), (("client", None), b""))
            pair.session.client_received(b"more")
            pair.session.upstream_received(b"more")
            self.assertEqual(pair.to_upstream + pair.to_client, b"")

    def test_client_vanishes(self) -> None:
        """The broker gets no DISCONNECT."""
        pair = Pair().open()
        pair.session.client_received(encode(Publish("t", b"x" * 20), V5, "client")[:-3])
        pair.session.client_lost()
        self.assertEqual((pair.to_upstream, pair.ended), (b"", ("client", None)))

    def test_broker_vanishes(self) -> None:
        """The client gets Server busy, and the error is reported."""
        for version in VERSIONS:
            pair = Pair(version).open()
            pair.session.upstream_lost(None)
            self.assertEqual(pair.take_client(), [Disconnect(ReasonCode.SERVER_BUSY)] if version is V5 else [])
            assert pair.ended is not None
            self.assertEqual(pair.ended[0], "application")
            self.assertIsInstance(pair.ended[1], UpstreamSessionEnded)

    def test_disconnect_of_the_broker(self) -> None:
        """It is passed on."""
        pair = Pair().open()
        taken_over = Disconnect(ReasonCode.SESSION_TAKEN_OVER)
        pair.upstream(taken_over)
        self.assertEqual((pair.take_client(), pair.ended), ([taken_over], ("application", None)))

    def test_malformed_packet(self) -> None:
        """What came before it passes; then the session ends with the reason."""
        pair = Pair().open()
        pair.session.client_received(encode(Publish("t", b""), V5, "client") + b"\x36\x00")
        self.assertEqual(
            (len(pair.take_upstream()), pair.take_client()), (1, [Disconnect(ReasonCode.MALFORMED_PACKET)])
        )
        pair = Pair().open()
        pair.session.upstream_received(encode(Publish("t", b""), V5, "server") + b"\x10\x00")
        self.assertEqual([each.type for each in pair.take_client()], [PacketType.PUBLISH, PacketType.DISCONNECT])
        self.assertEqual(pair.ended and pair.ended[0], "upstream")

    def test_ended_by_the_proxy(self) -> None:
        """The client gets a reason that its version and the stage have; the broker DISCONNECT only without the will."""
        for version, code, answer in (
            (V5, ReasonCode.SERVER_SHUTTING_DOWN, [Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)]),
            (V5, ReasonCode.SERVER_UNAVAILABLE, [Disconnect(ReasonCode.SERVER_BUSY)]),
            (V311, ReasonCode.SERVER_SHUTTING_DOWN, []),
        ):
            for will in (True, False):
                pair = Pair(version).open()
                pair.session.end("drain", code, will=will)
                pair.session.end("drain", code)
                self.assertEqual((pair.take_client(), pair.ended), (answer, ("drain", None)))
                self.assertEqual(pair.take_upstream(), [] if will else [Disconnect()])
        pair = Pair()
        pair.client(Connect("c"))
        pair.session.end("drain", ReasonCode.SERVER_SHUTTING_DOWN, will=False)
        self.assertEqual((pair.take_client(), pair.to_upstream), ([Connack(code=ReasonCode.SERVER_UNAVAILABLE)], b""))
        pair = Pair()
        pair.session.end("timeout", ReasonCode.UNSPECIFIED_ERROR)
        self.assertEqual((pair.to_client, pair.ended), (b"", ("timeout", None)))

    def test_decided_again(self) -> None:
        """The client, its will and each of its filters are decided on again; a filter that is removed is not."""
        pair = Pair().open(Connect("c", will=Will("w", b"")))
        pair.client(Subscribe(1, [Subscription("a"), Subscription("b")]), Unsubscribe(2, ["b"]))
        pair.upstream(Suback(1, [0, 0]), Unsuback(2, [0]))
        pair.authorizer.decisions.clear()
        pair.session.reauthorize()
        self.assertEqual(pair.authorizer.decisions, [("Publish", "w"), ("Subscribe", "a")])
        for topics, filters, connecting in (
            (set("w"), set(""), None),
            (set(""), set("a"), None),
            (set(""), set(""), denied()),
        ):
            pair.authorizer.topics, pair.authorizer.filters, pair.authorizer.connecting = topics, filters, connecting
            self.assertRaises(type(denied()), pair.session.reauthorize)

    def test_subscribed_again_before_unsuback(self) -> None:
        """A filter that is subscribed to again counts, whenever the broker confirms that it was removed before."""
        pair = Pair().open()
        pair.client(Subscribe(1, [Subscription("a")]), Unsubscribe(2, ["a"]), Subscribe(3, [Subscription("a")]))
        pair.upstream(Suback(1, [0]), Unsuback(2, [0]), Suback(3, [0]))
        pair.authorizer.filters = {"a"}
        self.assertRaises(type(denied()), pair.session.reauthorize)
        pair.client(Unsubscribe(4, ["a", "a"]), Unsubscribe(5, ["a"]))
        pair.upstream(Unsuback(4, [0, 0x11]), Unsuback(5, [0x11]))
        pair.session.reauthorize()


class RecordingTests(SynchronousTestCase):
    """Messages that are recorded, and responses that wait for it."""

    def setUp(self) -> None:
        """An open session."""
        self.recorder = Recorder()
        self.pair = Pair(recorder=self.recorder).open()

    def publish(self, packet_id: int, qos: Any = 1, topic: str = "t", **properties: Any) -> Publish:
        """Publish a message."""
        message = Publish(topic, b"%d" % packet_id, qos, packet_id=packet_id, properties=Properties(**properties))
        self.pair.client(message)
        return message

    def begun(self) -> list[int]:
        """The packet identifiers of messages whose records were admitted."""
        return [packet.packet_id for packet, _level, _nonce in self.recorder.begun]

    def test_receipt(self) -> None:
        """A message is begun with its nonce before it is sent, and its PUBACK waits and has the receipt."""
        nonce = "A" * 21 + "Q"
        sent = self.publish(1, user=(("svc-nonce", nonce), ("a", "b")))
        self.assertEqual(self.recorder.begun, [(sent, Level.SIGN_REQUEST, nonce)])
        [passed] = self.pair.take_upstream()
        self.assertEqual(passed.properties.user, (("a", "b"),))
        answer = puback(1, 0x10, reason_string="none")
        self.pair.upstream(answer)
        self.assertEqual((self.pair.take_client(), self.pair.session.recording), ([], True))
        self.assertEqual(self.recorder.completed, [(sent, answer)])
        self.recorder.done[0]("r1")
        expected = puback(1, 0x10, reason_string="none", user=(("svc-receipt-id", "r1"),))
        self.assertEqual((self.pair.take_client(), self.pair.session.recording), ([expected], False))

    def test_whose(self) -> None:
        """The recorder gets the version and the client identifier, also one that the broker assigned."""
        for version in VERSIONS:
            recorder = Recorder()
            Pair(version, recorder=recorder).open(Connect("c", version))
            self.assertEqual(recorder.client, (version, "c"))
        Pair(recorder=recorder).open(Connect(""), Connack(properties=Properties(assigned_client_id="given")))
        self.assertEqual(recorder.client, (V5, "given"))

    def test_receive_maximum(self) -> None:
        """A client of MQTT 5.0 may have as many messages on their way as are recorded at once, if the broker agrees."""
        for given_maximum, expected in ((None, 100), (20, 20), (1000, 100)):
            pair = Pair(recorder=Recorder())
            pair.client(Connect("c"))
            pair.session.upstream_opened()
            pair.upstream(Connack(properties=Properties(receive_maximum=given_maximum)))
            [answer] = pair.take_client()
            self.assertEqual(answer.properties.receive_maximum, expected)

    def test_order_of_each_type(self) -> None:
        """Responses are sent in the order of the broker, each type by itself."""
        for packet_id, qos in ((1, 1), (2, 1), (3, 2), (4, 1)):
            self.publish(packet_id, qos)
        self.pair.upstream(puback(1), puback(2), pubrec(3), puback(4), puback(9))
        self.recorder.done[1](None)
        self.assertEqual(self.pair.take_client(), [])
        self.recorder.done[2](None)
        self.assertEqual(self.pair.take_client(), [pubrec(3)])
        self.recorder.done[0](None)
        self.assertEqual(self.pair.take_client(), [puback(1), puback(2)])
        self.recorder.done[3](None)
        self.assertEqual(self.pair.take_client(), [puback(4), puback(9)])
        self.pair.upstream(Acknowledgement(PacketType.PUBCOMP, 3))
        self.assertEqual(self.pair.take_client(), [Acknowledgement(PacketType.PUBCOMP, 3)])

    def test_released(self) -> None:
        """PUBREL ends an exchange with QoS 2, and passes."""
        release = Acknowledgement(PacketType.PUBREL, 3)
        self.publish(3, 2)
        self.pair.take_upstream()
        self.pair.client(release)
        self.assertEqual((self.recorder.released, self.pair.take_upstream()), ([3], [release]))

    def test_released_on_another_connection(self) -> None:
        """While exchanges of ended connections wait, PUBREL is looked at, also where they end after CONNACK."""
        for before in (True, False):
            recorder = Recorder()
            recorder.may_repeat = before
            pair = Pair(recorder=recorder).open()
            recorder.may_repeat = True
            pair.client(Acknowledgement(PacketType.PUBREL, 3))
            self.assertEqual((recorder.released, len(pair.take_upstream())), ([3], 1))
            # A message before that has no exchange; its acknowledgement passes.
            pair.client(Publish("t", b"", 1, packet_id=1))
            self.assertEqual([each for each, _level, _nonce in recorder.begun], [Publish("t", b"", 1, packet_id=1)])

    def test_without_acknowledgement(self) -> None:
        """A message with QoS 0 is recorded when it was sent."""
        sent = self.publish(0, 0)
        self.assertEqual((len(self.pair.take_upstream()), self.recorder.completed), (1, [(sent, None)]))
        self.recorder.done[0]("r")
        self.assertEqual((self.pair.to_client, self.pair.ended), (b"", None))

    def test_sent_at_the_end(self) -> None:
        """A message with QoS 0 before DISCONNECT, or before a malformed packet, was sent and is recorded."""
        for version in VERSIONS:
            for last in (encode(Disconnect(), version, "client"), bytes((0xF1, 0))):
                recorder = Recorder()
                pair = Pair(version, recorder=recorder).open(Connect("c", version))
                message = Publish("t", b"1")
                pair.session.client_received(encode(message, version, "client") + last)
                self.assertIsNotNone(pair.ended)
                self.assertEqual(pair.take_upstream()[0], message)
                self.assertEqual(recorder.completed, [(message, None)])

    def test_refused_by_the_recorder(self) -> None:
        """The client gets the code of the error, and the broker nothing."""
        self.recorder.refuse = NotaryRate(retry_after=1, what="too many")
        self.publish(1)
        self.publish(2, 2)
        self.assertEqual(self.pair.take_upstream(), [])
        self.assertEqual(self.pair.take_client(), [puback(1, 0x97), pubrec(2, 0x97)])
        # The recorder has reported it.
        self.assertEqual(self.pair.refusals, [])
        self.recorder.refuse = RecordTooLarge(size=2, limit=1, signatures=0)
        self.publish(0, 0)
        self.assertIsNone(self.pair.ended)
        # Of what might be accepted later the client has to know, also without an acknowledgement.
        self.recorder.refuse = NotaryRate(retry_after=1, what="too many")
        self.publish(0, 0)
        self.assertEqual((self.pair.take_client(), self.pair.take_upstream()), ([Disconnect(0x97)], []))
        self.assertEqual(self.pair.ended, ("record", None))
        old = Pair(V311, recorder=self.recorder).open()
        old.client(Publish("t", b"", 1, packet_id=1))
        self.assertEqual((old.ended, old.to_upstream), (("record", None), b""))

    def test_malformed_nonce(self) -> None:
        """A nonce that is none, or two of them, refuse the message."""
        for names in (("svc-nonce",), ("svc-nonce", "svc-nonce")):
            self.publish(1, user=tuple((name, "n") for name in names))
            self.assertEqual(self.pair.take_client(), [puback(1, 0x83)])
        self.assertEqual((self.pair.take_upstream(), self.recorder.begun), ([], []))
        self.assertEqual(self.pair.refusals, [("Publish", "t")] * 2)

    def test_failed_record(self) -> None:
        """A record that cannot be made ends the session, with and without an acknowledgement."""
        for qos in (0, 1):
            self.setUp()
            self.publish(qos, qos)
            if qos:
                self.pair.upstream(puback(1))
            self.recorder.done[0](Failure(ValueError("disk")))
            self.assertEqual((self.pair.ended, self.pair.to_client), (("record", None), b""))

    def test_ends(self) -> None:
        """The recorder is told how the connection ended; a record that is made later sends nothing."""
        self.publish(1)
        self.pair.upstream(puback(1))
        self.pair.session.client_lost()
        self.recorder.done[0]("r")
        self.assertEqual((self.recorder.outcome, self.pair.to_client), (ExchangeOutcome.CLIENT_ABORTED, b""))
        for cause, outcome in (
            ("idle", ExchangeOutcome.TIMEOUT),
            ("credentials_expired", ExchangeOutcome.CREDENTIALS_EXPIRED),
            ("drain", ExchangeOutcome.SERVER_ABORTED),
        ):
            self.setUp()
            self.pair.session.end(cause, NOT_AUTHORIZED)  # type: ignore[arg-type]
            self.assertEqual(self.recorder.outcome, outcome)

    def test_identifier_in_use(self) -> None:
        """A second message under an identifier that waits would have no record: it ends the session."""
        self.publish(1)
        self.publish(1)
        self.assertEqual((len(self.pair.take_upstream()), self.pair.ended and self.pair.ended[0]), (1, "protocol"))

    def test_identifier_until_released(self) -> None:
        """With QoS 2 an identifier is in use until PUBREL, its message recorded or not; the same may be repeated."""
        for level in (Level.SIGN_REQUEST, Level.NONE):
            for other, ends in ((b"other", True), (b"same", False)):
                recorder = Recorder()
                pair = Pair(recorder=recorder).open()
                pair.client(Publish("first", b"", 1, packet_id=9))
                pair.upstream(puback(9))
                pair.authorizer.level = level
                pair.client(Publish("t", b"same", 2, packet_id=3))
                pair.upstream(Acknowledgement(PacketType.PUBREC, 3))
                for done in recorder.done:
                    done("r")
                pair.authorizer.level = Level.SIGN_REQUEST
                pair.client(Publish("t", other, 2, dup=True, packet_id=3))
                self.assertEqual(ends, bool(pair.ended), (level, other))
                if not ends:
                    pair.client(Acknowledgement(PacketType.PUBREL, 3), Publish("t", b"other", 2, packet_id=3))
                    self.assertIsNone(pair.ended)

    def test_identifiers_that_are_never_released(self) -> None:
        """They are bounded in both versions; QoS 0 and repetitions go on."""

        def open_pair(version: Version) -> Pair:
            pair = Pair(version, recorder=self.recorder).open(Connect("c", version))
            identifiers = range(1, MAX_IN_USE + 1)
            for start in range(0, MAX_IN_USE, 64):
                some = identifiers[start : start + 64]
                pair.client(*(Publish("t", b"", 2, packet_id=packet_id) for packet_id in some))
                pair.upstream(*map(pubrec, some))
                while self.recorder.done:
                    self.recorder.done.pop(0)("r")
            for last in (Publish("t", b"", 0), Publish("t", b"", 2, dup=True, packet_id=1)):
                pair.client(last)
                if last.qos:
                    pair.upstream(pubrec(1))
                self.recorder.done.pop()("r")
            self.assertIsNone(pair.ended)
            return pair

        last = Publish("t", b"", 2, packet_id=MAX_IN_USE + 1)
        for version in VERSIONS:
            pair = open_pair(version)
            pair.client(Acknowledgement(PacketType.PUBREL, 7), last)
            self.assertIsNone(pair.ended)
            pair.upstream(pubrec(MAX_IN_USE + 1))
            self.recorder.done.pop()("r")
            # What the client is owed comes first.
            pair.client(Publish("t", b"", 0), replace(last, packet_id=7))
            self.assertEqual((pair.held, pair.ended), (True, None))
            self.recorder.done.pop()("r")
            assert pair.ended is not None
            self.assertIsInstance(pair.ended[1], ReceiveMaximumExceeded)

    def test_repeated(self) -> None:
        """A message that is repeated on its connection has a PUBACK for each, up to a number of them."""
        message = self.publish(1)
        for _ in range(3):
            self.pair.client(replace(message, dup=True))
        self.pair.upstream(*[puback(1)] * 4)
        self.assertEqual(len(self.recorder.completed), 4)
        for done in self.recorder.done:
            done("r")
        self.assertEqual(self.pair.take_client(), [puback(1, user=(("svc-receipt-id", "r"),))] * 4)
        for _ in range(5):
            self.assertIsNone(self.pair.ended)
            self.pair.client(replace(message, dup=True))
        self.assertEqual(self.pair.ended and self.pair.ended[0], "protocol")

    def test_acknowledged_as_another_qos(self) -> None:
        """A broker whose acknowledgement is of another type than that of the message ends the session."""
        for qos, answer in ((1, pubrec(1)), (2, puback(1))):
            self.setUp()
            self.publish(1, qos)
            self.pair.upstream(answer)
            self.assertEqual((self.pair.ended and self.pair.ended[0], self.recorder.completed), ("upstream", []))

    def test_aliases_are_resolved(self) -> None:
        """The record has the topic."""
        properties = Properties(topic_alias_maximum=5)
        pair = Pair(recorder=self.recorder).open(connack=Connack(properties=properties))
        for topic in ("t", ""):
            pair.client(Publish(topic, b"", properties=Properties(topic_alias=1)))
        self.assertEqual([each.topic for each, _level, _nonce in self.recorder.begun], ["t", "t"])

    def test_one_decision_for_a_topic(self) -> None:
        """The level of a topic is remembered until policies change, for a bounded number of topics."""
        self.recorder = Recorder(limit=2 * MAX_TOPICS)
        self.pair = Pair(recorder=self.recorder).open()
        for number in range(1, 4):
            self.publish(number)
        self.assertEqual(self.pair.authorizer.decisions, [("Publish", "t")])
        self.pair.session.reauthorize()
        self.publish(4)
        self.assertEqual(len(self.pair.authorizer.decisions), 2)
        for number in range(MAX_TOPICS + 1):
            self.publish(0, 0, f"t{number}")
        self.assertEqual(len(self.pair.session._levels), 2)
        self.publish(0, 0, "t" * (MAX_TOPIC_OCTETS + 1))
        self.assertEqual(len(self.pair.session._levels), 2)

    def test_clients_without_user_properties(self) -> None:
        """A client that wants none, or only smaller packets, gets the PUBACK of the broker."""
        for accepted in (Properties(request_problem_information=0), Properties(maximum_packet_size=20)):
            recorder = Recorder()
            pair = Pair(recorder=recorder).open(Connect("c", properties=accepted))
            pair.client(Publish("t", b"", 1, packet_id=1))
            pair.upstream(puback(1))
            recorder.done[0]("r" * 22)
            self.assertEqual(pair.take_client(), [puback(1)])

    def test_late_admission(self) -> None:
        """Until a message is admitted nothing of its client overtakes it, in whatever reads it comes."""
        for refusal in (None, NotaryRate(retry_after=1, what="too many")):
            for together in (True, False):
                self.setUp()
                self.recorder.admissions = []
                first, second = (Publish("t", b"", 1, packet_id=number) for number in (1, 2))
                packets = (first, Acknowledgement(PacketType.PUBREL, 9), second, Pingreq())
                if together:
                    self.pair.client(*packets)
                else:
                    for each in packets:
                        self.pair.client(each)
                self.assertEqual((self.pair.take_upstream(), self.pair.held), ([], True))
                self.assertEqual((len(self.recorder.admissions), self.recorder.released), (1, []))
                self.recorder.admissions[0](refusal)
                self.assertEqual((self.recorder.released, self.pair.held), ([9], True))
                self.recorder.admissions[1](None)
                self.assertFalse(self.pair.held)
                self.assertEqual(self.pair.take_upstream(), list(packets if refusal is None else packets[1:]))
                self.assertEqual(self.pair.take_client(), [] if refusal is None else [puback(1, 0x97)])

    def test_left_before_admission(self) -> None:
        """A client that leaves before its message is admitted has sent nothing."""
        self.recorder.admissions = []
        self.publish(1)
        self.pair.session.client_lost()
        self.assertEqual((self.recorder.outcome, self.pair.to_upstream), (ExchangeOutcome.CLIENT_ABORTED, b""))

    def test_too_many_without_acknowledgement(self) -> None:
        """A client with so many messages of QoS 0 being recorded is held, until half of them are."""
        for version in VERSIONS:
            recorder = Recorder(limit=4)
            pair = Pair(version, recorder=recorder).open(Connect("c", version))
            pair.client(*[Publish("t", b"%d" % number) for number in range(6)], Pingreq())
            self.assertEqual((len(recorder.done), pair.held, len(pair.take_upstream())), (4, True, 4))
            recorder.done[0]("r")
            self.assertTrue(pair.held)
            recorder.done[1]("r")
            self.assertEqual((len(recorder.done), pair.held), (6, False))
            self.assertEqual(len(pair.take_upstream()), 3)

    def test_too_many_with_acknowledgement(self) -> None:
        """A client that sends more than Receive Maximum is held, but for what is no message, and not closed."""
        for version, qos, level in itertools.product(VERSIONS, (1, 2), (Level.SIGN_REQUEST, Level.NONE)):
            recorder = Recorder(limit=4)
            pair = Pair(version, recorder=recorder).open(Connect("c", version))
            answer = puback if qos == 1 else pubrec
            # Records begin with it, whatever the level of those that follow.
            pair.client(Publish("t", b"", 1, packet_id=99))
            pair.upstream(puback(99))
            recorder.done.pop()(None)
            pair.authorizer.level, pair.session._levels = level, {}
            messages = [Publish("t", b"", qos, packet_id=number) for number in range(1, 7)]  # type: ignore[arg-type]
            pair.client(*messages[:4], Acknowledgement(PacketType.PUBREL, 9), *messages[4:])
            self.assertEqual((len(pair.take_upstream()), pair.held, recorder.released), (6, True, [9]))
            pair.upstream(answer(1))
            for done in recorder.done:
                done(None)
            self.assertTrue(pair.held)
            pair.upstream(answer(2))
            for done in recorder.done[1:]:
                done(None)
            self.assertEqual((pair.take_upstream(), pair.held), (messages[4:], False))
            self.assertEqual((pair.take_client()[1:], pair.ended), ([answer(1), answer(2)], None))

    def test_receive_maximum_of_the_broker(self) -> None:
        """A client that ignores it is held at that of the broker, where this is the lower one."""
        for maximum, passed in ((2, 2), (9, 4)):
            pair = Pair(recorder=Recorder(limit=4))
            pair.open(connack=Connack(properties=Properties(receive_maximum=maximum)))
            pair.client(*[Publish("t", b"", 1, packet_id=number) for number in range(1, 7)])
            self.assertEqual((len(pair.take_upstream()), pair.held, pair.ended), (passed, True, None))

    def test_topics_without_records(self) -> None:
        """
        Until the first message that is recorded all pass as without records; that one waits for what is on its way.

        A client could otherwise have the acknowledgement of a message taken for that of another one.
        """
        for version in VERSIONS:
            recorder = Recorder()
            pair = Pair(version, recorder=recorder).open(Connect("c", version))
            pair.authorizer.level, pair.authorizer.levels = Level.WORKLOAD, {"signed": Level.SIGN_REQUEST}
            plain = [Publish("t", b"", 1, packet_id=number) for number in (1, 2, 3)]
            signed = Publish("signed", b"", 1, packet_id=3)
            for each in plain:
                pair.client(each)
            pair.upstream(puback(1))
            pair.client(signed, Pingreq())
            self.assertEqual((recorder.begun, pair.held, pair.take_upstream()), ([], True, plain))
            pair.upstream(puback(2))
            self.assertTrue(pair.held)
            pair.upstream(puback(3))
            self.assertEqual((len(recorder.begun), pair.held, pair.take_upstream()), (1, False, [signed, Pingreq()]))
            self.assertEqual(pair.take_client(), [puback(1), puback(2), puback(3)])
            pair.client(plain[0])
            pair.upstream(puback(1), puback(3))
            self.assertEqual([response for _packet, response in recorder.completed], [puback(3)])
            # In their order.
            self.assertEqual(pair.take_client(), [puback(1)])

    def test_records_in_any_order(self) -> None:
        """However records end, each response is sent once and in order."""

        @given(st.permutations(range(4)), st.integers(0, 4))
        def check(order: list[int], before: int) -> None:
            self.setUp()
            for packet_id in range(1, 5):
                self.publish(packet_id)
            self.pair.upstream(*(puback(packet_id) for packet_id in range(1, before + 1)))
            for number in order:
                if number < before:
                    self.recorder.done[number](f"r{number}")
            self.pair.upstream(*(puback(packet_id) for packet_id in range(before + 1, 5)))
            for number in range(before, 4):
                self.recorder.done[number](f"r{number}")
            found = self.pair.take_client()
            expected = [puback(number + 1, user=(("svc-receipt-id", f"r{number}"),)) for number in range(4)]
            self.assertEqual(found, expected)

        check()

    def test_whose_acknowledgement(self) -> None:
        """
        Whatever a client sends, each record has the acknowledgement of its own message, and none is released before.

        The broker acknowledges in order, messages with different reasons; identifiers may be in use already.
        """
        codes = [int(code) for code in REASONS[PacketType.PUBACK]]
        messages = st.tuples(st.sampled_from(("plain", "signed")), st.sampled_from((1, 1, 2, 0)), st.integers(1, 2))
        steps = st.one_of(messages, st.sampled_from(("broker", "admit", "record", "release")))

        @settings(max_examples=rounds(200, 2000))
        @given(st.lists(steps, min_size=4, max_size=40), st.booleans())
        def check(steps: list[Any], late: bool) -> None:
            recorder = Recorder()
            pair = Pair(recorder=recorder).open()
            pair.authorizer.level, pair.authorizer.levels = Level.NONE, {"signed": Level.SIGN_REQUEST}
            recorder.admissions = [] if late else None
            arrived: list[Publish] = []
            acknowledged = written = sent = 0
            for number, step in enumerate((("plain", 1, 1), ("plain", 2, 2), *steps)):
                if pair.ended is not None:
                    break
                if isinstance(step, tuple):
                    topic, qos, packet_id = step
                    message = Publish(topic, b"%d" % number, qos, packet_id=packet_id if qos else 0)
                    pair.client(message)
                    sent += 1
                elif step == "admit" and recorder.admissions:
                    recorder.admissions.pop(0)(None)
                elif step == "record" and written < len(recorder.done):
                    recorder.done[written](f"r{written}")
                    written += 1
                elif step == "release":
                    pair.client(Acknowledgement(PacketType.PUBREL, 1))
                arrived += [each for each in pair.take_upstream() if isinstance(each, Publish)]
                if step == "broker" and acknowledged < len(arrived):
                    each = arrived[acknowledged]
                    acknowledged += 1
                    if each.qos:
                        answer = puback if each.qos == 1 else pubrec
                        pair.upstream(answer(each.packet_id, codes[int(each.payload) % len(codes)]))
                arrived += [each for each in pair.take_upstream() if isinstance(each, Publish)]
                for message, response in recorder.completed:
                    self.assertEqual(message.topic, "signed")
                    if response is not None:
                        self.assertEqual(response.packet_id, message.packet_id)
                        self.assertEqual(response.code, codes[int(message.payload) % len(codes)])
                        self.assertEqual(response.type is PacketType.PUBACK, message.qos == 1)
                receipts = [each.properties.user for each in pair.take_client() if isinstance(each, Acknowledgement)]
                self.assertLessEqual(sum(map(bool, receipts)), written)
            self.assertEqual([int(each.payload) for each in arrived], sorted(int(each.payload) for each in arrived))
            # The first of them waits for those before it, the others for their admission.
            self.assertLessEqual(len(arrived), sent)
            recorded = [packet for packet, _level, _nonce in recorder.begun]
            self.assertEqual([each for each in arrived if each.topic == "signed"], recorded[: len(arrived)])

        check()

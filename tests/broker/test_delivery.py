"""How messages reach subscribers, with every quality of service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.hub import HubLimits
from svc.broker.session import SessionLimits
from svc.wire.mqtt import (
    Acknowledgement,
    PacketType,
    Properties,
    ProtocolViolation,
    Publish,
    ReasonCode,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from tests.broker.rig import Peer, Rig

LASTING: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry=3600)}


def ids(packets: Sequence[object]) -> list[int]:
    """Give the packet identifiers of messages."""
    return [each.packet_id for each in packets if isinstance(each, Publish)]


class QosTests(SynchronousTestCase):
    """Section 4.3."""

    def setUp(self) -> None:
        """One publisher and one subscriber."""
        self.rig = Rig()
        self.publisher = self.rig.connect("publisher")
        self.subscriber = self.rig.connect("subscriber")

    def test_at_most_once(self) -> None:
        """QoS 0 is sent once and not acknowledged."""
        self.subscriber.subscribes("t")
        self.assertEqual(self.subscriber.take(), [])
        self.assertEqual(self.publisher.publishes("t", b"m"), [])
        self.assertEqual(self.subscriber.take(), [Publish("t", b"m")])

    def test_at_least_once(self) -> None:
        """QoS 1 is acknowledged to the publisher, and by the subscriber."""
        self.subscriber.subscribes("t")
        self.assertEqual(self.publisher.publishes("t", b"m", 1, 9), [Acknowledgement(PacketType.PUBACK, 9)])
        self.assertEqual(self.subscriber.take(), [Publish("t", b"m", 1, packet_id=1)])
        self.assertEqual(self.rig.hub.sessions["subscriber"].waiting, 1)
        self.subscriber.answers(PacketType.PUBACK, 1)
        self.assertEqual(self.rig.hub.sessions["subscriber"].waiting, 0)

    def test_exactly_once(self) -> None:
        """QoS 2 takes four packets on each side."""
        self.subscriber.subscribes("t")
        self.assertEqual(self.publisher.publishes("t", b"m", 2, 9), [Acknowledgement(PacketType.PUBREC, 9)])
        self.assertEqual(self.publisher.answers(PacketType.PUBREL, 9), [Acknowledgement(PacketType.PUBCOMP, 9)])
        self.assertEqual(self.subscriber.take(), [Publish("t", b"m", 2, packet_id=1)])
        self.assertEqual(self.subscriber.answers(PacketType.PUBREC, 1), [Acknowledgement(PacketType.PUBREL, 1)])
        self.assertEqual(self.subscriber.answers(PacketType.PUBCOMP, 1), [])
        self.assertEqual(self.rig.hub.sessions["subscriber"].waiting, 0)

    def test_sent_again_is_delivered_once(self) -> None:
        """A QoS 2 message that comes again before its release is acknowledged only; after it, it is new."""
        self.subscriber.subscribes("t")
        self.publisher.publishes("t", b"m", 2, 9)
        again = self.publisher.publishes("t", b"m", 2, 9, dup=True)
        self.assertEqual(again, [Acknowledgement(PacketType.PUBREC, 9)])
        self.assertEqual(len(self.subscriber.take()), 1)
        self.publisher.answers(PacketType.PUBREL, 9)
        self.publisher.publishes("t", b"m", 2, 9)
        self.assertEqual(len(self.subscriber.take()), 1)

    def test_lowest_of_both(self) -> None:
        """A message is delivered with the lower quality of service of message and subscription."""
        self.subscriber.subscribes(Subscription("t", 1))
        for published, delivered in ((0, 0), (1, 1), (2, 1)):
            self.publisher.publishes("t", b"m", published)
            self.assertEqual([each.qos for each in self.subscriber.messages], [delivered])
            self.subscriber.take()

    def test_wrong_answer(self) -> None:
        """PUBACK for a QoS 2 message, or PUBCOMP before PUBREC, is a protocol error."""
        for kind in (PacketType.PUBACK, PacketType.PUBCOMP):
            subscriber = self.rig.connect(kind.name)
            subscriber.subscribes("t")
            self.publisher.publishes("t", b"m", 2)
            self.publisher.answers(PacketType.PUBREL, 7)
            subscriber.answers(kind, 1)
            self.assertIsInstance(subscriber.error, ProtocolViolation)

    def test_refused_by_the_client(self) -> None:
        """PUBREC with an error ends the delivery."""
        self.subscriber.subscribes("t")
        self.publisher.publishes("t", b"m", 2)
        self.subscriber.take()
        self.assertEqual(self.subscriber.answers(PacketType.PUBREC, 1, 0x83), [])
        self.assertEqual(self.rig.hub.sessions["subscriber"].waiting, 0)

    def test_unknown_identifiers(self) -> None:
        """An acknowledgement of an unused identifier is no error; PUBREC and PUBREL get 0x92."""
        self.assertEqual(self.publisher.answers(PacketType.PUBACK, 5), [])
        self.assertEqual(self.publisher.answers(PacketType.PUBCOMP, 5), [])
        for sent, response in ((PacketType.PUBREC, PacketType.PUBREL), (PacketType.PUBREL, PacketType.PUBCOMP)):
            self.assertEqual(self.publisher.answers(sent, 5), [Acknowledgement(response, 5, 0x92)])  # type: ignore[arg-type]
        self.assertIsNone(self.publisher.closed)


class FlowTests(SynchronousTestCase):
    """Section 4.9."""

    def test_receive_maximum_of_the_client(self) -> None:
        """The client's Receive Maximum limits messages in progress; each acknowledgement allows one more, in order."""
        rig = Rig()
        subscriber = rig.connect("s", properties=Properties(receive_maximum=2))
        subscriber.subscribes("t")
        publisher = rig.connect("p")
        for number in range(5):
            publisher.publishes("t", b"%d" % number, 1)
        self.assertEqual([each.payload for each in subscriber.messages], [b"0", b"1"])
        subscriber.answers(PacketType.PUBACK, ids(subscriber.take())[1])
        subscriber.got += []
        session = rig.hub.sessions["s"]
        self.assertEqual(session.waiting, 4)
        publisher.publishes("t", b"zero", 0)
        self.assertIn(b"zero", [each.payload for each in subscriber.messages])

    def test_order(self) -> None:
        """What waits goes out in the order in which it came."""
        rig = Rig()
        subscriber = rig.connect("s", properties=Properties(receive_maximum=1))
        subscriber.subscribes("t")
        publisher = rig.connect("p")
        seen: list[bytes] = []
        for number in range(4):
            publisher.publishes("t", b"%d" % number, 1 + number % 2, number + 1)
        for _ in range(4):
            (message,) = subscriber.messages
            seen.append(message.payload)
            subscriber.take()
            if message.qos == 1:
                subscriber.got = subscriber.answers(PacketType.PUBACK, message.packet_id)
            else:
                subscriber.answers(PacketType.PUBREC, message.packet_id)
                subscriber.got = subscriber.answers(PacketType.PUBCOMP, message.packet_id)
        self.assertEqual(seen, [b"0", b"1", b"2", b"3"])

    def test_congestion(self) -> None:
        """While a client does not read, QoS 0 is dropped and QoS 1 waits."""
        rig = Rig()
        slow = rig.connect("s")
        slow.subscribes("t")
        publisher = rig.connect("p")
        slow.congested = True
        publisher.publishes("t", b"lost", 0)
        publisher.publishes("t", b"kept", 1)
        self.assertEqual(slow.take(), [])
        self.assertEqual(rig.hub.statistics.drops["congested"], 1)
        slow.congested = False
        assert slow.client is not None
        slow.client.on_writable()
        self.assertEqual([each.payload for each in slow.messages], [b"kept"])

    def test_queue_limits(self) -> None:
        """A session holds its limit of messages and of octets; one more is dropped and counted, the oldest stay."""
        rig = Rig(limits=HubLimits(session=SessionLimits(queued=2)))
        away = rig.connect("s", **LASTING)
        away.subscribes("t")
        away.loses()
        publisher = rig.connect("p")
        for number in range(3):
            publisher.publishes("t", b"%d" % number, 1)
        self.assertEqual(rig.hub.sessions["s"].waiting, 2)
        self.assertEqual(rig.hub.statistics.drops["queue_full"], 1)
        back = rig.connect("s", **LASTING)
        self.assertEqual([each.payload for each in back.messages], [b"0", b"1"])

    def test_too_large_for_the_client(self) -> None:
        """A packet above the client's maximum is not sent and not kept for ever [MQTT-3.1.2-25]."""
        rig = Rig()
        small = rig.connect("s", properties=Properties(maximum_packet_size=30))
        small.subscribes("t")
        publisher = rig.connect("p")
        publisher.publishes("t", b"x" * 100, 1)
        publisher.publishes("t", b"y", 1)
        self.assertEqual([each.payload for each in small.messages], [b"y"])
        self.assertEqual(rig.hub.sessions["s"].waiting, 1)


class ReconnectTests(SynchronousTestCase):
    """Section 4.4."""

    def reconnected(self, version: Version) -> tuple[Rig, Peer, Peer]:
        """A publisher and a subscriber whose session lasts."""
        rig = Rig()
        more = LASTING if version is Version.V5 else {"clean_start": False}
        subscriber = rig.connect("s", version, **more)
        subscriber.subscribes("t")
        return rig, rig.connect("p"), subscriber

    def test_unacknowledged_is_sent_again(self) -> None:
        """What was not acknowledged comes again with its identifier and DUP; PUBREL where PUBREC had come."""
        for version in Version:
            rig, publisher, subscriber = self.reconnected(version)
            publisher.publishes("t", b"one", 1, 1)
            publisher.publishes("t", b"two", 2, 2)
            publisher.publishes("t", b"three", 2, 3)
            subscriber.answers(PacketType.PUBREC, 3)
            subscriber.loses()
            publisher.publishes("t", b"four", 1, 4)
            more = LASTING if version is Version.V5 else {"clean_start": False}
            back = rig.connect("s", version, read_answer=False, **more)
            connack, *rest = back.take()
            self.assertTrue(connack.session_present)
            self.assertEqual(
                rest,
                [
                    Publish("t", b"one", 1, dup=True, packet_id=1),
                    Publish("t", b"two", 2, dup=True, packet_id=2),
                    Acknowledgement(PacketType.PUBREL, 3),
                    Publish("t", b"four", 1, packet_id=4),
                ],
            )

    def test_release_over_reconnect(self) -> None:
        """A QoS 2 message of a client that was not released is a duplicate after its reconnect."""
        rig, _, _ = self.reconnected(Version.V5)
        watcher = rig.connect("w")
        watcher.subscribes("t")
        client = rig.connect("c", **LASTING)
        client.publishes("t", b"m", 2, 5)
        client.loses()
        back = rig.connect("c", **LASTING)
        self.assertEqual(back.publishes("t", b"m", 2, 5, dup=True), [Acknowledgement(PacketType.PUBREC, 5)])
        self.assertEqual(len(watcher.messages), 1)

    def test_old_answers_do_not_reach_a_new_connection(self) -> None:
        """A session that is taken over sends DISCONNECT on its first connection, and nothing of the second."""
        rig, publisher, subscriber = self.reconnected(Version.V5)
        second = rig.connect("s", **LASTING)
        self.assertEqual(subscriber.closed, ReasonCode.SESSION_TAKEN_OVER)
        publisher.publishes("t", b"m", 1)
        self.assertEqual(subscriber.take(), [])
        self.assertEqual(len(second.take()), 1)

    def test_session_ends(self) -> None:
        """A session is kept after its connection exactly for its expiry interval."""
        rig, publisher, subscriber = self.reconnected(Version.V5)
        subscriber.loses()
        publisher.publishes("t", b"m", 1)
        rig.passes(3599)
        self.assertIn("s", rig.hub.sessions)
        rig.passes(1)
        self.assertNotIn("s", rig.hub.sessions)
        self.assertEqual(len(rig.hub.subscriptions), 0)


class SubackTests(SynchronousTestCase):
    """Section 3.9."""

    def test_granted(self) -> None:
        """The reason codes are in the order of the filters."""
        rig = Rig()
        client = rig.connect("c")
        answer = client.subscribes(Subscription("a", 0), Subscription("b", 1), Subscription("c", 2), packet_id=77)
        self.assertEqual(answer, [Suback(77, [0, 1, 2])])


class SmallerLimitsTests(SynchronousTestCase):
    """A client that comes back and takes less than before."""

    def setUp(self) -> None:
        """A client went with five messages unacknowledged: QoS 1 and 2 in turn, of which the second is released."""
        self.rig = Rig()
        self.publisher = self.rig.connect("p")
        client = self.rig.connect("s", **LASTING)
        client.subscribes("t")
        for number in range(5):
            self.publisher.publishes("t", b"%d" % number, 1 + number % 2, number + 1)
        client.answers(PacketType.PUBREC, 2)
        client.loses()

    def back(self, receive_maximum: int) -> Peer:
        """It comes back."""
        properties = Properties(session_expiry=3600, receive_maximum=receive_maximum)
        return self.rig.connect("s", clean_start=False, properties=properties)

    def test_sent_again_within_the_receive_maximum(self) -> None:
        """Never is more in progress than the new connection takes; everything comes, in order, once [MQTT-3.3.4-9]."""
        for most in (1, 2, 3, 4, 5, 6):
            client = self.back(most)
            self.publisher.publishes("t", b"new", 1)
            packets, came, open_ = client.take(), [], {2: 2}
            self.assertIn(Acknowledgement(PacketType.PUBREL, 2), packets)
            while packets or open_:
                new = [each for each in packets if isinstance(each, Publish)]
                came += [(each.payload, each.dup) for each in new]
                open_.update({each.packet_id: each.qos for each in new})
                self.assertLessEqual(len(open_), most)
                identifier = next(iter(open_))
                if open_.pop(identifier) == 1:
                    packets = client.answers(PacketType.PUBACK, identifier)
                    continue
                if identifier != 2:
                    client.answers(PacketType.PUBREC, identifier)
                packets = client.answers(PacketType.PUBCOMP, identifier)
            self.assertEqual(came, [(b"0", True), (b"2", True), (b"3", True), (b"4", True), (b"new", False)])
            self.assertEqual(self.rig.hub.sessions["s"].waiting, 0)
            client.loses()
            self.setUp()

    def test_answers_to_the_old_connection(self) -> None:
        """What is acknowledged before it was sent again is not sent again, and frees no slot that it did not use."""
        client = self.back(2)
        self.assertEqual([each.payload for each in client.messages], [b"0"])
        client.take()
        self.assertEqual(client.answers(PacketType.PUBACK, 3), [])
        self.assertEqual(client.answers(PacketType.PUBREC, 4), [Acknowledgement(PacketType.PUBREL, 4)])
        # The first is open, the second and the fourth are released: one more than there is room for.
        self.assertEqual(client.answers(PacketType.PUBCOMP, 2), [])
        (fifth,) = client.answers(PacketType.PUBCOMP, 4)
        self.assertEqual(fifth, Publish("t", b"4", 1, dup=True, packet_id=5))
        self.publisher.publishes("t", b"new", 1)
        (new,) = client.answers(PacketType.PUBACK, 1)
        self.assertEqual(new, Publish("t", b"new", 1, packet_id=6))

    def test_a_smaller_packet(self) -> None:
        """What the new connection does not accept is given up [MQTT-3.1.2-25]."""
        client = self.rig.connect("large", **LASTING)
        client.subscribes("large")
        for number in range(5):
            self.publisher.publishes("large", bytes(20), 1 + number % 2, number + 10)
        client.answers(PacketType.PUBREC, 2)
        client.loses()
        properties = Properties(session_expiry=3600, maximum_packet_size=20)
        client = self.rig.connect("large", clean_start=False, properties=properties)
        self.assertEqual(client.take(), [Acknowledgement(PacketType.PUBREL, 2)])
        self.assertEqual(self.rig.hub.sessions["large"].waiting, 1)
        self.assertEqual(self.rig.hub.statistics.drops["too_large"], 4)

    def test_congestion(self) -> None:
        """What is to be sent again waits for a sink that is congested."""
        client = self.back(10)
        client.loses()
        rig = self.rig
        original = Peer.write

        def write(peer: Peer, octets: bytes) -> None:
            original(peer, octets)
            peer.congested = len(peer.got) > 3

        self.patch(Peer, "write", write)
        slow = self.back(10)
        self.assertEqual([each.payload for each in slow.messages], [b"0", b"2"])
        slow.take()
        slow.congested = False
        assert slow.client is not None
        slow.client.on_writable()
        self.assertEqual([each.payload for each in slow.messages], [b"3", b"4"])
        self.assertEqual(rig.hub.sessions["s"].waiting, 5)


class RetainedTests(SynchronousTestCase):
    """Section 3.3.1.3."""

    def test_no_local(self) -> None:
        """With No Local a client gets no retained message of its own, and all others do [MQTT-3.8.3-3]."""
        rig = Rig()
        client, other = rig.connect("c"), rig.connect("o")
        client.publishes("t", b"m", 0, retain=True)
        wanted = Subscription("t", 0, no_local=True)
        self.assertEqual(client.subscribes(wanted), [Suback(1, [0])])
        self.assertEqual(other.subscribes(wanted), [Suback(1, [0]), Publish("t", b"m", retain=True)])

    def test_identifier_of_who_asks(self) -> None:
        """A retained message comes with the identifier of the subscription that asked for it alone."""
        rig = Rig()
        rig.connect("p").publishes("a/b", b"m", 0, retain=True)
        client = rig.connect("c")
        for identifier, wanted in ((1, "a/#"), (2, "a/b"), (None, "+/b")):
            asked = Properties(subscription_identifiers=() if identifier is None else (identifier,))
            _, message = client.sends(Subscribe(1, [Subscription(wanted, 1)], asked))
            expected = () if identifier is None else (identifier,)
            self.assertEqual(message.properties.subscription_identifiers, expected)

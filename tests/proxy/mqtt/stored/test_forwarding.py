"""One session of store-and-forward: acknowledgements, order, limits, draining, and the two ends of a session."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.mqtt.stored.buffer.limits import BufferLimits
from svc.proxy.mqtt.stored.buffer.records import MessageState
from svc.proxy.mqtt.stored.forwarding import ReplayBackoff
from svc.wire.mqtt import (
    Acknowledgement,
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
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from tests.proxy.mqtt.stored.buffering import message
from tests.proxy.mqtt.stored.forwarding_model import CLIENT_ID, START, World

PUBACK: Final = PacketType.PUBACK
PUBREC: Final = PacketType.PUBREC
PUBREL: Final = PacketType.PUBREL
PUBCOMP: Final = PacketType.PUBCOMP
QUOTA = ReasonCode.QUOTA_EXCEEDED


class ForwardingCase(SynchronousTestCase):
    """Base class: a world in which everything is done step by step."""

    def opened(self, version: Version = Version.V5, *, clean: bool = False, **limits: Any) -> World:
        """A world whose client and broker are connected."""
        world = World(version, **limits)
        world.connect(clean=clean)
        world.settle()
        world.client.got_packets.clear()
        return world

    def away(self, version: Version = Version.V5, **limits: Any) -> World:
        """A world whose client is connected, and whose broker cannot be reached."""
        world = World(version, **limits)
        world.connect()
        world.broker_unreachable()
        world.store.commit()
        world.client_reads()
        world.client.got_packets.clear()
        return world

    def sent(self, world: World) -> list[tuple[bytes, int, bool]]:
        """The PUBLISH packets on their way to the broker: payload, identifier, whether repeated."""
        found = [each for each in world.to_broker if isinstance(each, Publish)]
        return [(each.payload, each.packet_id, each.dup) for each in found]


class AcknowledgementTests(ForwardingCase):
    """When the client's messages are acknowledged, and by whom."""

    def test_when_it_is_durable(self) -> None:
        """PUBACK, and PUBLISH to the broker, wait for the disk and for nothing else."""
        world = self.opened()
        world.publish(b"1", 1)
        self.assertEqual(([], []), (world.to_client, world.to_broker))
        world.store.commit()
        self.assertEqual([Acknowledgement(PUBACK, 1)], world.to_client)
        self.assertEqual([(b"1", 1, False)], self.sent(world))
        self.assertIn(("acked", "middleware"), world.notes.events)

    def test_without_a_broker(self) -> None:
        """A client is served while the broker cannot be reached; its messages follow in order."""
        world = self.away()
        for number in range(8):
            world.publish(b"%d" % number, 1 + number % 2)
        world.store.commit()
        self.assertEqual(8, len(world.to_client))
        self.assertEqual(8, world.notes.in_buffer)
        world.pass_time(10)
        world.settle()
        self.assertEqual([b"%d" % number for number in range(8)], [each for each, _qos in world.broker.delivered])
        self.assertEqual((0, {}, 0), (world.notes.in_buffer, world.store.messages, world.store.octets))

    def test_exactly_once_towards_the_client(self) -> None:
        """A repeated QoS 2 message is acknowledged and not stored; PUBCOMP waits for the disk."""
        world = self.opened()
        repeated = Publish("t", b"1", 2, dup=True, packet_id=5)
        world.sends(Publish("t", b"1", 2, packet_id=5), repeated)
        world.store.commit()
        world.sends(repeated)
        self.assertEqual([Acknowledgement(PUBREC, 5)] * 3, world.to_client)
        world.to_client.clear()
        world.sends(Acknowledgement(PUBREL, 5))
        self.assertEqual([], world.to_client)
        world.store.commit()
        self.assertEqual([Acknowledgement(PUBCOMP, 5)], world.to_client)
        self.assertEqual({}, world.store.received_ids)
        world.settle()
        self.assertEqual([(b"1", 2)], world.broker.delivered)

    def test_unknown_release(self) -> None:
        """PUBREL of an unknown identifier is completed, with the reason code that MQTT 5.0 has for it."""
        for version, code in ((Version.V5, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND), (Version.V311, 0)):
            world = self.opened(version)
            world.sends(Acknowledgement(PUBREL, 7))
            self.assertEqual([Acknowledgement(PUBCOMP, 7, code)], world.to_client)

    def test_on_its_own_connection_or_not_at_all(self) -> None:
        """What became durable after the client had gone is not acknowledged on the next connection."""
        world = self.opened()
        world.publish(b"1", 1)
        world.connect()
        world.store.commit()
        self.assertEqual([], [each for each in world.to_client if isinstance(each, Acknowledgement)])

    def test_by_the_broker(self) -> None:
        """On relayed topics the client gets the broker's reason code, when the broker answers."""
        for qos, kind in ((1, PUBACK), (2, PUBREC)):
            for code in (0, ReasonCode.NOT_AUTHORIZED):
                world = self.opened()
                world.broker.rejects = {b"1"} if code else set()
                world.publish(b"1", qos, relayed=True)
                world.store.commit()
                world.broker_reads()
                self.assertEqual([], world.to_client)
                world.proxy_reads()
                if qos == 2 and code:
                    # The client may use the identifier again.
                    self.assertEqual([], world.to_client)
                    world.store.commit()
                self.assertEqual([Acknowledgement(kind, 1, code)], world.to_client)  # type: ignore[arg-type]
                self.assertEqual(not code, ("acked", "upstream") in world.notes.events)
                world.settle()
                self.assertEqual(({}, {}), (world.store.messages, world.client.unacked))

    def test_relayed_and_repeated(self) -> None:
        """A repeated message that waits for the broker is not stored again, nor acknowledged before."""
        for qos in (1, 2):
            world = self.away()
            world.publish(b"1", qos, relayed=True)
            world.store.commit()
            world.connect()
            world.broker_unreachable()
            world.settle()
            self.assertEqual((1, {1}), (len(world.store.messages), set(world.client.unacked)))
            world.pass_time(10)
            world.settle()
            self.assertEqual(([(b"1", qos)], {}), (world.broker.delivered, world.client.unacked))

    def test_rejected_after_it_was_acknowledged(self) -> None:
        """A message whose refusal lasts is a dead letter, durably when it is no message any more, and reported."""
        for qos in (1, 2):
            world = self.opened()
            world.broker.rejects = {b"1"}
            world.publish(b"1", qos)
            world.publish(b"2", qos)
            world.settle()
            self.assertEqual({b"1", b"2"}, world.client.acknowledged)
            self.assertIn(("dead letter", "t", "rejected", ReasonCode.NOT_AUTHORIZED), world.notes.events)
            self.assertEqual({b"1": ("rejected", ReasonCode.NOT_AUTHORIZED)}, world.store.dead_letters)
            self.assertEqual((0, {}, 0), (world.notes.in_buffer, world.store.messages, world.store.octets))
            self.assertEqual([(b"2", qos)], world.broker.delivered)

    def test_no_room_for_dead_letters(self) -> None:
        """Without room for it, a message whose refusal lasts stays at its place, and is tried again until there is."""
        for qos in (1, 2):
            world = self.opened()
            world.store.letters = 1
            world.broker.rejects = {b"1", b"2"}
            for number in (1, 2, 3):
                world.publish(b"%d" % number, qos)
                world.settle()
            self.assertEqual(({b"1"}, 2), (set(world.store.dead_letters), len(world.store.messages)))
            self.assertIn(("dead letters full", "t"), world.notes.events)
            self.assertIn(("held", ReasonCode.NOT_AUTHORIZED), world.notes.events)
            self.assertEqual([], world.broker.delivered)
            world.store.letters = 2
            world.pass_time(10)
            world.settle()
            self.assertEqual({b"1", b"2"}, set(world.store.dead_letters))
            self.assertEqual([(b"3", qos)], world.broker.delivered)

    def test_sent_after_all(self) -> None:
        """A dead letter is forwarded behind what waits, and its client hears nothing of it."""
        for qos in (1, 2):
            world = self.opened()
            world.broker.rejects = {b"1"}
            world.publish(b"1", qos)
            world.settle()
            world.broker.rejects.clear()
            world.broker.busy = QUOTA
            world.publish(b"2", qos)
            world.settle()
            world.client.got_packets.clear()
            world.operator_sends()
            world.store.commit()
            self.assertEqual(({}, {}), (world.store.dead_letters, world.store.received_ids))
            world.broker.busy = 0
            world.pass_time(2)
            world.settle()
            self.assertEqual([(b"2", qos), (b"1", qos)], world.broker.delivered)
            self.assertEqual([], world.client.got_packets)

    def test_sent_after_all_without_room(self) -> None:
        """A dead letter for which a session has no room stays one."""
        world = self.opened()
        world.broker.rejects = {b"1"}
        world.publish(b"1")
        world.settle()
        for limits in (BufferLimits(session_messages=0), BufferLimits(octets=1), BufferLimits(session_octets=1)):
            world.store.limit(limits)
            world.operator_sends()
            self.assertTrue(world.store.idle)
        world.store.limit(BufferLimits(session_messages=1))
        world.operator_sends()
        self.assertFalse(world.store.idle)

    def test_too_large_without_room(self) -> None:
        """A message that is larger than the broker accepts waits for room, too; one with QoS 0 is dropped."""
        world = self.away()
        world.store.letters = 0
        for qos in (0, 1):
            world.publish(b"x" * 100, qos)
        world.publish(b"small", 1)
        world.pass_time(5)
        assert world.wanted is not None and world.forwarder is not None
        connack = world.broker.open(world.wanted)
        world.wanted = None
        world.forwarder.upstream_connected(replace(connack, properties=Properties(maximum_packet_size=60)), world.now)
        world.settle()
        self.assertEqual((2, []), (len(world.store.messages), world.broker.delivered))
        self.assertIn(("dropped", "too_large", ReasonCode.PACKET_TOO_LARGE), world.notes.events)
        world.store.letters = 1
        world.pass_time(10)
        world.settle()
        self.assertEqual({b"x" * 100: ("too_large", ReasonCode.PACKET_TOO_LARGE)}, world.store.dead_letters)
        self.assertEqual([(b"small", 1)], world.broker.delivered)


class RefusalTests(ForwardingCase):
    """A full buffer, and messages that the rules refuse."""

    def test_by_the_rules(self) -> None:
        """A refusal waits for CONNACK, and for nothing else where its identifier is not in use."""
        world = World()
        world.connect()
        world.denies = True
        for qos in (1, 2):
            world.publish(b"1", qos)
        self.assertEqual([], world.to_client)
        world.pass_time(2)
        world.client_resumed()
        world.store.commit()
        codes = [(each.type, each.code) for each in world.to_client if isinstance(each, Acknowledgement)]
        self.assertEqual([(PUBACK, 0x87), (PUBREC, 0x87)], codes)

    def test_repetition_by_the_rules(self) -> None:
        """A stored message that is refused when it is repeated frees its identifier, durably, before that is sent."""
        world = self.away()
        world.publish(b"1", 2)
        world.store.commit()
        world.connect()
        world.denies = True
        world.broker_unreachable()
        world.client_reads()
        self.assertEqual([], world.to_client)
        world.store.commit()
        self.assertEqual([Acknowledgement(PUBREC, 1, ReasonCode.NOT_AUTHORIZED)], world.to_client)
        self.assertEqual({}, world.store.received_ids)
        world.denies = False
        world.client_reads()
        world.sends(Publish("t", b"2", 2, packet_id=1))
        world.pass_time(30)
        world.settle()
        self.assertEqual([b"1", b"2"], [payload for payload, _qos in world.broker.delivered])

    def refused(self, world: World, qos: int = 1) -> bool:
        """Whether the next message is refused with 0x97."""
        world.to_client.clear()
        world.publish(b"x", qos)
        world.store.commit()
        return bool(world.to_client) and world.to_client[0].code == QUOTA

    def test_bounds(self) -> None:
        """At each bound a message is accepted, above it refused, with its cause."""
        world = self.away()
        world.publish(b"x", 1)
        world.store.commit()
        size = world.store.octets
        for limits, cause in (
            (BufferLimits(octets=2 * size), "share"),
            (BufferLimits(session_octets=2 * size), "octets"),
            (BufferLimits(session_messages=2), "messages"),
        ):
            world = self.away()
            world.store.limit(limits)
            self.assertEqual([False, False, True], [self.refused(world) for _message in range(3)], cause)
            self.assertEqual([("refused", cause)], [each for each in world.notes.events if each[0] == "refused"])
            self.assertTrue(self.refused(world, 2))
            self.assertIs(PUBREC, world.to_client[0].type)

    def test_age(self) -> None:
        """While the oldest message waits longer than allowed, new ones are refused; none is removed."""
        world = self.away()
        world.store.limit(BufferLimits(session_age=100))
        self.assertFalse(self.refused(world))
        world.pass_time(99.9)
        world.broker_unreachable()
        self.assertFalse(self.refused(world))
        world.pass_time(0.1)
        self.assertTrue(self.refused(world))
        self.assertEqual(2, len(world.store.messages))
        world.pass_time(10)
        world.settle()
        self.assertFalse(self.refused(world))

    def test_full_disk(self) -> None:
        """A disk that accepts nothing refuses new messages; what was there is forwarded."""
        world = self.away()
        self.assertFalse(self.refused(world))
        world.store.accepting = False
        self.assertTrue(self.refused(world))
        self.assertIn(("refused", "store"), world.notes.events)
        world.pass_time(10)
        world.settle()
        self.assertEqual(1, len(world.broker.delivered))

    def test_without_reason_codes(self) -> None:
        """A client of MQTT 3.1.1 is closed, or the newest message is ignored; QoS 0 is dropped."""
        for when_full, connected in (("refuse", False), ("newest", True)):
            world = self.away(Version.V311, when_full=when_full)
            world.store.accepting = False
            world.publish(b"0", 0)
            self.assertTrue(world.client.connected)
            world.publish(b"1", 1)
            self.assertEqual((connected, []), (world.client.connected, world.to_client))
            self.assertEqual(2, world.notes.events.count(("refused", "store")))

    def test_receive_maximum_of_clients(self) -> None:
        """What a client sends beyond it waits with all behind it, until half of it is acknowledged; none is closed."""
        for version in (Version.V5, Version.V311):
            world = self.away(version, receive_maximum=3)
            world.client_resumed()
            for qos, relayed in ((2, False), (1, True), (2, True)):
                world.publish(b"1", qos, relayed=relayed)
            assert world.forwarder is not None
            self.assertFalse(world.forwarder.waiting)
            world.publish(b"2", 1)
            world.publish(b"3", 0)
            self.assertEqual((True, 3), (world.forwarder.waiting, world.notes.in_buffer))
            # Two wait for the broker.
            world.store.commit()
            self.assertEqual((False, 3), (world.resumes, world.notes.in_buffer))
            world.pass_time(2)
            world.broker_accepts()
            for _turn in range(9):
                world.store.commit()
                world.broker_reads()
                world.proxy_reads()
            self.assertTrue(world.client_resumed())
            self.assertEqual((False, True), (world.forwarder.waiting, world.client.connected))
            world.settle()
            self.assertEqual({b"1", b"2"}, world.client.acknowledged)
            self.assertEqual([b"1", b"1", b"1", b"2", b"3"], [payload for payload, _qos in world.broker.delivered])

    def test_left_beyond_the_receive_maximum(self) -> None:
        """What a client sent beyond it is forgotten with its connection; another one begins with nothing."""
        world = self.away(receive_maximum=1)
        world.publish(b"1", 1, relayed=True)
        world.publish(b"2", 1, relayed=True)
        world.connect()
        world.settle()
        self.assertEqual({b"1", b"2"}, world.client.acknowledged)

    def test_unreleased_messages(self) -> None:
        """Messages with QoS 2 are refused at a number of unreleased ones, which is more than Receive Maximum."""
        for version in (Version.V5, Version.V311):
            world = self.away(version, receive_maximum=1, unreleased=2, when_full="newest")
            for _message in range(3):
                world.publish(b"1", 2)
                world.store.commit()
                world.client_resumed()
            accepted = [each for each in world.to_client if not each.code]
            self.assertEqual((2, 1), (len(accepted), world.notes.events.count(("refused", "messages"))))
            world.publish(b"1", 1)
            world.store.commit()
            self.assertEqual(PUBACK, world.to_client[-1].type)

    def test_acknowledged_before_the_end(self) -> None:
        """A client of MQTT 3.1.1 that is closed for a full buffer is told of all that was stored before."""
        for recorded in (False, True):
            world = self.away(Version.V311)
            world.store.limit(BufferLimits(session_messages=3))
            for qos in (1, 2, 0, 1, 1):
                world.publish(b"1", qos, recorded=recorded)
            self.assertEqual((True, []), (world.client.connected, world.to_client))
            world.store.commit()
            self.assertEqual(recorded, world.client.connected)
            while world.notary_writes():
                self.assertTrue(world.client.connected)
            self.assertEqual(recorded, world.client_resumed())
            self.assertFalse(world.client.connected)
            self.assertEqual(2, world.notes.events.count(("acked", "middleware")))
            self.assertEqual(1, world.notes.events.count(("refused", "messages")))

    def test_back_pressure(self) -> None:
        """A client is not read while so many octets wait for the disk, nor before CONNACK."""
        world = World(unacknowledged=1000)
        world.connect()
        assert world.forwarder is not None
        self.assertTrue(world.forwarder.waiting)
        world.settle()
        self.assertFalse(world.forwarder.waiting)
        world.publish(b"x" * 800)
        self.assertFalse(world.forwarder.waiting)
        world.publish(b"x" * 800)
        self.assertTrue(world.forwarder.waiting)
        world.store.commit()
        self.assertFalse(world.forwarder.waiting)


class SendingTests(ForwardingCase):
    """What the broker gets."""

    def test_receive_maximum(self) -> None:
        """No more is in flight than the broker or the limit allows; the next follows each answer."""
        for receive_maximum, limit, expected in ((3, 4, 3), (9, 4, 4)):
            world = World(in_flight=limit)
            world.broker.receive_maximum = receive_maximum
            world.connect()
            world.settle()
            for number in range(6):
                world.publish(b"%d" % number)
            for _turn in range(3):
                world.store.commit()
            self.assertEqual(expected, len(self.sent(world)))
            world.broker_reads()
            world.proxy_reads()
            world.store.commit()
            self.assertEqual(expected, len(self.sent(world)))
            world.settle()
            self.assertEqual(6, len(world.broker.delivered))

    def test_broker_without_receive_maximum(self) -> None:
        """MQTT 3.1.1 has no Receive Maximum: no more is in flight than Mosquitto accepts."""
        world = World(Version.V311, in_flight=64)
        world.broker.receive_maximum = 20
        world.connect()
        world.settle()
        for number in range(30):
            world.publish(b"%d" % number)
            world.store.commit()
            world.client_reads()
        self.assertEqual(20, len(self.sent(world)))

    def test_a_lower_receive_maximum(self) -> None:
        """After a reconnection no more is repeated at a time than the broker allows then."""
        world = self.opened()
        for number in range(3):
            world.publish(b"%d" % number, 2)
        world.store.commit()
        world.lose_link()
        world.broker.receive_maximum = 1
        world.pass_time(5)
        world.broker_accepts()
        world.store.commit()
        self.assertEqual([(b"0", 1, True)], self.sent(world))
        world.settle()
        self.assertEqual(3, len(world.broker.delivered))

    def test_repeated_over_connections(self) -> None:
        """What is in flight is repeated in order with its identifiers: PUBLISH marked, PUBREL where it is owed."""
        world = self.opened()
        for number in range(3):
            world.publish(b"%d" % number, 2)
        world.store.commit()
        world.broker_reads()
        world.proxy_reads()
        self.assertEqual(2, len(world.to_broker))
        world.store.commit()
        self.assertEqual(Acknowledgement(PUBREL, 1), world.to_broker[-1])
        repeated = [(b"1", 2, True), (b"2", 3, True)]
        # Whether the broker accepts the one whose answer did not come is tried alone after a restart.
        for restart, expected in ((world.lose_link, repeated), (lambda: world.crash(written=False), repeated[:1])):
            restart()
            world.pass_time(5)
            world.reads_page()
            world.reads_page()
            world.broker_accepts()
            self.assertEqual([], world.to_broker)
            world.store.commit()
            self.assertEqual([Acknowledgement(PUBREL, 1)], world.to_broker[:1])
            self.assertEqual(expected, self.sent(world))
        world.settle()
        self.assertEqual(3, len(world.broker.delivered))

    def test_order_while_the_connection_opens(self) -> None:
        """A message that is stored when the connection is ready does not overtake one that is being stored."""
        world = self.away()
        world.pass_time(5)
        world.broker_accepts()
        world.store.hand_over()
        world.publish(b"1", 2)
        world.store.commit()
        world.publish(b"2", 2)
        for _group in range(3):
            world.store.commit()
        self.assertEqual([b"1", b"2"], [payload for payload, _packet_id, _dup in self.sent(world)])

    def test_messages_of_qos_0(self) -> None:
        """With nothing before them they are not stored; else they keep their place and are removed before."""
        world = self.opened()
        world.publish(b"direct", 0)
        self.assertEqual(([(b"direct", 0, False)], {}), (self.sent(world), world.store.messages))
        world.lose_link()
        world.publish(b"1", 1)
        world.publish(b"2", 0)
        world.store.commit()
        self.assertEqual(2, len(world.store.messages))
        world.pass_time(5)
        world.broker_accepts()
        world.store.commit()
        self.assertEqual([], self.sent(world))
        world.store.commit()
        self.assertEqual([(b"1", 1, False), (b"2", 0, False)], self.sent(world))
        self.assertEqual(1, len(world.store.messages))

    def test_qos_0_over_a_lost_connection(self) -> None:
        """A message with QoS 0 that was removed and could not be sent is reported as dropped, and not sent later."""
        world = self.away()
        world.publish(b"0", 0)
        world.pass_time(5)
        world.broker_accepts()
        world.store.commit()
        world.lose_link()
        world.store.commit()
        self.assertIn(("dropped", "link_lost", 0), world.notes.events)
        world.pass_time(5)
        world.settle()
        self.assertEqual([], world.broker.delivered)

    def test_expiry(self) -> None:
        """The interval is reduced by the time of waiting; at its end the message is dropped and reported."""
        world = self.away()
        world.publish(b"long", 1, message_expiry=100)
        world.publish(b"short", 1, message_expiry=10)
        world.publish(b"owed", 2, message_expiry=10, relayed=True)
        world.store.commit()
        world.to_client.clear()
        world.pass_time(10.5)
        world.broker_accepts()
        world.store.commit()
        world.store.commit()
        [packet] = world.to_broker
        self.assertEqual((b"long", 90), (packet.payload, packet.properties.message_expiry))
        self.assertEqual(2, world.notes.events.count(("dropped", "expired", 0)))
        self.assertEqual([Acknowledgement(PUBREC, 3)], world.to_client)

    def test_expired_before_it_is_sent(self) -> None:
        """One that finds nothing before it is dropped, too: at its end already, or before it is durable."""
        for interval, seconds in ((0, 0.0), (10, 10.5)):
            world = self.opened()
            for qos in (0, 1, 2):
                world.publish(b"%d" % qos, qos, message_expiry=interval)
                if qos == 0 and interval:
                    [sent] = world.to_broker
                    self.assertEqual(interval, sent.properties.message_expiry)
            world.to_broker.clear()
            world.pass_time(seconds)
            assert world.forwarder is not None
            world.forwarder.wake(world.now)
            world.settle()
            self.assertEqual(([], {b"1", b"2"}), (world.broker.delivered, world.client.acknowledged))
            self.assertEqual(3 - bool(interval), world.notes.events.count(("dropped", "expired", 0)))
            self.assertEqual(({}, 0), (world.store.messages, world.notes.in_buffer))

    def test_expired_repetition(self) -> None:
        """What may have come to the broker is repeated with QoS 2 only, with the shortest interval."""
        world = self.opened()
        for qos in (1, 2):
            world.publish(b"%d" % qos, qos, message_expiry=10)
        world.store.commit()
        self.assertEqual([10, 10], [each.properties.message_expiry for each in world.to_broker])
        world.lose_link()
        world.pass_time(20)
        world.broker_accepts()
        world.store.commit()
        [repeated] = world.to_broker
        self.assertEqual((b"2", True, 1), (repeated.payload, repeated.dup, repeated.properties.message_expiry))
        world.settle()
        self.assertEqual([(b"2", 2)], world.broker.delivered)
        self.assertEqual(1, world.notes.events.count(("dropped", "expired", 0)))

    def test_expired_while_it_is_held(self) -> None:
        """A message that the broker does not accept for now is dropped when it has expired meanwhile."""
        world = self.opened()
        world.broker.busy = QUOTA
        world.publish(b"1", 1, message_expiry=1)
        world.settle()
        self.assertIn(("held", QUOTA), world.notes.events)
        world.broker.busy = 0
        world.pass_time(5)
        world.settle()
        self.assertEqual(([], 0), (world.broker.delivered, world.notes.in_buffer))
        self.assertIn(("dropped", "expired", 0), world.notes.events)

    def test_limits_of_the_broker(self) -> None:
        """QoS and retain are lowered to what the broker accepts; what is too large is dropped and reported."""
        for maximum, expected in ((None, 2), (1, 1), (0, 0)):
            world = World()
            world.connect()
            assert world.wanted is not None and world.forwarder is not None
            connack = world.broker.open(world.wanted)
            world.wanted = None
            properties = Properties(maximum_qos=maximum, retain_available=0, maximum_packet_size=60)
            world.forwarder.upstream_connected(replace(connack, properties=properties), world.now)
            world.settle()
            self.assertEqual(maximum, world.client.got_packets[0].properties.maximum_qos)
            world.sends(Publish("t", b"x" * 100, 2, packet_id=7))
            world.sends(Publish("t", b"1", 2, retain=True, packet_id=8))
            world.store.commit()
            [packet] = world.to_broker
            assert isinstance(packet, Publish)
            self.assertEqual((b"1", expected, False), (packet.payload, packet.qos, packet.retain))
            self.assertIn(("dead letter", "t", "too_large", ReasonCode.PACKET_TOO_LARGE), world.notes.events)
            world.settle()
            self.assertEqual({}, world.store.messages)

    def test_answers_that_do_not_belong_there(self) -> None:
        """A wrong answer ends the connection and is repeated on the next; an unknown one is tolerated."""
        for qos, answer in (
            (1, Acknowledgement(PUBREC, 1)),
            (1, Acknowledgement(PUBCOMP, 1)),
            (2, Acknowledgement(PUBACK, 1)),
            (2, Acknowledgement(PUBCOMP, 1)),
            (1, Disconnect(ReasonCode.SESSION_TAKEN_OVER)),
        ):
            world = self.opened()
            world.publish(b"1", qos)
            world.store.commit()
            world.to_proxy.append(answer)
            world.proxy_reads()
            self.assertIsNone(world.broker.connect)
            world.pass_time(5)
            world.settle()
            self.assertEqual([(b"1", qos)], world.broker.delivered)
        world = self.opened()
        world.to_proxy += [Acknowledgement(PUBACK, 9), Acknowledgement(PUBCOMP, 9), Acknowledgement(PUBREC, 9)]
        while world.proxy_reads():
            pass
        self.assertEqual([Acknowledgement(PUBREL, 9, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)], world.to_broker)

    def test_pages(self) -> None:
        """After a restart messages are read in pages, and new ones come behind them."""
        world = self.away()
        for number in range(7):
            world.publish(b"%d" % number)
        world.store.commit()
        world.crash(written=False)
        self.assertEqual([0], world.pages)
        world.connect()
        world.publish(b"new")
        world.settle()
        expected = [b"%d" % number for number in range(7)] + [b"new"]
        self.assertEqual(expected, list(dict.fromkeys(each for each, _qos in world.broker.delivered)))

    def test_memory(self) -> None:
        """Of a long queue a part is in memory; the rest is read when that is sent."""
        world = self.away(memory=4 * message(b"0", 1).size)
        for number in range(9):
            world.publish(b"%d" % number)
        world.store.commit()
        assert world.forwarder is not None
        self.assertEqual(4, len(world.forwarder._queue))
        world.pass_time(10)
        world.settle()
        self.assertEqual([b"%d" % number for number in range(9)], [payload for payload, _qos in world.broker.delivered])

    def test_page_that_cannot_be_read(self) -> None:
        """A page that failed is read again later; nothing is sent meanwhile, and nothing lost."""
        world = self.away()
        world.publish(b"1")
        world.store.commit()
        world.crash(written=False)
        assert world.forwarder is not None
        self.assertEqual([0], world.pages)
        world.pages.clear()
        world.forwarder.page_failed(world.now)
        self.assertEqual(([], None), (world.pages, world.wanted))
        world.pass_time(world.limits.backoff.longest)
        self.assertEqual([0], world.pages)
        world.settle()
        self.assertEqual(1, len(world.broker.delivered))


class HeldTests(ForwardingCase):
    """Messages that the broker does not accept for now."""

    def held(self, code: int = QUOTA, qos: int = 1, **limits: Any) -> World:
        """A world with three messages, each of which the broker has refused with a code."""
        world = self.opened(**limits)
        world.broker.busy = code
        for number in range(3):
            world.publish(b"%d" % number, qos)
        world.settle()
        return world

    def test_kept_in_order(self) -> None:
        """Every refusal that passes keeps the messages, which follow in order, once each, when it has passed."""
        for code in (0x80, 0x83, 0x91, QUOTA):
            for qos in (1, 2):
                world = self.held(code, qos)
                self.assertEqual(([], 3, 3), (world.broker.delivered, len(world.store.messages), world.notes.in_buffer))
                self.assertEqual([("held", code)], [each for each in world.notes.events if each[0] == "held"])
                self.assertEqual({b"0", b"1", b"2"}, world.client.acknowledged)
                world.broker.busy = 0
                world.pass_time(1)
                world.settle()
                self.assertEqual([(b"0", qos), (b"1", qos), (b"2", qos)], world.broker.delivered)
                self.assertEqual([], [each for each in world.notes.events if each[0] == "dropped"])
                self.assertEqual({}, world.store.messages)

    def test_another_identifier(self) -> None:
        """Where the broker has the identifier in use, the message gets another one, durably, and is a new PUBLISH."""
        for code, expected in ((0x91, [4, 5, 6]), (QUOTA, [1, 2, 3])):
            world = self.held(code)
            self.assertEqual(expected, [each.upstream_id for _owner, each in world.store.messages.values()])
            world.broker.busy = 0
            world.pass_time(1)
            self.assertEqual([(b"0", expected[0], False)], self.sent(world))

    def test_answers_beyond_the_receive_maximum(self) -> None:
        """What answers a delivery waits behind a message beyond it, and follows when the refusal has passed."""
        world = self.opened(receive_maximum=1)
        world.broker.busy = QUOTA
        world.publish(b"0", 1)
        world.settle()
        for payload in (b"1", b"2"):
            world.publish(payload, 1, relayed=True)
        world.broker_delivers(b"delivery", 1)
        world.settle()
        assert world.forwarder is not None
        outgoing = world.broker.sessions[CLIENT_ID].outgoing
        self.assertEqual((True, [1]), (world.forwarder.waiting, list(outgoing)))
        world.broker.busy = 0
        world.pass_time(1)
        world.settle()
        self.assertEqual((False, []), (world.forwarder.waiting, list(outgoing)))
        self.assertEqual([b"0", b"1", b"2"], [payload for payload, _qos in world.broker.delivered])

    def test_singly_after_a_refusal(self) -> None:
        """After a pause one message is tried, and when it is accepted all that the broker allows."""
        world = self.held()
        world.pass_time(1)
        self.assertEqual([b"0"], [payload for payload, _packet_id, _dup in self.sent(world)])
        world.broker_reads()
        world.proxy_reads()
        self.assertEqual([], self.sent(world))
        world.broker.busy = 0
        world.pass_time(2)
        self.assertEqual([b"0"], [payload for payload, _packet_id, _dup in self.sent(world)])
        world.broker_reads()
        world.proxy_reads()
        self.assertEqual([b"1", b"2"], [payload for payload, _packet_id, _dup in self.sent(world)])

    def test_pauses(self) -> None:
        """Pauses double, and are the longest when the budget is used up, which is reported once; no busy loop."""
        world = self.held()
        times = []
        start = world.now.seconds
        for _refusal in range(6):
            assert world.wake is not None
            times.append(world.wake - start)
            world.pass_time(times[-1] + start - world.now.seconds)
            world.settle()
        self.assertEqual([1, 3, 7, 15, 23, 31], times)
        self.assertEqual(1, world.notes.events.count(("replay failed",)))
        self.assertEqual(6, len(world.broker.kept_back) + 3)

    def test_without_pauses(self) -> None:
        """Where every random pause is nothing, the attempts are as many as the budget has, then one for each pause."""
        world = self.opened()
        world.broker.busy, world.random = QUOTA, 0.0
        world.publish(b"0")
        world.settle()
        attempts = 0
        for _second in range(80):
            world.pass_time(1)
            attempts += len(self.sent(world))
            world.settle()
        self.assertEqual(3 + 9, attempts)

    def test_what_follows_waits(self) -> None:
        """Messages of the pause keep their place behind, those with QoS 0 on the disk."""
        world = self.held()
        world.publish(b"3", 0)
        world.publish(b"4", 2)
        world.settle()
        self.assertEqual(([], 5), (world.broker.delivered, len(world.store.messages)))
        world.broker.busy = 0
        world.pass_time(1)
        world.settle()
        self.assertEqual([b"0", b"1", b"2", b"3", b"4"], [payload for payload, _qos in world.broker.delivered])

    def test_over_connections_and_restarts(self) -> None:
        """A pause outlasts the connection; a restart begins at once, and loses nothing either."""
        world = self.held(backoff=ReplayBackoff(first=20.0, longest=20.0))
        world.broker.busy, world.random = 0, 0.0
        world.lose_link()
        world.pass_time(0)
        world.settle()
        self.assertIsNotNone(world.broker.connect)
        self.assertEqual([], world.broker.delivered)
        world.pass_time(20)
        world.settle()
        self.assertEqual([b"0", b"1", b"2"], [payload for payload, _qos in world.broker.delivered])
        world = self.held(qos=2)
        world.crash(written=False)
        world.broker.busy = 0
        for _page in range(4):
            world.reads_page()
        world.broker_accepts()
        world.store.commit()
        self.assertEqual([b"0"], [payload for payload, _packet_id, _dup in self.sent(world)])
        world.settle()
        self.assertEqual([b"0", b"1", b"2"], [payload for payload, _qos in world.broker.delivered])

    def test_age(self) -> None:
        """A message keeps back the others as long as the buffer's age allows, over a restart too; then they follow."""
        for restart in (False, True):
            world = self.opened(backoff=ReplayBackoff(first=1.0, longest=1.0, budget=1))
            world.store.limit(BufferLimits(session_age=100))
            world.broker.busy = QUOTA
            world.publish(b"0")
            world.publish(b"1")
            world.settle()
            began = world.now.wall
            while world.now.wall < began + 50:
                world.pass_time(1)
                world.settle()
            if restart:
                world.crash(written=False)
                world.settle()
            while world.now.wall < began + 99:
                world.pass_time(1)
                world.settle()
            self.assertEqual(2, len(world.store.messages))
            world.pass_time(1)
            world.broker_reads()
            world.broker.busy = 0
            world.settle()
            world.pass_time(1)
            world.settle()
            self.assertEqual({b"0": ("age", QUOTA)}, world.store.dead_letters)
            self.assertEqual([(b"1", 1)], world.broker.delivered)

    def test_age_without_a_broker(self) -> None:
        """A broker that is away for longer refuses nothing by that."""
        world = self.away()
        world.store.limit(BufferLimits(session_age=100))
        world.publish(b"0")
        world.store.commit()
        world.pass_time(1000)
        world.broker.busy = QUOTA
        world.settle()
        self.assertEqual(1, len(world.store.messages))

    def test_relayed(self) -> None:
        """A client that waits for the broker gets its code at once, with MQTT 3.1.1 the end of its connection."""
        for version in (Version.V5, Version.V311):
            world = self.opened()
            world.broker.busy = QUOTA
            world.publish(b"0", 1, relayed=True)
            world.store.commit()
            # The connection to the broker is the former one until the message is complete.
            world.client.version = version
            world.connect()
            world.pass_time(2)
            world.settle()
            self.assertEqual(({}, set()), (world.store.messages, world.client.acknowledged))
            self.assertEqual(version is Version.V5, world.client.connected)

    def test_connection_closed_for_a_message(self) -> None:
        """The broker that closes the connection for a message of several gets them singly, and that one no more."""
        world = self.opened()
        for number in range(3):
            world.publish(b"%d" % number)
        world.store.commit()
        world.broker_reads()
        world.proxy_reads()
        self.closes(world)
        self.assertEqual(2, len(world.store.messages))
        self.assertEqual([b"1"], [payload for payload, _packet_id, _dup in self.sent(world)])
        self.closes(world)
        world.settle()
        self.assertEqual({b"1": ("rejected", ReasonCode.PACKET_TOO_LARGE)}, world.store.dead_letters)
        self.assertEqual([b"0", b"2"], [payload for payload, _qos in world.broker.delivered])

    def closes(self, world: World) -> None:
        """The broker closes the connection for a message that is too large, and accepts the next one."""
        world.to_broker.clear()
        world.to_proxy[:] = [Disconnect(ReasonCode.PACKET_TOO_LARGE)]
        world.proxy_reads()
        world.pass_time(8)
        world.broker_accepts()
        world.store.commit()

    def test_connection_closed_without_a_code(self) -> None:
        """A broker that closes the connection each time, as MQTT 3.1.1 refuses, keeps back the others that long too."""
        for qos in (1, 2):
            world = self.opened(Version.V311, backoff=ReplayBackoff(first=1.0, longest=1.0, budget=1))
            world.store.limit(BufferLimits(session_age=100))
            world.publish(b"0", qos)
            world.publish(b"1", qos)
            world.store.commit()
            began = world.now.wall
            while world.now.wall <= began + 100:
                self.assertEqual(2, len(world.store.messages))
                world.lose_link()
                world.pass_time(1)
                world.broker_accepts()
                world.store.commit()
            self.assertEqual(1, len(world.store.messages))
            world.settle()
            self.assertEqual({b"0": ("age", 0)}, world.store.dead_letters)
            self.assertEqual([(b"1", qos)], world.broker.delivered)


class RelayTests(ForwardingCase):
    """What passes between client and broker."""

    def test_subscriptions(self) -> None:
        """SUBSCRIBE has another identifier upstream, and SUBACK the client's."""
        world = self.opened()
        world.publish(b"1", 2)
        world.store.commit()
        world.sends(Subscribe(1, [Subscription("x")]))
        self.assertEqual(2, world.to_broker[-1].packet_id)
        world.settle()
        self.assertEqual(([1], {"x"}), (world.client.subacks, world.broker.sessions[CLIENT_ID].filters))

    def test_subscriptions_while_the_broker_is_away(self) -> None:
        """They wait, up to their limit, and are repeated if the connection is lost before the answer."""
        world = self.away(requests=2)
        for name in (11, 12):
            world.sends(Subscribe(name, [Subscription("x")]))
        world.pass_time(5)
        world.broker_accepts()
        world.store.commit()
        self.assertEqual(2, len(world.to_broker))
        world.lose_link()
        world.pass_time(5)
        world.settle()
        self.assertEqual([11, 12], world.client.subacks)
        world.lose_link()
        for name in (13, 14):
            world.sends(Subscribe(name, [Subscription("x")]))
        self.assertTrue(world.client.connected)
        world.sends(Subscribe(15, [Subscription("x")]))
        self.assertFalse(world.client.connected)

    def test_deliveries(self) -> None:
        """Deliveries and their acknowledgements pass with the broker's identifiers."""
        world = self.opened()
        packets: list[Packet] = [Publish("x", b"d", 2, packet_id=7), Acknowledgement(PUBREL, 7)]
        world.to_proxy += packets
        while world.proxy_reads():
            pass
        self.assertEqual(packets, world.to_client)
        answers: list[Packet] = [Acknowledgement(kind, 7) for kind in (PUBREC, PUBCOMP, PUBACK)]
        world.sends(*answers)
        self.assertEqual(answers, world.to_broker)

    def test_deliveries_before_the_disk(self) -> None:
        """A client that has come back acknowledges deliveries while the disk is slow, and the broker gets that."""
        world = self.opened()
        world.connect()
        world.broker_accepts()
        for qos in (1, 2):
            world.broker_delivers(b"d", qos)
        # The operations of the new connection are not durable all the while.
        for _turn in range(8):
            world.proxy_reads()
            world.client_reads()
            world.broker_reads()
        self.assertEqual({}, world.broker.sessions[CLIENT_ID].outgoing)
        self.assertFalse(world.store.idle)

    def test_deliveries_without_a_client(self) -> None:
        """Nothing is passed on while the client is away, nor answered in its place."""
        world = self.opened()
        world.publish(b"1", 1)
        world.store.commit()
        world.lose_client()
        world.to_proxy.append(Publish("x", b"d", 1, packet_id=7))
        world.proxy_reads()
        self.assertEqual(([], 1), (world.to_client, len(world.to_broker)))

    def test_pings(self) -> None:
        """The client's PINGREQ is answered here; the broker is asked by itself, and lost if it does not answer."""
        world = self.opened(keep_alive=40)
        world.sends(Pingreq())
        self.assertEqual(([Pingresp()], []), (world.to_client, world.to_broker))
        world.pass_time(30)
        self.assertEqual([Pingreq()], world.to_broker)
        world.settle()
        world.pass_time(30)
        self.assertEqual([Pingreq()], world.to_broker)
        world.pass_time(29.9)
        self.assertIsNotNone(world.broker.connect)
        world.pass_time(0.1)
        self.assertIsNone(world.broker.connect)

    def test_slow_peer(self) -> None:
        """A broker that acknowledges messages is there, though PINGRESP waits behind them."""
        world = self.opened(keep_alive=40)
        world.publish(b"1", 1)
        world.store.commit()
        world.pass_time(59)
        world.broker_reads()
        world.proxy_reads()
        world.pass_time(30)
        self.assertIsNotNone(world.broker.connect)
        world.pass_time(31)
        self.assertIsNone(world.broker.connect)


class ReconnectionTests(ForwardingCase):
    """A broker that cannot be reached."""

    def test_full_jitter(self) -> None:
        """Pauses are random below a bound that doubles, and the longest when the budget is used up."""
        backoff = ReplayBackoff(first=1.0, longest=8.0, budget=6)
        self.assertEqual([1, 2, 4, 8, 8, 8, 8], [backoff.pause(number, 1.0) for number in range(1, 8)])
        self.assertEqual([0, 0, 8], [backoff.pause(number, 0.0) for number in (1, 5, 6)])
        self.assertEqual(8.0, ReplayBackoff().longest and backoff.pause(10_000, 0.5))

    def test_budget(self) -> None:
        """The end of the budget is reported once, and the attempts go on; a broker that answers renews it."""
        world = self.opened()
        world.lose_link()
        attempts = []
        while ("replay failed",) not in world.notes.events:
            world.pass_time(8)
            attempts.append(world.wanted is not None)
            world.broker_unreachable()
        self.assertEqual([True] * 3, attempts)
        world.pass_time(7.9)
        self.assertIsNone(world.wanted)
        world.pass_time(0.1)
        world.settle()
        world.sends(Subscribe(1, [Subscription("x")]))
        world.settle()
        self.assertEqual(1, world.notes.events.count(("replay failed",)))
        self.assertEqual([False] * 3 + [True], [each[1] for each in world.notes.events if each[0] == "reconnected"])
        world.lose_link()
        world.pass_time(1)
        self.assertIsNotNone(world.wanted)

    def test_connack_without_a_broker(self) -> None:
        """CONNACK waits for the broker's for a limited time; session present is what the proxy knows."""
        world = World(connack=2.0)
        world.connect()
        world.pass_time(1.9)
        self.assertEqual([], world.to_client)
        world.pass_time(0.1)
        self.assertEqual([Connack()], world.to_client)
        world.connect()
        world.pass_time(2)
        self.assertEqual([Connack(session_present=True)], world.to_client)
        world.settle()
        self.assertTrue(world.client.connected)

    def test_connack_that_was_not_read(self) -> None:
        """A new session is announced as new until the client was sent CONNACK, whatever it resumes."""
        world = World()
        world.connect()
        world.connect()
        world.pass_time(2)
        world.connect()
        world.pass_time(2)
        self.assertEqual([Connack(session_present=True)], world.to_client)
        world = World()
        world.connect()
        world.connect()
        world.pass_time(2)
        self.assertEqual([Connack()], world.to_client)

    def test_broker_is_busy(self) -> None:
        """A broker that is busy or not available is as one that is away: the client is accepted."""
        for version, code in ((Version.V311, 3), (Version.V5, 0x88), (Version.V5, 0x89)):
            world = World(version)
            world.connect()
            assert world.forwarder is not None
            world.wanted = None
            world.forwarder.upstream_connected(Connack(code=code), world.now)
            world.client_reads()
            self.assertTrue(world.client.answered, code)
            self.assertTrue(world.forwarder.has_client)

    def test_refused_by_the_broker(self) -> None:
        """The broker's refusal is the client's, and nothing of a new session stays; later ones are retried."""
        world = World()
        world.connect(will=b"will")
        forwarder = world.forwarder
        assert forwarder is not None
        world.broker.connect, world.wanted = world.wanted, None
        forwarder.upstream_connected(Connack(code=0x87, properties=Properties(reason_string="no")), world.now)
        self.assertEqual(Connack(code=0x87, properties=Properties(reason_string="no")), world.client.got_packets[-1])
        self.assertEqual((False, None, [""]), (world.client.connected, world.forwarder, world.errors))
        world.store.commit()
        self.assertEqual({}, world.store.sessions)
        self.assertIn(("rejected", 0x87), world.notes.events)
        world = self.opened()
        world.lose_link()
        world.pass_time(5)
        assert world.forwarder is not None
        world.broker.connect, world.wanted = world.wanted, None
        world.forwarder.upstream_connected(Connack(code=0x87), world.now)
        self.assertTrue(world.client.connected)
        world.pass_time(8)
        world.settle()
        self.assertIsNotNone(world.broker.connect)

    def test_refused_here(self) -> None:
        """A full buffer and a client that wants to authenticate by packets are refused with their codes."""
        for version, full, accepting, properties, code, reason in (
            (Version.V5, True, True, Properties(), 0x97, "mqtt_sessions_full"),
            (Version.V5, False, False, Properties(), 0x88, "mqtt_buffer_refuses"),
            (Version.V311, True, True, Properties(), 3, "mqtt_sessions_full"),
            (Version.V5, False, True, Properties(authentication_method="x"), 0x8C, "mqtt_authentication_refused"),
        ):
            world = World(version)
            world.store.limit(BufferLimits(sessions=0 if full else 1))
            world.store.accepting = accepting
            connect = world.client.connect
            world.client.connect = lambda _connect=connect, _more=properties, **each: replace(
                _connect(**each), properties=_more
            )
            world.connect()
            self.assertEqual(Connack(code=code), world.client.got_packets[-1])
            self.assertEqual([reason], world.errors)
            self.assertIsNone(world.forwarder)


class CredentialsTests(ForwardingCase):
    """A broker that refuses the credentials of a client whose messages are stored."""

    def stored(self, *messages: tuple[bytes, int], version: Version = Version.V5, **limits: Any) -> World:
        """A world whose client stored messages while the broker was away; one is kept for 100 s at most."""
        world = self.away(version, backoff=ReplayBackoff(first=1.0, longest=1.0, budget=1), **limits)
        world.store.limit(BufferLimits(session_age=100))
        for payload, qos in messages:
            world.publish(payload, qos)
            world.store.commit()
            while world.client_reads():
                world.store.commit()
        return world

    def refused_until(self, world: World, seconds: float) -> None:
        """The broker refuses each connection until so long after the start."""
        while world.now.seconds < START.seconds + seconds:
            world.pass_time(1)
            world.broker_refuses()
            for _page in range(20):
                world.store.commit()
                world.reads_page()

    def other_password(self, world: World) -> None:
        """The client has another password from now on."""
        connect = world.client.connect
        world.client.connect = lambda **each: replace(connect(**each), username="user", password=b"other")

    def test_while_little_is_left(self) -> None:
        """Such a client stores nothing of the last tenth, until the broker accepts it or it has other credentials."""
        for accepted in (True, False):
            world = self.stored((b"0", 1))
            size = world.store.octets
            self.refused_until(world, 2)
            world.store.limit(BufferLimits(octets=100 * size))
            # 11, 10, and then 9 of 100 are free.
            world.store.shares.messages.take("another", 88 * size)
            for payload in (b"1", b"2", b"3"):
                world.publish(payload)
                world.store.commit()
            self.assertEqual(
                [("refused", "credentials")], [each for each in world.notes.events if each[0] == "refused"]
            )
            self.assertEqual(3, len(world.store.messages))
            if accepted:
                world.pass_time(1)
                world.broker_accepts()
            else:
                self.other_password(world)
                world.connect()
                world.pass_time(2)
            world.store.commit()
            world.publish(b"4")
            world.store.commit()
            self.assertIn(b"4", [each.payload for _session, each in world.store.messages.values()])

    def test_client_that_begins_anew(self) -> None:
        """The credentials of a client that begins anew are those of what waits before its session, too."""
        for missing in (False, True):
            world = self.stored((b"0", 1), (b"1", 2))
            if missing:
                world.lose_client()
                world.store.commit()
                for session in world.store.sessions.values():
                    session.incomplete = True
                world.crash(written=True)
            else:
                self.refused_until(world, 10)
            self.other_password(world)
            world.connect(clean=True)
            world.settle()
            self.assertEqual({("user", b"other")}, {(each.username, each.password) for each in world.connects[-2:]})
            self.assertEqual([(b"0", 1), (b"1", 2)], world.broker.delivered)

    def test_client_that_began_anew_before(self) -> None:
        """The same where the broker refuses the former ones only after the client came with others."""
        for restart in (False, True):
            world = self.stored((b"0", 1), (b"1", 2))
            self.other_password(world)
            world.connect(clean=True)
            world.store.commit()
            if restart:
                world.crash(written=True)
                world.reads_page()
            while world.wanted is None:
                world.pass_time(1)
            self.assertIsNone(world.wanted.username)
            world.broker_refuses()
            refused = len(world.connects)
            world.pass_time(2)
            world.settle()
            self.assertEqual(
                {("user", b"other")}, {(each.username, each.password) for each in world.connects[refused:]}
            )
            self.assertEqual([(b"0", 1), (b"1", 2)], world.broker.delivered)

    def test_kept(self) -> None:
        """What they hold back is kept for however long, and forwarded in order once they are accepted."""
        messages = [(b"%d" % number, 1 + number % 2) for number in range(12)]
        for version, restart in itertools.product((Version.V5, Version.V311), (False, True)):
            world = self.stored(*messages, version=version, memory=400)
            world.page_size = 2
            world.lose_client()
            self.refused_until(world, 110)
            if restart:
                world.crash(written=True)
                world.reads_page()
            self.refused_until(world, 250)
            self.assertEqual(({}, 12), (world.store.dead_letters, len(world.store.messages)))
            world.pass_time(1)
            world.settle()
            self.assertEqual(messages, world.broker.delivered)


class UselessConnectionTests(ForwardingCase):
    """A broker that accepts connections with which nothing can be done."""

    def attempts(self, world: World, connack: Connack, *then: Packet, seconds: float = 60.0) -> list[Connect]:
        """The connections that are accepted in a time, each of which the broker closes behind its packets."""
        attempts: list[Connect] = []
        until = world.now.seconds + seconds
        while world.forwarder is not None and world.now.seconds < until and len(attempts) < 1000:
            while world.wanted is not None and len(attempts) < 1000:
                attempts.append(world.wanted)
                world.broker.connect, world.wanted = world.wanted, None
                world.forwarder.upstream_connected(connack, world.now)
                world.store.commit()
                for packet in then:
                    world.forwarder.upstream_packet(packet, world.now)
                if world.broker.connect is not None:
                    world.lose_link()
                world.store.commit()
            world.pass_time(0.5)
        return attempts

    def test_session_that_is_kept(self) -> None:
        """A broker whose clean sessions are present is one that cannot be reached, with its client and without."""
        for version in (Version.V311, Version.V5):
            for stays in (True, False):
                world = World(version)
                world.connect(clean=True, will=b"will")
                if not stays:
                    world.broker_unreachable()
                    world.pass_time(2)
                    world.client_reads()
                    world.lose_client()
                attempts = self.attempts(world, Connack(session_present=True))
                self.assertLess(len(attempts), 15, (version, stays))
                self.assertEqual(1, world.notes.events.count(("replay failed",)))
                self.assertIn(("link failed", "session_kept", 0), world.notes.events)
                self.assertNotIn(("reconnected", True), world.notes.events)
                self.assertEqual([], world.broker.wills)

    def test_session_that_comes_back(self) -> None:
        """So is one that removes the session, and has it again on the next connection."""
        world = World(Version.V311)
        world.connect(clean=True)
        forwarder, attempts = world.forwarder, []
        assert forwarder is not None
        while world.now.seconds < 1060 and len(attempts) < 1000:
            connect, world.wanted = world.wanted, None
            if connect is None:
                world.pass_time(0.5)
                continue
            attempts.append(connect.clean_start)
            world.broker.connect = connect
            forwarder.upstream_connected(Connack(session_present=not connect.clean_start), world.now)
            world.store.commit()
        self.assertEqual([False, True, False, True], attempts[:4])
        self.assertLess(len(attempts), 30)
        self.assertEqual(1, world.notes.events.count(("replay failed",)))
        self.assertTrue(world.client.connected)

    def test_closed_again(self) -> None:
        """What a broker sends does not end the row of failures, unless it is of use."""
        for packets in (
            [],
            [Disconnect(ReasonCode.SESSION_TAKEN_OVER)],
            [Pingresp()],
            [Acknowledgement(PUBACK, 9)],
            [Publish("x", b"d", 1, packet_id=7)],
        ):
            world = World()
            world.connect()
            world.settle()
            world.publish(b"1", 1)
            world.store.commit()
            world.lose_client()
            world.lose_link()
            attempts = self.attempts(world, Connack(session_present=True), *packets)
            self.assertLess(len(attempts), 15, packets)
            self.assertEqual(1, world.notes.events.count(("replay failed",)))

    def test_reported(self) -> None:
        """A connection that is closed for what the broker sent, or did not send, is reported."""
        for packet, failure in (
            (Disconnect(ReasonCode.SESSION_TAKEN_OVER), ("disconnected", 0x8E)),
            (Connect("x"), ("unexpected_packet", 0)),
        ):
            world = self.opened()
            world.to_proxy.append(packet)
            world.proxy_reads()
            self.assertIn(("link failed", *failure), world.notes.events)
        world = self.opened(keep_alive=40)
        world.pass_time(60)
        self.assertIn(("link failed", "no_response", 0), world.notes.events)


class EndTests(ForwardingCase):
    """The end of a client's connection at the broker."""

    def test_disconnect_follows_the_messages(self) -> None:
        """DISCONNECT is sent when the last message is complete, with the expiry that the client asked for."""
        world = self.opened()
        lasts: list[Disconnect | None] = []
        close = world.close_upstream

        def closes(last: Disconnect | None) -> None:
            lasts.append(last)
            close(last)

        world.close_upstream = closes
        world.publish(b"1", 2)
        world.disconnect(expiry=60)
        self.assertEqual([], lasts)
        world.settle()
        self.assertEqual([Disconnect(0, Properties(session_expiry=60))], lasts)
        self.assertEqual([(b"1", 2)], world.broker.delivered)
        self.assertGreater(world.connects[0].properties.session_expiry or 0, 3600)

    def test_will_follows_the_messages(self) -> None:
        """The will of a lost client, or of one that asks for it, is published behind its messages, once."""
        for version in (Version.V5, Version.V311):
            for ask in (False, True) if version is Version.V5 else (False,):
                world = World(version)
                world.connect(will=b"will")
                world.settle()
                world.publish(b"1", 1)
                if ask:
                    world.disconnect(ReasonCode.DISCONNECT_WITH_WILL)
                else:
                    world.lose_client()
                self.assertEqual([], world.broker.wills)
                world.settle()
                self.assertEqual(([b"will"], 1), (world.broker.wills, len(world.broker.delivered)))
                world.connect()
                world.settle()
                world.disconnect()
                world.settle()
                self.assertEqual([b"will"], world.broker.wills)

    def test_will_without_a_broker(self) -> None:
        """A client that was lost while the broker was away has its will published when the broker is back."""
        world = World()
        world.connect(will=b"will")
        world.broker_unreachable()
        world.lose_client()
        world.pass_time(5)
        world.settle()
        self.assertEqual([b"will"], world.broker.wills)

    def test_no_will_after_disconnect(self) -> None:
        """Connections that only forward the rest of a client that left have no will."""
        world = World()
        world.connect(will=b"will")
        world.settle()
        world.publish(b"1", 1)
        world.disconnect()
        world.lose_link()
        self.assertEqual([b"will"], world.broker.wills)
        world.pass_time(5)
        self.assertIsNone(world.wanted.will if world.wanted is not None else b"")
        world.settle()
        self.assertEqual([b"will"], world.broker.wills)

    def test_sessions_that_end(self) -> None:
        """A session that ends with its connection is removed at the broker and in the buffer."""
        for version in (Version.V5, Version.V311):
            world = World(version)
            world.connect(clean=True, expiry=0)
            world.settle()
            world.publish(b"1", 2)
            world.lose_client()
            world.settle()
            self.assertEqual([(b"1", 2)], world.broker.delivered)
            self.assertEqual(({}, {}, None), (world.broker.sessions, world.store.sessions, world.forwarder))
            self.assertIsNone(world.wake)

    def test_removal_is_given_up(self) -> None:
        """Where the broker cannot be reached, the removal of its session ends with the budget."""
        world = World(Version.V311)
        world.connect(clean=True)
        world.settle()
        world.lose_link()
        world.disconnect()
        for _attempt in range(4):
            world.pass_time(8)
            world.broker_unreachable()
        world.store.commit()
        self.assertEqual((None, {}), (world.forwarder, world.store.sessions))

    def test_sessions_that_stay(self) -> None:
        """An idle session is remembered as long as its client asked, and no longer."""
        world = self.opened()
        world.disconnect(expiry=100)
        world.settle()
        self.assertIsNone(world.broker.connect)
        world.pass_time(99.9)
        self.assertIsNotNone(world.forwarder)
        world.pass_time(0.2)
        world.store.commit()
        self.assertEqual((None, {}), (world.forwarder, world.store.sessions))

    def test_expiry_of_disconnect(self) -> None:
        """DISCONNECT cannot make a session outlive its connection that was not meant to."""
        world = World()
        world.connect(expiry=0)
        world.settle()
        world.disconnect(expiry=100)
        world.settle()
        self.assertIsNone(world.forwarder)

    def test_clean_start_while_messages_wait(self) -> None:
        """The former messages are forwarded in the former session, then the new one begins."""
        for version in (Version.V5, Version.V311):
            world = self.opened(version)
            world.sends(Subscribe(1, [Subscription("old")]))
            world.settle()
            world.publish(b"1", 2)
            world.connect(clean=True)
            world.settle()
            world.publish(b"2", 2)
            world.settle()
            self.assertEqual([(b"1", 2), (b"2", 2)], world.broker.delivered)
            self.assertEqual(set(), world.broker.sessions[CLIENT_ID].filters)
            self.assertEqual([False, False], world.client.presents)

    def test_expired_session_while_messages_wait(self) -> None:
        """A client whose session is over begins a new one, asked or not, though messages of the former wait."""
        world = self.away()
        world.publish(b"1", 2)
        world.store.commit()
        world.connect(expiry=0)
        world.pass_time(2)
        world.client_reads()
        world.lose_client()
        world.connect(expiry=60)
        world.pass_time(2)
        world.client_reads()
        self.assertEqual([False, True, False], world.client.presents)
        world.sends(Publish("t", b"2", 2, packet_id=1))
        world.settle()
        self.assertEqual([b"1", b"2"], [payload for payload, _qos in world.broker.delivered])
        world.lose_client()
        world.pass_time(59)
        world.connect(expiry=60)
        world.settle()
        self.assertTrue(world.client.presents[-1])

    def test_clean_start_while_the_broker_is_away(self) -> None:
        """A client that begins anew over and over leaves its messages, in order, and one clean session."""
        world = self.away()
        for number in range(3):
            world.publish(b"%d" % number, 2)
            world.connect(clean=True)
            world.broker_unreachable()
            world.settle()
        world.pass_time(60)
        world.settle()
        self.assertEqual([b"0", b"1", b"2"], [payload for payload, _qos in world.broker.delivered])
        self.assertTrue(world.client.connected)

    def test_another_version(self) -> None:
        """A client may come back with another version; the former connection ends in its own."""
        world = self.opened(Version.V311)
        lasts: list[Disconnect | None] = []
        close = world.close_upstream

        def closes(last: Disconnect | None) -> None:
            lasts.append(last)
            close(last)

        world.close_upstream = closes
        world.publish(b"1", 2)
        world.store.commit()
        world.sends(Subscribe(8, [Subscription("x")]))
        world.disconnect()
        world.client.version = Version.V5
        world.connect()
        world.pass_time(2)
        self.assertEqual([Version.V311], [each.version for each in world.connects])
        world.settle()
        self.assertEqual([Disconnect()], lasts)
        self.assertEqual([Version.V311, Version.V5], [each.version for each in world.connects])
        # The answer to a request of the former connection is nobody's.
        self.assertEqual([], world.client.subacks)
        self.assertEqual([(b"1", 2)], world.broker.delivered)

    def test_takeover(self) -> None:
        """A client that connects again continues its session on a new connection to the broker."""
        world = self.opened()
        world.connect(will=b"will")
        world.settle()
        self.assertEqual([False, True], world.client.presents)
        self.assertEqual(2, len(world.connects))
        self.assertFalse(world.connects[1].clean_start)


class LostSessionTests(ForwardingCase):
    """A broker that forgets."""

    def test_sent_anew(self) -> None:
        """In-flight messages are sent again as new ones and reported; the client is closed, and told at its return."""
        world = self.opened()
        world.publish(b"1", 2)
        world.publish(b"2", 2)
        world.store.commit()
        world.broker_reads()
        world.proxy_reads()
        world.store.commit()
        self.assertEqual(MessageState.RELEASED, world.store.messages[1][1].state)
        world.lose_link()
        world.broker.sessions.clear()
        world.pass_time(5)
        world.broker_accepts()
        self.assertIn(("session lost", 2), world.notes.events)
        self.assertFalse(world.client.connected)
        self.assertEqual(Disconnect(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR), world.client.got_packets[-1])
        world.store.commit()
        self.assertEqual([(b"1", 1, False), (b"2", 2, False)], self.sent(world))
        world.settle()
        world.connect()
        world.settle()
        world.connect()
        world.settle()
        self.assertEqual([False, False, True], world.client.presents)

    def test_identifiers_of_a_client_that_begins_anew(self) -> None:
        """A client that is told that its session is gone uses packet identifiers for other messages."""
        world = self.opened()
        world.sends(Publish("t", b"old", 2, packet_id=5))
        world.store.commit()
        world.lose_link()
        world.broker.sessions.clear()
        world.pass_time(5)
        world.settle()
        self.assertFalse(world.client.connected)
        world.connect()
        world.settle()
        world.sends(Publish("t", b"new", 2, packet_id=5))
        world.settle()
        self.assertEqual([(b"old", 2), (b"new", 2)], world.broker.delivered)

    def test_lost_without_its_client(self) -> None:
        """A client that returns learns that its subscriptions are gone, over a restart too."""
        world = self.opened()
        world.publish(b"1", 1)
        world.store.commit()
        world.lose_link()
        world.lose_client()
        world.broker.sessions.clear()
        world.pass_time(5)
        world.settle()
        world.crash(written=False)
        world.connect()
        world.settle()
        self.assertEqual([False, False], world.client.presents)


class RestartTests(ForwardingCase):
    """A process that was killed."""

    def test_without_its_client(self) -> None:
        """Messages are forwarded after a restart without the client, whose will the broker published already."""
        world = World()
        world.connect(will=b"will")
        world.settle()
        world.publish(b"1", 2)
        world.store.commit()
        world.crash(written=False)
        self.assertEqual([b"will"], world.broker.wills)
        world.settle()
        self.assertEqual(([(b"1", 2)], [b"will"]), (world.broker.delivered, world.broker.wills))
        self.assertEqual((None, 0), (world.broker.connect, world.notes.in_buffer))

    def test_acknowledgements_that_a_former_process_owed(self) -> None:
        """The broker's answer to a message of a former process is not that to a later one with its identifier."""
        for relayed in (False, True):
            world = self.opened()
            world.publish(b"old", 1, relayed=True)
            world.store.commit()
            world.broker_reads()
            world.proxy_reads()
            world.client_reads()
            self.assertEqual({b"old"}, world.client.acknowledged)
            world.crash(written=False)
            world.reads_page()
            world.connect()
            world.broker_accepts()
            world.store.commit()
            world.client_reads()
            self.assertEqual([(b"old", 1, True)], self.sent(world))
            world.sends(Publish("relayed/t" if relayed else "t", b"new", 1, packet_id=1))
            world.broker_reads()
            world.proxy_reads()
            self.assertEqual([], world.to_client)
            world.settle()
            self.assertEqual([b"old", b"old", b"new"], [payload for payload, _qos in world.broker.delivered])

    def test_without_its_credentials(self) -> None:
        """A session whose password was not stored waits for its client, and says so once."""
        world = self.away()
        world.publish(b"1", 1)
        world.store.commit()
        world.client_reads()
        for session in world.store.sessions.values():
            session.incomplete = True
        world.crash(written=False)
        world.settle()
        world.pass_time(100)
        world.settle()
        self.assertEqual(1, world.notes.events.count(("credentials missing",)))
        self.assertEqual([], world.broker.delivered)
        world.connect()
        world.settle()
        self.assertEqual([(b"1", 1)], world.broker.delivered)

    def test_packets_of_nobody(self) -> None:
        """Packets of a client or broker that is not there change nothing."""
        world = self.opened()
        forwarder = world.forwarder
        assert forwarder is not None
        world.lose_client()
        world.settle()
        forwarder.client_packet(Publish("t", b"x", 1, packet_id=1), world.now)
        forwarder.client_lost(world.now)
        forwarder.upstream_packet(Suback(1, [0]), world.now)
        forwarder.upstream_connected(Connack(), world.now)
        forwarder.upstream_lost(world.now)
        forwarder.wake(world.now)
        self.assertEqual(({}, None), (world.store.messages, world.wanted))

    def test_connect_is_repeated_without_what_does_not_concern_it(self) -> None:
        """Keep alive and session expiry towards the broker are the proxy's own."""
        world = World(keep_alive=77, session_expiry=500)
        world.connect(expiry=60)
        assert isinstance(world.wanted, Connect)
        self.assertEqual((77, 500), (world.wanted.keep_alive, world.wanted.properties.session_expiry))
        world.connect(expiry=0xFFFFFFFF)
        self.assertEqual(0xFFFFFFFF, world.wanted.properties.session_expiry)

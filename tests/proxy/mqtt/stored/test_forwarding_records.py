"""One session of store-and-forward whose messages are recorded: admission, acknowledgement, repetition, failures."""

from __future__ import annotations

from typing import Any, Final

from svc.proxy.mqtt.stored.forwarding import Admission
from svc.wire.mqtt import Acknowledgement, Connack, Disconnect, PacketType, Publish, ReasonCode, Version
from tests.proxy.mqtt.stored.forwarding_model import World
from tests.proxy.mqtt.stored.notary_model import RECORDED, REFUSED
from tests.proxy.mqtt.stored.test_forwarding import ForwardingCase

PUBACK: Final = PacketType.PUBACK
PUBREC: Final = PacketType.PUBREC
KINDS = ((1, PUBACK), (2, PUBREC))


class RecordCase(ForwardingCase):
    """Base class: helpers."""

    def accepted(self, world: World) -> None:
        """CONNACK is on its way to the client, which has not read it and repeats nothing."""
        world.store.commit()
        world.pass_time(3)
        world.store.commit()
        self.assertIsInstance(world.to_client[0], Connack)

    def repeated(self, world: World, qos: Any, payload: bytes = b"1", *, dup: bool = True) -> None:
        """The client sends its first message again."""
        world.sends(Publish(f"t{RECORDED}", payload, qos, dup=dup, packet_id=1))


class AcknowledgementTests(RecordCase):
    """When recorded messages are acknowledged."""

    def test_message_and_record_are_durable(self) -> None:
        """PUBACK and PUBREC wait for the buffer, then for the record; PUBLISH to the broker waits for the buffer."""
        for qos, kind in KINDS:
            world = self.opened()
            world.publish(b"1", qos, recorded=True)
            self.assertFalse(world.notary.unwritten)
            world.store.commit()
            self.assertEqual(([], [(b"1", 1, False)]), (world.to_client, self.sent(world)))
            self.assertNotIn(("acked", "middleware"), world.notes.events)
            world.notary_writes()
            self.assertEqual([Acknowledgement(kind, 1)], world.to_client)  # type: ignore[arg-type]
            self.assertEqual([(b"1", "middleware", 0)], world.notary.records)
            self.assertIn(("acked", "middleware"), world.notes.events)

    def test_qos_0(self) -> None:
        """A message with QoS 0 is recorded when it was sent, or stored behind others; not where it was dropped."""
        world = self.opened()
        world.publish(b"1", 0, recorded=True)
        self.assertEqual(([(b"1", None, 0)], 1), (world.notary.records, len(world.to_broker)))
        world = self.away()
        world.publish(b"1", 0, recorded=True)
        self.assertEqual([(b"1", None, 0)], world.notary.records)
        world.store.accepting = False
        world.publish(b"2", 0, recorded=True)
        self.assertEqual(1, len(world.notary.records))

    def test_by_the_broker(self) -> None:
        """The record of a relayed message has the broker's acknowledgement, with its reason code."""
        for qos, kind in KINDS:
            for code in (0, ReasonCode.NOT_AUTHORIZED):
                world = self.opened()
                world.broker.rejects = {b"1"} if code else set()
                world.publish(b"1", qos, relayed=True, recorded=True)
                world.store.commit()
                self.assertFalse(world.notary.unwritten)
                world.broker_reads()
                world.proxy_reads()
                world.store.commit()
                self.assertEqual([], world.to_client)
                world.notary_writes()
                self.assertEqual([(b"1", "upstream", code)], world.notary.records)
                self.assertEqual([Acknowledgement(kind, 1, code)], world.to_client)  # type: ignore[arg-type]
                world.settle()
                self.assertEqual(({}, {}), (world.store.messages, world.client.unacked))

    def test_never_at_the_broker(self) -> None:
        """A relayed message that expires before the broker has it is acknowledged, and recorded, as the proxy's."""
        world = self.away()
        world.publish(b"1", 1, relayed=True, recorded=True, message_expiry=5)
        world.store.commit()
        world.pass_time(30)
        world.settle()
        self.assertEqual(([(b"1", "middleware", 0)], []), (world.notary.records, world.broker.delivered))
        self.assertIn(("acked", "middleware"), world.notes.events)


class AdmissionTests(RecordCase):
    """Records that are admitted late, or not at all."""

    def test_refused_before_it_is_stored(self) -> None:
        """A message whose record is refused is not stored, and the next one under its identifier is."""
        for qos, kind in KINDS:
            world = self.opened()
            world.notary.admits = Admission.REFUSED
            world.publish(b"1", qos, recorded=True)
            self.assertEqual(([Acknowledgement(kind, 1, REFUSED)], 0), (world.to_client, world.notes.in_buffer))  # type: ignore[arg-type]
            world.settle()
            world.notary.admits = Admission.ADMITTED
            world.sends(Publish(f"t{RECORDED}", b"2", qos, packet_id=1))  # type: ignore[arg-type]
            world.settle()
            self.assertEqual([b"2"], [payload for payload, _qos in world.broker.delivered])

    def test_full_buffer(self) -> None:
        """A record that was admitted for a message that the buffer refuses is given up."""
        world = self.opened()
        world.store.accepting = False
        world.publish(b"1", 1, recorded=True)
        world.settle()
        self.assertEqual(({b"1"}, []), (world.client.refused, world.notary.records))

    def test_what_follows_waits(self) -> None:
        """Nothing of the client passes a message that waits for its admission; then all of it goes on in order."""
        for admitted in (True, False):
            world = self.opened()
            assert world.forwarder is not None
            world.notary.admits = Admission.LATER
            world.publish(b"1", 1, recorded=True)
            world.publish(b"2", 1)
            world.publish(b"3", 0)
            self.assertTrue(world.forwarder.waiting)
            self.assertEqual((0, []), (world.notes.in_buffer, world.to_broker))
            world.admission(admitted=admitted)
            world.client_resumed()
            self.assertFalse(world.forwarder.waiting)
            world.settle()
            delivered = [payload for payload, _qos in world.broker.delivered]
            self.assertEqual([b"1"] * admitted + [b"2", b"3"], delivered)

    def test_client_that_leaves(self) -> None:
        """A message whose client leaves before the admission is not stored."""
        world = self.opened()
        world.notary.admits = Admission.LATER
        world.publish(b"1", 2, recorded=True)
        world.lose_client()
        world.settle()
        self.assertEqual([], world.broker.delivered)
        world.notary.admits = Admission.ADMITTED
        world.connect()
        world.settle()
        self.assertEqual(([(b"1", 2)], {}), (world.broker.delivered, world.client.unacked))


class RepetitionTests(RecordCase):
    """Messages that are repeated because their record was missing."""

    def test_record_that_fails(self) -> None:
        """A message that was stored gets its record when it is repeated; with QoS 2 it is not stored again."""
        for qos, _kind in KINDS:
            world = self.opened()
            world.publish(b"1", qos, recorded=True)
            world.store.commit()
            world.notary.fails()
            self.assertEqual(([], []), (world.notary.records, world.to_client))
            world.connect()
            world.settle()
            self.assertEqual([(b"1", "middleware", 0)], world.notary.records)
            self.assertEqual([(b"1", qos)] * (3 - qos), world.broker.delivered)
            self.assertEqual({}, world.client.unacked)

    def test_crash_before_the_record(self) -> None:
        """After a crash between buffer and record PUBREC waits for the record of the message that is stored."""
        world = self.opened()
        world.publish(b"1", 2, recorded=True)
        world.store.commit()
        world.crash(written=False)
        world.connect()
        self.accepted(world)
        world.client_reads()
        world.store.commit()
        self.assertEqual(([], 1), (world.to_client, len(world.notary.unwritten)))
        world.settle()
        self.assertEqual([(b"1", "middleware", 0)], world.notary.records)
        self.assertEqual(([(b"1", 2)], {}), (world.broker.delivered, world.client.unacked))

    def test_another_message_under_its_identifier(self) -> None:
        """What is not the message that is stored gets no record as if it were: the client is closed."""
        for change in ({"payload": b"2"}, {"dup": False}):
            world = self.opened()
            world.publish(b"1", 2, recorded=True)
            world.store.commit()
            world.crash(written=False)
            world.connect()
            self.accepted(world)
            self.repeated(world, 2, **change)
            self.assertEqual(Disconnect(ReasonCode.PROTOCOL_ERROR), world.client.got_packets[-1])
            self.assertEqual([], world.notary.records)

    def test_refused_while_it_is_stored(self) -> None:
        """Where the notary refuses the record of a stored message its client is closed: it is neither lost nor told."""
        world = self.opened()
        world.publish(b"1", 2, recorded=True)
        world.store.commit()
        world.crash(written=False)
        world.notary.admits = Admission.REFUSED
        world.connect()
        world.settle()
        self.assertEqual(
            (False, set(), set()), (world.client.connected, world.client.refused, world.client.acknowledged)
        )
        world.notary.admits = Admission.ADMITTED
        world.connect()
        world.settle()
        self.assertEqual(([(b"1", 2)], {}), (world.broker.delivered, world.client.unacked))
        self.assertEqual([(b"1", "middleware", 0)], world.notary.records)

    def test_receipt(self) -> None:
        """The receipt of a QoS 2 message is kept, and goes with each PUBREC: the repeated message needs no other."""
        world = self.opened()
        given: list[str] = []
        acknowledge = world.notary.acknowledge

        def note(packet: Acknowledgement, source: str, receipt: str, *, recorded: bool) -> None:
            given.append(receipt)
            acknowledge(packet, source, receipt, recorded=recorded)

        world.notary.acknowledge = note
        world.publish(b"1", 2, recorded=True)
        world.store.commit()
        world.notary_writes()
        world.store.commit()
        self.repeated(world, 2)
        world.crash(written=False)
        world.connect()
        world.settle()
        self.assertEqual((["", "1", "1"], 1), (given, len(world.notary.records)))
        self.assertEqual({}, world.store.received_ids)

    def test_repeated_before_its_record(self) -> None:
        """A message that is repeated while its record is written is acknowledged once, with that."""
        world = self.opened(Version.V311)
        world.publish(b"1", 2, recorded=True)
        self.repeated(world, 2)
        world.store.commit()
        self.repeated(world, 2)
        self.assertEqual(1, len(world.notary.unwritten))
        world.notary_writes()
        self.assertEqual([Acknowledgement(PUBREC, 1)], world.to_client)

    def test_answered_without_its_client(self) -> None:
        """What the broker answers to a client that has not repeated its message is acknowledged when it does."""
        for qos, _kind in KINDS:
            world = self.opened()
            world.publish(b"1", qos, relayed=True, recorded=True)
            world.store.commit()
            world.lose_client()
            world.settle()
            self.assertEqual([], world.notary.records)
            world.connect()
            world.settle()
            self.assertEqual([(b"1", "upstream", 0)], world.notary.records)
            self.assertEqual([(b"1", qos)] * (3 - qos), world.broker.delivered)
            self.assertEqual({}, world.client.unacked)

    def test_repeated_while_the_broker_is_away(self) -> None:
        """A relayed message that is repeated before the broker has it is sent once and recorded once."""
        for qos, _kind in KINDS:
            world = self.away()
            world.publish(b"1", qos, relayed=True, recorded=True)
            world.store.commit()
            world.connect()
            world.broker_unreachable()
            world.store.commit()
            while world.client_reads():
                pass
            self.assertEqual(1, world.notes.in_buffer)
            world.pass_time(30)
            world.settle()
            self.assertEqual([(b"1", "upstream", 0)], world.notary.records)
            self.assertEqual(([(b"1", qos)], {}), (world.broker.delivered, world.client.unacked))

    def test_answered_while_the_admission_waits(self) -> None:
        """A relayed message that is answered while the repeated one waits is stored again, as QoS 1 allows."""
        world = self.away()
        world.publish(b"1", 1, relayed=True, recorded=True)
        world.store.commit()
        world.notary.admits = Admission.LATER
        world.connect()
        world.pass_time(30)
        while world.broker_accepts() or world.client_reads():
            world.store.commit()
        self.assertIsNotNone(world.notary.waiting)
        world.broker_reads()
        world.proxy_reads()
        self.assertEqual([], world.notary.unwritten)
        world.settle()
        self.assertEqual([(b"1", "upstream", 0)], world.notary.records)
        self.assertEqual(([(b"1", 1)] * 2, {}), (world.broker.delivered, world.client.unacked))

    def test_rules_that_changed(self) -> None:
        """A message is repeated under other rules: none is recorded that was not, and none waits that need not."""
        for before in (True, False):
            world = self.opened()
            topic = f"t{RECORDED}" if before else "t"
            world.sends(Publish(topic, b"1", 2, packet_id=1))
            world.store.commit()
            world.connect()
            self.accepted(world)
            world.sends(Publish("t" if before else f"t{RECORDED}", b"1", 2, dup=True, packet_id=1))
            world.store.commit()
            self.assertEqual([Acknowledgement(PUBREC, 1)], world.to_client[1:])
            self.assertEqual([], world.notary.records)
            self.assertEqual({b""}, {each.due for each in world.store.received_ids.values()})

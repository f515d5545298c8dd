"""Stored sessions with their clients, their listener and their connections to the broker, in memory."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta

from twisted.internet.defer import fail
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import X509Svid
from svc.proxy.mqtt.stored.buffer.limits import BufferLimits
from svc.proxy.mqtt.stored.buffer.records import Wanted
from svc.proxy.mqtt.stored.forwarders import LOOK_INTERVAL
from svc.testing.ca import TestAuthority
from svc.transport.errors import OwnSvidRefused
from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Connect,
    Disconnect,
    PacketType,
    Pingresp,
    Properties,
    Publish,
    ReasonCode,
    ReturnCode,
    Suback,
    Subscribe,
    Subscription,
    Version,
    Will,
    encode,
)
from tests.proxy.mqtt.rig import Device
from tests.proxy.mqtt.stored.buffering import OpenedBuffer
from tests.proxy.mqtt.stored.rig import StoredRig
from tests.proxy.rig import AUTHORITY, BASE, CALLER, Handle, evidence_of

OTHER = AUTHORITY.svid("/ns/web/sa/other", ttl=timedelta(hours=2))
PEER = AUTHORITY.svid("/ns/bank/sa/api", ttl=timedelta(hours=1))
LASTING = Properties(session_expiry=3600)


def puback(packet_id: int, code: int = 0) -> Acknowledgement:
    """A PUBACK."""
    return Acknowledgement(PacketType.PUBACK, packet_id, code)


class StoredCase(SynchronousTestCase):
    """One listener that is open."""

    inbound = True

    def setUp(self) -> None:
        """Open it."""
        self.buffer = OpenedBuffer(self.mktemp())
        self.rig = StoredRig(self.buffer, inbound=self.inbound, ack_upstream=["alarm/#"])
        self.rig.begin()
        self.addCleanup(lambda: self.rig.close())

    def restart(self) -> None:
        """End the process as a crash does, and begin the next one."""
        self.buffer.crash()
        self.rig = StoredRig(self.buffer, inbound=self.inbound)
        self.rig.begin()

    def connected(self, client_id: str = "c", version: Version = Version.V5) -> Device:
        """A client whose CONNACK has come from the broker."""
        properties = LASTING if version is Version.V5 else Properties()
        device = self.rig.device(client_id, version, clean_start=False, properties=properties)
        self.rig.broker_accepts()
        device.take()
        return device

    def publish(self, device: Device, *packet_ids: int, topic: str = "t") -> None:
        """Send messages with QoS 1."""
        device.send(*(Publish(topic, b"%d" % each, 1, packet_id=each) for each in packet_ids))
        self.rig.settle()


class BrokerTests(StoredCase):
    """The connection to the broker comes and goes."""

    def test_acknowledged_at_once(self) -> None:
        """A message is acknowledged when it is durable, and forwarded; its topic may demand the broker's answer."""
        device = self.connected()
        self.publish(device, 1)
        self.assertEqual([puback(1)], device.take())
        [message] = self.rig.broker_acknowledges()
        self.assertEqual((b"1", 1), (message.payload, message.qos))
        self.publish(device, 2, topic="alarm/fire")
        self.assertEqual([], device.take())
        self.rig.broker_acknowledges()
        self.assertEqual([puback(2)], device.take())
        self.assertEqual((0, 1), (self.rig.sessions.messages, self.rig.sessions.sessions))

    def test_absent(self) -> None:
        """Without a broker CONNACK comes at once; messages wait and follow when it is back, in order."""
        self.rig.endpoint.refuse = ConnectionRefusedError()
        device = self.rig.device(clean_start=False, properties=LASTING)
        self.assertEqual([Connack], [type(each) for each in device.take()])
        self.publish(device, 1, 2, 3)
        self.assertEqual([puback(1), puback(2), puback(3)], device.take())
        self.assertEqual((3, 0), (self.rig.sessions.messages, self.rig.attempts))
        self.rig.endpoint.refuse = None
        # The longest pause at first.
        self.rig.settle(8.0)
        self.assertEqual(1, self.rig.attempts)
        self.rig.broker_accepts()
        self.assertEqual([b"1", b"2", b"3"], [each.payload for each in self.rig.broker_acknowledges()])
        self.assertEqual(0, self.rig.sessions.messages)

    def test_lost(self) -> None:
        """What was not acknowledged is sent again on the next connection, marked as repeated."""
        device = self.connected()
        self.publish(device, 1)
        [first] = self.rig.broker_takes()
        self.rig.broker_leaves()
        self.assertEqual([puback(1)], device.take())
        self.rig.settle(1.0)
        self.assertEqual(2, self.rig.attempts)
        self.rig.broker_accepts(present=True)
        [again] = self.rig.broker_acknowledges()
        assert isinstance(first, Publish)
        self.assertEqual((True, first.packet_id), (again.dup, again.packet_id))

    def test_of_a_former_connection(self) -> None:
        """What a connection that is closed still brings is not taken for the next one's."""
        device = self.connected()
        self.publish(device, 1)
        [message] = self.rig.broker_takes()
        assert isinstance(message, Publish)
        self.rig.broker_leaves()
        self.rig.settle(1.0)
        self.rig.broker_sends(puback(message.packet_id), number=0)
        self.assertEqual(1, self.rig.sessions.messages)

    def test_silent(self) -> None:
        """CONNACK waits two seconds for that of the broker, which is left after more, and tried again."""
        device = self.rig.device()
        self.rig.settle(1.9)
        self.assertEqual([], device.take())
        self.rig.settle(0.1)
        self.assertEqual([Connack], [type(each) for each in device.take()])
        self.rig.settle(self.rig.mqtt.timeouts.connect - 2.0)
        self.assertTrue(self.rig.endpoint.connections[0][1].aborted)
        self.rig.broker_leaves()
        self.rig.settle(1.0)
        self.assertEqual(2, self.rig.attempts)

    def test_malformed(self) -> None:
        """A broker that sends what is no MQTT is left."""
        self.connected()
        self.rig.endpoint.connections[0][0].dataReceived(b"\xf1\x00")
        self.rig.settle()
        self.assertTrue(self.rig.endpoint.connections[0][1].aborted)

    def test_refuses(self) -> None:
        """A broker that refuses the client is what its CONNACK says."""
        for version, code in ((Version.V5, ReasonCode.NOT_AUTHORIZED), (Version.V311, ReturnCode.NOT_AUTHORIZED)):
            device = self.rig.device(f"refused-{version}", version)
            self.rig.broker_takes(version=version)
            self.rig.broker_sends(Connack(code=code), version=version)
            self.assertEqual([code], [each.code for each in device.take() if isinstance(each, Connack)])
            self.assertTrue(device.wire.closed)
        self.assertEqual(["upstream_refused"] * 2, self.rig.mqtt.reporter.failures)  # type: ignore[attr-defined]

    def test_refuses_nothing(self) -> None:
        """What the proxy refuses, or a limit of its own, is not reported as the broker's refusal."""
        device = self.rig.device("packets", properties=Properties(authentication_method="x"))
        self.assertEqual([0x8C], [each.code for each in device.take() if isinstance(each, Connack)])
        self.rig.endpoint.refuse = ConnectionRefusedError()
        device = self.rig.device("subscriber")
        for number in range(1, 34):
            device.send(Subscribe(number, [Subscription("x")]))
        self.rig.settle()
        self.assertEqual([0x97], [each.code for each in device.take() if isinstance(each, Disconnect)])
        failures = [each for each in self.rig.mqtt.reporter.failures if each != "upstream_unreachable"]  # type: ignore[attr-defined]
        self.assertEqual(["mqtt_authentication_refused", "mqtt_quota_exceeded"], failures)

    def test_full(self) -> None:
        """While the broker reads nothing the client is not read."""
        device = self.connected()
        upstream, wire = self.rig.endpoint.connections[0]
        upstream.pauseProducing()
        self.assertTrue(device.wire.paused)
        upstream.resumeProducing()
        self.rig.settle()
        self.assertFalse(device.wire.paused)
        # The other way round.
        producer = device.wire.producer
        producer.pauseProducing()
        self.assertTrue(wire.paused)
        producer.resumeProducing()
        self.assertFalse(wire.paused)
        # A client that leaves while it is slow does not hold the broker.
        producer.pauseProducing()
        device.leave()
        self.rig.settle()
        self.assertFalse(wire.paused)

    def test_alive(self) -> None:
        """PINGREQ keeps the connection; a broker that does not answer it is left."""
        self.connected()
        self.rig.settle(46.0)
        self.assertEqual([PacketType.PINGREQ], [each.type for each in self.rig.broker_takes()])
        self.rig.settle(46.0)
        self.assertTrue(self.rig.endpoint.connections[0][1].closed)  # type: ignore[attr-defined]


class ClientTests(StoredCase):
    """The client comes and goes."""

    def test_taken_over(self) -> None:
        """A second client of an identity ends the first one, and has its session."""
        first = self.connected()
        self.publish(first, 1)
        first.take()
        second = self.rig.device(clean_start=False, properties=LASTING)
        last = first.take()[-1]
        self.assertEqual(Disconnect(ReasonCode.SESSION_TAKEN_OVER), last)
        self.assertTrue(first.wire.closed)
        self.rig.settle(2.0)
        [connack] = second.take()
        assert isinstance(connack, Connack)
        self.assertEqual((True, 1), (connack.session_present, self.rig.sessions.sessions))
        # What the first one still sends changes nothing.
        first.leave()
        self.publish(second, 2)
        self.assertEqual([puback(2)], second.take())

    def test_taken_over_at_its_end(self) -> None:
        """A session that ends with its client is another one for the next client, which gets CONNACK like any other."""
        for clean_start in (True, False):
            first = self.rig.device()
            self.rig.broker_accepts()
            self.assertEqual([Connack], [type(each) for each in first.take()])
            second = self.rig.device(clean_start=clean_start)
            self.assertTrue(first.wire.closed)
            self.assertEqual([Disconnect(properties=Properties(session_expiry=0))], self.rig.broker_takes())
            self.rig.broker_leaves()
            first.leave()
            self.rig.broker_accepts()
            [connack] = second.take()
            assert isinstance(connack, Connack)
            self.assertEqual((0, False, 1), (connack.code, connack.session_present, self.rig.sessions.sessions))
            self.publish(second, 1)
            self.assertEqual([puback(1)], second.take())
            self.rig.broker_acknowledges()
            second.send(Disconnect())
            self.rig.settle()
            self.rig.broker_leaves()
            self.assertEqual(0, self.rig.sessions.sessions)

    def test_behind_an_ended_session(self) -> None:
        """The broker gets all of a session before CONNECT of the next one with its client identifier."""
        for svid in (CALLER, OTHER):
            device = self.rig.device()
            self.rig.broker_accepts()
            device.send(Disconnect())
            self.rig.settle()
            before = self.rig.attempts
            following = self.rig.device(svid=svid)
            self.assertEqual(before, self.rig.attempts)
            self.rig.broker_leaves()
            self.assertEqual(before + 1, self.rig.attempts)
            self.rig.broker_accepts()
            self.assertEqual([Connack], [type(each) for each in following.take()])
            following.send(Disconnect())
            self.rig.settle()
            self.rig.broker_leaves()

    def test_owner(self) -> None:
        """A client identifier with a session is refused to others, until that session is over."""
        self.connected()
        other = self.rig.device(svid=OTHER)
        self.assertEqual([ReasonCode.CLIENT_IDENTIFIER_NOT_VALID], [each.code for each in other.take()])
        self.assertEqual(1, self.rig.sessions.sessions)
        device = self.rig.device("short")
        self.rig.broker_accepts()
        device.send(Disconnect())
        self.rig.settle()
        self.rig.broker_leaves()
        self.rig.settle()
        self.assertEqual(1, self.rig.sessions.sessions)
        self.rig.device("short", svid=OTHER)
        self.assertEqual(2, self.rig.sessions.sessions)

    def test_assigned(self) -> None:
        """A client without an identifier gets one."""
        device = self.rig.device("")
        [connect] = self.rig.broker_takes()
        self.rig.broker_sends(Connack())
        [connack] = device.take()
        assert isinstance(connect, Connect)
        assert isinstance(connack, Connack)
        self.assertEqual(("assigned", "assigned"), (connect.client_id, connack.properties.assigned_client_id))

    def test_subscribes(self) -> None:
        """SUBSCRIBE and what it brings pass; messages are acknowledged by the client itself."""
        device = self.connected()
        device.send(Subscribe(7, [Subscription("a/#", 1)]))
        self.rig.settle()
        [subscribe] = self.rig.broker_takes()
        assert isinstance(subscribe, Subscribe)
        self.rig.broker_sends(Suback(subscribe.packet_id, [1]), Publish("a/b", b"x", 1, packet_id=9))
        suback, message = device.take()
        self.assertEqual((Suback(7, [1]), b"x"), (suback, message.payload))
        device.send(puback(message.packet_id))
        self.rig.settle()
        self.assertEqual([puback(9)], self.rig.broker_takes())

    def test_answers_before_the_disk(self) -> None:
        """A client that has come back answers deliveries while the disk is slow; the broker gets that at once."""
        self.connected().leave()
        self.rig.settle()
        self.rig.broker_leaves()
        device = self.rig.device(clean_start=False, properties=LASTING)
        self.rig.broker_takes()
        protocol, _wire = self.rig.endpoint.connections[-1]
        packets = (Connack(True), Publish("t", b"", 1, packet_id=7), Publish("t", b"", 2, packet_id=8))
        # None of the turns in which the buffer would write.
        protocol.dataReceived(b"".join(encode(each, Version.V5, "server") for each in packets))
        self.rig.clock.advance(0)
        self.assertEqual([Connack, Publish, Publish], [type(each) for each in device.take()])
        answers = [puback(7), Acknowledgement(PacketType.PUBREC, 8)]
        device.send(*answers)
        self.assertEqual(answers, self.rig.broker_takes())

    def test_publishes_before_connack(self) -> None:
        """What a client sends right behind CONNECT waits for CONNACK, DISCONNECT too; then all of it goes on."""
        for version in (Version.V311, Version.V5):
            name = f"early-{version}"
            device = self.rig.accept(version=version)
            device.send(Connect(name, version))
            device.send(Publish("t", b"1", 1, packet_id=1), Publish("t", b"2", 2, packet_id=2))
            self.assertTrue(device.wire.paused)
            self.rig.settle()
            self.rig.broker_sends(Connack(), version=version)
            self.assertFalse(device.wire.paused)
            kinds = [each.type for each in device.take()]
            self.assertEqual([PacketType.CONNACK, PacketType.PUBACK, PacketType.PUBREC], kinds)
            self.publish(device, 3)
            self.assertEqual([puback(3)], device.take())
            self.rig.broker_takes(version=version)
            # All at once, and it does not wait for an answer.
            device = self.rig.accept(version=version)
            device.send(Connect(f"{name}-once", version), Publish("t", b"once"), Disconnect())
            self.rig.settle()
            self.rig.broker_sends(Connack(), version=version)
            sent = [each for each in self.rig.broker_takes(version=version) if isinstance(each, Publish)]
            self.assertEqual([b"once"], [each.payload for each in sent])

    def test_leaves(self) -> None:
        """DISCONNECT reaches the broker behind the messages; a client that vanishes leaves its will to it."""
        device = self.connected()
        self.publish(device, 1)
        device.send(Disconnect())
        self.rig.settle()
        self.assertEqual([Publish], [type(each) for each in self.rig.broker_takes()])
        self.rig.broker_sends(puback(1))
        self.assertEqual([PacketType.DISCONNECT], [each.type for each in self.rig.broker_takes()])
        will = Will("will", b"gone", 1)
        vanished = self.rig.device("w", will=will)
        self.rig.broker_accepts()
        vanished.leave(clean=False)
        self.rig.settle()
        wire = self.rig.endpoint.connections[-1][1]
        last = Disconnect(ReasonCode.DISCONNECT_WITH_WILL, Properties(session_expiry=0))
        self.assertEqual([last], self.rig.broker_takes())
        self.assertTrue(wire.closed)  # type: ignore[attr-defined]


class DeadLetterTests(StoredCase):
    """What an operator does with messages that the broker does not accept."""

    def rejected(
        self, client_id: str = "c", svid: X509Svid = CALLER, *, leave: bool = False, expiry: int | None = None
    ) -> Device:
        """A client whose message has become a dead letter."""
        device = self.rig.device(client_id, svid=svid)
        self.rig.broker_accepts()
        device.send(Publish("t", b"1", 1, packet_id=1, properties=Properties(message_expiry=expiry)))
        self.rig.settle()
        [message] = [each for each in self.rig.broker_takes() if isinstance(each, Publish)]
        self.rig.broker_sends(puback(message.packet_id, ReasonCode.NOT_AUTHORIZED))
        self.assertEqual(0, self.rig.sessions.messages)
        if leave:
            device.leave()
            self.rig.settle()
            self.rig.broker_leaves()
            self.rig.settle()
            self.assertEqual(0, self.rig.sessions.sessions)
        return device

    def wants(self, order: Wanted, change: str = "") -> None:
        """An operator wants something done with all dead letters, and the proxy looks."""
        with closing(sqlite3.connect(self.buffer.path)) as connection, connection:
            connection.execute(f"UPDATE dead_letter SET wanted = ? {change}", (order,))
        self.rig.settle(LOOK_INTERVAL)

    @property
    def letters(self) -> tuple[int, float]:
        """How many are in the database, and how many operators read of."""
        return self.buffer.rows("dead_letter"), self.rig.value("svc_proxy_mqtt_dead_letters_kept")

    def test_sent(self) -> None:
        """A dead letter is forwarded in the session of its client, once, however long that takes."""
        self.rejected()
        self.rig.settle(LOOK_INTERVAL)
        self.assertEqual((1, 1.0), self.letters)
        self.wants(Wanted.SEND)
        self.assertEqual(([b"1"], (0, 0.0)), ([each.payload for each in self.rig.broker_acknowledges()], self.letters))
        self.rig.settle(LOOK_INTERVAL)
        self.assertEqual(([], 0), (self.rig.broker_acknowledges(), self.rig.sessions.messages))

    def test_sent_when_it_has_expired(self) -> None:
        """An expired dead letter that is sent is dropped as any other message, with its client and without."""
        for leave in (False, True):
            device = self.rejected(leave=leave, expiry=3)
            self.rig.settle(3.0)
            self.wants(Wanted.SEND)
            if leave:
                self.rig.broker_accepts()
            self.assertEqual(([], (0, 0.0)), (self.rig.broker_acknowledges(), self.letters))
            self.assertEqual(0, self.rig.sessions.messages)
            device.leave()
            self.rig.settle()
            self.rig.broker_leaves()
            self.rig.settle()

    def test_sent_without_its_client(self) -> None:
        """A session that is over begins once more, for the message alone, after a restart too."""
        for restart in (False, True):
            self.rejected(leave=True)
            if restart:
                self.rig.close()
                self.rig = StoredRig(self.buffer)
                self.rig.begin()
                self.assertEqual((1, 1.0), self.letters)
            self.wants(Wanted.SEND)
            self.rig.broker_accepts()
            self.assertEqual([b"1"], [each.payload for each in self.rig.broker_acknowledges()])
            self.rig.broker_leaves()
            self.rig.settle()
            self.assertEqual((0, 0, 0.0), (self.rig.sessions.sessions, *self.letters))

    def test_deleted(self) -> None:
        """A dead letter that nobody wants is removed, also one that cannot be read, and nothing is sent."""
        for change in ("", ", content = x'00'"):
            device = self.rejected()
            self.wants(Wanted.DELETE, change)
            self.assertEqual(((0, 0.0), []), (self.letters, self.rig.broker_acknowledges()))
            device.leave()
            self.rig.settle()
            self.rig.broker_leaves()

    def test_kept(self) -> None:
        """One that cannot be read, of a client identifier that is another identity's, or without room, stays."""
        self.rejected(leave=True)
        self.wants(Wanted.SEND, ", content = x'00'")
        self.assertEqual((1, 1.0), self.letters)
        self.wants(Wanted.DELETE)
        self.rejected(leave=True)
        self.rig.device(svid=OTHER)
        self.wants(Wanted.SEND)
        self.assertEqual((1, 1.0), self.letters)

    def test_no_room(self) -> None:
        """Without room in the buffer it stays, until there is."""
        self.rejected(leave=True)
        limits = self.rig.sessions.buffer.limits
        self.rig.sessions.buffer.limits = BufferLimits(session_messages=0)  # type: ignore[misc]
        self.wants(Wanted.SEND)
        self.assertEqual((1, 1.0, 0), (*self.letters, self.rig.sessions.sessions))
        self.rig.sessions.buffer.limits = limits  # type: ignore[misc]
        self.rig.settle(LOOK_INTERVAL)
        self.assertEqual((0, 0.0), self.letters)

    def test_many(self) -> None:
        """More than are read at once are done in one look."""
        device = self.rig.device()
        self.rig.broker_accepts()
        for first in range(1, 101, 20):
            self.publish(device, *range(first, first + 20))
            got = [each for each in self.rig.broker_takes() if isinstance(each, Publish)]
            self.rig.broker_sends(*(puback(each.packet_id, ReasonCode.NOT_AUTHORIZED) for each in got))
        self.assertEqual((100, 100.0), self.letters)
        self.wants(Wanted.DELETE)
        self.rig.settle()
        self.assertEqual((0, 0.0), self.letters)


class ListenerTests(StoredCase):
    """The listener, and the process."""

    def test_suspended(self) -> None:
        """Messages of a listener that is gone wait, which is reported, and follow when one has its name again."""
        device = self.connected()
        self.rig.broker_leaves()
        self.publish(device, 1)
        device.leave()
        self.rig.mqtt.close()
        self.rig.settle(60.0)
        self.assertEqual((1, 1), (self.rig.attempts, self.rig.sessions.messages))
        self.rig.sessions.report_absent()
        self.rig.mqtt.opened()
        self.rig.settle(1.0)
        self.assertEqual(2, self.rig.attempts)
        self.rig.broker_accepts(present=True)
        self.assertEqual([b"1"], [each.payload for each in self.rig.broker_acknowledges()])

    def test_replaced(self) -> None:
        """A reload opens the new listener before the old one closes: its sessions go on with the new one."""
        self.connected()
        assert self.rig.mqtt.forwarding is not None
        newer = StoredRig(self.buffer, sessions=self.rig.sessions)
        newer.mqtt.opened()
        self.rig.mqtt.close()
        self.rig.settle()
        self.assertIs(newer.mqtt.forwarding, self.rig.sessions.listener("iot"))
        self.assertFalse(self.rig.endpoint.connections[0][1].closed)  # type: ignore[attr-defined]

    def test_crash(self) -> None:
        """The next process forwards what this one acknowledged, without its client."""
        device = self.connected()
        self.rig.broker_leaves()
        self.publish(device, 1, 2)
        self.assertEqual([puback(1), puback(2)], device.take())
        self.restart()
        self.assertEqual((1, 2, 1), (self.rig.sessions.sessions, self.rig.sessions.messages, self.rig.attempts))
        self.rig.broker_accepts(present=True)
        self.assertEqual([b"1", b"2"], [each.payload for each in self.rig.broker_acknowledges()])

    def test_ended(self) -> None:
        """The end of the process leaves the broker without ending the session, and nothing wakes up afterwards."""
        device = self.connected()
        self.publish(device, 1)
        self.rig.close()
        self.assertTrue(self.rig.endpoint.connections[0][1].closed)  # type: ignore[attr-defined]
        self.rig.broker_leaves()
        self.assertEqual([], [each for each in self.rig.clock.getDelayedCalls() if each.active()])
        self.restart()
        self.assertEqual(1, self.rig.sessions.messages)

    def test_refused_policies(self) -> None:
        """What was accepted is forwarded when its client is refused later."""
        device = self.connected()
        self.rig.broker_leaves()
        self.publish(device, 1)
        self.rig.rotation.withdrawn = True
        device.take()
        self.rig.settle(1.0)
        self.rig.broker_accepts(present=True)
        self.assertEqual([b"1"], [each.payload for each in self.rig.broker_acknowledges()])

    def test_unreadable_page(self) -> None:
        """A page that cannot be read is reported, and read again later; nothing is lost."""
        device = self.connected()
        self.rig.broker_leaves()
        for packet_id in range(1, 41):
            device.send(Publish("t", bytes(8192), 1, packet_id=packet_id))
            self.rig.settle()
        self.assertEqual(40, len(device.take()))
        pages = self.buffer.buffer.page
        self.buffer.buffer.page = lambda *_arguments: fail(KeyError("defective"))
        self.rig.settle(1.0)
        self.rig.broker_accepts(present=True)
        for _ in range(40):
            self.rig.broker_acknowledges()
        self.assertTrue(0 < self.rig.sessions.messages < 40)
        self.assertTrue(self.flushLoggedErrors(KeyError))
        self.buffer.buffer.page = pages
        for _ in range(3):
            # PINGREQ comes after 45 s.
            self.rig.settle(25.0)
            self.rig.broker_sends(Pingresp())
        while self.rig.broker_acknowledges():
            pass
        self.assertEqual(0, self.rig.sessions.messages)


class OutboundTests(StoredCase):
    """The proxy of a peer is the broker."""

    inbound = False

    def setUp(self) -> None:
        """A peer, and a plain client."""
        super().setUp()
        self.rig.endpoint.handle = Handle(evidence_of(PEER))
        self.device = self.connected()
        self.assertEqual(1.0, self.rig.result("success"))

    def test_expired(self) -> None:
        """A connection ends with the certificate of either side, and messages wait for the next one."""
        self.rig.pass_time(3601.0)
        self.rig.settle()
        self.assertTrue(self.rig.endpoint.connections[0][1].aborted)
        self.rig.endpoint.refuse = ConnectionRefusedError()
        self.rig.broker_leaves()
        self.publish(self.device, 1)
        self.assertEqual([puback(1)], self.device.take())
        self.assertEqual(1, self.rig.sessions.messages)

    def test_refused_peer(self) -> None:
        """A peer that would now be refused is left at once, and gets nothing on the next connection."""
        self.rig.change(TestAuthority("prod.example", now=BASE).bundles())
        self.assertTrue(self.rig.endpoint.connections[0][1].aborted)
        self.publish(self.device, 1)
        self.rig.broker_leaves()
        self.rig.endpoint.manual = True
        self.rig.settle(1.0)
        self.rig.endpoint.complete()
        self.rig.settle()
        # No longer by this bundle: the handshake would fail; here CONNECT is all that it gets.
        self.assertNotIn(Publish, [type(each) for each in self.rig.broker_takes()])

    def test_own_svid_refused(self) -> None:
        """A peer that refuses the own SVID is reported, and tried again."""
        self.rig.broker_leaves()
        self.rig.settle(1.0)
        error = OwnSvidRefused(address="a", spiffe_id="us", ends="now", alert="x")
        self.rig.endpoint.connections[1][0].connectionLost(Failure(error))
        self.rig.settle()
        self.assertEqual(1.0, self.rig.result("success"))
        self.rig.settle(2.0)
        self.assertEqual(3, self.rig.attempts)

    def test_defective(self) -> None:
        """A connection whose decision fails unexpectedly is ended."""
        self.rig.endpoint.connections[0][0].abort_defective()
        self.assertTrue(self.rig.endpoint.connections[0][1].aborted)

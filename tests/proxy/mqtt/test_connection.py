"""One client's connection and its connection to the broker: authorized, limited, decided on again, and ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast
from unittest import mock

from twisted.internet.interfaces import IProtocol, IPushProducer
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.policy.engine import ConnectionPolicy, Denied
from svc.policy.rules import (
    Action,
    AuthorizationPolicy,
    MqttTarget,
    RequestFacts,
    Rule,
    RuleTarget,
    TopicFilters,
)
from svc.policyfiles.settings import Policies
from svc.proxy.connection_settings import LimitSettings, TimeoutSettings
from svc.proxy.mqtt.connection import BROKER_CLOSE_TIMEOUT, CLOSE_TIMEOUT, MAX_UNREAD_OCTETS
from svc.testing.ca import TestAuthority
from svc.transport.errors import ConnectFailed, KeyUpdateLimitReached, OwnSvidRefused
from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Connect,
    Disconnect,
    PacketType,
    Properties,
    Publish,
    ReasonCode,
    ReturnCode,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    Will,
)
from tests.proxy.mqtt.rig import Device, MqttRig
from tests.proxy.mqtt.sessions import Recorder
from tests.proxy.policies import admit_domain, admit_nobody
from tests.proxy.rig import AUTHORITY, BASE, CALLER, Handle, evidence_of

PEER = AUTHORITY.svid("/ns/plant/sa/broker", ttl=timedelta(hours=2))
OTHER = AUTHORITY.svid("/ns/web/sa/other", ttl=timedelta(hours=2))
NOT_AUTHORIZED = ReasonCode.NOT_AUTHORIZED


def topic_policies(*refused: str) -> Policies:
    """Policies that refuse topics and filters, whatever the engine makes of topics."""

    class ByTopic(ConnectionPolicy):
        def __init__(self, inner: ConnectionPolicy, identity: Any) -> None:
            self._inner, self._identity = inner, identity
            self.observed = inner.observed

        def authorize(self, request: RequestFacts) -> Any:
            if request.topic in refused:
                raise Denied(identity=self._identity, policy="p", rule=f"{request.action} {request.topic}")
            return self._inner.authorize(request)

    policies = admit_domain()
    inner = policies.connection
    made = mock.Mock(wraps=policies)
    made.attributes, made.listed = policies.attributes, policies.listed
    made.connection = lambda listener, port, client, own, **more: ByTopic(
        inner(listener, port, client, own, **more), client
    )
    return cast(Policies, made)


class BeginningTests(SynchronousTestCase):
    """From the accepted connection to the broker."""

    def test_admitted(self) -> None:
        """The broker is connected to with CONNECT, and the connection is counted."""
        rig = MqttRig()
        device = rig.accept()
        verifyObject(IProtocol, device.connection)
        verifyObject(IPushProducer, device.connection)
        self.assertEqual(rig.endpoint.connections, [])
        device.send(Connect("c"))
        self.assertEqual([each.type for each in device.broker_takes()], [PacketType.CONNECT])
        device.broker_sends(Connack())
        device.send(Publish("t", b"", 1, packet_id=1), Publish("u", b""))
        device.broker_sends(Acknowledgement(PacketType.PUBACK, 1))
        self.assertEqual((rig.result("success"), len(rig.known)), (1, 1))
        decisions = {"protocol": "mqtt", "role": "server", "result": "allowed", "reason": "ok"}
        self.assertEqual(rig.value("svc_proxy_auth_decisions_total", **decisions), 3)
        device.send(Disconnect())
        self.assertTrue(device.wire.disconnecting and device.broker_wire.disconnecting)
        self.assertFalse(device.wire.aborted or device.broker_wire.aborted)
        device.leave()
        device.broker_leaves()
        self.assertEqual((rig.closed("client"), rig.known, len(rig.reauthorization)), (1, set(), 0))
        [summary] = rig.reporter.connections
        self.assertEqual((summary.complete, summary.peer), (True, str(CALLER.spiffe_id)))
        assert summary.decision is not None
        self.assertEqual(summary.decision.rule, next(iter(admit_domain().rules.policies)).rules[0].name)
        self.assertGreater(min(summary.received_octets, summary.sent_octets), 0)

    def test_refused(self) -> None:
        """A client that no rule admits is answered and reported, and the broker is not connected to."""
        for version, code in ((Version.V5, NOT_AUTHORIZED), (Version.V311, ReturnCode.NOT_AUTHORIZED)):
            rig = MqttRig(policies=admit_nobody())
            device = rig.accept(version=version)
            device.send(Connect("c", version))
            self.assertEqual(device.take(), [Connack(code=code)])
            self.assertTrue(device.wire.disconnecting)
            device.leave()
            self.assertEqual((rig.endpoint.connections, rig.closed("policy_deny"), rig.known), ([], 1, set()))
            self.assertEqual((rig.result("auth_failed"), rig.result("success")), (1, 0))
            self.assertEqual(rig.reporter.denials, [("policy_deny", str(CALLER.spiffe_id))])
            denied = {"protocol": "mqtt", "role": "server", "result": "denied", "reason": "policy_deny"}
            self.assertEqual(rig.value("svc_proxy_auth_decisions_total", **denied), 1)
            self.assertEqual(rig.reporter.connections[0].complete, False)

    def test_client_identifiers(self) -> None:
        """An identifier must match a pattern of the listener; without patterns an empty one passes, too."""
        for client_id, admitted in (("fe-1", True), ("other", False), ("", False)):
            rig = MqttRig(client_ids=("{serviceAccount}-*", "{name}-*"))
            device = rig.accept()
            device.send(Connect(client_id))
            self.assertEqual(len(rig.endpoint.connections), admitted, client_id)
            if not admitted:
                self.assertEqual(device.take(), [Connack(code=ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)])
                device.leave()
                self.assertEqual((rig.result("auth_failed"), len(rig.reporter.denials)), (1, 1))
        rig = MqttRig()
        device = rig.accept()
        device.send(Connect(""))
        device.broker_sends(Connack(properties=Properties(assigned_client_id="given")))
        [answer] = device.take()
        assert isinstance(answer, Connack)
        self.assertEqual(answer.properties.assigned_client_id, "given")

    def test_identifiers_of_the_proxy(self) -> None:
        """A client cannot take the session in which the proxy publishes."""
        for client_id, admitted in (("svc-artifacts-0123456789", 0), ("svc-artifacts", 1)):
            rig = MqttRig()
            rig.accept().send(Connect(client_id))
            self.assertEqual(len(rig.endpoint.connections), admitted, client_id)

    def test_prefixes_of_brokers(self) -> None:
        """What some brokers put before a filter does not hide it from the policies."""
        secret = RuleTarget(mqtt=MqttTarget(topics=TopicFilters(("secret/#",))))
        rig = MqttRig(
            policies=Policies.of(
                AuthorizationPolicy("a", Action.ALLOW, (Rule("all"),)),
                AuthorizationPolicy("d", Action.DENY, (Rule("secret", targets=(secret,)),)),
            )
        )
        device = rig.connect()
        filters = ["$queue/secret/a", "$exclusive/secret/a", "$share/g/secret/a", "$queue/open"]
        device.send(Subscribe(1, [Subscription(each) for each in filters]))
        [passed] = device.broker_takes()
        assert isinstance(passed, Subscribe)
        self.assertEqual([each.filter for each in passed.subscriptions], ["$queue/open"])

    def test_dry_run_and_audit(self) -> None:
        """Policies in dry run and Audit policies see the client and each topic once."""
        everything = (Rule("all"),)
        rig = MqttRig(
            policies=Policies.of(
                AuthorizationPolicy("a", Action.ALLOW, everything),
                AuthorizationPolicy("d", Action.DENY, everything, enforced=False),
                AuthorizationPolicy("w", Action.AUDIT, everything),
            )
        )
        device = rig.connect()
        device.send(Publish("t", b""))
        device.send(Publish("t", b""))
        self.assertEqual((len(rig.reporter.dry_runs), len(rig.reporter.audits)), (2, 2))

    def test_unreachable_broker(self) -> None:
        """The client gets Server unavailable; the failure is reported with its reason."""
        rig = MqttRig()
        rig.endpoint.refuse = ConnectFailed(address="127.0.0.1:1883", detail="refused")
        device = rig.accept()
        device.send(Connect("c"))
        self.assertEqual(device.take(), [Connack(code=ReasonCode.SERVER_UNAVAILABLE)])
        device.leave()
        self.assertEqual((rig.closed("upstream"), rig.reporter.failures), (1, ["upstream_unreachable"]))

    def test_client_leaves_while_connecting(self) -> None:
        """The attempt is given up; one that succeeds all the same is dropped."""
        rig = MqttRig()
        rig.endpoint.manual = True
        device = rig.accept()
        device.send(Connect("c"))
        attempt = rig.endpoint.attempts[0][1]
        device.leave(clean=False)
        self.assertTrue(attempt.called)
        self.assertEqual((rig.closed("client"), rig.known, rig.reporter.failures), (1, set(), []))

    def test_broker_is_silent(self) -> None:
        """A broker that sends no CONNACK in the time of a connection counts as unreachable."""
        rig = MqttRig()
        device = rig.accept()
        device.send(Connect("c"))
        rig.pass_time()
        rig.pass_time(4.9)
        self.assertEqual(device.take(), [])
        rig.pass_time(1)
        self.assertEqual(device.take(), [Connack(code=ReasonCode.SERVER_UNAVAILABLE)])

    def test_no_connect(self) -> None:
        """A client that sends no CONNECT is closed in the time of a handshake, without an answer."""
        rig = MqttRig(timeouts=TimeoutSettings(handshake="10s"))  # type: ignore[arg-type]
        device = rig.accept()
        device.connection.dataReceived(b"\x10")
        rig.pass_time(9.9)
        self.assertFalse(device.wire.disconnecting)
        rig.pass_time(0.1)
        self.assertTrue(device.wire.disconnecting)
        device.leave()
        self.assertEqual((device.take(), rig.closed("timeout"), rig.result("error")), ([], 1, 1))

    def test_bundles_that_changed_in_the_handshake(self) -> None:
        """A client whose SVID is refused since its handshake is dropped, and reported."""
        rig = MqttRig()
        rig.rotation.bundles = TestAuthority("prod.example", now=BASE).bundles()
        device = rig.accept()
        self.assertTrue(device.wire.aborted)
        device.leave()
        self.assertEqual((rig.closed("reauthorization"), rig.result("auth_failed")), (1, 1))
        self.assertEqual(len(rig.reporter.denials), 1)

    def test_octets(self) -> None:
        """Octets of the client are received; those that the broker gets are sent, refused messages are not."""
        rig = MqttRig(policies=topic_policies("no"))
        device = rig.connect(version=Version.V311)
        rig.pass_time()
        names = ("svc_proxy_bytes_received_total", "svc_proxy_bytes_sent_total")
        before = [rig.value(name, protocol="mqtt") for name in names]
        device.send(Publish("t", b"12345"), Publish("no", b"12345"))
        rig.pass_time()
        self.assertEqual([rig.value(name, protocol="mqtt") for name in names], [before[0] + 10 + 11, before[1] + 10])

    def test_no_mqtt(self) -> None:
        """What is no MQTT is reported as the client's fault."""
        rig = MqttRig()
        device = rig.accept()
        device.connection.dataReceived(b"GET / HTTP/1.1\r\n\r\n")
        device.leave()
        self.assertEqual((rig.closed("protocol"), len(rig.reporter.failures)), (1, 1))

    def test_identity_that_ended_in_the_handshake(self) -> None:
        """A client that was shown a former identity is dropped."""
        rig = MqttRig()
        rig.rotation.withdrawn = True
        device = rig.accept()
        self.assertTrue(device.wire.aborted)
        device.leave()
        self.assertEqual((rig.closed("identity_withdrawn"), rig.result("error")), (1, 1))


class TopicTests(SynchronousTestCase):
    """The policies on topics; what the session makes of them is tested with it."""

    def test_refused(self) -> None:
        """A refused message and filter are counted and reported, each with its topic."""
        rig = MqttRig(policies=topic_policies("secret", "secret/#"))
        device = rig.connect()
        device.send(Publish("secret", b"", 1, packet_id=1), Publish("$SYS/x", b"", 1, packet_id=2))
        device.send(Subscribe(3, [Subscription("secret/#")]))
        refused = [Acknowledgement(PacketType.PUBACK, number, NOT_AUTHORIZED) for number in (1, 2)]
        self.assertEqual(device.take(), [*refused, Suback(3, [NOT_AUTHORIZED])])
        self.assertEqual(device.broker_takes(), [])
        self.assertEqual(len(rig.reporter.denials), 3)
        decision = rig.reporter.decisions[0]
        assert decision is not None
        self.assertEqual(decision.rule, "Publish secret")
        self.assertFalse(device.wire.disconnecting)

    def test_old_client(self) -> None:
        """A refused message closes a client of MQTT 3.1.1, and its will follows."""
        rig = MqttRig(policies=topic_policies("secret"))
        device = rig.connect(version=Version.V311)
        device.send(Publish("secret", b""))
        self.assertEqual((device.broker_takes(), device.take()), ([], []))
        self.assertTrue(device.wire.disconnecting and device.broker_wire.disconnecting)
        device.leave()
        device.broker_leaves()
        self.assertEqual((rig.closed("policy_deny"), rig.result("success"), rig.result("auth_failed")), (1, 1, 0))


class ChangeTests(SynchronousTestCase):
    """Open connections are decided on again."""

    def test_exactly_those_that_are_refused(self) -> None:
        """A client whose subscription would now be refused gets the reason, and no will; the others go on."""
        rig = MqttRig(policies=topic_policies())
        will = Will("w", b"")
        revoked = rig.connect(will=will)
        kept = rig.connect(will=will)
        for device, topic_filter in ((revoked, "a/#"), (kept, "b/#")):
            device.send(Subscribe(1, [Subscription(topic_filter)]))
            device.broker_takes()
        rig.apply(topic_policies("a/#"))
        self.assertEqual((revoked.take(), revoked.broker_takes()), ([Disconnect(NOT_AUTHORIZED)], [Disconnect()]))
        self.assertTrue(revoked.wire.disconnecting and revoked.broker_wire.disconnecting)
        self.assertEqual((kept.take(), kept.wire.disconnecting), ([], False))
        revoked.leave()
        revoked.broker_leaves()
        self.assertEqual((rig.closed("reauthorization"), len(rig.known)), (1, 1))
        self.assertEqual((rig.summaries[-1].decisions, rig.summaries[-1].refusals), (2, 1))
        self.assertEqual(rig.reporter.denials, [("policy_deny", str(CALLER.spiffe_id))])
        rig.apply(topic_policies("w"))
        self.assertEqual(kept.take(), [Disconnect(NOT_AUTHORIZED)])

    def test_removed_subscription(self) -> None:
        """What a client has unsubscribed is not decided on."""
        rig = MqttRig(policies=topic_policies())
        device = rig.connect(version=Version.V311)
        device.send(Subscribe(1, [Subscription("a")]), Unsubscribe(2, ["a"]))
        device.connection.upstream_received(b"\xb0\x02\x00\x02")
        rig.apply(topic_policies("a"))
        self.assertFalse(device.wire.disconnecting)

    def test_decided_before_the_next_packet(self) -> None:
        """A message that arrives before the walk over the connections is decided on by what is in force."""
        rig = MqttRig(policies=topic_policies())
        device = rig.connect()
        device.send(Publish("t", b""))
        device.broker_takes()
        rig.listener.take_policies(topic_policies("t"))
        rig.reauthorization.begin()
        device.send(Publish("t", b"", 1, packet_id=1))
        self.assertEqual(device.broker_takes(), [])
        rig.clock.advance(0)
        self.assertFalse(device.wire.disconnecting)

    def test_client_that_is_refused(self) -> None:
        """A client that nothing admits any more is closed; one before its CONNECT is refused then."""
        rig = MqttRig()
        device, early = rig.connect(), rig.accept()
        rig.apply(admit_nobody())
        self.assertEqual(device.take(), [Disconnect(NOT_AUTHORIZED)])
        self.assertFalse(early.wire.disconnecting)
        early.send(Connect("c"))
        self.assertEqual(early.take(), [Connack(code=NOT_AUTHORIZED)])

    def test_between_connect_and_connack(self) -> None:
        """A client that is refused meanwhile gets that as its answer."""
        rig = MqttRig()
        device = rig.accept()
        device.send(Connect("c"))
        rig.apply(admit_nobody())
        self.assertEqual(device.take(), [Connack(code=NOT_AUTHORIZED)])
        self.assertEqual([each.type for each in device.broker_takes()], [PacketType.CONNECT, PacketType.DISCONNECT])

    def test_bundle_without_the_client(self) -> None:
        """A client whose SVID the new bundles refuse is closed and reported once."""
        rig = MqttRig()
        device = rig.connect()
        rig.change(TestAuthority("prod.example", now=BASE).bundles())
        self.assertEqual(device.take(), [Disconnect(NOT_AUTHORIZED)])
        device.leave()
        device.broker_leaves()
        self.assertEqual((rig.closed("reauthorization"), len(rig.reporter.denials)), (1, 1))

    def test_withdrawn_identity(self) -> None:
        """Without an identity of its own the proxy ends its connections, and the wills follow."""
        rig = MqttRig()
        device = rig.connect()
        rig.rotation.withdrawn = True
        rig.change()
        self.assertEqual(device.take(), [Disconnect(ReasonCode.ADMINISTRATIVE_ACTION)])
        self.assertEqual(device.broker_takes(), [])
        device.leave()
        device.broker_leaves()
        self.assertEqual(rig.closed("identity_withdrawn"), 1)

    def test_rotation(self) -> None:
        """``drain`` asks a client to connect again, ``keep`` leaves it alone."""
        for on_rotation, code in (("drain", [Disconnect(ReasonCode.ADMINISTRATIVE_ACTION)]), ("keep", [])):
            rig = MqttRig(on_rotation=cast(Any, on_rotation))
            device = rig.connect()
            rig.rotation.svid = AUTHORITY.svid("/ns/pay/sa/api", ttl=timedelta(hours=3))
            rig.change()
            self.assertEqual(device.take(), code)

    def test_credentials_end(self) -> None:
        """A connection ends with the credentials of its client."""
        rig = MqttRig()
        device = rig.connect(AUTHORITY.svid("/ns/web/sa/fe", ttl=timedelta(minutes=10)))
        rig.pass_time(601)
        self.assertEqual(device.take(), [Disconnect(ReasonCode.ADMINISTRATIVE_ACTION)])
        device.leave()
        device.broker_leaves()
        self.assertEqual(rig.closed("peer_expired"), 1)


class EndTests(SynchronousTestCase):
    """How connections end."""

    def test_client_vanishes(self) -> None:
        """What it sent is delivered; then the broker's connection is closed without DISCONNECT."""
        for clean in (True, False):
            rig = MqttRig()
            device = rig.connect()
            device.send(Publish("t", b""))
            device.leave(clean=clean)
            self.assertEqual([each.type for each in device.broker_takes()], [PacketType.PUBLISH])
            self.assertTrue(device.broker_wire.disconnecting)
            self.assertFalse(device.broker_wire.aborted)
            device.broker_leaves()
            self.assertEqual((rig.closed("client"), rig.reporter.connections[0].complete), (1, False))

    def test_broker_vanishes(self) -> None:
        """The client is told, and the failure is reported."""
        rig = MqttRig()
        device = rig.connect()
        device.broker_leaves(clean=False)
        self.assertEqual(device.take(), [Disconnect(ReasonCode.SERVER_BUSY)])
        self.assertTrue(device.wire.disconnecting)
        device.leave()
        self.assertEqual((rig.closed("application"), rig.reporter.failures), (1, ["upstream_lost"]))

    def test_side_that_does_not_close(self) -> None:
        """A transport that is not closed in time is dropped; a broker has longer to take what was sent."""
        rig = MqttRig()
        device = rig.connect()
        device.send(Disconnect())
        rig.pass_time(CLOSE_TIMEOUT - 0.1)
        self.assertFalse(device.wire.aborted or device.broker_wire.aborted)
        rig.pass_time(0.2)
        self.assertEqual((device.wire.aborted, device.broker_wire.aborted), (True, False))
        rig.pass_time(BROKER_CLOSE_TIMEOUT)
        self.assertTrue(device.broker_wire.aborted)

    def test_drain(self) -> None:
        """A listener that is to end says so to its clients at once; one that records waits for its records."""
        recorder = Recorder()
        rig = MqttRig(recorder=recorder)
        device, busy = rig.connect(), rig.connect()
        busy.send(Publish("t", b"", 1, packet_id=1))
        busy.broker_sends(Acknowledgement(PacketType.PUBACK, 1))
        rig.listener.stop_accepting()
        rig.pass_time()
        down = Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)
        self.assertEqual((device.take(), busy.take()), ([down], []))
        self.assertTrue(busy.wire.paused)
        recorder.done[0](None)
        rig.pass_time()
        self.assertEqual(busy.take(), [Acknowledgement(PacketType.PUBACK, 1), down])
        for each in (device, busy):
            each.leave()
            each.broker_leaves()
        self.assertEqual((rig.closed("drain"), rig.known), (2, set()))

    def test_cut(self) -> None:
        """At the end of a drain what is left is dropped."""
        rig = MqttRig()
        device = rig.connect()
        rig.listener.close()
        self.assertEqual(device.take(), [Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)])
        self.assertTrue(device.wire.aborted and device.broker_wire.aborted)
        device.leave()
        device.broker_leaves()
        self.assertEqual(rig.closed("drain"), 1)

    def test_failed_record(self) -> None:
        """A record that cannot be made ends the connection."""
        recorder = Recorder()
        rig = MqttRig(recorder=recorder)
        device = rig.connect()
        device.send(Publish("t", b"", 1, packet_id=1))
        device.broker_sends(Acknowledgement(PacketType.PUBACK, 1))
        recorder.done[0](Failure(ValueError("disk")))
        self.assertTrue(device.wire.disconnecting)
        device.leave()
        device.broker_leaves()
        self.assertEqual(rig.closed("record"), 1)

    def test_key_updates(self) -> None:
        """The cause of a connection that TLS has ended is kept."""
        rig = MqttRig()
        device = rig.connect()
        device.connection.connectionLost(Failure(KeyUpdateLimitReached(address="a", limit=64)))
        device.broker_leaves()
        self.assertEqual(rig.closed("key_update_limit"), 1)

    def test_defect(self) -> None:
        """A defect while a packet is processed closes both sides."""
        rig = MqttRig()
        device = rig.connect()
        with mock.patch.object(device.connection, "publish", side_effect=ZeroDivisionError):
            self.assertRaises(ZeroDivisionError, device.send, Publish("t", b""))
        device.leave(clean=False)
        self.assertTrue(device.broker_wire.closed)


class TimeTests(SynchronousTestCase):
    """Keep alive, idle time, lifetime."""

    def test_keep_alive(self) -> None:
        """A client must send something within 1.5 times its keep alive; what the broker sends does not count."""
        rig = MqttRig()
        device = rig.connect(keep_alive=10)
        rig.pass_time(8)
        device.send(Publish("t", b""))
        rig.pass_time(8)
        device.broker_sends(Publish("t", b""))
        rig.pass_time(7)
        device.take()
        rig.pass_time(9)
        self.assertEqual(device.take(), [Disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT)])
        device.leave()
        device.broker_leaves()
        self.assertEqual(rig.closed("idle"), 1)

    def test_not_read(self) -> None:
        """The time in which a client is not read does not count."""
        rig = MqttRig()
        device = rig.connect(keep_alive=10)
        device.broker_wire.producer.pauseProducing()
        rig.pass_time(100)
        device.broker_wire.producer.resumeProducing()
        rig.pass_time(14)
        self.assertFalse(device.wire.disconnecting)
        rig.pass_time(2)
        self.assertTrue(device.wire.disconnecting)

    def test_not_read_for_ever(self) -> None:
        """A client that is not read, and with which nothing moves for timeouts.idle, is closed."""
        rig = MqttRig()
        device = rig.connect(keep_alive=10)
        device.broker_wire.producer.pauseProducing()
        rig.pass_time(rig.mqtt.idle - 1)
        self.assertFalse(device.wire.disconnecting)
        rig.pass_time(2)
        self.assertTrue(device.wire.disconnecting)

    def test_idle(self) -> None:
        """Without keep alive a connection ends when neither side sends anything for the idle time."""
        self.assertEqual(MqttRig().mqtt.idle, 3600)
        rig = MqttRig(timeouts=TimeoutSettings(idle="20s"))  # type: ignore[arg-type]
        device = rig.connect()
        rig.pass_time()
        rig.pass_time(19)
        device.broker_sends(Publish("t", b""))
        rig.pass_time(19)
        self.assertFalse(device.wire.disconnecting)
        device.take()
        rig.pass_time(20)
        self.assertEqual(device.take(), [Disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT)])

    def test_lifetime(self) -> None:
        """A connection ends with its lifetime, busy or not."""
        rig = MqttRig(timeouts=TimeoutSettings(lifetime="60s"))  # type: ignore[arg-type]
        device = rig.connect()
        rig.pass_time(59)
        device.send(Publish("t", b""))
        rig.pass_time(1)
        self.assertEqual(device.take(), [Disconnect(ReasonCode.MAXIMUM_CONNECT_TIME)])


class BackPressureTests(SynchronousTestCase):
    """Each side is read only as fast as the other takes it."""

    def setUp(self) -> None:
        """An open connection."""
        self.rig = MqttRig(policies=topic_policies("no"))
        self.device = self.rig.connect()

    def test_both_ways(self) -> None:
        """A full transport of one side pauses the other."""
        verifyObject(IPushProducer, self.device.wire.producer)
        self.device.wire.producer.pauseProducing()
        self.assertEqual((self.device.broker_wire.paused, self.device.wire.paused), (True, False))
        self.device.wire.producer.resumeProducing()
        self.assertFalse(self.device.broker_wire.paused)
        self.device.broker_wire.producer.pauseProducing()
        self.assertEqual((self.device.wire.paused, self.device.broker_wire.paused), (True, False))
        self.device.broker_wire.producer.resumeProducing()
        self.assertFalse(self.device.wire.paused)

    def test_not_read_before_connack(self) -> None:
        """A client is not read while the broker is connected to, nor what needs CONNACK."""
        rig = MqttRig()
        rig.endpoint.manual = True
        device = rig.accept()
        device.send(Connect("c"), Publish("t", b""))
        self.assertTrue(device.wire.paused)
        rig.endpoint.complete()
        self.assertTrue(device.wire.paused)
        device.broker_sends(Connack())
        self.assertFalse(device.wire.paused)
        self.assertEqual([each.type for each in device.broker_takes()], [PacketType.CONNECT, PacketType.PUBLISH])

    def test_unread_answers(self) -> None:
        """A client that does not read the answers to its refused messages is not read either."""
        self.device.wire.producer.pauseProducing()
        message = Publish("no", b"", 1, packet_id=1)
        answer = len(b"\x40\x03\x00\x01\x87")
        for _ in range(MAX_UNREAD_OCTETS // answer):
            self.device.send(message)
        self.assertFalse(self.device.wire.paused)
        self.device.send(message)
        self.assertTrue(self.device.wire.paused)
        self.device.wire.producer.resumeProducing()
        self.assertFalse(self.device.wire.paused)


class FullListenerTests(SynchronousTestCase):
    """``limits.connections``."""

    def test_shared_between_identities(self) -> None:
        """The identity that holds most loses its longest idle client, with a reason; a share is not exceeded."""
        rig = MqttRig(limits=LimitSettings(connections=3))
        first, second, third = (rig.connect() for _ in range(3))
        rig.pass_time(1)
        for device in (first, third):
            device.send(Publish("t", b""))
        rig.pass_time(1)
        other = rig.connect(OTHER)
        self.assertEqual(second.take(), [Disconnect(ReasonCode.QUOTA_EXCEEDED)])
        self.assertFalse(other.wire.disconnecting)
        late = rig.accept(OTHER)
        late.send(Connect("c"))
        self.assertEqual(late.take(), [Connack(code=ReasonCode.SERVER_BUSY)])
        for device in (second, late):
            device.leave()
        second.broker_leaves()
        self.assertEqual((rig.closed("evicted_idle"), rig.closed("connection_limit")), (1, 1))
        self.assertEqual([reason for reason, _peer in rig.reporter.evictions], ["evicted_idle", "connection_limit"])

    def test_slot_until_both_sides_are_closed(self) -> None:
        """A connection that is being closed holds its slot; where that is needed it is dropped, without a report."""
        rig = MqttRig(limits=LimitSettings(connections=2))
        leaving = rig.connect()
        leaving.send(Disconnect())
        leaving.leave()
        rig.connect()
        rig.connect(OTHER)
        self.assertTrue(leaving.broker_wire.aborted)
        leaving.broker_leaves()
        self.assertEqual((rig.closed("client"), rig.reporter.evictions), (1, []))

    def test_place_of_one_that_closes(self) -> None:
        """One that closes in order loses its place to the next that comes, whatever it was closed for, unreported."""
        rig = MqttRig(client_ids=("c",))
        refused, garbage, silent, left = rig.accept(), rig.accept(), rig.accept(), rig.connect()
        refused.send(Connect("other"))
        garbage.connection.dataReceived(b"\x00\x00")
        rig.pass_time(rig.mqtt.timeouts.handshake)
        left.send(Disconnect())
        closing = [refused, garbage, silent, left]
        self.assertEqual([True] * 4, [each.wire.disconnecting for each in closing])
        for number, each in enumerate(closing):
            self.assertEqual(len(closing) - number, len(rig.mqtt.evictions.closing))
            self.assertTrue(rig.mqtt.evictions.evict_closing())
            self.assertEqual(1, each.wire.released)
        self.assertFalse(rig.mqtt.evictions.evict_closing())
        self.assertEqual(([], 0.0), (rig.reporter.evictions, rig.closed("evicted_idle")))
        self.assertTrue(left.broker_wire.aborted)
        for each in closing:
            each.leave()
        left.broker_leaves()
        self.assertFalse(rig.known)

    def test_one_that_has_closed(self) -> None:
        """A client that has answered the close, or left, is not asked for its place any more."""
        rig = MqttRig()
        answered, gone = rig.connect(), rig.connect()
        answered.send(Disconnect())
        answered.leave()
        gone.leave()
        self.assertFalse(rig.mqtt.evictions.evict_closing())
        self.assertFalse(answered.broker_wire.aborted or gone.broker_wire.aborted)

    def test_share_of_one_that_closes(self) -> None:
        """Among permitted clients one that closes already goes before one that does not, whoever holds most."""
        rig = MqttRig(limits=LimitSettings(connections=3))
        first, second = rig.connect(), rig.connect()
        leaving = rig.connect(OTHER)
        leaving.send(Disconnect())
        rig.connect(OTHER)
        self.assertTrue(leaving.broker_wire.aborted)
        self.assertEqual([], [*first.take(), *second.take()])
        self.assertEqual([], rig.reporter.evictions)

    def test_evicted_at_once(self) -> None:
        """An evicted client gets a reason; its place is free at once, and its answer is not waited for."""
        rig = MqttRig()
        early, unread = rig.accept(), rig.accept()
        unread.wire.unsent = 1025
        for each, aborted in ((early, False), (unread, True)):
            self.assertTrue(rig.mqtt.evictions.evict_unpermitted())
            self.assertEqual((1, aborted), (each.wire.released, each.wire.aborted))
            self.assertFalse(rig.mqtt.evictions.evict_closing())
        self.assertEqual(2, len(rig.reporter.evictions))

    def test_refused_client_evicts_nobody(self) -> None:
        """A client that the policies refuse takes no slot."""
        rig = MqttRig(limits=LimitSettings(connections=1), client_ids=("c",))
        rig.connect()
        refused = rig.accept(OTHER)
        refused.send(Connect("other"))
        self.assertEqual((len(refused.take()), rig.reporter.evictions), (1, []))

    def test_clients_without_connect(self) -> None:
        """A connection whose client has sent no CONNECT can be evicted, the oldest first."""
        rig = MqttRig()
        permitted, early, later = rig.connect(), rig.accept(), rig.accept()
        self.assertTrue(rig.mqtt.evictions.evict_unpermitted())
        self.assertEqual([each.wire.disconnecting for each in (permitted, early, later)], [False, True, False])
        early.leave()
        later.leave()
        self.assertFalse(rig.mqtt.evictions.evict_unpermitted())
        self.assertEqual(rig.closed("evicted_unpermitted"), 1)


class OutboundTests(SynchronousTestCase):
    """Plain clients of this machine, and a peer behind mutual TLS."""

    def setUp(self) -> None:
        """Open one connection."""
        self.rig = MqttRig(inbound=False)
        self.rig.endpoint.handle = Handle(evidence_of(PEER))
        self.device: Device = self.rig.accept()
        self.device.send(Connect("c"))

    def test_peer_accepts(self) -> None:
        """The connection is counted once the peer has sent something; the peer decides on topics."""
        self.assertEqual(self.rig.result("success"), 0)
        self.device.broker_sends(Connack())
        self.device.send(Publish("t", b""), Publish("$SYS/x", b"", 1, packet_id=1))
        self.assertEqual(self.rig.result("success"), 1)
        self.assertEqual([each.type for each in self.device.take()], [PacketType.CONNACK, PacketType.PUBACK])
        self.device.leave()
        self.device.broker_leaves()
        self.assertEqual(self.rig.reporter.connections[0].peer, str(PEER.spiffe_id))

    def test_peer_refuses_our_svid(self) -> None:
        """The client is told, and the reason reported."""
        error = OwnSvidRefused(address="a", spiffe_id="us", ends="now", alert="x")
        self.device.connection.upstream.connectionLost(Failure(error))
        self.assertEqual(self.device.take(), [Connack(code=ReasonCode.SERVER_UNAVAILABLE)])
        self.device.leave()
        self.assertEqual((self.rig.result("success"), self.rig.closed("upstream")), (0, 1))
        self.assertEqual(self.rig.reporter.failures, ["own_svid_refused"])

    def test_bundle_without_the_peer(self) -> None:
        """A connection to a peer that would now be refused ends."""
        self.device.broker_sends(Connack())
        self.device.take()
        self.rig.change(TestAuthority("prod.example", now=BASE).bundles())
        self.assertEqual(self.device.take(), [Disconnect(NOT_AUTHORIZED)])
        self.device.leave()
        self.device.broker_leaves()
        self.assertEqual(self.rig.closed("reauthorization"), 1)
        closed = {"protocol": "mqtt", "cause": "reauthorization"}
        self.assertEqual(self.rig.value("svc_proxy_upstream_connections_closed_total", **closed), 1)

    def test_without_identity(self) -> None:
        """Without an identity of its own the proxy connects to nobody."""
        self.rig.rotation.withdrawn = True
        device = self.rig.accept()
        self.assertTrue(device.wire.aborted)
        self.assertEqual(self.rig.reporter.failures, ["identity_withdrawn"])

    def test_changed_while_connecting(self) -> None:
        """A peer that would be refused since the handshake began gets nothing."""
        self.rig.endpoint.manual = True
        device = self.rig.accept()
        device.send(Connect("c"))
        self.rig.change(TestAuthority("prod.example", now=BASE).bundles())
        self.rig.endpoint.complete()
        self.assertEqual(device.take(), [Connack(code=NOT_AUTHORIZED)])
        self.assertEqual(device.broker_wire.value(), b"")
        self.assertTrue(device.broker_wire.aborted)

"""MQTT listeners with ``ack: middleware`` before a real Mosquitto, which is down while clients publish."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import (
    Acknowledgement,
    Disconnect,
    PacketType,
    Properties,
    Publish,
    ReasonCode,
    Suback,
    Subscribe,
    Subscription,
    Version,
    Will,
)
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.conforming_client import ConformingClient
from tests.peers.faulty_disk import fill, memory_disk
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials
from tests.peers.mosquitto import RunningMosquitto
from tests.peers.mqttclient import RawClient
from tests.peers.proxy import RunningProxy
from tests.peers.reconnecting_clients import ReconnectingClients
from tests.peers.waiting import eventually, free_port, rounds

VERSIONS = (Version.V311, Version.V5)
QUALITIES = (0, 1, 2)
LASTING: dict[str, Any] = {"clean_start": False}


def lasting(version: Version) -> dict[str, Any]:
    """Members of CONNECT for a session that outlives the connection."""
    return LASTING | ({"properties": Properties(session_expiry=3600)} if version is Version.V5 else {})


class Site:
    """A Mosquitto that keeps its sessions over restarts, behind a proxy with ``ack: middleware``."""

    def __init__(
        self,
        stack: ExitStack,
        buffer: dict[str, Any] | None = None,
        *,
        broker: int | None = None,
        mosquitto: dict[str, str] | None = None,
        **listener: Any,
    ) -> None:
        self.stack = stack
        self.folder = short_folder(stack)
        self.authority = stack.enter_context(
            RunningAuthority(entries=[entry("/ns/shop/sa/api"), entry("/ns/iot/sa/device"), entry("/ns/iot/sa/other")])
        )
        saved = str(self.folder) + "/"
        settings = {
            "persistence": "true",
            "persistence_location": saved,
            "autosave_interval": "1",
            "max_queued_messages": "0",
            "queue_qos0_messages": "true",
        }
        self.mosquitto = RunningMosquitto(stack, {**settings, "autosave_on_changes": "true", **(mosquitto or {})})
        self.port = free_port()
        iot = {
            "name": "iot",
            "protocol": "mqtt",
            "direction": "inbound",
            "listen": f"127.0.0.1:{self.port}",
            "upstream": f"127.0.0.1:{broker or self.mosquitto.port}",
            "ack": "middleware",
            **listener,
        }
        self.proxy = RunningProxy(
            self.authority,
            "127.0.0.1:1",
            listeners=[iot],
            settings={"mqttBuffer": {"path": str(self.folder / "buffer" / "mqtt.db"), **(buffer or {})}}
            if iot["ack"] == "middleware"
            else {},
        )
        stack.callback(self.proxy.stop)
        self._credentials: dict[str, Credentials] = {}

    def credentials(self, identity: str = "device") -> Credentials:
        """Those of a client."""
        if identity not in self._credentials:
            folder, path = self.folder / identity, f"/ns/iot/sa/{identity}"
            self._credentials[identity] = Credentials.fetch(self.authority, folder, path)
        return self._credentials[identity]

    def client(self, version: Version = Version.V5, *, identity: str = "device") -> RawClient:
        """A client of the proxy."""
        tls = self.credentials(identity).context().wrap_socket
        return self.stack.enter_context(RawClient(self.port, version, tls=tls))

    def subscriber(self, topic: str = "#", **more: Any) -> RawClient:
        """A client of the broker, with a session that lasts."""
        client = self.resumed(**more)
        client.send(Subscribe(1, [Subscription(topic, 2)]))
        assert isinstance(client.receive(), Suback)
        return client

    def subscribe(self) -> None:
        """Let the broker have a subscriber, gone for now, for all that is forwarded once it is started."""
        self.mosquitto.start()
        self.subscriber().close()
        self.mosquitto.stop()

    def resumed(self, **more: Any) -> RawClient:
        """The same client with the session that it has: messages may come at once."""
        client = self.stack.enter_context(RawClient(self.mosquitto.port))
        client.connect("subscriber", **(more or lasting(Version.V5)))
        return client


def deliveries(client: RawClient, count: int) -> list[Publish]:
    """Take so many messages, and acknowledge them."""
    found: list[Publish] = []
    while len(found) < count:
        packet = client.receive()
        assert packet is not None, f"the connection ended after {len(found)} messages"
        client.acknowledge([packet])
        if isinstance(packet, Publish):
            found.append(packet)
    return found


def publish(client: RawClient, topic: str, payload: bytes, qos: Any, packet_id: int) -> None:
    """Publish, and wait until that is complete."""
    client.send(Publish(topic, payload, qos, packet_id=packet_id if qos else 0))
    if qos == 1:
        answer = client.receive()
        assert answer == Acknowledgement(PacketType.PUBACK, packet_id), answer
    elif qos == 2:
        answer = client.receive()
        assert answer == Acknowledgement(PacketType.PUBREC, packet_id), answer
        client.send(Acknowledgement(PacketType.PUBREL, packet_id))
        answer = client.receive()
        assert answer == Acknowledgement(PacketType.PUBCOMP, packet_id), answer


class Case(SynchronousTestCase):
    """A test with things that end."""

    def setUp(self) -> None:
        """Create the stack that ends everything."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)


class BrokerDownTests(Case):
    """The broker is down while clients publish."""

    def test_all_is_delivered_in_order(self) -> None:
        """QoS 0, 1 and 2 messages are acknowledged at once, and delivered once and in order when the broker is back."""
        site = Site(self.stack)
        site.subscribe()
        site.proxy.start()
        expected = []
        for version in VERSIONS:
            client = site.client(version)
            self.assertEqual(0, client.connect(f"c{version.value}", **lasting(version)).code)
            for number in range(60):
                payload = b"%d-%d" % (version.value, number)
                publish(client, "t", payload, number % 3, number + 1)
                expected.append(payload)
        eventually(lambda: site.proxy.metric("svc_proxy_mqtt_buffer_messages_queued") == 120.0)
        self.assertEqual(80.0, site.proxy.metric("svc_proxy_mqtt_buffer_messages_acked_total", source="middleware"))
        counted = ("svc_proxy_mqtt_buffer_messages_durable_total", "svc_proxy_mqtt_buffer_messages_stored_total")
        self.assertEqual([120.0, 0.0], [site.proxy.metric(each) for each in counted])
        site.mosquitto.start()
        subscriber = site.resumed()
        payloads = [each.payload for each in deliveries(subscriber, 120)]
        self.assertCountEqual(expected, payloads)
        # The broker is handed over those with QoS 1 and 2; a connection that breaks in between repeats some.
        eventually(lambda: site.proxy.metric(counted[1]) >= 80.0)
        self.assertEqual(120.0, site.proxy.metric(counted[0]))
        for version, qos in itertools.product(VERSIONS, QUALITIES):
            # MQTT orders messages of one quality of service [MQTT-4.6.0-6].
            own = [b"%d-%d" % (version.value, number) for number in range(qos, 60, 3)]
            self.assertEqual(own, [each for each in payloads if each in own])
        eventually(lambda: site.proxy.metric("svc_proxy_mqtt_buffer_messages_queued") == 0.0)

    def test_delivered_by_the_next_process(self) -> None:
        """What a killed proxy acknowledged is forwarded by the next one, without its client."""
        site = Site(self.stack)
        site.subscribe()
        site.proxy.start()
        client = site.client()
        client.connect("c", **lasting(Version.V5))
        for number in range(30):
            publish(client, "t", b"%d" % number, number % 3, number + 1)
        site.proxy.kill()
        site.mosquitto.start()
        site.proxy.start()
        payloads = [each.payload for each in deliveries(site.resumed(), 30)]
        for qos in QUALITIES:
            own = [b"%d" % number for number in range(qos, 30, 3)]
            self.assertEqual(own, [each for each in payloads if each in own])
        self.assertEqual(30, len(payloads))


KILLS = rounds(5, 60)
#: Messages of one publisher that are not finished.
WINDOW = 40
PUBLISHERS = {"p5": Version.V5, "p3": Version.V311}


class Interrupted(Case):
    """Clients publish while the proxy ends and begins again."""

    #: A payload has fewer octets.
    longest = 300

    def begin(self, site: Site, broker: int) -> None:
        """Publishers at the proxy, a subscriber at the broker."""
        self.site = site
        self.random = random.Random(11)
        self.sent: dict[bytes, tuple[str, int]] = {}
        self.publishers = self.swarm(
            self.site.port,
            *(ConformingClient(name, version) for name, version in PUBLISHERS.items()),
            tls=self.site.credentials().context().wrap_socket,
        )
        self.subscriber = ConformingClient("s")
        self.subscribers = self.swarm(broker, self.subscriber)
        self.assertTrue(self.subscribers.go_on(60, lambda: self.subscriber.connected))
        self.subscribers.says("s", self.subscriber.subscribe(Subscription("t/#", 2)))
        self.assertTrue(self.subscribers.go_on(60, lambda: self.subscriber.subscribed))

    def swarm(self, port: int, *clients: ConformingClient, tls: Any = None) -> ReconnectingClients:
        """Clients that end with the test."""
        made = ReconnectingClients(port, clients, tls=tls)
        self.stack.callback(made.close)
        return made

    def load(self, messages: int, longer: float) -> None:
        """Publish until so many more messages are acknowledged, and a little longer."""
        goal = self.acknowledged() + messages
        went_on = self.publishers.go_on(60, lambda: self.publish() or self.acknowledged() >= goal)
        self.assertTrue(went_on, f"no progress: {self.site.proxy.log[-2000:]}{self.site.proxy.errors[-2000:]}")
        self.publishers.go_on(longer, self.publish)

    def publish(self) -> None:
        """Keep the window of each publisher full."""
        for name in PUBLISHERS:
            client = self.publishers[name]
            while client.connected and len(client.unfinished) < WINDOW:
                payload = b"%d " % len(self.sent) + bytes(self.random.randrange(self.longest))
                qos = self.random.choice((1, 2))
                self.sent[payload] = (name, qos)
                self.publishers.says(name, client.publish(f"t/{name}", payload, qos))  # type: ignore[arg-type]

    def acknowledged(self) -> int:
        """Count the messages acknowledged to publishers."""
        return sum(len(self.publishers[name].acknowledged) for name in PUBLISHERS)

    def finish(self) -> None:
        """Continue until no message is in flight, and the buffer is empty."""
        clients = self.publishers.clients.values()
        done = lambda: all(each.connected and not each.unfinished for each in clients)  # noqa: E731
        self.assertTrue(self.publishers.go_on(60, done), [each.unfinished for each in clients])
        arrived = lambda: set(self.sent) <= {payload for payload, _qos in self.subscriber.delivered}  # noqa: E731
        self.subscribers.go_on(rounds(30, 300), arrived)
        # By now all duplicates have arrived.
        self.subscribers.go_on(1.0)
        eventually(lambda: self.site.proxy.metric("svc_proxy_mqtt_buffer_messages_queued") == 0.0)

    def verify(self) -> None:
        """Compare what was acknowledged with what arrived."""
        for each in (*self.publishers.clients.values(), self.subscriber):
            self.assertEqual(([], []), (each.broken, each.refused), each.client_id)
        acknowledged = {payload for name in PUBLISHERS for payload in self.publishers[name].acknowledged}
        self.assertGreater(len(acknowledged), KILLS * 10)
        delivered = [payload for payload, _qos in self.subscriber.delivered]
        counted = Counter(delivered)
        self.assertEqual([], [payload.split()[0] for payload in acknowledged - set(counted)], "lost")
        twice = [payload.split()[0] for payload, times in counted.items() if times > 1 and self.sent[payload][1] == 2]
        self.assertEqual([], twice, "duplicates of QoS 2")
        first = list(dict.fromkeys(delivered))
        for stream in itertools.product(PUBLISHERS, (1, 2)):
            expected = [
                int(payload.split()[0]) for payload, of in self.sent.items() if of == stream and payload in counted
            ]
            self.assertEqual(expected, [int(each.split()[0]) for each in first if self.sent[each] == stream], stream)


class KillCase(Interrupted):
    """Base class: the proxy is killed, and a broker with it."""

    def kill_often(self, kill_broker: Callable[[], object], start_broker: Callable[[], object]) -> None:
        """Kill the proxy at arbitrary moments, at each third of them the broker before it, at another one after it."""
        self.site.proxy.start()
        for kill in range(KILLS):
            if kill % 3 == 1:
                kill_broker()
            self.load(self.random.randrange(80), self.random.random() * 0.05)
            self.site.proxy.kill()
            self.publishers.drain()
            if kill % 3 == 2:
                kill_broker()
            if kill % 3:
                start_broker()
            self.site.proxy.launch()
            self.subscribers.go_on(0.05)
        self.finish()
        self.verify()


class KillTests(KillCase):
    """kill -9 of the proxy, and of a broker that survives it, while clients publish."""

    def test_proxy(self) -> None:
        """Every message reaches Mosquitto, QoS 2 once, each QoS in the order of its client."""
        # With 20 in flight to the subscriber, as by default, Mosquitto queues and was seen to reorder.
        site = Site(self.stack, mosquitto={"max_inflight_messages": "0"})
        site.mosquitto.start()
        self.begin(site, site.mosquitto.port)
        self.kill_often(lambda: None, lambda: None)

    def test_proxy_and_broker(self) -> None:
        """The same where the broker is killed, too, before the proxy or after it; ours keeps its promises over that."""
        # The subscriber reads little between the kills: nothing for it may be dropped.
        limits = {"queued": 1_000_000, "queuedOctets": "1GiB"}
        path = short_folder(self.stack) / "kept" / "broker.db"
        broker = RunningBroker(persistence={"path": str(path)}, limits=limits)
        self.stack.callback(broker.stop)
        broker.start()
        self.begin(Site(self.stack, broker=broker.port), broker.port)
        self.kill_often(broker.kill, broker.launch)


class SessionTests(Case):
    """The session of a client, beyond its messages."""

    def setUp(self) -> None:
        """A running site."""
        super().setUp()
        self.site = Site(self.stack)
        self.site.mosquitto.start()
        self.site.proxy.start()

    def test_subscriptions(self) -> None:
        """A client subscribes and gets messages of every quality through the session that forwards its own."""
        for version in VERSIONS:
            client: Any = self.site.client(version)
            client.connect(f"both{version.value}")
            client.send(Subscribe(7, [Subscription(f"own/{version.value}", 2)]))
            self.assertEqual(Suback(7, [2]), client.receive())
            for qos in QUALITIES:
                client.send(Publish(f"own/{version.value}", b"%d" % qos, qos, packet_id=qos))  # type: ignore[arg-type]
            found: dict[bytes, int] = {}

            def got() -> bool:
                for packet in client.sync():  # noqa: B023
                    client.acknowledge([packet])  # noqa: B023
                    if isinstance(packet, Acknowledgement) and packet.type is PacketType.PUBREC:
                        client.send(Acknowledgement(PacketType.PUBREL, packet.packet_id))  # noqa: B023
                    elif isinstance(packet, Publish):
                        found[packet.payload] = packet.qos  # noqa: B023
                return len(found) == 3  # noqa: B023

            eventually(got)
            self.assertEqual({b"0": 0, b"1": 1, b"2": 2}, found)

    def test_will_behind_the_messages(self) -> None:
        """The will of a client that vanishes follows its messages to a broker that was down; DISCONNECT ends it."""
        self.site.subscriber().close()
        self.site.mosquitto.stop()
        for name, gone in (("leaves", False), ("vanishes", True)):
            client = self.site.client()
            client.connect(name, will=Will(f"t/{name}", b"will", 1))
            publish(client, f"t/{name}", b"message", 1, 1)
            if not gone:
                client.send(Disconnect())
            client.close()
        self.site.mosquitto.start()
        arrived = [(each.topic, each.payload) for each in deliveries(self.site.resumed(), 3)]
        self.assertEqual([b"message", b"will"], [payload for topic, payload in arrived if topic == "t/vanishes"])
        self.assertEqual([b"message"], [payload for topic, payload in arrived if topic == "t/leaves"])

    def test_clean_start_behind_the_messages(self) -> None:
        """A client that begins anew while messages of its former session wait gets them forwarded first."""
        self.site.subscriber().close()
        self.site.mosquitto.stop()
        client = self.site.client()
        client.connect("c", **lasting(Version.V5))
        publish(client, "t", b"old", 2, 1)
        client.close()
        client = self.site.client()
        self.assertFalse(client.connect("c").session_present)
        publish(client, "t", b"new", 2, 1)
        self.site.mosquitto.start()
        self.assertEqual([b"old", b"new"], [each.payload for each in deliveries(self.site.resumed(), 2)])

    def test_another_identity(self) -> None:
        """A client identifier with a session is refused to another identity; the same one takes it over."""
        self.site.mosquitto.stop()
        first = self.site.client()
        first.connect("mine", **lasting(Version.V5))
        publish(first, "t", b"", 1, 1)
        other = Credentials.fetch(self.site.authority, self.site.folder / "other", "/ns/shop/sa/api")
        with RawClient(self.site.port, tls=other.context().wrap_socket) as thief:
            code = thief.connect("mine", **lasting(Version.V5)).code
            self.assertEqual(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, code)
        second = self.site.client()
        self.assertTrue(second.connect("mine", **lasting(Version.V5)).session_present)
        self.assertEqual([Disconnect(ReasonCode.SESSION_TAKEN_OVER)], first.until_end())

    def test_taken_over_at_its_end(self) -> None:
        """A client takes over its own session, which ends with its connection, and is accepted."""
        for version in VERSIONS:
            client = self.site.client(version)
            client.connect("again")
            for _connection in range(5):
                # The broker answers when what CONNECT stored is durable, so that the session can end.
                client.send(Subscribe(1, [Subscription("t")]))
                self.assertIsInstance(client.receive(), Suback)
                former, client = client, self.site.client(version)
                connack = client.connect("again")
                self.assertEqual((0, False), (connack.code, connack.session_present))
                former.until_end()

    def test_acknowledged_by_the_broker(self) -> None:
        """Messages to `ackUpstream` are acknowledged when the broker has done so."""
        site = Site(self.stack, ackUpstream=["alarm/#"])
        site.proxy.start()
        client = site.client()
        client.connect("c", **lasting(Version.V5))
        client.send(Publish("alarm/fire", b"", 1, packet_id=1))
        publish(client, "other", b"", 1, 2)
        site.mosquitto.start()
        self.assertEqual(PacketType.PUBACK, client.receive().type)
        self.assertEqual(1.0, site.proxy.metric("svc_proxy_mqtt_buffer_messages_acked_total", source="upstream"))

    def test_reported(self) -> None:
        """Metrics and log events of a broker that comes back, and of one that lost the session."""
        client = self.site.client()
        client.connect("c", **lasting(Version.V5))
        publish(client, "t", b"", 1, 1)
        self.site.mosquitto.kill()
        (self.site.folder / "mosquitto.db").unlink(missing_ok=True)
        publish(client, "t", b"", 1, 2)
        eventually(lambda: self.site.proxy.metric("svc_proxy_mqtt_upstream_reconnections_total", result="error") > 0)
        self.site.mosquitto.start()
        eventually(lambda: self.site.proxy.metric("svc_proxy_mqtt_upstream_reconnections_total", result="success") > 0)
        eventually(lambda: self.site.proxy.metric("svc_proxy_mqtt_buffer_messages_queued") == 0.0)
        for event in ("buffer.opened", "forwarding.failed", "buffer.session_lost", "replay.began", "replay.ended"):
            eventually(lambda: self.site.proxy.records(f"svc.proxy.{event}"), what=event)  # noqa: B023
        self.assertEqual(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, client.until_end()[-1].code)
        self.assertTrue(self.site.proxy.readiness()["mqttBuffer"]["ok"])


class FullDiskTests(Case):
    """A small file system in memory; needs the right to mount."""

    def test_refused_and_accepted_again(self) -> None:
        """With a full disk new messages get 0x97 and MQTT 3.1.1 is closed; what was acknowledged arrives."""
        disk = memory_disk(self.stack)
        site = Site(self.stack, {"path": str(disk / "kept" / "mqtt.db"), "reserve": "2MiB"})
        site.proxy.start()
        client = site.client()
        client.connect("c", **lasting(Version.V5))
        publish(client, "t", b"first", 1, 1)
        filler = fill(disk)
        accepted, packet_id, code = [b"first"], 1, 0
        while code != ReasonCode.QUOTA_EXCEEDED:
            packet_id += 1
            payload = b"%d " % packet_id + bytes(4096)
            client.send(Publish("t", payload, 1, packet_id=packet_id))
            answer = client.receive()
            assert isinstance(answer, Acknowledgement), answer
            code = answer.code
            accepted += [payload] if code == 0 else []
            self.assertLess(packet_id, 5000)
        old = site.client(Version.V311)
        # A session cannot be stored either.
        self.assertEqual(3, old.connect("old").code)
        eventually(lambda: site.proxy.records("svc.proxy.buffer.refuses"))
        eventually(lambda: site.proxy.records("svc.proxy.buffer.full"))
        self.assertFalse(site.proxy.readiness()["mqttBuffer"]["ok"])
        filler.unlink()
        eventually(lambda: site.proxy.records("svc.proxy.buffer.accepts"))
        publish(client, "t", b"last", 1, 1)
        site.proxy.kill()
        site.mosquitto.start()
        subscriber = site.subscriber()
        site.proxy.start()
        arrived = {each.payload for each in deliveries(subscriber, len(accepted) + 1)}
        self.assertEqual(set(), {*accepted, b"last"} - arrived)


class SharedBufferTests(Case):
    """One identity that takes all it can get of a buffer."""

    def code(self, client: RawClient, payload: bytes, packet_id: int) -> int:
        """The code with which a message is acknowledged."""
        client.send(Publish("t", payload, 1, packet_id=packet_id))
        answer = client.receive()
        assert isinstance(answer, Acknowledgement), answer
        return answer.code

    def session(self, identity: str, client_id: str) -> tuple[RawClient, int]:
        """A client, and the code of its CONNACK."""
        client = self.site.client(identity=identity)
        return client, client.connect(client_id, **lasting(Version.V5)).code

    def test_one_and_another(self) -> None:
        """Without a broker one identity takes all sessions and octets; another one stores, also after kill -9."""
        self.site = site = Site(self.stack, {"sessions": 30, "totalBytes": "1MiB", "sessionBytes": "1MiB"})
        site.proxy.start()
        codes = []
        for number in range(30):
            client, code = self.session("device", f"d-{number}")
            codes.append(code)
            if not code:
                publish(client, "d", b"one", 1, 1)
                client.close()
        self.assertEqual([0] * 28 + [ReasonCode.QUOTA_EXCEEDED] * 2, codes)
        greedy, _code = self.session("device", "d-0")
        accepted = 0
        while self.code(greedy, bytes(32 * 1024), 2) == 0:
            accepted += 1
        self.assertIn(accepted, range(26, 32))
        full = eventually(lambda: site.proxy.records("svc.proxy.buffer.full"))[0]
        device = "spiffe://example.org/ns/iot/sa/device"
        self.assertEqual(("share", device), (full["detail_reason"], full["attributes"]["most"]))
        modest, code = self.session("other", "o-1")
        self.assertEqual((0, 0), (code, self.code(modest, b"o-1", 1)))
        site.proxy.kill()
        site.proxy.start()
        greedy, code = self.session("device", "d-0")
        self.assertEqual((0, ReasonCode.QUOTA_EXCEEDED), (code, self.code(greedy, bytes(32 * 1024), 2)))
        self.assertEqual(ReasonCode.QUOTA_EXCEEDED, self.session("device", "d-28")[1])
        modest, code = self.session("other", "o-1")
        self.assertEqual((0, 0), (code, self.code(modest, b"o-2", 2)))
        site.proxy.kill()
        site.mosquitto.start()
        subscriber = site.subscriber()
        site.proxy.start()
        arrived = [each.payload for each in deliveries(subscriber, 28 + accepted + 2)]
        self.assertEqual([b"o-1", b"o-2"], [each for each in arrived if each.startswith(b"o-")])
        eventually(lambda: site.proxy.metric("svc_proxy_mqtt_buffer_messages_queued") == 0.0)
        greedy, _code = self.session("device", "d-0")
        self.assertEqual(0, self.code(greedy, bytes(32 * 1024), 3))


class PairTests(Case):
    """An outbound listener that stores, the peer's inbound listener, and Mosquitto."""

    def test_pair(self) -> None:
        """A plain client of this machine publishes while the peer's broker is down; all arrives by mutual TLS."""
        site = Site(self.stack)
        port = free_port()
        uplink = {
            "name": "uplink",
            "protocol": "mqtt",
            "direction": "outbound",
            "listen": f"127.0.0.1:{port}",
            "upstream": f"127.0.0.1:{site.port}",
            "peer": "spiffe://example.org/ns/shop/sa/api",
            "ack": "middleware",
        }
        *others, inbound = site.proxy.config["listeners"]
        del inbound["ack"]
        site.proxy.config["listeners"] = [*others, inbound, uplink]
        site.subscribe()
        site.proxy.start()
        for version in VERSIONS:
            client = self.stack.enter_context(RawClient(port, version))
            self.assertEqual(0, client.connect(f"c{version.value}", **lasting(version)).code)
            for number in range(10):
                publish(client, "t", b"%d-%d" % (version.value, number), 1 + number % 2, number + 1)
        site.mosquitto.start()
        subscriber = site.resumed()
        payloads = [each.payload for each in deliveries(subscriber, 20)]
        self.assertCountEqual([b"%d-%d" % (each.value, number) for each in VERSIONS for number in range(10)], payloads)

    def edge(self, site: Site) -> tuple[RunningProxy, int]:
        """Another proxy, which stores messages for the inbound listener of the site; its port for plain clients."""
        port = free_port()
        uplink = {
            "name": "uplink",
            "protocol": "mqtt",
            "direction": "outbound",
            "listen": f"127.0.0.1:{port}",
            "upstream": f"127.0.0.1:{site.port}",
            "peer": "spiffe://example.org/ns/shop/sa/api",
            "ack": "middleware",
        }
        path = str(site.folder / "edge" / "mqtt.db")
        edge = RunningProxy(site.authority, "127.0.0.1:1", listeners=[uplink], settings={"mqttBuffer": {"path": path}})
        self.stack.callback(edge.stop)
        return edge, port

    def test_centre_that_refuses_for_a_moment(self) -> None:
        """What the edge acknowledged while the buffer of the centre was full arrives, with QoS 2 once."""
        site = Site(self.stack, {"sessionMessages": 20})
        site.subscribe()
        edge, port = self.edge(site)
        site.proxy.start()
        edge.start()
        expected = {}
        for version, qos in itertools.product(VERSIONS, (1, 2)):
            client = self.stack.enter_context(RawClient(port, version))
            self.assertEqual(0, client.connect(f"c{version.value}-{qos}", **lasting(version)).code)
            own = expected[version, qos] = [b"%d-%d-%d" % (version.value, qos, number) for number in range(60)]
            for number, payload in enumerate(own):
                publish(client, "t", payload, qos, number + 1)
        eventually(lambda: site.proxy.records("svc.proxy.buffer.full"))
        refused = lambda: [  # noqa: E731
            each for each in edge.records("svc.proxy.forwarding.failed") if "quota_exceeded" in str(each)
        ]
        eventually(refused)
        site.mosquitto.start()
        subscriber, arrived = site.resumed(), []
        while {each for own in expected.values() for each in own} - set(arrived):
            arrived += [each.payload for each in deliveries(subscriber, 1)]
        for (version, qos), own in expected.items():
            found = [each for each in arrived if each in own]
            self.assertEqual(sorted(own), sorted(found if qos == 2 else set(found)), (version, qos))
        eventually(lambda: edge.metric("svc_proxy_mqtt_buffer_messages_queued") == 0.0)
        self.assertEqual([], edge.records("svc.proxy.buffer.dropped"))

    def test_policy_that_was_wrong_for_a_minute(self) -> None:
        """What the policy of the centre refuses is kept by the edge, until an operator sends it, over a restart too."""
        site = Site(self.stack)
        site.mosquitto.start()
        subscriber = site.subscriber()
        rules = site.folder / "policies.yaml"
        rules.write_text(publishers("other"))
        site.proxy.config["policy"] = {"files": [str(rules)]}
        edge, port = self.edge(site)
        site.proxy.start()
        edge.start()
        client = self.stack.enter_context(RawClient(port))
        client.connect("meter")
        for number in range(40):
            publish(client, "late", b"%d" % number, 1 + number % 2, number + 1)
        publish(client, "other", b"other", 1, 1)
        self.assertEqual([b"other"], [each.payload for each in deliveries(subscriber, 1)])
        client.send(Disconnect())
        kept = lambda: edge.metric("svc_proxy_mqtt_dead_letters_kept")  # noqa: E731
        eventually(lambda: kept() == 40.0)
        self.assertEqual(40.0, edge.metric("svc_proxy_mqtt_dead_letters_total", cause="rejected"))
        logged = edge.records("svc.proxy.buffer.dead_letter")[0]["attributes"]
        self.assertEqual(
            ("meter", "late", "not_authorized"), tuple(logged[each] for each in ("client_id", "topic", "code"))
        )
        edge.kill()
        edge.start()
        self.assertEqual(40.0, kept())
        listed = [json.loads(line) for line in dead_letters(edge, "list", "-o", "json").splitlines()]
        self.assertEqual(
            {("meter", "late", "not_authorized", "rejected")},
            {tuple(each[name] for name in ("client", "topic", "code", "cause")) for each in listed},
        )
        replaced = site.folder / "new"
        replaced.write_text(publishers("other", "late"))
        replaced.rename(rules)
        eventually(lambda: len(site.proxy.records("svc.proxy.policy.loaded")) > 1)
        dead_letters(edge, "delete", str(listed[0]["number"]))
        dead_letters(edge, "send", "--all")
        payloads = [each.payload for each in deliveries(subscriber, 39)]
        self.assertEqual([b"%d" % number for number in range(1, 40)], sorted(payloads, key=int))
        self.assertEqual(0.0, kept())
        self.assertEqual("", dead_letters(edge, "list"))


def publishers(*topics: str) -> str:
    """Policies that let everybody connect and publish to topics."""
    to = [{"mqttActions": ["Connect"]}, {"mqttActions": ["Publish"], "mqttTopics": list(topics)}]
    policy = {
        "apiVersion": "svc.internal/v1alpha1",
        "kind": "SvcClusterPolicy",
        "metadata": {"name": "publishers"},
        "spec": {"authorization": {"action": "Allow", "rules": [{"name": "publisher", "to": to}]}},
    }
    return json.dumps(policy)


def dead_letters(proxy: RunningProxy, *words: str) -> str:
    """Run ``svc mqtt dead-letters`` beside a proxy; returns its standard output."""
    config = proxy.folder / "dead-letters.yaml"
    config.write_text(json.dumps(proxy.config))
    command = [sys.executable, "-m", "svc.cli.main", "mqtt", "dead-letters", *words, "--config", str(config)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout

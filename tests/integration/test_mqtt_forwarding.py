"""MQTT listeners with ``ack: middleware`` before a real Mosquitto, which is down while clients publish."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import (
    Acknowledgement,
    PacketType,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.conforming_client import ConformingClient
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
            RunningAuthority(entries=[entry("/ns/shop/sa/api"), entry("/ns/iot/sa/device")])
        )
        saved = str(self.folder) + "/"
        settings = {
            "persistence": "true",
            "persistence_location": saved,
            "autosave_interval": "1",
            "max_queued_messages": "0",
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
            settings={"mqttBuffer": {"path": str(self.folder / "buffer" / "mqtt.db"), **(buffer or {})}},
        )
        stack.callback(self.proxy.stop)
        self.credentials = Credentials.fetch(self.authority, self.folder / "id", "/ns/iot/sa/device")

    def client(self, version: Version = Version.V5) -> RawClient:
        """A client of the proxy."""
        return self.stack.enter_context(RawClient(self.port, version, tls=self.credentials.context().wrap_socket))

    def subscriber(self, topic: str = "#", **more: Any) -> RawClient:
        """A client of the broker, with a session that lasts."""
        client = self.stack.enter_context(RawClient(self.mosquitto.port))
        client.connect("subscriber", **(more or lasting(Version.V5)))
        client.send(Subscribe(1, [Subscription(topic, 2)]))
        assert isinstance(client.receive(), Suback)
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
        site.mosquitto.start()
        site.subscriber().close()
        site.mosquitto.stop()
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
        site.mosquitto.start()
        subscriber = site.subscriber()
        payloads = [each.payload for each in deliveries(subscriber, 120)]
        self.assertCountEqual(expected, payloads)
        for version, qos in itertools.product(VERSIONS, QUALITIES):
            # MQTT orders messages of one quality of service [MQTT-4.6.0-6].
            own = [b"%d-%d" % (version.value, number) for number in range(qos, 60, 3)]
            self.assertEqual(own, [each for each in payloads if each in own])
        eventually(lambda: site.proxy.metric("svc_proxy_mqtt_buffer_messages_queued") == 0.0)

    def test_delivered_by_the_next_process(self) -> None:
        """What a killed proxy acknowledged is forwarded by the next one, without its client."""
        site = Site(self.stack)
        site.mosquitto.start()
        site.subscriber().close()
        site.mosquitto.stop()
        site.proxy.start()
        client = site.client()
        client.connect("c", **lasting(Version.V5))
        for number in range(30):
            publish(client, "t", b"%d" % number, number % 3, number + 1)
        site.proxy.kill()
        site.mosquitto.start()
        site.proxy.start()
        payloads = [each.payload for each in deliveries(site.subscriber(), 30)]
        for qos in QUALITIES:
            own = [b"%d" % number for number in range(qos, 30, 3)]
            self.assertEqual(own, [each for each in payloads if each in own])
        self.assertEqual(30, len(payloads))


KILLS = rounds(5, 60)
#: Messages of one publisher that are not finished.
WINDOW = 40
PUBLISHERS = {"p5": Version.V5, "p3": Version.V311}


class KillTests(Case):
    """kill -9 of the proxy, and of a broker that survives it, while clients publish."""

    def begin(self, site: Site, broker: int) -> None:
        """Publishers at the proxy, a subscriber at the broker."""
        self.site = site
        self.random = random.Random(11)
        self.sent: dict[bytes, tuple[str, int]] = {}
        self.publishers = self.swarm(
            self.site.port,
            *(ConformingClient(name, version) for name, version in PUBLISHERS.items()),
            tls=self.site.credentials.context().wrap_socket,
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

    def test_proxy(self) -> None:
        """Every message reaches Mosquitto, QoS 2 once, each QoS in the order of its client."""
        # With 20 in flight to the subscriber, as by default, Mosquitto queues and was seen to reorder.
        site = Site(self.stack, mosquitto={"max_inflight_messages": "0"})
        site.mosquitto.start()
        self.begin(site, site.mosquitto.port)
        self.kill_often(lambda: None, lambda: None)

    def test_proxy_and_broker(self) -> None:
        """The same where the broker is killed, too, before the proxy or after it; ours keeps its promises over that."""
        broker = RunningBroker(persistence={"path": str(short_folder(self.stack) / "kept" / "broker.db")})
        self.stack.callback(broker.stop)
        broker.start()
        self.begin(Site(self.stack, broker=broker.port), broker.port)
        self.kill_often(broker.kill, broker.launch)

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
                payload = b"%d " % len(self.sent) + bytes(self.random.randrange(300))
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
        self.subscribers.go_on(30, arrived)
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

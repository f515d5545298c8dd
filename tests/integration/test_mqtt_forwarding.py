"""MQTT listeners with ``ack: middleware`` before a real Mosquitto, which is down while clients publish."""

from __future__ import annotations

import itertools
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
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials
from tests.peers.mosquitto import RunningMosquitto
from tests.peers.mqttclient import RawClient
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually, free_port

VERSIONS = (Version.V311, Version.V5)
QUALITIES = (0, 1, 2)
LASTING: dict[str, Any] = {"clean_start": False}


def lasting(version: Version) -> dict[str, Any]:
    """Members of CONNECT for a session that outlives the connection."""
    return LASTING | ({"properties": Properties(session_expiry=3600)} if version is Version.V5 else {})


class Site:
    """A Mosquitto that keeps its sessions over restarts, behind a proxy with ``ack: middleware``."""

    def __init__(self, stack: ExitStack, buffer: dict[str, Any] | None = None, **listener: Any) -> None:
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
        self.mosquitto = RunningMosquitto(stack, {**settings, "autosave_on_changes": "true"})
        self.port = free_port()
        iot = {
            "name": "iot",
            "protocol": "mqtt",
            "direction": "inbound",
            "listen": f"127.0.0.1:{self.port}",
            "upstream": f"127.0.0.1:{self.mosquitto.port}",
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

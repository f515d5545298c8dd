"""Topic aliases towards clients over real connections (MQTT 5.0, section 3.3.2.3.4)."""

from __future__ import annotations

import queue
from contextlib import ExitStack

from paho.mqtt import client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import Acknowledgement, Packet, PacketType, Properties, Publish, Subscribe, Subscription
from tests.peers.broker import RunningBroker
from tests.peers.mqttclient import RawClient
from tests.peers.waiting import Shared

TOPICS = [f"site/line-{number}/sensor" for number in range(6)]
MOST = 4


class Site:
    """
    A broker.

    Args:
        stack: ends it.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.broker = stack.enter_context(RunningBroker(limits={"queued": 10_000}))


SITE = Shared(Site)


def resolved(packets: list[Packet], known: dict[int, str]) -> list[tuple[str, bytes]]:
    """Return topic and payload of each message, as a client does that follows the standard."""
    seen = []
    for each in packets:
        if isinstance(each, Publish):
            alias = each.properties.topic_alias
            if alias is not None and each.topic:
                known[alias] = each.topic
            assert alias is None or 0 < alias <= MOST, alias
            seen.append((each.topic or known[alias or 0], each.payload))
    return seen


class AliasCase(SynchronousTestCase):
    """Clients of one broker."""

    def setUp(self) -> None:
        """Start a broker for the clients."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.port = SITE.get().broker.port

    def client(self, name: str, most: int | None = None) -> RawClient:
        """Connect a client with its own options."""
        raw = self.stack.enter_context(RawClient(self.port, seconds=30))
        answer = raw.connect(f"{self.id()}-{name}", properties=Properties(topic_alias_maximum=most))
        self.assertEqual(answer.code, 0)
        return raw

    def subscriber(self, most: int | None) -> RawClient:
        """Connect a client that subscribes to everything of this test."""
        raw = self.client(f"s{most}", most)
        raw.send(Subscribe(1, [Subscription(f"{self.id()}/#", 2)]))
        raw.sync()
        return raw

    def publishes(self, publisher: RawClient, number: int, payload: bytes) -> tuple[str, bytes]:
        """Publish a message with each quality of service; return topic and payload."""
        topic, qos = f"{self.id()}/{TOPICS[number % len(TOPICS)]}", number % 3
        publisher.send(Publish(topic, payload, qos, packet_id=1 if qos else 0))  # type: ignore[arg-type]
        if qos == 2:
            publisher.sync()
            publisher.send(Acknowledgement(PacketType.PUBREL, 1))
        return topic, payload


class RawTests(AliasCase):
    """Clients that resolve topic aliases."""

    def test_the_same_in_fewer_octets(self) -> None:
        """With aliases a client receives the same messages in fewer octets."""
        publisher = self.client("p")
        subscribers = [self.subscriber(MOST), self.subscriber(None)]
        sent = [self.publishes(publisher, number, b"%d" % number) for number in range(600)]
        publisher.sync()
        came: list[list[Packet]] = []
        for each in subscribers:
            packets: list[Packet] = []
            while new := each.sync():
                packets += new
                each.acknowledge(new)
            came.append(packets)
            self.assertEqual(resolved(packets, {}), sent)
        aliased, plain = (sum(len(each.topic) for each in packets if isinstance(each, Publish)) for packets in came)
        self.assertLess(aliased, plain * 0.6)

    def test_a_client_that_stops_reading(self) -> None:
        """Messages that are dropped or queued create no alias that was not sent to the client."""
        publisher, subscriber = self.client("p"), self.subscriber(MOST)
        broker = SITE.get().broker
        sent, number = [], 0
        while not broker.metric("svc_broker_messages_dropped_total", reason="congested"):
            for _ in range(30):
                sent.append(self.publishes(publisher, number, b"%06d" % number + bytes(50_000)))
                number += 1
            publisher.sync()
            self.assertLess(number, 5000, "a client that reads nothing is never congested")
        known: dict[int, str] = {}
        seen: list[tuple[str, bytes]] = []
        while new := subscriber.sync():
            seen += resolved(new, known)
            subscriber.acknowledge(new)
        # QoS 0 messages overtake queued ones, and may be dropped; every topic matches the payload that was sent.
        self.assertEqual(set(seen) - set(sent), set())
        self.assertEqual(len(seen), len(set(seen)))
        self.assertEqual([each for each in sent if each not in set(seen) and int(each[1][:6]) % 3], [])


class PahoTests(AliasCase):
    """A third-party client."""

    def test_a_program_that_resolves(self) -> None:
        """paho-mqtt leaves aliases to its program, which finds topic and alias as the standard requires."""
        came: queue.Queue[paho.MQTTMessage] = queue.Queue()
        ready: queue.Queue[None] = queue.Queue()
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, "paho", protocol=paho.MQTTv5)
        client.on_message = lambda _client, _data, message: came.put(message)
        client.on_subscribe = lambda *_rest: ready.put(None)
        client.on_connect = lambda *_rest: client.subscribe(f"{self.id()}/#", 2)  # type: ignore[assignment]
        terms = PahoProperties(PacketTypes.CONNECT)
        terms.TopicAliasMaximum = MOST
        client.connect("localhost", self.port, properties=terms)
        client.loop_start()
        self.stack.callback(client.loop_stop)
        self.stack.callback(client.disconnect)
        ready.get(timeout=60)
        publisher = self.client("p")
        # With QoS 2 the library delivers released messages, in another order than that of the aliases.
        sent = [self.publishes(publisher, number, b"%d" % number) for number in range(90) if number % 3 != 2]
        publisher.sync()
        known: dict[int, str] = {}
        seen = []
        for _ in sent:
            message = came.get(timeout=60)
            alias = getattr(message.properties, "TopicAlias", None)
            if alias is not None and message.topic:
                known[alias] = message.topic
            seen.append((message.topic or known[alias], message.payload))  # type: ignore[index]
        self.assertEqual(seen, sent)
        self.assertEqual(len(known), MOST)


class SwitchedOffTests(SynchronousTestCase):
    """``aliases: 0``."""

    def test_both_directions(self) -> None:
        """No alias is offered, and none is sent."""
        with RunningBroker(limits={"aliases": 0}) as broker, RawClient(broker.port) as client:
            answer = client.connect("c", properties=Properties(topic_alias_maximum=MOST))
            self.assertIsNone(answer.properties.topic_alias_maximum)
            client.send(Subscribe(1, [Subscription("site/#", 0)]))
            client.send(*(Publish(TOPICS[0], b"m") for _ in range(3)))
            _, *messages = client.sync()
            self.assertEqual(messages, [Publish(TOPICS[0], b"m")] * 3)

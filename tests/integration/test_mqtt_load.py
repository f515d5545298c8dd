"""Many publishers and subscribers of MQTT at once with QoS 1 and 2: nothing is lost, duplicated or reordered."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import QoS
from tests.integration.mqtt_rig import INBOUND, OUTBOUND, VERSIONS, MqttRig, Traffic, connect
from tests.peers.conforming_client import ConformingClient
from tests.peers.reconnecting_clients import ReconnectingClients
from tests.peers.waiting import Shared, eventually, rounds

RIG = Shared(MqttRig)
#: Of each version, at each listener.
PUBLISHERS, SUBSCRIBERS = 4, 2
#: Of each publisher, and how many of them are not finished at once.
MESSAGES, WINDOW = rounds(50, 5000), 20
QUALITIES: tuple[QoS, ...] = (1, 2)
#: Seconds for everything; the longest turn of the clients of one listener.
PATIENCE, TURN = rounds(60, 3600), 0.002


class LoadTests(SynchronousTestCase):
    """Publishers and subscribers of all listeners in one loop."""

    def setUp(self) -> None:
        """Use the shared proxy."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.rig: MqttRig = RIG.get()
        self.random = random.Random(2)
        self.traffic = Traffic()
        self.left: Counter[str] = Counter()

    def test_one_proxy(self) -> None:
        """Clients at all inbound listeners, subscribers of each getting the messages of all."""
        self.exchange(*INBOUND)

    def test_pair(self) -> None:
        """Clients at outbound listeners: all messages take two proxies, and two more to the subscriber."""
        self.exchange(*OUTBOUND)

    def exchange(self, *listeners: str) -> None:
        """Publish at these listeners, and verify what each subscriber got."""
        subscribers = {name: self.swarm(name, "s", SUBSCRIBERS) for name in listeners}
        publishers = {name: self.swarm(name, "p", PUBLISHERS) for name in listeners}
        for swarm in subscribers.values():
            connect(swarm, self, f"{self.id()}/#")
        for swarm in publishers.values():
            connect(swarm, self)
            self.left.update(dict.fromkeys(swarm.clients, MESSAGES))
        clients = [each for swarm in publishers.values() for each in swarm.clients.values()]
        swarms = [*publishers.values(), *subscribers.values()]
        self.serve(swarms, lambda: not self.left.total() and not any(each.unfinished for each in clients))
        receivers = [each for swarm in subscribers.values() for each in swarm.clients.values()]
        expected = len(self.traffic.sent)
        self.serve(list(subscribers.values()), lambda: all(len(each.delivered) >= expected for each in receivers))
        eventually(lambda: self.rig.proxy.metric("svc_proxy_mqtt_buffer_messages_queued") == 0.0)
        for swarm in subscribers.values():
            # By now duplicates have arrived.
            swarm.go_on(0.1)
        self.assertEqual(len(listeners) * len(VERSIONS) * PUBLISHERS * MESSAGES, expected)
        for publisher in clients:
            self.assertEqual(([], []), (publisher.broken, publisher.refused), publisher.client_id)
            self.assertEqual(MESSAGES, len(publisher.acknowledged), publisher.client_id)
        for receiver in receivers:
            self.traffic.verify(self, receiver)

    def swarm(self, listener: str, kind: str, number: int) -> ReconnectingClients:
        """Clients of each version."""
        names = [
            (f"{listener}-{kind}{version.value}-{each}", version) for version in VERSIONS for each in range(number)
        ]
        swarm = self.rig.clients(listener, *(ConformingClient(name, version) for name, version in names))
        self.addCleanup(swarm.close)
        return swarm

    def serve(self, swarms: list[ReconnectingClients], until: Callable[[], bool]) -> None:
        """Let the clients of all listeners receive and answer in turn, and publish, until something is true."""
        deadline = time.monotonic() + PATIENCE
        while not until():
            self.assertLess(time.monotonic(), deadline, f"messages are missing; not published: {self.left.total()}")
            for swarm in swarms:
                self.publish(swarm)
                swarm.go_on(TURN)

    def publish(self, swarm: ReconnectingClients) -> None:
        """Fill the window of each client that has messages left."""
        for name, client in swarm.clients.items():
            while self.left[name] and len(client.unfinished) < WINDOW:
                self.left[name] -= 1
                qos = self.random.choice(QUALITIES)
                payload = self.traffic.payload(name, qos, self.random.randrange(500))
                swarm.says(name, client.publish(f"{self.id()}/{name}", payload, qos))


class TrafficTests(SynchronousTestCase):
    """What counts as lost, duplicated and reordered."""

    def test_verified(self) -> None:
        """Each fault is found; QoS 1 may be duplicated where a client sent it more than once."""
        traffic = Traffic()
        first, second, third = (traffic.payload("p", 2, number) for number in range(3))
        other = traffic.payload("p", 1, 5, repeated=True)

        def verify(*payloads: bytes) -> None:
            client = ConformingClient("s")
            client.delivered = [(each, 2) for each in payloads]
            traffic.verify(self, client)

        verify(other, first, second, third, other)
        for faulty in ([first, third, other], [first, second, first, third, other], [second, first, third, other]):
            self.assertRaises(self.failureException, verify, *faulty)

"""Brokers behind MQTT listeners that are partitioned, slow, or refuse messages, while clients publish."""

from __future__ import annotations

import time
from typing import Any

from svc.wire.mqtt import Acknowledgement, Publish, Subscribe, Subscription
from tests.integration.test_mqtt_forwarding import LASTING, Case, Interrupted, Site, publish
from tests.peers.mosquitto import RunningMosquitto
from tests.peers.mqttclient import RawClient
from tests.peers.relay import Relay
from tests.peers.waiting import eventually, rounds

#: What Mosquitto tells clients of MQTT 5.0, the least that it can.
KEEP_ALIVE = 10
PARTITIONS = rounds(1, 20)
MIB = 1024 * 1024


class PartitionTests(Interrupted):
    """For some time nothing passes between proxy and broker, and no connection is closed."""

    def partitioned(self, ack: str, seconds: float, goal: int) -> None:
        """Publish before, during and after partitions; ``goal``: how many messages are acknowledged during one."""
        settings = {"max_inflight_messages": "0", "max_queued_messages": "0", "max_keepalive": str(KEEP_ALIVE)}
        mosquitto = RunningMosquitto(self.stack, settings).start()
        relay = Relay(self.stack, mosquitto.port)
        site = Site(self.stack, broker=relay.port, ack=ack)
        self.begin(site, mosquitto.port)
        site.proxy.start()
        for _ in range(PARTITIONS):
            self.load(100, 0.2)
            relay.passing.clear()
            # What the proxy had received by now.
            self.publishers.go_on(0.5, self.publish)
            before, until = self.acknowledged(), time.monotonic() + seconds
            while time.monotonic() < until:
                self.publishers.go_on(0.05)
                if self.acknowledged() - before < goal:
                    self.publish()
            during = self.acknowledged() - before
            self.assertTrue(during >= goal if goal else not during, during)
            relay.passing.set()
            self.load(100, 0.2)
        self.finish()
        self.verify()

    def test_buffered(self) -> None:
        """
        Messages are acknowledged; the keep alive ends the connection, and on a new one the broker gets each, QoS 2
        once, in order.
        """
        self.partitioned("middleware", KEEP_ALIVE * 2, 500)
        reconnected = self.site.proxy.metric("svc_proxy_mqtt_upstream_reconnections_total", result="success")
        self.assertGreaterEqual(reconnected, PARTITIONS)

    def test_passed_through(self) -> None:
        """No message is acknowledged meanwhile, and all are afterwards."""
        self.partitioned("upstream", 3.0, 0)


class SlowTests(Case):
    """A broker that reads slower than clients send."""

    def test_back_pressure(self) -> None:
        """The proxy holds few messages in memory, and delivers all: it stops to read, or stores them."""
        for ack in ("upstream", "middleware"):
            mosquitto = RunningMosquitto(self.stack, {"max_inflight_messages": "0"}).start()
            relay = Relay(self.stack, mosquitto.port)
            relay.rate = 8 * MIB
            site = Site(self.stack, broker=relay.port, ack=ack)
            site.proxy.start()
            watcher = self.stack.enter_context(RawClient(mosquitto.port))
            watcher.connect("watcher", **LASTING)
            watcher.send(Subscribe(1, [Subscription("slow", 1)]))
            watcher.receive()
            client = site.client()
            client.connect("fast", **LASTING)
            resident, _most = site.proxy.memory()
            count, open_window, payload = 320, 64, bytes(MIB // 16)
            unacknowledged: set[int] = set()
            for number in range(1, count + 1):
                unacknowledged.add(number)
                client.send(Publish("slow", payload, 1, packet_id=number))
                while len(unacknowledged) >= (open_window if number < count else 1):
                    answer = client.receive()
                    assert isinstance(answer, Acknowledgement), answer
                    self.assertEqual(0, answer.code)
                    unacknowledged.remove(answer.packet_id)
            came = 0
            while came < count:
                packet = watcher.receive()
                assert packet is not None
                watcher.acknowledge([packet])
                came += isinstance(packet, Publish)
            # A window of 64 is 4 MiB on either side; all messages are 20.
            self.assertLess(site.proxy.memory()[1] - resident, 14, ack)
            site.proxy.stop()


class RefusedTests(Case):
    """A broker that refuses messages by their size."""

    def site(self, ack: str, **listener: Any) -> tuple[Site, RawClient]:
        """A broker that takes small messages only, and a client of the listener."""
        mosquitto = RunningMosquitto(self.stack, {"message_size_limit": "100"}).start()
        site = Site(self.stack, broker=mosquitto.port, ack=ack, **listener)
        site.proxy.start()
        self.stack.callback(site.proxy.stop)
        client = site.client()
        client.connect("c", **LASTING)
        return site, client

    def test_passed_through(self) -> None:
        """The client gets the code of the broker, and goes on."""
        _site, client = self.site("upstream")
        client.send(Publish("t", bytes(101), 1, packet_id=1))
        answer = client.receive()
        assert isinstance(answer, Acknowledgement)
        self.assertGreaterEqual(answer.code, 0x80)
        client.send(Publish("t", bytes(100), 1, packet_id=2))
        answer = client.receive()
        assert isinstance(answer, Acknowledgement)
        self.assertLess(answer.code, 0x80)

    def test_buffered(self) -> None:
        """What was acknowledged and is refused then is a dead letter, logged with its topic; the rest goes on."""
        site, client = self.site("middleware", ackUpstream=["now/#"])
        for packet_id, octets in ((1, 101), (2, 100)):
            publish(client, "t", bytes(octets), 1, packet_id)
        eventually(lambda: site.proxy.metric("svc_proxy_mqtt_buffer_messages_queued") == 0.0)
        [letter] = site.proxy.records("svc.proxy.buffer.dead_letter")
        self.assertEqual(("c", "t"), (letter["attributes"]["client_id"], letter["attributes"]["topic"]))
        # A topic whose messages must not be lost so is acknowledged by the broker.
        client.send(Publish("now/t", bytes(101), 1, packet_id=3))
        answer = client.receive()
        assert isinstance(answer, Acknowledgement)
        self.assertGreaterEqual(answer.code, 0x80)

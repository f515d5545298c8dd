"""A proxy with an MQTT listener of each kind before one Mosquitto, and a record of the messages sent through it."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import ExitStack
from typing import Any
from unittest import TestCase

from svc.wire.mqtt import QoS, Subscription, Version
from tests.peers.authority import RunningAuthority, entry
from tests.peers.conforming_client import ConformingClient
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials
from tests.peers.mosquitto import RunningMosquitto
from tests.peers.proxy import RunningProxy
from tests.peers.reconnecting_clients import ReconnectingClients
from tests.peers.waiting import free_port

#: Inbound listeners, and what tells them apart.
INBOUND: dict[str, dict[str, Any]] = {
    "plain": {},
    "signed": {"notarization": "signRequest"},
    "stored": {"ack": "middleware"},
}
#: Outbound listeners before the inbound one that makes receipts; clients connect to these without TLS.
OUTBOUND: dict[str, dict[str, Any]] = {"pair": {}, "stored-pair": {"ack": "middleware"}}
LISTENERS = (*INBOUND, *OUTBOUND)
#: Those that store messages.
BUFFERED = [name for name, more in (INBOUND | OUTBOUND).items() if more.get("ack") == "middleware"]
VERSIONS = (Version.V311, Version.V5)


class MqttRig:
    """All of it, running."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        folder = short_folder(stack)
        self.buffer = folder / "buffer" / "mqtt.db"
        authority = stack.enter_context(
            RunningAuthority(entries=[entry("/ns/shop/sa/api"), entry("/ns/iot/sa/device")])
        )
        # Nothing is dropped for a slow subscriber; with fewer messages in flight it was seen to reorder them.
        limits = {"max_inflight_messages": "0", "max_queued_messages": "0"}
        self.mosquitto = RunningMosquitto(stack, limits).start()
        self.ports = {name: free_port() for name in LISTENERS}
        listeners: list[dict[str, Any]] = [
            self._listener(name, direction="inbound", upstream=f"127.0.0.1:{self.mosquitto.port}", **more)
            for name, more in INBOUND.items()
        ]
        peer = "spiffe://example.org/ns/shop/sa/api"
        signed = f"127.0.0.1:{self.ports['signed']}"
        listeners += [
            self._listener(name, direction="outbound", upstream=signed, peer=peer, **more)
            for name, more in OUTBOUND.items()
        ]
        self.proxy = RunningProxy(
            authority, "127.0.0.1:1", listeners=listeners, settings={"mqttBuffer": {"path": str(self.buffer)}}
        )
        self.notary = self.proxy.folder / "notary.db"
        stack.callback(self.proxy.stop)
        self.proxy.start()
        self.credentials = Credentials.fetch(authority, folder / "id", "/ns/iot/sa/device")
        self._wrap = self.credentials.context().wrap_socket

    def _listener(self, name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "protocol": "mqtt", "listen": f"127.0.0.1:{self.ports[name]}", **more}

    def tls(self, listener: str) -> Any:
        """What wraps a socket that is connected to a listener, if anything does."""
        return self._wrap if listener in INBOUND else None

    def clients(self, listener: str, *clients: ConformingClient) -> ReconnectingClients:
        """Clients of a listener; of the broker itself where there is no listener of this name."""
        port = self.ports.get(listener, self.mosquitto.port)
        swarm = ReconnectingClients(port, clients, tls=self.tls(listener))
        self.stack.callback(swarm.close)
        return swarm


class Traffic:
    """
    What was published, so that it can be compared with what arrived.

    Attributes:
        sent: payloads with client, QoS, and whether its client may have sent it more than once.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self.sent: dict[bytes, tuple[str, QoS, bool]] = {}
        self._may_follow: set[int] = set()

    def forget(self) -> None:
        """All that was sent is verified; only messages with QoS 1 that were sent twice may arrive once more."""
        self._may_follow.update(
            _number(each) for each, (_, qos, repeated) in self.sent.items() if qos == 1 and repeated
        )
        self.sent.clear()

    def payload(self, client: str, qos: QoS, octets: int, *, repeated: bool = False) -> bytes:
        """Make the payload of a message that is published now."""
        payload = b"%d " % next(self._numbers) + bytes(octets)
        self.sent[payload] = client, qos, repeated
        return payload

    def arrived(self, client: ConformingClient, publishers: set[str] | None = None) -> bool:
        """Whether a subscriber has every message, or every one of these publishers."""
        return self._expected(publishers).keys() <= {payload for payload, _qos in client.delivered}

    def verify(self, test: TestCase, client: ConformingClient, publishers: set[str] | None = None) -> None:
        """Nothing is lost, duplicated beyond its QoS, or out of the order of its client and QoS."""
        expected = self._expected(publishers)
        delivered = [payload for payload, _qos in client.delivered if _number(payload) not in self._may_follow]
        counted = Counter(delivered)
        test.assertEqual(([], []), (client.broken, client.refused), client.client_id)
        test.assertEqual([], [expected[each] for each in expected.keys() - counted.keys()], "lost")
        test.assertEqual([], [each[:20] for each in counted.keys() - expected.keys()], "never published")
        twice = [expected[each] for each, times in counted.items() if times > 1]
        test.assertEqual([], [each for each in twice if not (each[1] == 1 and each[2])], "duplicates")
        first = list(dict.fromkeys(delivered))
        for stream in {each[:2] for each in expected.values()}:
            numbers = [_number(each) for each in first if expected[each][:2] == stream]
            test.assertEqual(sorted(numbers), numbers, f"order of {stream}")

    def _expected(self, publishers: set[str] | None) -> dict[bytes, tuple[str, QoS, bool]]:
        return {key: each for key, each in self.sent.items() if publishers is None or each[0] in publishers}


def _number(payload: bytes) -> int:
    return int(payload.split(b" ")[0])


def connect(swarm: ReconnectingClients, test: TestCase, topic: str = "") -> None:
    """Connect clients, and subscribe them to a topic filter, in which ``{}`` is their client identifier."""
    clients = swarm.clients.values()
    test.assertTrue(swarm.go_on(60, lambda: all(each.connected for each in clients)), "no connections")
    if topic:
        for each in clients:
            swarm.says(each.client_id, each.subscribe(Subscription(topic.format(each.client_id), 2)))
        test.assertTrue(swarm.go_on(60, lambda: all(each.subscribed for each in clients)), "no subscriptions")

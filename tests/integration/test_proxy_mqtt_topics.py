"""Policies on topics and client identifiers at an MQTT listener, in front of Mosquitto."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
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
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials
from tests.peers.mosquitto import RunningMosquitto
from tests.peers.mqttclient import RawClient
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually, free_port

NOT_AUTHORIZED = ReasonCode.NOT_AUTHORIZED


def policies(*commands: str) -> str:
    """Devices connect, publish their states and read commands, here of these topics; nobody reads secrets."""
    device = [
        {"mqttActions": ["Connect"], "mqttClientIDs": ["device-*"]},
        {"mqttActions": ["Publish"], "mqttTopics": ["devices/+/state"]},
        {"mqttActions": ["Subscribe"], "mqttTopics": [*commands, "devices/#"]},
    ]
    specs = {
        "devices": {"action": "Allow", "rules": [{"name": "device", "to": device}]},
        "secrets": {"action": "Deny", "rules": [{"name": "secret", "to": [{"mqttTopics": ["devices/secret/#"]}]}]},
    }
    made = [
        {
            "apiVersion": "svc.internal/v1alpha1",
            "kind": "SvcClusterPolicy",
            "metadata": {"name": name},
            "spec": {"authorization": spec},
        }
        for name, spec in specs.items()
    ]
    return "\n---\n".join(map(json.dumps, made))


def _make(stack: ExitStack) -> Any:
    folder = short_folder(stack)
    broker = RunningMosquitto(stack).start()
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api"), entry("/ns/iot/sa/device")]))
    rules, port = folder / "policies.yaml", free_port()
    rules.write_text(policies("commands/#"))
    listener = {
        "name": "iot",
        "protocol": "mqtt",
        "direction": "inbound",
        "listen": f"127.0.0.1:{port}",
        "upstream": f"127.0.0.1:{broker.port}",
    }
    settings = {"policy": {"files": [str(rules)]}}
    proxy = RunningProxy(authority, "127.0.0.1:1", listeners=[listener], settings=settings)
    stack.enter_context(proxy)
    credentials = Credentials.fetch(authority, folder / "id", "/ns/iot/sa/device")
    return SimpleNamespace(proxy=proxy, port=port, broker=broker, folder=folder, rules=rules, credentials=credentials)


SHARED = Shared(_make)


class TopicPolicyTests(SynchronousTestCase):
    """What a client may use."""

    def setUp(self) -> None:
        self.rig = SHARED.get()

    def client(self, client_id: str, version: Version = Version.V5, **more: Any) -> tuple[RawClient, Connack]:
        """A client, and the answer to its CONNECT."""
        client = RawClient(self.rig.port, version, tls=self.rig.credentials.context().wrap_socket)
        self.addCleanup(client.close)
        return client, client.connect(client_id, **more)

    def direct(self) -> RawClient:
        """A client of the broker itself."""
        client = RawClient(self.rig.broker.port)
        self.addCleanup(client.close)
        client.connect("operator")
        return client

    def write(self, text: str) -> None:
        """Replace the policy file as editors do."""
        proxy: RunningProxy = self.rig.proxy
        new = Path(self.rig.folder, "new")
        new.write_text(text)
        before = len(proxy.records("svc.proxy.policy.loaded"))
        os.rename(new, self.rig.rules)
        eventually(lambda: len(proxy.records("svc.proxy.policy.loaded")) > before, what="other policies in force")

    def test_clients(self) -> None:
        """Only clients with a permitted identifier connect, and only with a permitted will."""
        for client_id, topic, v5, v311 in (
            ("device-1", "devices/1/state", 0, 0),
            ("other", "devices/1/state", NOT_AUTHORIZED, ReturnCode.NOT_AUTHORIZED),
            ("device-1", "devices/1/other", NOT_AUTHORIZED, ReturnCode.NOT_AUTHORIZED),
        ):
            for version, code in ((Version.V5, v5), (Version.V311, v311)):
                self.assertEqual(self.client(client_id, version, will=Will(topic, b""))[1].code, code)

    def test_messages(self) -> None:
        """A refused message reaches nobody, also where an alias stands for its topic."""
        operator = self.direct()
        operator.send(Subscribe(1, [Subscription("#")]))
        operator.receive()
        client, connack = self.client("device-2")
        self.assertGreater(connack.properties.topic_alias_maximum or 0, 0)
        alias = Properties(topic_alias=1)
        client.send(
            Publish("devices/2/state", b"1", 1, packet_id=1),
            Publish("devices/secret/state", b"2", 1, packet_id=2),
            Publish("devices/2/other", b"3", 2, packet_id=3, properties=alias),
            Publish("", b"4", 1, packet_id=4, properties=alias),
            Publish("devices/2/state", b"5", 1, packet_id=5),
        )
        answers = [client.receive() for _ in range(5)]
        refused = [
            (each.type, each.packet_id)
            for each in answers
            if isinstance(each, Acknowledgement) and each.code == NOT_AUTHORIZED
        ]
        expected = [(PacketType.PUBACK, 2), (PacketType.PUBREC, 3), (PacketType.PUBACK, 4)]
        self.assertEqual(refused, expected)
        self.assertEqual([each.payload for each in operator.sync() if isinstance(each, Publish)], [b"1", b"5"])
        old, _ = self.client("device-2-old", Version.V311)
        old.send(Publish("devices/2/other", b"6"))
        self.assertEqual((old.until_end(), operator.sync()), ([], []))

    def test_filters(self) -> None:
        """A filter must be covered by what is allowed, and have nothing in common with what is denied."""
        for version, refused in ((Version.V5, int(NOT_AUTHORIZED)), (Version.V311, 0x80)):
            client, _ = self.client(f"device-3-{version}", version)
            filters = [
                "commands/#",
                "#",
                "commands/3",
                "devices/#",
                "devices/+/state",
                "devices/3/#",
                "$share/g/commands/#",
            ]
            client.send(Subscribe(1, [Subscription(each, 1) for each in filters]))
            self.assertEqual(client.receive(), Suback(1, [1, refused, 1, refused, refused, 1, 1]))
            client.send(Subscribe(2, [Subscription("#"), Subscription("+/+")]))
            self.assertEqual(client.receive(), Suback(2, [refused, refused]))

    def test_session_of_earlier_policies(self) -> None:
        """A subscription that the broker kept is not served once it would be refused; others are."""
        properties = Properties(session_expiry=100)
        client, _ = self.client("device-4", clean_start=False, properties=properties)
        client.send(Subscribe(1, [Subscription("commands/4", 1), Subscription("devices/4/x", 1)]))
        client.receive()
        client.close()
        self.addCleanup(self.write, policies("commands/#"))
        self.write(policies("commands/5"))
        operator = self.direct()
        client, connack = self.client("device-4", clean_start=False, properties=properties)
        self.assertTrue(connack.session_present)
        operator.send(Publish("devices/4/x", b"fine"))
        self.assertIsInstance(client.receive(), Publish)
        operator.send(Publish("commands/4", b"secret"))
        self.assertEqual(client.until_end(), [Disconnect(NOT_AUTHORIZED)])

    def test_changed_policies(self) -> None:
        """Exactly the clients with a subscription that is refused now are closed; one that has ended it stays."""
        clients = [self.client(f"device-5-{number}")[0] for number in range(3)]
        for number, client in enumerate(clients):
            client.send(Subscribe(1, [Subscription("commands/5" if number == 1 else "commands/6")]))
            client.receive()
        clients[2].send(Unsubscribe(2, ["commands/6"]))
        clients[2].receive()
        self.addCleanup(self.write, policies("commands/#"))
        self.write(policies("commands/5"))
        self.assertEqual(clients[0].until_end(), [Disconnect(NOT_AUTHORIZED)])
        for client in clients[1:]:
            self.assertEqual((client.sync(), client.ended), ([], False))
        clients[1].send(Subscribe(3, [Subscription("commands/6")]))
        self.assertEqual(clients[1].receive(), Suback(3, [NOT_AUTHORIZED]))

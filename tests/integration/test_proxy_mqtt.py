"""MQTT through an inbound listener, and through an outbound and an inbound one, with Mosquitto and our own broker."""

from __future__ import annotations

import json
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import (
    Acknowledgement,
    Disconnect,
    Packet,
    PacketType,
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
from tests.peers.waiting import Shared, free_port

ID = "spiffe://example.org/ns/shop/sa/api"
DEVICE = "spiffe://example.org/ns/iot/sa/device"
VERSIONS = (Version.V311, Version.V5)
QUALITIES = (0, 1, 2)
ACL = "topic readwrite open/#\ntopic read closed/#\n"


def policies(*refused: str) -> str:
    """A policy that admits the clients of these tests to all listeners but these."""
    rules = [{"name": "open", "to": [{"notListeners": ["nobody", *refused]}]}]
    spec = {"authorization": {"action": "Allow", "rules": rules}}
    made = {"apiVersion": "svc.internal/v1alpha1", "kind": "SvcClusterPolicy", "metadata": {"name": "topics"}}
    return json.dumps({**made, "spec": spec})


def _make(stack: ExitStack) -> Any:
    folder = short_folder(stack)
    (folder / "acl").write_text(ACL)
    (folder / "passwords").write_text("")
    mosquitto = RunningMosquitto(stack).start()
    guarded = RunningMosquitto(stack, {"acl_file": str(folder / "acl")}).start()
    closed = RunningMosquitto(stack, {"password_file": str(folder / "passwords")}).start()
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api"), entry("/ns/iot/sa/device")]))
    rules = folder / "policies.yaml"
    rules.write_text(policies())
    upstreams = {
        "open": mosquitto.port,
        "other": mosquitto.port,
        "guarded": guarded.port,
        "closed": closed.port,
        "nobody": mosquitto.port,
        "named": mosquitto.port,
        "absent": free_port(),
    }
    inbound, outbound = {name: free_port() for name in upstreams}, free_port()
    own: dict[str, dict[str, Any]] = {"named": {"clientIDs": ["{serviceAccount}-*"]}}
    listeners: list[dict[str, Any]] = [
        {
            "name": name,
            "protocol": "mqtt",
            "direction": "inbound",
            "listen": f"127.0.0.1:{inbound[name]}",
            "upstream": f"127.0.0.1:{port}",
            **own.get(name, {}),
        }
        for name, port in upstreams.items()
    ]
    listeners.append(
        {
            "name": "pair",
            "protocol": "mqtt",
            "direction": "outbound",
            "listen": f"127.0.0.1:{outbound}",
            "upstream": f"127.0.0.1:{inbound['open']}",
            "peer": ID,
        }
    )
    settings = {"policy": {"files": [str(rules)]}, "accessLog": "on"}
    proxy = RunningProxy(authority, "127.0.0.1:1", listeners=listeners, settings=settings)
    stack.enter_context(proxy)
    return SimpleNamespace(
        proxy=proxy,
        inbound=inbound,
        outbound=outbound,
        mosquitto=mosquitto,
        folder=folder,
        rules=rules,
        credentials=Credentials.fetch(authority, folder / "id", "/ns/iot/sa/device"),
    )


SHARED = Shared(_make)


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.rig = SHARED.get()
        self.proxy: RunningProxy = self.rig.proxy

    def client(self, name: str = "open", version: Version = Version.V5) -> RawClient:
        """A client of an inbound listener, or a plain one of the outbound listener ``pair``."""
        if name == "pair":
            client = RawClient(self.rig.outbound, version)
        else:
            client = RawClient(self.rig.inbound[name], version, tls=self.rig.credentials.context().wrap_socket)
        self.addCleanup(client.close)
        return client

    def direct(self, version: Version = Version.V5) -> RawClient:
        """A client of the open broker itself."""
        client = RawClient(self.rig.mosquitto.port, version)
        self.addCleanup(client.close)
        return client


class MessageTests(_Case):
    """Messages in both directions."""

    def test_all_qualities(self) -> None:
        """Messages of each QoS pass with both versions, through one proxy and through two."""
        for name in ("open", "pair"):
            for version in VERSIONS:
                client = self.client(name, version)
                self.assertEqual(client.connect(f"messages-{name}-{version}").code, 0)
                topic = f"messages/{name}/{version}"
                client.send(Subscribe(1, [Subscription(topic, 2)]))
                self.assertEqual(client.receive(), Suback(1, [2]))
                for qos in QUALITIES:
                    client.send(Publish(topic, b"%d" % qos, qos, packet_id=qos))
                came: list[Packet] = []
                while sum(isinstance(each, Publish) for each in came) < 3:
                    packet = client.receive()
                    assert packet is not None
                    came.append(packet)
                    client.acknowledge([packet])
                    if packet.type is PacketType.PUBREC:
                        client.send(Acknowledgement(PacketType.PUBREL, packet.packet_id))
                messages = [each for each in came if isinstance(each, Publish)]
                self.assertEqual(
                    sorted((each.payload, each.qos) for each in messages), [(b"0", 0), (b"1", 1), (b"2", 2)]
                )
                client.send(Disconnect())
                self.assertEqual([each for each in client.until_end() if isinstance(each, Disconnect)], [])

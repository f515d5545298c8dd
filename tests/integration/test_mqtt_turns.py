"""MQTT clients and a broker that send what takes long to handle, and how long another client waits beside them."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import Connack, Connect, Version, encode
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.flood import EndlessSender, Flood
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.mqttclient import RawClient
from tests.peers.mqttfloods import deep_subscriptions, octets_of, pings, refused_messages, releases
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, free_port

POLICY = """\
apiVersion: svc.internal/v1alpha1
kind: SvcClusterPolicy
metadata: {name: shop}
spec:
  authorization:
    rules: [{name: shop, from: [{namespaces: [shop]}]}]
"""


def _make(stack: ExitStack) -> Any:
    folder = short_folder(stack)
    names = ("/ns/shop/sa/api", "/ns/shop/sa/web")
    authority = stack.enter_context(RunningAuthority(entries=[entry(each) for each in names]))
    (folder / "policy.yaml").write_text(POLICY)
    broker = stack.enter_context(RunningBroker())
    flooding = EndlessSender(stack, encode(Connack(), Version.V5, "server"), releases()).port
    ports = {name: free_port() for name in ("open", "stored", "flooded", "stored-flooded")}
    listeners = [
        {
            "name": name,
            "protocol": "mqtt",
            "direction": "inbound",
            "listen": f"127.0.0.1:{port}",
            "upstream": f"127.0.0.1:{flooding if 'flooded' in name else broker.port}",
            **({"ack": "middleware"} if "stored" in name else {}),
        }
        for name, port in ports.items()
    ]
    settings = {
        "policy": {"default": "deny", "files": [str(folder / "policy.yaml")]},
        "mqttBuffer": {"path": str(folder / "buffer" / "mqtt.db")},
    }
    proxy = stack.enter_context(RunningProxy(authority, "127.0.0.1:1", listeners=listeners, settings=settings))
    web = Credentials.fetch(authority, folder / "web", names[1]).context()
    return SimpleNamespace(proxy=proxy, broker=broker, web=web, ports=ports)


SHARED = Shared(_make)


class TurnTests(SynchronousTestCase):
    """One client that sends PINGREQ once at a time, through the proxy to the broker."""

    def setUp(self) -> None:
        self.rig = SHARED.get()

    def connections(self, listener: str, count: int = 4) -> list[RawConnection]:
        """Clients that flood, at a listener of the proxy or at the broker itself."""
        made = []
        for number in range(count):
            if listener == "broker":
                connection = RawConnection(self.rig.broker.port)
            else:
                connection = RawConnection(self.rig.ports[listener], self.rig.web)
            connection.send(octets_of([Connect(f"{self._testMethodName}-{number}")]))
            made.append(connection)
        return made

    def assert_served(self, flood: Flood) -> None:
        """A client that sends PINGREQ once at a time is answered soon."""
        client = RawClient(self.rig.ports["open"], tls=self.rig.web.wrap_socket)
        self.addCleanup(client.close)
        client.connect("patient")
        flood.assert_served(client.sync)

    def test_pings(self) -> None:
        """PINGREQ that pass through the proxy."""
        self.assert_served(Flood(self.connections("open"), pings()))

    def test_refused_messages(self) -> None:
        """Messages that the proxy refuses."""
        self.assert_served(Flood(self.connections("open"), refused_messages()))

    def test_deep_filters(self) -> None:
        """SUBSCRIBE with as many and as deep filters as a packet may have."""
        # One connection: the clients are threads of this process, which share its interpreter with the patient one.
        self.assert_served(Flood(self.connections("open", 1), deep_subscriptions()))

    def test_pings_of_stored_sessions(self) -> None:
        """PINGREQ of sessions whose messages are stored, which the proxy answers."""
        self.assert_served(Flood(self.connections("stored"), pings()))

    def test_refused_messages_of_stored_sessions(self) -> None:
        """Messages that the proxy refuses to such sessions."""
        self.assert_served(Flood(self.connections("stored"), refused_messages()))

    def test_packets_of_a_broker(self) -> None:
        """PUBREL that a broker sends."""
        self.assert_served(Flood(self.connections("flooded"), b""))

    def test_packets_of_a_broker_to_stored_sessions(self) -> None:
        """The same to sessions whose messages are stored."""
        self.assert_served(Flood(self.connections("stored-flooded"), b""))

    def test_at_the_broker(self) -> None:
        """Packets that clients send to the broker without a proxy."""
        for each in (pings(), releases(), deep_subscriptions()):
            self.assert_served(Flood(self.connections("broker", 1), each))

"""MQTT.js as a client of MQTT listeners: inbound, through a pair of proxies, and with a buffer."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials
from tests.peers.mosquitto import RunningMosquitto
from tests.peers.mqttjs_client import MqttJs
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, free_port

ID = "spiffe://example.org/ns/shop/sa/api"
#: MQTT 3.1.1 and 5.0, as MQTT.js names them.
VERSIONS = (4, 5)
#: Messages whose connection is dropped on their way.
BURST = 150
ALL = {
    "apiVersion": "svc.internal/v1alpha1",
    "kind": "SvcClusterPolicy",
    "metadata": {"name": "all"},
    "spec": {
        "authorization": {
            "rules": [{"to": [{"mqttActions": ["Connect"]}, {"mqttTopics": ["#"], "notMqttTopics": ["closed/#"]}]}],
        }
    },
}


def _make(stack: ExitStack) -> Any:
    folder = short_folder(stack)
    # MQTT.js sends all that it has at once.
    mosquitto = RunningMosquitto(stack, {"max_queued_messages": "0", "max_inflight_messages": "0"}).start()
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api"), entry("/ns/iot/sa/device")]))
    (folder / "policies.yaml").write_text(json.dumps(ALL))
    ports = {name: free_port() for name in ("inbound", "recorded", "buffered", "pair")}
    listeners: list[dict[str, Any]] = [
        {
            "name": name,
            "protocol": "mqtt",
            "direction": "inbound",
            "listen": f"127.0.0.1:{ports[name]}",
            "upstream": f"127.0.0.1:{mosquitto.port}",
            **more,
        }
        for name, more in (
            ("inbound", {}),
            ("recorded", {"notarization": "signRequest"}),
            ("buffered", {"ack": "middleware"}),
        )
    ]
    listeners.append(
        {
            "name": "pair",
            "protocol": "mqtt",
            "direction": "outbound",
            "listen": f"127.0.0.1:{ports['pair']}",
            "upstream": f"127.0.0.1:{ports['inbound']}",
            "peer": ID,
        }
    )
    settings = {
        "policy": {"files": [str(folder / "policies.yaml")]},
        "mqttBuffer": {"path": str(folder / "buffer" / "mqtt.db")},
    }
    proxy = RunningProxy(authority, "127.0.0.1:1", listeners=listeners, settings=settings)
    stack.enter_context(proxy)
    credentials = Credentials.fetch(authority, folder / "id", "/ns/iot/sa/device")
    return SimpleNamespace(ports={**ports, "direct": mosquitto.port}, credentials=credentials)


SHARED = Shared(_make)


class MqttJsTests(SynchronousTestCase):
    """What applications on Node.js do."""

    def setUp(self) -> None:
        """Take the listeners."""
        self.rig = SHARED.get()
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)

    def client(self, name: str, version: int, **options: Any) -> MqttJs:
        """A client of a listener, or of the broker itself, that is connected."""
        tls = None if name in ("pair", "direct") else self.rig.credentials
        client = MqttJs(self.stack, self.rig.ports[name], version, tls, **options)
        self.session = client.event("connect")
        return client

    def test_all_qualities(self) -> None:
        """Messages of each QoS to oneself, in their order; retained ones; the receipt in PUBACK of MQTT 5.0."""
        for name in ("inbound", "recorded", "buffered", "pair"):
            for version in VERSIONS:
                topic = f"all/{name}/{version}"
                client = self.client(name, version, clientId=f"js-{name}-{version}")
                self.assertEqual([2], client.subscribes(f"{topic}/#"))
                for number in range(30):
                    client.publish(number, f"{topic}/{number % 3}", str(number), number % 3)
                acknowledged = client.published(30)
                self.assertEqual([], [each for each in acknowledged if "message" in each])
                came = client.messages(30)
                for qos in range(3):
                    expected = [str(number) for number in range(30) if number % 3 == qos]
                    self.assertEqual(expected, [payload for payload, its in came if its == qos], (name, version, qos))
                client.publish(99, f"{topic}/kept", "kept", 1, retain=True)
                client.published(1)
                client.messages(1)
                client.do("end")
                client.event("end")
                other = self.client(name, version)
                other.subscribes(f"{topic}/kept")
                kept = other.event("message")
                self.assertEqual(("kept", True), (kept["payload"], kept["retain"]))

    def test_session_and_will(self) -> None:
        """A session outlives its connection, and a will is published when that is lost."""
        for name in ("inbound", "buffered", "pair"):
            for version in VERSIONS:
                topic = f"session/{name}/{version}"
                own: dict[str, Any] = {"clientId": f"js-session-{name}-{version}", "clean": False}
                if version == 5:
                    own["properties"] = {"sessionExpiryInterval": 600}
                client = self.client(name, version, **own, will={"topic": f"{topic}/will", "payload": "gone", "qos": 1})
                self.assertFalse(self.session["present"])
                client.subscribes(f"{topic}/data")
                watcher = self.client("direct", 5)
                watcher.subscribes(f"{topic}/will")
                client.do("drop")
                client.event("close")
                self.assertEqual([("gone", 1)], watcher.messages(1))
                for number in (1, 2):
                    watcher.publish(number, f"{topic}/data", str(number), number)
                watcher.published(2)
                client = self.client(name, version, **own)
                self.assertTrue(self.session["present"])
                self.assertEqual([("1", 1), ("2", 2)], client.messages(2))

    def test_dropped_on_the_way(self) -> None:
        """A client that loses its connection among messages sends them again: QoS 2 is delivered once, and in order."""
        for name in ("inbound", "recorded", "buffered", "pair"):
            for version in VERSIONS:
                topic = f"dropped/{name}/{version}"
                watcher = self.client("direct", 5)
                watcher.subscribes(topic)
                own: dict[str, Any] = {"clientId": f"js-dropped-{name}-{version}", "clean": False}
                if version == 5:
                    own["properties"] = {"sessionExpiryInterval": 600}
                client = self.client(name, version, reconnectPeriod=20, **own)
                for number in range(BURST):
                    client.publish(number, topic, str(number), 1 + number % 2)
                    if number % 50 == 25:
                        client.do("drop")
                client.published(BURST)
                client.publish(BURST, topic, "last", 2)
                came: list[tuple[str, int]] = []
                while not came or came[-1][0] != "last":
                    came += watcher.messages(1)
                twice = [payload for payload, qos in came if qos == 2]
                expected = [str(number) for number in range(BURST) if number % 2] + ["last"]
                self.assertEqual(expected, twice, (name, version))
                counted = Counter(int(payload) for payload, qos in came if qos == 1)
                self.assertEqual(set(range(0, BURST, 2)), set(counted), (name, version))

    def test_version_5(self) -> None:
        """Topic aliases, shared subscriptions, user properties, and the reason of a refusal."""
        for name in ("inbound", "buffered", "pair"):
            first, second = (self.client(name, 5) for _ in range(2))
            for each in (first, second):
                self.assertEqual([1], each.subscribes(f"$share/js-{name}/five/{name}", 1))
            client = self.client(name, 5, autoAssignTopicAlias=True)
            for number in range(10):
                properties = {"userProperties": {"number": str(number)}}
                client.publish(number, f"five/{name}", str(number), 1, properties=properties)
            self.assertEqual([], [each for each in client.published(10) if "message" in each])
            client.publish(10, "closed/x", "", 1)
            self.assertEqual(0x87, client.published(1)[0]["code"])
            client.do("subscribe", topic="closed/#", options={"qos": 1})
            self.assertIn("Not authorized", client.event("subscribe")["message"])
            # The broker gives each message to one of the two.
            done = self.client(name, 5)
            done.subscribes(f"five/{name}/done")
            for each in (first, second):
                each.subscribes(f"five/{name}/done")
            done.publish(0, f"five/{name}/done", "done", 1)
            done.published(1)
            came = []
            for each in (first, second):
                while (message := each.event("message"))["payload"] != "done":
                    came.append((message["payload"], message["user"]))
            self.assertEqual([(str(n), {"number": str(n)}) for n in range(10)], sorted(came))

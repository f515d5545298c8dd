"""Clients that others wrote publish before CONNACK, or all at once behind it, at each kind of MQTT listener."""

from __future__ import annotations

import random
import subprocess
import time
from contextlib import ExitStack
from typing import Any

from paho.mqtt import client as paho
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.mqtt_rig import INBOUND, LISTENERS, MqttRig
from tests.integration.test_broker_bursts import KINDS, Client
from tests.peers.broker import RunningBroker
from tests.peers.daemon import environment
from tests.peers.independent_clients import Credentials
from tests.peers.mqttjs_client import MqttJs
from tests.peers.programs import find
from tests.peers.waiting import Shared, eventually, rounds

#: The broker of this project, to which the clients connect themselves.
OWN = "svc-broker"
#: Messages of one client.
COUNT = 200


class Site:
    """Every kind of listener before Mosquitto, and the broker of this project."""

    def __init__(self, stack: ExitStack) -> None:
        self.rig = MqttRig(stack)
        self.broker = RunningBroker(limits={"queued": 10_000})
        stack.callback(self.broker.stop)
        self.broker.start()

    def port(self, listener: str) -> int:
        """Where clients of a listener connect."""
        return self.rig.ports.get(listener, self.broker.port)

    def credentials(self, listener: str) -> Credentials | None:
        """What they need for it."""
        return self.rig.credentials if listener in INBOUND else None

    def behind(self, listener: str) -> int:
        """Where a subscriber gets what is published there."""
        return self.broker.port if listener == OWN else self.rig.mosquitto.port


SITE = Shared(Site)


class EarlyTests(SynchronousTestCase):
    """All is acknowledged over one connection, and delivered."""

    def setUp(self) -> None:
        """Take the listeners."""
        self.site: Site = SITE.get()
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)

    def watcher(self, listener: str, topic: str) -> Client:
        """A subscriber behind a listener."""
        watcher = Client(self.stack, self.site.behind(listener), f"watcher/{topic}", KINDS[0][0], topic)
        eventually(lambda: watcher.subscribed, what="a subscription")
        return watcher

    def test_paho(self) -> None:
        """paho-mqtt sends each message when it is published, though it has not read CONNACK."""
        generator = random.Random(7)
        for attempt in range(rounds(1, 10)):
            for listener in (*LISTENERS, OWN):
                for version, qos in KINDS:
                    topic = f"early/paho/{listener}/{version}/{qos}/{attempt}"
                    watcher = self.watcher(listener, topic)
                    client, acknowledged, connected = self.paho(listener, version, topic)
                    for number in range(COUNT):
                        client.publish(topic, b"%d" % number, qos)
                        if generator.random() < 0.05:
                            # Several reads of the listener, before and after CONNACK.
                            time.sleep(generator.choice((0.001, 0.003, 0.01)))
                    self.assertEqual([], connected)
                    client.loop_start()
                    what = f"the acknowledgements of {topic}"
                    eventually(lambda found=acknowledged: len(found) == COUNT, what=what)
                    eventually(lambda watcher=watcher: len(watcher.came) == COUNT, what=f"the messages of {topic}")
                    self.assertEqual(([0], [0] * COUNT), (connected, acknowledged), topic)
                    client.disconnect()

    def paho(self, listener: str, version: Any, name: str) -> tuple[paho.Client, list[int], list[int]]:
        """A client that has sent CONNECT, the reason codes of its messages, and those of CONNACK."""
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, name, protocol=version)
        client.max_inflight_messages_set(COUNT)
        acknowledged: list[int] = []
        connected: list[int] = []
        client.on_publish = lambda _c, _d, _number, reason, _p: acknowledged.append(reason.value)
        client.on_connect = lambda _c, _d, _flags, reason, _p: connected.append(reason.value)
        credentials = self.site.credentials(listener)
        if credentials is not None:
            client.tls_set_context(credentials.context())
            client.tls_insecure_set(True)
        client.connect("127.0.0.1", self.site.port(listener), keepalive=10)
        self.stack.callback(client.loop_stop)
        return client, acknowledged, connected

    def test_mosquitto_pub(self) -> None:
        """``mosquitto_pub -l`` publishes the lines of its input; it ends when all is acknowledged."""
        program, lines = find("mosquitto_pub"), "".join(f"{number}\n" for number in range(COUNT))
        for listener in (*LISTENERS, OWN):
            tls: list[str] = []
            credentials = self.site.credentials(listener)
            if credentials is not None:
                files = {"cafile": credentials.roots, "cert": credentials.certificate, "key": credentials.key}
                tls = ["--insecure", *(word for name, path in files.items() for word in (f"--{name}", str(path)))]
            for version in ("311", "5"):
                for qos in ("1", "2"):
                    topic = f"early/lines/{listener}/{version}/{qos}"
                    watcher = self.watcher(listener, topic)
                    at = ["-h", "127.0.0.1", "-p", str(self.site.port(listener)), *tls]
                    done = subprocess.run(
                        [program, *at, "-V", version, "-q", qos, "-t", topic, "-l"],
                        input=lines,
                        text=True,
                        capture_output=True,
                        env=environment(),
                        timeout=60,
                        check=False,
                    )
                    self.assertEqual((0, "", ""), (done.returncode, done.stdout, done.stderr), topic)
                    eventually(lambda watcher=watcher: len(watcher.came) == COUNT, what=f"the messages of {topic}")

    def test_mqttjs(self) -> None:
        """MQTT.js keeps what is published before CONNACK, and sends all of it at once."""
        for listener in (*LISTENERS, OWN):
            for version in (4, 5):
                topic = f"early/js/{listener}/{version}"
                watcher = self.watcher(listener, topic)
                credentials = self.site.credentials(listener)
                client = MqttJs(self.stack, self.site.port(listener), version, credentials, clientId=topic)
                for number in range(COUNT):
                    client.publish(number, topic, str(number), 1 + number % 2)
                self.assertEqual([], [each for each in client.published(COUNT) if "message" in each])
                eventually(lambda watcher=watcher: len(watcher.came) == COUNT, what=f"the messages of {topic}")

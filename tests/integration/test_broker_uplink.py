"""``docs/examples/uplink.py`` between two brokers: nothing is lost when it, or the broker behind it, is killed."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

from paho.mqtt import client as paho
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.test_broker_clients import CALLBACKS, Paho
from tests.peers.broker import RunningBroker
from tests.peers.daemon import environment
from tests.peers.waiting import TOP, end_process, eventually

UPLINK = TOP / "docs" / "examples" / "uplink.py"


class UplinkTests(SynchronousTestCase):
    """A source, and a target in place of the proxy."""

    def setUp(self) -> None:
        """Start both."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.source, self.target = (self.stack.enter_context(RunningBroker()) for _ in range(2))
        self.sent: set[bytes] = set()
        self.came: set[bytes] = set()

    def uplink(self) -> subprocess.Popen[bytes]:
        """Start it, and wait until it has subscribed."""
        addresses = (f"127.0.0.1:{each.port}" for each in (self.source, self.target))
        process = subprocess.Popen(
            [sys.executable, UPLINK, *addresses, "d/#"], env=environment(), stderr=subprocess.DEVNULL
        )
        self.stack.callback(end_process, process)
        eventually(lambda: self.source.metric("svc_broker_subscriptions") == 1, what="its subscription")
        eventually(lambda: self.source.metric("svc_broker_connections_active") >= 1, what="its connection")
        return process

    def client(self, broker: RunningBroker, name: str) -> Paho:
        """Connect to one of the brokers, with a session that lasts."""
        return Paho(self.stack, broker.port, CALLBACKS[1], paho.MQTTv311, name, clean=False)

    def publishes(self, count: int) -> None:
        """Publish messages at the source."""
        publisher = self.client(self.source, "publisher")
        for _ in range(count):
            payload = b"%d" % len(self.sent)
            publisher.publishes(f"d/{len(self.sent) % 3}", payload, len(self.sent) % 2 + 1)
            self.sent.add(payload)
        publisher.ends()

    def arrive(self, watcher: Paho) -> None:
        """Wait until all that was sent has come at least once."""
        while self.came != self.sent:
            self.came.add(watcher.receives(1)[0][0])

    def test_killed(self) -> None:
        """Messages that are published while it does not run come when it does again."""
        watcher = self.client(self.target, "watcher")
        watcher.subscribes("#", 1)
        process = self.uplink()
        self.publishes(20)
        self.arrive(watcher)
        process.kill()
        process.wait(60)
        self.publishes(20)
        self.uplink()
        self.publishes(5)
        self.arrive(watcher)

    def test_target_is_gone(self) -> None:
        """Without its target it ends, so that a supervisor starts it again, and nothing was acknowledged meanwhile."""
        process = self.uplink()
        self.target.kill()
        self.publishes(10)
        self.assertEqual(process.wait(60), 1)
        self.target.start()
        watcher = self.client(self.target, "watcher")
        watcher.subscribes("#", 1)
        self.uplink()
        self.arrive(watcher)

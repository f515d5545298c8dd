"""SIGHUP to a real broker: its access rules change as a whole or not at all, and connected clients are reauthorized."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import Disconnect, Properties, Publish, ReasonCode, Suback, Subscribe, Subscription, Version
from tests.peers.broker import RunningBroker
from tests.peers.folders import short_folder
from tests.peers.mqttclient import RawClient
from tests.peers.waiting import eventually, free_port

LASTING: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry=3600)}
RELOADS = "svc_broker_config_reloads_total"


def rules(*filters: str) -> list[dict[str, Any]]:
    """A rule for all clients."""
    return [{"who": "anonymous", "publish": ["#"], "subscribe": list(filters)}]


class ReloadTests(SynchronousTestCase):
    """One broker with a database and two listeners."""

    def setUp(self) -> None:
        """Start it."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.second = free_port()
        other = {"name": "second", "listen": f"127.0.0.1:{self.second}", "acl": rules("#")}
        self.broker = RunningBroker(
            listener={"acl": rules("#")},
            listeners=[other],
            persistence={"path": str(short_folder(self.stack) / "b.db")},
        )
        self.stack.enter_context(self.broker)

    def client(self, name: str, port: int | None = None, version: Version = Version.V5) -> RawClient:
        """Connect, with a session that lasts."""
        client = self.stack.enter_context(RawClient(port or self.broker.port, version))
        more = LASTING if version is Version.V5 else {"clean_start": False}
        self.assertEqual(0, client.connect(name, **more).code)
        return client

    def subscribes(self, client: RawClient, *filters: str) -> None:
        """Subscribe."""
        client.send(Subscribe(1, [Subscription(each, 1) for each in filters]))
        while not isinstance(client.receive(), Suback):
            pass

    def reload(self, change: Callable[[dict[str, Any]], object] | str) -> dict[str, Any]:
        """Change the file and reload; return the record of the result."""

        def logged() -> list[dict[str, Any]]:
            # One record of each reload; the other one of the same reload may come later.
            names = ("svc.config.loaded", "svc.config.rejected")
            return [each for each in self.broker.records() if each["event"]["name"] in names]

        before = len(logged())
        if isinstance(change, str):
            self.broker.config_path.write_text(change)
        else:
            change(self.broker.config)
            self.broker.write_config()
        self.broker.signal(signal.SIGHUP)
        found: list[dict[str, Any]] = eventually(lambda: logged()[before:], 60, "the end of the reload")
        return found[0]

    def narrow(self, *filters: str) -> Callable[[dict[str, Any]], object]:
        """Other rules at the first listener."""
        return lambda config: config["listeners"][0].update(acl=rules(*filters))

    def topics(self, client: RawClient) -> list[str]:
        """Return what a client has received."""
        return [each.topic for each in client.sync() if isinstance(each, Publish)]

    def test_subscriptions(self) -> None:
        """Subscriptions that are no longer allowed end, of connected and of disconnected clients."""
        here, away, elsewhere = self.client("here"), self.client("away"), self.client("elsewhere", self.second)
        for each in (here, away, elsewhere):
            self.subscribes(each, "a/#", "b/#")
        away.close()
        publisher = self.client("publisher")
        eventually(lambda: self.broker.metric("svc_broker_connections_active") == 3, what="that one is away")
        for topic in ("a/1", "b/1"):
            publisher.send(Publish(topic, b"m", 1, packet_id=1))
            publisher.sync()
        self.assertEqual(["a/1", "b/1"], self.topics(here))
        record = self.reload(self.narrow("a/#"))
        self.assertEqual(
            ("svc.config.loaded", "plain"), (record["event"]["name"], record["attributes"]["rules_changed"])
        )
        for topic in ("a/2", "b/2"):
            publisher.send(Publish(topic, b"m", 1, packet_id=1))
            publisher.sync()
        self.assertEqual(["a/2"], self.topics(here))
        self.assertEqual(["a/1", "b/1", "a/2", "b/2"], self.topics(elsewhere))
        self.assertEqual(["a/1", "a/2"], self.topics(self.client("away")))
        self.assertEqual(2, self.broker.metric("svc_broker_denied_total", action="subscribe"))
        self.assertEqual(1, self.broker.metric("svc_broker_messages_dropped_total", reason="not_authorized"))
        self.assertEqual(1, self.broker.metric(RELOADS, result="success"))

    def test_client_without_a_rule(self) -> None:
        """A client that no rule names any more is closed with the reason, and its session ends; others stay."""
        new, old = self.client("new"), self.client("old", version=Version.V311)
        self.client("away").close()
        elsewhere = self.client("elsewhere", self.second)
        self.reload(lambda config: config["listeners"][0].update(acl=[]))
        self.assertEqual([Disconnect(ReasonCode.NOT_AUTHORIZED)], new.until_end())
        self.assertEqual([], old.until_end())
        self.assertEqual([], elsewhere.sync())
        eventually(lambda: self.broker.metric("svc_broker_sessions") == 1, what="the end of the sessions")
        [record, *_] = eventually(lambda: self.broker.records("svc.broker.client.broken"))
        self.assertEqual("mqtt_no_rule", record["detail_reason"])
        # Narrower rules hold over a restart, and wider ones let clients in again.
        self.broker.kill()
        self.broker.start()
        self.assertEqual(1, self.broker.metric("svc_broker_sessions"))
        self.reload(self.narrow("#"))
        self.client("new")

    def test_bad_files(self) -> None:
        """A file that is invalid, or changes what needs a restart, changes nothing, not even rules; both are named."""
        client = self.client("c")
        self.subscribes(client, "b/#")
        good = json.loads(json.dumps(self.broker.config))
        for change, words in (
            ("listeners: [", "broker.yaml"),
            (json.dumps({**good, "listeners": [{**good["listeners"][0], "acl": [{"who": "nobody"}]}]}), "who"),
            (lambda config: (self.narrow("a/#")(config), config["limits"].update(queued=7)), "limits.queued"),
        ):
            record = self.reload(change)
            self.assertEqual("svc.config.rejected", record["event"]["name"])
            self.assertIn(words, record["detail"])
            self.broker.config = json.loads(json.dumps(good))
        self.assertIn("needs a restart", record["detail"])
        client.send(Publish("b/1", b"m"))
        self.assertEqual(["b/1"], self.topics(client))
        self.assertEqual(3, self.broker.metric(RELOADS, result="error"))
        self.assertEqual("svc.config.loaded", self.reload(self.narrow("b/#"))["event"]["name"])
        self.assertEqual(["b/#"], self.broker.page("/config")[1]["listeners"][0]["acl"][0]["subscribe"])

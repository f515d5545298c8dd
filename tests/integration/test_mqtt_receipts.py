"""Receipts of messages through an inbound MQTT listener with Mosquitto, as its clients and operators see them."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.ids import new_nonce, printed_id
from svc.naming import PROPERTY_NONCE, PROPERTY_RECEIPT_ID
from svc.proxy.mqtt.recorder import MAX_OPEN_EXCHANGES
from svc.proxy.records.release_points import ReleasePoint
from svc.wire.mqtt import (
    Acknowledgement,
    Disconnect,
    Packet,
    PacketType,
    Properties,
    Publish,
    ReasonCode,
    Subscribe,
    Subscription,
    Version,
)
from tests.integration.test_curl_mqtt import BrokerCase
from tests.integration.test_curl_mqtt import Subscription as RunningCurl
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials
from tests.peers.mosquitto import RunningMosquitto
from tests.peers.mqttclient import RawClient
from tests.peers.programs import svc
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually, free_port

WORKLOAD = "spiffe://example.org/ns/shop/sa/api"
LEVELS = ("none", "workload", "logRequest", "signRequest")
VERSIONS = (Version.V311, Version.V5)
#: Messages below ``signed`` have a receipt whatever their listener says.
POLICIES = {
    "apiVersion": "svc.internal/v1alpha1",
    "kind": "SvcClusterPolicy",
    "metadata": {"name": "topics"},
    "spec": {
        "authorization": {
            "action": "Allow",
            "rules": [
                {
                    "name": "signed",
                    "to": [{"mqttActions": ["Publish"], "mqttTopics": ["signed/#"]}],
                    "notarization": {"minimum": "signRequest"},
                },
                {
                    "name": "others",
                    "to": [
                        {"mqttActions": ["Connect", "Subscribe"]},
                        {"mqttActions": ["Publish"], "mqttTopics": ["#"], "notMqttTopics": ["signed/#"]},
                    ],
                },
            ],
        }
    },
}


class World:
    """A broker, and one proxy with a listener for each level; the one for ``signRequest`` publishes artifacts."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.authority = stack.enter_context(
            RunningAuthority(entries=[entry("/ns/shop/sa/api"), entry("/ns/iot/sa/device")])
        )
        self.mosquitto = RunningMosquitto(stack).start()
        folder = short_folder(stack)
        rules = folder / "policies.yaml"
        rules.write_text(json.dumps(POLICIES))
        self.ports = {level: free_port() for level in LEVELS}
        listeners: list[dict[str, Any]] = [
            {
                "name": level,
                "protocol": "mqtt",
                "direction": "inbound",
                "listen": f"127.0.0.1:{port}",
                "upstream": f"127.0.0.1:{self.mosquitto.port}",
                "notarization": level,
                **({"artifacts": {}} if level == "signRequest" else {}),
            }
            for level, port in self.ports.items()
        ]
        self.ports["pair"] = free_port()
        listeners.append(
            {
                "name": "pair",
                "protocol": "mqtt",
                "direction": "outbound",
                "listen": f"127.0.0.1:{self.ports['pair']}",
                "upstream": f"127.0.0.1:{self.ports['signRequest']}",
                "peer": WORKLOAD,
            }
        )
        settings = {"listeners": listeners, "policy": {"files": [str(rules)]}, "auditLog": "all"}
        self.proxy = RunningProxy(self.authority, "127.0.0.1:1", settings=settings)
        stack.callback(self.proxy.stop)
        self.database = self.proxy.folder / "notary.db"
        self.tls = Credentials.fetch(self.authority, folder / "id", "/ns/iot/sa/device").context()


def _running(stack: ExitStack) -> World:
    world = World(stack)
    world.proxy.start()
    return world


SHARED = Shared(_running)


class _Case(SynchronousTestCase):
    world: World

    def client(
        self, client_id: str, level: str = "signRequest", version: Version = Version.V5, *, clean: bool = True
    ) -> RawClient:
        """A client of a listener, connected."""
        tls = None if level == "pair" else self.world.tls.wrap_socket
        client = RawClient(self.world.ports[level], version, tls=tls)
        self.addCleanup(client.close)
        more = {} if version is Version.V311 else {"properties": Properties(session_expiry=300)}
        answer = client.connect(client_id, clean_start=clean, **more)
        self.assertEqual(answer.code, 0)
        if version is Version.V5:
            self.assertLessEqual(answer.properties.receive_maximum or 65535, MAX_OPEN_EXCHANGES)
        return client

    def publish(self, client: RawClient, topic: str, qos: int = 1, nonce: str | None = None, **more: Any) -> Any:
        """Publish a message; returns its acknowledgement, and releases it with QoS 2."""
        client.send(message(topic, qos, nonce, **more))
        if not qos:
            return None
        answer = client.receive()
        assert isinstance(answer, Acknowledgement), answer
        self.assertEqual(answer.type, PacketType.PUBACK if qos == 1 else PacketType.PUBREC)
        if qos == 2 and answer.code < 0x80:
            client.send(Acknowledgement(PacketType.PUBREL, answer.packet_id))
            self.assertEqual(client.receive(), Acknowledgement(PacketType.PUBCOMP, answer.packet_id))
        return answer

    def listed(self, topic: str) -> list[dict[str, Any]]:
        """The records of a topic, as ``svc receipts list`` prints them."""
        ran = svc("receipts", "list", "-o", "json", "--notary", str(self.world.database), "--topic", topic)
        self.assertEqual(0, ran.returncode, ran.stderr)
        return [json.loads(line) for line in ran.stdout.splitlines()]

    def shown(self, receipt_id: str) -> str:
        """A receipt as ``svc receipts show`` prints it, verified."""
        roots = ("--trust-bundle", str(self.world.authority.archive_path))
        ran = svc("receipts", "show", "--notary", str(self.world.database), *roots, receipt_id)
        self.assertEqual(0, ran.returncode, ran.stderr)
        return ran.stdout.decode()

    def received(self, topic: str) -> RawClient:
        """A client of the broker itself that is subscribed to a topic."""
        reader = RawClient(self.world.mosquitto.port)
        self.addCleanup(reader.close)
        reader.connect("")
        reader.send(Subscribe(1, [Subscription(topic)]))
        reader.receive()
        return reader


def message(topic: str, qos: int = 1, nonce: str | None = None, **more: Any) -> Publish:
    """A message with an identifier."""
    user = () if nonce is None else ((PROPERTY_NONCE, nonce),)
    return Publish(topic, b"21.5", cast(Any, qos), packet_id=7 if qos else 0, properties=Properties(user=user), **more)


def receipt_of(answer: Packet | None) -> str | None:
    """The identifier of the receipt that an acknowledgement has."""
    assert isinstance(answer, Acknowledgement), answer
    return dict(answer.properties.user).get(PROPERTY_RECEIPT_ID)


class LevelTests(_Case):
    """Each level, QoS and version."""

    def setUp(self) -> None:
        """The proxy that all these tests share."""
        self.world = SHARED.get()

    def test_levels(self) -> None:
        """Below ``logRequest`` nothing is recorded; above, each message has one record before it is acknowledged."""
        for level in LEVELS:
            for version in VERSIONS:
                client = self.client(f"levels-{level}-{version}", level, version)
                for qos in (0, 1, 2):
                    topic = f"levels/{level}/{version}/{qos}"
                    reader = self.received(topic)
                    answer = self.publish(client, topic, qos)
                    delivered = reader.receive()
                    assert isinstance(delivered, Publish)
                    self.assertEqual((delivered.topic, delivered.payload), (topic, b"21.5"))
                    recorded = level in ("logRequest", "signRequest")
                    if recorded and not qos:
                        eventually(lambda topic=topic: self.listed(topic), what="a record")
                    found = self.listed(topic)
                    self.assertEqual([each["level"] for each in found], [level] if recorded else [])
                    if qos:
                        signed = level == "signRequest" and version is Version.V5
                        self.assertEqual(receipt_of(answer), found[0]["id"] if signed else None)
                    if level == "signRequest":
                        self.assertIn("  Signatures: ES256 valid, ML-DSA-65 valid\n", self.shown(found[0]["id"]))
                client.send(Disconnect())
        labels = {"result": "success", "protocol": "mqtt"}
        self.assertGreaterEqual(self.world.proxy.metric("svc_proxy_notary_records_total", **labels), 12)
        self.assertGreaterEqual(self.world.proxy.metric("svc_proxy_notary_level_total", level="signRequest"), 6)

    def test_nonce(self) -> None:
        """The record has the publisher's nonce, which is good once; the broker gets neither nonce nor receipt."""
        nonce = new_nonce(os.urandom(16))
        client, reader = self.client("nonce"), self.received("nonce")
        answer = self.publish(client, "nonce", 1, nonce)
        (record,) = self.listed("nonce")
        self.assertEqual((record["id"], record["nonce"]), (receipt_of(answer), nonce))
        self.assertEqual(reader.receive(), Publish("nonce", b"21.5"))
        again = self.publish(client, "nonce", 1, nonce)
        self.assertEqual((again.code, receipt_of(again)), (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, None))
        wrong = self.publish(client, "nonce", 2, "short")
        self.assertEqual(wrong.code, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
        self.assertEqual((len(self.listed("nonce")), reader.sync()), (1, []))

    def test_through_two_proxies(self) -> None:
        """A client behind an outbound listener gives a nonce to the peer's proxy, and gets the receipt of that."""
        nonce = new_nonce(os.urandom(16))
        answer = self.publish(self.client("pair", "pair"), "pair", 1, nonce)
        (record,) = self.listed("pair")
        self.assertEqual((record["id"], record["nonce"], record["client"]), (receipt_of(answer), nonce, WORKLOAD))

    def test_in_order(self) -> None:
        """Messages with and without nonce arrive in the order in which they were sent, whatever waits for a look-up."""
        client, reader = self.client("order"), self.received("order")
        packets = [
            replace(
                message("order", number % 2, new_nonce(os.urandom(16)) if number % 3 else None),
                payload=b"%d" % number,
                packet_id=number + 1 if number % 2 else 0,
            )
            for number in range(40)
        ]
        # As many as Mosquitto takes at once.
        client.send(*packets)
        self.assertEqual(len({receipt_of(client.receive()) for _ in range(20)} - {None}), 20)
        delivered = [reader.receive() for _ in packets]
        self.assertEqual([int(each.payload) for each in delivered if isinstance(each, Publish)], list(range(40)))
        eventually(lambda: len(self.listed("order")) == 40, what="all records")

    def test_sent_and_gone(self) -> None:
        """A message with QoS 0 right before DISCONNECT is recorded."""
        for version in VERSIONS:
            topic = f"gone/{version}"
            client = self.client(f"gone-{version}", version=version)
            client.send(message(topic, 0), Disconnect())
            client.until_end()
            eventually(lambda topic=topic: len(self.listed(topic)) == 1, what="a record")

    def test_policy(self) -> None:
        """A rule's minimum holds for its topics, on a listener that demands nothing."""
        for version in VERSIONS:
            client = self.client(f"policy-{version}", "none", version)
            for number, topic in enumerate(("plain", "signed/a", "plain", "signed/b")):
                topic = f"{topic}/{version}/{number}"
                answer = self.publish(client, topic, 1 + number % 2)
                records = self.listed(topic)
                self.assertEqual([each["level"] for each in records], ["signRequest"] * topic.startswith("signed"))
                if version is Version.V5:
                    self.assertEqual(receipt_of(answer), records[0]["id"] if records else None)

    def test_many(self) -> None:
        """A client of MQTT 3.1.1 that waits for nothing is held; all its messages have records and acknowledgements."""
        client = self.client("many", version=Version.V311)
        count, before = 2 * MAX_OPEN_EXCHANGES, self.written()
        client.send(*(replace(message("many"), packet_id=number + 1) for number in range(count)))
        came = [client.receive() for _ in range(count)]
        self.assertEqual({getattr(each, "packet_id", 0) for each in came}, set(range(1, count + 1)))
        client.send(*[message("many", 0)] * count)
        eventually(lambda: self.written() == before + 2 * count, what="all records")

    def written(self) -> float:
        """Records of messages."""
        return self.world.proxy.metric("svc_proxy_notary_records_total", result="success", protocol="mqtt")

    def test_shown_to_operators(self) -> None:
        """Each recorded message is audited with its receipt, and the status has the levels of the listeners."""
        receipt_id = receipt_of(self.publish(self.client("audited"), "audited", 2))

        def audited() -> list[dict[str, Any]]:
            found = [each["attributes"] for each in self.world.proxy.records("svc.proxy.access.recorded")]
            return [each for each in found if each["mqtt.topic"] == "audited"]

        [record] = eventually(audited, what="an audit record")
        expected = {"listener": "signRequest", "mqtt.qos": 2, "mqtt.reason_code": 0, "receipt_id": receipt_id}
        self.assertEqual({name: record[name] for name in expected}, expected)
        listeners = self.world.proxy.page("/status")[1]["listeners"]
        levels = {each["name"]: (each.get("level"), each.get("maxLevel")) for each in listeners}
        self.assertEqual(levels, {**{each: (each, "signRequest") for each in LEVELS}, "pair": (None, None)})

    def test_verified_at_the_broker(self) -> None:
        """``svc curl`` at the broker verifies the statement, and the receipts of this listener's messages alone."""
        flags = ("--print-workload", "--print-receipt", "--verify")
        where = f"mqtt://127.0.0.1:{self.world.mosquitto.port}"
        case = cast(BrokerCase, SimpleNamespace(stack=ExitStack()))
        self.addCleanup(case.stack.close)
        socket = ("--spiffe-socket-path", self.world.authority.address)
        command = RunningCurl(case, [*flags, *socket, where], None, {})
        command.until("Workload Identity Statement")
        self.publish(self.client("artifacts-log", "logRequest"), "artifacts/log")
        self.publish(self.client("artifacts-policy", "none"), "signed/artifacts")
        receipt_id = receipt_of(self.publish(self.client("artifacts"), "artifacts/signed"))
        assert receipt_id is not None
        command.until(f"Signed Request Receipt {printed_id(receipt_id)}\n")
        command.until("artifacts/signed")
        self.assertEqual(0, command.end(signal.SIGINT), command.printed)
        self.assertEqual(command.printed.count("Signed Request Receipt"), 1)


class FailureTests(_Case):
    """Databases that do not write, and processes that end."""

    def setUp(self) -> None:
        """A proxy for each test."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.world = World(stack)

    def lock(self) -> sqlite3.Connection:
        """Hold the database, so that nobody else writes."""
        held = sqlite3.connect(self.world.database, isolation_level=None)
        self.addCleanup(held.close)
        held.execute("BEGIN IMMEDIATE")
        return held

    def test_locked_database(self) -> None:
        """While the record is not written there is no PUBACK, nor PUBREC; with it there is."""
        self.world.proxy.start()
        for qos in (1, 2):
            client, reader = self.client(f"locked-{qos}"), self.received("locked")
            held = self.lock()
            client.send(message("locked", qos))
            if qos == 1:
                self.assertIsInstance(reader.receive(), Publish)
            self.assertEqual(client.sync(), [])
            held.execute("ROLLBACK")
            self.assertIsNotNone(receipt_of(client.receive()))

    def test_database_that_fails(self) -> None:
        """A record that is not written in time drops the connection; further messages are refused before they pass."""
        self.world.proxy.start()
        client, old = self.client("fails"), self.client("fails-old", version=Version.V311)
        other = self.client("fails-other")
        reader = self.received("fails/#")
        held = self.lock()
        client.send(message("fails/1"))
        self.assertEqual([each for each in client.until_end() if isinstance(each, Acknowledgement)], [])
        answer = eventually(
            lambda: (answer := self.publish(other, "fails/2")).code >= 0x80 and answer, what="a refusal"
        )
        self.assertEqual(answer.code, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
        old.send(message("fails/3"))
        self.assertEqual(old.until_end(), [])
        self.assertEqual([each.topic for each in reader.sync() if isinstance(each, Publish)], ["fails/1"])
        held.execute("ROLLBACK")
        again = self.client("fails", clean=False)
        answer = eventually(
            lambda: (answer := self.publish(again, "fails/1", dup=True)).code < 0x80 and answer, what="a receipt"
        )
        self.assertIn(receipt_of(answer), {each["id"] for each in self.listed("fails/1")})

    def test_connection_dropped(self) -> None:
        """A message that is repeated with DUP on another connection has the receipt of the first one."""
        self.world.proxy.start()
        for qos in (1, 2):
            client = self.client(f"dropped-{qos}", clean=False)
            held = self.lock()
            client.send(message("dropped", qos))
            self.assertEqual(client.sync(), [])
            client.close()
            eventually(lambda: self.connections() == 0, what="the end of the connection")
            held.execute("ROLLBACK")
            again = self.client(f"dropped-{qos}", clean=False)
            answer = self.publish(again, "dropped", qos, dup=True)
            self.assertEqual(receipt_of(answer), self.listed("dropped")[0]["id"])
            self.assertEqual(len(self.listed("dropped")), qos)
            again.close()

    def connections(self) -> float:
        """Open connections."""
        labels = {"protocol": "mqtt", "direction": "inbound"}
        return self.world.proxy.metric("svc_proxy_active_connections", **labels)

    def test_killed_before_the_acknowledgement(self) -> None:
        """After a crash between commit and acknowledgement the repeated message has the receipt that is durable."""
        for qos in (1, 2):
            self.world.proxy.launch((ReleasePoint.RECEIPT_COMMITTED.value, 1))
            eventually(self.world.proxy.is_ready, what="the proxy")
            nonce, name = new_nonce(os.urandom(16)), f"killed-{qos}"
            client, reader = self.client(name, clean=False), self.received(name)
            client.send(message(name, qos, nonce))
            if qos == 1:
                self.assertIsInstance(reader.receive(), Publish)
            self.world.proxy.wait_until_stopped()
            self.assertEqual(-9, self.world.proxy.kill())
            self.assertEqual(client.until_end(), [])
            (record,) = self.listed(name)
            self.world.proxy.launch()
            eventually(self.world.proxy.is_ready, what="the proxy")
            answer = self.publish(self.client(name, clean=False), name, qos, nonce, dup=True)
            self.assertEqual((receipt_of(answer), answer.code), (record["id"], 0))
            self.assertEqual([each["id"] for each in self.listed(name)], [record["id"]])
            # With QoS 1 for the second time; with QoS 2 the broker passes it on when it is released.
            self.assertEqual(len(reader.sync()), 1)
            self.assertEqual(0, self.world.proxy.halt())

    def test_drain(self) -> None:
        """At the end of the proxy all that was forwarded is recorded."""
        self.world.proxy.start()
        clients = [self.client(f"drain-{number}") for number in range(3)]
        held = self.lock()
        for client in clients:
            client.send(message("drain"), message("drain", 0))
            self.assertEqual(client.sync(), [])
        self.world.proxy.signal(signal.SIGTERM)
        eventually(lambda: self.world.proxy.records("svc.proxy.drain.started"), what="the drain")
        held.execute("ROLLBACK")
        self.assertEqual(0, self.world.proxy.wait())
        found = self.listed("drain")
        self.assertEqual([each["outcome"] for each in found], ["complete"] * 6)

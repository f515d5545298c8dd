"""Receipts of messages that an MQTT listener with ``ack: middleware`` stores, before a real Mosquitto."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from svc.envelope.ids import new_nonce
from svc.naming import PROPERTY_NONCE, PROPERTY_RECEIPT_ID
from svc.proxy.mqtt.recorder import MAX_OPEN_EXCHANGES
from svc.proxy.records.release_points import ReleasePoint
from svc.strictjson import b64u_encode
from svc.wire.mqtt import (
    Acknowledgement,
    Disconnect,
    PacketType,
    Properties,
    Publish,
    ReasonCode,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from tests.integration.test_mqtt_forwarding import PUBLISHERS, VERSIONS, Case, KillCase, Site, deliveries, lasting
from tests.peers.faulty_disk import fill, memory_disk
from tests.peers.mqttclient import RawClient
from tests.peers.programs import svc
from tests.peers.waiting import eventually

SIGNED = {"notarization": "signRequest"}
PUBACK: Final = PacketType.PUBACK
PUBREC: Final = PacketType.PUBREC
PUBREL: Final = PacketType.PUBREL
PUBCOMP: Final = PacketType.PUBCOMP


def message(
    topic: str, qos: Any = 1, nonce: str | None = None, packet_id: int = 7, payload: bytes = b"21.5", **more: Any
) -> Publish:
    """A message with a nonce."""
    user = () if nonce is None else ((PROPERTY_NONCE, nonce),)
    return Publish(topic, payload, qos, packet_id=packet_id if qos else 0, properties=Properties(user=user), **more)


def receipt_of(answer: object) -> str | None:
    """The identifier of the receipt that an acknowledgement has."""
    assert isinstance(answer, Acknowledgement), answer
    return dict(answer.properties.user).get(PROPERTY_RECEIPT_ID)


class RecordedSite(Site):
    """A site with a notary; ``folder`` is that of its database."""

    def __init__(self, stack: Any, *, notary: Path | None = None, **listener: Any) -> None:
        super().__init__(stack, **{**SIGNED, **listener})
        if notary is not None:
            self.proxy.config["notary"]["path"] = str(notary / "notary.db")
        self.database = self.proxy.config["notary"]["path"]

    def connected(self, client_id: str = "c", version: Version = Version.V5) -> RawClient:
        """A client whose session lasts."""
        client = self.client(version)
        answer = client.connect(client_id, **lasting(version))
        assert answer.code == 0, answer
        if version is Version.V5:
            assert (answer.properties.receive_maximum or 65535) <= MAX_OPEN_EXCHANGES
        return client

    def listed(self, topic: str) -> list[dict[str, Any]]:
        """The records of a topic, as ``svc receipts list`` prints them."""
        ran = svc("receipts", "list", "-o", "json", "--notary", self.database, "--topic", topic)
        assert ran.returncode == 0, ran.stderr
        return [json.loads(line) for line in ran.stdout.splitlines()]

    def shown(self, receipt_id: str) -> str:
        """A receipt as ``svc receipts show`` prints it, verified."""
        roots = ("--trust-bundle", str(self.authority.archive_path))
        ran = svc("receipts", "show", "--notary", self.database, *roots, receipt_id)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.decode()

    def payload(self, receipt_id: str) -> dict[str, Any]:
        """What a receipt says of its message."""
        connection = sqlite3.connect(self.database)
        try:
            ((payload,),) = connection.execute("SELECT payload FROM receipt WHERE id = ?", (receipt_id,))
        finally:
            connection.close()
        claims: dict[str, Any] = json.loads(payload)["svc"]
        return claims


class RecordCase(Case):
    """Base class: a client that publishes."""

    def publish(self, client: RawClient, packet: Publish) -> Acknowledgement:
        """Publish a message, and release it with QoS 2; returns its acknowledgement."""
        client.send(packet)
        answer = client.receive()
        assert isinstance(answer, Acknowledgement), answer
        self.assertEqual(PUBACK if packet.qos == 1 else PUBREC, answer.type)
        if packet.qos == 2 and answer.code < 0x80:
            client.send(Acknowledgement(PUBREL, packet.packet_id))
            self.assertEqual(Acknowledgement(PUBCOMP, packet.packet_id), client.receive())
        return answer


class BrokerDownTests(RecordCase):
    """The broker is away while messages are recorded."""

    def test_receipts(self) -> None:
        """Each message has a verified receipt before the broker has it, which says that the proxy acknowledged it."""
        site = RecordedSite(self.stack, artifacts={})
        site.mosquitto.start()
        site.subscriber("t/#").close()
        site.mosquitto.stop()
        site.proxy.start()
        for version in VERSIONS:
            client = site.connected(f"c{version.value}", version)
            for qos in (1, 2, 0):
                topic = f"t/{version.value}/{qos}"
                if qos:
                    answer = self.publish(client, message(topic, qos))
                else:
                    client.send(message(topic, 0))
                    eventually(lambda topic=topic: site.listed(topic), what="a record")
                (record,) = site.listed(topic)
                if qos:
                    self.assertEqual(record["id"] if version is Version.V5 else None, receipt_of(answer))
                claims = site.payload(record["id"])
                acked_by = (claims["response"] or {}).get("ackedBy")
                self.assertEqual((None if not qos else "middleware", qos), (acked_by, claims["request"]["qos"]))
                self.assertIn("  Signatures: ES256 valid, ML-DSA-65 valid\n", site.shown(record["id"]))
        site.mosquitto.start()
        artifacts = self.stack.enter_context(RawClient(site.mosquitto.port))
        artifacts.connect("artifacts")
        artifacts.send(Subscribe(1, [Subscription("$.svc/receipt/#", 1)]))
        self.assertEqual(Suback(1, [1]), artifacts.receive())
        arrived = Counter(each.topic for each in deliveries(site.subscriber("t/#"), 6))
        self.assertEqual({f"t/{version.value}/{qos}": 1 for version in VERSIONS for qos in (0, 1, 2)}, arrived)
        last = self.publish(site.connected("last"), message("u"))
        found: set[str] = set()
        while receipt_of(last) not in found:
            found |= {each.topic.rpartition("/")[2] for each in deliveries(artifacts, 1)}

    def test_levels_and_sources(self) -> None:
        """Records of topics in `ackUpstream` have the broker's acknowledgement; ``logRequest`` names no receipt."""
        site = RecordedSite(self.stack, ackUpstream=["alarm/#"])
        site.proxy.start()
        client = site.connected()
        client.send(message("alarm/fire", 2, packet_id=1))
        self.assertEqual(
            "middleware", site.payload(receipt_of(self.publish(client, message("t"))) or "")["response"]["ackedBy"]
        )
        self.assertEqual([], site.listed("alarm/fire"))
        site.mosquitto.start()
        answer = client.receive()
        self.assertEqual(PUBREC, getattr(answer, "type", None))
        claims = site.payload(receipt_of(answer) or "")
        self.assertEqual(("upstream", "PUBREC"), (claims["response"]["ackedBy"], claims["response"]["packet"]))
        logged = RecordedSite(self.stack, notarization="logRequest")
        logged.proxy.start()
        answer = self.publish(logged.connected(), message("t", 2))
        self.assertIsNone(receipt_of(answer))
        self.assertEqual(["logRequest"], [each["level"] for each in logged.listed("t")])

    def test_nonces(self) -> None:
        """A nonce is good once; malformed and replayed ones refuse the message before it is stored."""
        site = RecordedSite(self.stack)
        site.proxy.start()
        client = site.connected()
        nonce = new_nonce(os.urandom(16))
        # Nothing passes a message whose nonce is looked up, nor DISCONNECT.
        client.send(message("t", 2, nonce, 1), message("t", 1, None, 2), message("t", 0))
        answers = {getattr(each, "packet_id", 0): receipt_of(each) for each in (client.receive(), client.receive())}
        eventually(lambda: len(site.listed("t")) == 3, what="all records")
        by_nonce = {each["nonce"]: each["id"] for each in site.listed("t") if each["nonce"]}
        self.assertEqual(answers[1], by_nonce[nonce])
        for wrong in (nonce, "short"):
            answer = self.publish(client, message("t", 1, wrong, 3))
            self.assertEqual((ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, None), (answer.code, receipt_of(answer)))
        client.send(message("last", 0, new_nonce(os.urandom(16))), Disconnect())
        client.until_end()
        eventually(lambda: len(site.listed("last")) == 1, what="the record of the last message")
        self.assertEqual(4.0, site.proxy.metric("svc_proxy_mqtt_buffer_messages_queued"))

    def test_many(self) -> None:
        """A client of MQTT 3.1.1 that waits for nothing is held; all its messages have records and acknowledgements."""
        site = RecordedSite(self.stack)
        site.mosquitto.start()
        site.proxy.start()
        client = site.connected(version=Version.V311)
        count = 2 * MAX_OPEN_EXCHANGES
        client.send(*(message("many", packet_id=number + 1, payload=b"%d" % number) for number in range(count)))
        came = [getattr(client.receive(), "packet_id", 0) for _ in range(count)]
        self.assertEqual(list(range(1, count + 1)), came)
        written = site.proxy.metric("svc_proxy_notary_records_total", result="success", protocol="mqtt")
        self.assertEqual(count, written)


class CrashTests(RecordCase):
    """kill -9 between what is durable and the acknowledgement."""

    def killed(self, site: RecordedSite, point: ReleasePoint, packet: Publish) -> RawClient:
        """Kill the proxy when a message passes this point, and start it again; returns its client, connected."""
        site.proxy.launch((point.value, 1))
        eventually(site.proxy.is_ready, what="the proxy")
        client = site.connected()
        client.send(packet)
        site.proxy.wait_until_stopped()
        self.assertEqual(-9, site.proxy.kill())
        self.assertEqual([], [each for each in client.until_end() if isinstance(each, Acknowledgement)])
        site.proxy.launch()
        eventually(site.proxy.is_ready, what="the proxy")
        return site.connected()

    def test_before_the_record(self) -> None:
        """A stored message without record is not acknowledged; repeated it has one, and QoS 2 arrives exactly once."""
        for qos in (1, 2):
            site = RecordedSite(self.stack)
            site.mosquitto.start()
            subscriber = site.subscriber("t")
            client = self.killed(site, ReleasePoint.RECEIPT_SIGNED, message("t", qos))
            self.assertEqual([], site.listed("t"))
            # It was stored: it arrives without its client, and without a record.
            self.assertEqual([b"21.5"], [each.payload for each in deliveries(subscriber, 1)])
            self.assertEqual([], site.listed("t"))
            answer = self.publish(client, message("t", qos, dup=True))
            self.assertEqual([receipt_of(answer)], [each["id"] for each in site.listed("t")])
            again = [each for each in subscriber.sync() if isinstance(each, Publish)]
            # With QoS 1 also a third time, where the first process had sent it already.
            self.assertIn(len(again), (1, 2) if qos == 1 else (0,))
            client.close()
            site.proxy.stop()

    def test_another_message(self) -> None:
        """Under the identifier of a stored message without record no other one gets a record."""
        site = RecordedSite(self.stack)
        client = self.killed(site, ReleasePoint.RECEIPT_SIGNED, message("t", 2))
        client.send(message("t", 2, dup=True, payload=b"another"))
        self.assertEqual([Disconnect(ReasonCode.PROTOCOL_ERROR)], client.until_end())
        self.assertEqual([], site.listed("t"))

    def test_before_the_acknowledgement(self) -> None:
        """A message whose record is durable is acknowledged with it when it is repeated, where it has a nonce."""
        for qos in (1, 2):
            site = RecordedSite(self.stack)
            site.mosquitto.start()
            nonce = new_nonce(os.urandom(16))
            client = self.killed(site, ReleasePoint.RECEIPT_COMMITTED, message("t", qos, nonce))
            (record,) = site.listed("t")
            answer = self.publish(client, message("t", qos, nonce, dup=True))
            self.assertEqual((record["id"], 0), (receipt_of(answer), answer.code))
            self.assertEqual(1, len(site.listed("t")))
            client.close()
            site.proxy.stop()


class KillTests(KillCase):
    """kill -9 of the proxy at arbitrary moments, while clients publish what is recorded."""

    def test_proxy(self) -> None:
        """Beside what holds without records, every message that was acknowledged has one, and of nothing else."""
        site = RecordedSite(self.stack, mosquitto={"max_inflight_messages": "0"})
        site.mosquitto.start()
        self.begin(site, site.mosquitto.port)
        self.kill_often(lambda: None, lambda: None)
        digests = {b64u_encode(hashlib.sha256(payload).digest()): payload for payload in self.sent}
        with closing(sqlite3.connect(site.database)) as connection:
            rows = [json.loads(payload)["svc"] for (payload,) in connection.execute("SELECT payload FROM receipt")]
        recorded = {digests[each["request"]["body"]["sha-256"]] for each in rows if each["outcome"] == "complete"}
        acknowledged = {payload for name in PUBLISHERS for payload in self.publishers[name].acknowledged}
        self.assertEqual(set(), acknowledged - recorded)


class FailureTests(RecordCase):
    """A notary that does not write."""

    def test_locked_database(self) -> None:
        """While the record is not written there is no acknowledgement, though the broker has the message."""
        site = RecordedSite(self.stack)
        site.mosquitto.start()
        site.proxy.start()
        subscriber = site.subscriber("t")
        for qos in (1, 2):
            client = site.connected(f"c{qos}")
            held = sqlite3.connect(site.database, isolation_level=None)
            self.addCleanup(held.close)
            held.execute("BEGIN IMMEDIATE")
            client.send(message("t", qos))
            deliveries(subscriber, 1)
            self.assertEqual([], client.sync())
            held.execute("ROLLBACK")
            self.assertIsNotNone(receipt_of(client.receive()))

    def test_full_disk(self) -> None:
        """With a full disk of the notary messages are refused before they are stored; nothing acknowledged is lost."""
        disk = memory_disk(self.stack)
        site = RecordedSite(self.stack, notary=disk)
        site.proxy.start()
        client = site.connected()
        accepted: dict[bytes, str | None] = {}
        filler = None
        for number in range(20000):
            payload = b"%d" % number
            client.send(message("t", 1 + number % 2, packet_id=number % 9 + 1, payload=payload))
            answer = client.receive()
            if answer is None:
                # The record failed after the message was stored.
                client = site.connected()
                continue
            assert isinstance(answer, Acknowledgement), answer
            if answer.code:
                self.assertEqual(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, answer.code)
                refused = payload
                break
            if answer.type is PUBREC:
                client.send(Acknowledgement(PUBREL, answer.packet_id))
                client.receive()
            accepted[payload] = receipt_of(answer)
            filler = filler or fill(disk)
        queued = site.proxy.metric("svc_proxy_mqtt_buffer_messages_queued")
        self.assertEqual(0x83, self.publish(client, message("t", payload=refused)).code)
        self.assertEqual(queued, site.proxy.metric("svc_proxy_mqtt_buffer_messages_queued"))
        old = site.connected("old", Version.V311)
        old.send(message("t", payload=refused))
        self.assertEqual([], old.until_end())
        assert filler is not None
        filler.unlink()
        eventually(lambda: site.proxy.readiness()["store"]["ok"], 60, "a store that takes records")
        accepted[b"last"] = receipt_of(self.publish(client, message("t", payload=b"last")))
        site.mosquitto.start()
        arrived = Counter(each.payload for each in deliveries(site.subscriber("t"), int(queued) + 1))
        self.assertEqual(set(), set(accepted) - set(arrived))
        self.assertNotIn(refused, arrived)
        known = {each["id"] for each in site.listed("t")}
        self.assertEqual([], [payload for payload, receipt in accepted.items() if receipt not in known])

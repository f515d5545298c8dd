"""Statements and receipts that the proxy publishes on a real Mosquitto, and ``svc curl`` that reads them there."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from svc.envelope.envelope import Envelope
from svc.envelope.ids import receipt_id, statement_id
from svc.notary.statement import Statement
from svc.pacing.turns import Turns
from svc.process.clock import utc_now
from svc.proxy.mqtt.artifacts.publisher import ArtifactPublisher
from svc.proxy.mqtt.artifacts.settings import ArtifactSettings
from svc.strictjson import loads_object
from svc.transport.addresses import Address, TcpAddress, UnixAddress
from svc.transport.endpoints import PlainClientEndpoint
from svc.wire.mqtt import Publish, Subscribe, Subscription, Version
from tests.integration.test_curl_mqtt import BOTH, SHARED, Artifacts, BrokerCase, older_broker
from tests.integration.test_curl_mqtt import Subscription as RunningCurl
from tests.peers.folders import short_folder
from tests.peers.mosquitto import RunningMosquitto
from tests.peers.mqttclient import RawClient
from tests.peers.programs import find, run
from tests.peers.waiting import eventually
from tests.proxy.mqtt.broker import RecordingObserver


def parsed_statement(data: bytes) -> Statement:
    """The statement of a proxy from its envelope."""
    envelope = Envelope.parse(data)
    claims = loads_object(envelope.payload)
    issued, expires = (datetime.fromtimestamp(cast(int, claims[name]), UTC) for name in ("iat", "exp"))
    return Statement(statement_id(envelope.payload), envelope, claims, issued, expires)


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait while the reactor runs."""
    await deferToThread(eventually, condition, what=what)


class ArtifactPublisherTests(TestCase):
    """A publisher in this process, with artifacts of a real proxy."""

    timeout = 180

    def setUp(self) -> Deferred[None]:  # type: ignore[override]
        self.stack = ExitStack()
        self.addCleanup(deferToThread, self.stack.close)
        self.observer = RecordingObserver()

        def shared(found: Any) -> None:
            self.authority = found.authority
            self.artifacts: Artifacts = found.artifacts
            self.statement = parsed_statement(self.artifacts.statement)
            self.receipt_id = receipt_id(Envelope.parse(self.artifacts.receipt).payload)

        return deferToThread(SHARED.get).addCallback(shared)

    async def mosquitto(self, **settings: str | Sequence[str]) -> RunningMosquitto:
        """Start a Mosquitto."""
        broker = RunningMosquitto(self.stack, {"log_type": "all", **settings})
        await deferToThread(broker.start)
        return broker

    def acl(self, *lines: str) -> str:
        """A file with the access rules of a Mosquitto."""
        path = Path(self.mktemp())
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)
        return str(path.absolute())

    def publish(self, broker: int | Address, **settings: Any) -> ArtifactPublisher:
        """Start a publisher with the statement."""
        address = TcpAddress("127.0.0.1", broker) if isinstance(broker, int) else broker
        publisher = ArtifactPublisher(
            ArtifactSettings(**settings),
            listener="iot",
            upstream=str(address),
            endpoint=PlainClientEndpoint(reactor, address, timeout=5.0),
            clock=reactor,
            turns=Turns(reactor),
            wall=utc_now,
            random=os.urandom,
            jitter=random.random,
            observer=self.observer,
        )
        self.addCleanup(publisher.stop)
        publisher.start()
        publisher.statements([self.statement])
        return publisher

    def give(self, publisher: ArtifactPublisher) -> None:
        """Publish the receipt."""
        publisher.receipt(self.receipt_id, self.artifacts.receipt, batched=False)

    def retained(self, port: int, **connect: Any) -> list[Publish]:
        """What a new subscriber gets, which blocks; MQTT 5.0 shows the properties."""
        with RawClient(port) as client:
            client.connect("reader", **connect)
            client.send(Subscribe(1, [Subscription("$.svc/#", 1)]))
            return [each for each in client.sync() if isinstance(each, Publish)]

    async def curl(self, port: int) -> RunningCurl:
        """Start ``svc curl --verify`` and wait for its subscription."""
        trusted = ("--verify", "--spiffe-socket-path", self.authority.address)
        url = f"mqtt://127.0.0.1:{port}"
        command = await deferToThread(RunningCurl, cast(BrokerCase, self), [*BOTH, *trusted, url], None, {})
        await deferToThread(command.until, "subscribed to ")
        return command

    async def test_svc_curl(self) -> None:
        """``svc curl`` prints both, verified: the statement as retained, the receipt as it comes."""
        broker = await self.mosquitto()
        publisher = self.publish(broker.port)
        await until(lambda: "workload" in self.observer.taken, "a statement")
        command = await self.curl(broker.port)
        self.give(publisher)
        for title in self.artifacts.titles():
            await deferToThread(command.until, title)
        self.assertEqual(0, await deferToThread(command.end, signal.SIGINT), command.printed)
        self.assertEqual(2, command.printed.count("ES256 valid, ML-DSA-65 valid\n"))
        self.assertEqual(([Version.V5], []), (self.observer.began, self.observer.failures))

    async def test_properties(self) -> None:
        """A subscriber of MQTT 5.0 gets content type, payload format and what is left of the expiry; no receipt."""
        broker = await self.mosquitto()
        publisher = self.publish(broker.port)
        self.give(publisher)
        await until(lambda: len(self.observer.taken) == 2, "both acknowledgements")
        [found] = await deferToThread(self.retained, broker.port)
        self.assertEqual(f"$.svc/workload/{self.statement.id}", found.topic)
        self.assertEqual(self.statement.envelope.serialize(), found.payload)
        properties = found.properties
        self.assertEqual(("application/jose+json", 1), (properties.content_type, properties.payload_format))
        left = (self.statement.expires - utc_now()).total_seconds()
        self.assertApproximates(left, float(properties.message_expiry or 0), 60)

    async def test_withdrawn(self) -> None:
        """A statement that is withdrawn is gone for new subscribers."""
        broker = await self.mosquitto()
        publisher = self.publish(broker.port)
        await until(lambda: self.observer.taken, "a statement")
        self.assertEqual(1, len(await deferToThread(self.retained, broker.port)))
        publisher.statements([])
        await until(lambda: not self.retained(broker.port), "the removal")

    async def test_killed(self) -> None:
        """A broker that is killed and started again, without what it retained, has the statement again."""
        broker = await self.mosquitto()
        publisher = self.publish(broker.port)
        await until(lambda: self.observer.taken, "a statement")
        await deferToThread(broker.kill)
        await until(lambda: self.observer.failures, "the loss of the session")
        self.give(publisher)
        await deferToThread(broker.start)
        await until(lambda: self.observer.taken == ["workload", "workload", "receipt"], "statement and receipt again")
        self.assertEqual(1, len(await deferToThread(self.retained, broker.port)))

    async def test_forbidden(self) -> None:
        """With MQTT 5.0 an ACL that forbids the prefix is seen in PUBACK, for each artifact."""
        broker = await self.mosquitto(acl_file=self.acl("topic readwrite #", "topic read $.svc/#"))
        publisher = self.publish(broker.port)
        self.give(publisher)
        await until(lambda: len(self.observer.refusals) == 2, "both refusals")
        self.assertEqual(["workload", "receipt"], [kind for kind, _error in self.observer.refusals])
        self.assertIn("not authorized (0x87)", str(self.observer.refusals[0][1]))
        self.assertEqual(([], []), (self.observer.taken, await deferToThread(self.retained, broker.port)))

    async def test_forbidden_older(self) -> None:
        """With MQTT 3.1.1 Mosquitto acknowledges what the ACL forbids: the missing probe is reported."""
        broker = await self.mosquitto(acl_file=self.acl("topic readwrite #", "topic read $.svc/#"))
        publisher = self.publish(self.stack.enter_context(older_broker(broker.port)))
        self.give(publisher)
        await until(lambda: self.observer.failures, "a report")
        self.assertEqual((["artifacts_probe_missing"], []), (self.observer.reasons, self.observer.taken))
        acknowledged = "Sending PUBACK to svc-artifacts-"
        await until(lambda: acknowledged in broker.log_path.read_text(), "the PUBACK in the log")

    async def test_older(self) -> None:
        """With MQTT 3.1.1 the probe comes back from an open broker, and ``svc curl`` gets all."""
        broker = await self.mosquitto()
        port = self.stack.enter_context(older_broker(broker.port))
        publisher = self.publish(port)
        await until(lambda: self.observer.taken, "a statement")
        self.assertEqual([Version.V311], self.observer.began)
        command = await self.curl(broker.port)
        self.give(publisher)
        for title in self.artifacts.titles():
            await deferToThread(command.until, title)
        self.assertEqual(0, await deferToThread(command.end, signal.SIGINT), command.printed)

    async def test_user(self) -> None:
        """With a user and a password the broker's ACL can grant the prefix to the proxy alone."""
        passwords = Path(self.mktemp()).absolute()
        await deferToThread(run, [find("mosquitto_passwd"), "-b", "-c", passwords, "svc", "hunter2"])
        acl = self.acl("topic read $.svc/#", "user svc", "topic readwrite $.svc/#")
        broker = await self.mosquitto(password_file=str(passwords), acl_file=acl)
        secret = Path(self.mktemp()).absolute()
        secret.write_bytes(b"wrong")
        secret.chmod(0o600)
        publisher = self.publish(broker.port, username="svc", passwordFile=str(secret))
        await until(lambda: self.observer.failures, "a refusal")
        self.assertEqual("artifacts_connection_refused", self.observer.reasons[0])
        secret.write_bytes(b"hunter2")
        await until(lambda: self.observer.taken, "a statement")
        self.give(publisher)
        await until(lambda: len(self.observer.taken) == 2, "a receipt")
        self.assertEqual(1, len(await deferToThread(self.retained, broker.port)))

    async def test_socket(self) -> None:
        """The broker may listen on a Unix socket."""
        path = str(short_folder(self.stack) / "mosquitto.sock")
        broker = await self.mosquitto(listener=f"0 {path}")
        self.publish(UnixAddress(path))
        await until(lambda: self.observer.taken, "a statement")
        self.assertEqual(1, len(await deferToThread(self.retained, broker.port)))

    async def test_clean_end(self) -> None:
        """At the end what waits is published, Mosquitto gets a DISCONNECT, and the statement stays."""
        broker = await self.mosquitto()
        publisher = self.publish(broker.port)
        await until(lambda: self.observer.taken, "a statement")
        for _ in range(100):
            self.give(publisher)
        await publisher.stop()
        self.assertEqual((101, [0]), (len(self.observer.taken), self.observer.left))
        disconnected = "Received DISCONNECT from svc-artifacts-"
        await until(lambda: disconnected in broker.log_path.read_text(), "the DISCONNECT")
        self.assertEqual(1, len(await deferToThread(self.retained, broker.port)))

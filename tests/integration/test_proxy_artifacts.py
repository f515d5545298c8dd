"""Artifacts of a real proxy on the Mosquitto behind its MQTT listener."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.envelope import Envelope
from svc.envelope.ids import statement_id
from svc.wire.mqtt import Acknowledgement, PacketType, Publish, ReasonCode, Subscribe, Subscription, Version
from tests.integration.test_curl_mqtt import BrokerCase
from tests.integration.test_curl_mqtt import Subscription as RunningCurl
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials
from tests.peers.mosquitto import RunningMosquitto
from tests.peers.mqttclient import RawClient
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually, free_port

PREFIX = "plant/notary"


class ProxyArtifactsTests(SynchronousTestCase):
    """One proxy for each test, since brokers end and the configuration changes."""

    def setUp(self) -> None:
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        entries = [entry("/ns/shop/sa/api"), entry("/ns/iot/sa/device")]
        self.authority = self.stack.enter_context(RunningAuthority(entries=entries))
        self.mosquitto = RunningMosquitto(self.stack, {"log_type": "all"}).start()
        self.port = free_port()
        self.listener: dict[str, Any] = {
            "name": "iot",
            "protocol": "mqtt",
            "direction": "inbound",
            "listen": f"127.0.0.1:{self.port}",
            "upstream": f"127.0.0.1:{self.mosquitto.port}",
            "artifacts": {"prefix": PREFIX},
        }
        self.proxy = RunningProxy(self.authority, "127.0.0.1:1", settings={"listeners": [self.listener]})
        self.stack.enter_context(self.proxy)

    def retained(self) -> list[Publish]:
        """What a new subscriber of the broker gets below the prefix."""
        with RawClient(self.mosquitto.port) as client:
            client.connect("reader")
            client.send(Subscribe(1, [Subscription(f"{PREFIX}/#", 1)]))
            return [each for each in client.sync() if isinstance(each, Publish)]

    def statement(self) -> Publish:
        """The one statement."""
        [found] = eventually(self.retained, what="a statement")
        return found

    def condition(self) -> dict[str, Any]:
        """The condition on the readiness page, of a proxy that is ready."""
        return self.proxy.readiness()["artifacts"]

    def test_statement(self) -> None:
        """The current statement is retained, hybrid, and svc curl verifies it."""
        found = self.statement()
        envelope = Envelope.parse(found.payload)
        self.assertEqual(f"{PREFIX}/workload/{statement_id(envelope.payload)}", found.topic)
        trusted = ("--print-workload", "--verify", "--spiffe-socket-path", self.authority.address)
        command = RunningCurl(
            cast(BrokerCase, self),
            [*trusted, f"mqtt://127.0.0.1:{self.mosquitto.port}"],
            None,
            {"SVC_ARTIFACT_PREFIX": PREFIX},
        )
        command.until("Signatures: ES256 valid, ML-DSA-65 valid\n")
        self.assertEqual(0, command.end(signal.SIGINT), command.printed)
        eventually(lambda: self.condition()["ok"], what="the condition")
        labels = {"kind": "workload", "result": "published"}
        self.assertEqual(1, self.proxy.metric("svc_proxy_mqtt_artifacts_total", **labels))

    def test_protected(self) -> None:
        """No client of the listener publishes below the prefix, whatever the policies allow, or has its will there."""
        self.statement()
        credentials = Credentials.fetch(self.authority, short_folder(self.stack), "/ns/iot/sa/device")
        with RawClient(self.port, Version.V5, tls=credentials.context().wrap_socket) as client:
            self.assertEqual(0, client.connect("device").code)
            for number, topic in enumerate((PREFIX, f"{PREFIX}/receipt/x", "$.svc/receipt/x"), 1):
                client.send(Publish(topic, b"x", 1, packet_id=number))
                refused = Acknowledgement(PacketType.PUBACK, number, ReasonCode.NOT_AUTHORIZED)
                self.assertEqual(refused, client.receive())
            client.send(Publish(f"{PREFIX}2", b"x", 1, packet_id=9))
            answer = client.receive()
            assert isinstance(answer, Acknowledgement)
            self.assertLess(answer.code, 0x80)
        self.assertEqual(1, len(self.retained()))

    def test_outage(self) -> None:
        """A broker that is away is shown, and does not make the proxy unready; the statement comes again."""
        self.statement()
        self.mosquitto.kill()
        eventually(lambda: not self.condition()["ok"], what="the condition")
        self.assertEqual(200, self.proxy.page("/readyz")[0])
        self.mosquitto.start()
        self.statement()
        eventually(lambda: self.condition()["ok"], what="the condition")
        # One for each cause: the connection that was lost, and one that was refused.
        record, *_others = eventually(lambda: self.proxy.records("svc.proxy.artifacts.failed"), what="the record")
        self.assertEqual(PREFIX, record["attributes"]["prefix"])

    def test_end(self) -> None:
        """A reload without artifacts, and the end of the proxy, end its session in order."""
        self.statement()
        disconnected = "Received DISCONNECT from svc-artifacts-"
        log = self.mosquitto.log_path
        self.proxy.halt()
        eventually(lambda: log.read_text().count(disconnected) == 1, what="a DISCONNECT")
        self.proxy.start()
        eventually(lambda: log.read_text().count("as svc-artifacts-") == 2, what="another session")
        del self.listener["artifacts"]
        self.proxy.write_config()
        self.proxy.signal(signal.SIGHUP)
        eventually(lambda: log.read_text().count(disconnected) == 2, what="a DISCONNECT after the reload")
        # That of the first process is valid as well.
        self.assertEqual(2, len(self.retained()))

"""MQTT through an inbound listener, and through an outbound and an inbound one, with Mosquitto and our own broker."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from paho.mqtt import client as paho
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import (
    Acknowledgement,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Properties,
    Publish,
    ReasonCode,
    ReturnCode,
    Suback,
    Subscribe,
    Subscription,
    Version,
    Will,
)
from tests.integration.test_broker_clients import Paho
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials
from tests.peers.mosquitto import RunningMosquitto
from tests.peers.mqttclient import RawClient
from tests.peers.programs import find, run
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually, free_port

ID = "spiffe://example.org/ns/shop/sa/api"
DEVICE = "spiffe://example.org/ns/iot/sa/device"
VERSIONS = (Version.V311, Version.V5)
QUALITIES = (0, 1, 2)
NOT_AUTHORIZED = ReasonCode.NOT_AUTHORIZED
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
    ours = stack.enter_context(RunningBroker())
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
        "ours": ours.port,
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
        authority=authority,
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


def puback(packet_id: int, code: int = 0) -> Acknowledgement:
    """A PUBACK."""
    return Acknowledgement(PacketType.PUBACK, packet_id, code)


class MessageTests(_Case):
    """Messages in both directions."""

    def exchange(self, client: RawClient, topic: str) -> None:
        """Send messages of each QoS to oneself, and disconnect."""
        client.send(Subscribe(1, [Subscription(topic, 2)]))
        self.assertEqual(client.receive(), Suback(1, [2]))
        for qos in QUALITIES:
            client.send(Publish(topic, b"%d" % qos, qos, packet_id=qos))  # type: ignore[arg-type]
        came: list[Packet] = []
        while sum(isinstance(each, Publish) for each in came) < 3:
            packet = client.receive()
            assert packet is not None
            came.append(packet)
            client.acknowledge([packet])
            if isinstance(packet, Acknowledgement) and packet.type is PacketType.PUBREC:
                client.send(Acknowledgement(PacketType.PUBREL, packet.packet_id))
        found = sorted((each.payload, each.qos) for each in came if isinstance(each, Publish))
        self.assertEqual(found, [(b"0", 0), (b"1", 1), (b"2", 2)])
        client.send(Disconnect())
        self.assertEqual([each for each in client.until_end() if isinstance(each, Disconnect)], [])

    def test_all_qualities(self) -> None:
        """Messages of each QoS pass with both versions, through one proxy and through two."""
        for name in ("open", "pair"):
            for version in VERSIONS:
                client = self.client(name, version)
                self.assertEqual(client.connect(f"messages-{name}-{version}").code, 0)
                self.exchange(client, f"messages/{name}/{version}")

    def test_other_clients(self) -> None:
        """paho-mqtt, mosquitto_pub and mosquitto_sub, with each QoS and both versions."""
        for name, port, tls in self.places():
            with ExitStack() as stack:
                for version in (paho.MQTTv311, paho.MQTTv5):
                    client = Paho(
                        stack, port, paho.CallbackAPIVersion.VERSION2, version, f"paho-{name}-{version}", tls=tls
                    )
                    topic = f"paho/{name}/{version}"
                    self.assertEqual(client.subscribes(topic, 2), [2])
                    sent = [(b"%d-%d" % (qos, number), qos) for qos in QUALITIES for number in range(5)]
                    for payload, qos in sent:
                        client.publishes(topic, payload, qos)
                    came = client.receives(len(sent))
                    self.assertEqual(sorted(came), sorted((payload, qos, False) for payload, qos in sent))
                for version_name in ("311", "5"):
                    for qos in map(str, QUALITIES):
                        topic = f"mosquitto/{name}/{version_name}/{qos}"
                        options = ["-V", version_name, "-q", qos, "-t", topic]
                        run([find("mosquitto_pub"), *self.at(name), *options, "-m", "kept", "-r"])
                        got = run(
                            [find("mosquitto_sub"), *self.at(name), *options, "-C", "1", "-W", "60", "-F", "%q %p"]
                        )
                        self.assertEqual((got.returncode, got.stdout), (0, f"{qos} kept\n".encode()), got.stderr)

    def places(self) -> list[tuple[str, int, ssl.SSLContext | None]]:
        """The listeners that lead to the open broker, with their ports and TLS settings."""
        context = self.rig.credentials.context()
        return [("open", self.rig.inbound["open"], context), ("pair", self.rig.outbound, None)]

    def at(self, name: str) -> list[str]:
        """Options of Mosquitto's clients."""
        if name == "pair":
            return ["-h", "127.0.0.1", "-p", str(self.rig.outbound)]
        files = self.rig.credentials
        where = ["-h", "127.0.0.1", "-p", str(self.rig.inbound[name]), "--cafile", str(files.roots), "--insecure"]
        return [*where, "--cert", str(files.certificate), "--key", str(files.key)]

    def test_our_own_broker(self) -> None:
        """The same with ``svc-broker`` behind the listener."""
        for version in VERSIONS:
            client = self.client("ours", version)
            self.assertEqual(client.connect(f"ours-{version}").code, 0)
            self.exchange(client, f"ours/{version}")

    def test_properties(self) -> None:
        """Properties pass, those of the proxy's own names do not; a nonce reaches no broker."""
        watcher = self.direct()
        watcher.connect("properties-watcher")
        watcher.send(Subscribe(1, [Subscription("properties")]))
        watcher.receive()
        for name in ("open", "pair"):
            client = self.client(name)
            client.connect(f"properties-{name}")
            user = (("a", "1"), ("svc-nonce", "n"), ("svc-x", "x"), ("a", "2"))
            client.send(Publish("properties", b"", properties=Properties(content_type="text", user=user)))
            message = watcher.receive()
            assert isinstance(message, Publish)
            self.assertEqual(message.properties, Properties(content_type="text", user=(("a", "1"), ("a", "2"))))

    def test_large_messages(self) -> None:
        """Messages near the limit, in many reads, and through a slow reader; a larger one is refused."""
        payload = os.urandom(1024 * 1024 - 200)
        for name in ("open", "pair"):
            client = self.client(name)
            self.assertEqual(client.connect(f"large-{name}").properties.maximum_packet_size, 1024 * 1024)
            client.send(Subscribe(1, [Subscription(f"large/{name}")]))
            client.receive()
            for number in range(1, 9):
                client.send(Publish(f"large/{name}", payload, 1, packet_id=number))
            came = [client.receive() for _ in range(16)]
            self.assertEqual(sum(each == puback(n) for each in came for n in range(1, 9)), 8)
            self.assertEqual(sum(isinstance(each, Publish) and each.payload == payload for each in came), 8)
            client.send(Publish(f"large/{name}", payload + bytes(300)))
            self.assertEqual(client.until_end()[-1], Disconnect(ReasonCode.PACKET_TOO_LARGE))


class SessionTests(_Case):
    """Session state, acknowledgements and wills are those of client and broker."""

    def test_session_is_kept(self) -> None:
        """Messages for a client that is away are delivered when it is back, each once."""
        for name in ("open", "pair"):
            for version in VERSIONS:
                properties = Properties(session_expiry=100 if version is Version.V5 else None)
                client_id, topic = f"kept-{name}-{version}", f"kept/{name}/{version}"
                client = self.client(name, version)
                self.assertFalse(client.connect(client_id, clean_start=False, properties=properties).session_present)
                client.send(Subscribe(1, [Subscription(topic, 2)]))
                client.receive()
                client.close()
                other = self.direct(version)
                other.connect("other")
                for qos in (1, 2):
                    other.send(Publish(topic, b"%d" % qos, qos, packet_id=qos))
                    if qos == 2:
                        other.receive()
                        other.send(Acknowledgement(PacketType.PUBREL, 2))
                    other.receive()
                client = self.client(name, version)
                self.assertTrue(client.connect(client_id, clean_start=False, properties=properties).session_present)
                came = [client.receive(), client.receive()]
                client.acknowledge([each for each in came if each is not None])
                self.assertEqual([each.payload for each in came if isinstance(each, Publish)], [b"1", b"2"])
                client.send(Disconnect())
                client.until_end()

    def test_interrupted_exchange(self) -> None:
        """A message with QoS 2 whose connection ends after PUBREC is delivered once, whatever is repeated."""
        for name in ("open", "pair"):
            watcher = self.direct()
            watcher.connect("once")
            watcher.send(Subscribe(1, [Subscription(f"once/{name}", 2)]))
            watcher.receive()
            properties = Properties(session_expiry=100)
            message = Publish(f"once/{name}", b"x", 2, packet_id=5)
            client = self.client(name)
            client.connect(f"sender-{name}", clean_start=False, properties=properties)
            client.send(message)
            self.assertEqual(client.receive(), Acknowledgement(PacketType.PUBREC, 5))
            client.close()
            client = self.client(name)
            self.assertTrue(client.connect(f"sender-{name}", clean_start=False, properties=properties).session_present)
            message.dup = True
            client.send(message)
            self.assertEqual(client.receive(), Acknowledgement(PacketType.PUBREC, 5))
            client.send(Acknowledgement(PacketType.PUBREL, 5))
            self.assertEqual(client.receive(), Acknowledgement(PacketType.PUBCOMP, 5))
            self.assertIsInstance(watcher.receive(), Publish)
            self.assertEqual([each for each in watcher.sync() if isinstance(each, Publish)], [])

    def test_will(self) -> None:
        """The will of a client that vanishes is published, that of one that disconnects is not."""
        for name in ("open", "pair"):
            for version in VERSIONS:
                topic = f"will/{name}/{version}"
                watcher = self.direct(version)
                watcher.connect("watcher")
                watcher.send(Subscribe(1, [Subscription(topic, 1)]))
                watcher.receive()
                for payload, politely in ((b"polite", True), (b"gone", False)):
                    client = self.client(name, version)
                    client.connect("with-will", will=Will(topic, payload, 1))
                    if politely:
                        client.send(Disconnect())
                        client.until_end()
                    client.close()
                message = watcher.receive()
                assert isinstance(message, Publish)
                self.assertEqual(message.payload, b"gone")

    def test_taken_over(self) -> None:
        """A second client with the same identifier takes the session; the first is told by the broker."""
        first = self.client("ours")
        first.connect("taken")
        self.client("ours").connect("taken")
        self.assertEqual(first.until_end(), [Disconnect(ReasonCode.SESSION_TAKEN_OVER)])

    def test_keep_alive(self) -> None:
        """A client that sends nothing is closed; one that pings is not."""
        silent, alive = self.client(), self.client()
        silent.connect("silent", keep_alive=1)
        alive.connect("alive", keep_alive=1)
        came: list[Packet] = []
        deadline = time.monotonic() + 60
        while not silent.ended and time.monotonic() < deadline:
            alive.sync()
            with contextlib.suppress(TimeoutError):
                came += [each for each in [silent.receive(0.3)] if each is not None]
        # Mosquitto, which counts the same time, may close first and gives no reason.
        self.assertIn(came, [[Disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT)], [Disconnect(ReasonCode.SERVER_BUSY)]])
        self.assertEqual((alive.sync(), alive.ended), ([], False))


class RefusalTests(_Case):
    """What the broker or the policies refuse."""

    def test_acl_of_the_broker(self) -> None:
        """Refusals of the broker for a message are passed on."""
        client = self.client("guarded")
        client.connect("guarded")
        client.send(Publish("open/x", b"", 1, packet_id=1), Publish("closed/x", b"", 1, packet_id=2))
        answers = {each.packet_id: each.code for each in (client.receive(), client.receive())}
        self.assertEqual((answers[1] < 0x80, answers[2]), (True, NOT_AUTHORIZED))

    def test_refused_session(self) -> None:
        """The CONNACK of the broker is passed on, and counted."""
        counter = "svc_proxy_mqtt_upstream_connack_rejected_total"
        for version, code, reason in (
            (Version.V5, NOT_AUTHORIZED, "not_authorized"),
            (Version.V311, ReturnCode.NOT_AUTHORIZED, "not_authorized"),
        ):
            before = self.proxy.metric(counter, reason=reason)
            client = self.client("closed", version)
            self.assertEqual(client.connect("c", username="u", password=b"p").code, code)
            self.assertEqual(client.until_end(), [])
            eventually(lambda: self.proxy.metric(counter, reason=reason) == before + 1)  # noqa: B023 (called at once)
        record = eventually(lambda: self.proxy.records("svc.proxy.upstream.failed"))[-1]
        self.assertNotIn("password", json.dumps(record))

    def test_no_broker(self) -> None:
        """Where the broker cannot be reached the client is told."""
        for version, code in ((Version.V5, 0x88), (Version.V311, 3)):
            client = self.client("absent", version)
            self.assertEqual(client.connect("c").code, code)
            self.assertEqual(client.until_end(), [])

    def test_policies(self) -> None:
        """A client that no rule admits gets the reason; the denial names policy and rule."""
        for version, code in ((Version.V5, NOT_AUTHORIZED), (Version.V311, 5)):
            client = self.client("nobody", version)
            self.assertEqual(client.connect("c").code, code)
            self.assertEqual(client.until_end(), [])
        record = eventually(lambda: self.proxy.records("svc.proxy.request.denied"))[0]
        self.assertEqual((record["attributes"]["policy"], record["peer_spiffe_id"]), ("default-deny", DEVICE))
        closed = {"protocol": "mqtt", "cause": "policy_deny"}
        eventually(lambda: self.proxy.metric("svc_proxy_connections_closed_total", **closed) >= 2)

    def test_client_identifiers(self) -> None:
        """A client uses the identifiers of its service account."""
        for client_id, code in (("device-7", 0), ("api-7", 0x85), ("", 0x85)):
            self.assertEqual(self.client("named").connect(client_id).code, code)

    def test_reserved_topics(self) -> None:
        """Topics that begin with $ are refused, through both proxies."""
        for name in ("open", "pair"):
            client = self.client(name)
            client.connect(f"reserved-{name}")
            client.send(Publish("$SYS/x", b"", 1, packet_id=1), Publish("t", b"", 0))
            self.assertEqual(client.receive(), puback(1, NOT_AUTHORIZED))
            old = self.client(name, Version.V311)
            old.connect(f"reserved-old-{name}")
            old.send(Publish("$SYS/x", b"", 1, packet_id=1))
            self.assertEqual(old.until_end(), [])

    def test_unauthenticated_clients(self) -> None:
        """A client without an SVID does not get through TLS."""
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        bare.check_hostname = False
        bare.load_verify_locations(str(self.rig.credentials.roots))
        client = RawClient(self.rig.inbound["open"], tls=bare.wrap_socket)
        self.addCleanup(client.close)
        client.send(Connect("c"))
        self.assertEqual(client.until_end(), [])


class ChangeTests(_Case):
    """What happens to open connections."""

    def write(self, text: str) -> None:
        """Replace the policy file as editors do."""
        new = Path(self.rig.folder, "new")
        new.write_text(text)
        before = len(self.proxy.records("svc.proxy.policy.loaded"))
        os.rename(new, self.rig.rules)
        eventually(lambda: len(self.proxy.records("svc.proxy.policy.loaded")) > before, what="other policies in force")

    def test_changed_policies(self) -> None:
        """Exactly the clients that are refused now are closed, with the reason and without their will."""
        watcher = self.direct()
        watcher.connect("policy-watcher")
        watcher.send(Subscribe(1, [Subscription("policy/will")]))
        watcher.receive()
        held, kept = self.client("other"), self.client("open")
        held.connect("held", will=Will("policy/will", b""))
        kept.connect("kept")
        closed = {"protocol": "mqtt", "cause": "reauthorization"}
        before = self.proxy.metric("svc_proxy_connections_closed_total", **closed)
        self.addCleanup(self.write, policies())
        self.write(policies("other"))
        self.assertEqual(held.until_end(), [Disconnect(NOT_AUTHORIZED)])
        self.assertEqual((kept.sync(), kept.ended), ([], False))
        eventually(lambda: self.proxy.metric("svc_proxy_connections_closed_total", **closed) == before + 1)
        self.assertEqual(watcher.sync(), [])

    def test_broker_is_killed(self) -> None:
        """Its clients are told and closed; when it is back they can connect again."""
        with ExitStack() as stack:
            authority, broker = self.rig.authority, RunningMosquitto(stack).start()
            port = free_port()
            proxy = stack.enter_context(_proxy(authority, port, broker.port))
            context = self.rig.credentials.context()
            for version in VERSIONS:
                client = RawClient(port, version, tls=context.wrap_socket)
                stack.callback(client.close)
                client.connect("c")
                broker.kill()
                told = [Disconnect(ReasonCode.SERVER_BUSY)] if version is Version.V5 else []
                self.assertEqual(client.until_end(), told)
                broker.start()
                client = RawClient(port, version, tls=context.wrap_socket)
                stack.callback(client.close)
                self.assertEqual(client.connect("c").code, 0)
                client.close()
            closed = {"protocol": "mqtt", "cause": "application"}
            eventually(lambda: proxy.metric("svc_proxy_connections_closed_total", **closed) == 2)

    def test_drain(self) -> None:
        """A proxy that ends tells its clients, and does not wait for them."""
        with ExitStack() as stack:
            port = free_port()
            proxy = _proxy(self.rig.authority, port, self.rig.mosquitto.port)
            stack.enter_context(proxy)
            client = RawClient(port, tls=self.rig.credentials.context().wrap_socket)
            stack.callback(client.close)
            client.connect("drained")
            proxy.stop()
            self.assertEqual(client.until_end(), [Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)])

    def test_reports(self) -> None:
        """A connection has one record, and its metrics the protocol."""
        client = self.client()
        client.connect("reported")
        client.send(Publish("t", b"", 1, packet_id=1))
        client.receive()
        client.send(Disconnect())
        client.until_end()

        def found() -> list[dict[str, Any]]:
            records = self.proxy.records("svc.proxy.connection.served")
            return [each for each in records if each["attributes"]["listener"] == "open"]

        record = eventually(found)[-1]
        self.assertEqual((record["peer_spiffe_id"], record["attributes"]["policy"]), (DEVICE, "topics"))
        for name, labels in (
            ("svc_proxy_connections_total", {"direction": "inbound", "result": "success", "protocol": "mqtt"}),
            ("svc_proxy_tls_handshake_duration_seconds_count", {"role": "server", "protocol": "mqtt"}),
            ("svc_proxy_mqtt_buffer_messages_stored_total", {}),
            ("svc_proxy_mqtt_buffer_messages_acked_total", {"source": "upstream"}),
            ("svc_proxy_bytes_sent_total", {"protocol": "mqtt"}),
        ):
            self.assertGreater(self.proxy.metric(name, **labels), 0, name)


def _proxy(authority: RunningAuthority, port: int, broker: int) -> RunningProxy:
    """A proxy with a listener for a broker, and nothing else that matters."""
    listener = {
        "name": "iot",
        "protocol": "mqtt",
        "direction": "inbound",
        "listen": f"127.0.0.1:{port}",
        "upstream": f"127.0.0.1:{broker}",
    }
    return RunningProxy(authority, "127.0.0.1:1", listeners=[listener])

"""Clients that others wrote before the broker: paho-mqtt, mosquitto_pub and mosquitto_sub, plain and over TLS."""

from __future__ import annotations

import queue
import ssl
import subprocess
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from paho.mqtt import client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from twisted.trial.unittest import SynchronousTestCase

from tests.peers.broker import RunningBroker
from tests.peers.daemon import environment
from tests.peers.folders import short_folder
from tests.peers.programs import find, run
from tests.peers.waiting import Shared, eventually, free_port

VERSIONS = (paho.MQTTv311, paho.MQTTv5)
CALLBACKS = (paho.CallbackAPIVersion.VERSION1, paho.CallbackAPIVersion.VERSION2)
EVERYTHING = [{"who": "anonymous", "publish": ["#"], "subscribe": ["#"]}]
QUALITIES = (0, 1, 2)


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a certificate for this machine, which is its own authority, and its key."""
    files = folder / f"{name}.pem", folder / f"{name}-key.pem"
    made = run(
        [
            find("openssl"),
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-out", files[0], "-keyout", files[1]),
        ]
    )
    assert made.returncode == 0, made.stderr
    return files


class Site:
    """
    A broker with a plain listener and one with a certificate.

    Args:
        stack: ends it.
    """

    def __init__(self, stack: ExitStack) -> None:
        folder = short_folder(stack)
        self.roots, key = certificate(folder, "server")
        self.tls_port = free_port()
        tls = {"certificate": str(self.roots), "key": str(key)}
        secured = {"name": "tls", "listen": f"127.0.0.1:{self.tls_port}", "tls": tls, "acl": EVERYTHING}
        self.broker = stack.enter_context(RunningBroker(listeners=[secured]))

    def context(self, version: ssl.TLSVersion) -> ssl.SSLContext:
        """TLS settings of one version that verify the broker's name."""
        context = ssl.create_default_context(cafile=str(self.roots))
        context.minimum_version = context.maximum_version = version
        return context


SITE = Shared(Site)


class Paho:
    """
    A client of paho-mqtt whose thread runs.

    Args:
        stack: ends it.
        port: the broker's.
        callbacks: which form of callbacks it uses.
        version: the version of MQTT.
        name: its identifier.
        tls: TLS settings.
        will: topic and payload.
        login: user name and password.
        clean: whether its session ends with the connection.
    """

    def __init__(
        self,
        stack: ExitStack,
        port: int,
        callbacks: paho.CallbackAPIVersion,
        version: paho.MQTTProtocolVersion,
        name: str,
        *,
        tls: ssl.SSLContext | None = None,
        will: tuple[str, bytes] | None = None,
        login: tuple[str, str] | None = None,
        clean: bool = True,
    ) -> None:
        self.connected: queue.Queue[bool] = queue.Queue()
        self.granted: queue.Queue[list[int]] = queue.Queue()
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        v5 = version == paho.MQTTv5
        with warnings.catch_warnings():
            # The first form of callbacks is deprecated, and used all over the world.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.client = paho.Client(
                callbacks,
                name,
                protocol=version,
                **({} if v5 else {"clean_session": clean}),  # type: ignore[arg-type]
            )
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_message = lambda _client, _data, message: self.messages.put(message)
        if tls is not None:
            self.client.tls_set_context(tls)
        if login is not None:
            self.client.username_pw_set(*login)
        if will is not None:
            self.client.will_set(*will, qos=1)
        more: dict[str, Any] = {}
        if v5:
            properties = PahoProperties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 0 if clean else 100
            more = {"clean_start": clean, "properties": properties}
        self.client.connect("localhost", port, keepalive=30, **more)
        self.client.loop_start()
        stack.callback(self.ends)
        self.present = self.connected.get(timeout=60)

    def _on_connect(self, _client: Any, _data: Any, flags: Any, reason: Any, _properties: Any = None) -> None:
        assert reason == 0, reason
        self.connected.put(bool(flags["session present"] if isinstance(flags, dict) else flags.session_present))

    def _on_subscribe(self, _client: Any, _data: Any, _mid: int, codes: Any, _properties: Any = None) -> None:
        self.granted.put([getattr(each, "value", each) for each in codes])

    def subscribes(self, topic: str, qos: int) -> list[int]:
        """Subscribe and wait for the answer."""
        self.client.subscribe(topic, qos)
        return self.granted.get(timeout=60)

    def publishes(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        """Publish, and wait until all packets were exchanged."""
        self.client.publish(topic, payload, qos, retain).wait_for_publish(10)

    def receives(self, count: int) -> list[tuple[bytes, int, bool]]:
        """Wait for messages; return payload, QoS and retain flag."""
        came = [self.messages.get(timeout=60) for _ in range(count)]
        return [(each.payload, each.qos, bool(each.retain)) for each in came]  # type: ignore[misc]

    def ends(self) -> None:
        """Send DISCONNECT."""
        self.client.disconnect()
        self.client.loop_stop()

    def breaks(self) -> None:
        """Lose the connection without a DISCONNECT."""
        sock = self.client.socket()
        self.client.loop_stop()
        assert sock is not None
        sock.close()


class PahoTests(SynchronousTestCase):
    """paho-mqtt with both forms of callbacks and both versions of MQTT."""

    def setUp(self) -> None:
        """All tests use the same broker."""
        self.site: Site = SITE.get()
        stack = ExitStack()
        self.stack = stack
        self.addCleanup(stack.close)

    def client(
        self, callbacks: paho.CallbackAPIVersion, version: paho.MQTTProtocolVersion, name: str, **more: Any
    ) -> Paho:
        """Connect a client."""
        port = self.site.tls_port if "tls" in more else self.site.broker.port
        return Paho(self.stack, port, callbacks, version, f"{name}-{callbacks.value}-{version}", **more)

    def test_messages(self) -> None:
        """Messages of every QoS go round in their order, each with the QoS that was granted."""
        for callbacks in CALLBACKS:
            for version in VERSIONS:
                client = self.client(callbacks, version, "messages")
                topic = f"paho/{callbacks.value}/{version}"
                self.assertEqual(client.subscribes(topic, 2), [2])
                sent = [(b"%d-%d" % (qos, number), qos) for qos in QUALITIES for number in range(5)]
                for payload, qos in sent:
                    client.publishes(topic, payload, qos)
                came = client.receives(len(sent))
                self.assertEqual(sorted(came), sorted((payload, qos, False) for payload, qos in sent))
                for qos in QUALITIES:
                    self.assertEqual(
                        [each[0] for each in came if each[1] == qos], [b"%d-%d" % (qos, n) for n in range(5)]
                    )

    def test_session(self) -> None:
        """Messages for a disconnected client are queued; its will is published."""
        for callbacks in CALLBACKS:
            for version in VERSIONS:
                topic = f"session/{callbacks.value}/{version}"
                other = self.client(callbacks, version, "other")
                self.assertEqual(other.subscribes(f"{topic}/will", 1), [1])
                first = self.client(callbacks, version, "away", clean=False, will=(f"{topic}/will", b"gone"))
                self.assertFalse(first.present)
                first.subscribes(topic, 2)
                first.breaks()
                self.assertEqual(other.receives(1), [(b"gone", 1, False)])
                for qos in (1, 2):
                    other.publishes(topic, b"%d" % qos, qos)
                again = self.client(callbacks, version, "away", clean=False)
                self.assertTrue(again.present)
                self.assertEqual(again.receives(2), [(b"1", 1, False), (b"2", 2, False)])

    def test_retained(self) -> None:
        """A retained message has its flag, and is gone when it was cleared."""
        for version in VERSIONS:
            topic = f"retained/{version}"
            client = self.client(CALLBACKS[1], version, "retained")
            client.publishes(topic, b"kept", 1, retain=True)
            client.subscribes(topic, 1)
            self.assertEqual(client.receives(1), [(b"kept", 1, True)])
            client.publishes(topic, b"", 1, retain=True)
            self.assertEqual(client.receives(1), [(b"", 1, False)])
            client.subscribes(topic, 1)
            client.publishes(topic, b"only this", 1)
            self.assertEqual(client.receives(1), [(b"only this", 1, False)])

    def test_tls(self) -> None:
        """TLS 1.2 and 1.3 with the broker's certificate, whose name is verified."""
        for tls in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            for version in VERSIONS:
                client = self.client(CALLBACKS[1], version, f"tls{tls.value}", tls=self.site.context(tls))
                topic = f"tls/{tls.value}/{version}"
                client.subscribes(topic, 2)
                client.publishes(topic, bytes(200_000), 2)
                self.assertEqual(client.receives(1), [(bytes(200_000), 2, False)])
                self.assertEqual(client.client.socket().version(), f"TLSv1.{tls.value - 0x301}")

    def test_older_tls(self) -> None:
        """TLS 1.1 is not supported."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(str(self.site.roots))
        context.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            self.client(CALLBACKS[1], paho.MQTTv5, "old", tls=context)


class MosquittoTests(SynchronousTestCase):
    """Debian's mosquitto_pub and mosquitto_sub."""

    def setUp(self) -> None:
        """Find them, and the broker."""
        self.publisher, self.subscriber = find("mosquitto_pub"), find("mosquitto_sub")
        self.site: Site = SITE.get()
        self.plain = ["-h", "localhost", "-p", str(self.site.broker.port)]

    def publish(self, *arguments: str, at: list[str] | None = None) -> None:
        """Publish; it must succeed without output."""
        done = run([self.publisher, *(at or self.plain), *arguments])
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))

    def watching(self, *arguments: str, at: list[str] | None = None) -> subprocess.Popen[bytes]:
        """Start a subscriber of one more subscription, and wait until the broker has it."""
        before = self.site.broker.metric("svc_broker_subscriptions")
        process = subprocess.Popen(
            [self.subscriber, *(at or self.plain), "-W", "60", *arguments],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        eventually(lambda: self.site.broker.metric("svc_broker_subscriptions") > before, what="a subscription")
        return process

    def printed(self, process: subprocess.Popen[bytes]) -> bytes:
        """Give what a subscriber printed until it ended by itself."""
        out, errors = process.communicate(timeout=120)
        self.assertEqual((process.returncode, errors), (0, b""))
        return out

    def test_qualities(self) -> None:
        """Every QoS in both versions."""
        for version in ("311", "5"):
            for qos in map(str, QUALITIES):
                topic = f"mosquitto/{version}/{qos}"
                options = ["-V", version, "-q", qos, "-t", topic]
                watcher = self.watching(*options, "-C", "3", "-F", "%q %r %p")
                for word in ("one", "two", "three"):
                    self.publish(*options, "-m", word)
                self.assertEqual(self.printed(watcher), f"{qos} 0 one\n{qos} 0 two\n{qos} 0 three\n".encode())

    def test_retained(self) -> None:
        """A retained message is kept for later subscribers until it is cleared."""
        topic = "mosquitto/retained"
        self.publish("-t", topic, "-m", "kept", "-r", "-q", "1")
        got = run([self.subscriber, *self.plain, "-t", topic, "-C", "1", "-W", "60", "-F", "%r %p"])
        self.assertEqual((got.returncode, got.stdout), (0, b"1 kept\n"))
        self.publish("-t", topic, "-n", "-r", "-q", "1")
        none = run([self.subscriber, *self.plain, "-t", topic, "-C", "1", "-W", "1"])
        self.assertEqual(none.stdout, b"")

    def test_will(self) -> None:
        """The will of a subscriber that is killed is published."""
        watcher = self.watching("-t", "mosquitto/will", "-q", "1", "-C", "1")
        options = ["--will-topic", "mosquitto/will", "--will-payload", "gone", "--will-qos", "1"]
        self.watching("-t", "mosquitto/other", *options).kill()
        self.assertEqual(self.printed(watcher), b"gone\n")

    def test_properties(self) -> None:
        """Properties of MQTT 5.0 arrive in their order."""
        watcher = self.watching("-V", "5", "-t", "mosquitto/properties", "-C", "1", "-F", "%C %R %P %p")
        named = ["content-type text", "response-topic answers", "user-property b 1", "user-property a 2"]
        words = [word for each in named for word in ("-D", "publish", *each.split())]
        self.publish("-V", "5", "-t", "mosquitto/properties", "-m", "m", *words)
        self.assertEqual(self.printed(watcher), b"text answers b:1 a:2 m\n")

    def test_tls(self) -> None:
        """TLS 1.2 and 1.3 with the broker's certificate; another authority's is refused by the client."""
        with ExitStack() as stack:
            others, _ = certificate(short_folder(stack), "others")
            for version in ("tlsv1.2", "tlsv1.3"):
                at = ["-h", "localhost", "-p", str(self.site.tls_port), "--tls-version", version]
                watcher = self.watching("-t", version, "-C", "1", "-q", "2", at=[*at, "--cafile", str(self.site.roots)])
                self.publish("-t", version, "-m", "m", "-q", "2", at=[*at, "--cafile", str(self.site.roots)])
                self.assertEqual(self.printed(watcher), b"m\n")
                refused = run([self.publisher, *at, "--cafile", str(others), "-t", version, "-m", "m"])
                self.assertNotEqual(refused.returncode, 0)


class StartTests(SynchronousTestCase):
    """Certificates that cannot serve."""

    def test_files(self) -> None:
        """A file that is absent, is no PEM or belongs to another one ends the start with the reason and both names."""
        with ExitStack() as stack:
            folder = short_folder(stack)
            good, key = certificate(folder, "good")
            _, other = certificate(folder, "other")
            rubbish = folder / "rubbish.pem"
            rubbish.write_text("-----BEGIN CERTIFICATE-----\nrubbish\n-----END CERTIFICATE-----\n")
            empty = folder / "empty.pem"
            empty.write_text("")
            pairs = {
                (folder / "none.pem", key): "No such file or directory",
                (good, folder / "none.pem"): "No such file or directory",
                (rubbish, key): "they do not match",
                (empty, key): "they do not match",
                (good, good): "they do not match",
                (good, other): "they do not match",
            }
            brokers = []
            for number, (first, second) in enumerate(pairs):
                tls = {"certificate": str(first), "key": str(second)}
                site = folder / str(number)
                site.mkdir()
                brokers.append(RunningBroker(listener={"tls": tls, "acl": EVERYTHING}, folder=site).launch())
            for broker, ((first, second), what) in zip(brokers, pairs.items(), strict=True):
                self.assertEqual(broker.wait(60), 1)
                (record,) = broker.records("svc.process.start_failed")
                self.assertEqual(record["detail_reason"], "certificate_unusable")
                for word in (str(first), str(second), what):
                    self.assertIn(word, record["message"])

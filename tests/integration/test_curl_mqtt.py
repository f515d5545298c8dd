"""
``svc curl mqtt://`` and ``mqtts://`` from the command line at Mosquitto and at the own broker, with artifacts of a real
proxy.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.envelope import Envelope
from svc.envelope.ids import printed_id, receipt_id, statement_id
from svc.wire.mqtt import Publish, Version
from tests.integration.test_broker_clients import certificate
from tests.peers import forked, webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.daemon import environment
from tests.peers.folders import short_folder
from tests.peers.mosquitto import RunningMosquitto
from tests.peers.mqttclient import RawClient
from tests.peers.programs import find, run, svc
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import PATIENCE, Shared, eventually

BOTH = ("--print-workload", "--print-receipt")
EVERYTHING = [{"who": "anonymous", "publish": ["#", "$.svc/#"], "subscribe": ["#", "$.svc/#"]}]
SECRET = "hunter2-hunter2"


class Artifacts:
    """A statement and a receipt of a real exchange, as a proxy would publish them."""

    def __init__(self, evidence: dict[str, Any]) -> None:
        evidence["receipt"].pop("disclosures", None)
        self.messages: list[tuple[str, bytes]] = []
        for kind, name, id_of in (("workload", "statement", statement_id), ("receipt", "receipt", receipt_id)):
            data = json.dumps(evidence[name]).encode()
            self.messages.append((f"$.svc/{kind}/{id_of(Envelope.parse(data).payload)}", data))
        (self.statement_topic, self.statement), (self.receipt_topic, self.receipt) = self.messages

    def titles(self, mark: str = "") -> list[str]:
        """The titles of both reports."""
        names = ("Workload Identity Statement", "Signed Request Receipt")
        ids = (topic.rpartition("/")[2] for topic, _data in self.messages)
        return [f"{mark}{name} {printed_id(identifier)}\n" for name, identifier in zip(names, ids, strict=True)]


def _make(stack: ExitStack) -> Any:
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
    proxy = stack.enter_context(RunningProxy(authority, f"127.0.0.1:{webapp.start(stack)}"))
    folder = short_folder(stack)
    socket_flag = ("--spiffe-socket-path", authority.address)
    path = folder / "evidence.json"
    ran = svc("curl", *socket_flag, "-n", "signRequest", "--save-evidence", path, f"{proxy.url}/bytes/1")
    assert ran.returncode == 0, ran.stderr
    roots, key = certificate(folder, "server")
    return SimpleNamespace(
        authority=authority, artifacts=Artifacts(json.loads(path.read_bytes())), folder=folder, roots=roots, key=key
    )


SHARED = Shared(_make)


class Subscription:
    """A running ``svc curl``, whose output goes to two files."""

    def __init__(self, case: BrokerCase, arguments: Sequence[str], out: Path | None, settings: dict[str, str]) -> None:
        self.folder = short_folder(case.stack)
        self.out, self._err = out or self.folder / "out", self.folder / "err"
        self._process = forked.start(
            "svc",
            ["curl", *arguments],
            cwd=Path.cwd(),
            out=self.out,
            err=self._err,
            environment={**environment(), **settings},
        )
        case.stack.callback(self.kill)

    @property
    def printed(self) -> str:
        """Standard error so far."""
        return self._err.read_text() if self._err.exists() else ""

    def until(self, text: str) -> Subscription:
        """Wait until standard error has a text; the command must run as long."""

        def found() -> bool:
            if text in self.printed:
                return True
            assert self._process.poll() is None, self.printed
            return False

        eventually(found, what=f"{text!r} in the output")
        return self

    def end(self, number: int | None = None) -> int:
        """Wait for the exit status, after a signal."""
        if number is not None:
            self._process.send_signal(number)
        return self._process.wait(PATIENCE)

    def kill(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE)


class BrokerCase(SynchronousTestCase):
    """What is shared: the authority with its socket, and the artifacts."""

    def setUp(self) -> None:
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        found = SHARED.get()
        self.authority: RunningAuthority = found.authority
        self.artifacts: Artifacts = found.artifacts
        self.roots: Path = found.roots
        self.key: Path = found.key

    def subscribe(
        self, url: str, *arguments: str, out: Path | None = None, granted: bool = True, **settings: str
    ) -> Subscription:
        """Start ``svc curl``, by default until the topics are granted."""
        made = Subscription(self, [*(arguments or BOTH), url], out, settings)
        return made.until("subscribed to ") if granted else made

    def publish(self, port: int, *messages: tuple[str, bytes], retain: bool = False, **connect: Any) -> None:
        """Publish messages and wait until the broker has them."""
        tls = connect.pop("tls", None)
        with RawClient(port, tls=tls) as client:
            self.assertEqual(0, client.connect("publisher", **connect).code)
            for number, (topic, payload) in enumerate(messages or self.artifacts.messages, 1):
                client.send(Publish(topic, payload, 1, retain, packet_id=number))
                client.receive()

    def assert_printed(self, printed: str, mark: str = "UNVERIFIED ") -> None:
        """Both artifacts are in the output, each once."""
        for title in self.artifacts.titles(mark):
            self.assertEqual(1, printed.count(f"\n{title}"), printed)

    def mosquitto(self, **settings: str | Sequence[str]) -> RunningMosquitto:
        """Start a Mosquitto."""
        return RunningMosquitto(self.stack, {"log_type": "all", **settings}).start()

    def older(self, port: int) -> int:
        """Listen before a broker as one that knows MQTT 3.1.1 alone; returns the port."""
        return self.stack.enter_context(older_broker(port))


@contextlib.contextmanager
def older_broker(port: int) -> Iterator[int]:
    """A listener that answers MQTT 5.0 as a server of MQTT 3.1.1 has to, and relays every other connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def relay(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _address = listener.accept()
                first = client.recv(4096)
                if first[first.index(b"MQTT") + 4] == Version.V5:
                    client.sendall(b"\x20\x02\x00\x01")
                    client.close()
                    continue
                broker = socket.create_connection(("127.0.0.1", port))
                broker.sendall(first)
                for ends in ((client, broker), (broker, client)):
                    threading.Thread(target=relay, args=ends, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def waiting_octets(stream: Any) -> int:
    """How many octets of a pipe nobody has read."""
    (found,) = struct.unpack("i", fcntl.ioctl(stream, termios.FIONREAD, bytes(4)))
    return int(found)


class EveryBrokerMixin:
    """What holds at each broker."""

    port: int
    kill: Any

    def test_prints(self: Any) -> None:
        """Retained and new artifacts are printed unverified, without a Workload API; both signals are a success."""
        self.publish(self.port, self.artifacts.messages[0], retain=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            run = self.subscribe(f"mqtt://127.0.0.1:{self.port}")
            self.publish(self.port, self.artifacts.messages[1])
            for title in self.artifacts.titles("UNVERIFIED "):
                run.until(title)
            self.assertEqual(0, run.end(number), run.printed)
            self.assert_printed(run.printed)
            self.assertIn("by MQTT 5.0\n", run.printed)
            self.assertNotIn("Traceback", run.printed)

    def test_older(self: Any) -> None:
        """With MQTT 3.1.1 the same is printed."""
        port = self.older(self.port)
        run = self.subscribe(f"mqtt://127.0.0.1:{port}")
        self.assertIn("by MQTT 3.1.1\n", run.printed)
        self.publish(self.port)
        run.until(self.artifacts.titles()[1])
        self.assertEqual(0, run.end(signal.SIGINT))
        self.assert_printed(run.printed)

    def test_verified(self: Any) -> None:
        """With ``--verify`` both are verified, whichever comes first, with the roots of the authority."""
        trusted = ("--verify", "--spiffe-socket-path", self.authority.address)
        for messages in (self.artifacts.messages, self.artifacts.messages[::-1]):
            run = self.subscribe(f"mqtt://127.0.0.1:{self.port}", *BOTH, *trusted, "-o", "json")
            self.publish(self.port, *messages)
            run.until(self.artifacts.titles()[1])
            self.assertEqual(0, run.end(signal.SIGINT), run.printed)
            self.assert_printed(run.printed, "")
            self.assertEqual(2, run.printed.count("  Signatures: ES256 valid, ML-DSA-65 valid\n"))
            found = [json.loads(line) for line in run.out.read_text().splitlines()]
            self.assertEqual(
                [(True, True)] * 2, [(x["verification"]["ok"], x["verification"]["postQuantum"]) for x in found]
            )

    def test_forged(self: Any) -> None:
        """An artifact with a changed signature is named with its reason; the exit status says so in the end."""
        trusted = ("--verify", "--detailed-exit-codes", "--spiffe-socket-path", self.authority.address)
        envelope = json.loads(self.artifacts.receipt)
        last = envelope["signatures"][-1]
        last["signature"] = ("B" if last["signature"][0] == "A" else "A") + last["signature"][1:]
        run = self.subscribe(f"mqtt://127.0.0.1:{self.port}", *BOTH, *trusted)
        forged = (self.artifacts.receipt_topic, json.dumps(envelope).encode())
        self.publish(self.port, self.artifacts.messages[0], forged, self.artifacts.messages[1])
        run.until(self.artifacts.titles()[1])
        self.assertEqual(3, run.end(signal.SIGINT), run.printed)
        self.assertIn("(signature_invalid{ML-DSA-65})\n", run.printed)
        self.assertIn("svc: 1 of 3 artifacts failed the verification (artifacts_refused)\n", run.printed)
        self.assert_printed(run.printed, "")

    def test_killed(self: Any) -> None:
        """A broker that is killed ends the command, which does not connect again: success, and one line."""
        run = self.subscribe(f"mqtt://127.0.0.1:{self.port}")
        self.kill()
        self.assertEqual(0, run.end())
        self.assertTrue(
            run.printed.endswith(f"svc: the broker 127.0.0.1:{self.port} closed the connection\n"), run.printed
        )

    def test_stopped(self: Any) -> None:
        """A broker that is stopped in order ends the command too."""
        run = self.subscribe(f"mqtt://127.0.0.1:{self.port}")
        self.broker.stop()
        self.assertEqual(0, run.end(), run.printed)
        self.assertIn("closed the connection", run.printed)

    def test_slow_reader(self: Any) -> None:
        """
        While nobody reads the reports no more are made than a pipe takes, and an interrupt works; with a reader nothing
        is lost.
        """
        messages = [(f"{self.artifacts.statement_topic}{n}", self.artifacts.statement) for n in range(250)]
        first = self.piped()
        self.lines_until(first, b"subscribed")
        self.publish(self.port, *messages)
        eventually(lambda: waiting_octets(first.stdout), what="the first report")
        first.send_signal(signal.SIGINT)
        self.assertEqual(0, first.wait(PATIENCE))
        self.assertLess(first.communicate()[0].count(b"UNVERIFIED"), 5)
        second = self.piped()
        self.lines_until(second, b"subscribed")
        self.publish(self.port, *messages)
        found = self.lines_until(second, b"UNVERIFIED", 250)
        self.assertEqual(250, found.count(b"UNVERIFIED"))
        second.send_signal(signal.SIGTERM)
        second.communicate()
        self.assertEqual(0, second.returncode)

    def piped(self: Any, *arguments: str) -> subprocess.Popen[bytes]:
        """Start ``svc curl`` with a pipe of one page as both outputs, which is read by the test alone."""
        code = "import sys; from svc.cli.main import main; sys.exit(main())"
        words = ["curl", *BOTH, *arguments, f"mqtt://127.0.0.1:{self.port}"]
        process = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(),
        )
        self.stack.callback(process.kill)
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)  # type: ignore[arg-type]
        return process

    def lines_until(self: Any, process: subprocess.Popen[bytes], text: bytes, times: int = 1) -> bytes:
        """Read lines until one has been found so often."""
        assert process.stdout is not None
        lines = []
        while times:
            lines.append(process.stdout.readline())
            assert lines[-1], b"".join(lines)
            times -= text in lines[-1]
        return b"".join(lines)


class MosquittoTests(EveryBrokerMixin, BrokerCase):
    """Mosquitto that admits everyone."""

    def setUp(self) -> None:
        super().setUp()
        self.broker = self.mosquitto()
        self.port, self.kill = self.broker.port, self.broker.kill

    def test_clean_end(self) -> None:
        """An interrupted command has sent DISCONNECT: Mosquitto logs an orderly end, and no second client."""
        run = self.subscribe(f"mqtt://127.0.0.1:{self.port}")
        self.assertEqual(0, run.end(signal.SIGINT))
        log = eventually(lambda: re.search(r"Client svccurl\w{16} disconnected\.", self.broker.log_path.read_text()))
        self.assertTrue(log)
        self.assertEqual(1, self.broker.log_path.read_text().count("New client connected"))

    def test_outputs(self) -> None:
        """A full standard output fails only what writes to it; a reader of the reports that ends, ends the command."""
        for arguments, status in ((BOTH, 0), ((*BOTH, "-o", "json"), 1)):
            run = self.subscribe(f"mqtt://127.0.0.1:{self.port}", *arguments, out=Path("/dev/full"))
            self.publish(self.port, self.artifacts.messages[0])
            run.until(self.artifacts.titles()[0])
            self.assertEqual(status, run.end(signal.SIGINT if not status else None), run.printed)
            self.assertEqual(bool(status), "cannot write to standard output: no space left on device" in run.printed)
        process = self.piped()
        self.lines_until(process, b"subscribed")
        assert process.stdout is not None
        process.stdout.close()
        self.publish(self.port)
        self.assertEqual(1, process.wait(PATIENCE))

    def test_not_connected(self) -> None:
        """No broker, TLS where there is none, and a name that nobody has."""
        for url, reason in (
            ("mqtt://127.0.0.1:1", "connection_refused"),
            (f"mqtts://localhost:{self.port}", "mqtt_tls_failed"),
            ("mqtt://no-such-host.invalid:1883", "name_unresolved"),
        ):
            ran = svc("curl", "--print-workload", url)
            self.assertEqual(1, ran.returncode)
            self.assertIn(f"({reason})\n", ran.stderr.decode())

    def test_prefix(self) -> None:
        """Another prefix is subscribed where the environment names it."""
        run = self.subscribe(f"mqtt://127.0.0.1:{self.port}", SVC_ARTIFACT_PREFIX="evidence/svc")
        topic = self.artifacts.statement_topic.replace("$.svc", "evidence/svc")
        self.publish(self.port, (topic, self.artifacts.statement))
        run.until(self.artifacts.titles("UNVERIFIED ")[0])
        self.assertEqual(0, run.end(signal.SIGINT))


class OwnBrokerTests(EveryBrokerMixin, BrokerCase):
    """``svc-broker`` that admits everyone."""

    def setUp(self) -> None:
        super().setUp()
        self.broker = self.stack.enter_context(RunningBroker(listener={"acl": EVERYTHING}))
        self.port, self.kill = self.broker.port, self.broker.kill


class RefusalTests(BrokerCase):
    """Brokers that ask for a password, or grant less than is asked for."""

    def refused(self, reason: str, url: str, *arguments: str, **settings: Any) -> str:
        """The command fails with this reason."""
        ran = svc("curl", *BOTH, *arguments, url, **settings)
        self.assertEqual((1, b""), (ran.returncode, ran.stdout), ran.stderr)
        self.assertIn(f"({reason})\n", ran.stderr.decode())
        return ran.stderr.decode()

    def test_password(self) -> None:
        """User name and password come from the URL or the environment; no output has them at any verbosity."""
        passwords = short_folder(self.stack) / "passwords"
        made = run([find("mosquitto_passwd"), "-b", "-c", str(passwords), "reader", SECRET])
        self.assertEqual(0, made.returncode, made.stderr)
        os.chmod(passwords, 0o644)
        broker = self.mosquitto(password_file=str(passwords), per_listener_settings="false")
        anonymous = f"mqtt://127.0.0.1:{broker.port}"
        named = f"mqtt://reader:{SECRET}@127.0.0.1:{broker.port}"
        variables = {"SVC_MQTT_USERNAME": "reader", "SVC_MQTT_PASSWORD": SECRET}
        cases: list[tuple[str, dict[str, Any]]] = [(named, {}), (anonymous, variables)]
        for url, settings in cases:
            for more in (["-v", "9"], ["--debug", "--log-format", "json", "--log-stacktrace", "-v", "9"]):
                started = self.subscribe(url, *BOTH, *more, **settings)
                self.publish(broker.port, username="reader", password=SECRET.encode())
                started.until("UNVERIFIED Signed")
                self.assertEqual(0, started.end(signal.SIGINT), started.printed)
                self.assertIn("PUBACK", started.printed)
                self.assertNotIn(SECRET, started.printed)
        wrong = f"mqtt://reader:{SECRET}x@127.0.0.1:{broker.port}"
        for older in (False, True):
            url = wrong.replace(str(broker.port), str(self.older(broker.port))) if older else wrong
            for more in ((), ("-v", "9", "--log-stacktrace"), ("--log-devel",)):
                self.assertNotIn(SECRET, self.refused("mqtt_connection_refused", url, *more))

    def test_grants(self) -> None:
        """One topic that is not granted fails the command, which names it, with each version of MQTT."""
        file = short_folder(self.stack) / "dynamic-security.json"
        allowed = {"acltype": "subscribePattern", "topic": "$.svc/workload/#", "priority": 0, "allow": True}
        access = {"publishClientSend": True, "publishClientReceive": True, "subscribe": False, "unsubscribe": True}
        file.write_text(
            json.dumps(
                {
                    "defaultACLAccess": access,
                    "clients": [],
                    "groups": [{"groupname": "guests", "roles": [{"rolename": "statements", "priority": 0}]}],
                    "roles": [{"rolename": "statements", "acls": [allowed]}],
                    "anonymousGroup": "guests",
                }
            )
        )
        plugin = Path("/usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so")
        ports = [self.own_broker(["$.svc/workload/#"])]
        if plugin.exists():
            ports.append(self.mosquitto(plugin=str(plugin), plugin_opt_config_file=str(file)).port)
        for port in ports:
            for each in (port, self.older(port)):
                printed = self.refused("mqtt_subscription_refused", f"mqtt://127.0.0.1:{each}")
                self.assertIn("refuses the subscription to $.svc/receipt/#: ", printed)

    def test_no_rule(self) -> None:
        """A broker that grants neither names both; its reason is in the output."""
        printed = self.refused("mqtt_subscription_refused", f"mqtt://127.0.0.1:{self.own_broker(['other'])}")
        self.assertIn("to $.svc/workload/# and $.svc/receipt/#: not authorized (0x87)", printed)

    def own_broker(self, topics: Sequence[str]) -> int:
        """Start a broker that grants these topics; returns the port."""
        acl = [{"who": "anonymous", "subscribe": list(topics)}]
        return self.stack.enter_context(RunningBroker(listener={"acl": acl})).port

    def test_no_workload_api(self) -> None:
        """``--verify`` needs the Workload API, and the broker is not contacted without it."""
        missing = ("--verify", "--spiffe-socket-path", "unix:///nowhere/agent.sock")
        self.refused("workload_api_unavailable", "mqtt://127.0.0.1:1", *missing)


class TlsTests(BrokerCase):
    """``mqtts://`` at both brokers."""

    def setUp(self) -> None:
        super().setUp()
        self.trusted: dict[str, Any] = {"SSL_CERT_FILE": str(self.roots)}

    def brokers(self, roots: Path, key: Path) -> list[int]:
        """Start both with a certificate."""
        tls = {"certificate": str(roots), "key": str(key)}
        own = self.stack.enter_context(RunningBroker(listener={"tls": tls, "acl": EVERYTHING}))
        for path in (roots, key):
            os.chmod(path, 0o644)
        return [own.port, self.mosquitto(certfile=str(roots), keyfile=str(key)).port]

    def test_verified_broker(self) -> None:
        """A certificate of a root of the system that names the host or its address is accepted."""
        context = ssl.create_default_context(cafile=str(self.roots))
        for port in self.brokers(self.roots, self.key):
            for host in ("localhost", "127.0.0.1"):
                started = self.subscribe(f"mqtts://{host}:{port}", *BOTH, "-v", "1", **self.trusted)
                self.publish(port, tls=lambda plain: context.wrap_socket(plain, server_hostname="localhost"))
                started.until("UNVERIFIED Signed")
                self.assertEqual(0, started.end(signal.SIGTERM), started.printed)
                self.assert_printed(started.printed)
                self.assertRegex(started.printed, r"connected to \S+: TLS 1\.3, \w+, TLS_")

    def test_refused_brokers(self) -> None:
        """A certificate of another root is refused, before user name and password are sent."""
        other, key = certificate(short_folder(self.stack), "other")
        for port in self.brokers(other, key):
            ran = svc("curl", *BOTH, f"mqtts://user:{SECRET}@localhost:{port}", **self.trusted)
            self.assertEqual(1, ran.returncode)
            self.assertIn("(certificate_invalid)\n", ran.stderr.decode())
            self.assertNotIn(SECRET, ran.stderr.decode())

    def test_plain_at_tls(self) -> None:
        """``mqtt://`` at a port with TLS fails with a hint."""
        for port in self.brokers(self.roots, self.key):
            ran = svc("curl", *BOTH, f"mqtt://127.0.0.1:{port}")
            self.assertEqual(1, ran.returncode)
            self.assertRegex(ran.stderr.decode(), r"\((mqtt_broker_closed|mqtt_broker_invalid)\)\n")

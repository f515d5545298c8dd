"""Devices without a SPIFFE identity at a real broker: Mosquitto's clients and paho, passwords and certificates."""

from __future__ import annotations

import os
import queue
import signal
import ssl
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from paho.mqtt import client as paho
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.logins import THREADS
from svc.broker.passwordfile import PasswordHash, ScryptCost
from svc.identity import X509Svid
from svc.testing.ca import chain_pem, key_pem
from svc.wire.mqtt import Connack, Connect, Disconnect, Properties, ReasonCode, Version, encode
from tests.integration.test_broker_clients import CALLBACKS, VERSIONS, Paho, certificate
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials
from tests.peers.mqttclient import RawClient
from tests.peers.programs import find, run, svc
from tests.peers.waiting import eventually, free_port
from tests.transport.test_client_certificates import ALWAYS, OTHER, ROOT, device, pem, revocations

CHEAP = ScryptCost(10, 8, 1)
USER_RULES = [
    {"who": "user:*", "publish": ["d/%u/#"], "subscribe": ["d/%u/#", "c/%c"]},
    {
        "who": "user:display",
        "subscribe": ["d/#"],
        "denySubscribe": ["d/+/key"],
        "publish": ["#"],
        "denyPublish": ["d/#"],
    },
]
GATEWAY_RULES = [
    {"who": "certificate:gateway-*", "publish": ["d/%u/#"], "subscribe": ["#"], "denySubscribe": ["secret/#"]}
]
RELOADS = "svc_broker_config_reloads_total"


class DeviceCase(SynchronousTestCase):
    """A broker with a plain and a TLS listener for users, and one for certificates."""

    limits: dict[str, Any] = {}

    def setUp(self) -> None:
        """Start it."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = short_folder(self.stack)
        self.cafile, key = certificate(self.folder, "server")
        self.users = self.folder / "users"
        for name in ("alice", "bob", "display"):
            self.set_password(name, f"password of {name}")
        self.write("ca.pem", pem(ROOT))
        self.write("crl.pem", revocations())
        self.secured_port, self.gateway_port = free_port(), free_port()
        tls = {"certificate": str(self.cafile), "key": str(key)}
        clients = {
            "clientAuthorities": [str(self.folder / "ca.pem")],
            "clientRevocations": str(self.folder / "crl.pem"),
        }
        self.broker = RunningBroker(
            listener={"passwords": True, "acl": USER_RULES},
            listeners=[
                {
                    "name": "users",
                    "listen": f"127.0.0.1:{self.secured_port}",
                    "tls": tls,
                    "passwords": True,
                    "acl": USER_RULES,
                },
                {
                    "name": "gateways",
                    "listen": f"127.0.0.1:{self.gateway_port}",
                    "tls": tls | clients,
                    "acl": GATEWAY_RULES,
                },
            ],
            limits=self.limits,
            settings={"passwordFile": str(self.users)},
        )
        self.stack.enter_context(self.broker)

    def write(self, name: str, text: bytes) -> Path:
        """Replace a file."""
        (self.folder / "new").write_bytes(text)
        os.replace(self.folder / "new", self.folder / name)
        return self.folder / name

    def set_password(self, name: str, password: str, cost: ScryptCost = CHEAP) -> None:
        """Write a line of the password file, cheaper than the command does."""
        found = [] if not self.users.exists() else self.users.read_text().splitlines()
        lines = [each for each in found if not each.startswith(f"{name}:")]
        lines.append(f"{name}:{PasswordHash.of(password.encode(), cost)}")
        new = self.folder / "new-users"
        new.touch(0o600)
        new.write_text("".join(f"{line}\n" for line in lines))
        os.replace(new, self.users)

    def reload(self) -> dict[str, Any]:
        """Send SIGHUP; return the record of the result."""

        def logged() -> list[dict[str, Any]]:
            # One record of each reload; the other one of the same reload may come later.
            names = ("svc.config.loaded", "svc.config.rejected")
            return [each for each in self.broker.records() if each["event"]["name"] in names]

        before = len(logged())
        self.broker.signal(signal.SIGHUP)
        found: list[dict[str, Any]] = eventually(lambda: logged()[before:], 60, "the end of the reload")
        return found[0]

    def mosquitto(
        self, program: str, *arguments: str | Path, user: str = "", password: str = ""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a client, over TLS."""
        login = ["-u", user, "-P", password or f"password of {user}"] if user else []
        port = self.secured_port if user else self.gateway_port
        return run([find(program), "-h", "localhost", "-p", str(port), "--cafile", self.cafile, *login, *arguments])

    def credentials(self, svid: X509Svid) -> list[str | Path]:
        """Write the certificate and the key of a client; return the arguments that name them."""
        return [
            "--cert",
            self.write("client.pem", chain_pem(svid)),
            "--key",
            self.write("client-key.pem", key_pem(svid)),
        ]


class PasswordTests(DeviceCase):
    """User names and passwords."""

    def test_mosquitto(self) -> None:
        """Right ones are admitted and publish below their name; wrong ones get the code of each version."""
        for version, words in (("311", b"bad user name or password"), ("5", b"Bad User Name or Password")):
            arguments = ("-V", version, "-q", "1", "-m", "x", "-t")
            self.assertEqual(self.mosquitto("mosquitto_pub", *arguments, "d/alice/a", user="alice").returncode, 0)
            for user, password in (("alice", "wrong"), ("nobody", "wrong"), ("alice", "password of bob")):
                refused = self.mosquitto("mosquitto_pub", *arguments, "d/alice/a", user=user, password=password)
                self.assertNotEqual(refused.returncode, 0)
                self.assertIn(words.lower(), (refused.stdout + refused.stderr).lower())
            other = self.mosquitto("mosquitto_pub", *arguments, "d/bob/a", user="alice")
            self.assertTrue(other.stderr)
        self.assertEqual(self.broker.metric("svc_broker_refusals_total", reason="mqtt_login_refused"), 6)
        eventually(lambda: self.broker.records("svc.broker.client.refused"), what="a record")
        for word in ("wrong", "nobody", "password of"):
            self.assertNotIn(word, self.broker.log)

    def test_paho(self) -> None:
        """The same with paho, in both versions and both forms of callbacks: messages go round, also over TLS."""
        context = ssl.create_default_context(cafile=str(self.cafile))
        for port, tls in ((self.broker.port, None), (self.secured_port, context)):
            for callbacks in CALLBACKS:
                for version in VERSIONS:
                    with ExitStack() as stack:
                        client = Paho(
                            stack, port, callbacks, version, "p", tls=tls, login=("alice", "password of alice")
                        )
                        self.assertEqual(client.subscribes("d/alice/#", 1), [1])
                        self.assertEqual(client.subscribes("c/p", 1), [1])
                        self.assertGreaterEqual(client.subscribes("c/q", 1)[0], 0x80)
                        self.assertGreaterEqual(client.subscribes("d/bob/#", 1)[0], 0x80)
                        client.publishes("d/alice/x", b"m", 1)
                        self.assertEqual(client.receives(1), [(b"m", 1, False)])

    def test_paho_refused(self) -> None:
        """The reason of a wrong password as paho names it, in both versions; it is the same for an unknown user."""
        for version in VERSIONS:
            for user in ("alice", "nobody"):
                client = paho.Client(CALLBACKS[1], "w", protocol=version)
                client.username_pw_set(user, "wrong")
                codes: queue.Queue[int] = queue.Queue()
                client.on_connect = lambda _c, _d, _f, reason, _p, codes=codes: codes.put(reason.value)
                client.connect("localhost", self.broker.port)
                client.loop_start()
                self.addCleanup(client.loop_stop)
                self.assertEqual(codes.get(timeout=60), ReasonCode.BAD_USER_NAME_OR_PASSWORD)
                client.disconnect()

    def test_codes(self) -> None:
        """CONNACK 0x86 or 4 for what is wrong or missing."""
        for version, code in ((Version.V5, 0x86), (Version.V311, 4)):
            for login in ({}, {"username": "alice"}, {"username": "alice", "password": b"x"}):
                with RawClient(self.broker.port, version) as client:
                    self.assertEqual(client.connect("c", **login), Connack(code=code))

    def test_deny(self) -> None:
        """A subscription that could match a denied topic is refused, and one beside it is not; publishing as well."""
        with RawClient(self.broker.port) as client:
            client.connect("c", username="display", password=b"password of display")
        for topic, words in (("d/#", b"denied"), ("d/+/key", b"denied"), ("d/x/#", b"denied")):
            refused = self.mosquitto("mosquitto_sub", "-t", topic, "-W", "5", "-C", "1", user="display")
            self.assertIn(words, refused.stderr)
        self.mosquitto("mosquitto_pub", "-r", "-q", "1", "-t", "d/alice/state", "-m", "on", user="alice")
        found = self.mosquitto("mosquitto_sub", "-t", "d/+/state", "-W", "60", "-C", "1", user="display")
        self.assertEqual((found.returncode, found.stdout), (0, b"on\n"))
        for topic, expected in (("elsewhere", b""), ("d/display/x", b"Not authorized")):
            sent = self.mosquitto("mosquitto_pub", "-V", "5", "-q", "1", "-t", topic, "-m", "x", user="display")
            self.assertIn(expected, sent.stderr)
            self.assertEqual(bool(sent.stderr), bool(expected))

    def test_reload(self) -> None:
        """SIGHUP reads the file: changed users are disconnected; a defect is reported and changes nothing."""
        lasting = {"clean_start": False, "properties": Properties(session_expiry=3600)}
        login = lambda name, text="": {"username": name, "password": (text or f"password of {name}").encode()}  # noqa: E731
        clients = {name: self.stack.enter_context(RawClient(self.broker.port)) for name in ("alice", "bob", "display")}
        for name, client in clients.items():
            self.assertEqual(client.connect(name, **login(name), **lasting).code, 0)
        good = self.users.read_text()
        for bad in ("alice:secret\n", "\n".join([good, good])):
            self.users.write_text(bad)
            record = self.reload()
            self.assertEqual(record["event"]["name"], "svc.config.rejected")
            self.assertEqual(record["detail_reason"], "password_file_invalid")
            self.assertNotIn("secret", record["detail"])
        self.users.chmod(0o644)
        self.assertEqual(self.reload()["detail_reason"], "password_file_mode")
        for client in clients.values():
            self.assertEqual(client.sync(), [])
        with RawClient(self.broker.port) as client:
            self.assertEqual(client.connect("d", **login("alice")).code, 0)
        self.users.write_text(good)
        self.users.chmod(0o600)
        command = [sys.executable, "-c", "import sys; from svc.cli.main import main; sys.exit(main())"]
        done = run([*command, "broker", "passwd", "--stdin", self.users, "bob"], data=b"another one\n")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(svc("broker", "passwd", "--delete", self.users, "alice").returncode, 0)
        record = self.reload()
        self.assertEqual((record["event"]["name"], record["attributes"]["users_changed"]), ("svc.config.loaded", 2))
        for name in ("alice", "bob"):
            self.assertEqual(clients[name].until_end(), [Disconnect(ReasonCode.NOT_AUTHORIZED)])
        self.assertEqual(clients["display"].sync(), [])
        for name, text, code in (("alice", "", 0x86), ("bob", "", 0x86), ("bob", "another one", 0)):
            with RawClient(self.broker.port) as client:
                answer = client.connect("bob", **login(name, text), **lasting)
                self.assertEqual(answer.code, code)
        self.assertTrue(answer.session_present)
        self.assertEqual(self.broker.metric(RELOADS, result="error"), 3)
        eventually(lambda: self.broker.metric("svc_broker_sessions") == 2, what="the end of alice's session")


class StormTests(DeviceCase):
    """Many logins at once."""

    limits = {"logins": 3}

    def test_storm(self) -> None:
        """Beyond the queue clients get 0x97 at once, connected ones are served meanwhile, and later logins succeed."""
        self.set_password("slow", "password of slow", ScryptCost(15, 8, 1))
        self.reload()
        display = self.stack.enter_context(RawClient(self.broker.port))
        display.connect("display", username="display", password=b"password of display")
        clients = [self.stack.enter_context(RawClient(self.broker.port)) for _ in range(40)]
        for number, client in enumerate(clients):
            packet = Connect(str(number), username="slow", password=b"wrong %d" % number)
            client.octets(encode(packet, Version.V5, "client"))
        waits = []
        for _ in range(5):
            begun = time.monotonic()
            display.sync()
            waits.append(time.monotonic() - begun)
        codes = Counter(getattr(client.receive(), "code", None) for client in clients)
        self.assertEqual(set(codes), {0x86, 0x97})
        self.assertGreaterEqual(codes[0x86], THREADS + 3)
        self.assertGreaterEqual(codes[0x97], 10)
        self.assertEqual(self.broker.metric("svc_broker_refusals_total", reason="mqtt_login_limit"), codes[0x97])
        self.assertLess(min(waits), 1)
        with RawClient(self.broker.port) as client:
            self.assertEqual(client.connect("slow", username="slow", password=b"password of slow").code, 0)

    def test_reconnects(self) -> None:
        """Clients whose credentials were verified are admitted at once, all of them."""
        self.set_password("slow", "password of slow", ScryptCost(15, 8, 1))
        self.reload()
        login = {"username": "slow", "password": b"password of slow"}
        with RawClient(self.broker.port) as client:
            self.assertEqual(client.connect("first", **login).code, 0)
        clients = [self.stack.enter_context(RawClient(self.broker.port)) for _ in range(40)]
        for number, client in enumerate(clients):
            client.octets(encode(Connect(str(number), **login), Version.V5, "client"))  # type: ignore[arg-type]
        self.assertEqual({getattr(client.receive(), "code", None) for client in clients}, {0})


class CertificateTests(DeviceCase):
    """Ordinary certificates of clients."""

    def test_mosquitto(self) -> None:
        """One of the authority is admitted by its name; others, and none, do not get through the handshake."""
        arguments = ("-q", "1", "-m", "x", "-t", "d/gateway-1/a")
        for version in ("tlsv1.2", "tlsv1.3"):
            found = self.mosquitto("mosquitto_pub", "--tls-version", version, *self.credentials(device()), *arguments)
            self.assertEqual((found.returncode, found.stderr), (0, b""))
        past = {**ALWAYS, "not_after": device().leaf.not_valid_before_utc.replace(year=2021)}
        gone = device()
        self.write("crl.pem", revocations(gone))
        eventually(lambda: self.broker.records("svc.broker.certificate.renewed"), what="the revocation list")
        for svid in (device(OTHER), device(**past), gone, device(subject=None)):
            refused = self.mosquitto("mosquitto_pub", *self.credentials(svid), *arguments)
            self.assertNotEqual(refused.returncode, 0)
        self.assertNotEqual(self.mosquitto("mosquitto_pub", *arguments).returncode, 0)
        records = eventually(lambda: self.broker.records("svc.proxy.handshake.failed"), what="the refused handshakes")
        self.assertEqual({each["detail_reason"] for each in records}, {"client_certificate_invalid"})

    def test_rules(self) -> None:
        """Its name is that of rules: another name is refused, %u is it, and a denied topic is not received."""
        with ExitStack() as stack:
            client = self.paho(stack, device())
            self.assertEqual(client.subscribes("d/#", 1), [1])
            for topic in ("#", "secret/a", "+/a"):
                self.assertGreaterEqual(client.subscribes(topic, 1)[0], 0x80)
            client.publishes("d/gateway-1/x", b"m", 1)
            self.assertEqual(client.receives(1), [(b"m", 1, False)])
        refused = self.mosquitto(
            "mosquitto_pub", *self.credentials(device(subject="other")), "-t", "a", "-m", "x", "-q", "1"
        )
        self.assertNotEqual(refused.returncode, 0)
        found = eventually(lambda: self.broker.records("svc.broker.client.refused"), what="a record")
        self.assertEqual(found[0]["detail_reason"], "mqtt_no_rule")
        self.assertEqual(found[0]["attributes"]["client_name"], "certificate:other")

    def test_revoked_while_connected(self) -> None:
        """A connection ends when its certificate is revoked; one of another certificate with the same name stays."""
        gone = device()
        with ExitStack() as stack:
            first, second = self.raw(stack, gone), self.raw(stack, device())
            self.assertEqual([first.connect("a").code, second.connect("b").code], [0, 0])
            self.write("crl.pem", revocations(gone))
            self.broker.signal(signal.SIGHUP)
            self.assertEqual(first.until_end(), [Disconnect(ReasonCode.NOT_AUTHORIZED)])
            self.assertEqual(second.sync(), [])
        found = eventually(lambda: self.broker.records("svc.broker.client.broken"), what="a record")
        self.assertEqual(found[0]["detail_reason"], "mqtt_certificate_withdrawn")

    def test_end(self) -> None:
        """A connection ends with its certificate; one that is valid for longer stays."""
        short = device(**{**ALWAYS, "not_after": datetime.now(UTC) + timedelta(seconds=3)})
        with ExitStack() as stack:
            first, second = self.raw(stack, short), self.raw(stack, device())
            self.assertEqual([first.connect("a").code, second.connect("b").code], [0, 0])
            self.assertEqual(first.until_end(), [Disconnect(ReasonCode.NOT_AUTHORIZED)])
            self.assertEqual(second.sync(), [])
        self.assertEqual(self.broker.metric("svc_broker_refusals_total", reason="expired"), 1)

    def test_owners(self) -> None:
        """A name in a certificate, a user and another certificate do not get at each other's sessions."""
        with ExitStack() as stack:
            mine = self.raw(stack, device(subject="gateway-alice"))
            mine.connect("c")
            user = stack.enter_context(RawClient(self.broker.port))
            refused = user.connect("c", username="alice", password=b"password of alice")
            other = self.raw(stack, device())
            self.assertEqual([refused.code, other.connect("c").code], [0x87, 0x87])
            again = self.raw(stack, device(subject="gateway-alice"))
            self.assertEqual(again.connect("c").code, 0)
            self.assertEqual(mine.until_end(), [Disconnect(ReasonCode.SESSION_TAKEN_OVER)])

    def test_status(self) -> None:
        """The listeners of the status document count names."""
        with ExitStack() as stack:
            for name in ("gateway-1", "gateway-1", "gateway-2"):
                self.raw(stack, device(subject=name)).connect("")
            listeners = {each["name"]: each for each in self.broker.page("/status")[1]["listeners"]}
            self.assertEqual((listeners["gateways"]["connections"], listeners["gateways"]["peers"]), (3, 2))
            self.assertEqual(listeners["users"]["peers"], 0)

    def context(self, svid: X509Svid) -> ssl.SSLContext:
        """The TLS settings of a client with a certificate."""
        context = ssl.create_default_context(cafile=str(self.cafile))
        _cert, certificate_file, _key, key_file = self.credentials(svid)
        context.load_cert_chain(certificate_file, key_file)
        return context

    def paho(self, stack: ExitStack, svid: X509Svid) -> Paho:
        """Connect with paho."""
        return Paho(stack, self.gateway_port, CALLBACKS[1], paho.MQTTv5, "p", tls=self.context(svid))

    def raw(self, stack: ExitStack, svid: X509Svid) -> RawClient:
        """Open a connection."""
        context = self.context(svid)
        wrap = lambda plain: context.wrap_socket(plain, server_hostname="localhost")  # noqa: E731
        return stack.enter_context(RawClient(self.gateway_port, tls=wrap))


class SvidTests(SynchronousTestCase):
    """A listener that presents the SVID of the broker to clients without one."""

    def test_presented(self) -> None:
        """Clients verify its chain by the bundle, and log in with a password."""
        with ExitStack() as stack:
            folder = short_folder(stack)
            authority = stack.enter_context(RunningAuthority(entries=[entry("/broker")]))
            users = folder / "users"
            users.touch(0o600)
            users.write_text(f"alice:{PasswordHash.of(b'secret', CHEAP)}\n")
            broker = RunningBroker(
                listener={"name": "devices", "tls": {"svid": True}, "passwords": True, "acl": USER_RULES},
                settings={
                    "passwordFile": str(users),
                    "trustDomain": "example.org",
                    "spiffeSocketPath": authority.address,
                },
            )
            stack.enter_context(broker)
            context = ssl.create_default_context(cafile=Credentials.fetch(authority, folder / "id").roots)
            context.check_hostname = False
            for password, code in ((b"secret", 0), (b"wrong", 0x86)):
                with RawClient(broker.port, tls=context.wrap_socket) as client:
                    self.assertEqual(client.connect("c", username="alice", password=password).code, code)
            (identity,) = broker.page("/status")[1]["identities"]
            self.assertEqual(identity["spiffeID"], "spiffe://example.org/broker")


class StartTests(SynchronousTestCase):
    """A password file that cannot be used."""

    def test_exit(self) -> None:
        """The start, and the check of the configuration, end with the reason and the file."""
        with ExitStack() as stack:
            folder = short_folder(stack)
            users = folder / "users"
            users.write_text("rubbish\n")
            users.chmod(0o600)
            broker = RunningBroker(
                listener={"passwords": True, "acl": USER_RULES}, settings={"passwordFile": str(users)}, folder=folder
            )
            self.assertEqual(broker.launch().wait(60), 1)
            self.assertIn(f"line 1 of the password file {users} is not valid", broker.errors)
            done = run(broker.command("--check-config"))
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(str(users).encode(), done.stdout + done.stderr)

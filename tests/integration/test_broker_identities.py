"""The broker behind SPIFFE mutual TLS with a real authority: authorization and reauthorization."""

from __future__ import annotations

import os
import ssl
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Connect,
    Disconnect,
    PacketType,
    Properties,
    Publish,
    ReasonCode,
    Suback,
    Subscribe,
    Subscription,
    Version,
    Will,
)
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials
from tests.peers.mqttclient import RawClient
from tests.peers.programs import find, run
from tests.peers.waiting import Shared, eventually

ACL = [
    {
        "who": "spiffe://example.org/device/*",
        "publish": ["devices/+/state"],
        "subscribe": ["commands/#", "devices/+/state"],
    },
    {"who": "spiffe://example.org/control", "publish": ["commands/#"], "subscribe": ["devices/#"]},
]
REFUSED = ReasonCode.NOT_AUTHORIZED
#: Seconds for a close without waiting: the broker aborts after five where a TLS close is not answered.
AT_ONCE = 4.0


def make_broker(stack: ExitStack, authority: RunningAuthority, **settings: Any) -> RunningBroker:
    """Start a broker with one listener for identities."""
    return stack.enter_context(
        RunningBroker(
            listener={"name": "devices", "tls": {"spiffe": True}, "acl": ACL},
            settings={"trustDomain": "example.org", "spiffeSocketPath": authority.address, **settings},
        )
    )


class Site:
    """
    An authority, a broker, and the files of three clients.

    Args:
        stack: ends everything.
        ttls: the lifetimes of the SVIDs of some paths.
    """

    def __init__(self, stack: ExitStack, **ttls: str) -> None:
        self.stack = stack
        self.folder = short_folder(stack)
        paths = {
            "broker": "/broker",
            "device": "/device/7",
            "other": "/device/8",
            "control": "/control",
            "guest": "/guest",
        }
        entries = [entry(path, ttl=ttls.get(name, "1h")) for name, path in paths.items()]
        self.authority = stack.enter_context(RunningAuthority(entries=entries))
        self.broker = self._broker()
        self._paths = paths

    def _broker(self) -> RunningBroker:
        return make_broker(self.stack, self.authority)

    def credentials(self, name: str, folder: str = "id") -> Credentials:
        """Export an SVID."""
        return Credentials.fetch(self.authority, self.folder / folder / name, self._paths[name])

    def open(self, name: str, version: Version = Version.V5, folder: str = "id") -> RawClient:
        """Open a connection with an identity."""
        context = self.credentials(name, folder).context()
        return self.stack.enter_context(RawClient(self.broker.port, version, tls=context.wrap_socket))

    def client(self, name: str, client_id: str = "", version: Version = Version.V5, **more: Any) -> RawClient:
        """Connect a client with an identity."""
        raw = self.open(name, version)
        answer = raw.connect(client_id or f"{name}-{version.name}", **more)
        assert answer.code == 0, answer
        return raw


SITE = Shared(Site)


class AccessTests(SynchronousTestCase):
    """Rules by identity."""

    def setUp(self) -> None:
        """All tests use the same broker."""
        self.site: Site = SITE.get()

    def test_publish(self) -> None:
        """An operation without a rule gets 0x87 and the connection stays open; QoS 0 is dropped; all is counted."""
        before = self.site.broker.metric("svc_broker_denied_total", action="publish")
        watcher = self.site.client("control")
        watcher.send(Subscribe(1, [Subscription("devices/#", 0)]))
        watcher.sync()
        client = self.site.client("device")
        client.send(
            Publish("devices/7/state", b"allowed", 1, packet_id=1),
            Publish("devices/7/secret", b"denied", 1, packet_id=2),
            Publish("devices/7/secret", b"denied", 2, packet_id=3),
            Publish("devices/7/secret", b"denied"),
            Publish("$SYS/broker/uptime", b"denied", 1, packet_id=4),
            Publish("devices/7/state", b"allowed too"),
        )
        answers = [(each.type, each.packet_id, each.code) for each in client.sync()]
        self.assertEqual(
            answers,
            [
                (PacketType.PUBACK, 1, 0),
                (PacketType.PUBACK, 2, REFUSED),
                (PacketType.PUBREC, 3, REFUSED),
                (PacketType.PUBACK, 4, REFUSED),
            ],
        )
        came = [each.payload for each in watcher.sync() if isinstance(each, Publish)]
        self.assertEqual(came, [b"allowed", b"allowed too"])
        self.assertEqual(self.site.broker.metric("svc_broker_denied_total", action="publish"), before + 4)
        detail = "no rule lets it publish, or one denies it"
        mine = ("spiffe://example.org/device/7", "policy_deny", "mqtt_not_authorized", detail)

        def reported() -> bool:
            denied = self.site.broker.records("svc.broker.access.denied")
            return mine in {
                (each["peer_spiffe_id"], each["reason"], each["detail_reason"], each["detail"]) for each in denied
            }

        eventually(reported, what="a record of it")

    def test_publish_311(self) -> None:
        """MQTT 3.1.1 has no code for it: QoS 0 is dropped; QoS 1 and 2 close the connection [MQTT-3.3.5-2]."""
        client = self.site.client("device", version=Version.V311)
        client.send(Publish("devices/7/secret", b"denied"), Publish("devices/7/state", b"", 1, packet_id=1))
        self.assertEqual(client.sync(), [Acknowledgement(PacketType.PUBACK, 1)])
        client.send(Publish("devices/7/secret", b"denied", 1, packet_id=2))
        self.assertEqual((client.sync(), client.ended), ([], True))

    def test_subscribe(self) -> None:
        """Each filter is answered separately; one that is wider than all rules is refused, shared or not."""
        wanted = ("commands/7/#", "commands/#", "#", "devices/#", "devices/7/state", "$share/g/commands/x", "$SYS/#")
        allowed = (True, True, False, False, True, True, False)
        for version, code in ((Version.V5, int(REFUSED)), (Version.V311, 0x80)):
            client = self.site.client("device", version=version)
            client.send(Subscribe(9, [Subscription(each, 1) for each in wanted]))
            self.assertEqual(client.sync(), [Suback(9, [1 if each else code for each in allowed])])

    def test_nothing_leaks(self) -> None:
        """A client whose subscription was refused receives nothing through it."""
        device, control = self.site.client("device"), self.site.client("control")
        device.send(Subscribe(1, [Subscription("#", 0), Subscription("commands/7", 0)]))
        device.sync()
        control.send(Publish("commands/7", b"for you"), Publish("commands/8", b"not for you"))
        control.sync()
        self.assertEqual([each.payload for each in device.sync() if isinstance(each, Publish)], [b"for you"])

    def test_no_rule(self) -> None:
        """An identity without a rule is refused in CONNACK, counted and logged by name, and has no session."""
        before = self.site.broker.metric("svc_broker_refusals_total", reason="mqtt_no_rule")
        sessions = self.site.broker.metric("svc_broker_sessions")
        for version, code in ((Version.V5, int(REFUSED)), (Version.V311, 5)):
            raw = self.site.open("guest", version)
            raw.send(Connect("guest", version, clean_start=False))
            self.assertEqual((raw.until_end(AT_ONCE), raw.ended), ([Connack(False, code)], True))
        self.assertEqual(self.site.broker.metric("svc_broker_refusals_total", reason="mqtt_no_rule"), before + 2)
        self.assertEqual(self.site.broker.metric("svc_broker_sessions"), sessions)

        def logged() -> bool:
            refused = self.site.broker.records("svc.broker.client.refused")
            return ("spiffe://example.org/guest", "mqtt_no_rule") in {
                (each.get("peer_spiffe_id"), each["detail_reason"]) for each in refused
            }

        eventually(logged, what="a record of it")

    def test_will(self) -> None:
        """A will that its client may not publish refuses the connection."""
        for version, code in ((Version.V5, int(REFUSED)), (Version.V311, 5)):
            raw = self.site.open("device", version)
            raw.send(Connect("w", version, will=Will("commands/7", b"gone")))
            # A client that is refused is closed at once, over TLS too.
            self.assertEqual((raw.until_end(AT_ONCE), raw.ended), ([Connack(False, code)], True))

    def test_session_of_another(self) -> None:
        """A client identifier belongs to the identity that has its session; no other client can take or end it."""
        for version, code in ((Version.V5, int(REFUSED)), (Version.V311, 5)):
            name = f"mine-{version.name}"
            keep = {"clean_start": False}
            if version is Version.V5:
                keep["properties"] = Properties(session_expiry=100)  # type: ignore[assignment]
            owner = self.site.client("device", name, version, **keep)
            for clean in (True, False):
                other_client = self.site.open("other", version)
                other_client.send(Connect(name, version, clean_start=clean))
                self.assertEqual(other_client.until_end(AT_ONCE), [Connack(False, code)])
            self.assertEqual((owner.sync(), owner.ended), ([], False))
            owner.close()
            again = self.site.open("device", version)
            self.assertTrue(again.connect(name, **keep).session_present)

    def test_disconnect(self) -> None:
        """A client that sends DISCONNECT is closed at once."""
        client = self.site.client("device", "closing")
        client.send(Disconnect())
        self.assertEqual((client.until_end(AT_ONCE), client.ended), ([], True))

    def test_unauthenticated_peers(self) -> None:
        """A client of another authority, and one without an SVID, do not get through TLS."""
        folder = short_folder(self.site.stack)
        with RunningAuthority(entries=[entry("/device/7")], folder=folder) as authority:
            foreign = Credentials.fetch(authority, folder / "id")
        roots = self.site.credentials("device").roots
        context = Credentials(foreign.certificate, foreign.key, roots, foreign.spiffe_id).context()
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        bare.check_hostname = False
        bare.load_verify_locations(str(roots))
        for each in (context, bare):
            with RawClient(self.site.broker.port, tls=each.wrap_socket) as client:
                client.send(Connect("c"))
                self.assertEqual((client.until_end(), client.ended), ([], True))

    def test_mosquitto_clients(self) -> None:
        """Debian's mosquitto_pub and mosquitto_sub work with an SVID in files; what is refused is reported."""
        files = self.site.credentials("control")
        common = ["-h", "127.0.0.1", "-p", str(self.site.broker.port), "--cafile", str(files.roots), "--insecure"]
        common += ["--cert", str(files.certificate), "--key", str(files.key), "-V", "5", "-q", "1"]
        device = self.site.client("device", "for-mosquitto")
        device.send(Subscribe(1, [Subscription("commands/7", 1)]))
        device.sync()
        sent = run([find("mosquitto_pub"), *common, "-t", "commands/7", "-m", "go"])
        self.assertEqual((sent.returncode, sent.stderr), (0, b""))
        self.assertEqual([each.payload for each in device.sync() if isinstance(each, Publish)], [b"go"])
        refused = run([find("mosquitto_pub"), *common, "-t", "devices/7/state", "-m", "go"])
        self.assertIn(b"Not authorized", refused.stdout + refused.stderr)
        reported = run([find("mosquitto_sub"), *common, "-t", "commands/#", "-W", "60"])
        self.assertIn(b"All subscription requests were denied", reported.stdout + reported.stderr)


class StayingTests(SynchronousTestCase):
    """Connections that are closed by a change, and what applies to new ones."""

    def serial(self, port: int, credentials: Credentials) -> str:
        """Ask for the serial number of the broker's certificate."""
        kept: list[Any] = []

        def wrap(plain: Any) -> Any:
            kept.append(credentials.context().wrap_socket(plain))
            return kept[0]

        with RawClient(port, tls=wrap) as client:
            self.assertEqual(client.connect("serial").code, 0)
            return str(kept[0].getpeercert()["serialNumber"])

    def test_rotation_and_end(self) -> None:
        """
        New connections get the broker's new SVID, old ones stay; a client is closed when its own SVID ends, with the
        reason.
        """
        with ExitStack() as stack:
            site = Site(stack, broker="16s", device="16s")
            stays = site.client("control")
            goes = site.client("device", "goes", will=Will("devices/7/state", b"gone"))
            stays.send(Subscribe(1, [Subscription("devices/#", 0)]))
            stays.sync()
            files = site.credentials("control")
            first = self.serial(site.broker.port, files)
            eventually(lambda: self.serial(site.broker.port, files) != first, 60, "another SVID of the broker")
            self.assertEqual(goes.until_end(), [Disconnect(REFUSED)])
            self.assertEqual([each.payload for each in stays.sync() if isinstance(each, Publish)], [b"gone"])
            self.assertFalse(stays.ended)
            self.assertEqual(site.broker.metric("svc_broker_refusals_total", reason="expired"), 1)
            (record,) = eventually(lambda: site.broker.records("svc.broker.client.broken"))
            self.assertEqual(
                (record["detail_reason"], record["peer_spiffe_id"]), ("expired", "spiffe://example.org/device/7")
            )
            site.client("device", "goes")

    def test_new_roots(self) -> None:
        """After an authority restarts with new roots old clients are closed, new ones connect, sessions are kept."""
        with ExitStack() as stack:
            site = Site(stack)
            properties = Properties(session_expiry=100)
            client = site.client("device", "lasting", properties=properties)
            old = site.client("other", "old", Version.V311)
            before = site.credentials("device")
            site.authority.kill()
            site.authority.start()
            self.assertEqual(client.until_end(), [Disconnect(REFUSED)])
            self.assertEqual((old.until_end(), old.ended), ([], True))
            self.assertEqual(site.broker.metric("svc_broker_refusals_total", reason="chain_untrusted"), 2)
            eventually(site.broker.is_ready, 60, "readiness")
            again = site.open("device", folder="new")
            self.assertTrue(again.connect("lasting", clean_start=False, properties=properties).session_present)
            with self.assertRaises(ssl.SSLError):
                RawClient(site.broker.port, tls=before.context().wrap_socket)

    def test_withdrawn(self) -> None:
        """If the broker's own identity is withdrawn, its clients are closed and it is not ready."""
        with ExitStack() as stack:
            site = Site(stack)
            client = site.client("device")
            config = site.authority.config["entries"]
            # An authority without an entry for this user; everything else is as before.
            site.authority.config["entries"] = [{**each, "uid": os.geteuid() + 1} for each in config]
            site.authority.kill()
            site.authority.start()
            self.assertEqual(client.until_end(), [Disconnect(REFUSED)])
            self.assertEqual(site.broker.readiness()["credentials"]["reason"], "identity_withdrawn")
            self.assertEqual(site.broker.metric("svc_broker_refusals_total", reason="identity_withdrawn"), 1)


class StartTests(SynchronousTestCase):
    """Starts that fail."""

    def test_no_authority(self) -> None:
        """Without a Workload API the start fails at its time limit with the reason."""
        with ExitStack() as stack:
            folder: Path = short_folder(stack)
            broker = RunningBroker(
                listener={"tls": {"spiffe": True}, "acl": ACL},
                settings={
                    "trustDomain": "example.org",
                    "spiffeSocketPath": f"unix://{folder}/none.sock",
                    "startTimeout": "1s",
                },
                folder=folder,
            ).launch()
            self.assertEqual(broker.wait(60), 1)
            (record,) = broker.records("svc.process.start_failed")
            self.assertEqual(record["detail_reason"], "workload_api_unavailable")


class SharingSite(Site):
    """A site whose broker has 30 sessions, in a database."""

    def _broker(self) -> RunningBroker:
        settings = {"trustDomain": "example.org", "spiffeSocketPath": self.authority.address}
        return self.stack.enter_context(
            RunningBroker(
                listener={"name": "devices", "tls": {"spiffe": True}, "acl": ACL},
                limits={"sessions": 30},
                persistence={"path": str(self.folder / "kept" / "broker.db")},
                settings=settings,
            )
        )


class SharingTests(SynchronousTestCase):
    """One identity that takes all it can get."""

    def test_sessions(self) -> None:
        """One identity fills the broker with sessions that last, another one gets some, also after a crash."""
        with ExitStack() as stack:
            site = SharingSite(stack)
            contexts = {name: site.credentials(name).context() for name in ("device", "other")}
            keep: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry=100)}

            def code(name: str, client_id: str) -> int:
                with RawClient(site.broker.port, tls=contexts[name].wrap_socket) as client:
                    return client.connect(client_id, **keep).code

            codes = [code("device", f"d-{number}") for number in range(30)]
            self.assertEqual(codes, [0] * 28 + [ReasonCode.QUOTA_EXCEEDED] * 2)
            self.assertEqual(code("other", "o-1"), 0)
            refusals = site.broker.metric("svc_broker_refusals_total", reason="mqtt_session_limit")
            self.assertEqual((refusals, site.broker.metric("svc_broker_sessions")), (2, 29))
            refused = eventually(lambda: site.broker.records("svc.broker.client.refused"))[0]
            self.assertEqual(refused["detail_reason"], "mqtt_session_limit")
            self.assertIn("most, 28, by spiffe://example.org/device/7", refused["detail"])
            site.broker.kill()
            site.broker.start()
            self.assertEqual(code("device", "d-28"), ReasonCode.QUOTA_EXCEEDED)
            self.assertEqual((code("device", "d-27"), code("other", "o-2")), (0, 0))
            self.assertEqual(site.broker.metric("svc_broker_sessions"), 30)


class RevokedTests(SynchronousTestCase):
    """Rules that change with a restart."""

    def test_sessions_at_the_start(self) -> None:
        """A stored session whose clients no rule names any more is deleted at the start, which logs the number."""
        with ExitStack() as stack:
            folder = short_folder(stack)
            rule = {"who": "anonymous", "subscribe": ["t"]}
            broker = RunningBroker(
                listener={"acl": [rule]}, folder=folder, persistence={"path": str(folder / "kept" / "broker.db")}
            )
            stack.callback(broker.stop)
            broker.start()
            keep: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry=100)}
            with RawClient(broker.port) as client:
                self.assertEqual(client.connect("c", **keep).code, 0)
                client.send(Subscribe(1, [Subscription("t", 1)]))
                client.sync()
            broker.stop()
            broker.config["listeners"][0]["acl"] = []
            broker.start()
            self.assertEqual(broker.metric("svc_broker_sessions_revoked_total"), 1)
            self.assertEqual((broker.metric("svc_broker_sessions"), broker.metric("svc_broker_subscriptions")), (0, 0))
            opened = eventually(lambda: broker.records("svc.broker.store.opened"))[-1]["attributes"]
            self.assertEqual((opened["sessions"], opened["revoked"]), (0, 1))
            with RawClient(broker.port) as client:
                self.assertEqual(client.connect("c", **keep).code, REFUSED)
            broker.stop()
            broker.config["listeners"][0]["acl"] = [rule]
            broker.start()
            with RawClient(broker.port) as client:
                self.assertFalse(client.connect("c", **keep).session_present)
            self.assertEqual(broker.metric("svc_broker_sessions_revoked_total"), 0)

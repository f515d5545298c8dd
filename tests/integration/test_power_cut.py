"""Files after a power cut that follows the first acknowledgement: every new directory entry must be durable."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import Acknowledgement, PacketType, Properties, Publish, Subscribe, Subscription
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.folders import short_folder
from tests.peers.hanging_disk import HangingDisk
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.mqttclient import RawClient
from tests.peers.proxy import RunningProxy


class PowerCutTests(SynchronousTestCase):
    """Daemons on a disk that keeps only the names that were synchronized."""

    def setUp(self) -> None:
        """Make the disk, and the folder that is there before."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.base = short_folder(self.stack)
        self.disk = HangingDisk(self.stack, short_folder(self.stack))

    def on_disk(self, daemon: Any) -> Any:
        """Start a daemon there."""
        command = daemon.command
        daemon.executed, daemon.command = True, lambda *options: self.disk.command(command(*options))
        return self.stack.enter_context(daemon)

    def assert_kept(self, *paths: Path) -> None:
        """Nothing of these, and no folder around them, would be lost."""
        for path in paths:
            self.assertTrue(path.exists(), path)
            self.assertEqual(self.disk.removed(path, self.base), [])

    def test_notary(self) -> None:
        """The client has its response: the database of its receipt is there in whole, its log too."""
        path = self.base / "var" / "svc" / "notary.db"
        authority = self.stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
        upstream = f"127.0.0.1:{webapp.start(self.stack)}"
        proxy = RunningProxy(authority, upstream, listener={"notarization": "signRequest"}, notary={"path": str(path)})
        self.on_disk(proxy)
        with RawConnection(proxy.port, Credentials.fetch(authority, short_folder(self.stack))) as connection:
            self.assertEqual(connection.request("/bytes/10").status, 200)
            self.assert_kept(path, path.with_name("notary.db-wal"), path.with_name("notary.db.reserve"))

    def test_broker(self) -> None:
        """The publisher has its PUBACK: the database of the session is there in whole, its log too."""
        path = self.base / "var" / "svc" / "broker.db"
        broker = self.on_disk(RunningBroker(persistence={"path": str(path)}))
        with RawClient(broker.port) as client:
            client.connect("p", clean_start=False, properties=Properties(session_expiry=3600))
            client.send(Subscribe(1, [Subscription("t", 1)]))
            client.receive()
            client.send(Publish("t", b"kept", 1, packet_id=1))
            while client.receive() != Acknowledgement(PacketType.PUBACK, 1):
                pass
            self.assert_kept(path, path.with_name("broker.db-wal"))

    def test_authority(self) -> None:
        """The authority serves: its keys, bundles and archive are there."""
        authority = RunningAuthority(folder=self.base)
        authority.config["dataDir"] = str(self.base / "keys")
        self.on_disk(authority)
        self.assert_kept(
            self.base / "keys" / "keys.json", authority.bundle_path, authority.pq_bundle_path, authority.archive_path
        )

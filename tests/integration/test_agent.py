"""``twistd svc-agent``: its metrics beside an authority, and its driver as a kubelet calls it, with real mounts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.exceptions import GRPCError
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from svc.csi.messages import (
    Empty,
    GetPluginInfoResponse,
    MapEntry,
    NodeGetInfoResponse,
    NodePublishVolumeRequest,
    NodeUnpublishVolumeRequest,
    PluginInfo,
    RegistrationStatus,
    VolumeCapability,
)
from tests.peers.authority import RunningAuthority
from tests.peers.daemon import MonitoredDaemon, environment
from tests.peers.folders import short_folder
from tests.peers.waiting import eventually, free_port

UID = "6c8f0f3a-1d55-4d0e-9d35-2f7f6a0c2a11"


class RunningAgent(MonitoredDaemon):
    """
    One agent and its folder.

    Args:
        address: of the Workload API.
        csi: whether it has the CSI driver.
    """

    def __init__(self, address: str, *, csi: bool = True) -> None:
        super().__init__("agent", None)
        self.metrics_port, self.admin_port = free_port(), free_port()
        self.socket, self.registry = self.folder / "csi" / "csi.sock", self.folder / "registry"
        self.pods, self.source = self.folder / "pods", self.folder / "source"
        for folder in (self.pods, self.source):
            folder.mkdir()
        self.config = {
            "trustDomain": "example.org",
            "spiffeSocketPath": address,
            "metricsAddr": f"127.0.0.1:{self.metrics_port}",
            "adminAddr": f"127.0.0.1:{self.admin_port}",
        }
        if csi:
            self.config["csi"] = {
                "nodeName": "node0",
                "socket": str(self.socket),
                "endpoint": "/var/lib/kubelet/plugins/x/csi.sock",
                "registration": str(self.registry),
                "pods": str(self.pods),
                "folders": {"": str(self.source)},
            }

    @property
    def registration(self) -> Path:
        """The socket by which a kubelet finds the driver."""
        return self.registry / "csi.svc.internal-reg.sock"

    def is_ready(self) -> bool:
        """Whether it serves what it has; a driver is ready when a kubelet has said so."""
        return self.page("/livez")[0] == 200 and ("csi" not in self.config or self.registration.exists())


def call(path: Path, method: str, request: Any, answer: Any) -> Any:
    """Make one call at a socket, as the kubelet does."""

    async def run() -> Any:
        channel = Channel(path=str(path))
        try:
            return await UnaryUnaryMethod(channel, method, type(request), answer)(request)
        finally:
            channel.close()

    return asyncio.run(run())


class MetricsTests(SynchronousTestCase):
    """An agent without a driver."""

    def setUp(self) -> None:
        """Start an authority, and an agent beside it."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.authority = RunningAuthority("example.org")
        self.stack.callback(self.authority.stop)
        self.authority.start()
        self.agent = RunningAgent(self.authority.address, csi=False)
        self.stack.callback(self.agent.stop)

    def value(self, name: str, **labels: str) -> float:
        """One sample of a scrape; -1 where there is none."""
        found = [value for each, has, value in self.agent.samples() if each == f"svc_agent_{name}" and has == labels]
        return found[0] if found else -1.0

    def test_metrics(self) -> None:
        """The four families follow the Workload API: its SVID, its end, and its return."""
        self.agent.start()
        eventually(lambda: self.value("workload_api_connected") == 1.0)
        self.assertEqual(1.0, self.value("svid_renewals_total", result="success"))
        left = self.value("svid_expiry_seconds", spiffe_id="spiffe://example.org/workload")
        self.assertTrue(3000 < left <= 3600, left)
        self.assertEqual(200, self.agent.page("/readyz")[0])
        self.authority.kill()
        eventually(lambda: self.value("workload_api_connected") == 0.0)
        eventually(lambda: self.value("workload_api_watch_errors_total") >= 1.0)
        self.assertEqual(200, self.agent.page("/readyz")[0])
        self.authority.start()
        eventually(lambda: self.value("workload_api_connected") == 1.0)
        eventually(lambda: self.value("svid_renewals_total", result="success") == 2.0)

    def test_pq_bundle(self) -> None:
        """The roots of the issuer are in the node's file, and stay there while the issuer is away."""
        path = self.agent.folder / "pq-bundle.json"
        self.agent.config["pqBundle"] = {
            "issuer": self.authority.pq_address,
            "issuerID": "spiffe://example.org/svc/authority",
            "file": str(path),
            "every": "1s",
        }
        self.agent.start()
        eventually(path.exists)
        issued = self.authority.pq_bundle_path.read_bytes()
        self.assertEqual(issued, path.read_bytes())
        eventually(lambda: "svc.agent.pq_bundle.written" in self.agent.log)
        eventually(lambda: self.agent.readiness()["pqBundle"]["ok"])
        self.authority.kill()
        eventually(lambda: not self.agent.readiness()["pqBundle"]["ok"])
        eventually(lambda: "svc.agent.pq_bundle.failed" in self.agent.log)
        self.assertEqual((200, issued), (self.agent.page("/readyz")[0], path.read_bytes()))

    def test_metrics_address(self) -> None:
        """``--metrics-addr`` stands above the file, ``0`` disables, and what is no address is refused."""
        self.agent.write_config()
        for given, status, said in (("0", 0, ""), ("", 0, ""), ("nonsense", 1, "--metrics-addr nonsense: expected")):
            command = [*self.agent.command(f"--metrics-addr={given}"), "--check-config"]
            ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
            self.assertEqual(status, ran.returncode, ran.stderr + ran.stdout)
            self.assertIn(said, ran.stderr + ran.stdout)
            self.assertNotIn("metricsAddr at", ran.stdout)


class DriverTests(SynchronousTestCase):
    """An agent with a driver, and no Workload API yet."""

    def setUp(self) -> None:
        """Start an agent."""
        if os.geteuid() != 0:
            raise SkipTest("mounts need root")
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        folder = short_folder(self.stack)
        self.agent = RunningAgent(f"unix://{folder}/agent.sock")
        self.stack.callback(self.agent.stop)
        self.agent.start()
        self.target = self.agent.pods / UID / "volumes/kubernetes.io~csi/svc-spiffe/mount"
        self.stack.callback(lambda: subprocess.run(["umount", str(self.target)], capture_output=True, check=False))

    def publish(self, **changed: Any) -> Any:
        """Publish a volume."""
        facts = {"csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/pod.name": "web-0"}
        request = {
            "volume_id": "csi-1",
            "target_path": str(self.target),
            "volume_capability": VolumeCapability(mount=Empty()),
            "readonly": True,
            "volume_context": [MapEntry(key=key, value=value) for key, value in facts.items()],
            **changed,
        }
        return call(self.agent.socket, "/csi.v1.Node/NodePublishVolume", NodePublishVolumeRequest(**request), Empty)

    def unpublish(self) -> None:
        """Unpublish it."""
        request = NodeUnpublishVolumeRequest(volume_id="csi-1", target_path=str(self.target))
        call(self.agent.socket, "/csi.v1.Node/NodeUnpublishVolume", request, Empty)

    def options(self) -> set[str]:
        """The options of the mount at the target."""
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if line.split()[4] == str(self.target):
                return set(line.split()[5].split(","))
        return set()

    def test_registration(self) -> None:
        """The kubelet learns the driver's name and socket; readiness follows what it answers."""
        registry = "/pluginregistration.Registration/"
        info = call(self.agent.registration, f"{registry}GetInfo", Empty(), PluginInfo)
        self.assertEqual("/var/lib/kubelet/plugins/x/csi.sock", info.endpoint)
        plugin = call(self.agent.socket, "/csi.v1.Identity/GetPluginInfo", Empty(), GetPluginInfoResponse)
        self.assertEqual("csi.svc.internal", plugin.name)
        node = call(self.agent.socket, "/csi.v1.Node/NodeGetInfo", Empty(), NodeGetInfoResponse)
        self.assertEqual("node0", node.node_id)
        self.assertEqual(503, self.agent.page("/readyz")[0])
        notify = f"{registry}NotifyRegistrationStatus"
        call(self.agent.registration, notify, RegistrationStatus(error="no such driver"), Empty)
        self.assertIn("no such driver", json.dumps(self.agent.page("/readyz")[1]))
        call(self.agent.registration, notify, RegistrationStatus(plugin_registered=True), Empty)
        self.assertEqual(200, self.agent.page("/readyz")[0])
        for event in ("svc.agent.csi.failed", "svc.agent.csi.registered"):
            eventually(lambda event=event: self.agent.log.count(event) == 1)
        for path in (self.agent.registration, self.agent.socket):
            self.assertEqual(0o600, path.stat().st_mode & 0o777)

    def test_volume(self) -> None:
        """A pod sees what is in the folder later, too, can change nothing, and the mount outlives the agent."""
        self.publish()
        self.publish()
        self.assertLessEqual({"ro", "nosuid", "nodev", "noexec"}, self.options())
        (self.agent.source / "agent.sock").touch()
        self.assertEqual(["agent.sock"], os.listdir(self.target))
        self.assertRaises(OSError, (self.target / "x").touch)
        self.agent.kill()
        self.assertEqual(["agent.sock"], os.listdir(self.target))
        self.agent.start()
        self.publish()
        self.unpublish()
        self.assertEqual(set(), self.options())
        self.assertFalse(self.target.exists())
        self.assertEqual(["agent.sock"], os.listdir(self.agent.source))
        eventually(lambda: "svc.agent.volume.unpublished" in self.agent.log)
        self.assertIn('"svc.agent.volume.published"', self.agent.log)
        self.assertIn('"pod":"web-0"', self.agent.log)

    def test_refused(self) -> None:
        """A target elsewhere is refused with the reason, and logged once."""
        for _again in range(3):
            error = self.assertRaises(GRPCError, self.publish, target_path="/etc")
        self.assertIn("/etc is not a place for CSI volumes", str(error.message))
        eventually(lambda: self.agent.log.count("svc.agent.volume.failed") == 1)

    def test_end(self) -> None:
        """After SIGTERM the sockets are gone, so that the kubelet forgets the driver, and the status is 0."""
        process = self.agent.process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        eventually(lambda: process.poll() is not None)
        self.assertEqual(0, process.poll())
        self.assertFalse(self.agent.registration.exists() or self.agent.socket.exists())

"""The gRPC services of the CSI driver, over a connection in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.testing import ChannelFor
from twisted.trial.unittest import SynchronousTestCase

from svc.csi import NodeDriver
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
from svc.csi.service import CsiObserver, NodeService, RegistrationService
from svc.errors import SvcError
from tests.csi.test_driver import INLINE, UID, Mounts
from tests.peers.folders import short_folder


class Observer(CsiObserver):
    """Collects what it is told."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def published(self, volume: str, attributes: Mapping[str, str]) -> None:
        self.seen.append(("published", volume, dict(attributes)))

    def unpublished(self, volume: str) -> None:
        self.seen.append(("unpublished", volume))

    def failed(self, error: SvcError) -> None:
        self.seen.append(error.reason)

    def registered(self, error: SvcError | None) -> None:
        self.seen.append(None if error is None else str(error))


class ServiceTests(SynchronousTestCase):
    """Calls as the kubelet makes them."""

    def setUp(self) -> None:
        """Make the services of a driver."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        top = short_folder(stack)
        self.pods, self.source = top / "pods", top / "run"
        self.pods.mkdir()
        self.source.mkdir()
        self.observer = Observer()
        driver = NodeDriver({"": str(self.source)}, str(self.pods), Mounts())
        self.services = [
            NodeService("csi.svc.internal", "1.0", "node0", driver, self.observer),
            RegistrationService("csi.svc.internal", "/plugins/csi.sock", self.observer),
        ]
        self.target = str(self.pods / UID / "volumes/kubernetes.io~csi/svc-spiffe/mount")

    def call(self, path: str, request: Any, answer: Any) -> Any:
        """Make one call."""

        async def run() -> Any:
            async with ChannelFor(self.services) as channel:  # type: ignore[arg-type]
                return await self._method(channel, path, request, answer)

        return asyncio.run(run())

    async def _method(self, channel: Channel, path: str, request: Any, answer: Any) -> Any:
        return await UnaryUnaryMethod(channel, path, type(request), answer)(request)

    def request(self, **changed: Any) -> Any:
        """A request to publish a volume."""
        facts = [MapEntry(key=key, value=value) for key, value in INLINE.items()]
        fields = {"volume_id": "csi-1", "target_path": self.target, "readonly": True, "volume_context": facts}
        return NodePublishVolumeRequest(**{**fields, "volume_capability": VolumeCapability(mount=Empty()), **changed})

    def test_information(self) -> None:
        """The driver says its name, the node's name, and how the kubelet reaches it."""
        found = self.call("/csi.v1.Identity/GetPluginInfo", Empty(), GetPluginInfoResponse)
        self.assertEqual(("csi.svc.internal", "1.0"), (found.name, found.vendor_version))
        self.assertEqual("node0", self.call("/csi.v1.Node/NodeGetInfo", Empty(), NodeGetInfoResponse).node_id)
        info = self.call("/pluginregistration.Registration/GetInfo", Empty(), PluginInfo)
        self.assertEqual(
            ("CSIPlugin", "csi.svc.internal", "/plugins/csi.sock", ["1.0.0"]),
            (info.type, info.name, info.endpoint, list(info.supported_versions)),
        )
        for path in ("Identity/GetPluginCapabilities", "Identity/Probe", "Node/NodeGetCapabilities"):
            self.assertEqual(Empty(), self.call(f"/csi.v1.{path}", Empty(), Empty))

    def test_volume(self) -> None:
        """A volume is published and unpublished, and both are reported."""
        self.call("/csi.v1.Node/NodePublishVolume", self.request(), Empty)
        request = NodeUnpublishVolumeRequest(volume_id="csi-1", target_path=self.target)
        self.call("/csi.v1.Node/NodeUnpublishVolume", request, Empty)
        self.assertEqual([("published", "csi-1", INLINE), ("unpublished", "csi-1")], self.observer.seen)

    def test_statuses(self) -> None:
        """What is refused, what may succeed later and what failed have different statuses, with the sentence."""
        refused = self.refusal(self.request(readonly=False))
        self.assertEqual(Status.INVALID_ARGUMENT, refused.status)
        self.assertIn("it is not readOnly", str(refused.message))
        block = self.request(volume_capability=VolumeCapability(block=Empty()))
        self.assertEqual(Status.INVALID_ARGUMENT, self.refusal(block).status)
        self.source.rmdir()
        self.assertEqual(Status.UNAVAILABLE, self.refusal(self.request()).status)
        self.source.mkdir()
        self.pods.rmdir()
        self.pods.write_text("not a folder")
        self.assertEqual(Status.INTERNAL, self.refusal(self.request()).status)
        reasons = ["volume_invalid", "volume_invalid", "volume_source_missing", "volume_failed"]
        self.assertEqual(reasons, self.observer.seen)

    def refusal(self, request: Any) -> GRPCError:
        """The error of a refused volume."""
        return self.assertRaises(GRPCError, self.call, "/csi.v1.Node/NodePublishVolume", request, Empty)

    def test_registration(self) -> None:
        """The kubelet's answer is reported, and a refusal with its text."""
        path = "/pluginregistration.Registration/NotifyRegistrationStatus"
        self.call(path, RegistrationStatus(plugin_registered=True), Empty)
        self.call(path, RegistrationStatus(plugin_registered=False, error="no\nreason"), Empty)
        refused = "the CSI driver csi.svc.internal is not registered with the kubelet: no\\x0areason"
        self.assertEqual([None, refused], self.observer.seen)

    def test_octets(self) -> None:
        """A request of the kubelet, in octets, with fields that the driver does not name, is read."""
        # volume_id, publish_context (2), target_path, volume_capability{mount{fs_type}, access_mode}, readonly,
        # volume_context: a map entry.
        data = b"\x0a\x05csi-1\x12\x06\x0a\x01a\x12\x01b\x22\x02/t\x2a\x0a\x12\x04\x0a\x02xf\x1a\x02\x08\x01\x30\x01"
        data += b"\x42\x06\x0a\x01k\x12\x01v"
        found = NodePublishVolumeRequest.FromString(data)
        self.assertEqual(("csi-1", "/t", True), (found.volume_id, found.target_path, found.readonly))
        self.assertFalse(found.volume_capability.HasField("block"))
        self.assertEqual([("k", "v")], [(each.key, each.value) for each in found.volume_context])

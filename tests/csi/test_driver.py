"""What the CSI driver does for volumes, with mounts in memory."""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svc.csi import IMounts, LinuxMounts, NodeDriver, VolumeFailed, VolumeRefused, VolumeSourceMissing
from svc.csi.mounts import _unescaped
from tests.peers.folders import short_folder

INLINE = {"csi.storage.k8s.io/ephemeral": "true"}
UID = "6c8f0f3a-1d55-4d0e-9d35-2f7f6a0c2a11"


@implementer(IMounts)
class Mounts:
    """Mounts in memory; ``error`` is raised by the next one."""

    def __init__(self) -> None:
        self.at: dict[str, str] = {}
        self.error: OSError | None = None

    def mounted(self, path: str) -> bool:
        return path in self.at

    def bind(self, source: str, target: str) -> None:
        if self.error is not None:
            raise self.error
        self.at[target] = source

    def unmount(self, target: str) -> None:
        if self.error is not None:
            raise self.error
        del self.at[target]


class DriverTests(SynchronousTestCase):
    """Volumes that are published and unpublished."""

    def setUp(self) -> None:
        """Make a folder of pods and two folders that can be mounted."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        top = short_folder(stack)
        self.pods, self.source, self.other = top / "pods", top / "run", top / "other"
        for folder in (self.pods, self.source, self.other):
            folder.mkdir()
        self.mounts = Mounts()
        self.driver = NodeDriver({"": str(self.source), "two": str(self.other)}, str(self.pods), self.mounts)
        self.target = self.pods / UID / "volumes" / "kubernetes.io~csi" / "svc-spiffe" / "mount"

    def publish(self, target: Path | None = None, **changed: object) -> None:
        """Publish a volume as the kubelet does."""
        asked: dict[str, object] = {"read_only": True, "block": False, "attributes": INLINE, **changed}
        self.driver.publish("csi-1", str(target or self.target), **asked)  # type: ignore[arg-type]

    def test_interface(self) -> None:
        """Both implementations provide the interface."""
        self.assertTrue(verifyObject(IMounts, Mounts()) and verifyObject(IMounts, LinuxMounts()))

    def test_published_and_unpublished(self) -> None:
        """The folder is mounted once however often the kubelet asks, and nothing is left when it is unpublished."""
        self.publish()
        self.publish()
        self.assertEqual({str(self.target): str(self.source)}, self.mounts.at)
        self.assertEqual(0o750, self.target.stat().st_mode & 0o777)
        for _again in range(2):
            self.driver.unpublish("csi-1", str(self.target))
            self.assertEqual({}, self.mounts.at)
            self.assertFalse(self.target.exists())

    def test_source_attribute(self) -> None:
        """A volume names one of several folders; an unknown name is refused."""
        self.publish(attributes={**INLINE, "source": "two"})
        self.assertEqual([str(self.other)], list(self.mounts.at.values()))
        self.assertRaises(VolumeRefused, self.publish, attributes={**INLINE, "source": "three"})

    def test_refused(self) -> None:
        """A volume that is writable, a block device or persistent is refused, and nothing is made."""
        for changed in ({"read_only": False}, {"block": True}, {"attributes": {}}):
            error = self.assertRaises(VolumeRefused, self.publish, **changed)
            self.assertIs(VolumeRefused, type(error))
        self.assertEqual([], os.listdir(self.pods))

    def test_paths_outside(self) -> None:
        """A target that is not the place of a CSI volume of a pod is refused, also behind a symbolic link."""
        link = self.pods / UID / "volumes" / "kubernetes.io~csi" / "link"
        link.parent.mkdir(parents=True)
        link.symlink_to("/etc")
        for target in (
            Path("/etc"),
            self.pods,
            self.pods / ".." / "run",
            link / "mount",
            self.pods / UID / "volumes" / "kubernetes.io~empty-dir" / "x" / "mount",
            self.target / "below",
            self.target.parent,
        ):
            self.assertRaises(VolumeRefused, self.publish, target)
            self.assertRaises(VolumeRefused, self.driver.unpublish, "csi-1", str(target))
        self.assertEqual({}, self.mounts.at)
        self.assertRaises(VolumeRefused, self.driver.unpublish, "", str(self.target))

    @given(st.text(max_size=200))
    def test_any_target(self, text: str) -> None:
        """No text makes the driver touch anything outside the folder of pods."""
        driver = NodeDriver({"": "/"}, "/proc/nonexistent/pods", Mounts())
        try:
            driver.unpublish("csi-1", text.replace("\0", ""))
        except VolumeRefused:
            return
        self.assertTrue(text.startswith("/proc/nonexistent/pods/"))

    def test_source_missing(self) -> None:
        """Without the folder of the SPIRE agent the kubelet is told to come again."""
        self.source.rmdir()
        self.assertRaises(VolumeSourceMissing, self.publish)
        self.source.mkdir()
        self.publish()
        self.assertEqual(1, len(self.mounts.at))

    def test_mount_fails(self) -> None:
        """An error of the system is reported with its path, and the next attempt succeeds."""
        self.mounts.error = OSError(errno.EPERM, "Operation not permitted", str(self.target))
        error = self.assertRaises(VolumeFailed, self.publish)
        self.assertEqual(f"the volume csi-1 failed: {self.target}: Operation not permitted", str(error))
        self.mounts.error = None
        self.publish()
        self.mounts.error = OSError(errno.EBUSY, "Device or resource busy", str(self.target))
        self.assertRaises(VolumeFailed, self.driver.unpublish, "csi-1", str(self.target))
        self.assertEqual(1, len(self.mounts.at))

    def test_octal_in_mountinfo(self) -> None:
        """Paths are read as the kernel writes them."""
        self.assertEqual("/a b\\c", _unescaped("/a\\040b\\134c"))

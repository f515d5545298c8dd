"""Tests of svc.workload.pqfile and svc.workload.archive."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import TrustDomain, X509Bundle
from svc.identity.archive import BundleArchive
from svc.identity.pqbundle import PqBundles, SequenceFell
from svc.telemetry.events.workload import WorkloadEvent
from svc.testing.ca import TestAuthority
from svc.workload.archive import ArchiveFile
from svc.workload.errors import ArchiveUnusable, PqFileMalformed, PqFileMissing, PqFileRefused
from svc.workload.files import write_atomically
from svc.workload.pqfile import PqBundleSource, pq_bundle_path, read_pq_bundles
from tests.workload.messages import AUTHORITY, FOREIGN, NOW

DOMAIN = TrustDomain("example.org")
ROOTS = [TestAuthority("example.org", now=NOW, algorithm="ML-DSA-65") for _ in range(2)]


def bundles(sequence: int, *roots: TestAuthority) -> bytes:
    """A PQ bundle file."""
    bundle = X509Bundle.from_certificates(DOMAIN, [root.certificate for root in roots])
    return PqBundles().with_bundle(bundle, sequence).serialize()


class FolderCase(SynchronousTestCase):
    """A folder that only its owner can write."""

    def setUp(self) -> None:
        folder = Path(self.mktemp())
        folder.mkdir(parents=True)
        folder.chmod(0o755)
        self.folder = folder
        self.path = folder / "pq-bundle.json"


class PathTests(SynchronousTestCase):
    """The path of the file."""

    def test_order(self) -> None:
        """Given path, then variable, then beside the socket, then none."""
        environment = {"SVC_PQ_BUNDLE": "/env.json"}
        self.assertEqual(pq_bundle_path("/given.json", environment, "unix:///run/a.sock"), "/given.json")
        self.assertEqual(pq_bundle_path(None, environment, "unix:///run/a.sock"), "/env.json")
        self.assertEqual(pq_bundle_path("", {}, "unix:///run/a.sock"), "/run/pq-bundle.json")
        self.assertIsNone(pq_bundle_path(None, {}, None))


class ReadTests(FolderCase):
    """Reading once."""

    def test_read(self) -> None:
        """A good file is read."""
        write_atomically(self.path, bundles(3, ROOTS[0]))
        self.assertEqual(read_pq_bundles(self.path).entries[DOMAIN].sequence, 3)

    def test_refusals(self) -> None:
        """Missing, writable and malformed files have errors of their own."""
        self.assertRaises(PqFileMissing, read_pq_bundles, self.path)
        write_atomically(self.path, b"{}")
        self.assertRaises(PqFileMalformed, read_pq_bundles, self.path)
        write_atomically(self.path, bundles(3, ROOTS[0]), mode=0o666)
        error = self.assertRaises(PqFileRefused, read_pq_bundles, self.path)
        self.assertIn("writable by others", str(error))
        self.assertIn(str(self.path), str(error))


class PqBundleSourceTests(FolderCase):
    """Watching the file."""

    def setUp(self) -> None:
        """Make a source that has not been started."""
        super().setUp()
        self.clock = Clock()
        self.source = PqBundleSource(self.path, reactor=self.clock)
        self.changes: list[int] = []
        self.source.subscribe(lambda: self.changes.append(self.source.pq_bundles.entries[DOMAIN].sequence))
        self.addCleanup(self.stopped)

    def stopped(self) -> None:
        """Stop it and assert that no timer remains."""
        self.source.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def put(self, data: bytes, mode: int = 0o644) -> None:
        """Replace the file and let a second pass."""
        write_atomically(self.path, data, mode=mode)
        self.clock.advance(1)

    def test_read_at_start(self) -> None:
        """An existing file is read at once."""
        write_atomically(self.path, bundles(1, ROOTS[0]))
        self.source.startService()
        self.assertEqual(self.source.bundles.bundle_for(DOMAIN).certificates, (ROOTS[0].certificate,))
        self.assertEqual(self.changes, [1])

    def test_appears_late(self) -> None:
        """A file that is missing at the start is reported as missing and read when it appears."""
        self.source.startService()
        self.assertRaises(PqFileMissing, lambda: self.source.bundles)
        self.put(bundles(1, ROOTS[0]))
        self.assertEqual(self.source.bundles.bundle_for(DOMAIN).certificates, (ROOTS[0].certificate,))
        self.assertIsNone(self.source.last_error)

    def test_change(self) -> None:
        """A new version is in force within a second, and subscribers are notified."""
        logged = self.enterContext(capturedLogs())
        write_atomically(self.path, bundles(1, ROOTS[0]))
        self.source.startService()
        self.put(bundles(2, *ROOTS))
        self.assertEqual(len(self.source.bundles.bundle_for(DOMAIN).anchors), 2)
        self.clock.pump([1, 1, 1])
        self.assertEqual(self.changes, [1, 2])
        self.assertEqual(2, [each.get("svc_event") for each in logged].count(WorkloadEvent.PQ_BUNDLE_UPDATED))

    def kept(self, data: bytes, error: type[Exception], mode: int = 0o644) -> None:
        """Replace a valid file by an invalid one and assert that the valid one stays in force."""
        write_atomically(self.path, bundles(5, ROOTS[0]))
        self.source.startService()
        self.put(data, mode)
        self.assertIsInstance(self.source.last_error, error)
        self.assertEqual(self.source.pq_bundles.entries[DOMAIN].sequence, 5)
        self.assertEqual(self.changes, [5])
        self.put(bundles(6, ROOTS[1]))
        self.assertEqual(self.changes, [5, 6])

    def test_malformed(self) -> None:
        """After a malformed file the last valid one stays in force."""
        self.kept(b"not json", PqFileMalformed)

    def test_refused(self) -> None:
        """After a file that others can write the last valid one stays in force."""
        self.kept(bundles(6, ROOTS[1]), PqFileRefused, 0o666)

    def test_sequence_fell(self) -> None:
        """An older version is refused, and so is one with the same number and other roots."""
        self.kept(bundles(4, ROOTS[1]), SequenceFell)
        self.put(bundles(6, *ROOTS))
        self.assertIsInstance(self.source.last_error, SequenceFell)

    def test_removed(self) -> None:
        """After the file is removed its last valid content stays in force."""
        write_atomically(self.path, bundles(5, ROOTS[0]))
        self.source.startService()
        self.path.unlink()
        self.clock.advance(1)
        self.assertIsInstance(self.source.last_error, PqFileMissing)
        self.assertEqual(self.source.pq_bundles.entries[DOMAIN].sequence, 5)

    def test_permissions_corrected(self) -> None:
        """If only the folder was wrong, correcting it is enough."""
        write_atomically(self.path, bundles(5, ROOTS[0]))
        self.folder.chmod(0o777)
        self.source.startService()
        self.assertRaises(PqFileRefused, lambda: self.source.bundles)
        self.folder.chmod(0o755)
        self.clock.advance(1)
        self.assertEqual(self.source.pq_bundles.entries[DOMAIN].sequence, 5)


class ArchiveFileTests(FolderCase):
    """The archive beside the socket."""

    def setUp(self) -> None:
        super().setUp()
        self.path = self.folder / "bundle-archive.json"

    def test_windows(self) -> None:
        """Each root gets a window that closes when the root is removed; nothing is written while nothing changes."""
        archive = ArchiveFile(self.path)
        self.assertTrue(archive.observe(AUTHORITY.bundles(), NOW))
        self.assertFalse(archive.observe(AUTHORITY.bundles(), NOW + timedelta(hours=1)))
        again = ArchiveFile(self.path)
        later = NOW + timedelta(hours=2)
        self.assertTrue(again.observe(FOREIGN.bundles(), later, pq=ROOTS[0].bundles()))
        read = BundleArchive.parse(self.path.read_bytes())
        self.assertEqual(read, again.archive)
        (closed,) = read.spiffe.bundle_for(DOMAIN).anchors
        self.assertEqual((closed.first_seen, closed.last_seen), (NOW, later))
        self.assertEqual(read.pq.bundle_for(DOMAIN).certificates, (ROOTS[0].certificate,))

    def test_malformed(self) -> None:
        """A malformed file is not changed, and raises an error."""
        write_atomically(self.path, b"x")
        error = self.assertRaises(ArchiveUnusable, ArchiveFile(self.path).observe, AUTHORITY.bundles(), NOW)
        self.assertIn(str(self.path), str(error))
        self.assertEqual(self.path.read_bytes(), b"x")

    def test_refused(self) -> None:
        """A file that others can write is refused."""
        ArchiveFile(self.path).observe(AUTHORITY.bundles(), NOW)
        os.chmod(self.path, 0o666)
        self.assertRaises(ArchiveUnusable, ArchiveFile(self.path).load)

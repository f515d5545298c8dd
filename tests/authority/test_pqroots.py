"""Tests of svc.pqissuer.roots, publication and federation."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.authority.bundlefile import pem_bundle, spiffe_bundle
from svc.authority.federation import (
    ForeignRootsMissing,
    WatchedFile,
    read_foreign,
    read_foreign_pq,
)
from svc.authority.publication import Publication, PublicationFailed
from svc.errors import SvcError
from svc.identity import BundleSet, TrustDomain, verify_svid
from svc.identity.archive import BundleArchive
from svc.identity.pqbundle import PqBundles, SequenceFell
from svc.pqissuer.roots import LOST_ROOT_LIFETIME, PqRootRing
from svc.testing.ca import TestAuthority
from svc.workload.errors import PqFileMissing
from svc.workload.files import FileMissing, FileRefused, write_atomically
from tests.workload.messages import AUTHORITY, FOREIGN, NOW

DOMAIN, OTHER = TrustDomain("example.org"), TrustDomain("foreign.example")
DAY = timedelta(days=1)
FOREIGN_PQ = TestAuthority("foreign.example", now=NOW, algorithm="ML-DSA-65")


def roots(before: PqBundles | None = None) -> PqRootRing:
    """Roots with a lifetime of 30 days."""
    return PqRootRing(DOMAIN, before or PqBundles(), ttl=30 * DAY, algorithm="ML-DSA-65", random=os.urandom)


class PqRootRingTests(SynchronousTestCase):
    """Rotation and announcement of PQ roots."""

    def test_issued_leaf_verifies(self) -> None:
        """A leaf of the signing root verifies to the announced bundle, over several lifetimes of roots."""
        made = roots()
        svid = AUTHORITY.svid("/a")
        evidence = verify_svid(svid.chain, AUTHORITY.bundles(), NOW)
        key = FOREIGN_PQ.pq_leaf(svid)[1].public_key()
        self.assertTrue(made.advance(NOW))
        chain = made.issuer(NOW).issue(evidence, key, NOW, os.urandom)  # type: ignore[arg-type]
        found = verify_svid(chain, made.bundles.bundle_set(), NOW)
        self.assertTrue(found.post_quantum)
        self.assertEqual(found.spiffe_id, svid.spiffe_id)

    def test_sequence(self) -> None:
        """The sequence rises with each change and only then."""
        made = roots()
        made.advance(NOW)
        self.assertFalse(made.advance(NOW + DAY))
        self.assertEqual(made.bundles.entries[DOMAIN].sequence, 1)
        self.assertTrue(made.advance(NOW + 15 * DAY))
        self.assertEqual(made.bundles.entries[DOMAIN].sequence, 2)
        self.assertEqual(len(made.bundles.entries[DOMAIN].bundle.anchors), 2)

    def test_served_root_signs_early(self) -> None:
        """A root signs as soon as its first sequence is served; one that is not, at its time, and none twice."""
        made = roots()
        made.advance(NOW)
        made.begin_served(lambda sequence: True, NOW)
        first = made.issuer(NOW)
        half = NOW + 15 * DAY
        made.advance(half)
        self.assertEqual(1, made.published(half))
        asked: list[int] = []
        made.begin_served(lambda sequence: bool(asked.append(sequence)), half)
        self.assertEqual(([2], first), (asked, made.issuer(half)))
        made.begin_served(lambda sequence: sequence == 2, half)
        self.assertEqual((made.ring.announced[1].key, 2), (made.issuer(half), made.published(half)))
        made.begin_served(lambda sequence: self.fail("it signs already"), half)
        self.assertFalse(made.advance(half + DAY) and made.bundles.entries[DOMAIN].sequence != 2)

    def test_served_root_after_restart(self) -> None:
        """After a restart each root that was published before counts from the bundle that has it now."""
        made = roots()
        made.advance(NOW)
        half = NOW + 15 * DAY
        made.advance(half)
        again = roots(PqBundles.parse(made.bundles.serialize()))
        again.ring.resume(made.ring.announced, lambda slots: None)
        again.advance(half)
        self.assertEqual(first := made.issuer(half), again.issuer(half))
        asked: list[int] = []
        again.begin_served(lambda sequence: bool(asked.append(sequence)), half)
        self.assertEqual(([2], first), (asked, again.issuer(half)))

    def test_restart(self) -> None:
        """
        After a restart the sequence continues, and the old root is trusted for one more day, until leaves have expired.
        """
        first = roots()
        first.advance(NOW)
        later = NOW + timedelta(hours=5)
        second = roots(PqBundles.parse(first.bundles.serialize()))
        self.assertTrue(second.advance(later))
        self.assertEqual(second.bundles.entries[DOMAIN].sequence, 2)
        old, new = second.bundles.entries[DOMAIN].bundle.anchors
        self.assertEqual(old.certificate, first.issuer(NOW).certificate)
        self.assertEqual(old.last_seen, later + LOST_ROOT_LIFETIME)
        self.assertEqual(new.certificate, second.issuer(later).certificate)
        self.assertTrue(second.advance(later + LOST_ROOT_LIFETIME + timedelta(seconds=1)))
        self.assertEqual(len(second.bundles.entries[DOMAIN].bundle.anchors), 1)

    def test_many_restarts(self) -> None:
        """Restarts never extend the windows of old roots."""
        before, ends = PqBundles(), set()
        for minute in range(5):
            made = roots(before)
            made.advance(NOW + timedelta(minutes=minute))
            before = PqBundles.parse(made.bundles.serialize())
            ends.add(before.entries[DOMAIN].bundle.anchors[0].last_seen)
        self.assertEqual(len(before.entries[DOMAIN].bundle.anchors), 5)
        self.assertLessEqual(len(ends), 2)

    def test_foreign(self) -> None:
        """Federated roots are in the bundle with their own sequence, which never falls."""
        made = roots()
        made.advance(NOW)
        self.assertTrue(made.set_foreign(FOREIGN_PQ.bundle(), 7))
        self.assertFalse(made.set_foreign(FOREIGN_PQ.bundle(), 7))
        self.assertEqual(made.bundles.entries[OTHER].sequence, 7)
        self.assertRaises(SequenceFell, made.set_foreign, FOREIGN_PQ.bundle(), 6)
        self.assertEqual(made.bundles.entries[DOMAIN].sequence, 1)
        made.keep_federated(frozenset())
        self.assertEqual(list(made.bundles.entries), [DOMAIN])


class FolderCase(SynchronousTestCase):
    """A folder that only its owner can write."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o755)

    def path(self, name: str) -> str:
        return str(self.folder / name)


class PublicationTests(FolderCase):
    """The published files."""

    def test_files(self) -> None:
        """All three are written, readable by all, and not written again while nothing changes."""
        made = Publication(self.path("archive"), self.path("pq"), self.path("bundle.json"))
        made.load()
        pq = PqBundles().with_bundle(FOREIGN_PQ.bundle(), 1)
        for _ in range(2):
            made.publish_bundle(AUTHORITY.bundle(), (), 5)
            made.publish_roots(AUTHORITY.bundles(), pq, NOW)
            stamps = {name: os.stat(self.path(name)).st_ino for name in ("archive", "pq", "bundle.json")}
        made.publish_bundle(AUTHORITY.bundle(), (), 5)
        made.publish_roots(AUTHORITY.bundles(), pq, NOW)
        for name, inode in stamps.items():
            self.assertEqual(os.stat(self.path(name)).st_ino, inode)
            self.assertEqual(os.stat(self.path(name)).st_mode & 0o777, 0o644)
        self.assertEqual(json.loads((self.folder / "bundle.json").read_bytes())["spiffe_sequence"], 5)
        archive = BundleArchive.parse((self.folder / "archive").read_bytes())
        self.assertEqual((archive.spiffe.trust_domains, archive.pq.trust_domains), ((DOMAIN,), (OTHER,)))

    def test_pem(self) -> None:
        """A bundle file whose name ends in .pem contains PEM."""
        made = Publication(None, None, self.path("bundle.pem"))
        made.publish_bundle(AUTHORITY.bundle(), (), 5)
        self.assertEqual(read_foreign(self.path("bundle.pem"), DOMAIN).x509, AUTHORITY.bundle())

    def test_failure(self) -> None:
        """A missing folder is reported with its path, and the next attempt writes."""
        made = Publication(None, None, self.path("no/bundle.json"))
        error = self.assertRaises(PublicationFailed, made.publish_bundle, AUTHORITY.bundle(), (), 5)
        self.assertIn("no/bundle.json", str(error))
        (self.folder / "no").mkdir()
        made.publish_bundle(AUTHORITY.bundle(), (), 5)
        self.assertTrue((self.folder / "no" / "bundle.json").exists())

    def test_nothing(self) -> None:
        """Without paths nothing is written."""
        made = Publication(None, None, None)
        made.load()
        made.publish_bundle(AUTHORITY.bundle(), (), 5)
        made.publish_roots(BundleSet(), PqBundles(), NOW)
        self.assertEqual(os.listdir(self.folder), [])


class ReadForeignTests(FolderCase):
    """Bundles of other trust domains."""

    def test_forms(self) -> None:
        """A SPIFFE bundle and PEM are read; only the wanted trust domain is used."""
        path = self.path("b")
        for data in (spiffe_bundle(FOREIGN.bundle(), (), 1), pem_bundle(FOREIGN.bundle())):
            write_atomically(path, data)
            self.assertEqual(read_foreign(path, OTHER).x509, FOREIGN.bundle())

    def test_refusals(self) -> None:
        """Missing, open, malformed and empty files are refused."""
        path = self.path("b")
        self.assertRaises(FileMissing, read_foreign, path, OTHER)
        write_atomically(path, pem_bundle(FOREIGN.bundle()), mode=0o666)
        self.assertRaises(FileRefused, read_foreign, path, OTHER)
        for data in (b"", b"{", b"{}", b'{"keys":7}'):
            write_atomically(path, data)
            self.assertRaises(SvcError, read_foreign, path, OTHER)
        write_atomically(path, b'{"keys":[]}')
        self.assertRaises(ForeignRootsMissing, read_foreign, path, OTHER)

    def test_pq(self) -> None:
        """Only the wanted trust domain of a PQ bundle is used."""
        path = self.path("pq")
        self.assertRaises(PqFileMissing, read_foreign_pq, path, OTHER)
        own = TestAuthority("example.org", now=NOW, algorithm="ML-DSA-65").bundle()
        write_atomically(path, PqBundles().with_bundle(own, 1).serialize())
        self.assertRaises(ForeignRootsMissing, read_foreign_pq, path, OTHER)
        write_atomically(path, PqBundles().with_bundle(own, 2).with_bundle(FOREIGN_PQ.bundle(), 9).serialize())
        found = read_foreign_pq(path, OTHER)
        self.assertEqual((found.bundle.certificates, found.sequence), (FOREIGN_PQ.bundle().certificates, 9))


class WatchedFileTests(FolderCase):
    """When a file is read."""

    def setUp(self) -> None:
        super().setUp()
        self.taken: list[bytes] = []
        self.refused: list[str] = []
        self.file = WatchedFile(self.path("f"), self.take, lambda path, error: self.refused.append(error.reason))

    def take(self) -> None:
        if not (self.folder / "f").exists():
            raise FileMissing(path="f")
        data = (self.folder / "f").read_bytes()
        if data == b"bad":
            raise FileRefused(path="f", defect="bad")
        self.taken.append(data)

    def test_lifetime(self) -> None:
        """A file is read when it appears and when it changes; each new error is reported once."""
        self.file.check()
        self.file.check()
        self.assertEqual(self.refused, ["file_missing"])
        for data in (b"one", b"bad", b"two"):
            write_atomically(self.path("f"), data)
            self.file.check()
            self.file.check()
        self.assertEqual(self.taken, [b"one", b"two"])
        self.assertEqual(self.refused, ["file_missing", "file_refused"])

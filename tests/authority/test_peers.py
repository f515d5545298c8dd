"""Tests of svc.authority.peers and federating: what is pinned, where, and what then is trusted."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.authority import peers as peers_module
from svc.authority.config import AuthoritySettings
from svc.authority.domain import make_domain
from svc.authority.federating import KEYS, Federating, open_root_keys
from svc.authority.keyfile import KeyFile, KeysRefused
from svc.authority.peers import (
    FOLDER,
    PeerFileRefused,
    PeerNotStored,
    PeerRefused,
    Peers,
    continuity,
    judge_import,
)
from svc.authority.report import AuthorityLog
from svc.envelope.errors import EnvelopeError
from svc.federation.continuity import Continuity
from svc.federation.errors import PackageRefused
from svc.federation.package import VerifiedPackage, sign_package, verify_package
from svc.federation.reference import ExpectedPeer
from svc.federation.rootkeys import RootKeys
from svc.identity import TrustDomain, X509Bundle
from svc.identity.pqbundle import PqBundle, PqBundles
from svc.pqissuer.roots import PqRootRing
from svc.strictjson import dumps
from tests.federation.material import DAY, ENDPOINT, PARTNER, PROD, content, full_content, signed, signers
from tests.vectors.material import NOW

SECOND = timedelta(seconds=1)
LATER = NOW + DAY


class JudgeTests(SynchronousTestCase):
    """What becomes of a package, by what is pinned and by the flags."""

    def judge(self, pinned: VerifiedPackage | None, found: VerifiedPackage, flags: str = "", **more: Any) -> str:
        """The result, or the reason."""
        settings = {"own": PARTNER, "now": LATER, "expected": None, **more}
        try:
            return judge_import(
                pinned, found, rebootstrap=flags == "rebootstrap", force=flags == "force", **settings
            ).value
        except EnvelopeError as error:
            return error.reason

    def test_table(self) -> None:
        """Successors renew with any flag; others by the flag and by whether the pinned package has ended."""
        pinned = signed(2)
        other = sign_package(content(2, issued=LATER, roots=_other().roots), _other().signers)
        older, previous = signed(2, issued=NOW - SECOND), signed(1)
        renewed, successor, far = signed(2, issued=LATER), signed(3, introduced=True), signed(4, introduced=True)
        rows: list[tuple[VerifiedPackage, str, str, str]] = [
            (pinned, "unchanged", "unchanged", "unchanged"),
            (renewed, "renewed", "renewed", "renewed"),
            (successor, "renewed", "renewed", "renewed"),
            (older, "package_rolled_back", "continuity_working", "rebootstrapped"),
            (previous, "package_rolled_back", "continuity_working", "rebootstrapped"),
            (other, "already_federated", "continuity_working", "rebootstrapped"),
            (far, "already_federated", "continuity_working", "rebootstrapped"),
        ]
        for found, *expected in rows:
            self.assertEqual(expected, [self.judge(pinned, found, flag) for flag in ("", "rebootstrap", "force")])
        # At the instant of its end, and a second before.
        end = pinned.content.expires
        late = sign_package(content(2, issued=end - 2 * SECOND, roots=_other().roots), _other().signers)
        for now, expected in ((end - SECOND, ["already_federated", "continuity_working"]),
                              (end, ["already_federated", "rebootstrapped"])):  # fmt: skip
            self.assertEqual(expected, [self.judge(pinned, late, flag, now=now) for flag in ("", "rebootstrap")])
        self.assertEqual(
            [Continuity.WORKING, Continuity.EXPIRED], [continuity(pinned, now) for now in (end - SECOND, end)]
        )

    def test_first(self) -> None:
        """Without anything pinned: the own trust domain, another expected one, an end, and what is accepted."""
        found = signed()
        fingerprint = found.content.fingerprint
        self.assertEqual("pinned", self.judge(None, found))
        self.assertEqual("own_trust_domain", self.judge(None, found, "force", own=PROD))
        self.assertEqual("package_expired", self.judge(None, found, "force", now=found.content.expires))
        self.assertEqual("package_not_yet_valid", self.judge(None, found, "force", now=NOW - 61 * SECOND))
        for spelled in (fingerprint.grouped, fingerprint.ssh, fingerprint.digits, str(found.package.reference)):
            self.assertEqual("pinned", self.judge(None, found, expected=ExpectedPeer.parse(spelled)))
        wrong = _other().roots.fingerprint(PROD)
        for pinned, flag in itertools.product((None, found), ("", "rebootstrap", "force")):
            expected = ExpectedPeer.parse(wrong.digits)
            self.assertEqual("fingerprint_mismatch", self.judge(pinned, found, flag, expected=expected))


class FolderCase(SynchronousTestCase):
    """A folder of keys."""

    def setUp(self) -> None:
        """Open the folder."""
        self.outer = Path(tempfile.mkdtemp(prefix="svc-peers-"))
        self.addCleanup(shutil.rmtree, self.outer, ignore_errors=True)
        self.file = KeyFile(str(self.outer / "keys"))
        self.file.open()
        self.addCleanup(self.file.close)
        self.folder = self.outer / "keys" / FOLDER

    def peers(self) -> Peers:
        """What is on disk."""
        found = Peers(self.file)
        found.load()
        return found


class PeersTests(FolderCase):
    """The files."""

    def test_files(self) -> None:
        """A package is a file that is the package, closed to others; names of any length; the latest counts."""
        long = TrustDomain("a" * 255)
        peers = self.peers()
        for package in (signed(), signed(trust_domain=long), signed(issued=LATER)):
            peers.pin(package)
        found = {name: each.content for name, each in self.peers().packages.items()}
        self.assertEqual({PROD: content(issued=LATER), long: content(trust_domain=long)}, found)
        path = self.folder / "prod.example.org.json"
        self.assertEqual(content(issued=LATER), verify_package(path.read_bytes()).content)
        self.assertEqual((0o600, 0o700), (path.stat().st_mode & 0o777, self.folder.stat().st_mode & 0o777))

    def test_refused_files(self) -> None:
        """Damaged files, those of another name, and those that others can read stop the start."""
        self.peers().pin(signed())
        path = self.folder / "prod.example.org.json"
        good = path.read_bytes()
        for data in (b"", good[:-1], good.replace(b'"signature":"', b'"signature":"AA', 1)):
            path.write_bytes(data)
            self.assertRaises(PeerFileRefused, self.peers)
        path.write_bytes(good)
        path.rename(self.folder / "other.json")
        self.assertIn("prod.example.org", str(self.assertRaises(PeerFileRefused, self.peers)))
        (self.folder / "other.json").rename(path)
        path.chmod(0o640)
        self.assertRaises(KeysRefused, self.peers)
        path.chmod(0o600)
        (self.folder / ".prod.example.org.json.abc").write_bytes(b"{")
        self.assertEqual([PROD], list(self.peers().packages))
        self.assertEqual([path], list(self.folder.iterdir()))

    def test_not_stored(self) -> None:
        """Where the file cannot be written, or there are too many, the packages are those before."""
        self.patch(peers_module, "MAX_PEERS", 1)
        peers = self.peers()
        peers.pin(signed())
        self.assertRaises(PeerRefused, peers.pin, signed(trust_domain=PARTNER))
        peers.pin(signed(issued=LATER))

        def full(*_arguments: object, **_more: object) -> None:
            raise OSError(28, "No space left on device")

        self.patch(peers_module, "write_atomically", full)
        self.assertIn("No space left", str(self.assertRaises(PeerNotStored, peers.pin, signed(issued=LATER + DAY))))
        for packages in (peers.packages, self.peers().packages):
            self.assertEqual([(PROD, content(issued=LATER))], [(name, x.content) for name, x in packages.items()])


class RootKeysFileTests(FolderCase):
    """The file of the federation root keys."""

    def test_file(self) -> None:
        """They are made once, closed to others; a file that is not as expected stops the start."""
        keys, made = open_root_keys(self.file, PROD)
        again, made_again = open_root_keys(self.file, PROD)
        self.assertEqual((True, False, keys.roots.kids), (made, made_again, again.roots.kids))
        path = self.outer / "keys" / KEYS
        self.assertEqual(0o600, path.stat().st_mode & 0o777)
        error = self.assertRaises(KeysRefused, open_root_keys, self.file, PARTNER)
        self.assertIn("another trust domain", str(error))
        path.chmod(0o644)
        self.assertRaises(KeysRefused, open_root_keys, self.file, PROD)


class FederatingTests(FolderCase):
    """The packages that an authority makes, and the roots that it takes from others."""

    def setUp(self) -> None:
        """An authority of partner.example.org."""
        super().setUp()
        self.now = NOW
        self.changes = 0
        self.settings = AuthoritySettings.model_validate({"trustDomain": PARTNER.name, "socket": "unix:///a.sock"})
        self.keys = RootKeys.make()
        self.begin(PqBundles())

    def begin(self, before: PqBundles) -> None:
        """Start a process with what is on disk and with a PQ bundle of an earlier one."""
        algorithms = {"algorithm": "ECDSA-P256", "leaf_algorithm": "ECDSA-P256"}
        self.domain = make_domain(PARTNER, ttl=180 * DAY, random=os.urandom, **algorithms)
        self.pq = PqRootRing(PARTNER, before, ttl=180 * DAY, algorithm="ML-DSA-65", random=os.urandom)
        self.domain.advance(self.now)
        self.pq.advance(self.now)
        self.loaded = self.peers()
        report = AuthorityLog(lambda: 0.0)
        self.federating = Federating(
            self.settings, self.keys, self.loaded, self.domain, self.pq, report, lambda: self.now, self._changed
        )
        self.federating.begin()

    def _changed(self) -> None:
        self.changes += 1

    def imports(self, package: VerifiedPackage, *, force: bool = False) -> str:
        """Import a package; returns the result."""
        data = package.package.serialize()
        answer = self.federating.import_package(data, expected="", rebootstrap=False, force=force)
        return str(json.loads(answer)["result"])

    def exported(self) -> tuple[VerifiedPackage, datetime]:
        """A package as others read it, and until when its roots are all."""
        answer = json.loads(self.federating.export())
        return verify_package(dumps(answer["package"])), datetime.fromisoformat(answer["rootsUntil"])

    def test_export(self) -> None:
        """A package has the roots in force, is signed anew each time with the same sequence, and lasts 30 days."""
        first, until = self.exported()
        found = first.content
        self.assertEqual(self.domain.x509.bundle().certificates, found.bundle.roots.certificates)
        self.assertEqual(self.pq.bundles.entries[PARTNER].bundle.certificates, found.pq.bundle.certificates)
        self.assertEqual({"x509-svid", "svc-pq"}, {each.purpose for each in found.chains})
        self.assertEqual((1, 30 * DAY, NOW.replace(microsecond=0)), (
            found.sequence, found.expires - found.issued, found.issued))  # fmt: skip
        self.assertEqual((NOW + 120 * DAY).replace(microsecond=0), until)
        self.now = LATER
        second = self.exported()[0].content
        self.assertEqual((found.fingerprint, 1, LATER.replace(microsecond=0)), (
            second.fingerprint, second.sequence, second.issued))  # fmt: skip

    def test_complete(self) -> None:
        """Up to ``rootsUntil`` whatever signs is in the package, whenever it was made; its roots are renewed then."""
        for days in (0, 45, 89, 90, 119, 179):
            self.now = NOW + timedelta(days=days)
            self.domain.advance(self.now)
            self.pq.advance(self.now)
            package, until = self.exported()
            self.assertGreaterEqual(until, package.content.expires)
            roots = {*package.content.bundle.roots.certificates, *package.content.pq.bundle.certificates}
            moment = self.now
            while moment < package.content.expires:
                self.domain.advance(moment)
                self.pq.advance(moment)
                signing = {self.domain.x509.ring.active(moment).key.certificate, self.pq.issuer(moment).certificate}
                self.assertLessEqual(signing, roots)
                moment += DAY

    def test_trusted(self) -> None:
        """Roots and JWT keys of a package are served at once and after a restart; one without keys revokes all."""
        package = sign_package(full_content(), signers())
        self.assertEqual("pinned", self.imports(package))
        self.assertEqual("unchanged", self.imports(package))
        self.assertEqual(1, self.changes)
        for _process in range(2):
            foreign = self.domain.foreign[PROD]
            self.assertEqual((1, 1), (len(foreign.x509.anchors), len(foreign.jwt)))
            self.assertEqual(full_content().pq.bundle, self.pq.bundles.entries[PROD].bundle)
            self.begin(self.pq.bundles)
        self.assertIsNone(self.federating.ended(NOW))
        end = package.content.expires
        self.assertEqual("package_expired", getattr(self.federating.ended(end), "reason", ""))
        self.assertEqual("renewed", self.imports(signed(issued=NOW + SECOND)))
        self.assertNotIn(PROD, self.domain.foreign)
        self.assertEqual((), self.pq.bundles.entries[PROD].bundle.anchors)

    def test_sequence(self) -> None:
        """The PQ sequence that readers see never falls, though a peer that began anew counts from one."""
        before = full_content()
        high = dataclasses.replace(before, pq=PqBundle(1000, before.pq.bundle))
        self.imports(sign_package(high, signers()))
        self.assertEqual(1000, self.pq.bundles.entries[PROD].sequence)
        other = _other()
        anew = content(roots=other.roots, pq=PqBundle(1, X509Bundle(PROD)))
        self.assertEqual("rebootstrapped", self.imports(sign_package(anew, other.signers), force=True))
        self.assertEqual(1001, self.pq.bundles.entries[PROD].sequence)
        self.begin(PqBundles.parse(self.pq.bundles.serialize()))
        self.assertEqual(1001, self.pq.bundles.entries[PROD].sequence)

    def test_endpoint(self) -> None:
        """An endpoint that was given stays when a package without one renews it, and is replaced by another."""
        self.imports(VerifiedPackage(signed().package.with_endpoint(ENDPOINT)))
        self.assertEqual("unchanged", self.imports(signed()))
        self.imports(signed(issued=NOW + SECOND))
        peers: Any = self.federating.info()["peers"]
        self.assertEqual([str(ENDPOINT)], [each["m2mEndpoint"] for each in peers])

    def test_federated_by_files(self) -> None:
        """A trust domain that is federated by files is no peer as well, also where it was one before."""
        self.imports(signed())
        federated = [{"trustDomain": PROD.name, "bundleFile": "/b.json"}]
        self.settings = AuthoritySettings.model_validate(
            {"trustDomain": PARTNER.name, "socket": "unix:///a.sock", "federatesWith": federated}
        )
        error = self.assertRaises(PeerRefused, self.begin, PqBundles())
        self.assertEqual("federated_by_files", error.reason)
        self.assertEqual("federated_by_files", self.assertRaises(PeerRefused, self.imports, signed()).reason)

    def test_refused(self) -> None:
        """What is refused changes nothing: no roots, no file, no call."""
        good = signed().package.serialize()
        for data in (b"", good[:-2], good.replace(b'"signature":"', b'"signature":"AA', 1)):
            self.assertRaises(
                EnvelopeError, self.federating.import_package, data, expected="", rebootstrap=True, force=True
            )
        self.assertRaises(PackageRefused, self.imports, signed(trust_domain=PARTNER))
        self.assertEqual((0, {}, False), (self.changes, dict(self.domain.foreign), self.folder.exists()))


_OTHER = RootKeys.make()


def _other() -> RootKeys:
    """Roots that nobody has pinned."""
    return _OTHER

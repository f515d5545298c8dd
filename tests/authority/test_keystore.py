"""Tests of svc.authority.keystore and keyfile."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.authority.domain import LocalDomain, make_domain
from svc.authority.jwtsvid import validate
from svc.authority.keyfile import MAX_FILE, KeyFile, KeysNotStored, KeysRefused
from svc.authority.keystore import KeyStore, ReadOnlyKeys, StoredKeys, serialized_keys
from svc.authority.registration import Entry, Selectors
from svc.identity import SpiffeID, TrustDomain, verify_svid
from svc.identity.pqbundle import PqBundles
from svc.pqissuer.keydocument import _digest
from svc.pqissuer.keyrecords import MAX_KEYS, TIMES
from svc.pqissuer.roots import PqRootRing
from svc.pqissuer.rotation import BACKDATE
from svc.workload.files import FileMissing, FileRefused
from tests.refusals import assert_refused
from tests.workload.messages import NOW

DOMAIN = TrustDomain("example.org")
HOUR = timedelta(hours=1)
ENTRY = Entry(SpiffeID.parse("spiffe://example.org/a"), Selectors(uid=0), HOUR, timedelta(minutes=5))


class Instance:
    """The keys of one process; several share a folder one after the other."""

    def __init__(
        self, folder: Path, now: datetime = NOW, *, domain: TrustDomain = DOMAIN, algorithm: str = "ECDSA-P256"
    ) -> None:
        self.store = KeyStore(str(folder), domain)
        self.kept: StoredKeys = self.store.open(now)
        keys = {"algorithm": algorithm, "leaf_algorithm": "ECDSA-P256"}
        self.domain: LocalDomain = make_domain(domain, ttl=24 * HOUR, random=os.urandom, **keys)
        self.pq = PqRootRing(domain, PqBundles(), ttl=720 * HOUR, algorithm="ML-DSA-65", random=os.urandom)
        self.store.keep("x509", self.domain.x509.ring, self.kept.x509)
        self.store.keep("jwt", self.domain.jwt.ring, self.kept.jwt)
        self.store.keep("pq", self.pq.ring, self.kept.pq)
        self.domain.x509.ensure_algorithm(now)
        self.pq.ensure_algorithm(now)

    def advance(self, now: datetime = NOW) -> Instance:
        self.domain.advance(now)
        self.pq.advance(now)
        return self


class KeysCase(SynchronousTestCase):
    """A folder for keys inside a folder of the test."""

    def setUp(self) -> None:
        self.outer = Path(tempfile.mkdtemp(prefix="svc-keys-"))
        self.addCleanup(shutil.rmtree, self.outer, ignore_errors=True)
        self.folder = self.outer / "keys"
        self.file = self.folder / "keys.json"

    def first(self, **keys: Any) -> Instance:
        """Let a first instance make keys and exit."""
        made = Instance(self.folder, **keys).advance()
        made.store.close()
        return made


class RoundTripTests(KeysCase):
    """Processes one after the other."""

    def test_same_keys(self) -> None:
        """The next process has the same bundles, and accepts what the first one signed."""
        for algorithm in ("ECDSA-P256", "ECDSA-P384", "Ed25519", "RSA", "ML-DSA-65", "ML-DSA-87"):
            shutil.rmtree(self.folder, ignore_errors=True)
            before = self.first(algorithm=algorithm)
            self.assertEqual((before.kept.found, before.kept.x509), (False, ()))
            after = Instance(self.folder, algorithm=algorithm)
            self.assertTrue(after.kept.found)
            written = self.file.read_bytes()
            after.advance(NOW + HOUR)
            self.assertEqual(after.domain.bundles(), before.domain.bundles(), algorithm)
            self.assertEqual(after.domain.jwt_bundles(), before.domain.jwt_bundles())
            self.assertEqual(after.pq.bundles.bundle_set(), before.pq.bundles.bundle_set())
            old = before.domain.own_svid(ENTRY.spiffe_id, HOUR, NOW)
            new = after.domain.own_svid(ENTRY.spiffe_id, HOUR, NOW)
            for svid, verifier in ((old, after), (new, before)):
                verify_svid(svid.chain, verifier.domain.bundles(), NOW)
            token = before.domain.issue_jwt(ENTRY, ("us",), NOW)
            validate(token, "us", after.domain.jwt_bundles(), NOW)
            # Nothing changed, so nothing was written.
            self.assertEqual(self.file.read_bytes(), written)
            after.store.close()

    def test_rotation_goes_on(self) -> None:
        """Each change is stored at once; rotation continues, and expired keys are dropped."""
        first = self.first()
        second = Instance(self.folder, NOW + 12 * HOUR).advance(NOW + 12 * HOUR)
        self.assertEqual(len(second.domain.x509.ring.announced), 2)
        second.store.close()
        third = Instance(self.folder, NOW + 23 * HOUR)
        kept = [replace(slot, key=slot.key.certificate) for slot in third.kept.x509]  # type: ignore[arg-type]
        self.assertEqual(kept, [replace(slot, key=slot.key.certificate) for slot in second.domain.x509.ring.announced])  # type: ignore[arg-type]
        third.advance(NOW + 24 * HOUR)
        oldest = first.domain.x509.bundle().certificates[0]
        self.assertEqual(kept[0].key, oldest)
        self.assertNotIn(oldest, third.domain.x509.bundle().certificates)
        self.assertEqual(len(third.pq.ring.announced), 1)
        third.store.close()

    def test_all_expired(self) -> None:
        """After all keys have expired there are new ones."""
        first = self.first()
        late = Instance(self.folder, NOW + 2000 * HOUR).advance(NOW + 2000 * HOUR)
        self.assertEqual(len(late.domain.x509.ring.announced), 1)
        self.assertNotEqual(late.domain.bundles(), first.domain.bundles())

    def test_other_algorithm(self) -> None:
        """A root of another algorithm than the configured one gets its successor at once, and signs until that does."""
        self.first()
        after = Instance(self.folder, NOW + HOUR, algorithm="Ed25519").advance(NOW + HOUR)
        old, new = after.domain.x509.ring.announced
        self.assertEqual(type(new.key.private_key).__name__, "Ed25519PrivateKey")
        self.assertIs(after.domain.x509.ring.active(NOW + HOUR), old)
        self.assertIs(after.domain.x509.ring.active(NOW + 5 * HOUR), new)
        after.store.close()
        again = Instance(self.folder, NOW + 2 * HOUR, algorithm="Ed25519").advance(NOW + 2 * HOUR)
        self.assertEqual(len(again.domain.x509.ring.announced), 2)

    def test_modes(self) -> None:
        """Folder and files are accessible to their owner only, whatever the umask."""
        before = os.umask(0)
        try:
            self.first()
        finally:
            os.umask(before)
        self.assertEqual(self.folder.stat().st_mode & 0o777, 0o700)
        self.assertEqual({each.name for each in self.folder.iterdir()}, {"keys.json", "keys.lock"})
        for each in self.folder.iterdir():
            self.assertEqual(each.stat().st_mode & 0o777, 0o600)

    def test_no_secret_is_shown(self) -> None:
        """Neither representations nor errors contain a key."""
        first = self.first()
        secret = json.loads(self.file.read_bytes())["document"]["keys"]["jwt"][0]["key"]
        self.assertNotIn(secret, repr(first.kept) + repr(first.store) + repr(Instance(self.folder).kept))


class RefusedTests(KeysCase):
    """Files that stop the start; they stay unchanged."""

    def refused(self, reason: str = "keys_refused", words: str = "", now: datetime = NOW, **keys: Any) -> None:
        """Assert that opening fails with this reason and changes nothing."""
        before = self.file.read_bytes() if self.file.is_file() else None
        error = assert_refused(self, reason, Instance, self.folder, now, **keys)
        self.assertIn(words, str(error))
        self.assertTrue(error.hint)
        if before is not None:
            self.assertEqual(self.file.read_bytes(), before)
        # The lock is free again.
        os.close(os.open(self.outer, os.O_RDONLY))

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_any_damage(self, data: st.DataObject) -> None:
        """A file with any changed octet, or truncated anywhere, is refused."""
        if not self.file.exists():
            self.first()
            self.whole = self.file.read_bytes()
        position = data.draw(st.integers(0, len(self.whole) - 1))
        if data.draw(st.booleans()):
            damaged = self.whole[:position]
        else:
            octet = data.draw(st.integers(0, 255).filter(lambda found: found != self.whole[position]))
            damaged = self.whole[:position] + bytes([octet]) + self.whole[position + 1 :]
        self.file.write_bytes(damaged)
        self.refused()

    def changed(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Write another document with the right digest."""
        document = json.loads(self.file.read_bytes())["document"]
        change(document)
        self.file.write_text(json.dumps({"sha256": _digest(document), "document": document}))

    def test_wrong_documents(self) -> None:
        """A document with the right digest and wrong content is refused."""
        later = (NOW + HOUR).isoformat()
        cases: tuple[tuple[Callable[[dict[str, Any]], object], str], ...] = (
            (lambda document: document.update(version=2), "version 2"),
            (lambda document: document.update(trustDomain="other.example"), "another trust domain"),
            (lambda document: document["keys"].pop("pq"), "malformed"),
            (lambda document: document["keys"]["x509"][0].update(key=document["keys"]["jwt"][0]["key"]), "malformed"),
            (lambda document: document["keys"]["pq"][0].update(key=document["keys"]["x509"][0]["key"]), "malformed"),
            (lambda document: document["keys"]["jwt"][0].update(key=document["keys"]["pq"][0]["key"]), "malformed"),
            (lambda document: document["keys"].update(pq=document["keys"]["x509"]), "malformed"),
            (lambda document: document["keys"]["jwt"][0].update(expires=NOW.isoformat()), "malformed"),
            (lambda document: document["keys"]["jwt"][0].update(made=later), "malformed"),
            (lambda document: document["keys"]["jwt"][0].update(made="2026-11-21T08:00:00"), "malformed"),
            (
                lambda document: document["keys"]["jwt"][0].update(dict.fromkeys(TIMES, "2026-11-21T08:00:00")),
                "malformed",
            ),
            (lambda document: document["keys"]["jwt"][0].update(made="0001-01-01T00:00:00+14:00"), "malformed"),
            (lambda document: document["keys"]["jwt"][0].update(expires="9999-12-31T23:59:59-14:00"), "malformed"),
            (lambda document: document["keys"]["x509"][0].pop("certificate"), "malformed"),
        )
        self.first()
        whole = self.file.read_bytes()
        for change, words in cases:
            self.file.write_bytes(whole)
            self.changed(change)
            self.refused(words=words)

    def test_first_second(self) -> None:
        """A key made in year 1 is an old key."""
        first = "0001-01-01T00:00:00+00:00"
        self.first()
        self.changed(lambda document: document["keys"]["jwt"][0].update(dict.fromkeys(TIMES[:3], first)))
        Instance(self.folder).advance().store.close()

    def test_other_trust_domain(self) -> None:
        """A root of another trust domain is refused although the document names ours."""
        other = TrustDomain("other.example")
        self.first(domain=other)
        self.refused(words="another trust domain")
        self.changed(lambda document: document.update(trustDomain="example.org"))
        self.refused(words="malformed")

    def test_number_of_keys(self) -> None:
        """The maximum number of keys is read, one more is refused."""
        self.first()
        self.changed(lambda document: document["keys"].update(jwt=document["keys"]["jwt"] * MAX_KEYS))
        self.assertEqual(len(Instance(self.folder).kept.jwt), MAX_KEYS)
        self.changed(lambda document: document["keys"]["jwt"].append(document["keys"]["jwt"][0]))
        shutil.copytree(self.folder, self.outer / "copy")
        self.folder = self.outer / "copy"
        self.file = self.folder / "keys.json"
        self.refused(words="malformed")

    def test_size(self) -> None:
        """A file above the limit is refused."""
        self.first()
        self.file.write_bytes(b" " * MAX_FILE)
        self.refused(words="malformed")
        self.file.write_bytes(b" " * (MAX_FILE + 1))
        self.refused(words="larger")

    def test_empty(self) -> None:
        """An empty file, as some file systems leave after a power failure, is refused."""
        self.first()
        self.file.write_bytes(b"")
        self.refused(words="malformed")

    def test_open_to_others(self) -> None:
        """File and folder are refused if another user can read, write or enter them."""
        self.first()
        for path in (self.file, self.folder):
            mode = path.stat().st_mode & 0o777
            for more in (0o040, 0o020, 0o010, 0o004, 0o002, 0o001):
                path.chmod(mode | more)
                self.refused(words="open to others")
            path.chmod(mode)
        Instance(self.folder)

    def test_foreign(self) -> None:
        """A folder of another user is refused."""
        self.first()
        error = self.assertRaises(KeysRefused, KeyFile(str(self.folder), own_uid=os.geteuid() + 1).open)
        self.assertIn(f"belongs to user {os.geteuid()}", str(error))

    def test_other_kinds(self) -> None:
        """Links, pipes and folders in place of folder or file are refused and not followed."""
        self.first()
        there = self.outer / "there.json"
        self.file.rename(there)
        self.file.symlink_to(there)
        self.refused()
        self.file.unlink()
        os.mkfifo(self.file, 0o600)
        self.refused(words="another kind")
        self.file.unlink()
        self.file.mkdir(0o700)
        self.refused()
        self.file.rmdir()
        there.rename(self.file)
        elsewhere = self.outer / "elsewhere"
        self.folder.rename(elsewhere)
        self.folder.symlink_to(elsewhere)
        self.refused(words="another kind")

    def test_outer_folder(self) -> None:
        """The parent folder must exist and be closed to others."""
        self.assertRaises(FileMissing, Instance, self.outer / "no" / "keys")
        self.outer.chmod(0o777)
        self.assertRaises(FileRefused, Instance, self.folder)

    def test_second_process(self) -> None:
        """While one process has the keys, another one is refused."""
        one = Instance(self.folder).advance()
        self.refused("keys_in_use")
        one.store.close()
        two = Instance(self.folder)
        self.assertTrue(two.kept.found)
        self.refused("keys_in_use")
        two.store.close()

    def test_clock_before_all_keys(self) -> None:
        """A clock before all keys of a kind stops the start; one that is slightly behind does not."""
        self.first()
        self.refused("keys_of_the_future", NOW.isoformat(timespec="seconds"), now=NOW - BACKDATE - timedelta(seconds=1))
        late = Instance(self.folder, NOW - BACKDATE)
        late.advance(NOW - BACKDATE)
        self.assertEqual(len(late.domain.x509.ring.announced), 1)

    def test_crashed_write(self) -> None:
        """Temporary files of a crashed write are removed, and the file itself is read."""
        self.first()
        left = self.folder / ".keys.json.abc"
        left.write_bytes(b"half a key")
        self.assertTrue(Instance(self.folder).kept.found)
        self.assertFalse(left.exists())


class ReadOnlyTests(KeysCase):
    """The keys of an issuer in a file that somebody else writes."""

    def setUp(self) -> None:
        """Write a file with one root."""
        super().setUp()
        roots = self.roots()
        roots.advance(NOW)
        self.path = self.outer / "secret.json"
        self.path.write_bytes(serialized_keys(DOMAIN, {"pq": roots.ring.announced}))
        self.path.chmod(0o600)
        self.root = roots.issuer(NOW).certificate

    def roots(self) -> PqRootRing:
        """A ring without keys."""
        return PqRootRing(DOMAIN, PqBundles(), ttl=720 * HOUR, algorithm="ML-DSA-65", random=os.urandom)

    def opened(self) -> PqRootRing:
        """A ring with the keys of the file."""
        keys, roots = ReadOnlyKeys(str(self.path), DOMAIN), self.roots()
        keys.keep("pq", roots.ring, keys.open(NOW).pq)
        roots.advance(NOW)
        return roots

    def test_same_root_and_sequence(self) -> None:
        """Each process has the root of the file, and announces it under the same sequence."""
        one, two = self.opened(), self.opened()
        self.assertEqual(self.root, one.issuer(NOW).certificate)
        self.assertEqual(one.bundles, two.bundles)
        self.assertEqual([1], [each.sequence for each in one.bundles.entries.values()])

    def test_never_written(self) -> None:
        """A successor that is due is refused, the root goes on to sign, and the file stays as it is."""
        before, roots = self.path.read_bytes(), self.opened()
        later = NOW + 400 * HOUR
        error = self.assertRaises(KeysNotStored, roots.advance, later)
        self.assertEqual("keys_read_only", error.reason)
        self.assertEqual((self.root, before), (roots.issuer(later).certificate, self.path.read_bytes()))

    def test_refused(self) -> None:
        """A file that is missing, open to others, damaged, or without a root stops the start."""
        self.path.chmod(0o644)
        self.assertRaises(KeysRefused, self.opened)
        self.path.chmod(0o600)
        self.path.write_bytes(serialized_keys(DOMAIN, {}))
        self.assertRaises(KeysRefused, self.opened)
        self.path.write_bytes(self.path.read_bytes()[:-9])
        self.assertRaises(KeysRefused, self.opened)
        self.path.unlink()
        error = self.assertRaises(KeysRefused, self.opened)
        self.assertIn("there is no such file", str(error))


class NotStoredTests(KeysCase):
    """The disk accepts no write."""

    def setUp(self) -> None:
        """An instance with keys, whose folder is then removed."""
        super().setUp()
        self.instance = Instance(self.folder).advance()
        self.folder.rename(self.outer / "away")

    def test_previous_keys_stay_in_use(self) -> None:
        """A key that cannot be stored is not used; the previous ones sign until they expire, then nothing does."""
        domain = self.instance.domain
        before = domain.bundles()
        later = NOW + 12 * HOUR
        error = self.assertRaises(KeysNotStored, domain.advance, later)
        self.assertIn("No such file", str(error))
        self.assertEqual(domain.bundles(), before)
        verify_svid(domain.own_svid(ENTRY.spiffe_id, HOUR, later).chain, before, later)
        self.assertEqual(len(domain.renew((ENTRY,), (), later)), 1)
        domain.issue_jwt(ENTRY, ("us",), later)
        self.assertRaises(KeysNotStored, domain.own_svid, ENTRY.spiffe_id, HOUR, NOW + 24 * HOUR)
        self.assertRaises(KeysNotStored, domain.issue_jwt, ENTRY, ("us",), NOW + 24 * HOUR)

    def test_space_again(self) -> None:
        """When there is space again, the next tick makes the key that was due and announces it."""
        domain = self.instance.domain
        later = NOW + 12 * HOUR
        self.assertRaises(KeysNotStored, domain.advance, later)
        (self.outer / "away").rename(self.folder)
        changes = domain.changes.number
        self.assertTrue(domain.advance(later))
        self.assertEqual((len(domain.x509.ring.announced), domain.changes.number), (2, changes + 1))

    def test_one_kind_fails(self) -> None:
        """A change of one kind of keys is announced although the other kind could not be stored."""
        (self.outer / "away").rename(self.folder)
        domain, changes = self.instance.domain, self.instance.domain.changes.number

        def refuse(slots: object) -> None:
            raise KeysNotStored(path="keys.json", what="no")

        domain.jwt.ring.resume(domain.jwt.ring.announced, refuse)
        self.assertRaises(KeysNotStored, domain.advance, NOW + 12 * HOUR)
        self.assertEqual((len(domain.x509.ring.announced), domain.changes.number), (2, changes + 1))

    def test_closed(self) -> None:
        """Without the lock nothing is written."""
        self.instance.store.close()
        error = self.assertRaises(KeysNotStored, self.instance.domain.advance, NOW + 12 * HOUR)
        self.assertIn("not open", str(error))

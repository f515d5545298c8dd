"""The roots that ``twistd svc-manager`` writes to a Secret, and an authority that reads them."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

from cryptography import x509

from svc.identity.spiffeid import TrustDomain
from svc.pqissuer.keydocument import read_keys
from svc.pqissuer.keyrecords import read_certified
from svc.workload.pqfile import read_pq_bundles
from tests.integration.test_manager import ManagerCase, RunningManager
from tests.peers.authority import RunningAuthority
from tests.peers.waiting import eventually

DOMAIN = TrustDomain.parse("prod.example.org")
SECRET = ("get", "secret", "svc-authority-keys", "-n", "svc-system", "--ignore-not-found", "-o", "json")


class IssuerKeysTests(ManagerCase):
    """Roots that live for seconds."""

    def issuer(self, **settings: Any) -> RunningManager:
        """Start a manager that keeps the roots."""
        return self.manager(cluster={"trustDomain": "prod.example.org", "issuer": settings})

    def document(self) -> bytes:
        """What the Secret holds; nothing where there is none."""
        found = self.server.kubectl(*SECRET)
        return base64.b64decode(json.loads(found)["data"]["keys.json"]) if found else b""

    def roots(self) -> list[x509.Certificate]:
        """The roots in the Secret, the oldest first."""
        document = self.document()
        records = read_keys(document, DOMAIN)["pq"] if document else []
        return [read_certified(each, DOMAIN)[0] for each in records]

    def test_roots_follow_each_other(self) -> None:
        """There is a root, its successor beside it from half of its life on, and then the successor alone."""
        manager = self.issuer(rootTtl="16s")
        first = eventually(self.roots)
        self.assertEqual(1, len(first))
        both = eventually(lambda: (found := self.roots())[0] == first[0] and len(found) == 2 and found)
        after = eventually(lambda: (found := self.roots())[0] == both[1] and found)
        self.assertNotIn(first[0], after)
        self.assertLessEqual(3, len(eventually(lambda: manager.records("svc.manager.issuer_keys.changed"))))

    def test_other_manager_takes_them_over(self) -> None:
        """What is there is kept: by another leader, and by one with another algorithm until that root may sign."""
        self.issuer()
        (first,) = eventually(self.roots)
        document = self.document()
        self.stack.close()
        self.issuer()
        self.until_state("Missing")
        self.assertEqual(document, self.document())
        self.stack.close()
        self.issuer(algorithm="ML-DSA-87")
        both = eventually(lambda: len(found := self.roots()) == 2 and found)
        self.assertEqual(first, both[0])

    def test_damaged_secret_is_kept(self) -> None:
        """Keys that cannot be read are named and never replaced."""
        manager = self.issuer()
        eventually(self.roots)
        damaged = base64.b64encode(self.document().replace(b'"pq"', b'"pp"')).decode()
        patch = json.dumps({"data": {"keys.json": damaged}})
        self.server.kubectl("patch", "secret", "svc-authority-keys", "-n", "svc-system", "-p", patch)
        eventually(lambda: manager.records("svc.manager.reconcile.failed"))
        failed = manager.records("svc.manager.reconcile.failed")[0]
        self.assertEqual("key_document_invalid", failed["detail_reason"])
        self.assertEqual(damaged, base64.b64encode(self.document()).decode())

    def test_authority_takes_new_roots(self) -> None:
        """An authority with the Secret as its file announces a root that was added, and goes on without a restart."""
        self.issuer(rootTtl="40s")
        eventually(self.roots)
        authority, keys = self.authority("40s")
        authority.start()
        eventually(lambda: self.announced(authority))
        self.assertEqual(1, self.announced(authority))
        eventually(lambda: len(self.roots()) == 2)
        self.write(keys)
        eventually(lambda: self.announced(authority) == 2)

    def test_sequence_of_another_pod(self) -> None:
        """An issuer that starts on an empty disk, as a new pod does, publishes its roots with a higher sequence."""
        self.issuer()
        eventually(self.roots)
        authority, _keys = self.authority("365d")
        sequences = []
        for _pod in range(2):
            authority.start()
            eventually(lambda: self.announced(authority))
            sequences.append(read_pq_bundles(str(authority.pq_bundle_path)).entries[DOMAIN].sequence)
            authority.kill()
            authority.pq_bundle_path.unlink()
            # No pod is replaced within a second.
            eventually(lambda: time.time() > sequences[-1])
        self.assertLess(*sequences)

    def authority(self, ttl: str) -> tuple[RunningAuthority, Path]:
        """An issuer with the Secret as its file, beside an authority with the Workload API; not started yet."""
        other = RunningAuthority("prod.example.org")
        self.stack.callback(other.stop)
        other.start()
        authority = RunningAuthority("prod.example.org")
        self.stack.callback(authority.stop)
        keys = Path(authority.folder) / "secret-keys.json"
        self.write(keys)
        authority.config = {
            "trustDomain": "prod.example.org",
            "workloadApi": other.address,
            "keysFile": str(keys),
            "adminAddr": authority.config.get("adminAddr"),
            "pqIssuer": {
                **authority.config["pqIssuer"],
                "rootTtl": ttl,
                "bundleFile": str(authority.pq_bundle_path),
            },
        }
        return authority, keys

    def announced(self, authority: RunningAuthority) -> int:
        """How many roots an issuer announces."""
        if not authority.pq_bundle_path.exists():
            return 0
        found = read_pq_bundles(str(authority.pq_bundle_path)).entries.get(DOMAIN)
        return len(found.bundle.anchors) if found else 0

    def write(self, path: Path) -> None:
        """Bring the Secret to a file, as a kubelet does."""
        new = path.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_bytes(self.document())
        new.replace(path)

"""Federation roots: which keys they are, and their fingerprint computed a second time."""

from __future__ import annotations

import hashlib
import struct

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.claims import Claims
from svc.federation.roots import FederationRoots
from tests.federation.material import PARTNER, PROD, roots
from tests.vectors.material import make_key


class RootsTests(SynchronousTestCase):
    """Both keys."""

    def test_fingerprint(self) -> None:
        """It is SHA-256 over prefix, trust domain and both keys in the order of their names, each with its length."""
        for classical in ("Ed25519", "ES384"):
            found = roots(1, classical)
            name = b"prod.example.org"
            parts = b"svc-federation/1\0" + struct.pack(">H", len(name)) + name
            for alg, key in ((classical, found.classical), ("ML-DSA-65", found.post_quantum)):
                spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
                parts += struct.pack(">H", len(alg)) + alg.encode() + struct.pack(">I", len(spki)) + spki
            self.assertEqual(found.fingerprint(PROD).octets, hashlib.sha256(parts).digest())

    def test_names_are_inside(self) -> None:
        """Another trust domain, and another key, have another fingerprint."""
        found = {
            each.fingerprint(domain)
            for each in (
                roots(1),
                roots(2),
                roots(1, "ES384"),
                FederationRoots(roots(1).classical, roots(2).post_quantum),
            )
            for domain in (PROD, PARTNER)
        }
        self.assertEqual(len(found), 8)

    def test_claims(self) -> None:
        """Roots are read back as they were written, in any order."""
        for found in (roots(1), roots(1, "ES384")):
            items = found.to_claims()
            self.assertEqual(FederationRoots.from_claims(Claims({"roots": items})), found)
            self.assertEqual(FederationRoots.from_claims(Claims({"roots": items[::-1]})), found)

    def test_other_keys(self) -> None:
        """P-256, other parameters of ML-DSA and other numbers of keys are refused."""
        ed25519, mldsa = roots().classical, roots().post_quantum
        others = [make_key(alg, "other").public_key() for alg in ("ES256", "ML-DSA-44", "ML-DSA-87")]
        for keys in ([], [ed25519], [mldsa], [ed25519, mldsa, mldsa], [ed25519, ed25519], [others[0], mldsa]):
            self.assertRaises(ValueError, FederationRoots.of, keys)
        for other in others[1:]:
            self.assertRaises(ValueError, FederationRoots.of, [ed25519, other])

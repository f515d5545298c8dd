"""Algorithms of keys, and digests of keys and certificates."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from cryptography.hazmat.primitives.asymmetric import rsa, x25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import (
    ALGORITHMS,
    KeyNotAllowed,
    certificate_key_algorithm,
    certificate_sha256,
    key_algorithm,
    spki_der,
    spki_sha256,
)
from svc.identity.algorithms import MAX_RSA_BITS, MIN_RSA_BITS
from svc.testing.ca import TestAuthority
from svc.testing.certificates import generate_key

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


class KeyAlgorithmTests(SynchronousTestCase):
    """Which keys are allowed."""

    def test_names(self) -> None:
        """Each allowed key has its name, its JOSE algorithm and whether it is post-quantum."""
        self.assertEqual(
            [(each.name, each.jose, each.post_quantum) for each in ALGORITHMS],
            [
                ("ECDSA-P256", "ES256", False),
                ("ECDSA-P384", "ES384", False),
                ("Ed25519", "Ed25519", False),
                ("RSA", "PS256", False),
                ("ML-DSA-44", "ML-DSA-44", True),
                ("ML-DSA-65", "ML-DSA-65", True),
                ("ML-DSA-87", "ML-DSA-87", True),
            ],
        )
        for each in ALGORITHMS:
            self.assertEqual(key_algorithm(generate_key(each.name).public_key()), each)
            self.assertEqual(str(each), each.name)

    def test_refused(self) -> None:
        """Other curves, sizes and kinds are refused, and so are objects that are not keys."""
        for name in ("ECDSA-P224", "ECDSA-P521", "ECDSA-K256", "Ed448", "RSA-1024"):
            self.assertRaises(KeyNotAllowed, key_algorithm, generate_key(name).public_key())
        for other in (x25519.X25519PrivateKey.generate().public_key(), None, "key", generate_key("Ed25519")):
            self.assertRaises(KeyNotAllowed, key_algorithm, other)

    def test_rsa_sizes(self) -> None:
        """2048 bits are accepted, 2040 bits are not."""
        self.assertEqual(key_algorithm(generate_key(f"RSA-{MIN_RSA_BITS}").public_key()).name, "RSA")
        error = self.assertRaises(KeyNotAllowed, key_algorithm, generate_key(f"RSA-{MIN_RSA_BITS - 8}").public_key())
        self.assertEqual(error.found, "RSA of 2040 bits")

    def test_rsa_upper_size(self) -> None:
        """8192 bits are accepted, 8200 bits are not; the limit is on the modulus."""
        for bits, allowed in ((MAX_RSA_BITS, True), (MAX_RSA_BITS + 8, False)):
            public_key = rsa.RSAPublicNumbers(65537, (1 << (bits - 1)) + 1).public_key()
            if allowed:
                self.assertEqual(key_algorithm(public_key).name, "RSA")
            else:
                self.assertRaises(KeyNotAllowed, key_algorithm, public_key)


class DigestTests(SynchronousTestCase):
    """Digests that name a key or a certificate."""

    def test_digests(self) -> None:
        """Digests are SHA-256 of the DER, as other tools compute them."""
        leaf = TestAuthority(now=NOW).svid().leaf
        spki = leaf.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.assertEqual(spki_sha256(leaf), hashlib.sha256(spki).digest())
        self.assertIn(spki, leaf.public_bytes(Encoding.DER))
        self.assertEqual(certificate_sha256(leaf).hex(), hashlib.sha256(leaf.public_bytes(Encoding.DER)).hexdigest())

    def test_spki_of_a_key(self) -> None:
        """The SubjectPublicKeyInfo of a private key equals that of its certificate."""
        svid = TestAuthority(now=NOW).svid()
        self.assertEqual(hashlib.sha256(spki_der(svid.private_key.public_key())).digest(), spki_sha256(svid.leaf))

    def test_key_not_allowed(self) -> None:
        """The digest of a key that is not allowed is refused."""
        leaf = TestAuthority(now=NOW).svid(algorithm="ECDSA-P521").leaf
        self.assertRaises(KeyNotAllowed, spki_sha256, leaf)
        self.assertRaises(KeyNotAllowed, certificate_key_algorithm, leaf)

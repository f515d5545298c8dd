"""Signing keys: the algorithm by the key, raw signatures, thumbprints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa, rsa
from cryptography.x509.oid import ExtensionOID
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.keys import Signer, jwk_thumbprint, ml_dsa_public_key, verify_signature
from svc.envelope.x5c import MAX_CERTIFICATES
from svc.identity.algorithms import key_algorithm
from svc.identity.errors import KeyNotAllowed
from svc.strictjson import b64u_decode, b64u_encode
from svc.testing.ca import TestAuthority
from svc.testing.certificates import generate_key
from tests.refusals import assert_refused

NOW = datetime(2026, 11, 21, tzinfo=UTC)
ALGORITHMS = {
    "ECDSA-P256": ("ES256", 64),
    "ECDSA-P384": ("ES384", 96),
    "Ed25519": ("Ed25519", 64),
    "RSA": ("PS256", 256),
    "ML-DSA-44": ("ML-DSA-44", 2420),
    "ML-DSA-65": ("ML-DSA-65", 3309),
    "ML-DSA-87": ("ML-DSA-87", 4627),
}


class SignerTests(SynchronousTestCase):
    """A private key beside what proves it."""

    def setUp(self) -> None:
        """An authority."""
        self.authority = TestAuthority("example.org", now=NOW)

    def test_algorithm_by_key(self) -> None:
        """Each kind of key has one algorithm, and its signatures have one length and verify."""
        for name, (alg, length) in ALGORITHMS.items():
            signer = Signer.from_svid(self.authority.svid(algorithm=name))
            signature = signer.sign(b"data")
            self.assertEqual((signer.alg, len(signature)), (alg, length))
            self.assertEqual(signer.post_quantum, alg.startswith("ML-DSA"))
            verify_signature(alg, signer.chain[0].public_key(), b"data", signature)

    def test_wrong_length(self) -> None:
        """A signature that is an octet short, an octet long or empty is refused for each algorithm."""
        for name, (alg, _) in ALGORITHMS.items():
            signer = Signer.from_svid(self.authority.svid(algorithm=name))
            signature = signer.sign(b"data")
            for bent in (signature[:-1], signature + b"\0", b"\0" + signature, b""):
                error: Any = assert_refused(
                    self, "signature_invalid", verify_signature, alg, signer.chain[0].public_key(), b"data", bent
                )
                self.assertEqual(error.detail_reason, f"signature_invalid{{{alg}}}")

    def test_other_algorithm(self) -> None:
        """A valid signature under another name than that of the key is refused."""
        for name, (alg, _) in ALGORITHMS.items():
            signer = Signer.from_svid(self.authority.svid(algorithm=name))
            signature = signer.sign(b"data")
            other = "ES384" if alg == "ES256" else "ES256"
            assert_refused(
                self, "signature_invalid", verify_signature, other, signer.chain[0].public_key(), b"data", signature
            )

    def test_salt_length(self) -> None:
        """PS256 has a salt as long as the digest (RFC 7518, 3.5); another length is refused."""
        from cryptography.hazmat.primitives.asymmetric import padding
        from cryptography.hazmat.primitives.hashes import SHA256

        key = generate_key("RSA")
        assert isinstance(key, rsa.RSAPrivateKey)
        short = key.sign(b"data", padding.PSS(padding.MGF1(SHA256()), 20), SHA256())
        assert_refused(self, "signature_invalid", verify_signature, "PS256", key.public_key(), b"data", short)

    def test_small_rsa_key(self) -> None:
        """An RSA key of 1024 bits has no algorithm and verifies nothing."""
        key = generate_key("RSA-1024")
        self.assertRaises(KeyNotAllowed, key_algorithm, key.public_key())
        assert_refused(self, "signature_invalid", verify_signature, "PS256", key.public_key(), b"data", bytes(128))

    def test_key_of_another(self) -> None:
        """The key must be that of the leaf."""
        svid = self.authority.svid()
        assert_refused(self, "signers_unsuitable", Signer.from_chain, generate_key("ECDSA-P256"), svid.chain)

    def test_leaf_without_identity(self) -> None:
        """No chain, a leaf without a SPIFFE ID and one with two cannot sign."""
        assert_refused(self, "signers_unsuitable", Signer.from_chain, generate_key("ECDSA-P256"), ())
        for uris in ((), ("spiffe://example.org/a", "spiffe://example.org/b"), ("https://example.org/",)):
            svid = self.authority.svid(uris=uris)
            assert_refused(self, "signers_unsuitable", Signer.from_chain, svid.private_key, svid.chain)

    def test_unreadable_leaf(self) -> None:
        """A leaf whose names cannot be read cannot sign."""
        broken = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"\x30\x05x")
        svid = self.authority.svid(uris=(), extensions=((broken, False),))
        assert_refused(self, "signers_unsuitable", Signer.from_chain, svid.private_key, svid.chain)

    def test_longest_chain(self) -> None:
        """Eight certificates fit, nine do not."""
        svid = self.authority.intermediate().svid()
        leaf, above = svid.chain
        fitting = (leaf, *[above] * (MAX_CERTIFICATES - 1))
        self.assertEqual(len(Signer.from_chain(svid.private_key, fitting).x5c), MAX_CERTIFICATES)
        assert_refused(self, "signers_unsuitable", Signer.from_chain, svid.private_key, (*fitting, above))

    def test_key_not_shown(self) -> None:
        """The text of a signer contains neither the key nor the certificates."""
        self.assertNotIn("private_key", repr(Signer.from_svid(self.authority.svid(ttl=timedelta(hours=1)))))

    def test_raw_key(self) -> None:
        """A raw key signs without certificates and is named by its thumbprint."""
        key = mldsa.MLDSA65PrivateKey.from_seed_bytes(bytes(32))
        signer = Signer.from_raw_key(key)
        self.assertEqual((signer.chain, signer.x5c, signer.spiffe_id), ((), (), None))
        self.assertEqual(signer.thumbprint, jwk_thumbprint(key.public_key()))
        rsa_key = generate_key("RSA")
        assert isinstance(rsa_key, rsa.RSAPrivateKey)
        assert_refused(self, "signers_unsuitable", Signer.from_raw_key, rsa_key)


class ThumbprintTests(SynchronousTestCase):
    """RFC 7638 thumbprints."""

    def test_published(self) -> None:
        """The thumbprint of the Ed25519 key in RFC 8037, appendix A.3."""
        x = b64u_decode("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
        key = ed25519.Ed25519PublicKey.from_public_bytes(x)
        self.assertEqual(jwk_thumbprint(key), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k")

    def test_leading_zero(self) -> None:
        """A coordinate that begins with zero keeps its length: 32 octets for P-256."""
        import hashlib

        from svc.strictjson import dumps

        for secret in range(1, 2000):
            key = ec.derive_private_key(secret, ec.SECP256R1()).public_key()
            numbers = key.public_numbers()
            if numbers.x.bit_length() <= 248:
                break
        x, y = (b64u_encode(value.to_bytes(32, "big")) for value in (numbers.x, numbers.y))
        members = {"crv": "P-256", "kty": "EC", "x": x, "y": y}
        self.assertEqual(jwk_thumbprint(key), b64u_encode(hashlib.sha256(dumps(members)).digest()))

    def test_ml_dsa_public_key(self) -> None:
        """A raw ML-DSA key has exactly the length of its algorithm."""
        for alg, length in (("ML-DSA-44", 1312), ("ML-DSA-65", 1952), ("ML-DSA-87", 2592)):
            self.assertEqual(key_algorithm(ml_dsa_public_key(alg, bytes(length))).jose, alg)
            for wrong in (0, length - 1, length + 1):
                self.assertRaises(ValueError, ml_dsa_public_key, alg, bytes(wrong))
        self.assertRaises(ValueError, ml_dsa_public_key, "ES256", bytes(64))

    @given(st.binary(max_size=100))
    def test_any_signature(self, signature: bytes) -> None:
        """Any octets that are no signature raise the one typed error."""
        for key in (ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32)), ec.derive_private_key(7, ec.SECP256R1())):
            public_key = key.public_key()
            assert_refused(
                self, "signature_invalid", verify_signature, key_algorithm(public_key).jose, public_key, b"", signature
            )

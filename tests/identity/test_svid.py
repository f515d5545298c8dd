"""Reading SVIDs in the form of the Workload API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography.hazmat.primitives.asymmetric import x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import (
    ALGORITHMS,
    KeyNotAllowed,
    SvidInvalid,
    SvidMalformed,
    X509Svid,
    key_algorithm,
    load_certificate,
    split_der,
)
from svc.identity.svid import MAX_CHAIN_CERTIFICATES, is_self_signed
from svc.testing.ca import TestAuthority, chain_der, key_der
from svc.testing.certificates import der, generate_key
from tests.refusals import assert_refused

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
ROOT = TestAuthority(now=NOW)
SVID = ROOT.intermediate().svid("/ns/pay/sa/api")
CHAIN, KEY = chain_der(SVID), key_der(SVID)


class ParseTests(SynchronousTestCase):
    """X509Svid.parse."""

    def test_parts(self) -> None:
        """The SVID has its identity, chain, key and times; its repr does not show the key."""
        found = X509Svid.parse(CHAIN, KEY)
        self.assertEqual(str(found.spiffe_id), "spiffe://example.org/ns/pay/sa/api")
        self.assertEqual((found, found.chain, found.leaf), (SVID, SVID.chain, SVID.chain[0]))
        self.assertEqual(found.not_after, NOW + timedelta(hours=1))
        self.assertEqual(found.not_before, NOW - timedelta(seconds=60))
        self.assertEqual(key_der(found), KEY)
        self.assertNotIn("rivate", repr(found))

    def test_every_algorithm(self) -> None:
        """Keys of all allowed algorithms are read."""
        for algorithm in ALGORITHMS:
            svid = ROOT.svid(algorithm=algorithm.name)
            found = X509Svid.parse(chain_der(svid), key_der(svid))
            self.assertEqual(key_algorithm(found.private_key.public_key()), algorithm)

    def test_expired(self) -> None:
        """An expired SVID is read: only the verification checks the time."""
        old = ROOT.svid(not_before=NOW - timedelta(days=2), not_after=NOW - timedelta(days=1))
        self.assertEqual(X509Svid.parse(chain_der(old), key_der(old)), old)

    def test_root_in_the_chain(self) -> None:
        """Self-signed certificates are dropped from the chain."""
        found = X509Svid.parse(CHAIN + ROOT.certificate.public_bytes(Encoding.DER), KEY)
        self.assertEqual(found.chain, SVID.chain)

    def test_leaf_rules(self) -> None:
        """An SVID that breaks a leaf rule is refused with the reason of that rule."""
        for expected, svid in (
            ("leaf_is_ca", ROOT.svid(ca=True)),
            ("no_uri_san", ROOT.svid(uris=())),
            ("root_path", ROOT.svid(uris=("spiffe://example.org",))),
            ("key_not_allowed", ROOT.svid(algorithm="ECDSA-P521")),
        ):
            assert_refused(self, expected, X509Svid.parse, chain_der(svid), key_der(svid))

    def test_key_of_another(self) -> None:
        """A key that is not that of the leaf is refused, whatever its algorithm."""
        for algorithm in ("ECDSA-P256", "Ed25519"):
            other = ROOT.svid(algorithm=algorithm)
            assert_refused(self, "svid_key_mismatch", X509Svid.parse, CHAIN, key_der(other))

    def test_malformed_keys(self) -> None:
        """Encrypted keys, keys for other purposes, truncated keys and random octets are refused."""
        encrypted = SVID.private_key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
        for data in (b"", b"key", KEY[:-1], encrypted, CHAIN):
            self.assertRaises(SvidMalformed, X509Svid.parse, CHAIN, data)
        agreement = x25519.X25519PrivateKey.generate().private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        self.assertRaises(KeyNotAllowed, X509Svid.parse, CHAIN, agreement)
        weak = generate_key("RSA-1024").private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        self.assertRaises(KeyNotAllowed, X509Svid.parse, CHAIN, weak)

    def test_no_certificate(self) -> None:
        """An empty chain is refused."""
        self.assertRaises(SvidMalformed, X509Svid.parse, b"", KEY)

    def test_number_of_certificates(self) -> None:
        """The maximum number of certificates is read, one more is refused."""
        leaf, issuer = (each.public_bytes(Encoding.DER) for each in SVID.chain)
        at_limit = leaf + issuer * (MAX_CHAIN_CERTIFICATES - 1)
        self.assertEqual(len(X509Svid.parse(at_limit, KEY).chain), MAX_CHAIN_CERTIFICATES)
        self.assertRaises(SvidMalformed, X509Svid.parse, at_limit + issuer, KEY)

    @given(st.binary(max_size=100), st.integers(0, len(CHAIN)), st.integers(0, 20))
    def test_any_change(self, noise: bytes, position: int, cut: int) -> None:
        """A chain with replaced octets is read, or refused with a typed error."""
        damaged = CHAIN[:position] + noise + CHAIN[position + cut :]
        try:
            found = X509Svid.parse(damaged, KEY)
        except SvidInvalid as error:
            self.assertTrue(error.reason)
        else:
            self.assertEqual(found.leaf.public_key(), SVID.leaf.public_key())


class SplitTests(SynchronousTestCase):
    """Concatenated DER."""

    def refused(self, data: bytes) -> str:
        return self.assertRaises(SvidMalformed, split_der, data, limit=4).defect

    def test_order_is_kept(self) -> None:
        """Certificates are returned in order; no octets give no certificates."""
        self.assertEqual(split_der(CHAIN, limit=2), SVID.chain)
        self.assertEqual(split_der(b"", limit=2), ())

    def test_limit(self) -> None:
        """One certificate more than the limit is refused."""
        self.assertIn("more than 1", self.assertRaises(SvidMalformed, split_der, CHAIN, limit=1).defect)

    def test_defects_are_named(self) -> None:
        """The error says whether a certificate is truncated, is not DER, or has an invalid length."""
        self.assertIn("cut off", self.refused(CHAIN[:-1]))
        self.assertIn("no DER certificate at octet", self.refused(CHAIN + b"\x00"))
        self.assertIn("no DER certificate at octet 0", self.refused(b"\n" + CHAIN))
        self.assertIn("not a DER certificate", self.refused(der(0x30, b"")))
        self.assertIn("cut off", self.refused(b"\x30\x84\xff\xff\xff\xff"))
        self.assertIn("cut off", self.refused(b"\x30\x82\x01"))
        for header in (b"\x30\x80", b"\x30\x85\x00\x00\x00\x00\x01"):
            self.assertIn("length", self.refused(header))

    def test_one_certificate(self) -> None:
        """load_certificate refuses octets behind the certificate."""
        data = SVID.leaf.public_bytes(Encoding.DER)
        self.assertEqual(load_certificate(data), SVID.leaf)
        self.assertRaises(SvidMalformed, load_certificate, data + b"\x00")

    @given(st.binary(max_size=60))
    def test_any_octets(self, data: bytes) -> None:
        """Random octets are refused with a typed error."""
        if data:
            self.assertTrue(self.refused(data))


class SelfSignedTests(SynchronousTestCase):
    """is_self_signed."""

    def test_by_signature(self) -> None:
        """A certificate is self-signed by its signature, not by its names."""
        self.assertTrue(is_self_signed(ROOT.certificate))
        self.assertFalse(is_self_signed(ROOT.intermediate("example.org root").certificate))
        self.assertFalse(is_self_signed(SVID.leaf))

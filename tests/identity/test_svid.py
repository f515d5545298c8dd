"""Reading SVIDs as the Workload API delivers them."""

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
    KeyMismatch,
    KeyNotAllowed,
    LeafIsCa,
    NoUriSan,
    RootPath,
    SvidInvalid,
    SvidMalformed,
    X509Svid,
    load_certificate,
    split_der,
)
from svc.identity.svid import MAX_CHAIN_CERTIFICATES, is_self_signed
from svc.testing.ca import TestAuthority, chain_der, key_der
from svc.testing.certificates import der, generate_key

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
ROOT = TestAuthority(now=NOW)
SVID = ROOT.intermediate().svid("/ns/pay/sa/api")
CHAIN, KEY = chain_der(SVID), key_der(SVID)


class ParseTests(SynchronousTestCase):
    """X509Svid.parse."""

    def test_parts(self) -> None:
        """The SVID has its identity, chain, key, algorithm and times; the key stays out of its representation."""
        found = X509Svid.parse(CHAIN, KEY)
        self.assertEqual(str(found.spiffe_id), "spiffe://example.org/ns/pay/sa/api")
        self.assertEqual((found, found.chain, found.leaf), (SVID, SVID.chain, SVID.chain[0]))
        self.assertEqual(found.not_after, NOW + timedelta(hours=1))
        self.assertEqual(found.not_before, NOW - timedelta(seconds=60))
        self.assertEqual(found.algorithm.name, "ECDSA-P256")
        self.assertEqual(key_der(found), KEY)
        self.assertNotIn("rivate", repr(found))

    def test_every_algorithm(self) -> None:
        """Keys of all allowed algorithms are read."""
        for algorithm in ALGORITHMS:
            svid = ROOT.svid(algorithm=algorithm.name)
            self.assertEqual(X509Svid.parse(chain_der(svid), key_der(svid)).algorithm, algorithm)

    def test_time_is_not_judged(self) -> None:
        """An expired SVID is read; whether it is still good is asked of the verification."""
        old = ROOT.svid(not_before=NOW - timedelta(days=2), not_after=NOW - timedelta(days=1))
        self.assertEqual(X509Svid.parse(chain_der(old), key_der(old)), old)

    def test_a_root_in_the_chain_is_left_out(self) -> None:
        """What is presented to peers never holds a self-signed certificate."""
        found = X509Svid.parse(CHAIN + ROOT.certificate.public_bytes(Encoding.DER), KEY)
        self.assertEqual(found.chain, SVID.chain)

    def test_leaf_rules(self) -> None:
        """An SVID that breaks a rule for leaves is refused for that rule."""
        for expected, svid in (
            (LeafIsCa, ROOT.svid(ca=True)),
            (NoUriSan, ROOT.svid(uris=())),
            (RootPath, ROOT.svid(uris=("spiffe://example.org",))),
            (KeyNotAllowed, ROOT.svid(algorithm="ECDSA-P521")),
        ):
            self.assertRaises(expected, X509Svid.parse, chain_der(svid), key_der(svid))

    def test_key_of_another(self) -> None:
        """The key must be that of the leaf, of the same algorithm or not."""
        for algorithm in ("ECDSA-P256", "Ed25519"):
            other = ROOT.svid(algorithm=algorithm)
            self.assertRaises(KeyMismatch, X509Svid.parse, CHAIN, key_der(other))

    def test_what_is_no_key(self) -> None:
        """Encrypted keys, keys for other purposes, cut off keys and noise are refused."""
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
        """The largest chain is read, one certificate more is refused."""
        leaf, issuer = (each.public_bytes(Encoding.DER) for each in SVID.chain)
        at_limit = leaf + issuer * (MAX_CHAIN_CERTIFICATES - 1)
        self.assertEqual(len(X509Svid.parse(at_limit, KEY).chain), MAX_CHAIN_CERTIFICATES)
        self.assertRaises(SvidMalformed, X509Svid.parse, at_limit + issuer, KEY)

    @given(st.binary(max_size=100), st.integers(0, len(CHAIN)), st.integers(0, 20))
    def test_any_octets_give_an_svid_or_a_typed_error(self, noise: bytes, place: int, cut: int) -> None:
        """A chain with octets replaced is read or refused with a reason, never anything else."""
        damaged = CHAIN[:place] + noise + CHAIN[place + cut :]
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
        """Certificates come out as they went in; no octets are no certificates."""
        self.assertEqual(split_der(CHAIN, limit=2), SVID.chain)
        self.assertEqual(split_der(b"", limit=2), ())

    def test_limit(self) -> None:
        """One certificate more than the limit is refused."""
        self.assertIn("more than 1", self.assertRaises(SvidMalformed, split_der, CHAIN, limit=1).defect)

    def test_defects_are_named(self) -> None:
        """Cut off certificates, noise around them and strange lengths are refused by name."""
        self.assertIn("cut off", self.refused(CHAIN[:-1]))
        self.assertIn("no DER certificate at octet", self.refused(CHAIN + b"\x00"))
        self.assertIn("no DER certificate at octet 0", self.refused(b"\n" + CHAIN))
        self.assertIn("not a DER certificate", self.refused(der(0x30, b"")))
        self.assertIn("cut off", self.refused(b"\x30\x84\xff\xff\xff\xff"))
        for header in (b"\x30\x80", b"\x30\x85\x00\x00\x00\x00\x01", b"\x30\x82\x01"):
            self.assertIn("length", self.refused(header))

    def test_one_certificate(self) -> None:
        """Where exactly one is demanded, more octets are refused."""
        data = SVID.leaf.public_bytes(Encoding.DER)
        self.assertEqual(load_certificate(data), SVID.leaf)
        self.assertRaises(SvidMalformed, load_certificate, data + b"\x00")

    @given(st.binary(max_size=60))
    def test_any_octets_are_certificates_or_a_typed_error(self, data: bytes) -> None:
        """Noise gives no certificate and no other error."""
        if data:
            self.assertTrue(self.refused(data))


class SelfSignedTests(SynchronousTestCase):
    """Telling roots from certificates of the same name."""

    def test_by_signature(self) -> None:
        """A certificate is self-signed by its signature, not by its names."""
        self.assertTrue(is_self_signed(ROOT.certificate))
        self.assertFalse(is_self_signed(ROOT.intermediate("example.org root").certificate))
        self.assertFalse(is_self_signed(SVID.leaf))

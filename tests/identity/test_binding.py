"""The extension that binds a post-quantum leaf to its SVID."""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import SvidMalformed, binding_extension, binding_of, spki_sha256
from svc.naming import OID_SVID_BINDING
from svc.testing.ca import TestAuthority

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
ROOT = TestAuthority(now=NOW)
OID = x509.ObjectIdentifier(OID_SVID_BINDING)


class BindingTests(SynchronousTestCase):
    """The private extension."""

    def test_digest(self) -> None:
        """A post-quantum leaf has the digest of the SVID's key in a non-critical extension."""
        svid = ROOT.svid()
        (leaf, *_), _key = TestAuthority(now=NOW, algorithm="ML-DSA-65").pq_leaf(svid)
        self.assertEqual(binding_of(leaf), spki_sha256(svid.leaf))
        self.assertFalse(leaf.extensions.get_extension_for_oid(OID).critical)

    def test_no_extension(self) -> None:
        """A certificate without the extension has no binding."""
        self.assertIsNone(binding_of(ROOT.svid().leaf))

    def test_digest_length(self) -> None:
        """A digest of another length is a programming error."""
        for size in (0, 31, 33):
            self.assertRaises(ValueError, binding_extension, bytes(size))

    def test_other_contents_are_refused(self) -> None:
        """Other types, lengths and trailing octets are refused."""
        for content in (b"", b"\x04\x00", b"\x04\x1f" + bytes(31), b"\x03\x20" + bytes(32), b"\x04\x20" + bytes(33)):
            leaf = ROOT.svid(extensions=((x509.UnrecognizedExtension(OID, content), False),)).leaf
            self.assertRaises(SvidMalformed, binding_of, leaf)

    def test_unreadable_extensions_are_refused(self) -> None:
        """When another extension cannot be read, reading the binding fails too."""
        svid = ROOT.svid(uris=(b"spiffe://example.org/a\xff",))
        self.assertRaises(SvidMalformed, binding_of, svid.leaf)

    @given(st.binary(min_size=32, max_size=32))
    def test_round_trip(self, digest: bytes) -> None:
        """Any digest is encoded and read back."""
        self.assertEqual(binding_of(ROOT.svid(extensions=((binding_extension(digest), False),)).leaf), digest)

"""Deny lists against verified peers."""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import SvidEvidence, parse_matcher, verify_svid
from svc.policy.denylist import DenyList, plain_issuer
from svc.testing.ca import TestAuthority

NOW = datetime(2026, 11, 23, tzinfo=UTC)
AUTHORITY = TestAuthority("prod.example", now=NOW)


class DenyListTests(SynchronousTestCase):
    """What an entry refuses."""

    def setUp(self) -> None:
        """Verify two workloads, one below an intermediate."""
        self.direct = self.evidence(AUTHORITY)
        self.below = self.evidence(AUTHORITY.intermediate())

    def evidence(self, authority: TestAuthority) -> SvidEvidence:
        """A verified workload of an authority."""
        return verify_svid(authority.svid("/ns/web/sa/fe").chain, AUTHORITY.bundles(), NOW)

    def test_identities(self) -> None:
        """An identity by its name or by a pattern, and no other."""
        for text, refused in (
            ("spiffe://prod.example/ns/web/sa/fe", True),
            ("spiffe://prod.example/ns/web/*", True),
            ("spiffe://prod.example/*", True),
            ("spiffe://prod.example/ns/web/sa/f", False),
            ("spiffe://prod.example/ns/we/*", False),
        ):
            listed = DenyList("l", (parse_matcher(text),))
            expected = f"identity {text}" if refused else None
            self.assertEqual(expected, listed.entry_for(self.direct))
            self.assertEqual(expected, listed.entry_for_identity(self.direct.spiffe_id))

    def test_certificates(self) -> None:
        """A certificate by its digest, or by issuer and serial number; of a signing certificate all below it."""
        for number, certificate in enumerate(self.below.chain[:-1]):
            by_digest = DenyList("l", certificates=frozenset({certificate.fingerprint(SHA256())}))
            issued = (plain_issuer(certificate.issuer.rfc4514_string()), certificate.serial_number)
            by_serial = DenyList("l", serials=frozenset({issued}))
            for listed, word in ((by_digest, "certificate"), (by_serial, "serial number")):
                entry = listed.entry_for(self.below)
                assert entry is not None
                self.assertTrue(entry.startswith(word), (number, entry))
                self.assertIsNone(listed.entry_for(self.direct))

    def test_root(self) -> None:
        """A root is removed from the bundle, not listed."""
        root = self.below.chain[-1]
        self.assertIsNone(DenyList("l", certificates=frozenset({root.fingerprint(SHA256())})).entry_for(self.below))

    def test_issuers(self) -> None:
        """Spellings of one name are one issuer, the names that OpenSSL prints among them."""
        self.assertEqual("O=SPIRE,C=US", plain_issuer("O=SPIRE,C=US"))
        self.assertEqual(plain_issuer("2.5.4.5=17,O=a"), plain_issuer("serialNumber=17,O=a"))
        for text in ("SPIRE", "O", "C = US, O = SPIRE; x", "nonsense=1"):
            self.assertRaises(ValueError, plain_issuer, text)

    @given(st.text(max_size=40))
    def test_any_issuer(self, text: str) -> None:
        """Any text is a name with one spelling, or a ValueError."""
        try:
            plain = plain_issuer(text)
        except ValueError:
            return
        self.assertEqual(plain, plain_issuer(plain))

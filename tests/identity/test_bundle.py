"""Trust anchors, bundles and sets of bundles."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography.hazmat.primitives.serialization import Encoding
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import BundleMalformed, BundleSet, TrustAnchor, TrustDomain, TrustDomainUnknown, X509Bundle
from svc.identity.bundle import MAX_ANCHORS
from svc.testing.ca import TestAuthority

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
A, B = TestAuthority("a.example", now=NOW), TestAuthority("b.example", now=NOW)


class TrustAnchorTests(SynchronousTestCase):
    """The window of a root."""

    def test_windows(self) -> None:
        """Both ends are inclusive; an absent end is unbounded."""
        for first, last, ago, counts in (
            (None, None, 0, True),
            (NOW, None, 0, True),
            (NOW, None, 1, False),
            (None, NOW, 0, True),
            (None, NOW, -1, False),
            (NOW - SECOND, NOW, 1, True),
        ):
            anchor = TrustAnchor(A.certificate, first, last)
            self.assertEqual(anchor.trusted_at(NOW - ago * SECOND), counts, (first, last, ago))

    def test_window_text(self) -> None:
        """The text of a window contains its ends."""
        self.assertEqual(TrustAnchor(A.certificate).window_text(), "always")
        self.assertEqual(TrustAnchor(A.certificate, None, NOW).window_text(), "until 2026-11-21 12:00:00+00:00")


class X509BundleTests(SynchronousTestCase):
    """The bundle of one trust domain."""

    def test_der(self) -> None:
        """Concatenated DER is read in order; no octets give an empty bundle."""
        rotated = A.rotated()
        data = A.certificate.public_bytes(Encoding.DER) + rotated.certificate.public_bytes(Encoding.DER)
        bundle = X509Bundle.parse_der(A.trust_domain, data)
        self.assertEqual(bundle.certificates, (A.certificate, rotated.certificate))
        self.assertEqual(X509Bundle.parse_der(A.trust_domain, b"").anchors, ())

    def test_malformed(self) -> None:
        """Other octets are refused with the defect."""
        error = self.assertRaises(BundleMalformed, X509Bundle.parse_der, A.trust_domain, b"noise")
        self.assertIn("octet 0", error.defect)

    def test_duplicate_roots(self) -> None:
        """A repeated certificate is one root."""
        self.assertEqual(X509Bundle.from_certificates(A.trust_domain, [A.certificate] * 3), A.bundle())

    def test_search(self) -> None:
        """Roots are found by certificate and by subject; several may have the same subject."""
        rotated = A.rotated()
        bundle = X509Bundle.from_certificates(A.trust_domain, [A.certificate, rotated.certificate])
        self.assertIn(A.certificate, bundle)
        self.assertNotIn(B.certificate, bundle)
        self.assertEqual(len(bundle.with_subject(A.certificate.subject.public_bytes())), 2)
        self.assertEqual(bundle.with_subject(B.certificate.subject.public_bytes()), ())

    def test_number_of_roots(self) -> None:
        """A bundle with the maximum number of roots is accepted, one more root is refused."""
        anchors = (TrustAnchor(A.certificate),) * MAX_ANCHORS
        self.assertEqual(len(X509Bundle(A.trust_domain, anchors).anchors), MAX_ANCHORS)
        self.assertRaises(BundleMalformed, X509Bundle, A.trust_domain, (*anchors, anchors[0]))


class BundleSetTests(SynchronousTestCase):
    """The bundles of all trust domains."""

    def test_bundle_for(self) -> None:
        """A bundle is found by its trust domain; the error for an unknown trust domain names it."""
        bundles = BundleSet.of(B.bundle(), A.bundle())
        self.assertEqual(bundles.bundle_for(TrustDomain("a.example")), A.bundle())
        self.assertEqual([str(each) for each in bundles.trust_domains], ["a.example", "b.example"])
        self.assertEqual(([*bundles], len(bundles)), ([A.bundle(), B.bundle()], 2))
        error = self.assertRaises(TrustDomainUnknown, bundles.bundle_for, TrustDomain("c.example"))
        self.assertEqual(str(error), "there is no trust bundle for the trust domain c.example")

    def test_equality_is_by_content(self) -> None:
        """Sets of the same bundles are equal, in any order; roots with different windows differ."""
        self.assertEqual(BundleSet.of(A.bundle(), B.bundle()), BundleSet.of(B.bundle(), A.bundle()))
        self.assertNotEqual(BundleSet.of(A.bundle()), BundleSet.of(A.bundle(last_seen=NOW)))
        self.assertNotEqual(BundleSet.of(A.bundle()), BundleSet.of(A.rotated().bundle()))

    def test_replace(self) -> None:
        """Replacing a bundle does not change the original set."""
        old = A.bundles()
        self.assertEqual(old.replace(B.bundle()), BundleSet.of(A.bundle(), B.bundle()))
        empty = X509Bundle(A.trust_domain)
        self.assertEqual(old.replace(empty).bundle_for(A.trust_domain), empty)
        self.assertEqual(old, BundleSet.of(A.bundle()))

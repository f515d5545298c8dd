"""Bundles as values."""

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
        """Both ends belong to the window; without an end it is unbounded."""
        for first, last, ago, counts in (
            (None, None, 0, True),
            (NOW, None, 0, True),
            (NOW, None, 1, False),
            (None, NOW, 0, True),
            (None, NOW, -1, False),
            (NOW - SECOND, NOW, 1, True),
        ):
            anchor = TrustAnchor(A.certificate, first, last)
            self.assertEqual(anchor.counts_at(NOW - ago * SECOND), counts, (first, last, ago))

    def test_windows_in_words(self) -> None:
        """The window is told as it is."""
        self.assertEqual(TrustAnchor(A.certificate).window_text(), "always")
        self.assertEqual(TrustAnchor(A.certificate, None, NOW).window_text(), "until 2026-11-21 12:00:00+00:00")


class X509BundleTests(SynchronousTestCase):
    """The bundle of one trust domain."""

    def test_der(self) -> None:
        """Concatenated DER is read in order; no octets make an empty bundle."""
        rotated = A.rotated()
        data = A.certificate.public_bytes(Encoding.DER) + rotated.certificate.public_bytes(Encoding.DER)
        bundle = X509Bundle.parse_der(A.trust_domain, data)
        self.assertEqual(bundle.certificates, (A.certificate, rotated.certificate))
        self.assertEqual(X509Bundle.parse_der(A.trust_domain, b"").anchors, ())

    def test_what_is_no_bundle(self) -> None:
        """Other octets are refused by name."""
        error = self.assertRaises(BundleMalformed, X509Bundle.parse_der, A.trust_domain, b"noise")
        self.assertIn("octet 0", error.defect)

    def test_repeated_roots_count_once(self) -> None:
        """The same certificate twice is one root."""
        self.assertEqual(X509Bundle.from_certificates(A.trust_domain, [A.certificate] * 3), A.bundle())

    def test_membership_and_names(self) -> None:
        """A bundle finds its roots by certificate and by subject; those of one name come together."""
        rotated = A.rotated()
        bundle = X509Bundle.from_certificates(A.trust_domain, [A.certificate, rotated.certificate])
        self.assertIn(A.certificate, bundle)
        self.assertNotIn(B.certificate, bundle)
        self.assertEqual(len(bundle.named(A.certificate.subject)), 2)
        self.assertEqual(bundle.named(B.certificate.subject), ())

    def test_number_of_roots(self) -> None:
        """The largest bundle is a bundle, one root more is refused."""
        anchors = (TrustAnchor(A.certificate),) * MAX_ANCHORS
        self.assertEqual(len(X509Bundle(A.trust_domain, anchors).anchors), MAX_ANCHORS)
        self.assertRaises(BundleMalformed, X509Bundle, A.trust_domain, (*anchors, anchors[0]))


class BundleSetTests(SynchronousTestCase):
    """The bundles of all trust domains."""

    def test_each_domain_has_its_own(self) -> None:
        """A bundle is found by its trust domain, and an unknown domain is refused by name."""
        bundles = BundleSet.of(B.bundle(), A.bundle())
        self.assertEqual(bundles.bundle_for(TrustDomain("a.example")), A.bundle())
        self.assertEqual([str(each) for each in bundles.trust_domains], ["a.example", "b.example"])
        self.assertEqual(([*bundles], len(bundles)), ([A.bundle(), B.bundle()], 2))
        error = self.assertRaises(TrustDomainUnknown, bundles.bundle_for, TrustDomain("c.example"))
        self.assertEqual(str(error), "there is no trust bundle for the trust domain c.example")

    def test_equality_is_by_content(self) -> None:
        """Two sets of the same bundles are equal, in any order; a window makes a difference."""
        self.assertEqual(BundleSet.of(A.bundle(), B.bundle()), BundleSet.of(B.bundle(), A.bundle()))
        self.assertNotEqual(BundleSet.of(A.bundle()), BundleSet.of(A.bundle(last_seen=NOW)))
        self.assertNotEqual(BundleSet.of(A.bundle()), BundleSet.of(A.rotated().bundle()))

    def test_changes_make_new_sets(self) -> None:
        """Replacing and forgetting leave the old set as it was."""
        old = A.bundles()
        self.assertEqual(old.replace(B.bundle()), BundleSet.of(A.bundle(), B.bundle()))
        empty = X509Bundle(A.trust_domain)
        self.assertEqual(old.replace(empty).bundle_for(A.trust_domain), empty)
        self.assertNotIn(A.trust_domain, old.without(A.trust_domain))
        self.assertEqual(old, BundleSet.of(A.bundle()))

"""Trust bundle files in every form that people have."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import (
    BundleArchive,
    BundleMalformed,
    BundleNeedsTrustDomain,
    BundleSet,
    PqBundles,
    TrustDomain,
    X509Bundle,
    parse_bundle_file,
    parse_pq_bundle_file,
    parse_spiffe_bundle,
)
from svc.identity.documents import MAX_BUNDLE_OCTETS
from svc.testing.ca import TestAuthority

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
A, B = TestAuthority("a.example", now=NOW), TestAuthority("b.example", now=NOW)
PQ = TestAuthority("a.example", now=NOW, algorithm="ML-DSA-65")
DOMAIN = A.trust_domain


def jwk(authority: TestAuthority, **members: Any) -> dict[str, Any]:
    """A root as an entry of a SPIFFE bundle; None removes a member."""
    der = base64.b64encode(authority.certificate.public_bytes(Encoding.DER)).decode()
    key = {"use": "x509-svid", "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "x5c": [der], **members}
    return {name: value for name, value in key.items() if value is not None}


def spiffe(*keys: object, **members: Any) -> dict[str, Any]:
    """A SPIFFE bundle."""
    return {"spiffe_sequence": 1, "spiffe_refresh_hint": 300, "keys": list(keys), **members}


def encoded(document: object) -> bytes:
    return json.dumps(document).encode()


class FormTests(SynchronousTestCase):
    """Telling the forms apart."""

    def test_pem(self) -> None:
        """PEM certificates, with text around them, are the roots of the domain that is named beside the file."""
        pem = (
            b"# our roots\n"
            + A.certificate.public_bytes(Encoding.PEM)
            + b"\n"
            + PQ.certificate.public_bytes(Encoding.PEM)
        )
        found = parse_bundle_file(pem, DOMAIN).bundle_for(DOMAIN)
        self.assertEqual(found.certificates, (A.certificate, PQ.certificate))

    def test_spiffe_bundle(self) -> None:
        """A SPIFFE bundle is read for the domain that is named beside the file."""
        self.assertEqual(parse_bundle_file(encoded(spiffe(jwk(A))), DOMAIN), A.bundles())
        self.assertEqual(parse_spiffe_bundle(encoded(spiffe(jwk(A))), DOMAIN), A.bundle())

    def test_bundle_map(self) -> None:
        """A SPIFFE bundle map names its domains itself."""
        document = {"trust_domains": {"a.example": spiffe(jwk(A)), "b.example": spiffe(jwk(B))}}
        for named in (None, DOMAIN):
            self.assertEqual(parse_bundle_file(encoded(document), named), BundleSet.of(A.bundle(), B.bundle()))

    def test_archive(self) -> None:
        """An archive gives its SPIFFE roots, and to the other reader its post-quantum roots, with windows."""
        archive = BundleArchive().observe(A.bundles(), NOW, pq=PQ.bundles())
        self.assertEqual(parse_bundle_file(archive.serialize(), None), archive.spiffe)
        self.assertEqual(parse_pq_bundle_file(archive.serialize()), archive.pq)

    def test_a_pq_bundle_is_no_trust_bundle(self) -> None:
        """Post-quantum roots never take the place of SPIFFE roots, and the refusal says what the file is."""
        data = PqBundles().with_bundle(PQ.bundle()).serialize()
        error = self.assertRaises(BundleMalformed, parse_bundle_file, data, DOMAIN)
        self.assertIn("post-quantum", str(error))

    def test_forms_that_do_not_say_whose_roots_they_are(self) -> None:
        """Without a domain beside the file these are refused, with a reason of their own."""
        for data in (A.certificate.public_bytes(Encoding.PEM), encoded(spiffe(jwk(A)))):
            error = self.assertRaises(BundleNeedsTrustDomain, parse_bundle_file, data, None)
            self.assertEqual(error.reason, "bundle_needs_trust_domain")

    def test_what_is_no_bundle(self) -> None:
        """Other files are refused by name."""
        for data, word in (
            (b"", "character 0"),
            (b"noise", "character 0"),
            (b"{}", "neither keys nor trust_domains"),
            (b"[]", "not an object"),
            (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "PEM"),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "PEM"),
            (b'{"keys":{}}', "keys is an object"),
            (b'{"keys":[1]}', "keys is a number"),
            (b'{"trust_domains":[]}', "trust_domains is an array"),
            (b'{"trust_domains":{"A":{"keys":[]}}}', "not a trust domain name"),
            (b'{"trust_domains":{"a":{}}}', "keys is absent"),
            (b'{"trust_domains":{"a":{"keys":[]},"a":{"keys":[]}}}', "duplicate"),
            (encoded(spiffe(jwk(A, x5c=["AAAA"]))), "no certificate"),
            (encoded(spiffe(jwk(A, x5c=[1]))), "x5c holds a number"),
        ):
            self.assertIn(word, self.assertRaises(BundleMalformed, parse_bundle_file, data, DOMAIN).defect)

    def test_size_is_bounded(self) -> None:
        """A file beyond the limit is refused before it is taken apart."""
        for data in (b"-----BEGIN" + bytes(MAX_BUNDLE_OCTETS), b"{" + b" " * MAX_BUNDLE_OCTETS):
            self.assertIn("at most", self.assertRaises(BundleMalformed, parse_bundle_file, data, DOMAIN).defect)

    @given(st.binary(max_size=80))
    def test_any_octets_are_refused_by_name(self, data: bytes) -> None:
        """Noise gives a typed error and no other."""
        self.assertRaises(BundleMalformed, parse_bundle_file, data, DOMAIN)
        self.assertRaises(BundleMalformed, parse_bundle_file, b"-----BEGIN CERTIFICATE-----" + data, DOMAIN)


class SpiffeBundleTests(SynchronousTestCase):
    """X.509-SVID 6.2 and SPIFFE Trust Domain and Bundle, section 4."""

    def roots(self, *keys: object) -> X509Bundle:
        return parse_spiffe_bundle(encoded(spiffe(*keys)), DOMAIN)

    def test_other_uses_are_ignored(self) -> None:
        """JWT keys, keys of unknown use or type, and entries without a certificate are ignored."""
        found = self.roots(
            {"use": "jwt-svid", "kty": "EC", "kid": "x"},
            jwk(B, use="other"),
            jwk(B, use=None),
            jwk(B, x5c=None),
            jwk(B, x5c=[]),
            jwk(B, x5c="text"),
            jwk(A, kty="unheard-of"),
        )
        self.assertEqual(found, A.bundle())

    def test_only_the_first_certificate_counts(self) -> None:
        """Later values of an entry are ignored."""
        self.assertEqual(self.roots(jwk(A, x5c=[*jwk(A)["x5c"], *jwk(B)["x5c"], "noise"])), A.bundle())

    def test_an_empty_bundle_revokes_all(self) -> None:
        """No keys are a legal bundle that verifies nothing."""
        self.assertEqual(self.roots(), X509Bundle(TrustDomain("a.example")))

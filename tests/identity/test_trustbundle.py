"""Trust bundle files of every supported format."""

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
)
from svc.identity.documents import MAX_BUNDLE_NODES, MAX_BUNDLE_OCTETS
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
    """Distinguishing the forms."""

    def test_pem(self) -> None:
        """PEM certificates, with other text around them, are the roots of the given trust domain."""
        pem = (
            b"# our roots\n"
            + A.certificate.public_bytes(Encoding.PEM)
            + b"\n"
            + PQ.certificate.public_bytes(Encoding.PEM)
        )
        found = parse_bundle_file(pem, DOMAIN).bundle_for(DOMAIN)
        self.assertEqual(found.certificates, (A.certificate, PQ.certificate))

    def test_spiffe_bundle(self) -> None:
        """A SPIFFE bundle is read for the given trust domain."""
        self.assertEqual(parse_bundle_file(encoded(spiffe(jwk(A))), DOMAIN), A.bundles())

    def test_bundle_map(self) -> None:
        """A SPIFFE bundle map contains its trust domains."""
        document = {"trust_domains": {"a.example": spiffe(jwk(A)), "b.example": spiffe(jwk(B))}}
        for named in (None, DOMAIN):
            self.assertEqual(parse_bundle_file(encoded(document), named), BundleSet.of(A.bundle(), B.bundle()))

    def test_archive(self) -> None:
        """Both kinds of roots are read from an archive, with their windows."""
        archive = BundleArchive().observe(A.bundles(), NOW, pq=PQ.bundles())
        self.assertEqual(parse_bundle_file(archive.serialize(), None), archive.spiffe)
        self.assertEqual(parse_pq_bundle_file(archive.serialize()), archive.pq)

    def test_pq_bundle(self) -> None:
        """A post-quantum bundle is refused as a trust bundle, and the message says what the file is."""
        data = PqBundles().with_bundle(PQ.bundle()).serialize()
        error = self.assertRaises(BundleMalformed, parse_bundle_file, data, DOMAIN)
        self.assertIn("post-quantum", str(error))

    def test_missing_trust_domain(self) -> None:
        """Formats that do not contain the trust domain are refused with a reason of their own when none is given."""
        for data in (A.certificate.public_bytes(Encoding.PEM), encoded(spiffe(jwk(A)))):
            error = self.assertRaises(BundleNeedsTrustDomain, parse_bundle_file, data, None)
            self.assertEqual(error.reason, "bundle_needs_trust_domain")

    def test_malformed(self) -> None:
        """Other files are refused with the defect."""
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
        """A file larger than the limit is refused before it is parsed."""
        for data in (b"-----BEGIN" + bytes(MAX_BUNDLE_OCTETS), b"{" + b" " * MAX_BUNDLE_OCTETS):
            self.assertIn("at most", self.assertRaises(BundleMalformed, parse_bundle_file, data, DOMAIN).defect)

    def test_number_of_values(self) -> None:
        """The number of values and member names is limited."""
        for count, word in (
            (MAX_BUNDLE_NODES - 3, "keys"),
            (MAX_BUNDLE_NODES - 2, f"more than {MAX_BUNDLE_NODES} values"),
        ):
            data = b'{"x":[' + b"0," * (count - 1) + b"0]}"
            self.assertIn(word, self.assertRaises(BundleMalformed, parse_bundle_file, data, DOMAIN).defect)

    @given(st.binary(max_size=80))
    def test_any_octets(self, data: bytes) -> None:
        """Random octets are refused with a typed error."""
        self.assertRaises(BundleMalformed, parse_bundle_file, data, DOMAIN)
        self.assertRaises(BundleMalformed, parse_bundle_file, b"-----BEGIN CERTIFICATE-----" + data, DOMAIN)


class SpiffeBundleTests(SynchronousTestCase):
    """X.509-SVID 6.2 and SPIFFE Trust Domain and Bundle, section 4."""

    def roots(self, *keys: object) -> X509Bundle:
        return parse_bundle_file(encoded(spiffe(*keys)), DOMAIN).bundle_for(DOMAIN)

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

    def test_first_certificate_of_an_entry(self) -> None:
        """Only the first certificate of an entry is read."""
        self.assertEqual(self.roots(jwk(A, x5c=[*jwk(A)["x5c"], *jwk(B)["x5c"], "noise"])), A.bundle())

    def test_empty_bundle(self) -> None:
        """A bundle without keys is valid and has no roots."""
        self.assertEqual(self.roots(), X509Bundle(TrustDomain("a.example")))

"""verify_svid: valid SVIDs give evidence, each invalid one is refused with its own reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import (
    ALGORITHMS,
    AnchorOutsideWindow,
    BundleSet,
    CertificateFacts,
    ChainUntrusted,
    KeyNotAllowed,
    SpiffeID,
    SvidEvidence,
    SvidExpired,
    SvidInvalid,
    SvidMalformed,
    SvidNotYetValid,
    TrustAnchor,
    TrustDomain,
    X509Bundle,
    X509Svid,
    certificate_sha256,
    spki_sha256,
    verify_svid,
)
from svc.identity.svid import MAX_CHAIN_CERTIFICATES
from svc.identity.verification import MAX_PATH, MAX_SIGNATURE_CHECKS, ChainSearch
from svc.testing.ca import TestAuthority
from svc.testing.certificates import SIGNING_KEY_USAGE, CertificateTemplate, build_certificate, generate_key, name_of
from tests.refusals import assert_refused

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
URI = x509.UniformResourceIdentifier
UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x05\x00")

ROOT = TestAuthority(now=NOW)
BUNDLES = ROOT.bundles()


@dataclass(frozen=True)
class InvalidChain:
    """A chain that must be refused, and the reason."""

    expected: str
    chain: Sequence[x509.Certificate]
    bundles: BundleSet = BUNDLES
    now: datetime = NOW


def invalid_leaf(expected: str, svid: X509Svid, bundles: BundleSet = BUNDLES) -> InvalidChain:
    """An invalid SVID with its own chain."""
    return InvalidChain(expected, svid.chain, bundles)


def issued_by(expected: str, authority: TestAuthority) -> InvalidChain:
    """A valid leaf of an invalid intermediate."""
    return InvalidChain(expected, authority.svid().chain)


def issued_by_root(expected: str, authority: TestAuthority) -> InvalidChain:
    """A valid leaf of an invalid root that is in the bundle."""
    return InvalidChain(expected, authority.svid().chain, authority.bundles())


def self_signed_anchor() -> InvalidChain:
    """A self-signed leaf that is in the bundle."""
    svid = ROOT.svid(self_signed=True)
    bundle = X509Bundle.from_certificates(ROOT.trust_domain, svid.chain)
    return InvalidChain("leaf_is_anchor", svid.chain, BundleSet.of(bundle))


def deep(levels: int) -> TestAuthority:
    """An authority with this number of intermediates between it and the root."""
    authority = ROOT
    for level in range(levels):
        authority = authority.intermediate(f"level {level}")
    return authority


def damaged(certificate: x509.Certificate, old: bytes, new: bytes) -> x509.Certificate:
    """A certificate with octets replaced, so that its signature is not valid."""
    return x509.load_der_x509_certificate(certificate.public_bytes(Encoding.DER).replace(old, new))


def narrow_root() -> InvalidChain:
    """A root that allows no intermediate, with a chain that has one."""
    root = TestAuthority(now=NOW, path_length=0)
    return InvalidChain("path_length", root.intermediate().svid().chain, root.bundles())


def certify(
    subject: str, key: CertificateIssuerPrivateKeyTypes, issuer: str, signer: CertificateIssuerPrivateKeyTypes
) -> x509.Certificate:
    """A signing certificate without key identifiers."""
    shape = CertificateTemplate(
        not_before=NOW - HOUR,
        not_after=NOW + HOUR,
        subject=subject,
        ca=True,
        key_usage=SIGNING_KEY_USAGE,
        eku=None,
    )
    return build_certificate(shape, key.public_key(), name_of(issuer), signer)


USAGE = frozenset
EKU = ExtendedKeyUsageOID

LEAF_CASES: dict[str, Callable[[], InvalidChain]] = {
    "no URI SAN": lambda: invalid_leaf("no_uri_san", ROOT.svid(uris=())),
    "only a DNS SAN": lambda: invalid_leaf("no_uri_san", ROOT.svid(uris=(), names=(x509.DNSName("a.example"),))),
    "two URI SANs": lambda: invalid_leaf(
        "too_many_uri_sans", ROOT.svid(uris=("spiffe://example.org/a", "spiffe://example.org/b"))
    ),
    "the same URI SAN twice": lambda: invalid_leaf(
        "too_many_uri_sans", ROOT.svid(uris=("spiffe://example.org/a",) * 2)
    ),
    "a second URI SAN that is no SPIFFE ID": lambda: invalid_leaf(
        "too_many_uri_sans", ROOT.svid(uris=("spiffe://example.org/a", "https://a.example"))
    ),
    "another scheme": lambda: invalid_leaf("spiffe_id_malformed", ROOT.svid(uris=("https://example.org/a",))),
    "upper-case scheme": lambda: invalid_leaf("spiffe_id_malformed", ROOT.svid(uris=("SPIFFE://example.org/a",))),
    "upper-case trust domain": lambda: invalid_leaf("spiffe_id_malformed", ROOT.svid(uris=("spiffe://Example.org/a",))),
    "port": lambda: invalid_leaf("spiffe_id_malformed", ROOT.svid(uris=("spiffe://example.org:80/a",))),
    "percent-encoding": lambda: invalid_leaf("spiffe_id_malformed", ROOT.svid(uris=("spiffe://example.org/%61",))),
    "trailing slash": lambda: invalid_leaf("spiffe_id_malformed", ROOT.svid(uris=("spiffe://example.org/a/",))),
    "NUL in the ID": lambda: invalid_leaf("spiffe_id_malformed", ROOT.svid(uris=(b"spiffe://example.org/a\x00.evil",))),
    "root path": lambda: invalid_leaf("root_path", ROOT.svid(uris=("spiffe://example.org",))),
    "CA flag": lambda: invalid_leaf("leaf_is_ca", ROOT.svid(ca=True)),
    "a signing certificate as leaf": lambda: invalid_leaf(
        "leaf_is_ca", ROOT.svid(ca=True, key_usage=SIGNING_KEY_USAGE)
    ),
    "keyCertSign": lambda: invalid_leaf(
        "key_usage", ROOT.svid(key_usage=USAGE({"digital_signature", "key_cert_sign"}))
    ),
    "cRLSign": lambda: invalid_leaf("key_usage", ROOT.svid(key_usage=USAGE({"digital_signature", "crl_sign"}))),
    "no digitalSignature": lambda: invalid_leaf("key_usage", ROOT.svid(key_usage=USAGE({"key_agreement"}))),
    "no key usage": lambda: invalid_leaf("key_usage", ROOT.svid(key_usage=None)),
    "EKU without client": lambda: invalid_leaf("ext_key_usage", ROOT.svid(eku=(EKU.SERVER_AUTH,))),
    "EKU without server": lambda: invalid_leaf("ext_key_usage", ROOT.svid(eku=(EKU.CLIENT_AUTH,))),
    "EKU of another purpose": lambda: invalid_leaf("ext_key_usage", ROOT.svid(eku=(EKU.CODE_SIGNING,))),
    "EKU any": lambda: invalid_leaf("ext_key_usage", ROOT.svid(eku=(EKU.ANY_EXTENDED_KEY_USAGE,))),
    "unknown critical extension": lambda: invalid_leaf(
        "critical_extension_unknown", ROOT.svid(extensions=((UNKNOWN, True),))
    ),
    "X.509 v1": lambda: invalid_leaf("certificate_version", ROOT.svid(version=1)),
    "RSA of 1024 bits": lambda: invalid_leaf("key_not_allowed", ROOT.svid(algorithm="RSA-1024")),
    "P-521": lambda: invalid_leaf("key_not_allowed", ROOT.svid(algorithm="ECDSA-P521")),
    "P-224": lambda: invalid_leaf("key_not_allowed", ROOT.svid(algorithm="ECDSA-P224")),
    "secp256k1": lambda: invalid_leaf("key_not_allowed", ROOT.svid(algorithm="ECDSA-K256")),
    "Ed448": lambda: invalid_leaf("key_not_allowed", ROOT.svid(algorithm="Ed448")),
    "ECDSA with SHA-1": lambda: invalid_leaf("signature_algorithm_not_allowed", ROOT.svid(signature="sha1")),
    "expired": lambda: invalid_leaf("expired", ROOT.svid(not_before=NOW - 2 * HOUR, not_after=NOW - HOUR)),
    "not yet valid": lambda: invalid_leaf("not_yet_valid", ROOT.svid(not_before=NOW + HOUR, not_after=NOW + 2 * HOUR)),
    "self-signed leaf in the bundle": self_signed_anchor,
}

CHAIN_CASES: dict[str, Callable[[], InvalidChain]] = {
    "no certificate": lambda: InvalidChain("svid_malformed", ()),
    "no bundle of the trust domain": lambda: invalid_leaf(
        "trust_domain_unknown", TestAuthority("other.example", now=NOW).svid()
    ),
    "empty bundle": lambda: invalid_leaf("chain_untrusted", ROOT.svid(), BundleSet.of(X509Bundle(ROOT.trust_domain))),
    "self-signed leaf": lambda: invalid_leaf("chain_untrusted", ROOT.svid(self_signed=True)),
    "another root": lambda: invalid_leaf("chain_untrusted", TestAuthority(now=NOW, subject="another root").svid()),
    "another root with the same names": lambda: invalid_leaf("chain_untrusted", ROOT.rotated().svid()),
    "leaf signed by another key": lambda: invalid_leaf("chain_untrusted", ROOT.svid(signer=generate_key("ECDSA-P256"))),
    "foreign root for our trust domain": lambda: invalid_leaf(
        "chain_untrusted",
        TestAuthority("other.example", now=NOW).svid(uris=("spiffe://example.org/workload",)),
        BundleSet.of(ROOT.bundle(), TestAuthority("other.example", now=NOW).bundle()),
    ),
    "intermediate missing": lambda: InvalidChain("chain_untrusted", ROOT.intermediate().svid().chain[:1]),
    "intermediate of another root": lambda: issued_by("chain_untrusted", ROOT.rotated().intermediate()),
    "intermediate signed by another key": lambda: issued_by(
        "chain_untrusted", ROOT.intermediate(signer=generate_key("ECDSA-P256"))
    ),
    "leaf as issuer": lambda: issued_by(
        "signing_not_ca", ROOT.intermediate(ca=False, key_usage=USAGE({"digital_signature"}))
    ),
    "intermediate without CA flag": lambda: issued_by("signing_not_ca", ROOT.intermediate(ca=False)),
    "intermediate without basic constraints": lambda: issued_by("signing_not_ca", ROOT.intermediate(ca=None)),
    "intermediate without keyCertSign": lambda: issued_by(
        "signing_key_usage", ROOT.intermediate(key_usage=USAGE({"crl_sign", "digital_signature"}))
    ),
    "intermediate without key usage": lambda: issued_by("signing_key_usage", ROOT.intermediate(key_usage=None)),
    "intermediate of another trust domain": lambda: issued_by(
        "signing_uri_san", ROOT.intermediate(uris=("spiffe://other.example",))
    ),
    "intermediate with a path": lambda: issued_by(
        "signing_uri_san", ROOT.intermediate(uris=("spiffe://example.org/ca",))
    ),
    "intermediate with two URI SANs": lambda: issued_by(
        "signing_uri_san", ROOT.intermediate(uris=("spiffe://example.org",) * 2)
    ),
    "intermediate with another URI": lambda: issued_by(
        "signing_uri_san", ROOT.intermediate(uris=("https://example.org",))
    ),
    "intermediate EKU for servers only": lambda: issued_by("ext_key_usage", ROOT.intermediate(eku=(EKU.SERVER_AUTH,))),
    "intermediate expired": lambda: issued_by("expired", ROOT.intermediate(not_after=NOW - timedelta(seconds=1))),
    "intermediate not yet valid": lambda: issued_by("not_yet_valid", ROOT.intermediate(not_before=NOW + HOUR)),
    "intermediate of RSA 1024": lambda: issued_by("key_not_allowed", ROOT.intermediate(algorithm="RSA-1024")),
    "intermediate of P-521": lambda: issued_by("key_not_allowed", ROOT.intermediate(algorithm="ECDSA-P521")),
    "intermediate signed with SHA-1": lambda: issued_by(
        "signature_algorithm_not_allowed", ROOT.intermediate(signature="sha1")
    ),
    "intermediate with an unknown critical extension": lambda: issued_by(
        "critical_extension_unknown", ROOT.intermediate(extensions=((UNKNOWN, True),))
    ),
    "root without CA flag": lambda: issued_by_root("signing_not_ca", TestAuthority(now=NOW, ca=False)),
    "root without basic constraints": lambda: issued_by_root("signing_not_ca", TestAuthority(now=NOW, ca=None)),
    "root without keyCertSign": lambda: issued_by_root(
        "signing_key_usage", TestAuthority(now=NOW, key_usage=USAGE({"crl_sign"}))
    ),
    "root of another trust domain": lambda: issued_by_root(
        "signing_uri_san", TestAuthority(now=NOW, uris=("spiffe://b.example",))
    ),
    "root with a path": lambda: issued_by_root(
        "signing_uri_san", TestAuthority(now=NOW, uris=("spiffe://example.org/ca",))
    ),
    "root expired": lambda: issued_by_root("expired", TestAuthority(now=NOW, not_after=NOW - timedelta(seconds=1))),
    "root not yet valid": lambda: issued_by_root("not_yet_valid", TestAuthority(now=NOW, not_before=NOW + HOUR)),
    "root of RSA 1024": lambda: issued_by_root("key_not_allowed", TestAuthority(now=NOW, algorithm="RSA-1024")),
    "root of v1": lambda: issued_by_root("certificate_version", TestAuthority(now=NOW, version=1)),
    "root with an unknown critical extension": lambda: issued_by_root(
        "critical_extension_unknown", TestAuthority(now=NOW, extensions=((UNKNOWN, True),))
    ),
    "root retired": lambda: invalid_leaf(
        "anchor_outside_window", ROOT.svid(), BundleSet.of(ROOT.bundle(last_seen=NOW - timedelta(seconds=1)))
    ),
    "root from the future": lambda: invalid_leaf(
        "anchor_outside_window", ROOT.svid(), BundleSet.of(ROOT.bundle(first_seen=NOW + timedelta(seconds=1)))
    ),
    "path length of the root": narrow_root,
    "path length of an intermediate": lambda: issued_by(
        "path_length", ROOT.intermediate("a", path_length=0).intermediate("b")
    ),
    "name constraints of an intermediate": lambda: issued_by(
        "name_constraints", ROOT.intermediate(permitted=(URI("other.example"),))
    ),
    "excluded by an intermediate": lambda: issued_by(
        "name_constraints", ROOT.intermediate(excluded=(URI("example.org"),))
    ),
    "too many certificates": lambda: InvalidChain("chain_too_long", ROOT.svid().chain * (MAX_CHAIN_CERTIFICATES + 1)),
    "too long a chain": lambda: issued_by("chain_too_long", deep(MAX_PATH - 1)),
}


class RefusalTests(SynchronousTestCase):
    """Every invalid certificate is refused with its own reason."""

    def assert_all_refused(self, cases: dict[str, Callable[[], InvalidChain]]) -> None:
        for name, build in cases.items():
            invalid = build()
            try:
                evidence = verify_svid(invalid.chain, invalid.bundles, invalid.now)
            except SvidInvalid as error:
                self.assertEqual(error.reason, invalid.expected, f"{name}: {error}")
                self.assertNotIn("{", str(error), name)
                self.assertTrue(error.hint, name)
                self.assertNotIn("{", error.hint, name)
            else:
                self.fail(f"{name}: accepted as {evidence.spiffe_id}")

    def test_invalid_leaves(self) -> None:
        """Each leaf that breaks one rule is refused with the reason of that rule."""
        self.assert_all_refused(LEAF_CASES)

    def test_invalid_chains(self) -> None:
        """Each chain that breaks one rule is refused with the reason of that rule."""
        self.assert_all_refused(CHAIN_CASES)

    def test_each_octet_in_the_certificate(self) -> None:
        """Of all 256 octets in the SAN of a certificate exactly those of the grammar are accepted."""
        allowed = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_/"
        for octet in range(256):
            svid = ROOT.svid(uris=(b"spiffe://example.org/x" + bytes((octet,)) + b"y",))
            if octet in allowed:
                self.assertEqual(verify_svid(svid.chain, BUNDLES, NOW).spiffe_id.path, f"/x{chr(octet)}y")
            else:
                error = self.assertRaises(SvidInvalid, verify_svid, svid.chain, BUNDLES, NOW)
                self.assertEqual(error.reason, "spiffe_id_malformed" if octet < 0x80 else "svid_malformed")

    def test_why_a_chain_is_untrusted(self) -> None:
        """The error says what is missing: a root, the key of the signature, a path to a root, or the issuer."""
        lower, signed = ROOT.intermediate("lower").svid().chain, ROOT.svid().chain
        for chain, bundle, detail in (
            (signed, X509Bundle(ROOT.trust_domain), "its trust bundle is empty"),
            (signed, ROOT.rotated().bundle(), "a root has the issuer's name, but the signature is not by its key"),
            (
                lower,
                TestAuthority(now=NOW, subject="other root").bundle(),
                "the presented intermediates lead to no root",
            ),
            (lower[:1], ROOT.bundle(), "the issuer 'CN=lower' is no root and was not presented"),
        ):
            error = self.assertRaises(ChainUntrusted, verify_svid, chain, BundleSet.of(bundle), NOW)
            self.assertEqual(error.detail, detail)

    def test_rsa_signed_with_sha1(self) -> None:
        """SHA-1 with RSA is refused too."""
        root = TestAuthority(now=NOW, algorithm="RSA")
        assert_refused(
            self, "signature_algorithm_not_allowed", verify_svid, root.svid(signature="sha1").chain, root.bundles(), NOW
        )

    def test_rsassa_pss_hashes(self) -> None:
        """RSASSA-PSS is refused when the hash of the message or that of the mask is not allowed or unknown."""
        root = TestAuthority(now=NOW, algorithm="RSA")
        leaf = root.svid(signature="pss").leaf
        sha256, mgf1 = bytes.fromhex("0609608648016503040201"), bytes.fromhex("06092a864886f70d010108")
        for old in (bytes.fromhex("a00f300d") + sha256, mgf1 + b"\x30\x0d" + sha256):
            for last in (b"\x04", b"\x7f"):
                changed = damaged(leaf, old, old[:-1] + last)
                self.assertNotEqual(changed, leaf)
                error = assert_refused(
                    self, "signature_algorithm_not_allowed", verify_svid, (changed,), root.bundles(), NOW
                )
                self.assertIn("RSASSA-PSS", str(error))

    def test_a_key_that_cannot_be_read(self) -> None:
        """A leaf with a key on an unknown curve is refused."""
        curve = bytes.fromhex("06082a8648ce3d030107")
        changed = damaged(ROOT.svid().leaf, curve, curve[:-1] + b"\x7f")
        self.assertRaises(KeyNotAllowed, verify_svid, (changed,), BUNDLES, NOW)

    def test_a_name_that_cannot_be_read(self) -> None:
        """A leaf whose subject or issuer is not text is refused; as an additional certificate it is ignored."""
        svid = ROOT.svid(subject="workload-1")
        for old in (b"example.org root", b"workload-1"):
            changed = damaged(svid.leaf, old, old[:-1] + b"\xff")
            self.assertRaises(SvidMalformed, verify_svid, (changed,), BUNDLES, NOW)
        bundles = BundleSet.of(X509Bundle.from_certificates(ROOT.trust_domain, [changed, ROOT.certificate]))
        self.assertEqual(verify_svid((svid.leaf, changed), bundles, NOW).chain, (svid.leaf, ROOT.certificate))

    def test_tampered_signature(self) -> None:
        """One changed bit in the signature, or in what is signed, is refused."""
        svid = ROOT.svid(subject="workload-1")
        signature = svid.leaf.signature
        for old, new in ((b"workload-1", b"workload-2"), (signature, signature[:-1] + bytes((signature[-1] ^ 1,)))):
            self.assertRaises(ChainUntrusted, verify_svid, (damaged(svid.leaf, old, new),), BUNDLES, NOW)

    def test_naive_time(self) -> None:
        """A time without a zone is a programming error."""
        self.assertRaises(TypeError, verify_svid, ROOT.svid().chain, BUNDLES, NOW.replace(tzinfo=None))


class AcceptanceTests(SynchronousTestCase):
    """Valid SVIDs give evidence."""

    def accepted(self, chain: Sequence[x509.Certificate], bundles: BundleSet = BUNDLES) -> SvidEvidence:
        return verify_svid(chain, bundles, NOW)

    def test_chain_not_before(self) -> None:
        """The validity of a chain begins with the latest of its certificates."""
        begun = NOW - timedelta(seconds=10)
        young = ROOT.intermediate(not_before=begun).svid("/a", not_before=NOW - HOUR)
        self.assertEqual(begun, self.accepted(young.chain).chain_not_before)
        young = ROOT.intermediate(not_before=NOW - HOUR).svid("/a", not_before=begun)
        self.assertEqual(begun, self.accepted(young.chain).chain_not_before)

    def test_evidence(self) -> None:
        """The evidence names the identity, the whole chain, the end of the leaf and the algorithm."""
        intermediate = ROOT.intermediate()
        svid = intermediate.svid("/ns/pay/sa/api", ttl=HOUR)
        found = self.accepted(svid.chain)
        self.assertEqual(found.spiffe_id, SpiffeID.parse("spiffe://example.org/ns/pay/sa/api"))
        self.assertEqual(found.chain, (svid.leaf, intermediate.certificate, ROOT.certificate))
        self.assertEqual((found.leaf, found.anchor), (svid.leaf, ROOT.certificate))
        self.assertEqual((found.not_before, found.not_after), (svid.not_before, NOW + HOUR))
        self.assertEqual(
            (found.algorithm.name, found.algorithm.jose, found.post_quantum), ("ECDSA-P256", "ES256", False)
        )
        self.assertEqual(found.spki_sha256, spki_sha256(svid.leaf))
        self.assertEqual(found.certificate_sha256, certificate_sha256(svid.leaf))

    def test_every_algorithm(self) -> None:
        """Each allowed algorithm verifies as leaf, intermediate and root; a chain of ML-DSA only is post-quantum."""
        for algorithm in ALGORITHMS:
            root = TestAuthority(now=NOW, algorithm=algorithm.name)
            svid = root.intermediate(algorithm=algorithm.name).svid(algorithm=algorithm.name)
            found = self.accepted(svid.chain, root.bundles())
            self.assertEqual((found.algorithm, found.post_quantum), (algorithm, algorithm.post_quantum))

    def test_one_classical_link_is_not_post_quantum(self) -> None:
        """A chain with one classical key, in the leaf or an issuer, is not post-quantum."""
        for names in (
            ("ECDSA-P256", "ML-DSA-65", "ML-DSA-65"),
            ("ML-DSA-65", "ECDSA-P256", "ML-DSA-65"),
            ("ML-DSA-65", "ML-DSA-65", "ECDSA-P256"),
        ):
            root = TestAuthority(now=NOW, algorithm=names[0])
            svid = root.intermediate(algorithm=names[1]).svid(algorithm=names[2])
            self.assertFalse(self.accepted(svid.chain, root.bundles()).post_quantum)

    def test_other_hashes_and_paddings(self) -> None:
        """SHA-384, SHA-512 and RSASSA-PSS are accepted."""
        root = TestAuthority(now=NOW, algorithm="RSA")
        for signature in ("sha384", "sha512", "pss"):
            self.assertIn(root.certificate, self.accepted(root.svid(signature=signature).chain, root.bundles()).chain)
            self.accepted(ROOT.svid(signature=signature if signature != "pss" else "sha512").chain)

    def test_optional_features(self) -> None:
        """Other names, an empty subject, no EKU, no basic constraints, unknown non-critical extensions are accepted."""
        for svid in (
            ROOT.svid(names=(x509.DNSName("a.example"), x509.DNSName("b.example"))),
            ROOT.svid(subject=None),
            ROOT.svid(eku=None),
            ROOT.svid(ca=None),
            ROOT.svid(eku=(EKU.SERVER_AUTH, EKU.CLIENT_AUTH, EKU.CODE_SIGNING)),
            ROOT.svid(key_usage=USAGE({"digital_signature", "key_agreement", "key_encipherment"})),
            ROOT.svid(extensions=((UNKNOWN, False),)),
            ROOT.intermediate(uris=()).svid(),
            ROOT.intermediate(eku=(EKU.ANY_EXTENDED_KEY_USAGE,)).svid(),
            ROOT.intermediate(eku=(EKU.SERVER_AUTH, EKU.CLIENT_AUTH)).svid(),
        ):
            self.assertEqual(self.accepted(svid.chain).spiffe_id, svid.spiffe_id)

    def test_roots_are_trusted_for_their_key(self) -> None:
        """A root may lack key usage and SPIFFE ID, and may have a restricted EKU and a weak signature."""
        for root in (
            TestAuthority(now=NOW, key_usage=None),
            TestAuthority(now=NOW, uris=()),
            TestAuthority(now=NOW, eku=(EKU.SERVER_AUTH,)),
            TestAuthority(now=NOW, signature="sha1"),
        ):
            self.assertEqual(self.accepted(root.svid().chain, root.bundles()).anchor, root.certificate)

    def test_an_intermediate_in_the_bundle_is_an_anchor(self) -> None:
        """The chain ends at a signing certificate that is in the bundle."""
        intermediate = ROOT.intermediate()
        found = self.accepted(intermediate.svid().chain, intermediate.bundles())
        self.assertEqual(len(found.chain), 2)

    def test_order_and_additional_certificates(self) -> None:
        """Intermediates in any order, the root, duplicates and unrelated certificates are accepted."""
        svid = ROOT.intermediate("a").intermediate("b").svid()
        leaf, lower, upper = svid.chain
        other = TestAuthority("other.example", now=NOW)
        for rest in (
            (upper, lower),
            (ROOT.certificate, upper, lower),
            (lower, lower, upper, upper),
            (other.certificate, other.svid().leaf, lower, upper),
        ):
            self.assertEqual(self.accepted((leaf, *rest)).chain, (leaf, lower, upper, ROOT.certificate))

    def test_validity_is_inclusive(self) -> None:
        """An SVID is valid at its first and last second, and not a microsecond before or after."""
        svid = ROOT.svid(not_before=NOW, not_after=NOW + HOUR)
        tick = timedelta(microseconds=1)
        for now in (NOW, NOW + HOUR):
            self.assertEqual(verify_svid(svid.chain, BUNDLES, now).leaf, svid.leaf)
        self.assertRaises(SvidNotYetValid, verify_svid, svid.chain, BUNDLES, NOW - tick)
        self.assertRaises(SvidExpired, verify_svid, svid.chain, BUNDLES, NOW + HOUR + tick)

    def test_windows_of_a_root_is_inclusive(self) -> None:
        """A root is trusted at the first and last moment of its window."""
        bundles = BundleSet.of(ROOT.bundle(first_seen=NOW, last_seen=NOW))
        self.assertEqual(verify_svid(ROOT.svid().chain, bundles, NOW).anchor, ROOT.certificate)

    def test_time_zones(self) -> None:
        """The time may be in any zone."""
        there = NOW.astimezone(timezone(timedelta(hours=9)))
        self.assertEqual(verify_svid(ROOT.svid().chain, BUNDLES, there).anchor, ROOT.certificate)


class RotationTests(SynchronousTestCase):
    """Several roots with the same name."""

    def test_roots_with_one_name(self) -> None:
        """SVIDs of each of several roots with the same subject are verified, whatever the order of the roots."""
        roots = [ROOT, *(ROOT.rotated() for _ in range(4))]
        for bundle_of in (roots, roots[::-1]):
            bundles = BundleSet.of(
                X509Bundle.from_certificates(ROOT.trust_domain, [root.certificate for root in bundle_of])
            )
            for root in roots:
                self.assertEqual(verify_svid(root.svid().chain, bundles, NOW).anchor, root.certificate)

    def test_renewed_root(self) -> None:
        """With the same key in an expired and a renewed root certificate, the renewed one is used."""
        renewed = TestAuthority(now=NOW)
        old = TestAuthority(now=NOW, not_before=NOW - 2 * HOUR, not_after=NOW - HOUR)
        bundles = BundleSet.of(X509Bundle.from_certificates(ROOT.trust_domain, [old.certificate, renewed.certificate]))
        self.assertEqual(verify_svid(renewed.svid().chain, bundles, NOW).anchor, renewed.certificate)
        self.assertRaises(SvidExpired, verify_svid, old.svid().chain, bundles, NOW)

    def test_several_windows_of_a_root(self) -> None:
        """A root with two windows is trusted in both and not between them."""
        day = timedelta(days=1)
        root = TestAuthority(now=NOW, not_before=NOW - 9 * day)
        svid = root.svid(not_before=NOW - 9 * day, not_after=NOW + day)
        anchors = (
            TrustAnchor(root.certificate, NOW - 8 * day, NOW - 6 * day),
            TrustAnchor(root.certificate, NOW - 2 * day, None),
        )
        bundles = BundleSet.of(X509Bundle(root.trust_domain, anchors))
        for ago, valid in ((9, False), (7, True), (4, False), (1, True), (0, True)):
            now = NOW - ago * day
            if valid:
                self.assertEqual(verify_svid(svid.chain, bundles, now).anchor, root.certificate)
            else:
                self.assertRaises(AnchorOutsideWindow, verify_svid, svid.chain, bundles, now)

    def test_unusable_root(self) -> None:
        """A root with the same name that cannot be used is skipped."""
        broken = TestAuthority(now=NOW, version=1)
        for certificates in ([broken.certificate, ROOT.certificate], [ROOT.certificate, broken.certificate]):
            bundles = BundleSet.of(X509Bundle.from_certificates(ROOT.trust_domain, certificates))
            self.assertEqual(verify_svid(ROOT.svid().chain, bundles, NOW).anchor, ROOT.certificate)

    def test_intermediates_with_one_name(self) -> None:
        """Of several intermediates with the same name the one that signed is found."""
        svid = ROOT.intermediate("twin").svid()
        twin = ROOT.intermediate("twin").certificate
        self.assertEqual(verify_svid((svid.leaf, twin, svid.chain[1]), BUNDLES, NOW).chain[1], svid.chain[1])

    def test_key_identifiers_are_only_hints(self) -> None:
        """A chain verifies although the authority key identifier names another root."""
        other = ROOT.rotated()
        bundles = BundleSet.of(X509Bundle.from_certificates(ROOT.trust_domain, [ROOT.certificate, other.certificate]))
        leaf = ROOT.svid(signer=other.private_key).leaf
        self.assertEqual(verify_svid((leaf,), bundles, NOW).anchor, other.certificate)

    def test_cross_signed_intermediates(self) -> None:
        """Of two certificates of one intermediate, the one that leads to a root is found, in any order."""
        shared = TestAuthority("example.org", now=NOW, subject="cross")

        def certified_by(authority: TestAuthority) -> x509.Certificate:
            return certify("cross", shared.private_key, "example.org root", authority.private_key)

        leaf = shared.svid().leaf
        untrusted, trusted = certified_by(ROOT.rotated()), certified_by(ROOT)
        for rest in ((untrusted, trusted), (trusted, untrusted)):
            self.assertEqual(verify_svid((leaf, *rest), BUNDLES, NOW).chain, (leaf, trusted, ROOT.certificate))


class OwnBundleTests(SynchronousTestCase):
    """Only the bundle of the SVID's own trust domain is used."""

    def test_federated_domains(self) -> None:
        """The roots of a federated trust domain verify its own SVIDs only."""
        ours, theirs = TestAuthority("a.example", now=NOW), TestAuthority("b.example", now=NOW)
        bundles = BundleSet.of(ours.bundle(), theirs.bundle())
        for root in (ours, theirs):
            self.assertEqual(verify_svid(root.svid().chain, bundles, NOW).anchor, root.certificate)
        forged = theirs.svid(uris=("spiffe://a.example/workload",))
        self.assertRaises(ChainUntrusted, verify_svid, forged.chain, bundles, NOW)

    def test_one_root_for_two_domains(self) -> None:
        """A root without a SPIFFE ID may be in two bundles; one with a SPIFFE ID is valid for its own domain only."""
        anonymous = TestAuthority("a.example", now=NOW, uris=())
        named = TestAuthority("a.example", now=NOW)
        other = TrustDomain("b.example")
        for root, accepted in ((anonymous, True), (named, False)):
            bundles = BundleSet.of(X509Bundle.from_certificates(other, [root.certificate]))
            chain = root.svid(uris=("spiffe://b.example/x",)).chain
            if accepted:
                self.assertEqual(verify_svid(chain, bundles, NOW).spiffe_id.trust_domain, other)
            else:
                assert_refused(self, "signing_uri_san", verify_svid, chain, bundles, NOW)


class LimitTests(SynchronousTestCase):
    """Limits on the cost of a chain."""

    def test_number_of_certificates(self) -> None:
        """The maximum number of presented certificates is accepted, one more is refused."""
        svid = ROOT.svid()
        chain = (svid.leaf, *((ROOT.certificate,) * (MAX_CHAIN_CERTIFICATES - 1)))
        self.assertEqual(verify_svid(chain, BUNDLES, NOW).leaf, svid.leaf)
        assert_refused(self, "chain_too_long", verify_svid, (*chain, ROOT.certificate), BUNDLES, NOW)

    def test_length_of_the_chain(self) -> None:
        """A chain of the maximum length is accepted, one more certificate is refused."""
        longest = deep(MAX_PATH - 2).svid()
        self.assertEqual(len(verify_svid(longest.chain, BUNDLES, NOW).chain), MAX_PATH)
        assert_refused(self, "chain_too_long", verify_svid, deep(MAX_PATH - 1).svid().chain, BUNDLES, NOW)

    def test_number_of_issuers(self) -> None:
        """The search ends after the maximum number of issuers."""
        others = [ROOT.rotated().certificate for _ in range(MAX_SIGNATURE_CHECKS)]
        svid = ROOT.svid(extensions=())
        # The issuing root is last, and the leaf has no key identifier to find it by.
        leaf = ROOT.rotated().svid(signer=ROOT.private_key).leaf
        for certificates, accepted in ((others[1:], True), (others, False)):
            anchors = [*certificates, ROOT.certificate]
            bundles = BundleSet.of(X509Bundle.from_certificates(ROOT.trust_domain, anchors))
            if accepted:
                self.assertEqual(verify_svid((leaf,), bundles, NOW).anchor, ROOT.certificate)
            else:
                assert_refused(self, "chain_too_long", verify_svid, (leaf,), bundles, NOW)
                # With the key identifier the root is tried first.
                self.assertEqual(verify_svid(svid.chain, bundles, NOW).anchor, ROOT.certificate)

    def test_retired_roots_are_tried_last(self) -> None:
        """The trusted root is found within the limit, whatever the number of retired roots with the same name."""
        gone = NOW - timedelta(seconds=1)
        retired = [TrustAnchor(ROOT.rotated().certificate, last_seen=gone) for _ in range(MAX_SIGNATURE_CHECKS)]
        bundles = BundleSet.of(X509Bundle(ROOT.trust_domain, (*retired, TrustAnchor(ROOT.certificate))))
        # The leaf has the key identifier of no root, so only the windows order the search.
        leaf = ROOT.rotated().svid(signer=ROOT.private_key).leaf
        self.assertEqual(verify_svid((leaf,), bundles, NOW).anchor, ROOT.certificate)

    def search(self, chain: Sequence[x509.Certificate], bundles: BundleSet = BUNDLES) -> tuple[int, SvidInvalid | None]:
        """The number of signatures that a search checks, and its error."""
        leaf, *presented = chain
        facts = CertificateFacts.read(leaf)
        spiffe_id = SpiffeID.parse(facts.uris[0])
        search = ChainSearch(bundles.bundle_for(spiffe_id.trust_domain), presented, spiffe_id, NOW)
        try:
            search.find(facts)
        except SvidInvalid as error:
            return search.signature_checks, error
        return search.signature_checks, None

    def test_one_name_and_key_is_visited_once(self) -> None:
        """Authorities with the same name and key that certify each other cause one signature check."""
        key = generate_key("ECDSA-P256")
        cycle = [certify("cycle", key, "cycle", key) for _ in range(MAX_CHAIN_CERTIFICATES - 1)]
        leaf = TestAuthority(now=NOW, subject="cycle").svid(signer=key).leaf
        checks, error = self.search((leaf, *cycle))
        self.assertEqual(checks, 1)
        self.assertIsInstance(error, ChainUntrusted)

    def test_signature_checks_of_refused_chains(self) -> None:
        """Keys of one name, cross-signed groups and roots of one name cause at most ten signature checks."""
        key = generate_key("ECDSA-P256")
        leaf = TestAuthority(now=NOW, subject="group 0").svid(signer=key).leaf
        others = [certify("group 0", each, "group 0", key) for each in (generate_key("ECDSA-P256") for _ in range(15))]
        keys = [key, *(generate_key("ECDSA-P256") for _ in range(5))]
        groups = [
            certify(f"group {level}", keys[level], f"group {level + 1}", keys[level + 1])
            for level in range(5)
            for _ in range(3)
        ]
        roots = [ROOT.rotated().certificate for _ in range(40)]
        bundles = BundleSet.of(X509Bundle.from_certificates(ROOT.trust_domain, roots))
        for chain, trusted in (((leaf, *others), BUNDLES), ((leaf, *groups), BUNDLES), (ROOT.svid().chain, bundles)):
            checks, error = self.search(chain, trusted)
            self.assertEqual(checks, MAX_SIGNATURE_CHECKS)
            self.assertEqual(error.reason, "chain_too_long")

    def test_signature_checks_of_valid_chains(self) -> None:
        """A valid chain causes one check for each link, also with forty roots of the same name."""
        roots = [*(ROOT.rotated().certificate for _ in range(40)), ROOT.certificate]
        bundles = BundleSet.of(X509Bundle.from_certificates(ROOT.trust_domain, roots))
        for authority, links in ((ROOT, 1), (ROOT.intermediate(), 2), (deep(MAX_PATH - 2), MAX_PATH - 1)):
            for trusted in (BUNDLES, bundles):
                self.assertEqual(self.search(authority.svid().chain, trusted), (links, None))

    def test_untrusted_certificates_are_not_evaluated(self) -> None:
        """Intermediates are evaluated only when their signatures lead to a root, from the root down."""
        other = TestAuthority(now=NOW, subject="other root", extensions=((UNKNOWN, True),))
        self.assertRaises(ChainUntrusted, verify_svid, (*other.svid().chain, other.certificate), BUNDLES, NOW)
        workload = ROOT.svid(subject="workload")
        below = certify("below", key := generate_key("ECDSA-P256"), "workload", workload.private_key)
        unreadable = damaged(below, b"below", b"belo\xff")
        leaf = TestAuthority(now=NOW, subject="below").svid(signer=key).leaf
        assert_refused(self, "signing_not_ca", verify_svid, (leaf, below, workload.leaf), BUNDLES, NOW)
        self.assertRaises(ChainUntrusted, verify_svid, (leaf, unreadable, workload.leaf), BUNDLES, NOW)

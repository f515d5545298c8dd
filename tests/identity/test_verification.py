"""The one verification: right SVIDs give evidence, each wrong one is refused for its own reason."""

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
    CertificateVersionRefused,
    ChainTooLong,
    ChainUntrusted,
    CriticalExtensionUnknown,
    ExtendedKeyUsageRefused,
    KeyNotAllowed,
    LeafIsAnchor,
    LeafIsCa,
    LeafKeyUsage,
    NameConstraintsViolated,
    NoUriSan,
    PathLengthExceeded,
    RootPath,
    SignatureAlgorithmNotAllowed,
    SigningKeyUsage,
    SigningNotCa,
    SigningUriSan,
    SpiffeID,
    SvidEvidence,
    SvidExpired,
    SvidIdMalformed,
    SvidInvalid,
    SvidMalformed,
    SvidNotYetValid,
    TooManyUriSans,
    TrustAnchor,
    TrustDomain,
    TrustDomainUnknown,
    X509Bundle,
    X509Svid,
    certificate_sha256,
    errors,
    spki_sha256,
    verify_svid,
)
from svc.identity.svid import MAX_CHAIN_CERTIFICATES
from svc.identity.verification import MAX_ISSUERS_TRIED, MAX_PATH
from svc.testing.ca import TestAuthority
from svc.testing.certificates import SIGNING_KEY_USAGE, Shape, build_certificate, generate_key, name_of

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
URI = x509.UniformResourceIdentifier
UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x05\x00")

ROOT = TestAuthority(now=NOW)
BUNDLES = ROOT.bundles()


@dataclass(frozen=True)
class Wrong:
    """A chain that must be refused, and the reason."""

    expected: type[SvidInvalid]
    chain: Sequence[x509.Certificate]
    bundles: BundleSet = BUNDLES
    now: datetime = NOW


def of(expected: type[SvidInvalid], svid: X509Svid, bundles: BundleSet = BUNDLES) -> Wrong:
    """A wrong SVID judged with its own chain."""
    return Wrong(expected, svid.chain, bundles)


def through(expected: type[SvidInvalid], authority: TestAuthority) -> Wrong:
    """A right leaf behind a wrong authority."""
    return Wrong(expected, authority.svid().chain)


def anchored(expected: type[SvidInvalid], authority: TestAuthority) -> Wrong:
    """A right leaf of a wrong root that stands in the bundle."""
    return Wrong(expected, authority.svid().chain, authority.bundles())


def self_signed_anchor() -> Wrong:
    """A self-signed leaf that somebody put into the bundle."""
    svid = ROOT.svid(self_signed=True)
    bundle = X509Bundle.from_certificates(ROOT.trust_domain, svid.chain)
    return Wrong(LeafIsAnchor, svid.chain, BundleSet.of(bundle))


def deep(levels: int) -> TestAuthority:
    """An authority so many intermediates below the root."""
    authority = ROOT
    for level in range(levels):
        authority = authority.intermediate(f"level {level}")
    return authority


def damaged(certificate: x509.Certificate, old: bytes, new: bytes) -> x509.Certificate:
    """A certificate with octets replaced, so that its signature does not hold any more."""
    return x509.load_der_x509_certificate(certificate.public_bytes(Encoding.DER).replace(old, new))


def narrow_root() -> Wrong:
    """A root that allows no intermediate, with one."""
    root = TestAuthority(now=NOW, path_length=0)
    return Wrong(PathLengthExceeded, root.intermediate().svid().chain, root.bundles())


def certify(
    subject: str, key: CertificateIssuerPrivateKeyTypes, issuer: str, signer: CertificateIssuerPrivateKeyTypes
) -> x509.Certificate:
    """A signing certificate without key identifiers."""
    shape = Shape(
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

LEAF_CASES: dict[str, Callable[[], Wrong]] = {
    "no URI SAN": lambda: of(NoUriSan, ROOT.svid(uris=())),
    "only a DNS SAN": lambda: of(NoUriSan, ROOT.svid(uris=(), names=(x509.DNSName("a.example"),))),
    "two URI SANs": lambda: of(TooManyUriSans, ROOT.svid(uris=("spiffe://example.org/a", "spiffe://example.org/b"))),
    "the same URI SAN twice": lambda: of(TooManyUriSans, ROOT.svid(uris=("spiffe://example.org/a",) * 2)),
    "a second URI SAN that is no SPIFFE ID": lambda: of(
        TooManyUriSans, ROOT.svid(uris=("spiffe://example.org/a", "https://a.example"))
    ),
    "another scheme": lambda: of(SvidIdMalformed, ROOT.svid(uris=("https://example.org/a",))),
    "upper-case scheme": lambda: of(SvidIdMalformed, ROOT.svid(uris=("SPIFFE://example.org/a",))),
    "upper-case trust domain": lambda: of(SvidIdMalformed, ROOT.svid(uris=("spiffe://Example.org/a",))),
    "port": lambda: of(SvidIdMalformed, ROOT.svid(uris=("spiffe://example.org:80/a",))),
    "percent-encoding": lambda: of(SvidIdMalformed, ROOT.svid(uris=("spiffe://example.org/%61",))),
    "trailing slash": lambda: of(SvidIdMalformed, ROOT.svid(uris=("spiffe://example.org/a/",))),
    "NUL in the ID": lambda: of(SvidIdMalformed, ROOT.svid(uris=(b"spiffe://example.org/a\x00.evil",))),
    "root path": lambda: of(RootPath, ROOT.svid(uris=("spiffe://example.org",))),
    "CA flag": lambda: of(LeafIsCa, ROOT.svid(ca=True)),
    "a signing certificate as leaf": lambda: of(LeafIsCa, ROOT.svid(ca=True, key_usage=SIGNING_KEY_USAGE)),
    "keyCertSign": lambda: of(LeafKeyUsage, ROOT.svid(key_usage=USAGE({"digital_signature", "key_cert_sign"}))),
    "cRLSign": lambda: of(LeafKeyUsage, ROOT.svid(key_usage=USAGE({"digital_signature", "crl_sign"}))),
    "no digitalSignature": lambda: of(LeafKeyUsage, ROOT.svid(key_usage=USAGE({"key_agreement"}))),
    "no key usage": lambda: of(LeafKeyUsage, ROOT.svid(key_usage=None)),
    "EKU without client": lambda: of(ExtendedKeyUsageRefused, ROOT.svid(eku=(EKU.SERVER_AUTH,))),
    "EKU without server": lambda: of(ExtendedKeyUsageRefused, ROOT.svid(eku=(EKU.CLIENT_AUTH,))),
    "EKU of another purpose": lambda: of(ExtendedKeyUsageRefused, ROOT.svid(eku=(EKU.CODE_SIGNING,))),
    "EKU any": lambda: of(ExtendedKeyUsageRefused, ROOT.svid(eku=(EKU.ANY_EXTENDED_KEY_USAGE,))),
    "unknown critical extension": lambda: of(CriticalExtensionUnknown, ROOT.svid(extensions=((UNKNOWN, True),))),
    "X.509 v1": lambda: of(CertificateVersionRefused, ROOT.svid(version=1)),
    "RSA of 1024 bits": lambda: of(KeyNotAllowed, ROOT.svid(algorithm="RSA-1024")),
    "P-521": lambda: of(KeyNotAllowed, ROOT.svid(algorithm="ECDSA-P521")),
    "P-224": lambda: of(KeyNotAllowed, ROOT.svid(algorithm="ECDSA-P224")),
    "secp256k1": lambda: of(KeyNotAllowed, ROOT.svid(algorithm="ECDSA-K256")),
    "Ed448": lambda: of(KeyNotAllowed, ROOT.svid(algorithm="Ed448")),
    "ECDSA with SHA-1": lambda: of(SignatureAlgorithmNotAllowed, ROOT.svid(signature="sha1")),
    "expired": lambda: of(SvidExpired, ROOT.svid(not_before=NOW - 2 * HOUR, not_after=NOW - HOUR)),
    "not yet valid": lambda: of(SvidNotYetValid, ROOT.svid(not_before=NOW + HOUR, not_after=NOW + 2 * HOUR)),
    "self-signed leaf in the bundle": self_signed_anchor,
}

CHAIN_CASES: dict[str, Callable[[], Wrong]] = {
    "no certificate": lambda: Wrong(SvidMalformed, ()),
    "no bundle of the trust domain": lambda: of(TrustDomainUnknown, TestAuthority("other.example", now=NOW).svid()),
    "empty bundle": lambda: of(ChainUntrusted, ROOT.svid(), BundleSet.of(X509Bundle(ROOT.trust_domain))),
    "self-signed leaf": lambda: of(ChainUntrusted, ROOT.svid(self_signed=True)),
    "another root": lambda: of(ChainUntrusted, TestAuthority(now=NOW, subject="another root").svid()),
    "another root with the same names": lambda: of(ChainUntrusted, ROOT.rotated().svid()),
    "leaf signed by another key": lambda: of(ChainUntrusted, ROOT.svid(signer=generate_key("ECDSA-P256"))),
    "foreign root for our trust domain": lambda: of(
        ChainUntrusted,
        TestAuthority("other.example", now=NOW).svid(uris=("spiffe://example.org/workload",)),
        BundleSet.of(ROOT.bundle(), TestAuthority("other.example", now=NOW).bundle()),
    ),
    "intermediate missing": lambda: Wrong(ChainUntrusted, ROOT.intermediate().svid().chain[:1]),
    "intermediate of a stranger": lambda: through(ChainUntrusted, ROOT.rotated().intermediate()),
    "intermediate signed by another key": lambda: through(
        ChainUntrusted, ROOT.intermediate(signer=generate_key("ECDSA-P256"))
    ),
    "leaf as issuer": lambda: through(
        SigningNotCa, ROOT.intermediate(ca=False, key_usage=USAGE({"digital_signature"}))
    ),
    "intermediate without CA flag": lambda: through(SigningNotCa, ROOT.intermediate(ca=False)),
    "intermediate without basic constraints": lambda: through(SigningNotCa, ROOT.intermediate(ca=None)),
    "intermediate without keyCertSign": lambda: through(
        SigningKeyUsage, ROOT.intermediate(key_usage=USAGE({"crl_sign", "digital_signature"}))
    ),
    "intermediate without key usage": lambda: through(SigningKeyUsage, ROOT.intermediate(key_usage=None)),
    "intermediate of another trust domain": lambda: through(
        SigningUriSan, ROOT.intermediate(uris=("spiffe://other.example",))
    ),
    "intermediate with a path": lambda: through(SigningUriSan, ROOT.intermediate(uris=("spiffe://example.org/ca",))),
    "intermediate with two URI SANs": lambda: through(
        SigningUriSan, ROOT.intermediate(uris=("spiffe://example.org",) * 2)
    ),
    "intermediate with another URI": lambda: through(SigningUriSan, ROOT.intermediate(uris=("https://example.org",))),
    "intermediate EKU for servers only": lambda: through(
        ExtendedKeyUsageRefused, ROOT.intermediate(eku=(EKU.SERVER_AUTH,))
    ),
    "intermediate expired": lambda: through(SvidExpired, ROOT.intermediate(not_after=NOW - timedelta(seconds=1))),
    "intermediate not yet valid": lambda: through(SvidNotYetValid, ROOT.intermediate(not_before=NOW + HOUR)),
    "intermediate of RSA 1024": lambda: through(KeyNotAllowed, ROOT.intermediate(algorithm="RSA-1024")),
    "intermediate of P-521": lambda: through(KeyNotAllowed, ROOT.intermediate(algorithm="ECDSA-P521")),
    "intermediate signed with SHA-1": lambda: through(
        SignatureAlgorithmNotAllowed, ROOT.intermediate(signature="sha1")
    ),
    "intermediate with an unknown critical extension": lambda: through(
        CriticalExtensionUnknown, ROOT.intermediate(extensions=((UNKNOWN, True),))
    ),
    "root without CA flag": lambda: anchored(SigningNotCa, TestAuthority(now=NOW, ca=False)),
    "root without basic constraints": lambda: anchored(SigningNotCa, TestAuthority(now=NOW, ca=None)),
    "root without keyCertSign": lambda: anchored(
        SigningKeyUsage, TestAuthority(now=NOW, key_usage=USAGE({"crl_sign"}))
    ),
    "root of another trust domain": lambda: anchored(
        SigningUriSan, TestAuthority(now=NOW, uris=("spiffe://b.example",))
    ),
    "root with a path": lambda: anchored(SigningUriSan, TestAuthority(now=NOW, uris=("spiffe://example.org/ca",))),
    "root expired": lambda: anchored(SvidExpired, TestAuthority(now=NOW, not_after=NOW - timedelta(seconds=1))),
    "root not yet valid": lambda: anchored(SvidNotYetValid, TestAuthority(now=NOW, not_before=NOW + HOUR)),
    "root of RSA 1024": lambda: anchored(KeyNotAllowed, TestAuthority(now=NOW, algorithm="RSA-1024")),
    "root of v1": lambda: anchored(CertificateVersionRefused, TestAuthority(now=NOW, version=1)),
    "root with an unknown critical extension": lambda: anchored(
        CriticalExtensionUnknown, TestAuthority(now=NOW, extensions=((UNKNOWN, True),))
    ),
    "root retired": lambda: of(
        AnchorOutsideWindow, ROOT.svid(), BundleSet.of(ROOT.bundle(last_seen=NOW - timedelta(seconds=1)))
    ),
    "root from the future": lambda: of(
        AnchorOutsideWindow, ROOT.svid(), BundleSet.of(ROOT.bundle(first_seen=NOW + timedelta(seconds=1)))
    ),
    "path length of the root": narrow_root,
    "path length of an intermediate": lambda: through(
        PathLengthExceeded, ROOT.intermediate("a", path_length=0).intermediate("b")
    ),
    "name constraints of an intermediate": lambda: through(
        NameConstraintsViolated, ROOT.intermediate(permitted=(URI("other.example"),))
    ),
    "excluded by an intermediate": lambda: through(
        NameConstraintsViolated, ROOT.intermediate(excluded=(URI("example.org"),))
    ),
    "too many certificates": lambda: Wrong(ChainTooLong, ROOT.svid().chain * (MAX_CHAIN_CERTIFICATES + 1)),
    "too long a chain": lambda: through(ChainTooLong, deep(MAX_PATH - 1)),
}


class RefusalTests(SynchronousTestCase):
    """Every wrong certificate is refused for its own reason."""

    def judge(self, cases: dict[str, Callable[[], Wrong]]) -> None:
        for name, build in cases.items():
            wrong = build()
            try:
                evidence = verify_svid(wrong.chain, wrong.bundles, wrong.now)
            except SvidInvalid as error:
                self.assertIsInstance(error, wrong.expected, f"{name}: {error.reason}: {error}")
                self.assertNotIn("{", str(error), name)
                self.assertTrue(error.advice(), name)
                self.assertNotIn("{", error.advice(), name)
                self.assertEqual(error.metric_reason, "svid_invalid")
            else:
                self.fail(f"{name}: accepted as {evidence.spiffe_id}")

    def test_wrong_leaves(self) -> None:
        """Each leaf that breaks one rule is refused for that rule."""
        self.judge(LEAF_CASES)

    def test_wrong_chains(self) -> None:
        """Each chain that breaks one rule is refused for that rule."""
        self.judge(CHAIN_CASES)

    def test_reasons_are_distinct_words(self) -> None:
        """Each class has a reason of its own, which is one word."""
        reasons = [
            kind.reason
            for kind in vars(errors).values()
            if isinstance(kind, type) and issubclass(kind, SvidInvalid) and kind.__module__ == errors.__name__
        ]
        self.assertGreater(len(reasons), 25)
        self.assertEqual(len(set(reasons)), len(reasons))
        for reason in reasons:
            self.assertRegex(reason, r"\A[a-z0-9]+(_[a-z0-9]+)*\Z")

    def test_each_octet_in_the_certificate(self) -> None:
        """Of all 256 octets in the SAN of a certificate exactly those of the grammar are accepted."""
        allowed = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_/"
        for octet in range(256):
            svid = ROOT.svid(uris=(b"spiffe://example.org/x" + bytes((octet,)) + b"y",))
            if octet in allowed:
                self.assertEqual(verify_svid(svid.chain, BUNDLES, NOW).spiffe_id.path, f"/x{chr(octet)}y")
            else:
                error = self.assertRaises(SvidInvalid, verify_svid, svid.chain, BUNDLES, NOW)
                self.assertIsInstance(error, SvidIdMalformed if octet < 0x80 else SvidMalformed)

    def test_rsa_signed_with_sha1(self) -> None:
        """SHA-1 under RSA is refused as well."""
        root = TestAuthority(now=NOW, algorithm="RSA")
        self.assertRaises(
            SignatureAlgorithmNotAllowed, verify_svid, root.svid(signature="sha1").chain, root.bundles(), NOW
        )

    def test_rsassa_pss_with_a_weak_hash_inside(self) -> None:
        """RSASSA-PSS is refused when the hash of the message or that of the mask is not allowed or unknown."""
        root = TestAuthority(now=NOW, algorithm="RSA")
        leaf = root.svid(signature="pss").leaf
        sha256, mgf1 = bytes.fromhex("0609608648016503040201"), bytes.fromhex("06092a864886f70d010108")
        for old in (bytes.fromhex("a00f300d") + sha256, mgf1 + b"\x30\x0d" + sha256):
            for last in (b"\x04", b"\x7f"):
                changed = damaged(leaf, old, old[:-1] + last)
                self.assertNotEqual(changed, leaf)
                error = self.assertRaises(SignatureAlgorithmNotAllowed, verify_svid, (changed,), root.bundles(), NOW)
                self.assertIn("RSASSA-PSS", str(error))

    def test_a_key_that_cannot_be_read(self) -> None:
        """A leaf on a curve that nobody knows is refused for its key."""
        curve = bytes.fromhex("06082a8648ce3d030107")
        changed = damaged(ROOT.svid().leaf, curve, curve[:-1] + b"\x7f")
        self.assertRaises(KeyNotAllowed, verify_svid, (changed,), BUNDLES, NOW)

    def test_a_name_that_cannot_be_read(self) -> None:
        """A leaf whose subject or issuer is no text is refused; beside a right leaf it is passed over."""
        svid = ROOT.svid(subject="workload-1")
        for old in (b"example.org root", b"workload-1"):
            changed = damaged(svid.leaf, old, old[:-1] + b"\xff")
            self.assertRaises(SvidMalformed, verify_svid, (changed,), BUNDLES, NOW)
        bundles = BundleSet.of(X509Bundle.from_certificates(ROOT.trust_domain, [changed, ROOT.certificate]))
        self.assertEqual(verify_svid((svid.leaf, changed), bundles, NOW).chain, (svid.leaf, ROOT.certificate))

    def test_tampered_signature(self) -> None:
        """One changed bit in the signature, or in what is signed, is refused."""
        svid = ROOT.svid(subject="workload-1")
        for old, new in ((b"workload-1", b"workload-2"), (svid.leaf.signature, svid.leaf.signature[:-1] + b"\x00")):
            self.assertRaises(ChainUntrusted, verify_svid, (damaged(svid.leaf, old, new),), BUNDLES, NOW)

    def test_naive_time_is_our_own_mistake(self) -> None:
        """A time without a zone is not guessed at."""
        self.assertRaises(TypeError, verify_svid, ROOT.svid().chain, BUNDLES, NOW.replace(tzinfo=None))


class AcceptanceTests(SynchronousTestCase):
    """Right SVIDs give evidence."""

    def accepted(self, chain: Sequence[x509.Certificate], bundles: BundleSet = BUNDLES) -> SvidEvidence:
        return verify_svid(chain, bundles, NOW)

    def test_begun(self) -> None:
        """A chain begins with the last of its certificates."""
        begun = NOW - timedelta(seconds=10)
        young = ROOT.intermediate(not_before=begun).svid("/a", not_before=NOW - HOUR)
        self.assertEqual(begun, self.accepted(young.chain).begun)
        young = ROOT.intermediate(not_before=NOW - HOUR).svid("/a", not_before=begun)
        self.assertEqual(begun, self.accepted(young.chain).begun)

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
        """A classical key anywhere in the chain, or only in the leaf, takes the post-quantum property away."""
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

    def test_what_is_allowed_beside_the_rules(self) -> None:
        """Other names, an empty subject, no EKU, no basic constraints, unknown uncritical extensions are no fault."""
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
        """A root may lack key usage and SPIFFE ID, may have a narrow EKU and a weak signature of its own."""
        for root in (
            TestAuthority(now=NOW, key_usage=None),
            TestAuthority(now=NOW, uris=()),
            TestAuthority(now=NOW, eku=(EKU.SERVER_AUTH,)),
            TestAuthority(now=NOW, signature="sha1"),
        ):
            self.assertEqual(self.accepted(root.svid().chain, root.bundles()).anchor, root.certificate)

    def test_an_intermediate_in_the_bundle_is_an_anchor(self) -> None:
        """The search ends at whatever signing certificate the bundle names."""
        intermediate = ROOT.intermediate()
        found = self.accepted(intermediate.svid().chain, intermediate.bundles())
        self.assertEqual(len(found.chain), 2)

    def test_order_and_surplus_do_not_matter(self) -> None:
        """Intermediates in any order, the root, duplicates and certificates of others beside them are no fault."""
        svid = ROOT.intermediate("a").intermediate("b").svid()
        leaf, lower, upper = svid.chain
        stranger = TestAuthority("other.example", now=NOW)
        for rest in (
            (upper, lower),
            (ROOT.certificate, upper, lower),
            (lower, lower, upper, upper),
            (stranger.certificate, stranger.svid().leaf, lower, upper),
        ):
            self.assertEqual(self.accepted((leaf, *rest)).chain, (leaf, lower, upper, ROOT.certificate))

    def test_the_ends_of_validity_belong_to_it(self) -> None:
        """An SVID is valid in the first and in the last second, and not a microsecond around them."""
        svid = ROOT.svid(not_before=NOW, not_after=NOW + HOUR)
        tick = timedelta(microseconds=1)
        for now in (NOW, NOW + HOUR):
            self.assertEqual(verify_svid(svid.chain, BUNDLES, now).leaf, svid.leaf)
        self.assertRaises(SvidNotYetValid, verify_svid, svid.chain, BUNDLES, NOW - tick)
        self.assertRaises(SvidExpired, verify_svid, svid.chain, BUNDLES, NOW + HOUR + tick)

    def test_the_ends_of_a_window_belong_to_it(self) -> None:
        """A root counts in the first and in the last moment of its window."""
        bundles = BundleSet.of(ROOT.bundle(first_seen=NOW, last_seen=NOW))
        self.assertEqual(verify_svid(ROOT.svid().chain, bundles, NOW).anchor, ROOT.certificate)

    def test_other_zones(self) -> None:
        """The time may come in any zone."""
        there = NOW.astimezone(timezone(timedelta(hours=9)))
        self.assertEqual(verify_svid(ROOT.svid().chain, BUNDLES, there).anchor, ROOT.certificate)


class RotationTests(SynchronousTestCase):
    """Several roots of one name."""

    def test_roots_with_one_name(self) -> None:
        """Each of several roots with one subject vouches for its own SVIDs, whatever their order."""
        roots = [ROOT, *(ROOT.rotated() for _ in range(4))]
        for bundle_of in (roots, roots[::-1]):
            bundles = BundleSet.of(
                X509Bundle.from_certificates(ROOT.trust_domain, [root.certificate for root in bundle_of])
            )
            for root in roots:
                self.assertEqual(verify_svid(root.svid().chain, bundles, NOW).anchor, root.certificate)

    def test_an_expired_root_beside_a_fresh_one(self) -> None:
        """The same key in an expired and in a renewed root certificate: the renewed one counts."""
        renewed = TestAuthority(now=NOW)
        old = TestAuthority(now=NOW, not_before=NOW - 2 * HOUR, not_after=NOW - HOUR)
        bundles = BundleSet.of(X509Bundle.from_certificates(ROOT.trust_domain, [old.certificate, renewed.certificate]))
        self.assertEqual(verify_svid(renewed.svid().chain, bundles, NOW).anchor, renewed.certificate)
        self.assertRaises(SvidExpired, verify_svid, old.svid().chain, bundles, NOW)

    def test_windows_of_one_root(self) -> None:
        """A root with two windows counts in both and not between them."""
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

    def test_a_broken_root_beside_a_right_one(self) -> None:
        """A root of the same name that cannot be used spoils nothing."""
        broken = TestAuthority(now=NOW, version=1)
        for certificates in ([broken.certificate, ROOT.certificate], [ROOT.certificate, broken.certificate]):
            bundles = BundleSet.of(X509Bundle.from_certificates(ROOT.trust_domain, certificates))
            self.assertEqual(verify_svid(ROOT.svid().chain, bundles, NOW).anchor, ROOT.certificate)

    def test_intermediates_with_one_name(self) -> None:
        """Of several presented intermediates of one name the one that signed is found."""
        svid = ROOT.intermediate("twin").svid()
        twin = ROOT.intermediate("twin").certificate
        self.assertEqual(verify_svid((svid.leaf, twin, svid.chain[1]), BUNDLES, NOW).chain[1], svid.chain[1])

    def test_key_identifiers_are_only_hints(self) -> None:
        """An authority key identifier that points to another root neither helps nor hurts."""
        other = ROOT.rotated()
        bundles = BundleSet.of(X509Bundle.from_certificates(ROOT.trust_domain, [ROOT.certificate, other.certificate]))
        leaf = ROOT.svid(signer=other.private_key).leaf
        self.assertEqual(verify_svid((leaf,), bundles, NOW).anchor, other.certificate)

    def test_cross_signed_intermediates(self) -> None:
        """Of two certificates of one intermediate, the one that leads to a root is found; a dead end is left again."""
        shared = TestAuthority("example.org", now=NOW, subject="cross")

        def certified_by(authority: TestAuthority) -> x509.Certificate:
            return certify("cross", shared.private_key, "example.org root", authority.private_key)

        leaf = shared.svid().leaf
        dead, alive = certified_by(ROOT.rotated()), certified_by(ROOT)
        for rest in ((dead, alive), (alive, dead)):
            self.assertEqual(verify_svid((leaf, *rest), BUNDLES, NOW).chain, (leaf, alive, ROOT.certificate))


class OwnBundleTests(SynchronousTestCase):
    """The bundle of the SVID's own trust domain and no other."""

    def test_each_domain_by_its_own_roots(self) -> None:
        """Two federated domains vouch for their own SVIDs only."""
        ours, theirs = TestAuthority("a.example", now=NOW), TestAuthority("b.example", now=NOW)
        bundles = BundleSet.of(ours.bundle(), theirs.bundle())
        for root in (ours, theirs):
            self.assertEqual(verify_svid(root.svid().chain, bundles, NOW).anchor, root.certificate)
        forged = theirs.svid(uris=("spiffe://a.example/workload",))
        self.assertRaises(ChainUntrusted, verify_svid, forged.chain, bundles, NOW)

    def test_one_root_for_two_domains(self) -> None:
        """A root without a SPIFFE ID may stand in two bundles; one with a SPIFFE ID serves its own domain only."""
        anonymous = TestAuthority("a.example", now=NOW, uris=())
        named = TestAuthority("a.example", now=NOW)
        other = TrustDomain("b.example")
        for root, accepted in ((anonymous, True), (named, False)):
            bundles = BundleSet.of(X509Bundle.from_certificates(other, [root.certificate]))
            chain = root.svid(uris=("spiffe://b.example/x",)).chain
            if accepted:
                self.assertEqual(verify_svid(chain, bundles, NOW).spiffe_id.trust_domain, other)
            else:
                self.assertRaises(SigningUriSan, verify_svid, chain, bundles, NOW)


class BoundTests(SynchronousTestCase):
    """The work that a chain can cause."""

    def test_number_of_certificates(self) -> None:
        """The largest number of presented certificates passes, one more does not."""
        svid = ROOT.svid()
        chain = (svid.leaf, *((ROOT.certificate,) * (MAX_CHAIN_CERTIFICATES - 1)))
        self.assertEqual(verify_svid(chain, BUNDLES, NOW).leaf, svid.leaf)
        self.assertRaises(ChainTooLong, verify_svid, (*chain, ROOT.certificate), BUNDLES, NOW)

    def test_length_of_the_chain(self) -> None:
        """A chain of the greatest length passes, one more certificate does not."""
        longest = deep(MAX_PATH - 2).svid()
        self.assertEqual(len(verify_svid(longest.chain, BUNDLES, NOW).chain), MAX_PATH)
        self.assertRaises(ChainTooLong, verify_svid, deep(MAX_PATH - 1).svid().chain, BUNDLES, NOW)

    def test_number_of_issuers(self) -> None:
        """The search tries the allowed number of issuers and then gives up."""
        strangers = [ROOT.rotated().certificate for _ in range(MAX_ISSUERS_TRIED)]
        svid = ROOT.svid(extensions=())
        # The fitting root is last, and nothing says so: the leaf names no key.
        leaf = ROOT.rotated().svid(signer=ROOT.private_key).leaf
        for certificates, accepted in ((strangers[1:], True), (strangers, False)):
            anchors = [*certificates, ROOT.certificate]
            bundles = BundleSet.of(X509Bundle.from_certificates(ROOT.trust_domain, anchors))
            if accepted:
                self.assertEqual(verify_svid((leaf,), bundles, NOW).anchor, ROOT.certificate)
            else:
                self.assertRaises(ChainTooLong, verify_svid, (leaf,), bundles, NOW)
                # With the key identifier the root is tried first.
                self.assertEqual(verify_svid(svid.chain, bundles, NOW).anchor, ROOT.certificate)

    def test_a_knot_of_authorities_is_given_up(self) -> None:
        """Authorities of one name and one key, which certify each other in any order, are not walked for ever."""
        key = generate_key("ECDSA-P256")
        knot = [certify("knot", key, "knot", key) for _ in range(MAX_CHAIN_CERTIFICATES - 1)]
        leaf = TestAuthority(now=NOW, subject="knot").svid(signer=key).leaf
        self.assertRaises(ChainTooLong, verify_svid, (leaf, *knot), BUNDLES, NOW)

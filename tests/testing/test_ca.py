"""The authority for tests builds certificates as requested, valid or invalid."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import CertificateFacts, X509Svid, binding_of, spki_sha256, verify_svid
from svc.testing.ca import TestAuthority, chain_der, chain_pem, key_der, key_pem
from svc.testing.certificates import der, generate_key

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


class RightTests(SynchronousTestCase):
    """Without fields everything is valid."""

    def test_an_svid_verifies(self) -> None:
        """An SVID of the root and one of an intermediate verify to the bundle."""
        root = TestAuthority("prod.example.org", now=NOW)
        for svid in (root.svid("/a/b"), root.intermediate().intermediate("second").svid("/a/b")):
            found = verify_svid(svid.chain, root.bundles(), NOW)
            self.assertEqual(str(found.spiffe_id), "spiffe://prod.example.org/a/b")
            self.assertEqual(found.anchor, root.certificate)

    def test_the_workload_api_form(self) -> None:
        """What is written as the Workload API does is read back."""
        svid = TestAuthority(now=NOW).intermediate().svid(algorithm="ML-DSA-65")
        self.assertEqual(X509Svid.parse(chain_der(svid), key_der(svid)), svid)

    def test_the_pem_form(self) -> None:
        """What is written as PEM is read back by others."""
        svid = TestAuthority(now=NOW).intermediate().svid()
        self.assertEqual(tuple(x509.load_pem_x509_certificates(chain_pem(svid))), svid.chain)
        self.assertEqual(load_pem_private_key(key_pem(svid), None).public_key(), svid.leaf.public_key())

    def test_times_follow_the_argument(self) -> None:
        """Nothing depends on the clock: times are those that were asked for."""
        root = TestAuthority(now=NOW)
        self.assertEqual((root.svid().not_before, root.svid().not_after), (NOW - timedelta(seconds=60), NOW + HOUR))
        svid = root.svid(not_before=NOW - 9 * HOUR, not_after=NOW - 8 * HOUR)
        self.assertEqual((svid.not_before, svid.not_after), (NOW - 9 * HOUR, NOW - 8 * HOUR))
        self.assertEqual(root.svid(ttl=2 * HOUR).not_after, NOW + 2 * HOUR)

    def test_keys_are_not_shared(self) -> None:
        """Each SVID and each root has a key of its own."""
        root = TestAuthority(now=NOW)
        self.assertNotEqual(spki_sha256(root.svid().leaf), spki_sha256(root.svid().leaf))
        self.assertNotEqual(spki_sha256(root.certificate), spki_sha256(root.rotated().certificate))

    def test_rsa_authorities_have_different_keys(self) -> None:
        """The cached RSA keys of a root, its successor, its intermediate and its SVIDs differ."""
        root = TestAuthority(now=NOW, algorithm="RSA")
        keys = {
            spki_sha256(root.certificate),
            spki_sha256(root.rotated().certificate),
            spki_sha256(root.intermediate(algorithm="RSA").certificate),
            spki_sha256(root.svid(algorithm="RSA").leaf),
        }
        self.assertEqual(len(keys), 4)


class WrongTests(SynchronousTestCase):
    """Each field that is given changes what it names."""

    def test_a_rotated_root_has_the_same_names(self) -> None:
        """Only the key differs between a root and its successor."""
        root = TestAuthority(now=NOW)
        self.assertEqual(root.certificate.subject, root.rotated().certificate.subject)

    def test_another_signer(self) -> None:
        """A leaf signed by another key has the expected names and an invalid signature."""
        root = TestAuthority(now=NOW)
        leaf = root.svid(signer=generate_key("ECDSA-P256")).leaf
        self.assertEqual(leaf.issuer, root.certificate.subject)
        self.assertRaises(InvalidSignature, leaf.verify_directly_issued_by, root.certificate)

    def test_v1_has_no_extensions(self) -> None:
        """A forged v1 certificate is v1, and still properly signed."""
        root = TestAuthority(now=NOW)
        leaf = root.svid(version=1).leaf
        self.assertEqual((leaf.version, len(leaf.extensions)), (x509.Version.v1, 0))
        leaf.verify_directly_issued_by(root.certificate)

    def test_sha1_is_sha1(self) -> None:
        """A forged signature names SHA-1 inside and outside of what is signed, and is one."""
        for algorithm, oid in (("RSA", "1.2.840.113549.1.1.5"), ("ECDSA-P256", "1.2.840.10045.4.1")):
            root = TestAuthority(now=NOW, algorithm=algorithm)
            leaf = root.svid(signature="sha1").leaf
            self.assertEqual(leaf.signature_algorithm_oid.dotted_string, oid)
            self.assertEqual(leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca, False)

    def test_other_keys_cannot_be_forged_with(self) -> None:
        """There is no SHA-1 and no v1 for keys that have their own way to sign."""
        root = TestAuthority(now=NOW, algorithm="Ed25519")
        self.assertRaises(ValueError, root.svid, version=1)

    def test_knobs(self) -> None:
        """Each knob shows in the certificate."""
        root = TestAuthority(now=NOW)
        facts = CertificateFacts.read(
            root.svid(ca=True, path_length=3, key_usage=None, eku=None, uris=("a:b", b"c:d")).leaf
        )
        self.assertEqual((facts.is_ca, facts.path_length, facts.key_usage), (True, 3, None))
        self.assertEqual((facts.extended_key_usage, facts.uris), (None, ("a:b", "c:d")))
        bare = CertificateFacts.read(root.svid(subject=None, ca=None, uris=()).leaf)
        self.assertEqual((bare.subject, bare.is_ca, bare.names), ("", False, ()))


class PqLeafTests(SynchronousTestCase):
    """The leaf beside an SVID."""

    ROOT = TestAuthority(now=NOW)
    PQ = TestAuthority(now=NOW, algorithm="ML-DSA-65")

    def test_right(self) -> None:
        """It has the SVID's identity and end, is bound to it, and verifies as post-quantum."""
        svid = self.ROOT.svid("/ns/pay/sa/api", not_before=NOW - HOUR)
        chain, private_key = self.PQ.pq_leaf(svid)
        found = verify_svid(chain, self.PQ.bundles(), NOW)
        self.assertEqual((found.spiffe_id, found.not_after), (svid.spiffe_id, svid.not_after))
        self.assertEqual((found.algorithm.name, found.post_quantum), ("ML-DSA-65", True))
        self.assertEqual(found.not_before, NOW - timedelta(seconds=60))
        self.assertEqual(binding_of(chain[0]), spki_sha256(svid.leaf))
        self.assertEqual(private_key.public_key(), chain[0].public_key())

    def test_it_never_starts_before_its_svid(self) -> None:
        """The later of the two beginnings is used."""
        svid = self.ROOT.svid(not_before=NOW - timedelta(seconds=5))
        self.assertEqual(self.PQ.pq_leaf(svid)[0][0].not_valid_before_utc, svid.not_before)

    def test_wrong(self) -> None:
        """Identity, binding, algorithm and times can be changed."""
        svid = self.ROOT.svid()
        (other, *_), _key = self.PQ.pq_leaf(svid, spiffe_id="spiffe://example.org/other", binding=bytes(32))
        self.assertEqual(CertificateFacts.read(other).uris, ("spiffe://example.org/other",))
        self.assertEqual(binding_of(other), bytes(32))
        self.assertIsNone(binding_of(self.PQ.pq_leaf(svid, bound=False)[0][0]))
        (long, *_), _key = self.PQ.intermediate(algorithm="ML-DSA-65").pq_leaf(
            svid, not_after=NOW + 9 * HOUR, algorithm="ML-DSA-87"
        )
        self.assertEqual(long.not_valid_after_utc, NOW + 9 * HOUR)


class DerTests(SynchronousTestCase):
    """Writing DER."""

    def test_lengths(self) -> None:
        """Short and long lengths are written in as few octets as they need."""
        for size, header in ((0, "3000"), (127, "307f"), (128, "308180"), (256, "30820100"), (65536, "3083010000")):
            self.assertEqual(der(0x30, bytes(size))[: len(header) // 2].hex(), header)

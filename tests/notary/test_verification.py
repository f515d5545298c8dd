"""
Verification of envelopes: the order of checks, the evidence, and the effect of a changed bit.

What each single defect is called is in ``tests/vectors``; here is what the vectors cannot show.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.envelope.envelope import Envelope, sign_envelope
from svc.envelope.errors import EnvelopeError
from svc.envelope.keys import Signer
from svc.envelope.profile import Profile
from svc.identity import BundleSet, TrustDomain, X509Bundle, certificate_sha256, spki_sha256
from svc.notary.errors import SignerChainUntrusted, SignerTrustDomainUnknown
from svc.notary.verification import Anchors, EnvelopeEvidence, verify_envelope
from svc.strictjson import b64u_decode, b64u_encode, dumps
from tests.peers.waiting import rounds
from tests.refusals import assert_refused
from tests.vectors.material import DOMAIN, HOUR, MINUTE, NEIGHBOUR, NOW, WORKLOAD, Root, forge, make_key
from tests.vectors.scenario import (
    CLAIMS,
    FOREIGN,
    FOREIGN_PQ,
    KEY,
    NEIGHBOUR_SVID,
    PAYLOAD,
    PQ,
    PQ_KEY,
    ROOT,
    ROOT_PQ_SVID,
    SVID,
    A,
    B,
)

TD = TrustDomain.parse(DOMAIN)
TYP = naming.TYPE_RECEIPT


def bundles(*roots: Root) -> BundleSet:
    """The bundle of the one trust domain."""
    return BundleSet.of(X509Bundle.from_certificates(TD, [root.certificate for root in roots]))


ANCHORS = Anchors(bundles(ROOT), bundles(PQ))
SIGNED = sign_envelope(PAYLOAD, TYP, [A, B])
DATA = SIGNED.serialize()


def verify(
    envelope: Envelope | bytes = SIGNED,
    profile: Profile = Profile.HYBRID,
    anchors: Anchors = ANCHORS,
    **more: object,
) -> EnvelopeEvidence:
    """Verify as a receipt, now."""
    arguments: dict[str, object] = {"typ": TYP, "now": NOW, **more}
    return verify_envelope(envelope, profile=profile, anchors=anchors, **arguments)  # type: ignore[arg-type]


#: Every check in the order of the format, with the reason of a defect there.
ORDER = {
    "size": "too_large",
    "json": "malformed",
    "shape": "malformed",
    "typ": "wrong_type",
    "crit": "critical_unknown",
    "alg": "alg_not_allowed",
    "set": "set_mismatch",
    "profile": "alg_not_allowed",
    "x5t": "malformed",
    "version": "unsupported_version",
    "issuer": "issuer_mismatch",
    "trust domain": "trust_domain_unknown",
    "chain A": "chain_untrusted{classical}",
    "chain B": "chain_untrusted{pq}",
    "binding": "chain_binding_mismatch",
    "times": "certificate_not_valid_at_time",
    "signature": "signature_invalid{ES256}",
}


def outcome_with(defects: Collection[str]) -> str:
    """The result of verifying an envelope that has all of these defects."""
    protected: dict[str, object] = {}
    if "crit" in defects:
        protected["crit"] = ["svc-set", "exp"]
    if "alg" in defects:
        protected["alg"] = "none"
    if "x5t" in defects:
        protected["x5t#S256"] = b64u_encode(certificate_sha256(NEIGHBOUR_SVID[0]))
    other = Signer.from_chain(PQ_KEY, PQ.pq_leaf(PQ_KEY, NEIGHBOUR_SVID[0]))
    claims = {**CLAIMS, "svc": {"v": 2}} if "version" in defects else CLAIMS
    document = forge(
        [A, other if "binding" in defects else B],
        dumps({**claims, "iss": NEIGHBOUR} if "issuer" in defects else claims),
        typ="svc-statement+jws" if "typ" in defects else TYP,
        protected=protected,
        header={"jku": "x"} if "shape" in defects else {},
        algorithms=["ES256"] if "set" in defects else None,
        other_payload=b"{}" if "signature" in defects else None,
    )
    data = dumps(document) + (b"x" if "json" in defects else b"")
    chain_a = bundles(FOREIGN) if "chain A" in defects else bundles(ROOT)
    chain_b = bundles(FOREIGN_PQ) if "chain B" in defects else bundles(PQ)
    try:
        verify(
            data.ljust(256 * 1024 + 1) if "size" in defects else data,
            Profile.CNSA2 if "profile" in defects else Profile.HYBRID,
            Anchors(BundleSet(), BundleSet()) if "trust domain" in defects else Anchors(chain_a, chain_b),
            now=NOW + 2 * HOUR if "times" in defects else NOW,
        )
    except EnvelopeError as error:
        return error.detail_reason
    return "ok"


class OrderTests(SynchronousTestCase):
    """The first failure wins."""

    def test_alone(self) -> None:
        """Without a defect the envelope is accepted, and each defect alone has its reason."""
        self.assertEqual(outcome_with(()), "ok")
        self.assertEqual({defect: outcome_with((defect,)) for defect in ORDER}, ORDER)

    def test_pairs(self) -> None:
        """Of any two defects the one that comes first in the order of the format is reported."""
        for first, second in combinations(ORDER, 2):
            self.assertEqual(outcome_with((first, second)), ORDER[first], (first, second))

    def test_all(self) -> None:
        """When defects are removed one by one from the front, the next one is reported."""
        names = list(ORDER)
        for index, name in enumerate(names):
            self.assertEqual(outcome_with(names[index:]), ORDER[name], name)


class EvidenceTests(SynchronousTestCase):
    """The evidence of a verification."""

    def test_hybrid(self) -> None:
        """Both chains, the claims, and the SVID's digests."""
        evidence = verify(DATA)
        self.assertEqual((evidence.payload, evidence.claims), (PAYLOAD, CLAIMS))
        self.assertEqual((str(evidence.issuer), evidence.verified_at), (WORKLOAD, NOW))
        self.assertTrue(evidence.post_quantum)
        assert evidence.classical is not None
        assert evidence.pq is not None
        self.assertEqual(evidence.classical.chain, (SVID[0], ROOT.certificate))
        self.assertEqual(evidence.pq.chain[-1], PQ.certificate)
        self.assertEqual(evidence.leaf, SVID[0])
        self.assertEqual(evidence.leaf_spki_sha256, b64u_encode(spki_sha256(SVID[0])))
        self.assertEqual(evidence.leaf_thumbprint, A.thumbprint)
        self.assertEqual(evidence.not_after, NOW + HOUR)

    def test_classical(self) -> None:
        """A chain that the profile ignores is no evidence."""
        evidence = verify(profile=Profile.CLASSICAL)
        self.assertEqual((evidence.pq, evidence.post_quantum), (None, False))
        self.assertIsNotNone(evidence.classical)

    def test_pq(self) -> None:
        """Under pq chain A gives the digests that chain B vouches for, but no evidence of its own."""
        evidence = verify(profile=Profile.PQ, anchors=Anchors(BundleSet(), ANCHORS.pq))
        self.assertIsNone(evidence.classical)
        self.assertTrue(evidence.post_quantum)
        self.assertEqual(evidence.leaf_thumbprint, A.thumbprint)
        self.assertEqual(evidence.leaf_spki_sha256, b64u_encode(spki_sha256(SVID[0])))

    def test_pq_leaf_alone(self) -> None:
        """A lone chain B leaf still names the SVID key it is bound to."""
        evidence = verify(sign_envelope(PAYLOAD, TYP, [B]), Profile.PQ)
        self.assertEqual(evidence.leaf_spki_sha256, b64u_encode(spki_sha256(SVID[0])))
        self.assertEqual(evidence.leaf_thumbprint, B.thumbprint)

    def test_ml_dsa_svid(self) -> None:
        """An ML-DSA SVID is its own leaf, under the SPIFFE bundle."""
        key = make_key("ML-DSA-65", "svid")
        signer = Signer.from_chain(key, ROOT_PQ_SVID.leaf(key))
        anchors = Anchors(bundles(ROOT_PQ_SVID), BundleSet())
        evidence = verify(sign_envelope(PAYLOAD, TYP, [signer]), Profile.PQ, anchors)
        self.assertTrue(evidence.post_quantum)
        self.assertEqual(evidence.leaf_spki_sha256, b64u_encode(spki_sha256(signer.chain[0])))

    def test_ml_dsa_svid_of_classical_root(self) -> None:
        """An ML-DSA SVID under a classical root is not post-quantum."""
        key = make_key("ML-DSA-65", "svid")
        signer = Signer.from_chain(key, ROOT.leaf(key))
        error = self.assertRaises(SignerChainUntrusted, verify, sign_envelope(PAYLOAD, TYP, [signer]), Profile.PQ)
        self.assertEqual(error.detail_reason, "chain_untrusted{pq}")

    def test_earliest_end(self) -> None:
        """The evidence ends with the first of its leaves."""
        short = Signer.from_chain(PQ_KEY, PQ.pq_leaf(PQ_KEY, SVID[0], not_after=NOW + MINUTE))
        self.assertEqual(verify(sign_envelope(PAYLOAD, TYP, [A, short])).not_after, NOW + MINUTE)


class TrustTests(SynchronousTestCase):
    """Envelopes that must never be accepted."""

    def test_typ(self) -> None:
        """A receipt is not accepted where a statement is expected, though everything else holds."""
        for typ in (naming.TYPE_STATEMENT, naming.TYPE_PQ_PROOF, naming.TYPE_BOOTSTRAP, ""):
            self.assertEqual(self.assertRaises(EnvelopeError, verify, typ=typ).reason, "wrong_type")

    def test_signature_taken_from_another(self) -> None:
        """Signatures of two artifacts of the same workload cannot be combined."""
        other = sign_envelope(PAYLOAD + b" ", TYP, [A, B])
        mixed = replace(SIGNED, signatures=(SIGNED.signatures[0], other.signatures[1]))
        error: Any = assert_refused(self, "signature_invalid", verify, mixed)
        self.assertEqual(error.detail_reason, "signature_invalid{ML-DSA-65}")

    def test_stripped(self) -> None:
        """Under no profile is an envelope accepted that has lost a signature."""
        for profile in Profile:
            for entry in SIGNED.signatures:
                assert_refused(self, "set_mismatch", verify, replace(SIGNED, signatures=(entry,)), profile)

    def test_another_workload_on_one_side(self) -> None:
        """Another workload's leaf on either side is refused, also where the profile leaves chain A unchecked."""
        key = make_key("ES256", "neighbour")
        chain = ROOT.leaf(key, NEIGHBOUR)
        bound = Signer.from_chain(PQ_KEY, PQ.pq_leaf(PQ_KEY, chain[0]))
        envelope = sign_envelope(PAYLOAD, TYP, [Signer.from_chain(key, chain), bound])
        for profile in (Profile.HYBRID, Profile.PQ, Profile.CLASSICAL):
            assert_refused(self, "issuer_mismatch", verify, envelope, profile)

    def test_no_downgrade(self) -> None:
        """Without a post-quantum bundle hybrid and pq refuse; only a local choice of classical accepts."""
        anchors = Anchors(ANCHORS.spiffe, BundleSet())
        for profile in (Profile.HYBRID, Profile.PQ):
            self.assertRaises(SignerTrustDomainUnknown, verify, SIGNED, profile, anchors)
        self.assertFalse(verify(SIGNED, Profile.CLASSICAL, anchors).post_quantum)

    def test_roots_not_exchanged(self) -> None:
        """A SPIFFE root does not vouch for chain B, nor a post-quantum root for chain A."""
        self.assertRaises(SignerChainUntrusted, verify, SIGNED, Profile.HYBRID, Anchors(ANCHORS.pq, ANCHORS.spiffe))

    def test_leaf_times(self) -> None:
        """Both ends of the validity count, a second beyond does not, and the reason names the chain."""
        for moment in (NOW - MINUTE, NOW + HOUR):
            self.assertEqual(verify(now=moment).verified_at, moment)
        for moment in (NOW - MINUTE - timedelta(seconds=1), NOW + HOUR + timedelta(seconds=1)):
            error = assert_refused(self, "certificate_not_valid_at_time", verify, now=moment)
            self.assertIn("classical", str(error))

    def test_root_outside_its_time(self) -> None:
        """A root that is not valid at the time vouches for nothing."""
        old = Root("old-root", not_before=NOW - 30 * HOUR, not_after=NOW - HOUR)
        signer = Signer.from_chain(KEY, old.leaf(KEY))
        envelope = sign_envelope(PAYLOAD, TYP, [signer])
        anchors = Anchors(bundles(old), BundleSet())
        assert_refused(self, "certificate_not_valid_at_time", verify, envelope, Profile.CLASSICAL, anchors)


class FlipTests(SynchronousTestCase):
    """A changed bit."""

    def unharmed(self, data: bytes) -> None:
        """Expect a refusal, or the same meaning."""
        try:
            evidence = verify(data)
        except EnvelopeError:
            return
        self.assertEqual((evidence.payload, evidence.issuer, evidence.leaf), (PAYLOAD, verify().issuer, SVID[0]))

    @settings(max_examples=rounds(100, 3000), deadline=None)
    @given(st.integers(0, len(DATA) * 8 - 1))
    def test_document(self, bit: int) -> None:
        """One bit anywhere in the document is refused, or changes nothing that was signed."""
        data = bytearray(DATA)
        data[bit // 8] ^= 1 << bit % 8
        self.unharmed(bytes(data))

    @settings(max_examples=100, deadline=None)
    @given(st.sampled_from(["payload", "protected", "signature"]), st.integers(0, 1), st.integers(0, 10**6))
    def test_signed_octets(self, member: str, index: int, position: int) -> None:
        """One bit of payload, protected header or signature is always refused."""
        document = SIGNED.to_object()
        signatures = document["signatures"]
        assert isinstance(signatures, list)
        holder = document if member == "payload" else signatures[index]
        octets = bytearray(b64u_decode(holder[member]))
        octets[position % len(octets)] ^= 1 << position % 8
        holder[member] = b64u_encode(bytes(octets))
        self.assertRaises(EnvelopeError, verify, dumps(document))

    @settings(max_examples=100, deadline=None)
    @given(st.integers(0, 1), st.integers(0, 10**6))
    def test_leaf(self, index: int, position: int) -> None:
        """One bit of a leaf certificate is always refused: its digest is signed."""
        document = SIGNED.to_object()
        signatures = document["signatures"]
        assert isinstance(signatures, list)
        x5c = signatures[index]["header"]["x5c"]
        text = bytearray(x5c[0].encode("ascii"))
        text[position % len(text)] ^= 1 << position % 7
        x5c[0] = text.decode("latin-1")
        self.assertRaises(EnvelopeError, verify, dumps(document))

"""Proofs of possession and the post-quantum leaf of a workload."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import mldsa
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.envelope.envelope import Envelope, sign_envelope
from svc.envelope.errors import EnvelopeError, Malformed
from svc.envelope.keys import Signer
from svc.identity import SpiffeID, SvidEvidence, X509Svid, verify_svid
from svc.notary.pqleaf import PROOF_LEEWAY, PqLeaf, check_proof, claimed_challenge, make_proof
from svc.strictjson import b64u_encode, dumps
from svc.testing.ca import TestAuthority
from tests.refusals import assert_refused
from tests.vectors.material import forge

NOW = datetime(2026, 11, 21, 0, 25, 32, tzinfo=UTC)
AUTHORITY = TestAuthority("example.org", now=NOW)
PQ_AUTHORITY = TestAuthority("example.org", now=NOW, algorithm="ML-DSA-65")
SVID = AUTHORITY.svid()
KEY = mldsa.MLDSA65PrivateKey.from_seed_bytes(bytes(32))
ISSUER = SpiffeID.parse("spiffe://example.org/svc/authority")
CHALLENGE = b64u_encode(bytes(range(32)))


def evidence(svid: X509Svid = SVID) -> SvidEvidence:
    """What the issuer found when it verified the SVID."""
    return verify_svid(svid.chain, AUTHORITY.bundles(), NOW)


def check(data: Envelope | bytes, **changes: Any) -> Any:
    """Check a proof as its issuer."""
    arguments = {"challenge": CHALLENGE, "audience": ISSUER, "svid": evidence(), "now": NOW, **changes}
    return check_proof(data, **arguments)


class ProofTests(SynchronousTestCase):
    """What :func:`make_proof` makes and :func:`check_proof` accepts."""

    def test_accepted(self) -> None:
        """A valid proof yields the public key that it was made for, for each kind of keys."""
        for algorithm in ("ECDSA-P256", "ECDSA-P384", "Ed25519", "RSA"):
            svid = AUTHORITY.svid(algorithm=algorithm)
            for key in (KEY, mldsa.MLDSA87PrivateKey.from_seed_bytes(bytes(32))):
                proof = make_proof(svid, key, ISSUER, CHALLENGE, NOW)
                self.assertEqual(check(proof, svid=evidence(svid)), key.public_key())

    def test_members(self) -> None:
        """The payload has the members of the format, and only the SVID's signature has certificates."""
        envelope = Envelope.parse(make_proof(SVID, KEY, ISSUER, CHALLENGE, NOW))
        self.assertEqual(
            json.loads(envelope.payload),
            {
                "iss": "spiffe://example.org/workload",
                "aud": "spiffe://example.org/svc/authority",
                "iat": int(NOW.timestamp()),
                "challenge": CHALLENGE,
                "pub": b64u_encode(KEY.public_key().public_bytes_raw()),
            },
        )
        self.assertEqual([bool(entry.x5c) for entry in envelope.signatures], [True, False])
        self.assertEqual({header.typ for header in envelope.headers}, {naming.TYPE_PQ_PROOF})
        self.assertEqual(claimed_challenge(envelope), CHALLENGE)

    def test_ml_dsa_svid(self) -> None:
        """An ML-DSA SVID signs alone and can ask for no leaf."""
        svid = AUTHORITY.svid(algorithm="ML-DSA-65")
        assert_refused(self, "signers_unsuitable", make_proof, svid, KEY, ISSUER, CHALLENGE, NOW)

    def test_expectations(self) -> None:
        """Another issuer, another challenge and another certificate of the same workload are refused by name."""
        proof = make_proof(SVID, KEY, ISSUER, CHALLENGE, NOW)
        other = SpiffeID.parse("spiffe://example.org/svc/other")
        for changes, member in (
            ({"audience": other}, "aud"),
            ({"challenge": b64u_encode(bytes(32))}, "challenge"),
            ({"challenge": "é"}, "challenge"),
            ({"svid": evidence(AUTHORITY.svid())}, "x5c"),
        ):
            error: Any = assert_refused(self, "proof_mismatch", check, proof, **changes)
            self.assertEqual(error.detail_reason, f"proof_mismatch{{{member}}}")

    def test_clock(self) -> None:
        """A minute between the clocks is accepted either way, a second more is not."""
        second = timedelta(seconds=1)
        for offset in (PROOF_LEEWAY, -PROOF_LEEWAY):
            check(make_proof(SVID, KEY, ISSUER, CHALLENGE, NOW + offset))
        for offset in (PROOF_LEEWAY + second, -PROOF_LEEWAY - second):
            assert_refused(self, "time_skew", check, make_proof(SVID, KEY, ISSUER, CHALLENGE, NOW + offset))

    def test_name_of_another(self) -> None:
        """The payload cannot claim another identity than that of the certificate."""
        claims = json.loads(Envelope.parse(make_proof(SVID, KEY, ISSUER, CHALLENGE, NOW)).payload)
        payload = dumps({**claims, "iss": "spiffe://example.org/other"})
        signers = (Signer.from_svid(SVID), Signer.from_raw_key(KEY))
        forged = sign_envelope(payload, naming.TYPE_PQ_PROOF, signers)
        assert_refused(self, "issuer_mismatch", check, forged)

    def test_no_kid(self) -> None:
        """The new key must be named by its thumbprint."""
        payload = Envelope.parse(make_proof(SVID, KEY, ISSUER, CHALLENGE, NOW)).payload
        signers = (Signer.from_svid(SVID), Signer.from_raw_key(KEY))
        nameless = dumps(forge(signers, payload, typ=naming.TYPE_PQ_PROOF, without=["kid"]))
        self.assertIn("kid is missing", str(self.assertRaises(Malformed, check, nameless)))

    def test_no_challenge(self) -> None:
        """A proof without a challenge is malformed."""
        signers = (Signer.from_svid(SVID), Signer.from_raw_key(KEY))
        for payload in (b"{}", b'{"challenge":1}', b"[]"):
            forged = sign_envelope(payload, naming.TYPE_PQ_PROOF, signers)
            self.assertRaises(Malformed, claimed_challenge, forged)

    @given(st.dictionaries(st.sampled_from(["iss", "aud", "iat", "challenge", "pub"]), st.integers() | st.text()))
    def test_any_claims(self, changes: dict[str, object]) -> None:
        """Any change of the claims is refused with a typed error, signed or not."""
        envelope = Envelope.parse(make_proof(SVID, KEY, ISSUER, CHALLENGE, NOW))
        claims = json.loads(envelope.payload)
        if {**claims, **changes} == claims:
            return
        try:
            payload = dumps({**claims, **changes})
        except UnicodeEncodeError:
            return
        self.assertRaises(EnvelopeError, check, Envelope(payload, envelope.signatures))


class PqLeafTests(SynchronousTestCase):
    """The leaf in the response."""

    def test_accept(self) -> None:
        """The leaf for this key and this SVID is taken, and signs."""
        chain, key = PQ_AUTHORITY.pq_leaf(SVID)
        leaf = PqLeaf.accept(chain, key, SVID)  # type: ignore[arg-type]
        self.assertEqual((leaf.leaf, leaf.not_after), (chain[0], SVID.not_after))
        self.assertEqual(leaf.signer().alg, "ML-DSA-65")
        self.assertNotIn("private_key", repr(leaf))

    def test_other_key(self) -> None:
        """A leaf for another key is refused."""
        chain, _ = PQ_AUTHORITY.pq_leaf(SVID)
        assert_refused(self, "signers_unsuitable", PqLeaf.accept, chain, KEY, SVID)

    def test_other_name(self) -> None:
        """A leaf that names another workload is refused."""
        chain, key = PQ_AUTHORITY.pq_leaf(SVID, spiffe_id="spiffe://example.org/other")
        assert_refused(self, "issuer_mismatch", PqLeaf.accept, chain, key, SVID)

    def test_other_binding(self) -> None:
        """A leaf that is bound to another SVID, or to none, is refused."""
        for fields in ({"binding": bytes(32)}, {"bound": False}):
            chain, key = PQ_AUTHORITY.pq_leaf(SVID, **fields)
            assert_refused(self, "chain_binding_mismatch", PqLeaf.accept, chain, key, SVID)

    def test_malformed_binding(self) -> None:
        """A leaf whose binding cannot be read is refused."""
        bent = x509.UnrecognizedExtension(x509.ObjectIdentifier(naming.OID_SVID_BINDING), bytes(32))
        chain, key = PQ_AUTHORITY.pq_leaf(SVID, bound=False, extensions=((bent, False),))
        assert_refused(self, "chain_binding_mismatch", PqLeaf.accept, chain, key, SVID)

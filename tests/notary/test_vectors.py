"""The vectors of the signature envelope: each file gives the result of its ``expect`` line."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cryptography import x509
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.errors import EnvelopeError
from svc.envelope.profile import Profile
from svc.identity import SpiffeID, verify_svid
from svc.notary.pqleaf import check_proof
from svc.notary.verification import verify_envelope
from svc.testing.vectors import Vector, load_vectors, vector_anchors

FOLDER: Final = Path(__file__).parent.parent / "vectors"
HEADERS: Final = frozenset(
    {"kind", "type", "profile", "now", "spiffe", "pq", "pad-to", "audience", "challenge"},
)
KINDS: Final = frozenset({"envelope", "svid"})

#: Every reason of the envelope format.
REASONS: Final = frozenset(
    {
        "malformed",
        "unsupported_version",
        "wrong_type",
        "alg_not_allowed",
        "critical_unknown",
        "set_mismatch",
        "hybrid_incomplete",
        "signature_invalid{ES256}",
        "signature_invalid{ML-DSA-65}",
        "issuer_mismatch",
        "chain_untrusted{classical}",
        "chain_untrusted{pq}",
        "chain_binding_mismatch",
        "certificate_not_valid_at_time",
        "trust_domain_unknown",
        "too_large",
    }
)
#: The vectors that the format itself names.
NAMED: Final = frozenset(
    {
        *(
            f"jws/{name}"
            for name in (
                "two-defects",
                "spare-bits",
                "flattened",
                "number-1.0",
                "duplicate-member",
                "crit-extra",
                "set-order",
            )
        ),
        *(f"profile/{profile}-{svid}" for profile in ("hybrid", "pq", "classical") for svid in ("ecdsa", "mldsa-svid")),
        "pq/proof-other-pub",
        "pq/iat-before-leaf",
        "pq/binding-other-svid",
    }
)


def outcome(vector: Vector) -> str:
    """``ok``, or the reason with its parameter."""
    envelope = vector.section("envelope")
    if "pad-to" in vector.headers:
        envelope = envelope.ljust(int(vector.headers["pad-to"]))
    anchors = vector_anchors(vector, FOLDER / "anchors")
    try:
        if vector.headers.get("kind") == "pq-proof":
            chain = x509.load_pem_x509_certificates(vector.section("svid"))
            check_proof(
                envelope,
                challenge=vector.headers["challenge"],
                audience=SpiffeID.parse(vector.headers["audience"]),
                svid=verify_svid(chain, anchors.spiffe, vector.moment()),
                now=vector.moment(),
            )
        else:
            verify_envelope(
                envelope,
                typ=vector.headers["type"],
                profile=Profile.parse(vector.headers["profile"]),
                anchors=anchors,
                now=vector.moment(),
            )
    except EnvelopeError as error:
        return error.detail_reason
    return "ok"


class EnvelopeVectorTests(SynchronousTestCase):
    """The files below ``tests/vectors``."""

    def load(self, group: str) -> list[Vector]:
        """The vectors of one group."""
        return load_vectors(FOLDER / group, headers=HEADERS, kinds=KINDS)

    def check(self, group: str) -> None:
        """Compare every vector of a group with what it expects."""
        wrong = [
            f"{vector.name}: expected {vector.expect}, got {found}"
            for vector in self.load(group)
            if (found := outcome(vector)) != vector.expect
        ]
        self.assertEqual(wrong, [])

    def test_jws(self) -> None:
        """Size, JSON, shape, headers, set, certificates, payload, issuer, chains and signatures."""
        self.check("jws")

    def test_profile(self) -> None:
        """Every profile with every kind of SVID."""
        self.check("profile")

    def test_pq(self) -> None:
        """Binding of the post-quantum leaf, and proofs of possession."""
        self.check("pq")

    def test_complete(self) -> None:
        """Each reason of the format has a vector, and so has each case that the format names."""
        vectors = [vector for group in ("jws", "profile", "pq") for vector in self.load(group)]
        self.assertEqual(REASONS - {vector.expect for vector in vectors}, frozenset())
        self.assertEqual(NAMED - {vector.name for vector in vectors}, frozenset())
        self.assertTrue(all(vector.comment for vector in vectors))

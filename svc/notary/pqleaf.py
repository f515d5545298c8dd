"""
The post-quantum leaf of a workload: the proof of possession that requests it, request and response, and the leaf
itself.

Owns the payload of type ``svc-pq-proof+jws``, in which the SVID key and the new ML-DSA key both sign the requester, the
issuer, the time, the challenge and the public key; and the JSON of ``POST /v1/pq-leaf``.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from svc import naming
from svc.envelope.claims import Claims
from svc.envelope.envelope import MAX_ENVELOPE, Envelope, SignatureEntry, check_headers, check_set, sign_envelope
from svc.envelope.errors import EnvelopeError, Malformed
from svc.envelope.keys import (
    MlDsaPrivateKey,
    MlDsaPublicKey,
    Signer,
    jwk_thumbprint,
    ml_dsa_public_key,
    verify_signature,
)
from svc.envelope.profile import POST_QUANTUM_ALGORITHMS, check_chain_b_algorithm
from svc.envelope.x5c import decode_x5c, encode_x5c, texts_of_x5c
from svc.identity.algorithms import spki_sha256
from svc.identity.binding import binding_of
from svc.identity.errors import SvidInvalid
from svc.identity.spiffeid import SpiffeID
from svc.identity.svid import X509Svid
from svc.identity.verification import SvidEvidence
from svc.notary.errors import NotaryRefused
from svc.notary.verification import check_issuer, read_certificates, read_payload
from svc.strictjson import Base64Refused, JsonRefused, b64u_decode, b64u_encode, dumps, loads_object

#: How far the clocks of workload and issuer may be apart.
PROOF_LEEWAY: Final = timedelta(seconds=60)


@dataclass(frozen=True)
class PqLeaf:
    """A post-quantum leaf, its intermediates without a root, and its ML-DSA key: what signs chain B."""

    chain: tuple[x509.Certificate, ...]
    private_key: MlDsaPrivateKey = field(repr=False, compare=False)
    not_after: datetime

    @classmethod
    def accept(cls, chain: Sequence[x509.Certificate], private_key: MlDsaPrivateKey, svid: X509Svid) -> PqLeaf:
        """
        Accept the chain that an issuer returned, if it is the one that was requested; :func:`svc.identity.verify_svid`
        verifies it.

        Args:
            chain: the certificates of the response.
            private_key: the key whose public half was sent.
            svid: the SVID that the leaf must belong to.

        Raises:
            EnvelopeError: where it is for another key, names another workload or is bound to another SVID.
        """
        signer = Signer.from_chain(private_key, chain)
        check_issuer(signer.alg, chain[0], svid.spiffe_id)
        try:
            bound_to = binding_of(chain[0])
        except SvidInvalid as error:
            raise NotaryRefused("chain_binding_mismatch", issuer=svid.spiffe_id, detail=str(error)) from error
        if bound_to != spki_sha256(svid.leaf):
            raise NotaryRefused(
                "chain_binding_mismatch", issuer=svid.spiffe_id, detail="it does not name the key of this SVID"
            )
        return cls(tuple(chain), private_key, chain[0].not_valid_after_utc)

    @property
    def leaf(self) -> x509.Certificate:
        """The certificate of the ML-DSA key."""
        return self.chain[0]

    def signer(self) -> Signer:
        """Return the signer of chain B."""
        return Signer.from_chain(self.private_key, self.chain)


def make_proof(
    svid: X509Svid, pq_private_key: MlDsaPrivateKey, audience: SpiffeID, challenge: str, now: datetime
) -> bytes:
    """
    Prove to an issuer that one workload holds the key of its SVID and a new ML-DSA key; returns the envelope's octets.

    Args:
        svid: a classical SVID; an ML-DSA SVID signs alone and needs no leaf.
        pq_private_key: the new key, ML-DSA-65 or ML-DSA-87.
        audience: the issuer's SPIFFE ID.
        challenge: the issuer's challenge, base64url.
        now: the time, aware.

    Raises:
        EnvelopeError: for an ML-DSA SVID.
    """
    claims = {
        "iss": str(svid.spiffe_id),
        "aud": str(audience),
        "iat": int(now.timestamp()),
        "challenge": challenge,
        "pub": b64u_encode(pq_private_key.public_key().public_bytes_raw()),
    }
    signers = (Signer.from_svid(svid), Signer.from_raw_key(pq_private_key))
    return sign_envelope(dumps(claims), naming.TYPE_PQ_PROOF, signers).serialize()


def claimed_challenge(proof: Envelope) -> str:
    """Read the challenge of a proof that is not verified yet."""
    return read_payload(proof.payload, naming.TYPE_PQ_PROOF).text("challenge")


def check_proof(
    data: Envelope | bytes,
    *,
    challenge: str,
    audience: SpiffeID,
    svid: SvidEvidence,
    now: datetime,
) -> MlDsaPublicKey:
    """
    Check a proof, in the order of the envelope and then of the claims.

    Args:
        data: the envelope, or its octets.
        challenge: the challenge that was consumed for it.
        audience: the issuer's own SPIFFE ID.
        svid: the verified SVID of the workload.
        now: the time, aware.

    Returns:
        The ML-DSA public key that the workload holds.

    Raises:
        EnvelopeError: with the reason of the first failed check.
    """
    proof = data if isinstance(data, Envelope) else Envelope.parse(data)
    check_headers(proof.headers, naming.TYPE_PQ_PROOF)
    check_set(proof.headers)
    classical, post_quantum = _both_signatures(proof)
    check_chain_b_algorithm(post_quantum[0].alg)
    chain = read_certificates(*classical)
    _check_raw_key(*post_quantum)
    claims = read_payload(proof.payload, naming.TYPE_PQ_PROOF)
    issuer = claims.spiffe_id("iss")
    check_issuer(classical[0].alg, chain[0], issuer)
    if chain[0] != svid.leaf:
        raise NotaryRefused("proof_mismatch", member="x5c")
    public_key = _public_key(claims, post_quantum[0])
    verify_signature(
        classical[0].alg, svid.leaf.public_key(), proof.signing_input(classical[0]), classical[0].signature
    )
    verify_signature(post_quantum[0].alg, public_key, proof.signing_input(post_quantum[0]), post_quantum[0].signature)
    _check_claims(claims, challenge, audience, now)
    return public_key


def _both_signatures(proof: Envelope) -> tuple[tuple[SignatureEntry, str], tuple[SignatureEntry, str]]:
    """The signature of the SVID key and that of the new key, each with its position."""
    found = {
        entry.alg in POST_QUANTUM_ALGORITHMS: (entry, f"signatures[{index}]")
        for index, entry in enumerate(proof.signatures)
    }
    if len(found) != 2:
        missing = "a classical signature" if True in found else "an ML-DSA signature"
        raise EnvelopeError("hybrid_incomplete", profile="of a proof of possession", missing=missing)
    return found[False], found[True]


def _check_raw_key(entry: SignatureEntry, where: str) -> None:
    if entry.x5c or entry.protected.thumbprint is not None:
        raise Malformed(where=where, defect="certificates are forbidden beside the new key")
    if entry.protected.kid is None:
        raise Malformed(where=where, defect="the member kid is missing")


def _public_key(claims: Claims, entry: SignatureEntry) -> MlDsaPublicKey:
    try:
        public_key = ml_dsa_public_key(entry.alg, b64u_decode(claims.text("pub")))
    except (Base64Refused, ValueError) as error:
        raise Malformed(where="payload.pub", defect=f"no public key of {entry.alg}") from error
    if jwk_thumbprint(public_key) != entry.protected.kid:
        raise Malformed(where="payload.pub", defect="kid is not the thumbprint of this key")
    return public_key


def _check_claims(claims: Claims, challenge: str, audience: SpiffeID, now: datetime) -> None:
    if claims.spiffe_id("aud") != audience:
        raise NotaryRefused("proof_mismatch", member="aud")
    issued = claims.time("iat")
    if abs(now - issued) > PROOF_LEEWAY:
        raise NotaryRefused("time_skew", moment=issued, seconds=int(PROOF_LEEWAY.total_seconds()))
    if not hmac.compare_digest(claims.text("challenge").encode("utf-8"), challenge.encode("utf-8")):
        raise NotaryRefused("proof_mismatch", member="challenge")


@dataclass(frozen=True)
class PqLeafRequest:
    """The body of ``POST /v1/pq-leaf``: the SVID chain of the workload and its proof of possession, not checked."""

    chain: tuple[x509.Certificate, ...]
    proof: Envelope

    @classmethod
    def parse(cls, data: bytes, *, max_bytes: int = MAX_ENVELOPE) -> PqLeafRequest:
        """
        Read a request.

        Raises:
            EnvelopeError: for more than ``max_bytes`` octets.
            Malformed: for anything but the two members.
        """
        members = _members(data, max_bytes)
        chain = decode_x5c(texts_of_x5c(members.get("x5c"), "x5c"), "x5c")
        proof = members.get("proof")
        if not isinstance(proof, dict):
            raise Malformed(where="proof", defect="not an object")
        return cls(chain, Envelope.from_object(proof))

    def serialize(self) -> bytes:
        return dumps({"x5c": list(encode_x5c(self.chain)), "proof": self.proof.to_object()})


@dataclass(frozen=True)
class PqLeafResponse:
    """The response to ``POST /v1/pq-leaf``: the leaf and its intermediates, without a root."""

    chain: tuple[x509.Certificate, ...]

    @classmethod
    def parse(cls, data: bytes, *, max_bytes: int = MAX_ENVELOPE) -> PqLeafResponse:
        """
        Read a response.

        Raises:
            EnvelopeError: for more than ``max_bytes`` octets.
            Malformed: for anything but a chain.
        """
        return cls(decode_x5c(texts_of_x5c(_members(data, max_bytes).get("x5c"), "x5c"), "x5c"))

    def serialize(self) -> bytes:
        return dumps({"x5c": list(encode_x5c(self.chain))})


def _members(data: bytes, max_bytes: int) -> dict[str, object]:
    if len(data) > max_bytes:
        raise EnvelopeError("too_large", size=len(data), limit=max_bytes)
    try:
        return loads_object(data, max_bytes=max_bytes)
    except JsonRefused as error:
        raise Malformed(where="the document", defect=error.defect) from error

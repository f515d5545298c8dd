"""
The proof of possession with which a workload asks for a post-quantum leaf, and the leaf it gets.

Owns the payload of type ``svc-pq-proof+jws``: the SVID key and the new ML-DSA key both sign who asks whom, when, in
answer to which challenge, for which public key. Knows nothing of how request and answer travel, nor of issuing.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from svc import naming
from svc.identity.algorithms import spki_sha256
from svc.identity.binding import binding_of
from svc.identity.errors import SvidInvalid
from svc.identity.spiffeid import SpiffeID
from svc.identity.svid import X509Svid
from svc.identity.verification import SvidEvidence
from svc.notary.claims import Claims
from svc.notary.envelope import Envelope, SignatureEntry, sign_envelope
from svc.notary.errors import (
    ChainBindingMismatch,
    HybridIncomplete,
    Malformed,
    ProofMismatch,
    ProofStale,
)
from svc.notary.headers import check_headers, check_set
from svc.notary.keys import MlDsaPrivateKey, MlDsaPublicKey, Signer, jwk_thumbprint, ml_dsa_public_key, verify_raw
from svc.notary.profile import POST_QUANTUM_ALGORITHMS, check_chain_b_algorithm
from svc.notary.verification import check_issuer, read_certificates, read_payload
from svc.strictjson import Base64Refused, b64u_decode, b64u_encode, dumps

#: How far the clocks of workload and issuer may be apart.
PROOF_LEEWAY: Final = timedelta(seconds=60)


@dataclass(frozen=True)
class PqLeaf:
    """
    A post-quantum leaf with its private key: what signs chain B.

    Attributes:
        chain: the leaf and its intermediates, without a root.
        private_key: the ML-DSA key of the leaf.
        not_after: until when the leaf is valid.
    """

    chain: tuple[x509.Certificate, ...]
    private_key: MlDsaPrivateKey = field(repr=False, compare=False)
    not_after: datetime

    @classmethod
    def accept(cls, chain: Sequence[x509.Certificate], private_key: MlDsaPrivateKey, svid: X509Svid) -> PqLeaf:
        """
        Take the leaf that an issuer answered with, if it is the one that was asked for.

        Args:
            chain: the certificates of the answer.
            private_key: the key whose public half was sent.
            svid: the SVID that the leaf must stand beside.

        Returns:
            The leaf; whether its issuer is trusted is for :func:`svc.identity.verify_svid` to say.

        Raises:
            SignersUnsuitable: where it is for another key.
            IssuerMismatch: where it names another workload.
            ChainBindingMismatch: where it is bound to another SVID.
        """
        signer = Signer.from_chain(private_key, chain)
        check_issuer(signer.alg, chain[0], svid.spiffe_id)
        try:
            bound_to = binding_of(chain[0])
        except SvidInvalid as error:
            raise ChainBindingMismatch(issuer=svid.spiffe_id, detail=str(error)) from error
        if bound_to != spki_sha256(svid.leaf):
            raise ChainBindingMismatch(issuer=svid.spiffe_id, detail="it does not name the key of this SVID")
        return cls(tuple(chain), private_key, chain[0].not_valid_after_utc)

    @property
    def leaf(self) -> x509.Certificate:
        """The certificate of the ML-DSA key."""
        return self.chain[0]

    def signer(self) -> Signer:
        """
        Sign with the leaf.

        Returns:
            The signer of chain B.
        """
        return Signer.from_chain(self.private_key, self.chain)


def make_proof(
    svid: X509Svid, pq_private_key: MlDsaPrivateKey, audience: SpiffeID, challenge: str, now: datetime
) -> bytes:
    """
    Prove to an issuer that one workload holds the key of its SVID and a new ML-DSA key.

    Args:
        svid: a classical SVID; an ML-DSA SVID signs alone and needs no leaf.
        pq_private_key: the new key, ML-DSA-65 or ML-DSA-87.
        audience: the issuer's SPIFFE ID.
        challenge: what the issuer gave, base64url.
        now: the time, aware.

    Returns:
        The envelope's octets.

    Raises:
        SignersUnsuitable: for an ML-DSA SVID.
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
    """
    Look at the challenge of a proof that is not checked yet, so that the issuer can take it out of its list.

    Args:
        proof: the envelope.

    Returns:
        The text of the claim.

    Raises:
        Malformed: where the payload has none.
    """
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
        challenge: the challenge that the issuer has just taken out of its list.
        audience: the issuer's own SPIFFE ID.
        svid: the verified SVID of the workload that asks.
        now: the time, aware.

    Returns:
        The ML-DSA public key that the workload holds.

    Raises:
        NotaryError: the subclass that names the first failed check.
    """
    proof = data if isinstance(data, Envelope) else Envelope.parse(data)
    check_headers(proof.headers, naming.TYPE_PQ_PROOF)
    check_set(proof.headers)
    classical, post_quantum = _both(proof)
    check_chain_b_algorithm(post_quantum[0].alg)
    chain = read_certificates(*classical)
    _check_raw(*post_quantum)
    claims = read_payload(proof.payload, naming.TYPE_PQ_PROOF)
    issuer = claims.spiffe_id("iss")
    check_issuer(classical[0].alg, chain[0], issuer)
    if chain[0] != svid.leaf:
        raise ProofMismatch(member="x5c")
    public_key = _public_key(claims, post_quantum[0])
    verify_raw(classical[0].alg, svid.leaf.public_key(), proof.signing_input(classical[0]), classical[0].signature)
    verify_raw(post_quantum[0].alg, public_key, proof.signing_input(post_quantum[0]), post_quantum[0].signature)
    _check_claims(claims, challenge, audience, now)
    return public_key


def _both(proof: Envelope) -> tuple[tuple[SignatureEntry, str], tuple[SignatureEntry, str]]:
    """The signature of the SVID key and that of the new key, each with its place."""
    found = {
        entry.alg in POST_QUANTUM_ALGORITHMS: (entry, f"signatures[{index}]")
        for index, entry in enumerate(proof.signatures)
    }
    if len(found) != 2:
        missing = "a classical signature" if True in found else "an ML-DSA signature"
        raise HybridIncomplete(profile="of a proof of possession", missing=missing)
    return found[False], found[True]


def _check_raw(entry: SignatureEntry, where: str) -> None:
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
        raise ProofMismatch(member="aud")
    made = claims.time("iat")
    if abs(now - made) > PROOF_LEEWAY:
        raise ProofStale(moment=made, seconds=int(PROOF_LEEWAY.total_seconds()))
    if not hmac.compare_digest(claims.text("challenge").encode("utf-8"), challenge.encode("utf-8")):
        raise ProofMismatch(member="challenge")

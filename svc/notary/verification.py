"""
Whether a signed envelope is to be believed: the one verifier of proxy and command line.

Owns the order of checks of the format, in which the first failure wins: size, JSON, shape, each protected header, set,
profile, certificates, payload and version, issuer, trust domain, chain A, chain B, binding, leaf times, signatures.
Knows no clock (the time is an argument) and no kind of artefact beyond its type and version; what a statement or a
receipt claims is judged by its own module, on the evidence given here.

Chain A is the X.509-SVID under the SPIFFE bundle of its own trust domain, chain B an ML-DSA leaf with the same SPIFFE
ID under the post-quantum bundle, bound to the key of chain A. An ML-DSA *SVID* signs alone and stands under the SPIFFE
bundle; it is told from a lone chain B leaf by the binding extension, which only the latter has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cryptography import x509

from svc import naming
from svc.identity.algorithms import certificate_key_algorithm, certificate_sha256
from svc.identity.bundle import BundleSet
from svc.identity.errors import SvidInvalid
from svc.identity.spiffeid import SpiffeID
from svc.identity.verification import SvidEvidence
from svc.notary.chains import (
    CLASSICAL,
    POST_QUANTUM,
    SigningChain,
    check_binding,
    check_chain,
    check_leaf_times,
    check_trust_domain,
    is_bound,
)
from svc.notary.claims import Claims
from svc.notary.envelope import Envelope, SignatureEntry
from svc.notary.errors import AlgNotAllowed, IssuerMismatch, Malformed, UnsupportedVersion
from svc.notary.headers import check_headers, check_set
from svc.notary.keys import verify_raw
from svc.notary.profile import POST_QUANTUM_ALGORITHMS, Profile, check_chain_b_algorithm
from svc.notary.x5c import decode_x5c, one_spiffe_id, uri_names
from svc.strictjson import JsonRefused, b64u_encode, loads_object

#: The version of every payload that this module knows.
VERSION: Final = 1
#: Where the payload of each type says its version; a proof of possession has none.
_VERSION_OBJECT: Final[dict[str, str | None]] = {
    naming.TYPE_STATEMENT: "svc",
    naming.TYPE_RECEIPT: "svc",
    naming.TYPE_BOOTSTRAP: "",
    naming.TYPE_LICENSE: "",
    naming.TYPE_PQ_PROOF: None,
}


@dataclass(frozen=True)
class Anchors:
    """
    Whom the verifier trusts; local, never taken from a message.

    Attributes:
        spiffe: the SPIFFE bundles, for chain A.
        pq: the post-quantum bundles, for chain B.
    """

    spiffe: BundleSet
    pq: BundleSet


@dataclass(frozen=True)
class EnvelopeEvidence:
    """
    What the signatures prove. Only :func:`verify_envelope` makes it.

    Attributes:
        payload: the octets that were signed.
        claims: the payload as an object.
        issuer: the workload that signed.
        profile: the profile that was met.
        judged_at: the time at which the certificates were judged.
        classical: chain A, None where the profile does not check it.
        pq: chain B, or an ML-DSA SVID; None where the profile does not check it.
        leaf: ``x5c[0]`` of the SVID's signature; of the chain B leaf where it signs alone.
        leaf_spki_sha256: base64url of the SVID key's digest; of a lone chain B leaf, the digest it is bound to.
        leaf_thumbprint: base64url of SHA-256 of ``leaf``.
        not_after: the earliest end of the certificates that were checked.
    """

    payload: bytes = field(repr=False)
    claims: Mapping[str, object] = field(repr=False, hash=False)
    issuer: SpiffeID
    profile: Profile
    judged_at: datetime
    classical: SvidEvidence | None
    pq: SvidEvidence | None
    leaf: x509.Certificate = field(repr=False)
    leaf_spki_sha256: str
    leaf_thumbprint: str
    not_after: datetime

    @property
    def post_quantum(self) -> bool:
        """Whether an ML-DSA signature and its chain were verified."""
        return self.pq is not None


def verify_envelope(
    envelope: Envelope | bytes,
    *,
    typ: str,
    profile: Profile,
    anchors: Anchors,
    now: datetime,
) -> EnvelopeEvidence:
    """
    Verify an envelope whose keys are proved by certificate chains.

    Args:
        envelope: the envelope, or its octets.
        typ: the kind of artefact that is expected.
        profile: the local profile.
        anchors: the local trust anchors.
        now: the time to judge at, aware: the present, or for evidence the payload's ``iat``.

    Returns:
        The evidence.

    Raises:
        NotaryError: the subclass that names the first failed check.
    """
    opened = envelope if isinstance(envelope, Envelope) else Envelope.parse(envelope)
    check_headers(opened.headers, typ)
    check_set(opened.headers)
    entries, chains = _chosen(opened, profile, anchors)
    claims = read_payload(opened.payload, typ)
    issuer = claims.spiffe_id("iss")
    for entry, chain in zip(entries, chains, strict=True):
        check_issuer(entry.alg, chain.leaf, issuer)
    check_trust_domain(chains, issuer)
    proved = {chain.role: check_chain(chain, issuer, now, profile) for chain in chains if chain.bundles is not None}
    key_digest = check_binding(chains, issuer)
    check_leaf_times(chains, issuer, now)
    for entry, chain in zip(entries, chains, strict=True):
        if chain.bundles is not None:
            verify_raw(entry.alg, chain.leaf.public_key(), opened.signing_input(entry), entry.signature)
    return EnvelopeEvidence(
        payload=opened.payload,
        claims=claims.members,
        issuer=issuer,
        profile=profile,
        judged_at=now,
        classical=proved.get(CLASSICAL),
        pq=proved.get(POST_QUANTUM),
        leaf=chains[0].leaf,
        leaf_spki_sha256=b64u_encode(key_digest),
        leaf_thumbprint=b64u_encode(certificate_sha256(chains[0].leaf)),
        not_after=min(evidence.not_after for evidence in proved.values()),
    )


def read_payload(payload: bytes, typ: str) -> Claims:
    """
    Read a payload and check its version (the payload is an object, and ``v`` is 1).

    Args:
        payload: the signed octets.
        typ: the kind of artefact, which decides where ``v`` stands.

    Returns:
        The claims.

    Raises:
        Malformed: for JSON that is not strict, or a version that is no integer.
        UnsupportedVersion: for another version.
    """
    try:
        claims = Claims(loads_object(payload))
    except JsonRefused as error:
        raise Malformed(where="payload", defect=error.defect) from error
    place = _VERSION_OBJECT.get(typ, "")
    if place is not None:
        found = (claims.member(place) if place else claims).integer("v")
        if found != VERSION:
            raise UnsupportedVersion(found=found, supported=VERSION)
    return claims


def read_certificates(entry: SignatureEntry, where: str) -> tuple[x509.Certificate, ...]:
    """
    Read the certificates of one signature and check that they are those it names.

    Args:
        entry: the signature.
        where: its place, for the error.

    Returns:
        The chain, leaf first.

    Raises:
        Malformed: for certificates that are absent, unreadable or other than ``x5t#S256`` says, and for a ``kid``.
        AlgNotAllowed: where the key of the leaf does not sign with the algorithm.
    """
    if entry.protected.kid is not None:
        raise Malformed(where=f"{where}.protected", defect="the member kid is forbidden beside certificates")
    if entry.protected.thumbprint is None or not entry.x5c:
        raise Malformed(where=where, defect="the member x5t#S256 or x5c is missing")
    chain = decode_x5c(entry.x5c, f"{where}.header.x5c")
    if b64u_encode(certificate_sha256(chain[0])) != entry.protected.thumbprint:
        raise Malformed(where=where, defect="x5t#S256 is not the digest of the first certificate")
    try:
        fitting = certificate_key_algorithm(chain[0]).jose
    except SvidInvalid as error:
        raise AlgNotAllowed(alg=entry.alg, detail=str(error)) from error
    if fitting != entry.alg:
        raise AlgNotAllowed(alg=entry.alg, detail=f"the key of the certificate signs with {fitting}")
    return chain


def check_issuer(alg: str, leaf: x509.Certificate, issuer: SpiffeID) -> None:
    """
    Check who signed: the one URI name of the leaf is the payload's ``iss``.

    Args:
        alg: the algorithm of the signature, for the error.
        leaf: the leaf.
        issuer: ``iss``.

    Raises:
        IssuerMismatch: for another name, no name or more than one.
    """
    if one_spiffe_id(leaf) != issuer:
        raise IssuerMismatch(alg=alg, found=" and ".join(uri_names(leaf)) or "no URI name", issuer=issuer)


def _chosen(envelope: Envelope, profile: Profile, anchors: Anchors) -> tuple[list[SignatureEntry], list[SigningChain]]:
    """The signatures that count for the profile and their certificates, chain A first."""
    classical = post_quantum = None
    for index, entry in enumerate(envelope.signatures):
        if entry.alg in POST_QUANTUM_ALGORITHMS:
            post_quantum = (entry, f"signatures[{index}]")
        else:
            classical = (entry, f"signatures[{index}]")
    profile.check_algorithms(classical and classical[0].alg, post_quantum and post_quantum[0].alg)
    entries: list[SignatureEntry] = []
    chains: list[SigningChain] = []
    if classical is not None:
        bundles = anchors.spiffe if profile.needs_classical else None
        entries.append(classical[0])
        chains.append(SigningChain(CLASSICAL, read_certificates(*classical), bundles, "SPIFFE"))
    if post_quantum is not None and profile.needs_post_quantum:
        certificates = read_certificates(*post_quantum)
        entries.append(post_quantum[0])
        if classical is None and not is_bound(certificates[0]):
            chains.append(SigningChain(POST_QUANTUM, certificates, anchors.spiffe, "SPIFFE"))
        else:
            check_chain_b_algorithm(post_quantum[0].alg)
            chains.append(SigningChain(POST_QUANTUM, certificates, anchors.pq, "post-quantum"))
    return entries, chains

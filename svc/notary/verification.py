"""
Verifies signed envelopes: the one verifier of proxy and command line.

Owns the order of checks of the format, in which the first failure wins: size, JSON, shape, each protected header, set,
profile, certificates, payload and version, issuer, trust domain, chain A, chain B, binding, leaf times, signatures. The
time is an argument. Of an artifact it reads type and version only; statements and receipts are checked by their own
modules, on the evidence returned here.

Chain A is the X.509-SVID under the SPIFFE bundle of its own trust domain, chain B an ML-DSA leaf with the same SPIFFE
ID under the post-quantum bundle, bound to the key of chain A. An ML-DSA *SVID* signs alone, under the SPIFFE bundle;
the binding extension, which only a chain B leaf has, distinguishes the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cryptography import x509

from svc import naming
from svc.envelope.claims import Claims
from svc.envelope.envelope import Envelope, SignatureEntry, check_headers, check_set
from svc.envelope.errors import EnvelopeError, Malformed
from svc.envelope.keys import verify_signature
from svc.envelope.profile import POST_QUANTUM_ALGORITHMS, Profile, check_chain_b_algorithm
from svc.envelope.x5c import decode_x5c, one_spiffe_id, uri_names
from svc.identity.algorithms import certificate_key_algorithm, certificate_sha256, spki_sha256
from svc.identity.binding import binding_of
from svc.identity.bundle import BundleSet
from svc.identity.errors import NotValidAtTime, SvidInvalid
from svc.identity.errors import TrustDomainUnknown as BundleUnknown
from svc.identity.spiffeid import SpiffeID
from svc.identity.verification import SvidEvidence, verify_svid
from svc.notary.errors import NotaryRefused, SignerChainUntrusted, SignerTrustDomainUnknown
from svc.strictjson import JsonRefused, b64u_encode, loads_object

#: The version of statements and receipts.
VERSION: Final = 1
_CLASSICAL: Final = "classical"
_POST_QUANTUM: Final = "pq"


@dataclass(frozen=True)
class Anchors:
    """
    The trust anchors of the verifier, never taken from a message: SPIFFE bundles for chain A, post-quantum ones for
    chain B.
    """

    spiffe: BundleSet
    pq: BundleSet


@dataclass(frozen=True)
class EnvelopeEvidence:
    """
    What the signatures prove. Only :func:`verify_envelope` makes it.

    Attributes:
        claims: the payload as an object.
        issuer: the workload that signed.
        profile: the profile that was met.
        verified_at: the time for which the certificates were verified.
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
    verified_at: datetime
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
    Verify an envelope whose signatures have certificate chains.

    Args:
        envelope: the envelope, or its octets.
        typ: the type of artifact that is expected.
        profile: the local profile.
        anchors: the local trust anchors.
        now: the time of the verification, aware: the present, or for evidence the payload's ``iat``.

    Raises:
        EnvelopeError: with the reason of the first failed check.
    """
    parsed = envelope if isinstance(envelope, Envelope) else Envelope.parse(envelope)
    check_headers(parsed.headers, typ)
    check_set(parsed.headers)
    entries, chains = _select_chains(parsed, profile, anchors)
    claims = read_payload(parsed.payload, typ)
    issuer = claims.spiffe_id("iss")
    for entry, chain in zip(entries, chains, strict=True):
        check_issuer(entry.alg, chain.leaf, issuer)
    _check_trust_domain(chains, issuer)
    evidence_by_role = {
        chain.role: _check_chain(chain, issuer, now, profile) for chain in chains if chain.bundles is not None
    }
    key_digest = _check_binding(chains, issuer)
    _check_leaf_times(chains, issuer, now)
    for entry, chain in zip(entries, chains, strict=True):
        if chain.bundles is not None:
            verify_signature(entry.alg, chain.leaf.public_key(), parsed.signing_input(entry), entry.signature)
    return EnvelopeEvidence(
        payload=parsed.payload,
        claims=claims.members,
        issuer=issuer,
        profile=profile,
        verified_at=now,
        classical=evidence_by_role.get(_CLASSICAL),
        pq=evidence_by_role.get(_POST_QUANTUM),
        leaf=chains[0].leaf,
        leaf_spki_sha256=b64u_encode(key_digest),
        leaf_thumbprint=b64u_encode(certificate_sha256(chains[0].leaf)),
        not_after=min(evidence.not_after for evidence in evidence_by_role.values()),
    )


def read_payload(payload: bytes, typ: str) -> Claims:
    """
    Read a payload as an object and check its version, which only a proof of possession does not have.

    Raises:
        Malformed: for JSON that is not strict, or a version that is no integer.
        EnvelopeError: for another version.
    """
    try:
        claims = Claims(loads_object(payload))
    except JsonRefused as error:
        raise Malformed(where="payload", defect=error.defect) from error
    if typ != naming.TYPE_PQ_PROOF:
        found = claims.member("svc").integer("v")
        if found != VERSION:
            raise EnvelopeError("unsupported_version", found=found, supported=VERSION)
    return claims


def read_certificates(entry: SignatureEntry, where: str) -> tuple[x509.Certificate, ...]:
    """
    Read the certificate chain of one signature, leaf first, and check that it is the one the header names.

    Raises:
        Malformed: for certificates that are absent, unreadable or other than ``x5t#S256`` says, and for a ``kid``.
        EnvelopeError: where the key of the leaf does not sign with the algorithm.
    """
    if entry.protected.kid is not None:
        raise Malformed(where=f"{where}.protected", defect="the member kid is forbidden beside certificates")
    if entry.protected.thumbprint is None or not entry.x5c:
        raise Malformed(where=where, defect="the member x5t#S256 or x5c is missing")
    chain = decode_x5c(entry.x5c, f"{where}.header.x5c")
    if b64u_encode(certificate_sha256(chain[0])) != entry.protected.thumbprint:
        raise Malformed(where=where, defect="x5t#S256 is not the digest of the first certificate")
    try:
        expected_alg = certificate_key_algorithm(chain[0]).jose
    except SvidInvalid as error:
        raise EnvelopeError("alg_not_allowed", alg=entry.alg, detail=str(error)) from error
    if expected_alg != entry.alg:
        raise EnvelopeError(
            "alg_not_allowed", alg=entry.alg, detail=f"the key of the certificate signs with {expected_alg}"
        )
    return chain


def check_issuer(alg: str, leaf: x509.Certificate, issuer: SpiffeID) -> None:
    """Check that the one URI name of a signing leaf is the payload's ``iss``."""
    if one_spiffe_id(leaf) != issuer:
        raise NotaryRefused(
            "issuer_mismatch", alg=alg, found=" and ".join(uri_names(leaf)) or "no URI name", issuer=issuer
        )


def _select_chains(
    envelope: Envelope, profile: Profile, anchors: Anchors
) -> tuple[list[SignatureEntry], list[_SigningChain]]:
    """The signatures that count for the profile and their certificates, chain A first."""
    classical = post_quantum = None
    for index, entry in enumerate(envelope.signatures):
        if entry.alg in POST_QUANTUM_ALGORITHMS:
            post_quantum = (entry, f"signatures[{index}]")
        else:
            classical = (entry, f"signatures[{index}]")
    profile.check_algorithms(classical and classical[0].alg, post_quantum and post_quantum[0].alg)
    entries: list[SignatureEntry] = []
    chains: list[_SigningChain] = []
    if classical is not None:
        bundles = anchors.spiffe if profile.needs_classical else None
        entries.append(classical[0])
        chains.append(_SigningChain(_CLASSICAL, read_certificates(*classical), bundles, "SPIFFE"))
    if post_quantum is not None and profile.needs_post_quantum:
        certificates = read_certificates(*post_quantum)
        entries.append(post_quantum[0])
        if classical is None and not _has_binding(certificates[0]):
            chains.append(_SigningChain(_POST_QUANTUM, certificates, anchors.spiffe, "SPIFFE"))
        else:
            check_chain_b_algorithm(post_quantum[0].alg)
            chains.append(_SigningChain(_POST_QUANTUM, certificates, anchors.pq, "post-quantum"))
    return entries, chains


@dataclass(frozen=True)
class _SigningChain:
    """
    The certificates of one signature and the bundles they are verified with.

    ``role`` is ``classical`` or ``pq``; ``bundles`` is None where the profile leaves the chain unchecked;
    ``bundle_name`` is for errors.
    """

    role: str
    certificates: tuple[x509.Certificate, ...]
    bundles: BundleSet | None
    bundle_name: str

    @property
    def leaf(self) -> x509.Certificate:
        """The certificate of the signing key."""
        return self.certificates[0]


def _has_binding(leaf: x509.Certificate) -> bool:
    """Return whether an ML-DSA leaf has the binding extension, well-formed or not; only a chain B leaf has it."""
    try:
        return binding_of(leaf) is not None
    except SvidInvalid:
        return True


def _check_trust_domain(chains: Sequence[_SigningChain], issuer: SpiffeID) -> None:
    """Check that each bundle that counts contains the issuer's trust domain; there is no silent downgrade."""
    for chain in chains:
        if chain.bundles is None:
            continue
        try:
            chain.bundles.bundle_for(issuer.trust_domain)
        except BundleUnknown as error:
            raise SignerTrustDomainUnknown(bundle=chain.bundle_name, trust_domain=issuer.trust_domain) from error


def _check_chain(chain: _SigningChain, issuer: SpiffeID, now: datetime, profile: Profile) -> SvidEvidence:
    """
    Verify a chain; :func:`_check_leaf_times` checks the time of the leaf itself, which comes later in the order.

    A leaf that is not valid at ``now`` is verified at the nearest time at which it is. Such an envelope is refused in
    any case: this only decides which reason comes first.

    Raises:
        SignerChainUntrusted: where it does not lead to the bundle, or breaks a rule of X.509-SVID.
        EnvelopeError: where a certificate above the leaf is not valid, or the profile demands stronger certificates.
    """
    moment = min(max(now, chain.leaf.not_valid_before_utc), chain.leaf.not_valid_after_utc)
    bundles = chain.bundles or BundleSet()
    try:
        evidence = verify_svid(chain.certificates, bundles, moment)
    except NotValidAtTime as error:
        raise NotaryRefused(
            "certificate_not_valid_at_time", chain=chain.role, issuer=issuer, moment=moment, cause=str(error)
        ) from error
    except SvidInvalid as error:
        raise SignerChainUntrusted(chain=chain.role, issuer=issuer, cause=str(error)) from error
    if chain.role == _POST_QUANTUM and not evidence.post_quantum:
        raise SignerChainUntrusted(chain=chain.role, issuer=issuer, cause="a signature of the chain is not ML-DSA")
    if profile is Profile.CNSA2:
        _check_cnsa2(evidence, chain.role)
    return evidence


def _check_cnsa2(evidence: SvidEvidence, role: str) -> None:
    """Check that every key and digest of the chain is as strong as those of the signatures (CNSA 2.0)."""
    demanded = "ECDSA-P384" if role == _CLASSICAL else "ML-DSA-87"
    for certificate in evidence.chain:
        found = certificate_key_algorithm(certificate).name
        if found != demanded:
            raise EnvelopeError(
                "alg_not_allowed", alg=found, detail=f"the profile cnsa2 demands {demanded} in the {role} chain"
            )
    for certificate in evidence.chain[:-1]:
        digest = certificate.signature_hash_algorithm
        if digest is not None and digest.name != "sha384":
            raise EnvelopeError(
                "alg_not_allowed", alg=digest.name, detail="the profile cnsa2 demands certificates with SHA-384"
            )


def _check_binding(chains: Sequence[_SigningChain], issuer: SpiffeID) -> bytes:
    """
    Check that the post-quantum leaf belongs to the SVID.

    Returns:
        SHA-256 of the SVID's SubjectPublicKeyInfo; for a lone chain B leaf, the digest that it names.

    Raises:
        EnvelopeError: where the binding is malformed, absent beside chain A, or names another key.
    """
    found = {chain.role: chain.leaf for chain in chains}
    svid, leaf = found.get(_CLASSICAL), found.get(_POST_QUANTUM)
    if leaf is None:
        return spki_sha256(chains[0].leaf)
    try:
        bound_to = binding_of(leaf)
    except SvidInvalid as error:
        raise NotaryRefused("chain_binding_mismatch", issuer=issuer, detail=str(error)) from error
    if svid is None:
        return spki_sha256(leaf) if bound_to is None else bound_to
    if bound_to is None:
        raise NotaryRefused("chain_binding_mismatch", issuer=issuer, detail="it has no binding extension")
    if bound_to != spki_sha256(svid):
        raise NotaryRefused("chain_binding_mismatch", issuer=issuer, detail="it names the key of another SVID")
    return bound_to


def _check_leaf_times(chains: Sequence[_SigningChain], issuer: SpiffeID, now: datetime) -> None:
    """Check that each leaf that counts is valid at ``now``; both ends belong to the validity (RFC 5280, 4.1.2.5)."""
    for chain in chains:
        start, end = chain.leaf.not_valid_before_utc, chain.leaf.not_valid_after_utc
        if chain.bundles is not None and not start <= now <= end:
            cause = f"its leaf is valid from {start:%Y-%m-%dT%H:%M:%SZ} to {end:%Y-%m-%dT%H:%M:%SZ}"
            raise NotaryRefused(
                "certificate_not_valid_at_time", chain=chain.role, issuer=issuer, moment=now, cause=cause
            )

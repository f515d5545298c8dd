"""
The certificate chains under a signed envelope: chain A, chain B and what ties them together.

Owns the checks of trust domain, chains, binding and leaf times, each on its own, so that the verifier can run them in
the order of the format. Knows nothing of envelopes and payloads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography import x509

from svc.identity.algorithms import certificate_key_algorithm, spki_sha256
from svc.identity.binding import binding_of
from svc.identity.bundle import BundleSet
from svc.identity.errors import NotValidAtTime, SvidInvalid
from svc.identity.errors import TrustDomainUnknown as BundleUnknown
from svc.identity.spiffeid import SpiffeID
from svc.identity.verification import SvidEvidence, verify_svid
from svc.notary.errors import (
    AlgNotAllowed,
    CertificateNotValidAtTime,
    ChainBindingMismatch,
    ChainUntrusted,
    TrustDomainUnknown,
)
from svc.notary.profile import Profile

CLASSICAL: Final = "classical"
POST_QUANTUM: Final = "pq"


@dataclass(frozen=True)
class SigningChain:
    """
    The certificates of one signature and what they are judged by.

    Attributes:
        role: ``classical`` or ``pq``.
        certificates: the leaf and its intermediates.
        bundles: whom they must lead to; None where the profile leaves the chain unchecked.
        bundle_name: what these bundles are called in errors.
    """

    role: str
    certificates: tuple[x509.Certificate, ...]
    bundles: BundleSet | None
    bundle_name: str

    @property
    def leaf(self) -> x509.Certificate:
        """The certificate of the signing key."""
        return self.certificates[0]


def is_bound(leaf: x509.Certificate) -> bool:
    """
    Tell a chain B leaf from an ML-DSA SVID.

    Args:
        leaf: a leaf with an ML-DSA key.

    Returns:
        True where it has the binding extension, well-formed or not.
    """
    try:
        return binding_of(leaf) is not None
    except SvidInvalid:
        return True


def check_trust_domain(chains: Sequence[SigningChain], issuer: SpiffeID) -> None:
    """
    Check that every bundle that counts knows the trust domain; there is no silent downgrade.

    Args:
        chains: the chains that count for the profile.
        issuer: the payload's ``iss``.

    Raises:
        TrustDomainUnknown: with the kind of the bundle that has no entry.
    """
    for chain in chains:
        if chain.bundles is None:
            continue
        try:
            chain.bundles.bundle_for(issuer.trust_domain)
        except BundleUnknown as error:
            raise TrustDomainUnknown(bundle=chain.bundle_name, trust_domain=issuer.trust_domain) from error


def check_chain(chain: SigningChain, issuer: SpiffeID, now: datetime, profile: Profile) -> SvidEvidence:
    """
    Verify a chain; the time of the leaf itself is left to :func:`check_leaf_times`, which comes later in the order.

    A leaf that is not valid at ``now`` is judged at the nearest time at which it is. Such an envelope is refused in any
    case: this only decides which reason comes first.

    Args:
        chain: the chain.
        issuer: the payload's ``iss``, for errors.
        now: the time to judge at, aware.
        profile: the local profile.

    Returns:
        The evidence.

    Raises:
        ChainUntrusted: where it does not lead to the bundle, or breaks a rule of X.509-SVID.
        CertificateNotValidAtTime: where a certificate above the leaf is not valid.
        AlgNotAllowed: where the profile demands stronger certificates.
    """
    moment = min(max(now, chain.leaf.not_valid_before_utc), chain.leaf.not_valid_after_utc)
    bundles = chain.bundles or BundleSet()
    try:
        evidence = verify_svid(chain.certificates, bundles, moment)
    except NotValidAtTime as error:
        raise CertificateNotValidAtTime(chain=chain.role, issuer=issuer, moment=moment, cause=str(error)) from error
    except SvidInvalid as error:
        raise ChainUntrusted(chain=chain.role, issuer=issuer, cause=str(error)) from error
    if chain.role == POST_QUANTUM and not evidence.post_quantum:
        raise ChainUntrusted(chain=chain.role, issuer=issuer, cause="a signature of the chain is not ML-DSA")
    if profile is Profile.CNSA2:
        _check_cnsa2(evidence, chain.role)
    return evidence


def _check_cnsa2(evidence: SvidEvidence, role: str) -> None:
    """Every key and digest of the chain as strong as those of the signatures (CNSA 2.0)."""
    demanded = "ECDSA-P384" if role == CLASSICAL else "ML-DSA-87"
    for certificate in evidence.chain:
        found = certificate_key_algorithm(certificate).name
        if found != demanded:
            raise AlgNotAllowed(alg=found, detail=f"the profile cnsa2 demands {demanded} in the {role} chain")
    for certificate in evidence.chain[:-1]:
        digest = certificate.signature_hash_algorithm
        if digest is not None and digest.name != "sha384":
            raise AlgNotAllowed(alg=digest.name, detail="the profile cnsa2 demands certificates with SHA-384")


def check_binding(chains: Sequence[SigningChain], issuer: SpiffeID) -> bytes:
    """
    Check that the post-quantum leaf belongs to the SVID.

    Args:
        chains: the chains that count for the profile, at least one.
        issuer: the payload's ``iss``, for errors.

    Returns:
        SHA-256 of the SVID's SubjectPublicKeyInfo; for a lone chain B leaf, the digest that it names.

    Raises:
        ChainBindingMismatch: where the binding is malformed, absent beside chain A, or names another key.
    """
    found = {chain.role: chain.leaf for chain in chains}
    svid, leaf = found.get(CLASSICAL), found.get(POST_QUANTUM)
    if leaf is None:
        return spki_sha256(chains[0].leaf)
    try:
        bound_to = binding_of(leaf)
    except SvidInvalid as error:
        raise ChainBindingMismatch(issuer=issuer, detail=str(error)) from error
    if svid is None:
        return spki_sha256(leaf) if bound_to is None else bound_to
    if bound_to is None:
        raise ChainBindingMismatch(issuer=issuer, detail="it has no binding extension")
    if bound_to != spki_sha256(svid):
        raise ChainBindingMismatch(issuer=issuer, detail="it names the key of another SVID")
    return bound_to


def check_leaf_times(chains: Sequence[SigningChain], issuer: SpiffeID, now: datetime) -> None:
    """
    Check that each leaf that counts is valid at the time; both ends belong to the validity (RFC 5280, 4.1.2.5).

    Args:
        chains: the chains that count for the profile.
        issuer: the payload's ``iss``, for errors.
        now: the time to judge at, aware.

    Raises:
        CertificateNotValidAtTime: for the first leaf outside its validity.
    """
    for chain in chains:
        start, end = chain.leaf.not_valid_before_utc, chain.leaf.not_valid_after_utc
        if chain.bundles is not None and not start <= now <= end:
            cause = f"its leaf is valid from {start:%Y-%m-%dT%H:%M:%SZ} to {end:%Y-%m-%dT%H:%M:%SZ}"
            raise CertificateNotValidAtTime(chain=chain.role, issuer=issuer, moment=now, cause=cause)

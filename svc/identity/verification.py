"""
Whether an SVID is to be believed: the one function that judges our own SVIDs and everybody else's.

Owns chain building and the order of all rules. Knows no clock (the time is an argument), no socket and no policy: a
verified identity is not a permitted one. The work that a stranger's chain can cause is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from svc.identity.algorithms import KeyAlgorithm, certificate_key_algorithm, certificate_sha256, spki_sha256
from svc.identity.bundle import BundleSet, TrustAnchor, X509Bundle
from svc.identity.certificate import CertificateFacts, subject_of
from svc.identity.constraints import check_name_constraints, check_path_length
from svc.identity.errors import (
    AnchorOutsideWindow,
    ChainTooLong,
    ChainUntrusted,
    LeafIsAnchor,
    SvidInvalid,
    SvidMalformed,
)
from svc.identity.rules import check_leaf, check_signing, check_time
from svc.identity.spiffeid import SpiffeID
from svc.identity.svid import MAX_CHAIN_CERTIFICATES

#: The longest chain, leaf and root included; deployments have two to four.
MAX_PATH: Final = 8
#: The most issuers tried before the search is given up; each costs at most one signature check of about 0.1 ms.
MAX_ISSUERS_TRIED: Final = 64


@dataclass(frozen=True)
class SvidEvidence:
    """
    What the verification found. Only :func:`verify_svid` makes it.

    ``chain`` goes from the leaf to the root that vouches for it. ``post_quantum`` is true when the key of the leaf
    and every signature of the chain are ML-DSA.
    """

    spiffe_id: SpiffeID
    chain: tuple[x509.Certificate, ...]
    algorithm: KeyAlgorithm
    post_quantum: bool

    @property
    def leaf(self) -> x509.Certificate:
        """The certificate that names the workload."""
        return self.chain[0]

    @property
    def anchor(self) -> x509.Certificate:
        """The root that vouches for it."""
        return self.chain[-1]

    @property
    def not_before(self) -> datetime:
        """From when the leaf is valid, aware."""
        return self.leaf.not_valid_before_utc

    @property
    def not_after(self) -> datetime:
        """Until when the leaf is valid, aware."""
        return self.leaf.not_valid_after_utc

    @property
    def begun(self) -> datetime:
        """From when on the whole chain is valid, aware."""
        return max(each.not_valid_before_utc for each in self.chain)

    @cached_property
    def spki_sha256(self) -> bytes:
        """SHA-256 of the leaf's SubjectPublicKeyInfo."""
        return spki_sha256(self.leaf)

    @cached_property
    def certificate_sha256(self) -> bytes:
        """SHA-256 of the leaf."""
        return certificate_sha256(self.leaf)


def verify_svid(
    chain: Sequence[x509.Certificate],
    bundles: BundleSet,
    now: datetime,
) -> SvidEvidence:
    """
    Verify an X.509-SVID at a time (X.509-SVID 5; RFC 5280, section 6).

    The leaf rules come first, then the trust domain, the time, and the search for a chain to a root of the bundle of
    the SVID's own trust domain. Key identifiers only order the search.

    Args:
        chain: the presented certificates, leaf first; the others in any order, unneeded ones and a root are no fault.
        bundles: whom we trust.
        now: the time to judge at, aware.

    Returns:
        The evidence.

    Raises:
        SvidInvalid: the subclass that names the broken rule. Where several chains are possible, the failure of the
            first one whose signatures hold.
    """
    if not chain:
        raise SvidMalformed(defect="there is no certificate")
    if len(chain) > MAX_CHAIN_CERTIFICATES:
        raise ChainTooLong(found=len(chain), what="certificates", limit=MAX_CHAIN_CERTIFICATES)
    leaf = CertificateFacts.read(chain[0])
    spiffe_id = check_leaf(leaf)
    bundle = bundles.bundle_for(spiffe_id.trust_domain)
    if leaf.certificate in bundle:
        raise LeafIsAnchor(spiffe_id=spiffe_id, trust_domain=spiffe_id.trust_domain)
    check_time(leaf, spiffe_id, now)
    path = _ChainSearch(bundle, chain[1:], spiffe_id, now).find(leaf)
    algorithm = certificate_key_algorithm(leaf.certificate)
    return SvidEvidence(
        spiffe_id=spiffe_id,
        chain=tuple(facts.certificate for facts in path),
        algorithm=algorithm,
        post_quantum=all(certificate_key_algorithm(facts.certificate).post_quantum for facts in path),
    )


class _ChainSearch:
    """A depth-first search for a chain from the leaf to a root, over issuers by name and signature."""

    def __init__(
        self,
        bundle: X509Bundle,
        presented: Sequence[x509.Certificate],
        spiffe_id: SpiffeID,
        now: datetime,
    ) -> None:
        self._bundle = bundle
        self._presented = presented
        self._spiffe_id = spiffe_id
        self._now = now
        self._tried = 0
        self._first_failure: SvidInvalid | None = None

    def find(self, leaf: CertificateFacts) -> tuple[CertificateFacts, ...]:
        """The chain, leaf first and root last; raises the first failure of a chain whose signatures hold."""
        path = self._extend((leaf,))
        if path is not None:
            return path
        if self._first_failure is not None:
            raise self._first_failure
        raise ChainUntrusted(
            trust_domain=self._spiffe_id.trust_domain, spiffe_id=self._spiffe_id, detail=self._missing(leaf)
        )

    def _extend(self, path: tuple[CertificateFacts, ...]) -> tuple[CertificateFacts, ...] | None:
        child = path[-1]
        for anchor in self._anchors(child):
            try:
                return self._anchored(path, anchor)
            except _NotTheIssuer:
                continue
            except SvidInvalid as error:
                self._remember(error)
        for certificate in self._presented:
            if subject_of(certificate) != child.certificate.issuer or any(certificate == f.certificate for f in path):
                continue
            try:
                longer = self._extend((*path, self._intermediate(path, certificate)))
            except _NotTheIssuer:
                continue
            except SvidInvalid as error:
                self._remember(error)
                continue
            if longer is not None:
                return longer
        return None

    def _anchors(self, child: CertificateFacts) -> list[TrustAnchor]:
        """Roots with the right name; those that count now and whose key identifier fits are tried first."""

        def unlikely(anchor: TrustAnchor) -> tuple[bool, bool]:
            return not anchor.counts_at(self._now), not _key_id_fits(child, anchor)

        found = self._bundle.named(child.certificate.issuer)
        return sorted(found, key=unlikely) if len(found) > 1 else list(found)

    def _anchored(self, path: tuple[CertificateFacts, ...], anchor: TrustAnchor) -> tuple[CertificateFacts, ...]:
        self._check_signature(path[-1], anchor.certificate)
        facts = anchor.facts
        check_signing(facts, self._spiffe_id.trust_domain, anchor=True)
        if not anchor.counts_at(self._now):
            raise AnchorOutsideWindow(
                subject=facts.subject, spiffe_id=self._spiffe_id, window=anchor.window_text(), now=self._now
            )
        check_time(facts, self._spiffe_id, self._now)
        whole = (*path, facts)
        check_path_length(whole)
        check_name_constraints(whole)
        return whole

    def _intermediate(self, path: tuple[CertificateFacts, ...], certificate: x509.Certificate) -> CertificateFacts:
        self._check_signature(path[-1], certificate)
        # One place in the chain is left for the root.
        if len(path) + 2 > MAX_PATH:
            raise ChainTooLong(found=f"more than {MAX_PATH}", what="certificates", limit=MAX_PATH)
        facts = CertificateFacts.read(certificate)
        check_signing(facts, self._spiffe_id.trust_domain, anchor=False)
        check_time(facts, self._spiffe_id, self._now)
        return facts

    def _check_signature(self, child: CertificateFacts, issuer: x509.Certificate) -> None:
        if self._tried >= MAX_ISSUERS_TRIED:
            raise ChainTooLong(found=f"more than {MAX_ISSUERS_TRIED}", what="possible issuers", limit=MAX_ISSUERS_TRIED)
        self._tried += 1
        certificate_key_algorithm(issuer)
        try:
            child.certificate.verify_directly_issued_by(issuer)
        except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise _NotTheIssuer from error

    def _remember(self, error: SvidInvalid) -> None:
        if self._first_failure is None:
            self._first_failure = error

    def _missing(self, leaf: CertificateFacts) -> str:
        issuer = leaf.certificate.issuer
        if not self._bundle.anchors:
            return "its trust bundle is empty"
        if self._bundle.named(issuer):
            return "a root has the issuer's name, but the signature is not by its key"
        if any(subject_of(certificate) == issuer for certificate in self._presented):
            return "the presented intermediates lead to no root"
        return f"the issuer '{issuer.rfc4514_string()}' is no root and was not presented"


class _NotTheIssuer(Exception):
    """The signature was made by another key; the search goes on."""


def _key_id_fits(child: CertificateFacts, anchor: TrustAnchor) -> bool:
    try:
        return child.authority_key_id is not None and child.authority_key_id == anchor.facts.subject_key_id
    except SvidInvalid:
        return False

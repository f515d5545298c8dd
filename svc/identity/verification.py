"""
Verifies X.509-SVIDs, our own and those of peers: chain building and the order of all rules.

The time is an argument. The work that any presented chain can cause is limited. A verified identity is not yet an
authorized one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Final

from cryptography import x509

from svc.identity.algorithms import (
    KeyAlgorithm,
    certificate_key_algorithm,
    certificate_sha256,
    check_signature_algorithm,
    spki_sha256,
)
from svc.identity.bundle import BundleSet, TrustAnchor, X509Bundle
from svc.identity.certificate import CertificateFacts
from svc.identity.constraints import ComparisonCounter, check_name_constraints, check_path_length
from svc.identity.encoding import CertificateEncoding
from svc.identity.errors import AnchorOutsideWindow, ChainUntrusted, SvidInvalid, SvidMalformed
from svc.identity.rules import check_leaf, check_signing, check_time
from svc.identity.spiffeid import SpiffeID
from svc.identity.svid import MAX_CHAIN_CERTIFICATES

#: Certificates in a chain, leaf and root included; deployments have two to four.
MAX_PATH: Final = 8
#: Signatures checked in one search, each 0.1 to 0.7 ms: seven for the longest chain, and three more for other keys of
#: roots or intermediates with the same name.
MAX_SIGNATURE_CHECKS: Final = 10


@dataclass(frozen=True)
class SvidEvidence:
    """
    The result of a verification. Only :func:`verify_svid` makes it.

    ``chain`` goes from the leaf to the root, which is in ``bundle``. ``post_quantum`` is true when the keys of all
    certificates are ML-DSA.
    """

    spiffe_id: SpiffeID
    chain: tuple[x509.Certificate, ...]
    algorithm: KeyAlgorithm
    post_quantum: bool
    bundle: X509Bundle = field(repr=False, compare=False)

    @property
    def leaf(self) -> x509.Certificate:
        """The certificate that names the workload."""
        return self.chain[0]

    @property
    def anchor(self) -> x509.Certificate:
        """The root of the chain."""
        return self.chain[-1]

    @property
    def not_before(self) -> datetime:
        """When the validity of the leaf begins, aware."""
        return self.leaf.not_valid_before_utc

    @property
    def not_after(self) -> datetime:
        """When the validity of the leaf ends, aware."""
        return self.leaf.not_valid_after_utc

    @property
    def chain_not_before(self) -> datetime:
        """When the validity of the whole chain begins, aware."""
        return max(each.not_valid_before_utc for each in self.chain)

    @cached_property
    def chain_not_after(self) -> datetime:
        """When the validity of the whole chain ends, aware: an intermediate or root may expire before the leaf."""
        return min(each.not_valid_after_utc for each in self.chain)

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

    The leaf rules are checked first, then trust domain and time, then a chain is searched to a root in the bundle of
    the SVID's own trust domain. Key identifiers only order the search.

    Args:
        chain: the presented certificates, leaf first, the others in any order; certificates that the chain does not
            need, and roots, are ignored.
        bundles: the trusted bundles.
        now: the time of the verification, aware.

    Raises:
        SvidInvalid: with the reason of the broken rule. Where several chains are possible, that of the first one whose
            signatures are valid.
    """
    if not chain:
        raise SvidMalformed(defect="there is no certificate")
    if len(chain) > MAX_CHAIN_CERTIFICATES:
        raise SvidInvalid("chain_too_long", found=len(chain), what="certificates", limit=MAX_CHAIN_CERTIFICATES)
    leaf = CertificateFacts.read(chain[0])
    leaf.encoding.check_serial()
    spiffe_id = check_leaf(leaf)
    bundle = bundles.bundle_for(spiffe_id.trust_domain)
    if leaf.certificate in bundle:
        raise SvidInvalid("leaf_is_anchor", spiffe_id=spiffe_id, trust_domain=spiffe_id.trust_domain)
    check_time(leaf, spiffe_id, now)
    path = ChainSearch(bundle, chain[1:], spiffe_id, now).find(leaf)
    algorithm = certificate_key_algorithm(leaf.certificate)
    return SvidEvidence(
        spiffe_id=spiffe_id,
        chain=tuple(facts.certificate for facts in path),
        algorithm=algorithm,
        post_quantum=all(certificate_key_algorithm(facts.certificate).post_quantum for facts in path),
        bundle=bundle,
    )


class _Presented:
    """A presented certificate other than the leaf; decoded only as part of a chain whose signatures lead to a root."""

    def __init__(self, certificate: x509.Certificate) -> None:
        self.certificate = certificate

    @cached_property
    def encoding(self) -> CertificateEncoding:
        return CertificateEncoding.read(self.certificate)

    @cached_property
    def facts(self) -> CertificateFacts:
        self.encoding.check_serial()
        return CertificateFacts.read(self.certificate, self.encoding)


#: The beginning of a chain, leaf first.
_Path = tuple[CertificateFacts | _Presented, ...]


class ChainSearch:
    """
    A depth-first search for a chain from the leaf to a root; issuers are found by encoded name and by signature.

    A chain contains each pair of name and key once, and each signature is checked once with each key. Intermediates
    are evaluated from the root down when all signatures are valid: of an untrusted chain only the leaf is evaluated.

    Args:
        bundle: the roots.
        presented: the presented certificates other than the leaf.
        spiffe_id: the ID of the leaf.
        now: the time of the verification, aware.
    """

    def __init__(
        self,
        bundle: X509Bundle,
        presented: Sequence[x509.Certificate],
        spiffe_id: SpiffeID,
        now: datetime,
    ) -> None:
        self._bundle = bundle
        self._presented = tuple(_Presented(each) for each in presented)
        self._spiffe_id = spiffe_id
        self._now = now
        self._signed: dict[tuple[int, bytes], bool] = {}
        self._comparisons = ComparisonCounter()
        self._first_failure: SvidInvalid | None = None
        #: The number of signatures that were checked.
        self.signature_checks = 0

    def find(self, leaf: CertificateFacts) -> tuple[CertificateFacts, ...]:
        """Return the chain, leaf first, or raise the first failure of a chain whose signatures are valid."""
        try:
            found = self._extend((leaf,))
        except _TooManySignatures:
            many, limit = f"more than {MAX_SIGNATURE_CHECKS}", MAX_SIGNATURE_CHECKS
            self._record(SvidInvalid("chain_too_long", found=many, what="signatures to check", limit=limit))
        else:
            if found is not None:
                return found
        if self._first_failure is not None:
            raise self._first_failure
        raise ChainUntrusted(
            trust_domain=self._spiffe_id.trust_domain, spiffe_id=self._spiffe_id, detail=self._missing_link(leaf)
        )

    def _extend(self, path: _Path) -> tuple[CertificateFacts, ...] | None:
        child = path[-1]
        found = {(each.encoding.subject, each.encoding.key) for each in path}
        for anchor in self._bundle.issuers_of(child.encoding, self._now):
            if (anchor.encoding.subject, anchor.encoding.key) in found:
                continue
            try:
                self._check_signature(child, anchor)
                return self._evaluated(path, anchor)
            except _NotTheIssuer:
                continue
            except SvidInvalid as error:
                self._record(error)
        for issuer in self._presented:
            encoding = issuer.encoding
            if encoding.subject != child.encoding.issuer or (encoding.subject, encoding.key) in found:
                continue
            try:
                self._check_signature(child, issuer)
                # The chain ends with a root, which needs room too.
                if len(path) + 2 > MAX_PATH:
                    raise SvidInvalid(
                        "chain_too_long", found=f"more than {MAX_PATH}", what="certificates", limit=MAX_PATH
                    )
            except _NotTheIssuer:
                continue
            except SvidInvalid as error:
                self._record(error)
                continue
            longer = self._extend((*path, issuer))
            if longer is not None:
                return longer
        return None

    def _evaluated(self, path: _Path, anchor: TrustAnchor) -> tuple[CertificateFacts, ...]:
        """Apply the rules to a chain whose signatures are valid."""
        facts = anchor.facts
        check_signing(facts, self._spiffe_id.trust_domain, anchor=True)
        if not anchor.trusted_at(self._now):
            raise AnchorOutsideWindow(
                subject=facts.subject, spiffe_id=self._spiffe_id, window=anchor.window_text(), now=self._now
            )
        check_time(facts, self._spiffe_id, self._now)
        whole = [facts]
        for each in reversed(path):
            if isinstance(each, _Presented):
                facts = each.facts
                check_signing(facts, self._spiffe_id.trust_domain, anchor=False)
                check_time(facts, self._spiffe_id, self._now)
                whole.append(facts)
            else:
                whole.append(each)
        whole.reverse()
        check_path_length(whole)
        check_name_constraints(whole, self._comparisons)
        return tuple(whole)

    def _check_signature(self, child: CertificateFacts | _Presented, issuer: TrustAnchor | _Presented) -> None:
        key = id(child), issuer.encoding.key
        valid = self._signed.get(key)
        if valid is None:
            if self.signature_checks >= MAX_SIGNATURE_CHECKS:
                raise _TooManySignatures
            if isinstance(child, _Presented):
                check_signature_algorithm(child.certificate)
            self.signature_checks += 1
            issuer.encoding.check_limits()
            certificate_key_algorithm(issuer.certificate)
            valid = self._signed[key] = _is_signed_by(child.certificate, issuer.certificate)
        if not valid:
            raise _NotTheIssuer

    def _record(self, error: SvidInvalid) -> None:
        if self._first_failure is None:
            self._first_failure = error

    def _missing_link(self, leaf: CertificateFacts) -> str:
        issuer = leaf.encoding.issuer
        if not self._bundle.anchors:
            return "its trust bundle is empty"
        if self._bundle.with_subject(issuer):
            return "a root has the issuer's name, but the signature is not by its key"
        if any(each.encoding.subject == issuer for each in self._presented):
            return "the presented intermediates lead to no root"
        return f"the issuer '{leaf.certificate.issuer.rfc4514_string()}' is no root and was not presented"


class _NotTheIssuer(Exception):
    """The signature was made by another key; the search continues."""


class _TooManySignatures(Exception):
    """The limit of signature checks is reached; the search ends."""


def _is_signed_by(child: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        child.verify_directly_issued_by(issuer)
    except Exception:  # noqa: BLE001 (a signature that the library cannot check is not valid)
        return False
    return True

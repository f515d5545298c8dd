"""
The rules that one certificate obeys by itself: as a leaf, as a signing certificate, and in time.

Owns the sections 2 to 4 of the X.509-SVID standard. Knows nothing of chains and signatures.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from cryptography.x509.oid import ExtendedKeyUsageOID

from svc.identity.algorithms import certificate_key_algorithm, check_signature_algorithm
from svc.identity.certificate import CertificateFacts
from svc.identity.errors import (
    ExtendedKeyUsageRefused,
    LeafIsCa,
    LeafKeyUsage,
    NoUriSan,
    RootPath,
    SigningKeyUsage,
    SigningNotCa,
    SigningUriSan,
    SvidExpired,
    SvidIdMalformed,
    SvidNotYetValid,
    TooManyUriSans,
)
from svc.identity.spiffeid import SpiffeID, SpiffeIdMalformed, TrustDomain

_BOTH_ROLES: Final = {
    ExtendedKeyUsageOID.SERVER_AUTH: "serverAuth",
    ExtendedKeyUsageOID.CLIENT_AUTH: "clientAuth",
}


def check_leaf(facts: CertificateFacts) -> SpiffeID:
    """
    Apply the leaf rules (X.509-SVID 2, 3.1, 4.1, 4.3, 4.4), key and signature algorithm included.

    Args:
        facts: the certificate.

    Returns:
        The SPIFFE ID that it names.

    Raises:
        SvidInvalid: the subclass that names the broken rule.
    """
    spiffe_id = _only_spiffe_id(facts)
    if not spiffe_id.path:
        raise RootPath(spiffe_id=spiffe_id)
    if facts.is_ca:
        raise LeafIsCa(spiffe_id=spiffe_id)
    _check_leaf_key_usage(facts, spiffe_id)
    check_extended_key_usage(facts)
    certificate_key_algorithm(facts.certificate)
    check_signature_algorithm(facts.certificate)
    return spiffe_id


def check_signing(facts: CertificateFacts, trust_domain: TrustDomain, *, anchor: bool) -> None:
    """
    Apply the rules for a signing certificate (X.509-SVID 3.2, 4.1, 4.3), signature algorithm included; its key was
    judged before it checked a signature.

    The standard lets the SPIFFE ID of a signing certificate reside in another trust domain; here it must be that of the
    SVIDs it issues, since an authority of a foreign trust domain in a chain is a mistake that nobody would see.

    Args:
        facts: the certificate.
        trust_domain: that of the leaf below it.
        anchor: True for a root out of the bundle. A root is trusted for its key: it may lack the key usage extension,
            its own extended key usage binds nobody, and its own signature is not looked at (RFC 5280, section 6.1.1
            d).

    Raises:
        SvidInvalid: the subclass that names the broken rule.
    """
    if not facts.is_ca:
        raise SigningNotCa(subject=facts.subject)
    usage = facts.key_usage
    if (usage is None and not anchor) or (usage is not None and not usage.key_cert_sign):
        raise SigningKeyUsage(subject=facts.subject)
    _check_signing_uris(facts, trust_domain)
    if not anchor:
        check_signature_algorithm(facts.certificate)
        if ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE not in (facts.extended_key_usage or ()):
            check_extended_key_usage(facts)


def check_extended_key_usage(facts: CertificateFacts) -> None:
    """
    Demand both roles where the extension is present (X.509-SVID 4.4): every SVID is used as client and as server.

    Args:
        facts: the certificate.

    Raises:
        ExtendedKeyUsageRefused: with ``missing`` naming the roles that are absent.
    """
    if facts.extended_key_usage is None:
        return
    missing = [name for oid, name in _BOTH_ROLES.items() if oid not in facts.extended_key_usage]
    if missing:
        raise ExtendedKeyUsageRefused(subject=facts.subject, missing=" and ".join(missing))


def check_time(facts: CertificateFacts, spiffe_id: SpiffeID, now: datetime) -> None:
    """
    Demand that a certificate is valid at a time; both ends belong to the validity (RFC 5280, section 4.1.2.5).

    Args:
        facts: the certificate.
        spiffe_id: whose chain it stands in.
        now: an aware time.

    Raises:
        SvidNotYetValid: before its beginning.
        SvidExpired: after its end.
    """
    not_before = facts.certificate.not_valid_before_utc
    not_after = facts.certificate.not_valid_after_utc
    if now < not_before:
        raise SvidNotYetValid(subject=facts.subject, spiffe_id=spiffe_id, not_before=not_before, now=now)
    if now > not_after:
        raise SvidExpired(subject=facts.subject, spiffe_id=spiffe_id, not_after=not_after, now=now)


def _only_spiffe_id(facts: CertificateFacts) -> SpiffeID:
    uris = facts.uris
    if not uris:
        raise NoUriSan(subject=facts.subject)
    if len(uris) > 1:
        raise TooManyUriSans(subject=facts.subject, count=len(uris))
    try:
        return SpiffeID.parse(uris[0])
    except SpiffeIdMalformed as error:
        raise SvidIdMalformed(uri=uris[0], defect=error.defect) from error


def _check_leaf_key_usage(facts: CertificateFacts, spiffe_id: SpiffeID) -> None:
    usage = facts.key_usage
    if usage is None:
        raise LeafKeyUsage(spiffe_id=spiffe_id, defect="the extension is missing")
    if usage.key_cert_sign:
        raise LeafKeyUsage(spiffe_id=spiffe_id, defect="keyCertSign is set")
    if usage.crl_sign:
        raise LeafKeyUsage(spiffe_id=spiffe_id, defect="cRLSign is set")
    if not usage.digital_signature:
        raise LeafKeyUsage(spiffe_id=spiffe_id, defect="digitalSignature is not set")


def _check_signing_uris(facts: CertificateFacts, trust_domain: TrustDomain) -> None:
    uris = facts.uris
    if not uris:
        return
    if len(uris) > 1:
        raise SigningUriSan(subject=facts.subject, defect=f"there are {len(uris)}")
    try:
        spiffe_id = SpiffeID.parse(uris[0])
    except SpiffeIdMalformed as error:
        raise SigningUriSan(subject=facts.subject, defect=f"'{uris[0]}' is not a SPIFFE ID") from error
    if spiffe_id.trust_domain != trust_domain:
        raise SigningUriSan(subject=facts.subject, defect=f"{spiffe_id} is not of the trust domain {trust_domain}")
    if spiffe_id.path:
        raise SigningUriSan(subject=facts.subject, defect=f"{spiffe_id} has a path")

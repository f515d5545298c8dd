"""The rules for a single certificate, as a leaf or as a signing certificate (X.509-SVID, sections 2 to 4)."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from svc.identity.algorithms import certificate_key_algorithm, check_signature_algorithm
from svc.identity.certificate import CertificateFacts
from svc.identity.errors import SvidExpired, SvidInvalid, SvidNotYetValid
from svc.identity.spiffeid import SpiffeID, SpiffeIdMalformed, TrustDomain

_BOTH_ROLES: Final = {
    ExtendedKeyUsageOID.SERVER_AUTH: "serverAuth",
    ExtendedKeyUsageOID.CLIENT_AUTH: "clientAuth",
}


def check_leaf(facts: CertificateFacts) -> SpiffeID:
    """Check the leaf rules (X.509-SVID 2, 3.1, 4.1, 4.3, 4.4), key and signature algorithm; return the SPIFFE ID."""
    spiffe_id = _only_spiffe_id(facts)
    if not spiffe_id.path:
        raise SvidInvalid("root_path", spiffe_id=spiffe_id)
    if facts.is_ca:
        raise SvidInvalid("leaf_is_ca", spiffe_id=spiffe_id)
    _check_leaf_key_usage(facts, spiffe_id)
    check_extended_key_usage(facts)
    certificate_key_algorithm(facts.certificate)
    check_signature_algorithm(facts.certificate)
    return spiffe_id


def check_signing(facts: CertificateFacts, trust_domain: TrustDomain, *, anchor: bool) -> None:
    """
    Check the rules for a signing certificate (X.509-SVID 3.2, 4.1, 4.3) and its signature algorithm; its key was
    checked before it verified a signature.

    The standard allows the SPIFFE ID of a signing certificate to be of another trust domain; here it must be of the
    trust domain of the leaf, because an authority of a foreign trust domain in a chain is a configuration mistake.

    Args:
        facts: the certificate.
        trust_domain: that of the leaf.
        anchor: True for a root of the bundle. A root is trusted for its key: it may lack the key usage extension, and
            its extended key usage and its own signature are not checked (RFC 5280, section 6.1.1 d).
    """
    if not facts.is_ca:
        raise SvidInvalid("signing_not_ca", subject=facts.subject)
    usage = facts.key_usage
    if (usage is None and not anchor) or (usage is not None and not usage.key_cert_sign):
        raise SvidInvalid("signing_key_usage", subject=facts.subject)
    _check_signing_uris(facts, trust_domain)
    if not anchor:
        check_signature_algorithm(facts.certificate)
        if ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE not in (facts.extended_key_usage or ()):
            check_extended_key_usage(facts)


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """The key usage of a new signing certificate or leaf that these rules accept (X.509-SVID 4.3)."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def check_extended_key_usage(facts: CertificateFacts) -> None:
    """Require both roles where the extension is present (X.509-SVID 4.4): each SVID is used as client and server."""
    if facts.extended_key_usage is None:
        return
    missing = [name for oid, name in _BOTH_ROLES.items() if oid not in facts.extended_key_usage]
    if missing:
        raise SvidInvalid("ext_key_usage", subject=facts.subject, missing=" and ".join(missing))


def check_time(facts: CertificateFacts, spiffe_id: SpiffeID, now: datetime) -> None:
    """Require that a certificate is valid at a time; both ends are inclusive (RFC 5280, section 4.1.2.5)."""
    not_before = facts.certificate.not_valid_before_utc
    not_after = facts.certificate.not_valid_after_utc
    if now < not_before:
        raise SvidNotYetValid(subject=facts.subject, spiffe_id=spiffe_id, not_before=not_before, now=now)
    if now > not_after:
        raise SvidExpired(subject=facts.subject, spiffe_id=spiffe_id, not_after=not_after, now=now)


def _only_spiffe_id(facts: CertificateFacts) -> SpiffeID:
    uris = facts.uris
    if not uris:
        raise SvidInvalid("no_uri_san", subject=facts.subject)
    if len(uris) > 1:
        raise SvidInvalid("too_many_uri_sans", subject=facts.subject, count=len(uris))
    try:
        return SpiffeID.parse(uris[0])
    except SpiffeIdMalformed as error:
        raise SvidInvalid("spiffe_id_malformed", uri=uris[0], defect=error.defect) from error


def _check_leaf_key_usage(facts: CertificateFacts, spiffe_id: SpiffeID) -> None:
    usage = facts.key_usage
    if usage is None:
        raise SvidInvalid("key_usage", spiffe_id=spiffe_id, defect="the extension is missing")
    if usage.key_cert_sign:
        raise SvidInvalid("key_usage", spiffe_id=spiffe_id, defect="keyCertSign is set")
    if usage.crl_sign:
        raise SvidInvalid("key_usage", spiffe_id=spiffe_id, defect="cRLSign is set")
    if not usage.digital_signature:
        raise SvidInvalid("key_usage", spiffe_id=spiffe_id, defect="digitalSignature is not set")


def _check_signing_uris(facts: CertificateFacts, trust_domain: TrustDomain) -> None:
    uris = facts.uris
    if not uris:
        return
    if len(uris) > 1:
        raise SvidInvalid("signing_uri_san", subject=facts.subject, defect=f"there are {len(uris)}")
    try:
        spiffe_id = SpiffeID.parse(uris[0])
    except SpiffeIdMalformed as error:
        raise SvidInvalid("signing_uri_san", subject=facts.subject, defect=f"'{uris[0]}' is not a SPIFFE ID") from error
    if spiffe_id.trust_domain != trust_domain:
        raise SvidInvalid(
            "signing_uri_san", subject=facts.subject, defect=f"{spiffe_id} is not of the trust domain {trust_domain}"
        )
    if spiffe_id.path:
        raise SvidInvalid("signing_uri_san", subject=facts.subject, defect=f"{spiffe_id} has a path")

"""
Why an SVID is refused: one class, one reason word, for each rule.

Owns the reasons of the identity core. Knows nothing of how they are counted, logged or shown.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from svc.errors import SvcError


class SvidInvalid(SvcError):
    """the SVID is not valid"""

    reason = "svid_invalid"
    http_status = 403
    #: The fixed word that metric labels and the log field ``reason`` carry for every class below.
    metric_reason: ClassVar[str] = "svid_invalid"


class SvidMalformed(SvidInvalid):
    """the SVID cannot be read: {defect}"""

    reason = "svid_malformed"
    hint = "an X.509-SVID is a DER certificate chain, leaf first, with its private key as PKCS#8"
    defect: str


class CertificateVersionRefused(SvidInvalid):
    """certificate '{subject}' is X.509 {version}, only v3 can carry a SPIFFE ID"""

    reason = "certificate_version"
    hint = "issue the certificate as X.509 v3"


class CriticalExtensionUnknown(SvidInvalid):
    """certificate '{subject}' has the critical extension {oid}, which is not understood here"""

    reason = "critical_extension_unknown"
    hint = "issue the certificate without it, or mark it non-critical if it may be ignored"


class KeyNotAllowed(SvidInvalid):
    """the key {found} is not allowed"""

    reason = "key_not_allowed"
    hint = "use P-256, P-384, Ed25519, RSA of 2048 to 8192 bits, ML-DSA-44, ML-DSA-65 or ML-DSA-87"
    found: str


class SignatureAlgorithmNotAllowed(SvidInvalid):
    """certificate '{subject}' is signed with {found}, which is not allowed"""

    reason = "signature_algorithm_not_allowed"
    hint = "sign with SHA-256, SHA-384 or SHA-512, Ed25519 or ML-DSA"


class KeyMismatch(SvidInvalid):
    """the private key does not belong to the leaf certificate of {spiffe_id}"""

    reason = "svid_key_mismatch"
    hint = "take the certificate and the key from the same response of the Workload API"


class NoUriSan(SvidInvalid):
    """the leaf certificate '{subject}' has no URI name, so it carries no SPIFFE ID"""

    reason = "no_uri_san"
    hint = "this is not a SPIFFE identity; connect to, or with, a workload that has an X.509-SVID"


class TooManyUriSans(SvidInvalid):
    """the leaf certificate '{subject}' has {count} URI names, exactly one is allowed"""

    reason = "too_many_uri_sans"
    hint = "issue one certificate for each SPIFFE ID"


class SvidIdMalformed(SvidInvalid):
    """the URI name '{uri}' of the leaf certificate is not a SPIFFE ID: {defect}"""

    reason = "spiffe_id_malformed"
    hint = "a SPIFFE ID looks like spiffe://example.org/ns/pay/sa/api"


class RootPath(SvidInvalid):
    """the leaf certificate names the trust domain {spiffe_id} itself, not a workload"""

    reason = "root_path"
    hint = "a workload's SPIFFE ID has a path"


class LeafIsCa(SvidInvalid):
    """the leaf certificate of {spiffe_id} has the CA flag"""

    reason = "leaf_is_ca"
    hint = "a signing certificate must not be used to authenticate"


class LeafKeyUsage(SvidInvalid):
    """the key usage of the leaf certificate of {spiffe_id} is wrong: {defect}"""

    reason = "key_usage"
    hint = "a leaf needs digitalSignature and must have neither keyCertSign nor cRLSign"
    defect: str


class ExtendedKeyUsageRefused(SvidInvalid):
    """the extended key usage of certificate '{subject}' does not allow {missing}"""

    reason = "ext_key_usage"
    hint = "when the extension is present it must allow serverAuth and clientAuth"


class LeafIsAnchor(SvidInvalid):
    """the leaf certificate of {spiffe_id} is itself a trust anchor of {trust_domain}"""

    reason = "leaf_is_anchor"
    hint = "a trust bundle holds signing certificates only; remove the leaf from it"


class NotValidAtTime(SvidInvalid):
    """a certificate of {spiffe_id} is not valid at {now}"""

    reason = "certificate_not_valid_at_time"
    now: datetime


class SvidExpired(NotValidAtTime):
    """certificate '{subject}' of {spiffe_id} expired at {not_after}, judged at {now}"""

    reason = "expired"
    hint = "check that the Workload API still renews SVIDs, and the clocks of both machines"
    not_after: datetime


class SvidNotYetValid(NotValidAtTime):
    """certificate '{subject}' of {spiffe_id} is valid from {not_before}, judged at {now}"""

    reason = "not_yet_valid"
    hint = "compare the clocks of both machines"
    not_before: datetime


class AnchorOutsideWindow(NotValidAtTime):
    """the root '{subject}' of {spiffe_id} was trusted {window}, judged at {now}"""

    reason = "anchor_outside_window"
    hint = "a root counts only between the times at which it stood in the trust bundle"


class TrustDomainUnknown(SvidInvalid):
    """there is no trust bundle for the trust domain {trust_domain}"""

    reason = "trust_domain_unknown"
    hint = "federate with {trust_domain}, or give its trust bundle"


class ChainUntrusted(SvidInvalid):
    """no root of {trust_domain} vouches for {spiffe_id}: {detail}"""

    reason = "chain_untrusted"
    hint = "the certificate was issued by somebody else, or the trust bundle of {trust_domain} is out of date"


class ChainTooLong(SvidInvalid):
    """the chain has {found} {what}, at most {limit} are accepted"""

    reason = "chain_too_long"
    hint = "present the leaf and its intermediates only"
    limit: int


class SigningCertificateInvalid(SvidInvalid):
    """the signing certificate '{subject}' breaks a rule for signing certificates"""

    reason = "signing_certificate_invalid"


class SigningNotCa(SigningCertificateInvalid):
    """certificate '{subject}' signed another one but has no CA flag"""

    reason = "signing_not_ca"
    hint = "only a certificate with the CA flag may issue"


class SigningKeyUsage(SigningCertificateInvalid):
    """certificate '{subject}' signed another one but its key usage lacks keyCertSign"""

    reason = "signing_key_usage"
    hint = "issue the signing certificate with the key usage keyCertSign"


class SigningUriSan(SigningCertificateInvalid):
    """the URI names of the signing certificate '{subject}' are wrong: {defect}"""

    reason = "signing_uri_san"
    hint = "a signing certificate has no URI name, or the SPIFFE ID of its trust domain without a path"
    defect: str


class PathLengthExceeded(SigningCertificateInvalid):
    """certificate '{subject}' allows {allowed} signing certificates below it, the chain has {found}"""

    reason = "path_length"
    hint = "raise the path length of that certificate, or issue from it directly"


class NameConstraintsViolated(SigningCertificateInvalid):
    """the name constraints of certificate '{subject}' do not allow the name '{name}'"""

    reason = "name_constraints"
    hint = "that authority may not issue for this name"

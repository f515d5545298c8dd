"""Errors of SVID verification: a reason for each rule that a certificate or chain can break."""

from __future__ import annotations

from datetime import datetime

from svc.errors import Reason, SvcError


class SvidInvalid(SvcError):
    """the SVID is not valid"""

    reason = "svid_invalid"
    http_status = 403
    reasons = {
        "certificate_version": Reason(
            "certificate '{subject}' is X.509 {version}, only v3 can carry a SPIFFE ID",
            "issue the certificate as X.509 v3",
        ),
        "critical_extension_unknown": Reason(
            "certificate '{subject}' has the critical extension {oid}, which is not understood here",
            "issue the certificate without it, or mark it non-critical if it may be ignored",
        ),
        "signature_algorithm_not_allowed": Reason(
            "certificate '{subject}' is signed with {found}, which is not allowed",
            "sign with SHA-256, SHA-384 or SHA-512, Ed25519 or ML-DSA",
        ),
        "svid_key_mismatch": Reason(
            "the private key does not belong to the leaf certificate of {spiffe_id}",
            "take the certificate and the key from the same response of the Workload API",
        ),
        "no_uri_san": Reason(
            "the leaf certificate '{subject}' has no URI name, so it carries no SPIFFE ID",
            "this is not a SPIFFE identity; connect to, or with, a workload that has an X.509-SVID",
        ),
        "too_many_uri_sans": Reason(
            "the leaf certificate '{subject}' has {count} URI names, exactly one is allowed",
            "issue one certificate for each SPIFFE ID",
        ),
        "spiffe_id_malformed": Reason(
            "the URI name '{uri}' of the leaf certificate is not a SPIFFE ID: {defect}",
            "a SPIFFE ID looks like spiffe://example.org/ns/pay/sa/api",
        ),
        "root_path": Reason(
            "the leaf certificate names the trust domain {spiffe_id} itself, not a workload",
            "a workload's SPIFFE ID has a path",
        ),
        "leaf_is_ca": Reason(
            "the leaf certificate of {spiffe_id} has the CA flag",
            "a signing certificate must not be used to authenticate",
        ),
        "key_usage": Reason(
            "the key usage of the leaf certificate of {spiffe_id} is wrong: {defect}",
            "a leaf needs digitalSignature and must have neither keyCertSign nor cRLSign",
        ),
        "ext_key_usage": Reason(
            "the extended key usage of certificate '{subject}' does not allow {missing}",
            "when the extension is present it must allow serverAuth and clientAuth",
        ),
        "leaf_is_anchor": Reason(
            "the leaf certificate of {spiffe_id} is itself a trust anchor of {trust_domain}",
            "a trust bundle holds signing certificates only; remove the leaf from it",
        ),
        "chain_too_long": Reason(
            "the chain has {found} {what}, at most {limit} are accepted",
            "present the leaf and its intermediates only",
        ),
        "signing_not_ca": Reason(
            "certificate '{subject}' signed another one but has no CA flag",
            "only a certificate with the CA flag may issue",
        ),
        "signing_key_usage": Reason(
            "certificate '{subject}' signed another one but its key usage lacks keyCertSign",
            "issue the signing certificate with the key usage keyCertSign",
        ),
        "signing_uri_san": Reason(
            "the URI names of the signing certificate '{subject}' are wrong: {defect}",
            "a signing certificate has no URI name, or the SPIFFE ID of its trust domain without a path",
        ),
        "path_length": Reason(
            "certificate '{subject}' allows {allowed} signing certificates below it, the chain has {found}",
            "raise the path length of that certificate, or issue from it directly",
        ),
        "name_constraints": Reason(
            "the name constraints of certificate '{subject}' do not allow the name '{name}'",
            "that authority may not issue for this name",
        ),
    }


class SvidMalformed(SvidInvalid):
    """the SVID cannot be read: {defect}"""

    reason = "svid_malformed"
    hint = "an X.509-SVID is a DER certificate chain, leaf first, with its private key as PKCS#8"
    defect: str


class KeyNotAllowed(SvidInvalid):
    """the key {found} is not allowed"""

    reason = "key_not_allowed"
    hint = "use P-256, P-384, Ed25519, RSA of 2048 to 8192 bits, ML-DSA-44, ML-DSA-65 or ML-DSA-87"
    found: str


class NotValidAtTime(SvidInvalid):
    """a certificate of {spiffe_id} is not valid at {now}"""

    reason = "certificate_not_valid_at_time"
    now: datetime


class SvidExpired(NotValidAtTime):
    """certificate '{subject}' of {spiffe_id} expired at {not_after}, checked at {now}"""

    reason = "expired"
    hint = "check that the Workload API still renews SVIDs, and the clocks of both machines"
    not_after: datetime


class SvidNotYetValid(NotValidAtTime):
    """certificate '{subject}' of {spiffe_id} is valid from {not_before}, checked at {now}"""

    reason = "not_yet_valid"
    hint = "compare the clocks of both machines"
    not_before: datetime


class AnchorOutsideWindow(NotValidAtTime):
    """the root '{subject}' of {spiffe_id} was trusted {window}, checked at {now}"""

    reason = "anchor_outside_window"
    hint = "a root is trusted only for the window in which it was in the trust bundle"


class TrustDomainUnknown(SvidInvalid):
    """there is no trust bundle for the trust domain {trust_domain}"""

    reason = "trust_domain_unknown"
    hint = "federate with {trust_domain}, or give its trust bundle"


class ChainUntrusted(SvidInvalid):
    """the chain of {spiffe_id} leads to no root of {trust_domain}: {detail}"""

    reason = "chain_untrusted"
    hint = "the certificate was issued by another authority, or the trust bundle of {trust_domain} is out of date"

"""Why a statement, receipt, proof or request is refused, beside the reasons of its envelope."""

from __future__ import annotations

from svc.envelope.errors import EnvelopeError
from svc.errors import Reason

#: The public name of what refuses any signed artifact.
NotaryError = EnvelopeError


class NotaryRefused(EnvelopeError):
    """a certificate chain, proof or request was refused"""

    reasons = {
        "issuer_mismatch": Reason(
            "the certificate behind the {alg} signature names {found}, the payload claims {issuer}",
            "the artifact was signed by another workload than it claims; do not trust it",
        ),
        "chain_binding_mismatch": Reason(
            "the post-quantum certificate of {issuer} is not bound to its SVID: {detail}",
            "the post-quantum leaf belongs to another SVID; the signer has to fetch a new leaf after each rotation",
        ),
        "certificate_not_valid_at_time": Reason(
            "the {chain} certificate chain of {issuer} is not valid at {moment}: {cause}",
            "check the clocks of both sides, and that the signer still renews its certificates",
        ),
        "proof_mismatch": Reason(
            "the proof of possession names another {member} than expected",
            "make a new proof for this issuer and this challenge",
        ),
        "caller_mismatch": Reason(
            "a post-quantum leaf for {spiffe_id} was asked for by {caller}",
            "ask over a connection or socket of the workload itself",
            403,
        ),
        "time_skew": Reason(
            "the proof of possession was made at {moment}, outside {seconds} s of the issuer's clock",
            "synchronise the clocks of workload and issuer",
        ),
        "challenge_unknown": Reason(
            "the challenge was not issued to this caller, has been used or evicted, or is older than {seconds} s",
            "ask for a new challenge and use it once",
        ),
        "wrong_trust_domain": Reason(
            "{spiffe_id} is not of the issuer's own trust domain {trust_domain}",
            "ask the post-quantum issuer of your own trust domain",
            403,
        ),
        "notary_unavailable": Reason(
            "the credentials of {spiffe_id} cannot serve the profile {profile}: {lacking}",
            "give the proxy a post-quantum issuer (notary.pqIssuer), or choose the profile classical",
            503,
        ),
        "method_not_allowed": Reason(
            "the notary endpoints are read with GET or HEAD, not with {method}", http_status=405
        ),
        "no_anchor": Reason(
            "there are no trust anchors to verify this evidence with, and none are taken from the file itself",
            "give --trust-bundle FILE and --pq-bundle FILE, or a Workload API socket",
        ),
    }
    parameters = {"proof_mismatch": "member"}


class SignerTrustDomainUnknown(NotaryRefused):
    """there is no {bundle} bundle for the trust domain {trust_domain}"""

    reason = "trust_domain_unknown"
    hint = "federate with {trust_domain}, or name its bundles with --trust-bundle and --pq-bundle"


class SignerChainUntrusted(NotaryRefused):
    """the {chain} certificate chain of {issuer} is not trusted: {cause}"""

    reason = "chain_untrusted"
    hint = "check that the trust bundle of the signer's trust domain is current"
    parameters = {"chain_untrusted": "chain"}


class EvidenceInvalid(NotaryRefused):
    """the evidence file is malformed: {defect}"""

    reason = "malformed"
    hint = "an evidence file is what svc curl --save-evidence and svc receipts export write (svc-evidence/1)"
    reasons = {
        "unsupported_version": Reason(
            "the evidence file has the version {found}, and only 1 is known", "use a newer svc"
        ),
    }


class StatementRefused(NotaryRefused):
    """the workload statement is refused"""

    reason = "statement_refused"
    http_status = 502
    reasons = {
        "fetch_failed": Reason(
            "the {artifact} could not be fetched: the notary answered {status}",
            "the notary endpoint must answer on the same connection; look at the proxy's log",
        ),
        "id_mismatch": Reason(
            "the fetched artifact has the identifier {found}, but {expected} was asked for",
            "what was served is another artifact than the response named, or it was altered",
        ),
        "issuer_not_authorised": Reason(
            "{issuer} may not issue workload statements for {subject}",
            "name central issuers with --issuer or SVC_ISSUERS; with one given, self-issued statements are refused",
        ),
        "trust_domain_mismatch": Reason(
            "the statement names the trust domain {claimed}, but it must be {expected}",
            "issuer, subject and the claim svc.trustDomain must agree",
        ),
        "audience_mismatch": Reason(
            "the artifact is meant for the audience {audience}, not {expected}",
            "a statement cannot replace a receipt, nor the other way round",
        ),
        "not_yet_valid": Reason("the statement {start}, and it is {now}", "compare the clocks of both machines"),
        "expired": Reason(
            "the statement was valid until {expires}, and it is {now}",
            "compare the clocks of both machines; if they agree, the workload does not renew its credentials",
        ),
        "subject_mismatch": Reason(
            "the statement is about {subject}, but the connection is with {peer}",
            "the service presents the statement of another workload",
        ),
        "key_mismatch": Reason(
            "the workload statement is not bound to {expected}",
            "it belongs to another replica, another workload or an earlier certificate",
        ),
        "bundle_stale": Reason(
            "the certificates do not lead to the trust bundle of {trust_domain}, which was last refreshed at {since}",
            "the Workload API cannot be reached, so a new root may be unknown here",
        ),
        "transport_unbound": Reason(
            "the statement cannot be tied to this connection, because it is not mutual TLS",
            "use https://, or svc curl --validate=false to see the statement without this guarantee",
        ),
    }
    parameters = {"fetch_failed": "status"}


class StatementMissing(StatementRefused):
    """the response carries no workload statement"""

    reason = "statement_missing"
    hint = "is the service behind svc-proxy with notarization workload or higher?"


class IdentityUnexpected(StatementRefused):
    """the workload is {subject}; expected {expected}"""

    reason = "identity_unexpected"
    hint = "check --expect-id and SVC_EXPECT_ID"


class ReceiptRefused(NotaryRefused):
    """the receipt is refused"""

    reason = "receipt_refused"
    http_status = 502
    reasons = {
        "receipt_missing": Reason(
            "the notary has no receipt for this request",
            "was signRequest asked for, and does the listener allow it (maxNotarization)?",
        ),
        "receipt_pending": Reason(
            "the receipt is not ready after {seconds} seconds",
            "the exchange still runs at the proxy; ask for the receipt again later",
        ),
        "fetch_failed": StatementRefused.reasons["fetch_failed"],
        "id_mismatch": StatementRefused.reasons["id_mismatch"],
        "audience_mismatch": StatementRefused.reasons["audience_mismatch"],
        "issuer_mismatch": Reason(
            "the receipt was issued by {found}, but the verified workload is {expected}",
            "another workload signed it; it proves nothing about this exchange",
        ),
        "key_mismatch": Reason(
            "the receipt is not bound to {expected}",
            "it belongs to another replica, another workload or an earlier certificate",
        ),
        "statement_mismatch": Reason(
            "the receipt refers to the workload statement {claimed}, but the verified one is {expected}",
            "receipt and statement must be of the same generation of credentials",
        ),
        "nonce_mismatch": Reason(
            "the receipt does not carry the nonce of this request", "it is a receipt for another request"
        ),
        "time_skew": Reason(
            "the receipt was issued at {issued}, outside {earliest} to {latest}",
            "compare the clocks of both machines",
        ),
        "request_mismatch": Reason(
            "the receipt disagrees with the request that was sent: {part}",
            "something between here and the proxy changed the request, or the receipt is for another one",
        ),
        "response_mismatch": Reason(
            "the receipt disagrees with the response that arrived: {part}",
            "something between the proxy and here changed the response, or it was cut",
        ),
        "inclusion_invalid": Reason(
            "the path from receipt {index} of {size} does not lead to the root that the batch signs",
            "the receipt, its place or its path was altered, or it comes from another batch; do not trust it",
        ),
        "batch_mismatch": Reason(
            "the batch does not fit the receipt: the {part} of the batch is {found}, expected was {expected}",
            "receipt and batch were put together by somebody else than their signer; do not trust them",
        ),
        "time_unproven": Reason(
            "no trusted third party backs the time that the receipt asserts",
            "leave out --require-trusted-time to accept the time that the issuer asserts",
        ),
    }
    parameters = {
        "fetch_failed": "status",
        "request_mismatch": "part",
        "response_mismatch": "part",
        "batch_mismatch": "part",
    }


class ReceiptElsewhere(ReceiptRefused):
    """the answer names {location} as the location of its receipt, which is not at the notary"""

    reason = "receipt_missing"
    hint = "only paths below /.well-known/svc-notary are followed"


class LevelMismatch(ReceiptRefused):
    """the level {asked} was asked for, but the notarization level is {answered}"""

    reason = "level_mismatch"
    hint = "the listener's maxNotarization limits the level"

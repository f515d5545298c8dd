"""
Why a statement or a receipt is refused: one class a reason.

Owns the reasons beyond those of the signature envelope, their sentences and their hints. Knows nothing of how they are
found. The reasons that the envelope has as well (``issuer_mismatch``, ``malformed``) are in :mod:`svc.notary.errors`.
"""

from __future__ import annotations

from svc.errors import SvcError
from svc.notary.errors import IssuerMismatch, NotaryError


class StatementRefused(NotaryError):
    """the workload statement is refused"""

    reason = "statement_refused"
    http_status = 502


class StatementMissing(StatementRefused):
    """the response carries no workload statement"""

    reason = "statement_missing"
    hint = "is the service behind svc-proxy with notarization workload or higher?"


class FetchFailed(StatementRefused):
    """the {artifact} could not be fetched: the notary answered {status}"""

    reason = "fetch_failed"
    parameter = "status"
    hint = "the notary endpoint must answer on the same connection; look at the proxy's log"
    status: int

    def __init__(self, *, status: int, artifact: str = "workload statement") -> None:
        super().__init__(artifact=artifact, status=status)


class IdMismatch(StatementRefused):
    """the fetched artefact has the identifier {found}, but {expected} was asked for"""

    reason = "id_mismatch"
    hint = "what was served is another artefact than the response named, or it was altered"


class IssuerNotAuthorised(StatementRefused):
    """{issuer} may not issue workload statements for {subject}"""

    reason = "issuer_not_authorised"
    hint = "name central issuers with --issuer or SVC_ISSUERS; with one given, self-issued statements are refused"


class TrustDomainMismatch(StatementRefused):
    """the statement names the trust domain {claimed}, but it must be {expected}"""

    reason = "trust_domain_mismatch"
    hint = "issuer, subject and the claim svc.trustDomain must agree"


class AudienceMismatch(StatementRefused):
    """the artefact is meant for the audience {audience}, not {expected}"""

    reason = "audience_mismatch"
    hint = "a statement cannot stand in for a receipt, nor the other way round"


class NotYetValid(StatementRefused):
    """the statement is valid from {not_before}, and it is {now}"""

    reason = "not_yet_valid"
    hint = "compare the clocks of both machines"


class Expired(StatementRefused):
    """the statement was valid until {expires}, and it is {now}"""

    reason = "expired"
    hint = "compare the clocks of both machines; if they agree, the workload does not renew its credentials"


class SubjectMismatch(StatementRefused):
    """the statement is about {subject}, but the connection is with {peer}"""

    reason = "subject_mismatch"
    hint = "the service presents the statement of another workload"


class KeyMismatch(StatementRefused):
    """the {artifact} is not bound to {expected}"""

    reason = "key_mismatch"
    hint = "it belongs to another replica, another workload or an earlier certificate"

    def __init__(self, *, artifact: str = "workload statement", expected: str = "the key of this connection") -> None:
        super().__init__(artifact=artifact, expected=expected)


class BundleStale(StatementRefused):
    """the certificates do not lead to the trust bundle of {trust_domain}, which was last refreshed at {since}"""

    reason = "bundle_stale"
    hint = "the Workload API cannot be reached, so a new root may be unknown here"


class TransportUnbound(StatementRefused):
    """the statement cannot be tied to this connection, because it is not mutual TLS"""

    reason = "transport_unbound"
    hint = "use https://, or --validate=false to see the statement without this guarantee"


class IdentityUnexpected(StatementRefused):
    """the workload is {subject}, which is not among those expected"""

    reason = "identity_unexpected"
    hint = "check --expect-id and SVC_EXPECT_ID"


class ReceiptRefused(NotaryError):
    """the receipt is refused"""

    reason = "receipt_refused"
    http_status = 502


class ReceiptMissing(ReceiptRefused):
    """the notary has no receipt for this request"""

    reason = "receipt_missing"
    hint = "was signRequest asked for, and does the listener allow it (maxNotarization)?"


class ForeignReceipt(ReceiptRefused, IssuerMismatch):
    """the receipt was issued by {found}, but the verified workload is {expected}"""

    reason = "issuer_mismatch"
    hint = "another workload signed it; its word does not count for this exchange"


class ReceiptPending(ReceiptRefused):
    """the receipt is not ready after {seconds} seconds"""

    reason = "receipt_pending"
    hint = "the exchange still runs at the proxy; ask for the receipt again later"


class StatementMismatch(ReceiptRefused):
    """the receipt refers to the workload statement {claimed}, but the verified one is {expected}"""

    reason = "statement_mismatch"
    hint = "receipt and statement must be of the same generation of credentials"


class NonceMismatch(ReceiptRefused):
    """the receipt does not carry the nonce of this request"""

    reason = "nonce_mismatch"
    hint = "it is a receipt for another request"


class Replayed(ReceiptRefused):
    """the nonce was used before by {client}"""

    reason = "replayed"
    http_status = 409
    hint = "choose 16 new random octets for each request"


class TimeSkew(ReceiptRefused):
    """the receipt was issued at {issued}, outside {earliest} to {latest}"""

    reason = "time_skew"
    hint = "compare the clocks of both machines"


class RequestMismatch(ReceiptRefused):
    """the receipt disagrees with the request that was sent: {part}"""

    reason = "request_mismatch"
    parameter = "part"
    hint = "something between here and the proxy changed the request, or the receipt is for another one"
    part: str


class ResponseMismatch(ReceiptRefused):
    """the receipt disagrees with the response that arrived: {part}"""

    reason = "response_mismatch"
    parameter = "part"
    hint = "something between the proxy and here changed the response, or it was cut"
    part: str


class LevelMismatch(ReceiptRefused):
    """the level {asked} was asked for, but the notarization level is {answered}"""

    reason = "level_mismatch"
    hint = "the listener's maxNotarization limits the level"


class TimeUnproven(ReceiptRefused):
    """no trusted third party backs the time that the receipt asserts"""

    reason = "time_unproven"
    hint = "leave out --require-trusted-time to accept the issuer's word for the time"


class NoAnchor(NotaryError):
    """there are no trust anchors to judge this evidence with, and none are taken from the file itself"""

    reason = "no_anchor"
    hint = "give --trust-bundle FILE and --pq-bundle FILE, or a Workload API socket"


class EvidenceMalformed(NotaryError):
    """the evidence file is malformed: {defect}"""

    reason = "malformed"
    hint = "an evidence file is what svc curl --save-evidence writes (svc-evidence/1)"
    defect: str


class EvidenceVersion(NotaryError):
    """the evidence file has the version {found}, and only 1 is known"""

    reason = "unsupported_version"
    hint = "use a newer svc"


def detail_reason(error: Exception) -> str:
    """
    Give the precise reason of a failure, with what it names in braces.

    Args:
        error: the failure.

    Returns:
        For example ``request_mismatch{header:3}``, ``signature_invalid{ES256}`` or ``expired``; for an exception that
        is none of ours ``internal_error``.
    """
    if isinstance(error, NotaryError):
        return error.detail_reason
    return error.reason if isinstance(error, SvcError) else SvcError.reason

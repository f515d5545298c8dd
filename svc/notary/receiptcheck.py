"""
Verifies a receipt of either form: the signatures first, its own or those of its batch, then its claims, read strictly,
against what the client observed.

Owns the order of the checks and the part that each mismatch names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from svc import naming
from svc.envelope.claims import utc_seconds
from svc.envelope.ids import receipt_id
from svc.envelope.profile import Profile
from svc.identity import SpiffeID
from svc.notary.artifact import BatchedReceipt, ReceiptArtifact, parse_receipt
from svc.notary.batchcheck import BatchPlace, VerifiedBatchCache, verify_batched
from svc.notary.errors import LevelMismatch, ReceiptRefused
from svc.notary.exchange import (
    BodySummary,
    ExchangeOutcome,
    ObservedExchange,
    RawHeaders,
    carries_no_body,
    recorded_headers,
)
from svc.notary.level import Level
from svc.notary.receipt_claims import ClaimedHeaders, ReceiptClaims, RequestClaims, ResponseClaims, read_disclosures
from svc.notary.statement import CLOCK_LEEWAY, StatementEvidence, verification_time
from svc.notary.verification import Anchors, EnvelopeEvidence, verify_envelope

if TYPE_CHECKING:
    from svc.notary.publish_claims import AcknowledgementClaims, PublishClaims


@dataclass(frozen=True)
class ReceiptEvidence:
    """
    A verified receipt.

    Attributes:
        id: its identifier, computed from the payload.
        issuer: who signed, the statement's subject.
        statement_id: the statement it refers to.
        level: ``SIGN_REQUEST``.
        outcome: how the exchange ended.
        issued: ``iat``.
        post_quantum: whether its signatures resist a quantum computer under the local profile.
        compared: whether it was compared with an exchange that the verifier observed.
        claims: the payload as an object.
        envelope_evidence: what the signatures proved, of the receipt itself or of its batch.
        batch: its place in a batch, None where it was signed alone.
    """

    id: str
    issuer: SpiffeID
    statement_id: str
    level: Level
    outcome: ExchangeOutcome
    issued: datetime
    post_quantum: bool
    compared: bool
    claims: Mapping[str, object] = field(repr=False, hash=False)
    envelope_evidence: EnvelopeEvidence = field(repr=False)
    batch: BatchPlace | None


def verify_receipt(
    receipt: ReceiptArtifact | bytes,
    *,
    statement: StatementEvidence,
    profile: Profile,
    anchors: Anchors,
    now: datetime,
    seen: ObservedExchange | None,
    at_iat: bool = False,
    expected_id: str | None = None,
    batches: VerifiedBatchCache | None = None,
) -> ReceiptEvidence:
    """
    Verify a receipt, in the order of the format; the first failure counts.

    Args:
        receipt: what was fetched, with its disclosures.
        statement: the verified statement of the same workload.
        profile: the local profile.
        anchors: the local trust anchors.
        now: the time, aware.
        seen: the exchange in the client's own view; None where there is none (evidence).
        at_iat: verify the chains at the receipt's ``iat``, and at that of its batch (evidence), instead of ``now``.
        expected_id: the identifier it was fetched by, None where it was fetched otherwise.
        batches: the batches that were verified before.

    Raises:
        EnvelopeError: with the reason.
    """
    parsed = parse_receipt(receipt) if isinstance(receipt, bytes) else receipt
    found_id = receipt_id(parsed.payload)
    if expected_id is not None and found_id != expected_id:
        raise ReceiptRefused("id_mismatch", expected=expected_id, found=found_id)
    place: BatchPlace | None = None
    if isinstance(parsed, BatchedReceipt):
        batched = verify_batched(parsed, profile=profile, anchors=anchors, now=now, at_iat=at_iat, cache=batches)
        signed, members, place = batched.signed, batched.claims, batched.place
    else:
        moment = verification_time(parsed, now) if at_iat else now
        signed = verify_envelope(parsed, typ=naming.TYPE_RECEIPT, profile=profile, anchors=anchors, now=moment)
        members = signed.claims
    claims = ReceiptClaims.read(members)
    if naming.AUDIENCE_RECEIPT not in claims.audience:
        raise ReceiptRefused("audience_mismatch", audience=", ".join(claims.audience), expected=naming.AUDIENCE_RECEIPT)
    _check_signer(signed, claims, statement)
    # NumericDate has no fraction: the start is cut like iat, so that the first second of the leeway counts whole.
    started = statement.not_before if seen is None else seen.started.replace(microsecond=0)
    _check_time(claims.issued, statement, started, now)
    if place is not None:
        _check_time(place.issued, statement, started, now)
    if claims.statement_id != statement.id:
        raise ReceiptRefused("statement_mismatch", claimed=claims.statement_id, expected=statement.id)
    if seen is not None:
        if claims.nonce != seen.nonce:
            raise ReceiptRefused("nonce_mismatch")
        _check_connection(claims, seen)
    if claims.level is not Level.SIGN_REQUEST:
        raise LevelMismatch(asked=Level.SIGN_REQUEST, answered=claims.level)
    salts = read_disclosures(parsed.extra, claims)
    if seen is not None:
        if not isinstance(claims.request, RequestClaims):
            raise ReceiptRefused("request_mismatch", part="method")
        _check_request(claims.request, seen, salts.get("request", {}))
        _check_response(claims.request, claims.response, seen, salts.get("response", {}))
    return ReceiptEvidence(
        id=found_id,
        issuer=signed.issuer,
        statement_id=claims.statement_id,
        level=claims.level,
        outcome=claims.outcome,
        issued=claims.issued,
        post_quantum=signed.post_quantum,
        compared=seen is not None,
        claims=members,
        envelope_evidence=signed,
        batch=place,
    )


def _check_signer(signed: EnvelopeEvidence, claims: ReceiptClaims, statement: StatementEvidence) -> None:
    for found in (signed.issuer, claims.server.spiffe_id):
        if found != statement.subject:
            raise ReceiptRefused("issuer_mismatch", found=found, expected=statement.subject)
    if signed.leaf_spki_sha256 != statement.spki_sha256:
        raise ReceiptRefused("key_mismatch", expected="the key that the workload statement names")
    if claims.server.thumbprint != signed.leaf_thumbprint:
        raise ReceiptRefused("key_mismatch", expected="the certificate that signed it")


def _check_time(issued: datetime, statement: StatementEvidence, started: datetime, now: datetime) -> None:
    """Check ``iat`` of a receipt, or of its batch."""
    for earliest, latest in ((statement.not_before, statement.expires), (started, now)):
        if earliest - issued > CLOCK_LEEWAY or issued - latest > CLOCK_LEEWAY:
            raise ReceiptRefused(
                "time_skew",
                issued=utc_seconds(issued),
                earliest=utc_seconds(earliest),
                latest=utc_seconds(latest),
            )


def _check_connection(claims: ReceiptClaims, seen: ObservedExchange) -> None:
    if seen.client is not None and claims.client != seen.client:
        raise ReceiptRefused("request_mismatch", part="client")
    if seen.tls is not None and claims.tls != seen.tls:
        raise ReceiptRefused("request_mismatch", part="tls")


def _check_request(request: RequestClaims, seen: ObservedExchange, salts: Mapping[str, str]) -> None:
    for part, claimed, sent in (
        ("method", request.method, seen.method),
        ("authority", request.authority, seen.authority),
        ("path", request.path, seen.path),
    ):
        if claimed != sent:
            raise ReceiptRefused("request_mismatch", part=part)
    if not request.query.matches(seen.query, salts.get("query")):
        raise ReceiptRefused("request_mismatch", part="query")
    index = _first_difference(request.headers, seen.request_headers, salts, "")
    if index is not None:
        raise ReceiptRefused("request_mismatch", part=f"header:{index}")
    check_request_body(request, seen.request_body, seen.request_prefix)
    # A server that did not read the body to its end has not read what follows it.
    trailers = seen.request_trailers if request.body.complete else ()
    index = _first_difference(request.trailers, trailers, salts, "trailer:")
    if index is not None:
        raise ReceiptRefused("request_mismatch", part=f"trailer:{index}")


def check_request_body(
    request: RequestClaims | PublishClaims, sent: BodySummary, prefix: Callable[[int], bytes | None]
) -> None:
    """
    Compare the body of a request or a message, live and in evidence; of one that the server did not read completely,
    only the first ``size`` octets are attested.

    Raises:
        ReceiptRefused: at ``body``.
    """
    claimed = request.body
    matches = (claimed.size, claimed.sha256) == (sent.size, sent.sha256)
    if not (matches if claimed.complete else prefix(claimed.size) == claimed.sha256):
        raise ReceiptRefused("request_mismatch", part="body")


def check_response_body(
    request: RequestClaims | PublishClaims,
    response: ResponseClaims | AcknowledgementClaims | None,
    arrived: BodySummary,
) -> None:
    """
    Compare the response body, live and in evidence.

    One that the server did not release completely matches nothing, a response that has no body must claim none, and an
    acknowledgement of MQTT attests none.

    Raises:
        ReceiptRefused: at ``body``.
    """
    if not (isinstance(request, RequestClaims) and isinstance(response, ResponseClaims)):
        raise ReceiptRefused("response_mismatch", part="body")
    if not response.body.complete or response.body != arrived:
        raise ReceiptRefused("response_mismatch", part="body")
    if response.body.size and carries_no_body(request.method, response.status):
        raise ReceiptRefused("response_mismatch", part="body")


def _check_response(
    request: RequestClaims,
    response: ResponseClaims | AcknowledgementClaims | None,
    seen: ObservedExchange,
    salts: Mapping[str, str],
) -> None:
    if not isinstance(response, ResponseClaims) or response.status != seen.status:
        raise ReceiptRefused("response_mismatch", part="status")
    index = _first_difference(response.headers, seen.response_headers, salts, "")
    if index is not None:
        raise ReceiptRefused("response_mismatch", part=f"header:{index}")
    check_response_body(request, response, seen.response_body)
    index = _first_difference(response.trailers, seen.response_trailers, salts, "trailer:")
    if index is not None:
        raise ReceiptRefused("response_mismatch", part=f"trailer:{index}")


def _first_difference(claimed: ClaimedHeaders, raw: RawHeaders, salts: Mapping[str, str], prefix: str) -> int | None:
    """Find the first index of the receipt's list at which it differs from what was observed."""
    seen = recorded_headers(raw)
    for number, (name, value) in enumerate(claimed):
        if number >= len(seen) or seen[number][0] != name:
            return number
        if not value.matches(seen[number][1], salts.get(f"{prefix}{number}")):
            return number
    return len(claimed) if len(seen) > len(claimed) else None

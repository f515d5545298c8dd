"""
Judging a receipt: the signatures first, then what it says against what the client saw.

Owns the order of the steps and the place that each mismatch names. Knows nothing of HTTP connections, of the clock,
or of how the receipt was fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from svc import naming
from svc.identity import SpiffeID
from svc.notary.claims import utc_seconds
from svc.notary.envelope import Envelope
from svc.notary.exchange import (
    EMPTY_BODY,
    BodySeen,
    Outcome,
    RawHeaders,
    SeenExchange,
    carries_no_body,
    recorded_headers,
)
from svc.notary.ids import receipt_id
from svc.notary.level import Level
from svc.notary.profile import Profile
from svc.notary.receiptclaims import ClaimedHeaders, ReceiptClaims, RequestClaims, ResponseClaims, read_disclosures
from svc.notary.refusals import (
    AudienceMismatch,
    ForeignReceipt,
    IdMismatch,
    KeyMismatch,
    LevelMismatch,
    NonceMismatch,
    RequestMismatch,
    ResponseMismatch,
    StatementMismatch,
    TimeSkew,
)
from svc.notary.statement import CLOCK_LEEWAY, StatementEvidence, judged_moment
from svc.notary.verification import Anchors, EnvelopeEvidence, verify_envelope


@dataclass(frozen=True)
class ReceiptEvidence:
    """
    A receipt that holds.

    Attributes:
        id: its identifier, computed from the payload.
        issuer: who signed: the statement's subject.
        statement_id: the statement it refers to.
        level: ``SIGN_REQUEST``.
        outcome: how the exchange ended.
        issued: ``iat``.
        post_quantum: whether its signatures resist a quantum computer under the local profile.
        compared: whether it was compared with an exchange that the verifier saw itself.
        claims: the payload as an object.
        envelope_evidence: what the signatures proved.
    """

    id: str
    issuer: SpiffeID
    statement_id: str
    level: Level
    outcome: Outcome
    issued: datetime
    post_quantum: bool
    compared: bool
    claims: Mapping[str, object] = field(repr=False, hash=False)
    envelope_evidence: EnvelopeEvidence = field(repr=False)


def verify_receipt(
    envelope: Envelope | bytes,
    *,
    statement: StatementEvidence,
    profile: Profile,
    anchors: Anchors,
    now: datetime,
    seen: SeenExchange | None,
    at_iat: bool = False,
    expected_id: str | None = None,
) -> ReceiptEvidence:
    """
    Judge a receipt, in the order of the format; the first failure counts.

    Args:
        envelope: what was fetched, with its disclosures.
        statement: the verified statement of the same workload.
        profile: the local profile.
        anchors: the local trust anchors.
        now: the time.
        seen: the exchange in the client's own view; None where there is none (evidence).
        at_iat: judge the chains at the receipt's ``iat`` (evidence) instead of ``now``.
        expected_id: the identifier it was fetched by, None where it was fetched otherwise.

    Returns:
        The evidence.

    Raises:
        NotaryError: a subclass with the reason.
    """
    parsed = envelope if isinstance(envelope, Envelope) else Envelope.parse(envelope)
    found_id = receipt_id(parsed.payload)
    if expected_id is not None and found_id != expected_id:
        raise IdMismatch(expected=expected_id, found=found_id)
    moment = judged_moment(parsed, now) if at_iat else now
    proof = verify_envelope(parsed, typ=naming.TYPE_RECEIPT, profile=profile, anchors=anchors, now=moment)
    claims = ReceiptClaims.read(proof.claims)
    if naming.AUDIENCE_RECEIPT not in claims.audience:
        raise AudienceMismatch(audience=", ".join(claims.audience), expected=naming.AUDIENCE_RECEIPT)
    _check_signer(proof, claims, statement)
    _check_time(claims, statement, now, seen)
    if claims.statement_id != statement.id:
        raise StatementMismatch(claimed=claims.statement_id, expected=statement.id)
    if seen is not None:
        if claims.nonce != seen.nonce:
            raise NonceMismatch
        _check_connection(claims, seen)
    if claims.level is not Level.SIGN_REQUEST:
        raise LevelMismatch(asked=Level.SIGN_REQUEST, answered=claims.level)
    if seen is not None:
        salts = read_disclosures(parsed.extra)
        _check_request(claims.request, seen, salts.get("request", {}))
        _check_response(claims.response, seen, salts.get("response", {}))
    return ReceiptEvidence(
        id=found_id,
        issuer=proof.issuer,
        statement_id=claims.statement_id,
        level=claims.level,
        outcome=claims.outcome,
        issued=claims.issued,
        post_quantum=proof.post_quantum,
        compared=seen is not None,
        claims=proof.claims,
        envelope_evidence=proof,
    )


def _check_signer(proof: EnvelopeEvidence, claims: ReceiptClaims, statement: StatementEvidence) -> None:
    for found in (proof.issuer, claims.server.spiffe_id):
        if found != statement.subject:
            raise ForeignReceipt(found=found, expected=statement.subject)
    if proof.leaf_spki_sha256 != statement.spki_sha256:
        raise KeyMismatch(artifact="receipt", expected="the key that the workload statement names")
    if claims.server.thumbprint != proof.leaf_thumbprint:
        raise KeyMismatch(artifact="receipt", expected="the certificate that signed it")


def _check_time(claims: ReceiptClaims, statement: StatementEvidence, now: datetime, seen: SeenExchange | None) -> None:
    # NumericDate has no fraction: the start is cut like iat, so that the first second of the leeway counts whole.
    started = statement.not_before if seen is None else seen.started.replace(microsecond=0)
    for earliest, latest in ((statement.not_before, statement.expires), (started, now)):
        if not earliest - CLOCK_LEEWAY <= claims.issued <= latest + CLOCK_LEEWAY:
            raise TimeSkew(
                issued=utc_seconds(claims.issued), earliest=utc_seconds(earliest), latest=utc_seconds(latest)
            )


def _check_connection(claims: ReceiptClaims, seen: SeenExchange) -> None:
    if seen.client is not None and claims.client != seen.client:
        raise RequestMismatch(part="client")
    if seen.tls is not None and claims.tls != seen.tls:
        raise RequestMismatch(part="tls")


def _check_request(request: RequestClaims, seen: SeenExchange, salts: Mapping[str, str]) -> None:
    for part, claimed, sent in (
        ("method", request.method, seen.method),
        ("authority", request.authority, seen.authority),
        ("path", request.path, seen.path),
    ):
        if claimed != sent:
            raise RequestMismatch(part=part)
    if not request.query.agrees(seen.query, salts.get("query")):
        raise RequestMismatch(part="query")
    place = _first_difference(request.headers, seen.request_headers, salts, "")
    if place is not None:
        raise RequestMismatch(part=f"header:{place}")
    if not _request_body_agrees(request.body, seen):
        raise RequestMismatch(part="body")
    place = _first_difference(request.trailers, seen.request_trailers, salts, "trailer:")
    if place is not None:
        raise RequestMismatch(part=f"trailer:{place}")


def _request_body_agrees(claimed: BodySeen, seen: SeenExchange) -> bool:
    if claimed.complete:
        sent = seen.request_body
        return (claimed.size, claimed.sha256) == (sent.size, sent.sha256)
    return seen.request_prefix(claimed.size) == claimed.sha256


def _check_response(response: ResponseClaims | None, seen: SeenExchange, salts: Mapping[str, str]) -> None:
    if response is None or response.status != seen.status:
        raise ResponseMismatch(part="status")
    place = _first_difference(response.headers, seen.response_headers, salts, "")
    if place is not None:
        raise ResponseMismatch(part=f"header:{place}")
    arrived = EMPTY_BODY if carries_no_body(seen.method, seen.status) else seen.response_body
    if not response.body.complete or response.body != arrived:
        raise ResponseMismatch(part="body")
    place = _first_difference(response.trailers, seen.response_trailers, salts, "trailer:")
    if place is not None:
        raise ResponseMismatch(part=f"trailer:{place}")


def _first_difference(claimed: ClaimedHeaders, raw: RawHeaders, salts: Mapping[str, str], place: str) -> int | None:
    """Find the first index of the receipt's list at which it differs from what was seen."""
    seen = recorded_headers(raw)
    for number, (name, value) in enumerate(claimed):
        if number >= len(seen) or seen[number][0] != name:
            return number
        if not value.agrees(seen[number][1], salts.get(f"{place}{number}")):
            return number
    return len(claimed) if len(seen) > len(claimed) else None

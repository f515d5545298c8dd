"""
Statements, receipts and records as the short reports of the command line.

Owns the order of their lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from svc.envelope.claims import utc_seconds
from svc.envelope.ids import printed_id
from svc.errors import printable
from svc.notary.batchcheck import BatchPlace
from svc.notary.evidence import TIME_ASSERTED
from svc.notary.receiptcheck import ReceiptEvidence
from svc.notary.statement import StatementEvidence
from svc.notary.verification import EnvelopeEvidence
from svc.reports.lines import (
    MAX_VALUE,
    OFFLINE,
    RECEIPT_TITLE,
    RECORD_TITLE,
    STATEMENT_TITLE,
    acknowledgement_lines,
    body_lines,
    claimed_time,
    escaped,
    header_lines,
    is_message,
    issuer_line,
    list_lines,
    object_of,
    place_in_batch,
    property_lines,
    raw_claims,
    request_head,
    response_head,
    tls_of,
    trailer_lines,
    workload_lines,
)
from svc.reports.report import Report, ReportLine


def statement_report(evidence: StatementEvidence, *, time_asserted: bool = False) -> Report:
    """Describe a verified statement; ``time_asserted`` where it was verified offline, at its own ``iat``."""
    checks = [
        issuer_line(evidence),
        ReportLine("Issued At", utc_seconds(evidence.issued)),
        ReportLine("Valid Until", utc_seconds(evidence.expires)),
        *_signature_lines(evidence.envelope_evidence, evidence.post_quantum),
        ReportLine("Bound To Connection", "yes" if evidence.bound else "no", mark=OFFLINE if time_asserted else ""),
        *_time_lines(time_asserted),
    ]
    return _statement_lines(
        f"{STATEMENT_TITLE} {printed_id(evidence.id)}", evidence.claims, checks, self_asserted=evidence.self_issued
    )


def receipt_report(
    evidence: ReceiptEvidence,
    *,
    request_body: bytes | None = None,
    response_body: bytes | None = None,
    time_asserted: bool = False,
) -> Report:
    """
    Describe a verified receipt.

    Args:
        evidence: the receipt.
        request_body: the caller's own copy of the request body, after its digest matched; None shows no text. Of either
            body nothing is shown beyond the octets that the receipt attests.
        response_body: the same for the response.
        time_asserted: whether it was verified offline, at its own ``iat``.
    """
    checks = [
        *_signature_lines(evidence.envelope_evidence, evidence.post_quantum),
        *_batch_lines(evidence.batch),
        ReportLine(
            "Compared With Own Exchange", "yes" if evidence.compared else "no", mark=OFFLINE if time_asserted else ""
        ),
        *_time_lines(time_asserted),
    ]
    title = f"{RECEIPT_TITLE} {printed_id(evidence.id)}"
    return _receipt_lines(title, evidence.claims, checks, request_body, response_body)


def stored_report(claims: Mapping[str, object], identifier: str, *, signed: bool, defect: str = "") -> Report:
    """
    Describe a record as it is stored; the lines are those of :func:`receipt_report`.

    Args:
        claims: the payload of the record.
        identifier: of the record.
        signed: whether the record is a receipt; one of level ``logRequest`` has no signature.
        defect: why a receipt could not be verified.
    """
    title = f"{RECEIPT_TITLE if signed else RECORD_TITLE} {printed_id(identifier)}"
    found = "NOT VERIFIED" if signed else "none"
    checks = [ReportLine("Signatures", found, mark=printable(defect, MAX_VALUE) if signed else "level logRequest")]
    return _receipt_lines(title, claims, checks, None, None)


def unverified_statement_report(claims: Mapping[str, object], identifier: str) -> Report:
    """Describe a statement of which nothing was verified; the lines are those of :func:`statement_report`."""
    issuer = claims.get("iss")
    self_issued = issuer == claims.get("sub")
    checks = [
        ReportLine("Issuer", escaped(issuer), mark="self-issued" if self_issued else ""),
        ReportLine("Issued At", claimed_time(claims, "iat")),
        ReportLine("Valid Until", claimed_time(claims, "exp")),
        ReportLine("Signatures", "NOT VERIFIED"),
    ]
    title = f"{STATEMENT_TITLE} {printed_id(identifier)}"
    return _statement_lines(title, claims, checks, self_asserted=self_issued)


def _statement_lines(
    title: str, claims: Mapping[str, object], checks: list[ReportLine], *, self_asserted: bool
) -> Report:
    lines = [*workload_lines(claims, self_asserted=self_asserted), *checks, *_claims_lines(claims)]
    return Report(title, tuple(lines))


def _receipt_lines(
    title: str,
    claims: Mapping[str, object],
    checks: list[ReportLine],
    request_body: bytes | None,
    response_body: bytes | None,
) -> Report:
    svc = object_of(claims.get("svc"))
    request, response = object_of(svc.get("request")), object_of(svc.get("response"))
    audience = claims.get("aud")
    listed = audience if isinstance(audience, list) else [audience]
    lines = [
        ReportLine("Issuer", escaped(claims.get("iss"))),
        *list_lines("Audience", [escaped(item) for item in listed], ""),
        ReportLine("Issued At", claimed_time(claims, "iat")),
        ReportLine("Workload Statement ID", escaped(printed_id(str(svc.get("workloadStatementID"))))),
        *_request_lines(request, request_body),
        *(acknowledgement_lines(response) if is_message(request) else _response_lines(response, response_body)),
        ReportLine("Outcome", escaped(svc.get("outcome"))),
        ReportLine("Notarization Level", escaped(svc.get("level"))),
        ReportLine("Client", escaped(object_of(svc.get("client")).get("spiffeID"))),
        ReportLine("Server", escaped(object_of(svc.get("server")).get("spiffeID"))),
        ReportLine("TLS", tls_of(svc.get("tls"))),
        *checks,
        *_claims_lines(claims),
    ]
    return Report(title, tuple(lines))


def _request_lines(request: Mapping[str, object], body: bytes | None) -> Iterator[ReportLine]:
    yield from request_head(request)
    if is_message(request):
        yield from property_lines(request, 1)
        yield from body_lines(object_of(request.get("body")), body)
    else:
        yield from _message_lines(request, body)


def _response_lines(response: Mapping[str, object], body: bytes | None) -> Iterator[ReportLine]:
    yield from response_head(response)
    yield from _message_lines(response, body)


def _message_lines(message: Mapping[str, object], body: bytes | None) -> Iterator[ReportLine]:
    yield from header_lines("Headers", message.get("headers"))
    yield from body_lines(object_of(message.get("body")), body)
    yield from trailer_lines(message)


def _signature_lines(evidence: EnvelopeEvidence, post_quantum: bool) -> Iterator[ReportLine]:
    chains = [chain for chain in (evidence.classical, evidence.pq) if chain is not None]
    yield ReportLine("Signatures", ", ".join(f"{chain.algorithm.jose} valid" for chain in chains))
    yield ReportLine("Post-Quantum", "yes" if post_quantum else "no")


def _batch_lines(batch: BatchPlace | None) -> Iterator[ReportLine]:
    if batch is not None:
        yield ReportLine("Signed Together", place_in_batch(batch))


def _time_lines(time_asserted: bool) -> Iterator[ReportLine]:
    if time_asserted:
        yield ReportLine("Time", TIME_ASSERTED)


def _claims_lines(claims: Mapping[str, object]) -> Iterator[ReportLine]:
    yield ReportLine("Raw Claims (JSON)")
    for line in raw_claims(claims).split("\n"):
        yield ReportLine("", line, 1)

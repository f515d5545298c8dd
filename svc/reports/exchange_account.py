"""
The whole account of one exchange or statement: of a verification, successful or not, or of a record as it is stored.

Owns its words and the order of its sections. Values are escaped as in :mod:`svc.reports.lines`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from svc.envelope.claims import utc_seconds
from svc.envelope.errors import detail_reason
from svc.envelope.ids import printed_id
from svc.errors import SvcError, printable
from svc.notary.evidence import TIME_ASSERTED, EvidenceFile, VerificationResult
from svc.notary.exchange import ExchangeOutcome
from svc.notary.receiptcheck import ReceiptEvidence
from svc.notary.statement import StatementEvidence
from svc.reports.account import Account, Section, Verdict
from svc.reports.checks import EvidenceSource, certificate_lines, check_sections, source_lines
from svc.reports.lines import (
    MAX_VALUE,
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
    object_of,
    property_lines,
    raw_claims,
    request_head,
    response_head,
    tls_of,
    trailer_lines,
    workload_lines,
)
from svc.reports.report import CheckResult, ReportLine
from svc.strictjson import Base64Refused, JsonRefused, b64u_decode, loads_object

_SIGNERS_WORD: Final = "the signer's word"
_STOPPED: Final = "checks run in a fixed order and end at the first failure"
#: In place of the SPIFFE ID of a client that presented no certificate.
NO_CLIENT: Final = "no client certificate"
#: What is said of a record that is only shown.
STORED: Final = "This is what the notary's database holds. No signature and no certificate was checked for this page."
UNSIGNED: Final = "The record has no signature: its level is logRequest. It proves nothing to others."
#: The end of an exchange in words.
OUTCOMES: Final[Mapping[ExchangeOutcome, str]] = {
    ExchangeOutcome.COMPLETE: "ended as it should",
    ExchangeOutcome.UPGRADED: "ended with 101; what follows on the connection is not recorded",
    ExchangeOutcome.CLIENT_ABORTED: "lost its client",
    ExchangeOutcome.SERVER_ABORTED: (
        "was broken off by the application's fault, a drain, because the client would now be refused, or because its"
        " record was not durable within 10 s"
    ),
    ExchangeOutcome.TIMEOUT: "took too long after a part of its response was released",
    ExchangeOutcome.CREDENTIALS_EXPIRED: "was cut because the credentials of one side of the connection ended",
}
#: What a receipt asserts, and what it does not prove, in the words of docs/receipts.md.
ASSERTED: Final = "The server asserts that it read this request and released this response for sending."
#: The same of a message of MQTT with QoS 1 or 2, and with QoS 0.
ASSERTED_MESSAGE: Final = "The server asserts that it read this message and released this acknowledgement for sending."
ASSERTED_UNACKNOWLEDGED: Final = "The server asserts that it read this message and forwarded it."
#: What it means who acknowledged a message, by the word in the payload.
ACKNOWLEDGED: Final[Mapping[object, str]] = {
    "upstream": "The broker said that it has the message. What it did with it is not attested.",
    "middleware": "The server stored the message before the broker had it. Whether the broker got it is not attested.",
}
NOT_PROVEN: Final[Mapping[str, str]] = {
    "Delivery": (
        "Delivery is not attested, the client signs nothing, and no receipt does not prove that nothing was executed."
    ),
    "Time is asserted": (
        "The times are the signer's word. A holder of the keys, even after expiry, could have made the receipt then or "
        "now."
    ),
    "Self-issued statements": (
        "The proxy issues its own statement. What it says beyond SPIFFE ID and SVID (namespace, images, labels) is its "
        "own word."
    ),
    "The proxy is trusted": ("by its workload and by verifiers: it sees the clear text and holds the signing keys."),
    "A stolen key signs": (
        "ML-DSA keeps old evidence safe against a later break of ECDSA. It does not protect against one who breaks or "
        "steals an SVID key while it is valid and asks the post-quantum issuer for a leaf."
    ),
    "Not FIPS validated": "OpenSSL and ML-DSA come with the wheels of cryptography.",
}
#: Characters of a path in a sentence; "What" has all of it.
_MAX_TOLD: Final = 120


def verification_account(
    result: VerificationResult, source: EvidenceSource, evidence: EvidenceFile | None = None
) -> Account:
    """
    Give the account of a verification of evidence, successful or not.

    Args:
        result: of :func:`svc.notary.evidence.verify_offline`, or one that has only the error.
        source: what was verified, and with what.
        evidence: the file's content, None where it could not be read as evidence.
    """
    statement, receipt = result.statement, result.receipt
    if result.error is not None or statement is None:
        return _refused_account(result.error, source, evidence)
    sections = [
        *(_exchange_sections(receipt.claims, evidence) if receipt is not None else ()),
        Section("What runs as the server" if receipt is not None else "Who", tuple(_statement_facts(statement))),
        Section("When", (*_time_facts(receipt), *_validity_lines(statement, receipt))),
        *check_sections(statement, receipt, source, evidence),
        Section("The file", tuple(source_lines(source))),
        _limits(statement, receipt),
        *_detail_sections(statement, receipt),
    ]
    artifact = receipt or statement
    title = f"{RECEIPT_TITLE if receipt is not None else STATEMENT_TITLE} {printed_id(artifact.id)}"
    return Account(title, Verdict.VERIFIED, tuple(_summary(statement, receipt, source)), tuple(sections))


def stored_account(claims: Mapping[str, object], identifier: str, *, signed: bool) -> Account:
    """
    Give the account of a record as it is stored, of which nothing was verified.

    Args:
        claims: the payload of the record.
        identifier: of the record.
        signed: whether the record is a receipt; one of level ``logRequest`` has no signature.
    """
    title = f"{RECEIPT_TITLE if signed else RECORD_TITLE} {printed_id(identifier)}"
    sections = (
        *_exchange_sections(claims, None),
        Section("When", tuple(_claimed_times(claims))),
        Section(
            "What this does not prove",
            (*_acknowledged(claims), *_limit_lines("Delivery", "Time is asserted", "The proxy is trusted")),
        ),
        *_claims_sections(claims, "receipt" if signed else "record"),
    )
    summary = (STORED,) if signed else (STORED, UNSIGNED)
    return Account(title, Verdict.UNCHECKED, summary, sections)


def _limit_lines(*names: str) -> tuple[ReportLine, ...]:
    return tuple(ReportLine(name, NOT_PROVEN[name]) for name in names)


def _limits(statement: StatementEvidence, receipt: ReceiptEvidence | None) -> Section:
    names = [name for name in NOT_PROVEN if statement.self_issued or name != "Self-issued statements"]
    if receipt is None:
        names.remove("Delivery")
        return Section("What this does not prove", _limit_lines(*names))
    return Section("What this does not prove", (*_acknowledged(receipt.claims), *_limit_lines(*names)))


def _acknowledged(claims: Mapping[str, object]) -> Iterator[ReportLine]:
    """What the acknowledgement of a message means; nothing for HTTP."""
    response = object_of(object_of(claims.get("svc")).get("response"))
    word = response.get("ackedBy")
    if isinstance(word, str) and word in ACKNOWLEDGED:
        yield ReportLine("Acknowledgement", ACKNOWLEDGED[word])


def _refused_account(error: Exception | None, source: EvidenceSource, evidence: EvidenceFile | None) -> Account:
    text = printable(error, MAX_VALUE) if error is not None else "there is no statement"
    advice = error.hint if isinstance(error, SvcError) else ""
    reason = "" if error is None else detail_reason(error)
    failed = [ReportLine("First failure", text, mark=printable(reason), check=CheckResult.FAILED)]
    failed += [ReportLine("What to do", advice)] if advice else []
    sections = [
        Section("What was checked", (*failed, ReportLine("All later checks", _STOPPED, check=CheckResult.NOT_DONE))),
        Section("The file", tuple(source_lines(source))),
    ]
    if evidence is not None:
        for name, artifact in (("statement", evidence.statement), ("receipt", evidence.receipt)):
            sections += [] if artifact is None else _unverified_claims(name, artifact.payload)
    title = f"Evidence {printable(source.name)}"
    return Account(title, Verdict.REFUSED, (f"The verification failed: {text}.",), tuple(sections))


def _unverified_claims(name: str, payload: bytes) -> list[Section]:
    try:
        claims = loads_object(payload)
    except JsonRefused:
        return []
    return [
        Section(
            f"What the {name} claims, unverified: anyone could have written it", text=raw_claims(claims), folded=True
        )
    ]


def _summary(statement: StatementEvidence, receipt: ReceiptEvidence | None, source: EvidenceSource) -> Iterator[str]:
    yield f"All checks that the profile {source.profile.value} demands succeeded at {utc_seconds(source.verified_at)}."
    if receipt is None:
        yield "There is no receipt: this shows who the workload is, and nothing about a request."
        return
    yield _asserted(receipt.claims)
    yield _told(receipt.claims)
    if receipt.outcome is not ExchangeOutcome.COMPLETE:
        yield f"The exchange {OUTCOMES[receipt.outcome]}."


def _asserted(claims: Mapping[str, object]) -> str:
    svc = object_of(claims.get("svc"))
    if not is_message(object_of(svc.get("request"))):
        return ASSERTED
    return ASSERTED_MESSAGE if object_of(svc.get("response")) else ASSERTED_UNACKNOWLEDGED


def _told(claims: Mapping[str, object]) -> str:
    """The exchange in one sentence."""
    svc = object_of(claims.get("svc"))
    request, response = object_of(svc.get("request")), object_of(svc.get("response"))
    client, server = (object_of(svc.get(name)).get("spiffeID") for name in ("client", "server"))
    if is_message(request):
        topic = printable(escaped(request.get("topic")), _MAX_TOLD)
        reason = f"acknowledged it with {escaped(response.get('packet'))}, {escaped(response.get('reasonName'))}"
        return (
            f"In its words: {escaped(client) if client else 'a client without certificate'} published to {topic} with "
            f"QoS {escaped(request.get('qos'))} through {escaped(server)}, which received the message at "
            f"{escaped(object_of(svc.get('time')).get('received'))} and "
            f"{reason if response else 'did not acknowledge it'}."
        )
    answer = f"answered with status {escaped(response.get('status'))}" if response else "gave no answer"
    path = printable(escaped(request.get("path")), _MAX_TOLD)
    return (
        f"In its words: {escaped(client) if client else 'a client without certificate'} sent "
        f"{escaped(request.get('method'))} {path} to {escaped(server)}, which received it at "
        f"{escaped(object_of(svc.get('time')).get('received'))} and {answer}."
    )


def _exchange_sections(claims: Mapping[str, object], evidence: EvidenceFile | None) -> Iterator[Section]:
    svc = object_of(claims.get("svc"))
    request, response = object_of(svc.get("request")), object_of(svc.get("response"))
    yield Section(
        "Who",
        (
            *_peer_lines("Client", svc.get("client")),
            *_peer_lines("Server", svc.get("server")),
            ReportLine("TLS", tls_of(svc.get("tls"))),
        ),
    )
    sent = [*request_head(request), *_body_facts(request, evidence.request_body if evidence else None)]
    seen = [*response_head(response), *_body_facts(response, evidence.response_body if evidence else None)]
    none = ReportLine("HTTP Response", "none")
    if is_message(request):
        seen, none = list(acknowledgement_lines(response)), ReportLine("MQTT Acknowledgement", "none")
    yield Section(
        "What",
        (
            *sent,
            *(seen if response else [none]),
            ReportLine("Outcome", _outcome(svc.get("outcome"))),
            ReportLine("Notarization Level", escaped(svc.get("level"))),
        ),
    )


def _peer_lines(label: str, value: object) -> Iterator[ReportLine]:
    peer = object_of(value)
    if not peer:
        yield ReportLine(label, NO_CLIENT)
        return
    yield ReportLine(label, escaped(peer.get("spiffeID")))
    yield ReportLine("Certificate SHA-256", _digest(peer.get("x5t#S256")), 1)


def _body_facts(message: Mapping[str, object], body: bytes | None) -> Iterator[ReportLine]:
    facts = object_of(message.get("body"))
    yield from body_lines(facts, body)
    yield ReportLine("Body SHA-256", _digest(facts.get("sha-256")), 1)


def _outcome(value: object) -> str:
    try:
        return f"{escaped(value)}: the exchange {OUTCOMES[ExchangeOutcome(value)]}"
    except ValueError:
        return escaped(value)


def _digest(value: object) -> str:
    """Write a digest of a payload in hexadecimal digits, as ``sha256sum`` does."""
    try:
        return b64u_decode(value).hex()
    except Base64Refused:
        return escaped(value)


def _statement_facts(statement: StatementEvidence) -> list[ReportLine]:
    return [
        *workload_lines(statement.claims, self_asserted=statement.self_issued),
        ReportLine("Workload Statement ID", printed_id(statement.id)),
        issuer_line(statement),
    ]


def _claimed_times(claims: Mapping[str, object]) -> Iterator[ReportLine]:
    time = object_of(object_of(claims.get("svc")).get("time"))
    yield ReportLine("Request received", escaped(time.get("received")), mark=_SIGNERS_WORD)
    yield ReportLine("Response completed", escaped(time.get("completed")), mark=_SIGNERS_WORD)
    yield ReportLine("Receipt issued", claimed_time(claims, "iat"), mark=_SIGNERS_WORD)


def _time_facts(receipt: ReceiptEvidence | None) -> Iterator[ReportLine]:
    if receipt is not None:
        yield from _claimed_times(receipt.claims)


def _validity_lines(statement: StatementEvidence, receipt: ReceiptEvidence | None) -> Iterator[ReportLine]:
    yield ReportLine("Statement issued", utc_seconds(statement.issued), mark=_SIGNERS_WORD)
    yield ReportLine("Statement valid until", utc_seconds(statement.expires))
    moments = {part.envelope_evidence.verified_at for part in (statement, receipt) if part is not None}
    if receipt is not None and receipt.batch is not None:
        moments.add(receipt.issued)
    at = " and ".join(utc_seconds(moment) for moment in sorted(moments))
    yield ReportLine("Certificates verified for", at)
    yield ReportLine("Trusted time", "none", mark=TIME_ASSERTED)


def _detail_sections(statement: StatementEvidence, receipt: ReceiptEvidence | None) -> Iterator[Section]:
    parts = (("receipt", receipt), ("workload statement", statement))
    for name, part in parts:
        if part is not None:
            yield Section(f"Certificates of the {name}", tuple(certificate_lines(part.envelope_evidence)), folded=True)
    if receipt is not None:
        yield from _claims_sections(receipt.claims, "receipt")
    yield Section("Raw Claims (JSON) of the workload statement", text=raw_claims(statement.claims), folded=True)


def _claims_sections(claims: Mapping[str, object], name: str) -> Iterator[Section]:
    svc = object_of(claims.get("svc"))
    request = object_of(svc.get("request"))
    fields: list[ReportLine] = []
    if is_message(request):
        yield Section("Properties", tuple(property_lines(request)), folded=True)
    else:
        for title, message in (("HTTP Request", request), ("HTTP Response", object_of(svc.get("response")))):
            fields += [ReportLine(title), *header_lines("Headers", message.get("headers")), *trailer_lines(message)]
        yield Section("Headers and trailers", tuple(fields), folded=True)
    yield Section(f"Raw Claims (JSON) of the {name}", text=raw_claims(claims), folded=True)

"""
Statements and receipts as people read them: the short reports of the command line, and the whole account of one
exchange, which :mod:`svc.reports.html` lays out as a page.

Owns the words and the order of the lines. Every value from outside is escaped, so that no artifact can move the cursor,
reorder a line or forge one. A caller may style labels when it renders.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

from cryptography import x509

from svc.errors import SvcError, printable
from svc.identity.algorithms import certificate_key_algorithm, certificate_sha256
from svc.identity.binding import binding_of
from svc.identity.spiffeid import SpiffeID
from svc.notary.batchcheck import BatchPlace
from svc.notary.claims import Claims, utc_seconds
from svc.notary.errors import Malformed, detail_reason
from svc.notary.evidence import TIME_ASSERTED, EvidenceFile, VerificationResult
from svc.notary.exchange import ExchangeOutcome
from svc.notary.ids import printed_id
from svc.notary.profile import Profile
from svc.notary.receiptcheck import ReceiptEvidence
from svc.notary.statement import StatementEvidence
from svc.notary.verification import EnvelopeEvidence
from svc.strictjson import Base64Refused, JsonRefused, b64u_decode, loads_object

#: Shown for an absent fact.
ABSENT: Final = "-"
#: The mark of facts that only the workload itself asserts.
SELF_ASSERTED: Final = "self-asserted"
#: The mark of a host name in place of the name of a pod: the statement has a value and lists the name as absent.
HOST_NAME: Final = "host name"
#: The mark of what only a live connection shows.
OFFLINE: Final = "verified offline"
#: The most characters of a body that are shown.
MAX_BODY_TEXT: Final = 240
_INDENT: Final = "  "
_SIGNERS_WORD: Final = "the signer's word"
_STOPPED: Final = "checks run in a fixed order and end at the first failure"
_PROFILES: Final[Mapping[Profile, str]] = {
    Profile.HYBRID: "a classical and a post-quantum signature must both be valid",
    Profile.PQ: "the post-quantum signature must be valid",
    Profile.CLASSICAL: "the classical signature must be valid; the post-quantum one is ignored",
    Profile.CNSA2: "both signatures must be valid, with ES384 and ML-DSA-87 alone",
}
_STATEMENT_TITLE: Final = "Workload Identity Statement"
_RECEIPT_TITLE: Final = "Signed Request Receipt"
_RECORD_TITLE: Final = "Unsigned Request Record"
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
_MAX_VALUE: Final = 2048
#: Characters of a path in a sentence; "What" has all of it.
_MAX_TOLD: Final = 120


class Part(Enum):
    """What a piece of a rendered line is, for a caller that styles it."""

    TITLE = "title"
    LABEL = "label"
    VALUE = "value"
    MARK = "mark"


Style = Callable[[Part, str], str]


def _plain(_part: Part, text: str) -> str:
    return text


class CheckResult(Enum):
    """The result of one check of a verification."""

    PASSED = "passed"
    NOT_DONE = "not checked"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ReportLine:
    """
    One line of a report.

    ``label`` is empty for an item of a list or a line of JSON; ``value`` is already escaped; ``mark`` is a remark on
    the value, for example ``self-asserted``; ``item`` is set for an item of a list, ``check`` for the result of a
    check.
    """

    label: str
    value: str = ""
    depth: int = 0
    mark: str = ""
    item: bool = False
    check: CheckResult | None = None

    def render(self, style: Style) -> str:
        """Write the line without its end; ``style`` wraps each piece."""
        pieces = [style(Part.LABEL, f"{self.label}:")] if self.label else []
        pieces += [style(Part.VALUE, f"- {self.value}" if self.item else self.value)] if self.value else []
        pieces += [style(Part.MARK, f"({self.mark})")] if self.mark else []
        return _INDENT * (self.depth + 1) + " ".join(pieces)


@dataclass(frozen=True, slots=True)
class Report:
    """A report: a title and its lines."""

    title: str
    lines: tuple[ReportLine, ...]

    def render(self, style: Style = _plain) -> str:
        """
        Write the report, each line with its end; ``style`` wraps titles, labels, values and marks, for example in
        colours.
        """
        lines = [style(Part.TITLE, self.title), *(line.render(style) for line in self.lines)]
        return "".join(f"{line}\n" for line in lines)

    def __str__(self) -> str:
        return self.render()


class Verdict(Enum):
    """What a reader may conclude from an account; the value is its heading."""

    VERIFIED = "Verified"
    REFUSED = "Not verified: do not rely on this"
    UNCHECKED = "Shown as stored, not verified"


@dataclass(frozen=True, slots=True)
class Section:
    """
    One part of an account.

    ``text`` is preformatted, such as JSON; a ``folded`` section holds details that most readers do not need.
    """

    title: str
    lines: tuple[ReportLine, ...] = ()
    text: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Account:
    """
    The whole account of one exchange or statement, for readers who know neither HTTP nor signatures.

    Attributes:
        title: what it is about.
        verdict: the conclusion.
        summary: the conclusion in sentences.
        sections: who, what, when, the checks, what is not proven, then the folded ones.
    """

    title: str
    verdict: Verdict
    summary: tuple[str, ...]
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class EvidenceSource:
    """
    What was verified, and with what.

    Attributes:
        name: of the file, or of what else it came from.
        size: its octets.
        sha256: their digest.
        verified_at: the time of the verification by the verifier's clock.
        profile: the verifier's profile.
        roots: where the trust anchors come from, one text for each place.
        expected: the identities that the verifier expects; empty means any.
    """

    name: str
    size: int
    sha256: bytes
    verified_at: datetime
    profile: Profile
    roots: tuple[str, ...] = ()
    expected: tuple[SpiffeID, ...] = ()


def statement_report(evidence: StatementEvidence, *, time_asserted: bool = False) -> Report:
    """Describe a verified statement; ``time_asserted`` where it was verified offline, at its own ``iat``."""
    checks = [
        _issuer_line(evidence),
        ReportLine("Issued At", utc_seconds(evidence.issued)),
        ReportLine("Valid Until", utc_seconds(evidence.expires)),
        *_signature_lines(evidence.envelope_evidence, evidence.post_quantum),
        ReportLine("Bound To Connection", "yes" if evidence.bound else "no", mark=OFFLINE if time_asserted else ""),
        *_time_lines(time_asserted),
    ]
    return _statement_lines(
        f"{_STATEMENT_TITLE} {printed_id(evidence.id)}", evidence.claims, checks, self_asserted=evidence.self_issued
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
    title = f"{_RECEIPT_TITLE} {printed_id(evidence.id)}"
    return _receipt_lines(title, evidence.claims, checks, request_body, response_body)


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
        *_check_sections(statement, receipt, source, evidence),
        Section("The file", tuple(_source_lines(source))),
        _limits(statement, receipt),
        *_detail_sections(statement, receipt),
    ]
    artifact = receipt or statement
    title = f"{_RECEIPT_TITLE if receipt is not None else _STATEMENT_TITLE} {printed_id(artifact.id)}"
    return Account(title, Verdict.VERIFIED, tuple(_summary(statement, receipt, source)), tuple(sections))


def stored_account(claims: Mapping[str, object], identifier: str, *, signed: bool) -> Account:
    """
    Give the account of a record as it is stored, of which nothing was verified.

    Args:
        claims: the payload of the record.
        identifier: of the record.
        signed: whether the record is a receipt; one of level ``logRequest`` has no signature.
    """
    title = f"{_RECEIPT_TITLE if signed else _RECORD_TITLE} {printed_id(identifier)}"
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


def stored_report(claims: Mapping[str, object], identifier: str, *, signed: bool, defect: str = "") -> Report:
    """
    Describe a record as it is stored; the lines are those of :func:`receipt_report`.

    Args:
        claims: the payload of the record.
        identifier: of the record.
        signed: whether the record is a receipt; one of level ``logRequest`` has no signature.
        defect: why a receipt could not be verified.
    """
    title = f"{_RECEIPT_TITLE if signed else _RECORD_TITLE} {printed_id(identifier)}"
    found = "NOT VERIFIED" if signed else "none"
    checks = [ReportLine("Signatures", found, mark=printable(defect, _MAX_VALUE) if signed else "level logRequest")]
    return _receipt_lines(title, claims, checks, None, None)


def unverified_statement_report(claims: Mapping[str, object], identifier: str) -> Report:
    """Describe a statement of which nothing was verified; the lines are those of :func:`statement_report`."""
    issuer = claims.get("iss")
    self_issued = issuer == claims.get("sub")
    checks = [
        ReportLine("Issuer", _shown(issuer), mark="self-issued" if self_issued else ""),
        ReportLine("Issued At", _claimed_time(claims, "iat")),
        ReportLine("Valid Until", _claimed_time(claims, "exp")),
        ReportLine("Signatures", "NOT VERIFIED"),
    ]
    title = f"{_STATEMENT_TITLE} {printed_id(identifier)}"
    return _statement_lines(title, claims, checks, self_asserted=self_issued)


def raw_claims(claims: Mapping[str, object]) -> str:
    """Write claims as ASCII JSON, members in the order of the payload."""
    # json leaves DEL as it is, though a terminal acts on it.
    return json.dumps(claims, ensure_ascii=True, indent=2).replace("\x7f", "\\u007f")


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
    response = _object(_object(claims.get("svc")).get("response"))
    word = response.get("ackedBy")
    if isinstance(word, str) and word in ACKNOWLEDGED:
        yield ReportLine("Acknowledgement", ACKNOWLEDGED[word])


def _refused_account(error: Exception | None, source: EvidenceSource, evidence: EvidenceFile | None) -> Account:
    text = printable(error, _MAX_VALUE) if error is not None else "there is no statement"
    advice = error.hint if isinstance(error, SvcError) else ""
    reason = "" if error is None else detail_reason(error)
    failed = [ReportLine("First failure", text, mark=printable(reason), check=CheckResult.FAILED)]
    failed += [ReportLine("What to do", advice)] if advice else []
    sections = [
        Section("What was checked", (*failed, ReportLine("All later checks", _STOPPED, check=CheckResult.NOT_DONE))),
        Section("The file", tuple(_source_lines(source))),
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
    svc = _object(claims.get("svc"))
    if not _is_message(_object(svc.get("request"))):
        return ASSERTED
    return ASSERTED_MESSAGE if _object(svc.get("response")) else ASSERTED_UNACKNOWLEDGED


def _is_message(request: Mapping[str, object]) -> bool:
    """Whether a payload is about a message of MQTT, not about an exchange of HTTP."""
    return "packet" in request


def _told(claims: Mapping[str, object]) -> str:
    """The exchange in one sentence."""
    svc = _object(claims.get("svc"))
    request, response = _object(svc.get("request")), _object(svc.get("response"))
    client, server = (_object(svc.get(name)).get("spiffeID") for name in ("client", "server"))
    if _is_message(request):
        topic = printable(_shown(request.get("topic")), _MAX_TOLD)
        reason = f"acknowledged it with {_shown(response.get('packet'))}, {_shown(response.get('reasonName'))}"
        return (
            f"In its words: {_shown(client) if client else 'a client without certificate'} published to {topic} with "
            f"QoS {_shown(request.get('qos'))} through {_shown(server)}, which received the message at "
            f"{_shown(_object(svc.get('time')).get('received'))} and "
            f"{reason if response else 'did not acknowledge it'}."
        )
    answer = f"answered with status {_shown(response.get('status'))}" if response else "gave no answer"
    path = printable(_shown(request.get("path")), _MAX_TOLD)
    return (
        f"In its words: {_shown(client) if client else 'a client without certificate'} sent "
        f"{_shown(request.get('method'))} {path} to {_shown(server)}, which received it at "
        f"{_shown(_object(svc.get('time')).get('received'))} and {answer}."
    )


def _exchange_sections(claims: Mapping[str, object], evidence: EvidenceFile | None) -> Iterator[Section]:
    svc = _object(claims.get("svc"))
    request, response = _object(svc.get("request")), _object(svc.get("response"))
    yield Section(
        "Who",
        (
            *_peer_lines("Client", svc.get("client")),
            *_peer_lines("Server", svc.get("server")),
            ReportLine("TLS", _tls(svc.get("tls"))),
        ),
    )
    sent = [*_request_head(request), *_body_facts(request, evidence.request_body if evidence else None)]
    seen = [*_response_head(response), *_body_facts(response, evidence.response_body if evidence else None)]
    none = ReportLine("HTTP Response", "none")
    if _is_message(request):
        seen, none = list(_acknowledgement_lines(response)), ReportLine("MQTT Acknowledgement", "none")
    yield Section(
        "What",
        (
            *sent,
            *(seen if response else [none]),
            ReportLine("Outcome", _outcome(svc.get("outcome"))),
            ReportLine("Notarization Level", _shown(svc.get("level"))),
        ),
    )


def _peer_lines(label: str, value: object) -> Iterator[ReportLine]:
    peer = _object(value)
    if not peer:
        yield ReportLine(label, NO_CLIENT)
        return
    yield ReportLine(label, _shown(peer.get("spiffeID")))
    yield ReportLine("Certificate SHA-256", _digest(peer.get("x5t#S256")), 1)


def _body_facts(message: Mapping[str, object], body: bytes | None) -> Iterator[ReportLine]:
    facts = _object(message.get("body"))
    yield from _body_lines(facts, body)
    yield ReportLine("Body SHA-256", _digest(facts.get("sha-256")), 1)


def _outcome(value: object) -> str:
    try:
        return f"{_shown(value)}: the exchange {OUTCOMES[ExchangeOutcome(value)]}"
    except ValueError:
        return _shown(value)


def _digest(value: object) -> str:
    """Write a digest of a payload in hexadecimal digits, as ``sha256sum`` does."""
    try:
        return b64u_decode(value).hex()
    except Base64Refused:
        return _shown(value)


def _statement_facts(statement: StatementEvidence) -> list[ReportLine]:
    return [
        *_workload_lines(statement.claims, self_asserted=statement.self_issued),
        ReportLine("Workload Statement ID", printed_id(statement.id)),
        _issuer_line(statement),
    ]


def _claimed_times(claims: Mapping[str, object]) -> Iterator[ReportLine]:
    time = _object(_object(claims.get("svc")).get("time"))
    yield ReportLine("Request received", _shown(time.get("received")), mark=_SIGNERS_WORD)
    yield ReportLine("Response completed", _shown(time.get("completed")), mark=_SIGNERS_WORD)
    yield ReportLine("Receipt issued", _claimed_time(claims, "iat"), mark=_SIGNERS_WORD)


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


def _source_lines(source: EvidenceSource) -> Iterator[ReportLine]:
    yield ReportLine("File", printable(source.name, _MAX_VALUE))
    yield ReportLine("Verified at", utc_seconds(source.verified_at), mark="the clock of the verifier")
    yield ReportLine("Size", f"{source.size} bytes")
    yield ReportLine("SHA-256", source.sha256.hex())
    yield ReportLine("Profile", f"{source.profile.value}: {_PROFILES[source.profile]}")
    yield from _list_lines("Roots come from", [printable(root, _MAX_VALUE) for root in source.roots], "")


def _check_sections(
    statement: StatementEvidence, receipt: ReceiptEvidence | None, source: EvidenceSource, evidence: EvidenceFile | None
) -> Iterator[Section]:
    if receipt is not None:
        lines = (*_envelope_checks(receipt.envelope_evidence), *_receipt_checks(receipt, statement, evidence))
        yield Section("What was checked: the receipt", lines)
    lines = (*_envelope_checks(statement.envelope_evidence), *_statement_checks(statement, source))
    yield Section("What was checked: the workload statement", lines)


def _envelope_checks(evidence: EnvelopeEvidence) -> Iterator[ReportLine]:
    for chain, ignored in ((evidence.classical, "Classical signature"), (evidence.pq, "Post-quantum signature")):
        if chain is None:
            yield ReportLine(
                ignored, f"not demanded by the profile {evidence.profile.value}", check=CheckResult.NOT_DONE
            )
            continue
        yield ReportLine(
            f"Signature {chain.algorithm.jose}",
            f"valid, by the key of the certificate {certificate_sha256(chain.leaf).hex()}",
            check=CheckResult.PASSED,
        )
        # The verification has read the binding of the ML-DSA leaf alone.
        bound = chain is evidence.pq and binding_of(chain.leaf) is not None
        bundle = "post-quantum" if bound else "SPIFFE"
        yield ReportLine(
            f"Certificate chain {chain.algorithm.jose}",
            f"{len(chain.chain)} certificates, valid at {utc_seconds(evidence.verified_at)}, from {chain.spiffe_id} to "
            f"a root of {chain.spiffe_id.trust_domain} in the verifier's {bundle} bundle"
            + ("; bound to the key of the SVID" if bound else ""),
            check=CheckResult.PASSED,
        )
        yield ReportLine("Root", _name(chain.anchor), 1)
        yield ReportLine("Root SHA-256", certificate_sha256(chain.anchor).hex(), 1)


def _statement_checks(statement: StatementEvidence, source: EvidenceSource) -> Iterator[ReportLine]:
    issuer = "the workload itself" if statement.self_issued else "a central issuer that the verifier accepts"
    yield ReportLine("Issuer", f"{issuer}: {_shown(statement.issuer)}", check=CheckResult.PASSED)
    yield ReportLine(
        "Validity", f"{utc_seconds(statement.not_before)} to {utc_seconds(statement.expires)}", check=CheckResult.PASSED
    )
    if source.expected:
        yield ReportLine("Expected identity", f"{statement.subject} is expected", check=CheckResult.PASSED)
    else:
        yield ReportLine("Expected identity", "none was named: any workload is accepted", check=CheckResult.NOT_DONE)
    yield _done("Bound To Connection", statement.bound, "the key is that of the TLS connection")


def _receipt_checks(
    receipt: ReceiptEvidence, statement: StatementEvidence, evidence: EvidenceFile | None
) -> Iterator[ReportLine]:
    if receipt.batch is not None:
        yield ReportLine(
            "Batch",
            f"{_place(receipt.batch)}: its path leads to the Merkle root that the signatures cover",
            check=CheckResult.PASSED,
        )
    yield ReportLine(
        "Statement",
        f"the receipt names the statement {printed_id(receipt.statement_id)}, is signed by its workload with its key, "
        "and was issued while it was valid",
        check=CheckResult.PASSED,
    )
    yield _done("Compared With Own Exchange", receipt.compared, "request and response are those of the verifier")
    for name, body in (
        ("Request body", evidence and evidence.request_body),
        ("Response body", evidence and evidence.response_body),
    ):
        if body is None:
            yield ReportLine(name, "its octets are not in the file", check=CheckResult.NOT_DONE)
        else:
            yield ReportLine(
                name,
                "the octets in the file have the size and digest that the receipt attests",
                check=CheckResult.PASSED,
            )
    yield ReportLine("Trusted time", "no third party backs the time", check=CheckResult.NOT_DONE)


def _done(label: str, done: bool, text: str) -> ReportLine:
    if done:
        return ReportLine(label, text, check=CheckResult.PASSED)
    return ReportLine(label, "no", mark=OFFLINE, check=CheckResult.NOT_DONE)


def _detail_sections(statement: StatementEvidence, receipt: ReceiptEvidence | None) -> Iterator[Section]:
    parts = (("receipt", receipt), ("workload statement", statement))
    for name, part in parts:
        if part is not None:
            yield Section(f"Certificates of the {name}", tuple(_certificate_lines(part.envelope_evidence)), folded=True)
    if receipt is not None:
        yield from _claims_sections(receipt.claims, "receipt")
    yield Section("Raw Claims (JSON) of the workload statement", text=raw_claims(statement.claims), folded=True)


def _claims_sections(claims: Mapping[str, object], name: str) -> Iterator[Section]:
    svc = _object(claims.get("svc"))
    request = _object(svc.get("request"))
    fields: list[ReportLine] = []
    if _is_message(request):
        yield Section("Properties", tuple(_property_lines(request)), folded=True)
    else:
        for title, message in (("HTTP Request", request), ("HTTP Response", _object(svc.get("response")))):
            fields += [ReportLine(title), *_header_lines("Headers", message.get("headers")), *_trailer_lines(message)]
        yield Section("Headers and trailers", tuple(fields), folded=True)
    yield Section(f"Raw Claims (JSON) of the {name}", text=raw_claims(claims), folded=True)


def _certificate_lines(evidence: EnvelopeEvidence) -> Iterator[ReportLine]:
    for chain in (evidence.classical, evidence.pq):
        for number, certificate in enumerate(chain.chain if chain is not None else ()):
            last = chain is not None and number == len(chain.chain) - 1
            role = "Leaf" if number == 0 else "Root" if last else "Intermediate"
            yield ReportLine(f"{role}", _name(certificate))
            yield ReportLine("Key", certificate_key_algorithm(certificate).name, 1)
            start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
            yield ReportLine("Valid", f"{utc_seconds(start)} to {utc_seconds(end)}", 1)
            yield ReportLine("Serial number", f"{certificate.serial_number:x}", 1)
            yield ReportLine("SHA-256", certificate_sha256(certificate).hex(), 1)


def _name(certificate: x509.Certificate) -> str:
    return _shown(certificate.subject.rfc4514_string())


def _statement_lines(
    title: str, claims: Mapping[str, object], checks: list[ReportLine], *, self_asserted: bool
) -> Report:
    lines = [*_workload_lines(claims, self_asserted=self_asserted), *checks, *_claims_lines(claims)]
    return Report(title, tuple(lines))


def _workload_lines(claims: Mapping[str, object], *, self_asserted: bool) -> list[ReportLine]:
    svc = _object(claims.get("svc"))
    mark = SELF_ASSERTED if self_asserted else ""
    absent = [_shown(name) for name in _array(svc.get("truncated"))]
    return [
        ReportLine("Trust Domain", _shown(svc.get("trustDomain"))),
        ReportLine("SPIFFE ID", _shown(claims.get("sub"))),
        _fact("Namespace", svc.get("namespace"), mark),
        _fact("Service Account", svc.get("serviceAccount"), mark),
        _fact("Pod Name", svc.get("podName"), mark, HOST_NAME if "podName" in absent else ""),
        _fact("Pod UID", svc.get("podUID"), mark),
        *_list_lines("Container Images", [_image(item) for item in _array(svc.get("containers"))], mark),
        *_list_lines("Labels", _pairs(svc.get("labels")), mark),
        *_list_lines("Annotations", _pairs(svc.get("annotations")), mark),
        *_withheld([name for name in absent if not (name == "podName" and svc.get(name))]),
    ]


def _receipt_lines(
    title: str,
    claims: Mapping[str, object],
    checks: list[ReportLine],
    request_body: bytes | None,
    response_body: bytes | None,
) -> Report:
    svc = _object(claims.get("svc"))
    request, response = _object(svc.get("request")), _object(svc.get("response"))
    audience = claims.get("aud")
    listed = audience if isinstance(audience, list) else [audience]
    lines = [
        ReportLine("Issuer", _shown(claims.get("iss"))),
        *_list_lines("Audience", [_shown(item) for item in listed], ""),
        ReportLine("Issued At", _claimed_time(claims, "iat")),
        ReportLine("Workload Statement ID", _shown(printed_id(str(svc.get("workloadStatementID"))))),
        *_request_lines(request, request_body),
        *(_acknowledgement_lines(response) if _is_message(request) else _response_lines(response, response_body)),
        ReportLine("Outcome", _shown(svc.get("outcome"))),
        ReportLine("Notarization Level", _shown(svc.get("level"))),
        ReportLine("Client", _shown(_object(svc.get("client")).get("spiffeID"))),
        ReportLine("Server", _shown(_object(svc.get("server")).get("spiffeID"))),
        ReportLine("TLS", _tls(svc.get("tls"))),
        *checks,
        *_claims_lines(claims),
    ]
    return Report(title, tuple(lines))


def _request_lines(request: Mapping[str, object], body: bytes | None) -> Iterator[ReportLine]:
    yield from _request_head(request)
    if _is_message(request):
        yield from _property_lines(request, 1)
        yield from _body_lines(_object(request.get("body")), body)
    else:
        yield from _message_lines(request, body)


def _request_head(request: Mapping[str, object]) -> Iterator[ReportLine]:
    if _is_message(request):
        yield ReportLine("MQTT Message")
        yield ReportLine("Packet", _shown(request.get("packet")), 1)
        yield ReportLine("Topic", _shown(request.get("topic")), 1)
        yield ReportLine("QoS", _shown(request.get("qos")), 1)
        yield ReportLine("Retain", "yes" if request.get("retain") is True else "no", 1)
        yield ReportLine("Packet Identifier", _shown(request.get("packetId")), 1)
        yield ReportLine("Client Identifier", _shown(request.get("clientId")), 1)
        yield ReportLine("MQTT Version", _shown(request.get("version")), 1)
        return
    query = request.get("query")
    path = _shown(request.get("path"))
    yield ReportLine("HTTP Request")
    yield ReportLine("Method", _shown(request.get("method")), 1)
    if isinstance(query, str):
        yield ReportLine("Path", path + printable(query, _MAX_VALUE), 1)
    else:
        yield ReportLine("Path", path, 1, f"query {_redacted(query)}")
    yield ReportLine("Authority", _shown(request.get("authority")), 1)


def _acknowledgement_lines(response: Mapping[str, object]) -> Iterator[ReportLine]:
    code = response.get("reasonCode")
    yield ReportLine("MQTT Acknowledgement")
    yield ReportLine("Packet", _shown(response.get("packet")), 1)
    number = f"0x{code:02x}" if isinstance(code, int) and not isinstance(code, bool) and code >= 0 else _shown(code)
    yield ReportLine("Reason", f"{_shown(response.get('reasonName'))} ({number})", 1)
    yield ReportLine("Acknowledged By", _shown(response.get("ackedBy")), 1)


def _property_lines(request: Mapping[str, object], depth: int = 0) -> Iterator[ReportLine]:
    pairs = [item for item in _array(request.get("properties")) if isinstance(item, list) and len(item) == 2]
    yield ReportLine("Properties", "" if pairs else ABSENT, depth)
    for name, value in pairs:
        if isinstance(value, list) and len(value) == 2:
            name, value = value
        yield ReportLine(_shown(name), _redacted(value) if isinstance(value, dict) else _shown(value), depth + 1)


def _response_lines(response: Mapping[str, object], body: bytes | None) -> Iterator[ReportLine]:
    yield from _response_head(response)
    yield from _message_lines(response, body)


def _response_head(response: Mapping[str, object]) -> Iterator[ReportLine]:
    yield ReportLine("HTTP Response")
    yield ReportLine("Status Code", _shown(response.get("status")), 1)


def _message_lines(message: Mapping[str, object], body: bytes | None) -> Iterator[ReportLine]:
    yield from _header_lines("Headers", message.get("headers"))
    yield from _body_lines(_object(message.get("body")), body)
    yield from _trailer_lines(message)


def _body_lines(facts: Mapping[str, object], body: bytes | None) -> Iterator[ReportLine]:
    cut = "" if facts.get("complete", True) is True else "incomplete"
    size = facts.get("size")
    yield ReportLine("Body", f"{_shown(size)} bytes", 1, cut)
    attested = (body or b"")[: size if isinstance(size, int) else 0]
    if attested:
        yield ReportLine("", _body_text(attested), 2)


def _trailer_lines(message: Mapping[str, object]) -> Iterator[ReportLine]:
    if _array(message.get("trailers")):
        yield from _header_lines("Trailers", message.get("trailers"))


def _header_lines(label: str, headers: object) -> Iterator[ReportLine]:
    pairs = [item for item in _array(headers) if isinstance(item, list) and len(item) == 2]
    yield ReportLine(label, "" if pairs else ABSENT, 1)
    for name, value in pairs:
        shown = printable(value, _MAX_VALUE) if isinstance(value, str) else _redacted(value)
        yield ReportLine(_shown(name), shown, 2)


def _body_text(body: bytes) -> str:
    head = body[:MAX_BODY_TEXT]
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # Cutting may have split the last character.
        if len(body) <= MAX_BODY_TEXT or error.start < MAX_BODY_TEXT - 3:
            return "(binary data)"
        text = head[: error.start].decode("utf-8")
    return printable(text, MAX_BODY_TEXT) + ("…" if len(body) > MAX_BODY_TEXT else "")


def _issuer_line(evidence: StatementEvidence) -> ReportLine:
    kind = "self-issued" if evidence.self_issued else "central issuer"
    return ReportLine("Issuer", _shown(evidence.issuer), mark=kind)


def _signature_lines(evidence: EnvelopeEvidence, post_quantum: bool) -> Iterator[ReportLine]:
    chains = [chain for chain in (evidence.classical, evidence.pq) if chain is not None]
    yield ReportLine("Signatures", ", ".join(f"{chain.algorithm.jose} valid" for chain in chains))
    yield ReportLine("Post-Quantum", "yes" if post_quantum else "no")


def _batch_lines(batch: BatchPlace | None) -> Iterator[ReportLine]:
    if batch is not None:
        yield ReportLine("Signed Together", _place(batch))


def _place(batch: BatchPlace) -> str:
    return f"receipt {batch.index + 1} of {batch.size} in a batch issued at {utc_seconds(batch.issued)}"


def _time_lines(time_asserted: bool) -> Iterator[ReportLine]:
    if time_asserted:
        yield ReportLine("Time", TIME_ASSERTED)


def _claims_lines(claims: Mapping[str, object]) -> Iterator[ReportLine]:
    yield ReportLine("Raw Claims (JSON)")
    for line in raw_claims(claims).split("\n"):
        yield ReportLine("", line, 1)


def _list_lines(label: str, items: list[str] | None, mark: str) -> Iterator[ReportLine]:
    if not items:
        yield ReportLine(label, ABSENT)
        return
    yield ReportLine(label, mark=mark)
    for item in items:
        yield ReportLine("", item, 1, item=True)


def _fact(label: str, value: object, *marks: str) -> ReportLine:
    shown = _shown(value)
    return ReportLine(label, shown, mark="" if shown == ABSENT else ", ".join(mark for mark in marks if mark))


def _withheld(names: list[str]) -> Iterator[ReportLine]:
    if names:
        yield ReportLine("Absent Or Withheld", ", ".join(names))


def _claimed_time(claims: Mapping[str, object], name: str) -> str:
    try:
        return utc_seconds(Claims(claims).time(name))
    except Malformed:
        return _shown(claims.get(name))


def _image(item: object) -> str:
    container = _object(item)
    digest = container.get("imageDigest")
    suffix = " (init)" if container.get("init") is True else ""
    return f"{_shown(container.get('name'))}: {_shown(container.get('image'))} {_shown(digest)}{suffix}"


def _pairs(value: object) -> list[str]:
    return [f"{_shown(name)}: {_shown(text)}" for name, text in _object(value).items()]


def _tls(value: object) -> str:
    tls = _object(value)
    if not tls:
        return ABSENT
    pq = "post-quantum" if tls.get("pq") is True else "not post-quantum"
    return f"{_shown(tls.get('version'))}, {_shown(tls.get('group'))} ({pq}), {_shown(tls.get('cipher'))}"


def _redacted(value: object) -> str:
    members = _object(value)
    return f"[redacted, {_shown(members.get('redacted'))} {_shown(members.get('digest'))}]"


def _shown(value: object) -> str:
    return ABSENT if value is None or value == "" else printable(value, _MAX_VALUE)


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _array(value: object) -> list[object]:
    return value if isinstance(value, list) else []

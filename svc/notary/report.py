"""
Statements and receipts as people read them.

Owns the words and the order of the lines. Every value from outside is escaped, so that no artifact can move the cursor,
reorder a line or forge one. A caller may style labels when it renders.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from svc.errors import printable
from svc.notary.claims import Claims, utc_seconds
from svc.notary.errors import Malformed
from svc.notary.evidence import TIME_ASSERTED
from svc.notary.ids import printed_id
from svc.notary.receiptcheck import ReceiptEvidence
from svc.notary.statement import StatementEvidence
from svc.notary.verification import EnvelopeEvidence

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
_STATEMENT_TITLE: Final = "Workload Identity Statement"
_RECEIPT_TITLE: Final = "Signed Request Receipt"
_MAX_VALUE: Final = 2048


class Part(Enum):
    """What a piece of a rendered line is, for a caller that styles it."""

    TITLE = "title"
    LABEL = "label"
    VALUE = "value"
    MARK = "mark"


Style = Callable[[Part, str], str]


def _plain(_part: Part, text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class ReportLine:
    """
    One line of a report.

    ``label`` is empty for an item of a list or a line of JSON; ``value`` is already escaped; ``mark`` is a remark on
    the value, for example ``self-asserted``.
    """

    label: str
    value: str = ""
    depth: int = 0
    mark: str = ""

    def render(self, style: Style) -> str:
        """Write the line without its end; ``style`` wraps each piece."""
        pieces = [style(Part.LABEL, f"{self.label}:")] if self.label else []
        pieces += [style(Part.VALUE, self.value)] if self.value else []
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


def statement_report(evidence: StatementEvidence, *, time_asserted: bool = False) -> Report:
    """Describe a verified statement; ``time_asserted`` where it was verified offline, at its own ``iat``."""
    kind = "self-issued" if evidence.self_issued else "central issuer"
    checks = [
        ReportLine("Issuer", _shown(evidence.issuer), mark=kind),
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
        ReportLine(
            "Compared With Own Exchange", "yes" if evidence.compared else "no", mark=OFFLINE if time_asserted else ""
        ),
        *_time_lines(time_asserted),
    ]
    title = f"{_RECEIPT_TITLE} {printed_id(evidence.id)}"
    return _receipt_lines(title, evidence.claims, checks, request_body, response_body)


def raw_claims(claims: Mapping[str, object]) -> str:
    """Write claims as ASCII JSON, members in the order of the payload."""
    # json leaves DEL as it is, though a terminal acts on it.
    return json.dumps(claims, ensure_ascii=True, indent=2).replace("\x7f", "\\u007f")


def _statement_lines(
    title: str, claims: Mapping[str, object], checks: list[ReportLine], *, self_asserted: bool
) -> Report:
    svc = _object(claims.get("svc"))
    mark = SELF_ASSERTED if self_asserted else ""
    absent = [_shown(name) for name in _array(svc.get("truncated"))]
    lines = [
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
        *checks,
        *_claims_lines(claims),
    ]
    return Report(title, tuple(lines))


def _receipt_lines(
    title: str,
    claims: Mapping[str, object],
    checks: list[ReportLine],
    request_body: bytes | None,
    response_body: bytes | None,
) -> Report:
    svc = _object(claims.get("svc"))
    audience = claims.get("aud")
    listed = audience if isinstance(audience, list) else [audience]
    lines = [
        ReportLine("Issuer", _shown(claims.get("iss"))),
        *_list_lines("Audience", [_shown(item) for item in listed], ""),
        ReportLine("Issued At", _issued_at(claims)),
        ReportLine("Workload Statement ID", _shown(printed_id(str(svc.get("workloadStatementID"))))),
        *_request_lines(_object(svc.get("request")), request_body),
        *_response_lines(_object(svc.get("response")), response_body),
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
    query = request.get("query")
    path = _shown(request.get("path"))
    yield ReportLine("HTTP Request")
    yield ReportLine("Method", _shown(request.get("method")), 1)
    if isinstance(query, str):
        yield ReportLine("Path", path + printable(query, _MAX_VALUE), 1)
    else:
        yield ReportLine("Path", path, 1, f"query {_redacted(query)}")
    yield ReportLine("Authority", _shown(request.get("authority")), 1)
    yield from _message_lines(request, body)


def _response_lines(response: Mapping[str, object], body: bytes | None) -> Iterator[ReportLine]:
    yield ReportLine("HTTP Response")
    yield ReportLine("Status Code", _shown(response.get("status")), 1)
    yield from _message_lines(response, body)


def _message_lines(message: Mapping[str, object], body: bytes | None) -> Iterator[ReportLine]:
    yield from _header_lines("Headers", message.get("headers"))
    facts = _object(message.get("body"))
    cut = "" if facts.get("complete", True) is True else "incomplete"
    size = facts.get("size")
    yield ReportLine("Body", f"{_shown(size)} bytes", 1, cut)
    attested = (body or b"")[: size if isinstance(size, int) else 0]
    if attested:
        yield ReportLine("", _body_text(attested), 2)
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


def _signature_lines(evidence: EnvelopeEvidence, post_quantum: bool) -> Iterator[ReportLine]:
    chains = [chain for chain in (evidence.classical, evidence.pq) if chain is not None]
    yield ReportLine("Signatures", ", ".join(f"{chain.algorithm.jose} valid" for chain in chains))
    yield ReportLine("Post-Quantum", "yes" if post_quantum else "no")


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
        yield ReportLine("", f"- {item}", 1)


def _fact(label: str, value: object, *marks: str) -> ReportLine:
    shown = _shown(value)
    return ReportLine(label, shown, mark="" if shown == ABSENT else ", ".join(mark for mark in marks if mark))


def _withheld(names: list[str]) -> Iterator[ReportLine]:
    if names:
        yield ReportLine("Absent Or Withheld", ", ".join(names))


def _issued_at(claims: Mapping[str, object]) -> str:
    try:
        return utc_seconds(Claims(claims).time("iat"))
    except Malformed:
        return _shown(claims.get("iat"))


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

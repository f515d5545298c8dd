"""
Statements and receipts as people read them.

Owns the words and the order of the fields. Every value from outside is escaped, so that no artefact can move the
cursor, reorder a line or forge a field. Knows nothing of colours and terminals: a caller may style labels when it
renders.
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

#: What stands where a fact is absent.
ABSENT: Final = "-"
#: The mark of what the workload says of itself.
SELF_ASSERTED: Final = "self-asserted"
#: The first word of a report whose signatures nobody checked.
#: So much of a body is shown.
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
class Entry:
    """
    One line of a report.

    Attributes:
        label: its label, empty for an item of a list or a line of JSON.
        value: its value, already escaped.
        depth: how deep it stands.
        mark: a remark on the value, for example ``self-asserted``.
    """

    label: str
    value: str = ""
    depth: int = 0
    mark: str = ""

    def render(self, style: Style) -> str:
        """
        Write the line.

        Args:
            style: wraps each piece.

        Returns:
            The line, without its end.
        """
        pieces = [style(Part.LABEL, f"{self.label}:")] if self.label else []
        pieces += [style(Part.VALUE, self.value)] if self.value else []
        pieces += [style(Part.MARK, f"({self.mark})")] if self.mark else []
        return _INDENT * (self.depth + 1) + " ".join(pieces)


@dataclass(frozen=True, slots=True)
class Report:
    """
    A report: a title and its lines.

    Attributes:
        title: the first line.
        entries: the lines.
    """

    title: str
    entries: tuple[Entry, ...]

    def render(self, style: Style = _plain) -> str:
        """
        Write the report.

        Args:
            style: wraps titles, labels, values and marks, for example in colours.

        Returns:
            The text, each line with its end.
        """
        lines = [style(Part.TITLE, self.title), *(entry.render(style) for entry in self.entries)]
        return "".join(f"{line}\n" for line in lines)

    def value_of(self, label: str) -> str:
        """
        Look up a value.

        Args:
            label: the label.

        Returns:
            The value of the first line with it.

        Raises:
            KeyError: where there is none.
        """
        for entry in self.entries:
            if entry.label == label:
                return entry.value
        raise KeyError(label)

    def __str__(self) -> str:
        return self.render()


def statement_report(evidence: StatementEvidence, *, time_asserted: bool = False) -> Report:
    """
    Describe a verified statement.

    Args:
        evidence: the statement.
        time_asserted: whether it was judged offline, at its own ``iat``.

    Returns:
        The report with the fields that the specification names.
    """
    kind = "self-issued" if evidence.self_issued else "central issuer"
    checks = [
        Entry("Issuer", _shown(evidence.issuer), mark=kind),
        Entry("Issued At", utc_seconds(evidence.issued)),
        Entry("Valid Until", utc_seconds(evidence.expires)),
        *_signature_entries(evidence.envelope_evidence, evidence.post_quantum),
        Entry("Bound To Connection", "yes" if evidence.bound else "no"),
        *_time_entries(time_asserted),
    ]
    return _statement_lines(
        f"{_STATEMENT_TITLE} {printed_id(evidence.id)}", evidence.claims, checks, own_word=evidence.self_issued
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
        request_body: the caller's own copy of the request body, after its digest matched; None shows no text.
        response_body: the same for the response.
        time_asserted: whether it was judged offline, at its own ``iat``.

    Returns:
        The report with the fields that the specification names.
    """
    checks = [
        *_signature_entries(evidence.envelope_evidence, evidence.post_quantum),
        Entry("Compared With Own Exchange", "yes" if evidence.compared else "no"),
        *_time_entries(time_asserted),
    ]
    title = f"{_RECEIPT_TITLE} {printed_id(evidence.id)}"
    return _receipt_lines(title, evidence.claims, checks, request_body, response_body)


def raw_claims(claims: Mapping[str, object]) -> str:
    """
    Write claims as ASCII JSON, members in the order of the payload.

    Args:
        claims: the payload as an object.

    Returns:
        Indented JSON in which every character beyond printable ASCII is escaped.
    """
    # json leaves DEL as it is, though a terminal acts on it.
    return json.dumps(claims, ensure_ascii=True, indent=2).replace("\x7f", "\\u007f")


def _statement_lines(title: str, claims: Mapping[str, object], checks: list[Entry], *, own_word: bool) -> Report:
    svc = _object(claims.get("svc"))
    mark = SELF_ASSERTED if own_word else ""
    entries = [
        Entry("Trust Domain", _shown(svc.get("trustDomain"))),
        Entry("SPIFFE ID", _shown(claims.get("sub"))),
        *(
            Entry(label, _shown(svc.get(name)), mark=mark)
            for label, name in (
                ("Namespace", "namespace"),
                ("Service Account", "serviceAccount"),
                ("Pod Name", "podName"),
                ("Pod UID", "podUID"),
            )
        ),
        *_list_entries("Container Images", [_image(item) for item in _array(svc.get("containers"))], mark),
        *_list_entries("Labels", _pairs(svc.get("labels")), mark),
        *_list_entries("Annotations", _pairs(svc.get("annotations")), mark),
        *_withheld(svc.get("truncated")),
        *checks,
        *_claims_entries(claims),
    ]
    return Report(title, tuple(entries))


def _receipt_lines(
    title: str,
    claims: Mapping[str, object],
    checks: list[Entry],
    request_body: bytes | None,
    response_body: bytes | None,
) -> Report:
    svc = _object(claims.get("svc"))
    audience = claims.get("aud")
    listed = audience if isinstance(audience, list) else [audience]
    entries = [
        Entry("Issuer", _shown(claims.get("iss"))),
        *_list_entries("Audience", [_shown(item) for item in listed], ""),
        Entry("Issued At", _issued_at(claims)),
        Entry("Workload Statement ID", _shown(printed_id(str(svc.get("workloadStatementID"))))),
        *_request_entries(_object(svc.get("request")), request_body),
        *_response_entries(_object(svc.get("response")), response_body),
        Entry("Outcome", _shown(svc.get("outcome"))),
        Entry("Notarization Level", _shown(svc.get("level"))),
        Entry("Client", _shown(_object(svc.get("client")).get("spiffeID"))),
        Entry("Server", _shown(_object(svc.get("server")).get("spiffeID"))),
        Entry("TLS", _tls(svc.get("tls"))),
        *checks,
        *_claims_entries(claims),
    ]
    return Report(title, tuple(entries))


def _request_entries(request: Mapping[str, object], body: bytes | None) -> Iterator[Entry]:
    query = request.get("query")
    path = _shown(request.get("path"))
    yield Entry("HTTP Request")
    yield Entry("Method", _shown(request.get("method")), 1)
    if isinstance(query, str):
        yield Entry("Path", path + printable(query, _MAX_VALUE), 1)
    else:
        yield Entry("Path", path, 1, f"query {_redacted(query)}")
    yield Entry("Authority", _shown(request.get("authority")), 1)
    yield from _message_entries(request, body)


def _response_entries(response: Mapping[str, object], body: bytes | None) -> Iterator[Entry]:
    yield Entry("HTTP Response")
    yield Entry("Status Code", _shown(response.get("status")), 1)
    yield from _message_entries(response, body)


def _message_entries(message: Mapping[str, object], body: bytes | None) -> Iterator[Entry]:
    yield from _header_entries("Headers", message.get("headers"))
    facts = _object(message.get("body"))
    cut = "" if facts.get("complete", True) is True else "incomplete"
    yield Entry("Body", f"{_shown(facts.get('size'))} bytes", 1, cut)
    if body:
        yield Entry("", _body_text(body), 2)
    if _array(message.get("trailers")):
        yield from _header_entries("Trailers", message.get("trailers"))


def _header_entries(label: str, headers: object) -> Iterator[Entry]:
    pairs = [item for item in _array(headers) if isinstance(item, list) and len(item) == 2]
    yield Entry(label, "" if pairs else ABSENT, 1)
    for name, value in pairs:
        shown = printable(value, _MAX_VALUE) if isinstance(value, str) else _redacted(value)
        yield Entry(_shown(name), shown, 2)


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


def _signature_entries(evidence: EnvelopeEvidence, post_quantum: bool) -> Iterator[Entry]:
    chains = [chain for chain in (evidence.classical, evidence.pq) if chain is not None]
    yield Entry("Signatures", ", ".join(f"{chain.algorithm.jose} valid" for chain in chains))
    yield Entry("Post-Quantum", "yes" if post_quantum else "no")


def _time_entries(time_asserted: bool) -> Iterator[Entry]:
    if time_asserted:
        yield Entry("Time", TIME_ASSERTED)


def _claims_entries(claims: Mapping[str, object]) -> Iterator[Entry]:
    yield Entry("Raw Claims (JSON)")
    for line in raw_claims(claims).split("\n"):
        yield Entry("", line, 1)


def _list_entries(label: str, items: list[str] | None, mark: str) -> Iterator[Entry]:
    if not items:
        yield Entry(label, ABSENT, mark=mark)
        return
    yield Entry(label, mark=mark)
    for item in items:
        yield Entry("", f"- {item}", 1)


def _withheld(truncated: object) -> Iterator[Entry]:
    names = [_shown(name) for name in _array(truncated)]
    if names:
        yield Entry("Absent Or Withheld", ", ".join(names))


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

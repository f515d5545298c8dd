"""
The lines that reports and accounts have in common: what a statement, a receipt or a record claims.

Every value from outside is escaped, so that no artifact can move the cursor, reorder a line or forge one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from svc.envelope.claims import Claims, utc_seconds
from svc.envelope.errors import Malformed
from svc.errors import printable
from svc.notary.batchcheck import BatchPlace
from svc.notary.statement import StatementEvidence
from svc.reports.report import ABSENT, ReportLine

#: The mark of facts that only the workload itself asserts.
SELF_ASSERTED: Final = "self-asserted"
#: The mark of a host name in place of the name of a pod: the statement has a value and lists the name as absent.
HOST_NAME: Final = "host name"
#: The mark of what only a live connection shows.
OFFLINE: Final = "verified offline"
#: The most characters of a body that are shown.
MAX_BODY_TEXT: Final = 240
STATEMENT_TITLE: Final = "Workload Identity Statement"
RECEIPT_TITLE: Final = "Signed Request Receipt"
RECORD_TITLE: Final = "Unsigned Request Record"
MAX_VALUE: Final = 2048


def raw_claims(claims: Mapping[str, object]) -> str:
    """Write claims as ASCII JSON, members in the order of the payload."""
    # json leaves DEL as it is, though a terminal acts on it.
    return json.dumps(claims, ensure_ascii=True, indent=2).replace("\x7f", "\\u007f")


def is_message(request: Mapping[str, object]) -> bool:
    """Whether a payload is about a message of MQTT, not about an exchange of HTTP."""
    return "packet" in request


def workload_lines(claims: Mapping[str, object], *, self_asserted: bool) -> list[ReportLine]:
    svc = object_of(claims.get("svc"))
    mark = SELF_ASSERTED if self_asserted else ""
    absent = [escaped(name) for name in array_of(svc.get("truncated"))]
    return [
        ReportLine("Trust Domain", escaped(svc.get("trustDomain"))),
        ReportLine("SPIFFE ID", escaped(claims.get("sub"))),
        _fact("Namespace", svc.get("namespace"), mark),
        _fact("Service Account", svc.get("serviceAccount"), mark),
        _fact("Pod Name", svc.get("podName"), mark, HOST_NAME if "podName" in absent else ""),
        _fact("Pod UID", svc.get("podUID"), mark),
        *list_lines("Container Images", [_image(item) for item in array_of(svc.get("containers"))], mark),
        *list_lines("Labels", _pairs(svc.get("labels")), mark),
        *list_lines("Annotations", _pairs(svc.get("annotations")), mark),
        *_withheld([name for name in absent if not (name == "podName" and svc.get(name))]),
    ]


def request_head(request: Mapping[str, object]) -> Iterator[ReportLine]:
    if is_message(request):
        yield ReportLine("MQTT Message")
        yield ReportLine("Packet", escaped(request.get("packet")), 1)
        yield ReportLine("Topic", escaped(request.get("topic")), 1)
        yield ReportLine("QoS", escaped(request.get("qos")), 1)
        yield ReportLine("Retain", "yes" if request.get("retain") is True else "no", 1)
        yield ReportLine("Packet Identifier", escaped(request.get("packetId")), 1)
        yield ReportLine("Client Identifier", escaped(request.get("clientId")), 1)
        yield ReportLine("MQTT Version", escaped(request.get("version")), 1)
        return
    query = request.get("query")
    path = escaped(request.get("path"))
    yield ReportLine("HTTP Request")
    yield ReportLine("Method", escaped(request.get("method")), 1)
    if isinstance(query, str):
        yield ReportLine("Path", path + printable(query, MAX_VALUE), 1)
    else:
        yield ReportLine("Path", path, 1, f"query {redacted_value(query)}")
    yield ReportLine("Authority", escaped(request.get("authority")), 1)


def acknowledgement_lines(response: Mapping[str, object]) -> Iterator[ReportLine]:
    code = response.get("reasonCode")
    yield ReportLine("MQTT Acknowledgement")
    yield ReportLine("Packet", escaped(response.get("packet")), 1)
    number = f"0x{code:02x}" if isinstance(code, int) and not isinstance(code, bool) and code >= 0 else escaped(code)
    yield ReportLine("Reason", f"{escaped(response.get('reasonName'))} ({number})", 1)
    yield ReportLine("Acknowledged By", escaped(response.get("ackedBy")), 1)


def property_lines(request: Mapping[str, object], depth: int = 0) -> Iterator[ReportLine]:
    pairs = [item for item in array_of(request.get("properties")) if isinstance(item, list) and len(item) == 2]
    yield ReportLine("Properties", "" if pairs else ABSENT, depth)
    for name, value in pairs:
        if isinstance(value, list) and len(value) == 2:
            name, value = value
        yield ReportLine(escaped(name), redacted_value(value) if isinstance(value, dict) else escaped(value), depth + 1)


def response_head(response: Mapping[str, object]) -> Iterator[ReportLine]:
    yield ReportLine("HTTP Response")
    yield ReportLine("Status Code", escaped(response.get("status")), 1)


def body_lines(facts: Mapping[str, object], body: bytes | None) -> Iterator[ReportLine]:
    cut = "" if facts.get("complete", True) is True else "incomplete"
    size = facts.get("size")
    yield ReportLine("Body", f"{escaped(size)} bytes", 1, cut)
    attested = (body or b"")[: size if isinstance(size, int) else 0]
    if attested:
        yield ReportLine("", _body_text(attested), 2)


def trailer_lines(message: Mapping[str, object]) -> Iterator[ReportLine]:
    if array_of(message.get("trailers")):
        yield from header_lines("Trailers", message.get("trailers"))


def header_lines(label: str, headers: object) -> Iterator[ReportLine]:
    pairs = [item for item in array_of(headers) if isinstance(item, list) and len(item) == 2]
    yield ReportLine(label, "" if pairs else ABSENT, 1)
    for name, value in pairs:
        shown = printable(value, MAX_VALUE) if isinstance(value, str) else redacted_value(value)
        yield ReportLine(escaped(name), shown, 2)


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


def issuer_line(evidence: StatementEvidence) -> ReportLine:
    kind = "self-issued" if evidence.self_issued else "central issuer"
    return ReportLine("Issuer", escaped(evidence.issuer), mark=kind)


def place_in_batch(batch: BatchPlace) -> str:
    return f"receipt {batch.index + 1} of {batch.size} in a batch issued at {utc_seconds(batch.issued)}"


def list_lines(label: str, items: list[str] | None, mark: str) -> Iterator[ReportLine]:
    if not items:
        yield ReportLine(label, ABSENT)
        return
    yield ReportLine(label, mark=mark)
    for item in items:
        yield ReportLine("", item, 1, item=True)


def _fact(label: str, value: object, *marks: str) -> ReportLine:
    shown = escaped(value)
    return ReportLine(label, shown, mark="" if shown == ABSENT else ", ".join(mark for mark in marks if mark))


def _withheld(names: list[str]) -> Iterator[ReportLine]:
    if names:
        yield ReportLine("Absent Or Withheld", ", ".join(names))


def claimed_time(claims: Mapping[str, object], name: str) -> str:
    try:
        return utc_seconds(Claims(claims).time(name))
    except Malformed:
        return escaped(claims.get(name))


def _image(item: object) -> str:
    container = object_of(item)
    digest = container.get("imageDigest")
    suffix = " (init)" if container.get("init") is True else ""
    return f"{escaped(container.get('name'))}: {escaped(container.get('image'))} {escaped(digest)}{suffix}"


def _pairs(value: object) -> list[str]:
    return [f"{escaped(name)}: {escaped(text)}" for name, text in object_of(value).items()]


def tls_of(value: object) -> str:
    tls = object_of(value)
    if not tls:
        return ABSENT
    pq = "post-quantum" if tls.get("pq") is True else "not post-quantum"
    return f"{escaped(tls.get('version'))}, {escaped(tls.get('group'))} ({pq}), {escaped(tls.get('cipher'))}"


def redacted_value(value: object) -> str:
    members = object_of(value)
    return f"[redacted, {escaped(members.get('redacted'))} {escaped(members.get('digest'))}]"


def escaped(value: object) -> str:
    """Write a value for people, with a mark where it is absent."""
    return ABSENT if value is None or value == "" else printable(value, MAX_VALUE)


def object_of(value: object) -> Mapping[str, object]:
    """The members of an object, none of anything else."""
    return value if isinstance(value, dict) else {}


def array_of(value: object) -> list[object]:
    """The items of an array, none of anything else."""
    return value if isinstance(value, list) else []

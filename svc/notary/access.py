"""
The rules of the notary's HTTP endpoints: what a path names, who may read what, and how responses and errors look.

Owns the reserved prefix, the paths below it, the access rule and the documents that are not artifacts. Does not depend
on connections, stores or signatures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final
from urllib.parse import unquote_to_bytes

from svc import naming
from svc.envelope.envelope import MAX_ENVELOPE
from svc.envelope.ids import parse_artifact_id, parse_nonce
from svc.envelope.profile import Profile
from svc.errors import SvcError
from svc.identity import Matcher, SpiffeID
from svc.notary.errors import NotaryRefused
from svc.notary.receipt import Disclosures
from svc.strictjson import dumps

PROBLEM_TYPE_PREFIX: Final = "urn:svc:notary:"
_PREFIX: Final = naming.NOTARY_PATH.encode("ascii")
_SEGMENTS: Final = _PREFIX.strip(b"/").split(b"/")
_VERSIONED: Final = _PREFIX + b"/v1/"
#: How often a path is decoded again; applications that decode more than once have been seen to do so twice.
_MAX_DECODINGS: Final = 4
#: How long a client waits before it asks for a pending receipt again, in seconds.
RETRY_AFTER: Final = 1
#: Octets of a response to a search beside the summaries.
_SEARCH_FRAME: Final = 256


class NotaryNotFound(NotaryRefused):
    """there is nothing here, or it is not for {requester}"""

    reason = "not_found"
    http_status = 404
    hint = "artifacts are served to the two parties of an exchange and to holders of the grant notary.read"


class Resource(Enum):
    """What a path of the notary names."""

    ROOT = "root"
    CURRENT_STATEMENT = "current_statement"
    STATEMENT = "statement"
    RECEIPT = "receipt"
    RECEIPT_BY_REQUEST = "receipt_by_request"
    RECEIPTS = "receipts"


@dataclass(frozen=True, slots=True)
class NotaryRequest:
    """A parsed path; ``key`` is an identifier, nonce or ``jti``, empty where the path has none."""

    resource: Resource
    key: str = ""


@dataclass(frozen=True, slots=True)
class ReceiptAccess:
    """The permission to read a receipt, with or without the salts of redacted values."""

    disclosures: bool

    def permitted(self, disclosures: Disclosures | None) -> Disclosures | None:
        """Return the stored salts where they may be sent, else None."""
        return disclosures if self.disclosures else None


@dataclass(frozen=True)
class NotaryResponse:
    """A whole response of a notary endpoint: without Content-Length, and with the body also for HEAD."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


def is_notary_path(target_path: bytes) -> bool:
    """
    Return whether a request path, without query, belongs to the notary in any spelling; the one rule for proxy and
    policy.

    Reserved is every path of which a normal form has the prefix: as it is written, percent-decoded, with dot and empty
    segments resolved, with ``\\`` read as ``/``, without path parameters. An application behind the proxy therefore
    never receives a request that it could take for the notary's.
    """
    if b"%" not in target_path:
        return _SEGMENTS[-1] in target_path and _has_reserved_prefix(target_path)
    form = target_path
    for _ in range(_MAX_DECODINGS):
        if _has_reserved_prefix(form):
            return True
        decoded = unquote_to_bytes(form)
        if decoded == form:
            return False
        form = decoded
    return _has_reserved_prefix(form)


def parse_notary_path(path: bytes) -> NotaryRequest:
    """
    Read a raw path of the notary, without query. Only the canonical spelling is served.

    Raises:
        NotaryNotFound: for any other path.
        IdMalformed: for a malformed identifier.
        NonceMalformed: for a malformed nonce.
    """
    if path == _PREFIX:
        return NotaryRequest(Resource.ROOT)
    rest = path.removeprefix(_VERSIONED)
    if rest == b"receipts" and rest != path:
        return NotaryRequest(Resource.RECEIPTS)
    kind, _, key = rest.decode("latin-1").partition("/")
    if rest != path and key:
        if kind == "statements":
            if key == "current":
                return NotaryRequest(Resource.CURRENT_STATEMENT)
            return NotaryRequest(Resource.STATEMENT, parse_artifact_id(key))
        if kind == "receipts":
            by_request = key.removeprefix("by-request/")
            if by_request != key:
                return NotaryRequest(Resource.RECEIPT_BY_REQUEST, parse_nonce(by_request))
            return NotaryRequest(Resource.RECEIPT, parse_artifact_id(key))
    raise NotaryNotFound(requester="anyone")


def check_method(method: str) -> bool:
    """
    Return True for GET, whose response has a body, and False for HEAD.

    Raises:
        EnvelopeError: for all others.
    """
    if method not in ("GET", "HEAD"):
        raise NotaryRefused("method_not_allowed", method=method)
    return method == "GET"


def statement_path(statement_id: str) -> str:
    """Return the path of a statement by its identifier."""
    return f"{naming.NOTARY_PATH}/v1/statements/{statement_id}"


def receipt_path(receipt_id: str) -> str:
    """Return the path of a receipt by its identifier."""
    return f"{naming.NOTARY_PATH}/v1/receipts/{receipt_id}"


def receipts_path() -> str:
    """Return the path of the search for receipts."""
    return f"{naming.NOTARY_PATH}/v1/receipts"


def receipt_location(request_key: str) -> str:
    """
    Return the value of ``Svc-Receipt-Location``: the path by the client's nonce, or by the ``jti`` where it sent none.
    """
    return f"{naming.NOTARY_PATH}/v1/receipts/by-request/{request_key}"


def authorize_receipt_access(
    requester: SpiffeID, *, client: SpiffeID | None, server: SpiffeID | None, readers: Matcher | None = None
) -> ReceiptAccess:
    """
    Authorize the reading of a receipt. Statements need no authorization: every verified peer may read them.

    Args:
        requester: the verified peer that asks.
        client: the receipt's client, None where it had no identity.
        server: the workload itself; None where receipts are served to clients alone.
        readers: identities with the grant ``notary.read``, who do not get the salts.

    Raises:
        NotaryNotFound: for everyone else, as if there were no such receipt.
    """
    if requester in (client, server):
        return ReceiptAccess(disclosures=True)
    if readers is not None and readers.matches(requester):
        return ReceiptAccess(disclosures=False)
    raise NotaryNotFound(requester=requester)


def authorize_receipt_search(requester: SpiffeID, readers: Matcher | None = None) -> SpiffeID | None:
    """
    Authorize the search for receipts, as far as :func:`authorize_receipt_access` permits reading them.

    Returns:
        The party, as client or as server, of all receipts that may be found; None where all may be.
    """
    return None if readers is not None and readers.matches(requester) else requester


@dataclass(frozen=True, slots=True)
class _ProblemKind:
    status: int
    title: str
    retryable: bool = False


_PROBLEMS: Final[dict[str, _ProblemKind]] = {
    "not_found": _ProblemKind(404, "Not found"),
    "id_malformed": _ProblemKind(404, "Malformed identifier"),
    "nonce_malformed": _ProblemKind(400, "Malformed nonce"),
    "query_malformed": _ProblemKind(400, "Malformed query"),
    "level_unknown": _ProblemKind(400, "Unknown notarization level"),
    "method_not_allowed": _ProblemKind(405, "Method not allowed"),
    "replayed": _ProblemKind(409, "Nonce used before"),
    "receipt_pending": _ProblemKind(202, "The exchange still runs", retryable=True),
    "notary_rate": _ProblemKind(429, "Too many requests for the notary", retryable=True),
    "notary_unavailable": _ProblemKind(503, "Notary unavailable", retryable=True),
}
_OTHER_PROBLEM: Final = "Request refused"
_PROBLEM_HEADERS: Final = (
    (b"Content-Type", naming.MEDIA_TYPE_PROBLEM.encode("ascii")),
    (b"Cache-Control", b"no-store"),
)


def problem(
    code: str,
    *,
    status: int | None = None,
    detail: str = "",
    detail_reason: str = "",
    retryable: bool | None = None,
    decision: str = "",
) -> tuple[int, bytes]:
    """
    Write an error as RFC 9457 specifies; returns the status code and the document of type ``application/problem+json``.

    Args:
        code: the reason.
        status: the status code; by default that of the notary's own codes, else 500.
        detail: a sentence for people.
        detail_reason: the precise reason below ``code``.
        retryable: whether the same request may succeed later; by default that of the notary's own codes, else False.
        decision: the id under which the log has the decision of the policies.
    """
    kind = _PROBLEMS.get(code, _ProblemKind(500, _OTHER_PROBLEM))
    http_status = kind.status if status is None else status
    document: dict[str, object] = {
        "type": PROBLEM_TYPE_PREFIX + code,
        "title": kind.title,
        "status": http_status,
        "code": code,
        "retryable": kind.retryable if retryable is None else retryable,
    }
    if detail:
        document["detail"] = detail
    if detail_reason:
        document["detail_reason"] = detail_reason
    if decision:
        document["decision"] = decision
    return http_status, dumps(document)


def problem_response(error: SvcError, *, retry_after: int | None = None) -> NotaryResponse:
    """
    Respond with an error; ``retry_after`` is in seconds. Not found never has a detail, which could reveal that
    something exists.
    """
    quiet = isinstance(error, NotaryNotFound)
    kind = _PROBLEMS.get(error.reason)
    status = error.http_status if kind is None else kind.status
    status, body = problem(error.reason, status=status, detail="" if quiet else str(error))
    headers = [*_PROBLEM_HEADERS]
    if status == 405:
        headers.append((b"Allow", b"GET, HEAD"))
    if retry_after is not None:
        headers.append((b"Retry-After", str(retry_after).encode("ascii")))
    return NotaryResponse(status, tuple(headers), body)


def pending_response() -> NotaryResponse:
    """Respond 202 with ``Retry-After`` for a receipt whose exchange is not complete."""
    status, body = problem("receipt_pending")
    return NotaryResponse(status, (*_PROBLEM_HEADERS, (b"Retry-After", str(RETRY_AFTER).encode("ascii"))), body)


def artifact_response(
    identifier: str, artifact: bytes, *, media_type: str = naming.MEDIA_TYPE_ENVELOPE, immutable: bool = True
) -> NotaryResponse:
    """
    Respond with a statement or receipt.

    Args:
        identifier: of the artifact.
        artifact: its octets.
        media_type: that of an envelope, or ``naming.MEDIA_TYPE_BATCHED_RECEIPT``.
        immutable: False for ``statements/current``, whose artifact changes.
    """
    headers = (
        (b"Content-Type", media_type.encode("ascii")),
        (b"ETag", f'"{identifier}"'.encode("ascii")),
        (b"Cache-Control", b"private, immutable" if immutable else b"private, no-cache"),
    )
    return NotaryResponse(200, headers, artifact)


def search_response(found: Sequence[tuple[Mapping[str, object], str]], following: str | None) -> NotaryResponse:
    """
    Respond with the summaries of receipts, as far as they fit the size of an envelope.

    Args:
        found: summaries, newest first, each with the parameter ``before`` of a search that continues behind it.
        following: the same behind the last, None where nothing is left.
    """
    summaries: list[bytes] = []
    room = MAX_ENVELOPE - _SEARCH_FRAME
    for summary, _position in found:
        octets = dumps(summary)
        room -= len(octets) + 1
        if room < 0:
            following = found[len(summaries) - 1][1]
            break
        summaries.append(octets)
    body = b'{"v":1,"receipts":[%b],"next":%b}' % (b",".join(summaries), dumps(following))
    headers = ((b"Content-Type", b"application/json"), (b"Cache-Control", b"private, no-store"))
    return NotaryResponse(200, headers, body)


def root_response(
    *,
    issuer: SpiffeID,
    profile: Profile,
    algorithms: Sequence[str],
    receipts: bool,
    limits: Mapping[str, int],
    retention: timedelta | None,
) -> NotaryResponse:
    """
    Describe this notary and the endpoints that are served.

    Args:
        issuer: who signs here.
        profile: the profile that its artifacts satisfy.
        algorithms: the ``alg`` of its signatures.
        receipts: whether receipts are served, that is, whether the listener's maximum is ``signRequest``.
        limits: limits in octets, seconds or counts, by name.
        retention: how long receipts are stored, None where none are.
    """
    endpoints = {"currentStatement": statement_path("current"), "statement": statement_path("{id}")}
    if receipts:
        endpoints |= {
            "receipt": receipt_path("{id}"),
            "receiptByRequest": receipt_location("{nonce}"),
            "receipts": receipts_path(),
        }
    document: dict[str, object] = {
        "v": 1,
        "issuer": str(issuer),
        "profiles": [profile.value],
        "algs": list(algorithms),
        "endpoints": endpoints,
        "limits": dict(limits),
    }
    if receipts:
        document["receiptForms"] = [naming.MEDIA_TYPE_ENVELOPE, naming.MEDIA_TYPE_BATCHED_RECEIPT]
    if retention is not None:
        document["retention"] = iso_duration(retention)
    headers = ((b"Content-Type", b"application/json"), (b"Cache-Control", b"private, no-cache"))
    return NotaryResponse(200, headers, dumps(document))


def iso_duration(duration: timedelta) -> str:
    """Write a duration (ISO 8601) as ``P90D``, ``PT12H``, ``P1DT30M``: without months or years, whose length varies."""
    days, rest = duration.days, duration.seconds
    parts = ((rest // 3600, "H"), (rest % 3600 // 60, "M"), (rest % 60, "S"))
    time = "".join(f"{amount}{unit}" for amount, unit in parts if amount)
    date = f"{days}D" if days else ""
    return f"P{date}T{time}" if time else f"P{date or '0D'}"


def _has_reserved_prefix(path: bytes) -> bool:
    plain = [segment.partition(b";")[0] for segment in path.replace(b"\\", b"/").split(b"/")]
    plain = [segment for segment in plain if segment not in (b"", b".")]
    if plain[: len(_SEGMENTS)] == _SEGMENTS:
        return True
    resolved: list[bytes] = []
    for segment in plain:
        if segment != b"..":
            resolved.append(segment)
        elif resolved:
            resolved.pop()
    return resolved[: len(_SEGMENTS)] == _SEGMENTS

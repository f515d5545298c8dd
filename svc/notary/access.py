"""
The notary's HTTP endpoints as rules: which path means what, who may have what, and what an error looks like.

Owns the reserved prefix, the grammar below it, the access rule and the documents that are not artefacts. Knows
nothing of connections, stores or signatures; the proxy carries the answers out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final
from urllib.parse import unquote_to_bytes

from svc import naming
from svc.errors import SvcError
from svc.identity import Matcher, SpiffeID
from svc.notary.errors import NotaryError
from svc.notary.ids import parse_artifact_id, parse_nonce
from svc.notary.profile import Profile
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


class NotaryNotFound(NotaryError):
    """there is nothing here, or it is not for {requester}"""

    reason = "not_found"
    http_status = 404
    hint = "artefacts are served to the two parties of an exchange and to holders of the grant notary.read"


class MethodNotAllowed(NotaryError):
    """the notary endpoints are read with GET or HEAD, not with {method}"""

    reason = "method_not_allowed"
    http_status = 405


class Resource(Enum):
    """What a path of the notary names."""

    ROOT = "root"
    CURRENT_STATEMENT = "current_statement"
    STATEMENT = "statement"
    RECEIPT = "receipt"
    RECEIPT_BY_REQUEST = "receipt_by_request"


@dataclass(frozen=True, slots=True)
class NotaryRequest:
    """
    A parsed path.

    Attributes:
        resource: what it names.
        key: identifier, nonce or ``jti``; empty for root and current statement.
    """

    resource: Resource
    key: str = ""


@dataclass(frozen=True, slots=True)
class ReceiptAccess:
    """
    The permission to have a receipt.

    Attributes:
        disclosures: whether the salts of redacted values go with it.
    """

    disclosures: bool

    def disclosed(self, disclosures: Disclosures | None) -> Disclosures | None:
        """
        Give the salts that may go out.

        Args:
            disclosures: those that are stored.

        Returns:
            The same, or None.
        """
        return disclosures if self.disclosures else None


@dataclass(frozen=True)
class Answer:
    """
    A whole answer of a notary endpoint.

    Attributes:
        status: the status code.
        headers: names and values, without Content-Length.
        body: its octets; for HEAD the proxy leaves them out.
    """

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


def is_reserved(target_path: bytes) -> bool:
    """
    Say whether a request path belongs to the notary, whatever its spelling; the one rule for proxy and policy.

    Reserved is every path of which a normal form falls under the prefix: as it stands, percent-decoded, with dot and
    empty segments resolved, with ``\\`` read as ``/``, without path parameters. An application behind the proxy
    therefore never sees a request that it could take for the notary's.

    Args:
        target_path: the raw path of the request target, without the query.

    Returns:
        True where the notary answers.
    """
    if b"%" not in target_path:
        return _SEGMENTS[-1] in target_path and _falls_under(target_path)
    form = target_path
    for _ in range(_MAX_DECODINGS):
        if _falls_under(form):
            return True
        decoded = unquote_to_bytes(form)
        if decoded == form:
            return False
        form = decoded
    return _falls_under(form)


def parse_notary_path(path: bytes) -> NotaryRequest:
    """
    Read a path of the notary. Only the canonical spelling is served.

    Args:
        path: the raw path, without the query.

    Returns:
        What it names.

    Raises:
        NotaryNotFound: for any other path.
        IdMalformed: for an identifier that is none.
        NonceMalformed: for a nonce that is none.
    """
    if path == _PREFIX:
        return NotaryRequest(Resource.ROOT)
    rest = path.removeprefix(_VERSIONED)
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
    Accept the methods that read.

    Args:
        method: the request's method.

    Returns:
        True where the answer carries its body (GET), False for HEAD.

    Raises:
        MethodNotAllowed: for all others.
    """
    if method not in ("GET", "HEAD"):
        raise MethodNotAllowed(method=method)
    return method == "GET"


def statement_path(statement_id: str) -> str:
    """
    Give the path of a statement.

    Args:
        statement_id: its identifier.

    Returns:
        The path.
    """
    return f"{naming.NOTARY_PATH}/v1/statements/{statement_id}"


def receipt_path(receipt_id: str) -> str:
    """
    Give the path of a receipt.

    Args:
        receipt_id: its identifier.

    Returns:
        The path.
    """
    return f"{naming.NOTARY_PATH}/v1/receipts/{receipt_id}"


def receipt_location(request_key: str) -> str:
    """
    Give what ``Svc-Receipt-Location`` says.

    Args:
        request_key: the client's nonce, or the ``jti`` where it sent none.

    Returns:
        The path of the receipt by its request.
    """
    return f"{naming.NOTARY_PATH}/v1/receipts/by-request/{request_key}"


def admit_to_receipt(
    requester: SpiffeID, *, client: SpiffeID | None, server: SpiffeID, readers: Matcher | None = None
) -> ReceiptAccess:
    """
    Decide who may have a receipt. Statements need no decision: every verified peer may have them.

    Args:
        requester: the verified peer that asks.
        client: the receipt's client, None where it had no identity.
        server: the workload itself.
        readers: identities with the grant ``notary.read``.

    Returns:
        The permission; the salts go to the two parties only.

    Raises:
        NotaryNotFound: for everyone else, as if there were no such receipt.
    """
    if requester in (client, server):
        return ReceiptAccess(disclosures=True)
    if readers is not None and readers.matches(requester):
        return ReceiptAccess(disclosures=False)
    raise NotaryNotFound(requester=requester)


@dataclass(frozen=True, slots=True)
class _ProblemKind:
    status: int
    title: str
    retryable: bool = False


_PROBLEMS: Final[dict[str, _ProblemKind]] = {
    "not_found": _ProblemKind(404, "Not found"),
    "id_malformed": _ProblemKind(404, "Malformed identifier"),
    "nonce_malformed": _ProblemKind(400, "Malformed nonce"),
    "level_unknown": _ProblemKind(400, "Unknown notarization level"),
    "method_not_allowed": _ProblemKind(405, "Method not allowed"),
    "replayed": _ProblemKind(409, "Nonce used before"),
    "receipt_pending": _ProblemKind(202, "The exchange still runs", retryable=True),
    "notary_rate": _ProblemKind(429, "Too many requests for the notary", retryable=True),
    "notary_unavailable": _ProblemKind(503, "Notary unavailable", retryable=True),
}
_OTHER_PROBLEM: Final = "Request refused"


def problem(
    code: str, *, status: int | None = None, detail: str = "", retryable: bool | None = None
) -> tuple[int, bytes]:
    """
    Write an error as RFC 9457 wants it.

    Args:
        code: the reason.
        status: the status code; known for the notary's own codes, else 500.
        detail: a sentence for people.
        retryable: whether the same request may succeed later; known for the notary's own codes, else False.

    Returns:
        The status code and the document of type ``application/problem+json``.
    """
    kind = _PROBLEMS.get(code, _ProblemKind(500, _OTHER_PROBLEM))
    answered = kind.status if status is None else status
    document: dict[str, object] = {
        "type": PROBLEM_TYPE_PREFIX + code,
        "title": kind.title,
        "status": answered,
        "code": code,
        "retryable": kind.retryable if retryable is None else retryable,
    }
    if detail:
        document["detail"] = detail
    return answered, dumps(document)


def problem_answer(error: SvcError, *, retry_after: int | None = None) -> Answer:
    """
    Answer with an error.

    Args:
        error: the reason; its sentence becomes the ``detail``, except where it would tell more than its code.
        retry_after: seconds, for the header of that name.

    Returns:
        The answer.
    """
    quiet = isinstance(error, NotaryNotFound)
    kind = _PROBLEMS.get(error.reason)
    status = error.http_status if kind is None else kind.status
    status, body = problem(error.reason, status=status, detail="" if quiet else str(error))
    headers = [(b"Content-Type", naming.MEDIA_TYPE_PROBLEM.encode("ascii")), (b"Cache-Control", b"no-store")]
    if status == 405:
        headers.append((b"Allow", b"GET, HEAD"))
    if retry_after is not None:
        headers.append((b"Retry-After", str(retry_after).encode("ascii")))
    return Answer(status, tuple(headers), body)


def pending_answer() -> Answer:
    """
    Answer for a receipt whose exchange still runs.

    Returns:
        202 with ``Retry-After``.
    """
    status, body = problem("receipt_pending")
    headers = (
        (b"Content-Type", naming.MEDIA_TYPE_PROBLEM.encode("ascii")),
        (b"Cache-Control", b"no-store"),
        (b"Retry-After", str(RETRY_AFTER).encode("ascii")),
    )
    return Answer(status, headers, body)


def artifact_answer(identifier: str, envelope: bytes, *, immutable: bool = True) -> Answer:
    """
    Answer with a statement or receipt.

    Args:
        identifier: its identifier, which is its entity tag too.
        envelope: the serialized envelope.
        immutable: True where the path names exactly this artefact; False for ``statements/current``.

    Returns:
        200 with the envelope.
    """
    headers = (
        (b"Content-Type", naming.MEDIA_TYPE_ENVELOPE.encode("ascii")),
        (b"ETag", f'"{identifier}"'.encode("ascii")),
        (b"Cache-Control", b"private, immutable" if immutable else b"private, no-cache"),
    )
    return Answer(200, headers, envelope)


def root_answer(
    *,
    issuer: SpiffeID,
    profile: Profile,
    algorithms: Sequence[str],
    receipts: bool,
    limits: Mapping[str, int],
    retention: timedelta | None,
) -> Answer:
    """
    Describe this notary.

    Args:
        issuer: who signs here.
        profile: the profile that its artefacts satisfy.
        algorithms: the ``alg`` of its signatures.
        receipts: whether receipts are served, that is, whether the listener's maximum is ``signRequest``.
        limits: limits in octets, seconds or counts, by name.
        retention: how long receipts are kept, None where none are.

    Returns:
        200 with the document; it lists only endpoints that are served.
    """
    endpoints = {"currentStatement": statement_path("current"), "statement": statement_path("{id}")}
    if receipts:
        endpoints |= {"receipt": receipt_path("{id}"), "receiptByRequest": receipt_location("{nonce}")}
    document: dict[str, object] = {
        "v": 1,
        "issuer": str(issuer),
        "profiles": [profile.value],
        "algs": list(algorithms),
        "endpoints": endpoints,
        "limits": dict(limits),
    }
    if retention is not None:
        document["retention"] = iso_duration(retention)
    headers = ((b"Content-Type", b"application/json"), (b"Cache-Control", b"private, no-cache"))
    return Answer(200, headers, dumps(document))


def iso_duration(duration: timedelta) -> str:
    """
    Write a duration (ISO 8601).

    Args:
        duration: not negative; fractions of a second are cut.

    Returns:
        ``P90D``, ``PT12H``, ``P1DT30M``; never months or years, whose length varies.
    """
    days, rest = duration.days, duration.seconds
    parts = ((rest // 3600, "H"), (rest % 3600 // 60, "M"), (rest % 60, "S"))
    time = "".join(f"{amount}{unit}" for amount, unit in parts if amount)
    date = f"{days}D" if days else ""
    return f"P{date}T{time}" if time else f"P{date or '0D'}"


def _falls_under(path: bytes) -> bool:
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

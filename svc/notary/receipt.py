"""
The receipt of one exchange: its payload, its redaction and its signature.

Owns the payload of format ``svc-receipt/1``, which unsigned records (``logRequest``) share. The server asserts that it
read this request and released this response for sending. Delivery is not attested, the client signs nothing, and a
missing receipt does not prove that nothing was executed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self, TypeVar

from svc import naming
from svc.identity import SpiffeID
from svc.notary.claims import seconds, utc_micros
from svc.notary.envelope import Envelope, sign_envelope
from svc.notary.exchange import (
    EMPTY_BODY,
    BodySummary,
    Peer,
    RawHeaders,
    RecordedExchange,
    TlsFacts,
    carries_no_body,
    recorded_headers,
)
from svc.notary.ids import receipt_id
from svc.notary.keys import Signer
from svc.strictjson import b64u_encode, dumps

#: Salts by side (``request``, ``response``) and by key: the index in ``headers``, ``trailer:<n>`` or ``query``.
Disclosures = Mapping[str, Mapping[str, str]]

#: Headers whose values never enter a receipt.
REDACTED_ALWAYS: Final = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key"})
_SALT_BYTES: Final = 16


@dataclass(frozen=True)
class Redaction:
    """
    What is replaced by a salted digest.

    Attributes:
        headers: lower-case names, beyond those that are always redacted.
        query: whether the query is redacted too.
    """

    headers: frozenset[str] = frozenset()
    query: bool = False

    @classmethod
    def of(cls, headers: Iterable[str] = (), *, query: bool = False) -> Redaction:
        """Redact headers and trailers by names in any case."""
        return cls(frozenset(name.lower() for name in headers), query)

    def covers(self, name: str) -> bool:
        """Return whether the values of a header are redacted, by its lower-case name."""
        return name in REDACTED_ALWAYS or name in self.headers


@dataclass(frozen=True)
class ReceiptDraft:
    """
    A payload to be signed, or to be stored as an unsigned record.

    ``id`` is computed from the payload; ``issued_at`` is ``iat``; ``disclosures`` are the salts of redacted values,
    None without any.
    """

    payload: bytes
    id: str
    jti: str
    issued_at: int
    disclosures: Disclosures | None


class _Redactor:
    """Replaces values by digests and collects the salts of one side."""

    def __init__(self, redaction: Redaction, random: Callable[[int], bytes]) -> None:
        self._redaction = redaction
        self._random = random
        self.salts: dict[str, str] = {}

    def headers(self, raw: RawHeaders, prefix: str) -> list[list[object]]:
        return [
            [name, self._digest(value, f"{prefix}{number}") if self._redaction.covers(name) else value]
            for number, (name, value) in enumerate(recorded_headers(raw))
        ]

    def query(self, query: str) -> object:
        return self._digest(query, "query") if self._redaction.query and query else query

    def _digest(self, value: str, key: str) -> dict[str, str]:
        salt = self._random(_SALT_BYTES)
        self.salts[key] = b64u_encode(salt)
        return {"redacted": "sha-256", "digest": redacted_digest(salt, value)}


def redacted_digest(salt: bytes, value: str) -> str:
    """
    Compute the digest of a redacted value: base64url of SHA-256 over the 16 octets of salt and the value's octets.
    """
    return b64u_encode(hashlib.sha256(salt + value.encode("latin-1")).digest())


def receipt_payload(
    exchange: RecordedExchange,
    statement_id: str,
    issuer: SpiffeID,
    redaction: Redaction,
    random: Callable[[int], bytes],
) -> ReceiptDraft:
    """
    Build the payload of a receipt or of an unsigned record.

    Args:
        exchange: what happened.
        statement_id: the statement of the connection's credentials.
        issuer: the statement's subject.
        redaction: what is replaced by digests.
        random: returns that many secure random octets, for the salts.

    Raises:
        ValueError: for a level below ``logRequest``.
    """
    if not exchange.level.recorded:
        raise ValueError(f"an exchange at level {exchange.level} leaves no record")
    request, response = _Redactor(redaction, random), _Redactor(redaction, random)
    issued_at = seconds(exchange.completed)
    claims = {
        "iss": str(issuer),
        "aud": [naming.AUDIENCE_RECEIPT],
        "iat": issued_at,
        "jti": exchange.jti,
        "svc": {
            "v": 1,
            "workloadStatementID": statement_id,
            "level": exchange.level.value,
            "nonce": exchange.nonce,
            "client": _peer(exchange.client),
            "server": _peer(exchange.server),
            "tls": _tls(exchange.tls),
            "request": _request(exchange, request),
            "response": _response(exchange, response),
            "time": {"received": utc_micros(exchange.received), "completed": utc_micros(exchange.completed)},
            "outcome": exchange.outcome.value,
        },
    }
    payload = dumps(claims)
    salts = {side: made.salts for side, made in (("request", request), ("response", response)) if made.salts}
    return ReceiptDraft(payload, receipt_id(payload), exchange.jti, issued_at, salts or None)


def sign_receipt(draft: ReceiptDraft, signers: Sequence[Signer]) -> Envelope:
    """Sign a receipt; the envelope has no disclosures."""
    return sign_envelope(draft.payload, naming.TYPE_RECEIPT, signers)


class _Extensible(Protocol):
    """A receipt of either form: an envelope, or one of a batch."""

    def with_extra(self, **members: object) -> Self: ...


_Artifact = TypeVar("_Artifact", bound=_Extensible)


def with_disclosures(receipt: _Artifact, disclosures: Disclosures | None) -> _Artifact:
    """Add the salts as the unsigned member ``disclosures``, for one of the two parties of the exchange."""
    if not disclosures:
        return receipt
    return receipt.with_extra(disclosures=disclosures)


def _peer(peer: Peer | None) -> dict[str, str] | None:
    return None if peer is None else {"spiffeID": str(peer.spiffe_id), "x5t#S256": peer.thumbprint}


def _tls(tls: TlsFacts | None) -> dict[str, object] | None:
    if tls is None:
        return None
    return {"version": tls.version, "group": tls.group, "cipher": tls.cipher, "pq": tls.pq}


def _request(exchange: RecordedExchange, redactor: _Redactor) -> dict[str, object]:
    return {
        "method": exchange.method,
        "scheme": exchange.scheme,
        "authority": exchange.authority,
        "path": exchange.path,
        "query": redactor.query(exchange.query),
        "version": exchange.version,
        "headers": redactor.headers(exchange.request_headers, ""),
        "body": _body(exchange.request_body),
        "trailers": redactor.headers(exchange.request_trailers, "trailer:"),
    }


def _response(exchange: RecordedExchange, redactor: _Redactor) -> dict[str, object] | None:
    if exchange.status is None:
        return None
    body = EMPTY_BODY if carries_no_body(exchange.method, exchange.status) else exchange.response_body
    return {
        "status": exchange.status,
        "headers": redactor.headers(exchange.response_headers, ""),
        "body": _body(body),
        "trailers": redactor.headers(exchange.response_trailers, "trailer:"),
    }


def _body(body: BodySummary) -> dict[str, object]:
    return {"size": body.size, "sha-256": b64u_encode(body.sha256), "complete": body.complete}

"""
The receipt of one exchange: its payload, its redaction and its signature.

Owns the payload of format ``svc-receipt/1``; an unsigned record (``logRequest``) has the same one. Knows nothing of
how an exchange is carried or where a receipt is kept. What a receipt says: the server asserts that it read this
request and released this response for sending. Delivery is not attested, the client signs nothing, and no receipt
does not prove that nothing was executed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from svc import naming
from svc.errors import SvcError
from svc.identity import SpiffeID
from svc.notary.claims import seconds, utc_micros
from svc.notary.envelope import Envelope, sign_envelope
from svc.notary.exchange import (
    EMPTY_BODY,
    BodySeen,
    Exchange,
    Outcome,
    Peer,
    RawHeaders,
    SeenExchange,
    TlsFacts,
    carries_no_body,
    prefix_of,
    recorded_headers,
    split_target,
)
from svc.notary.ids import NonceMalformed, parse_nonce, receipt_id
from svc.notary.keys import Signer
from svc.notary.level import Level
from svc.strictjson import b64u_encode, dumps

__all__ = [
    "EMPTY_BODY",
    "BodySeen",
    "Disclosures",
    "Exchange",
    "Level",
    "NonceMalformed",
    "Outcome",
    "Peer",
    "ReceiptDraft",
    "Redaction",
    "SeenExchange",
    "TlsFacts",
    "carries_no_body",
    "parse_nonce",
    "prefix_of",
    "receipt_id",
    "receipt_payload",
    "recorded_headers",
    "redacted_digest",
    "sign_receipt",
    "split_target",
    "with_disclosures",
]

#: Salts by side (``request``, ``response``) and by place: the index in ``headers``, ``trailer:<n>`` or ``query``.
Disclosures = Mapping[str, Mapping[str, str]]

#: Headers whose values never enter a receipt.
REDACTED_ALWAYS: Final = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key"})
_SALT_BYTES: Final = 16
_REDACTED: Final = "sha-256"


class LevelNotRecorded(SvcError):
    """an exchange at level {level} leaves no record"""

    reason = "internal_error"
    level: Level


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
        """
        Take names in any case.

        Args:
            headers: names of headers and trailers.
            query: whether the query is redacted too.

        Returns:
            The redaction.
        """
        return cls(frozenset(name.lower() for name in headers), query)

    def covers(self, name: str) -> bool:
        """
        Say whether the values of a header are redacted.

        Args:
            name: its lower-case name.

        Returns:
            True where they are.
        """
        return name in REDACTED_ALWAYS or name in self.headers


@dataclass(frozen=True)
class ReceiptDraft:
    """
    A payload that waits for its signature, or that is stored as an unsigned record.

    Attributes:
        payload: the octets to sign.
        id: the identifier that follows from them.
        jti: the identifier of the exchange.
        issued_at: ``iat``.
        disclosures: the salts of what was redacted, None where nothing was.
    """

    payload: bytes
    id: str
    jti: str
    issued_at: int
    disclosures: Disclosures | None


class _Redactor:
    """Replaces values by digests and keeps the salts of one side."""

    def __init__(self, redaction: Redaction, random: Callable[[int], bytes]) -> None:
        self._redaction = redaction
        self._random = random
        self.salts: dict[str, str] = {}

    def headers(self, raw: RawHeaders, place: str) -> list[list[object]]:
        return [
            [name, self._digest(value, f"{place}{number}") if self._redaction.covers(name) else value]
            for number, (name, value) in enumerate(recorded_headers(raw))
        ]

    def query(self, query: str) -> object:
        return self._digest(query, "query") if self._redaction.query and query else query

    def _digest(self, value: str, place: str) -> dict[str, str]:
        salt = self._random(_SALT_BYTES)
        self.salts[place] = b64u_encode(salt)
        return {"redacted": _REDACTED, "digest": redacted_digest(salt, value)}


def redacted_digest(salt: bytes, value: str) -> str:
    """
    Compute what stands in the place of a redacted value.

    Args:
        salt: 16 octets.
        value: the value as the receipt would hold it.

    Returns:
        base64url of SHA-256 over salt and the value's octets.
    """
    return b64u_encode(hashlib.sha256(salt + value.encode("latin-1")).digest())


def receipt_payload(
    exchange: Exchange,
    statement_id: str,
    issuer: SpiffeID,
    redaction: Redaction,
    random: Callable[[int], bytes],
) -> ReceiptDraft:
    """
    Build the payload of a receipt or of an unsigned record.

    Args:
        exchange: what happened.
        statement_id: the statement of the connection's generation.
        issuer: the statement's subject.
        redaction: what must not stand in clear.
        random: gives that many secure random octets, for the salts.

    Returns:
        The draft.

    Raises:
        LevelNotRecorded: for a level below ``logRequest``.
    """
    if not exchange.level.recorded:
        raise LevelNotRecorded(level=exchange.level)
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
    """
    Sign a receipt.

    Args:
        draft: its payload.
        signers: the keys of the connection's generation.

    Returns:
        The envelope, without disclosures.
    """
    return sign_envelope(draft.payload, naming.TYPE_RECEIPT, signers)


def with_disclosures(envelope: Envelope, disclosures: Disclosures | None) -> Envelope:
    """
    Add the salts to an envelope that is served to one of the two parties.

    Args:
        envelope: the receipt.
        disclosures: its salts, None where nothing was redacted.

    Returns:
        The envelope with the unsigned member ``disclosures``.
    """
    if not disclosures:
        return envelope
    return envelope.with_extra(disclosures=disclosures)


def _peer(peer: Peer | None) -> dict[str, str] | None:
    return None if peer is None else {"spiffeID": str(peer.spiffe_id), "x5t#S256": peer.thumbprint}


def _tls(tls: TlsFacts | None) -> dict[str, object] | None:
    if tls is None:
        return None
    return {"version": tls.version, "group": tls.group, "cipher": tls.cipher, "pq": tls.pq}


def _request(exchange: Exchange, redactor: _Redactor) -> dict[str, object]:
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


def _response(exchange: Exchange, redactor: _Redactor) -> dict[str, object] | None:
    if exchange.status is None:
        return None
    body = EMPTY_BODY if carries_no_body(exchange.method, exchange.status) else exchange.response_body
    return {
        "status": exchange.status,
        "headers": redactor.headers(exchange.response_headers, ""),
        "body": _body(body),
        "trailers": redactor.headers(exchange.response_trailers, "trailer:"),
    }


def _body(body: BodySeen) -> dict[str, object]:
    return {"size": body.size, "sha-256": b64u_encode(body.sha256), "complete": body.complete}

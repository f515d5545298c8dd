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
from datetime import datetime
from typing import Final, Protocol, Self, TypeVar

from svc import naming
from svc.envelope.claims import seconds, utc_micros
from svc.envelope.envelope import Envelope, sign_envelope
from svc.envelope.ids import receipt_id, record_id
from svc.envelope.keys import Signer
from svc.identity import SpiffeID
from svc.notary.exchange import (
    EMPTY_BODY,
    BodySummary,
    ExchangeOutcome,
    Peer,
    RawHeaders,
    RecordedExchange,
    TlsFacts,
    carries_no_body,
    octets_as_text,
    recorded_headers,
)
from svc.notary.level import Level
from svc.strictjson import b64u_encode
from svc.strictjson import quoted as _quoted

#: Salts by side (``request``, ``response``) and by key: the index in ``headers``, ``trailer:<n>`` or ``query``.
Disclosures = Mapping[str, Mapping[str, str]]

#: Headers whose values never enter a receipt.
REDACTED_ALWAYS: Final = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key"})
_SALT_BYTES: Final = 16
# Reading the value of a member of an enum is two calls of Python code.
_LEVELS: Final = {each: each.value for each in Level}
_OUTCOMES: Final = {each: each.value for each in ExchangeOutcome}
#: Fields whose texts are kept, and octets of a field and of its text: together 1 MiB at most.
_KNOWN_FIELDS: Final = 1024
_KNOWN_OCTETS: Final = 512


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


@dataclass(slots=True)
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


def redacted_digest(salt: bytes, value: str) -> str:
    """
    Compute the digest of a redacted value: base64url of SHA-256 over the 16 octets of salt and the value's octets.
    """
    return b64u_encode(hashlib.sha256(salt + value.encode("latin-1")).digest())


def salted_digest(value: str, key: str, salts: dict[str, str], random: Callable[[int], bytes]) -> str:
    """Redact a value by a new salt, which is added to ``salts`` under ``key``; returns the digest."""
    salt = random(_SALT_BYTES)
    salts[key] = b64u_encode(salt)
    return redacted_digest(salt, value)


class PayloadWriter:
    """
    Writes the payloads of receipts and unsigned records, as text without building a value first.

    Args:
        redaction: what is replaced by digests.
        random: returns that many secure random octets, for the salts.
    """

    def __init__(self, redaction: Redaction, random: Callable[[int], bytes]) -> None:
        self._redaction = redaction
        self._random = random
        #: Fields as texts: most are the same in many messages. None where it depends on the message or is salted.
        self._known: dict[tuple[bytes, bytes], str | None] = {}

    def write(self, exchange: RecordedExchange, statement_id: str, issuer: SpiffeID) -> ReceiptDraft:
        """
        Write the payload of an exchange; ``issuer`` is the subject of the statement of the connection's credentials.

        Raises:
            ValueError: for a level below ``logRequest``.
        """
        asked: dict[str, str] = {}
        answered: dict[str, str] = {}
        request, response = self._request(exchange, asked), self._response(exchange, answered)
        salts = {side: made for side, made in (("request", asked), ("response", answered)) if made}
        return write_draft(exchange, exchange.nonce, statement_id, issuer, request, response, salts)

    def _request(self, exchange: RecordedExchange, salts: dict[str, str]) -> str:
        query = exchange.query
        salted = query and self._redaction.query
        query_text = self._digest(query, "query", salts) if salted else _quoted(query)
        return (
            f'{{"method":{_quoted(exchange.method)},"scheme":"{exchange.scheme}",'
            f'"authority":{_quoted(exchange.authority)},"path":{_quoted(exchange.path)},"query":{query_text},'
            f'"version":"{exchange.version}","headers":{self._headers(exchange.request_headers, "", salts)},'
            f'"body":{body_text(exchange.request_body)},'
            f'"trailers":{self._headers(exchange.request_trailers, "trailer:", salts)}}}'
        )

    def _response(self, exchange: RecordedExchange, salts: dict[str, str]) -> str:
        if exchange.status is None:
            return "null"
        body = EMPTY_BODY if carries_no_body(exchange.method, exchange.status) else exchange.response_body
        return (
            f'{{"status":{exchange.status},"headers":{self._headers(exchange.response_headers, "", salts)},'
            f'"body":{body_text(body)},"trailers":{self._headers(exchange.response_trailers, "trailer:", salts)}}}'
        )

    def _headers(self, raw: RawHeaders, prefix: str, salts: dict[str, str]) -> str:
        if not raw:
            return "[]"
        known = self._known
        try:
            texts = [known[field] for field in raw]
        except KeyError:
            texts = [self._learned(field) for field in raw]
        if None in texts:
            texts = [
                f"[{_quoted(name)},{self._value(name, value, prefix + str(number), salts)}]"
                for number, (name, value) in enumerate(recorded_headers(raw))
            ]
        return f"[{','.join(filter(None, texts))}]"

    def _value(self, name: str, value: str, key: str, salts: dict[str, str]) -> str:
        return self._digest(value, key, salts) if self._redaction.covers(name) else _quoted(value)

    def _learned(self, field: tuple[bytes, bytes]) -> str | None:
        """The text of a field by itself, empty for one that is left out."""
        known = self._known
        if field in known:
            return known[field]
        name = field[0].lower()
        if name == b"connection" or self._redaction.covers(octets_as_text(name)):
            # What Connection names is left out elsewhere.
            return None
        text = "".join(f"[{_quoted(name)},{_quoted(value)}]" for name, value in recorded_headers((field,)))
        # What is left out has no text, but may be large.
        if len(text) <= _KNOWN_OCTETS and len(field[0]) + len(field[1]) <= _KNOWN_OCTETS:
            if len(known) >= _KNOWN_FIELDS:
                known.clear()
            known[field] = text
        return text

    def _digest(self, value: str, key: str, salts: dict[str, str]) -> str:
        return f'{{"redacted":"sha-256","digest":"{salted_digest(value, key, salts, self._random)}"}}'


class RecordedEnds(Protocol):
    """What records of all protocols say."""

    level: Level
    jti: str
    client: Peer | None
    server: Peer
    tls: TlsFacts | None
    received: datetime
    completed: datetime
    outcome: ExchangeOutcome


def write_draft(
    about: RecordedEnds,
    nonce: str | None,
    statement_id: str,
    issuer: SpiffeID,
    request: str,
    response: str,
    salts: Disclosures,
) -> ReceiptDraft:
    """
    Write a payload; ``request`` and ``response`` are JSON.

    Raises:
        ValueError: for a level below ``logRequest``.
    """
    level = about.level
    if not level.recorded:
        raise ValueError(f"an exchange at level {level} leaves no record")
    issued_at = seconds(about.completed)
    payload = (
        f'{{"iss":"{issuer}","aud":["{naming.AUDIENCE_RECEIPT}"],"iat":{issued_at},"jti":{_quoted(about.jti)},'
        f'"svc":{{"v":1,"workloadStatementID":{_quoted(statement_id)},"level":"{_LEVELS[level]}",'
        f'"nonce":{"null" if nonce is None else _quoted(nonce)},"client":{_claim(about.client)},'
        f'"server":{about.server.claim},"tls":{_claim(about.tls)},"request":{request},"response":{response},'
        f'"time":{{"received":"{utc_micros(about.received)}","completed":"{utc_micros(about.completed)}"}},'
        f'"outcome":"{_OUTCOMES[about.outcome]}"}}}}'
    ).encode()
    if level is Level.SIGN_REQUEST:
        name = receipt_id(payload)
    else:
        name = record_id(payload, issued_at * 1000 + about.completed.microsecond // 1000)
    return ReceiptDraft(payload, name, about.jti, issued_at, salts or None)


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


def _claim(about: Peer | TlsFacts | None) -> str:
    return "null" if about is None else about.claim


def body_text(body: BodySummary) -> str:
    complete = "true" if body.complete else "false"
    return f'{{"size":{body.size},"sha-256":"{b64u_encode(body.sha256)}","complete":{complete}}}'

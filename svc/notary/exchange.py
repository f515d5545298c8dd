"""
One HTTP exchange as a receipt describes it, and how its octets are written in the receipt.

Owns the rules that proxy and client must apply alike: which headers are recorded, how octets become characters, where a
target is split, which responses have no body.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final

from svc import naming
from svc.identity.spiffeid import SpiffeID
from svc.notary.level import Level
from svc.strictjson import dumps

RawHeaders = Sequence[tuple[bytes, bytes]]
RecordedHeaders = tuple[tuple[str, str], ...]

#: Hop-by-hop headers (RFC 9110, section 7.6.1) and Host, which is recorded as ``authority``.
_LEFT_OUT: Final = frozenset(
    {b"host", b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
_RESERVED: Final = naming.HEADER_PREFIX.encode("ascii")
_FIRST: Final = _RESERVED[:1]


@dataclass(slots=True)
class BodySummary:
    """
    A body as it was transferred, after chunk decoding and before any content decoding (RFC 9530, Content-Digest).

    Attributes:
        size: octets.
        sha256: their digest, 32 octets.
        complete: whether the end of the body was reached.
    """

    size: int
    sha256: bytes
    complete: bool = True

    @classmethod
    def of(cls, body: bytes, *, complete: bool = True) -> BodySummary:
        """Summarize a body in memory."""
        return cls(size=len(body), sha256=hashlib.sha256(body).digest(), complete=complete)


#: No body at all.
EMPTY_BODY: Final = BodySummary.of(b"")


@dataclass(frozen=True, slots=True)
class TlsFacts:
    """
    What TLS negotiated; ``claim`` is the JSON of it in payloads.

    Attributes:
        version: ``1.3``.
        group: the key exchange group, ``X25519MLKEM768``.
        cipher: the cipher suite.
        pq: whether the group is a post-quantum hybrid.
    """

    version: str
    group: str
    cipher: str
    pq: bool
    claim: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        members = {"version": self.version, "group": self.group, "cipher": self.cipher, "pq": self.pq}
        object.__setattr__(self, "claim", dumps(members).decode())


@dataclass(frozen=True, slots=True)
class Peer:
    """
    One end of a connection: its verified identity, and base64url of the SHA-256 of its leaf certificate; ``claim`` is
    the JSON of it in payloads.
    """

    spiffe_id: SpiffeID
    thumbprint: str
    claim: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        members = {"spiffeID": str(self.spiffe_id), "x5t#S256": self.thumbprint}
        object.__setattr__(self, "claim", dumps(members).decode())


class ExchangeOutcome(Enum):
    """How an exchange ended; the value is the word in the payload."""

    COMPLETE = "complete"
    CLIENT_ABORTED = "client_aborted"
    SERVER_ABORTED = "server_aborted"
    TIMEOUT = "timeout"
    CREDENTIALS_EXPIRED = "credentials_expired"
    UPGRADED = "upgraded"

    # Members are singletons; the default hash is a call of Python code.
    __hash__ = object.__hash__


@dataclass(slots=True)
class RecordedExchange:
    """
    One exchange as the proxy recorded it: the request as the client sent it, the response as the client gets it.

    Texts hold one character U+0000-00FF for each octet. Header lists are raw; they are filtered when the payload is
    made.

    Attributes:
        level: ``LOG_REQUEST`` or ``SIGN_REQUEST``.
        nonce: the client's nonce, None where it sent none.
        jti: the identifier of this exchange, 22 characters.
        client: the verified client, None on a listener without TLS.
        server: the identity that signs.
        tls: None on a listener without TLS.
        scheme: ``https`` or ``http``.
        authority: the octets of Host.
        path: the target before ``?``.
        query: the target from ``?`` on, empty where there is none.
        version: ``1.1`` or ``1.0``.
        status: the status code, None where the client got no response.
        response_headers: as released to the client.
        received: when the request head was complete.
        completed: when the exchange ended.
    """

    level: Level
    nonce: str | None
    jti: str
    client: Peer | None
    server: Peer
    tls: TlsFacts | None
    method: str
    scheme: str
    authority: str
    path: str
    query: str
    version: str
    request_headers: RawHeaders
    request_body: BodySummary
    request_trailers: RawHeaders
    status: int | None
    response_headers: RawHeaders
    response_body: BodySummary
    response_trailers: RawHeaders
    received: datetime
    completed: datetime
    outcome: ExchangeOutcome = ExchangeOutcome.COMPLETE


@dataclass(frozen=True, slots=True)
class ObservedExchange:
    """
    One exchange as the client observed it; a receipt is compared with it.

    Attributes:
        nonce: the nonce that was sent, None where none was.
        started: when the client began to send.
        client: the client's own end of the connection, None where it is not to be compared.
        tls: what TLS negotiated in the client's view, None where it is not to be compared.
        authority: the octets of Host.
        path: the target before ``?``.
        query: the target from ``?`` on.
        request_prefix: returns the SHA-256 of the first n octets of the request body, for a server that responded
            early; None where fewer were sent.
    """

    nonce: str | None
    started: datetime
    client: Peer | None
    tls: TlsFacts | None
    method: str
    authority: str
    path: str
    query: str
    request_headers: RawHeaders
    request_body: BodySummary
    request_prefix: Callable[[int], bytes | None]
    status: int
    response_headers: RawHeaders
    response_body: BodySummary
    request_trailers: RawHeaders = ()
    response_trailers: RawHeaders = ()


def prefix_digests(body: bytes | bytearray) -> Callable[[int], bytes | None]:
    """Return a function of n: the SHA-256 of the first n octets of a body, None where there are fewer."""

    def prefix(size: int) -> bytes | None:
        return hashlib.sha256(body[:size]).digest() if 0 <= size <= len(body) else None

    return prefix


def octets_as_text(octets: bytes) -> str:
    """Write octets as text, one character U+0000-00FF for each; ``text.encode("latin-1")`` reverses it."""
    return octets.decode("latin-1")


def split_target(raw: bytes) -> tuple[str, str]:
    """Split a request target at the first ``?`` into path and query; the query begins with ``?`` or is empty."""
    path, mark, query = raw.partition(b"?")
    return octets_as_text(path), octets_as_text(mark + query)


def recorded_headers(raw: RawHeaders) -> RecordedHeaders:
    """
    Turn raw headers or trailers into the receipt's list; the one rule for proxy and client.

    Left out are hop-by-hop headers, Host, what ``Connection`` names, and ``Svc-*`` (with ``_`` read as ``-``). Names
    become lower-case, values lose SP and HTAB at both ends, order and duplicates stay.
    """
    if not raw:
        return ()
    left_out = _LEFT_OUT
    names = [name.lower() for name, _value in raw]
    if b"connection" in names:
        left_out = left_out | _named_by_connection(names, raw)
    return tuple(
        (octets_as_text(name), octets_as_text(value.strip(b" \t")))
        for name, (_raw_name, value) in zip(names, raw, strict=True)
        # No name but one that begins with its first letter begins with the prefix.
        if name not in left_out and not (name[:1] == _FIRST and name.replace(b"_", b"-").startswith(_RESERVED))
    )


def _named_by_connection(names: list[bytes], raw: RawHeaders) -> frozenset[bytes]:
    return frozenset(
        token.strip(b" \t").lower()
        for name, (_raw_name, value) in zip(names, raw, strict=True)
        if name == b"connection"
        for token in value.split(b",")
    )


def carries_no_body(method: str, status: int) -> bool:
    """Return whether a response to this method has no body whatever its headers announce (RFC 9112, section 6.3)."""
    return method == "HEAD" or 100 <= status < 200 or status in (204, 304)

"""
Writes the vectors of the request receipt: ``receipt/``.

Called by ``make_artifacts.py``, which documents how to run it.
"""

from __future__ import annotations

import gzip
from datetime import timedelta
from typing import Any

from svc import naming
from svc.envelope.envelope import Envelope
from svc.envelope.ids import statement_id
from svc.notary.exchange import EMPTY_BODY, BodySummary, ExchangeOutcome, RecordedExchange, TlsFacts
from svc.notary.receipt import Redaction
from svc.strictjson import b64u_encode
from tests.vectors.artifact_scenario import (
    CLASSICAL,
    CLIENT,
    HYBRID,
    LAST_SECOND,
    NOW,
    REPLICA,
    REQUEST_BODY,
    RESPONSE_BODY,
    SERVER,
    changed,
    exchange,
    peer_of,
    receipt_of,
    seen_json,
    signers_of,
    statement_of,
    write,
)

IAT = int(NOW.timestamp())
COMPRESSED = gzip.compress(b'{"ok":true}' * 20, mtime=0)


def write_one(
    name: str,
    comment: str,
    expect: str,
    envelope: Envelope,
    *,
    seen: RecordedExchange | None = None,
    statement: Envelope | None = None,
    request_body: bytes = REQUEST_BODY,
    response_body: bytes = RESPONSE_BODY,
    base: dict[str, str] = CLASSICAL,
    **lines: str,
) -> None:
    """Write one vector; ``lines`` are header lines with ``_`` for ``-``."""
    headers = {**base, **{key.replace("_", "-"): value for key, value in lines.items()}}
    sections = {
        "statement": (statement or statement_of().envelope).serialize(),
        "receipt": envelope.serialize(),
        "seen": seen_json(seen or exchange()),
        "request-body": request_body,
        "response-body": response_body,
    }
    write(f"receipt/{name}", comment, expect, headers, sections)


def agreed(name: str, comment: str, what: RecordedExchange, **more: Any) -> None:
    """Write a vector in which server and client saw the same."""
    write_one(name, comment, "ok", receipt_of(what), seen=what, **more)


def own(**claims: object) -> Envelope:
    """Create a valid receipt with other claims, signed by the server."""
    return changed(receipt_of(exchange()), naming.TYPE_RECEIPT, signers_of(SERVER), **claims)


def write_signers() -> None:
    """Whose signature is accepted."""
    agreed("good", "An exchange that both saw alike.", exchange())
    statement = statement_of(hybrid=True)
    signed = receipt_of(exchange(), statement=statement, signers=signers_of(SERVER, hybrid=True))
    comment = "Both signatures, as in a running deployment."
    write_one("good-hybrid", comment, "ok", signed, statement=statement.envelope, base=HYBRID)
    agreed("good-no-nonce", "The client sent no nonce.", exchange(nonce=None))
    write_one("good-unknown-members", "Members of a later version are ignored.", "ok", own(svc__later={}, later=1))
    neighbour = receipt_of(exchange(), signers=signers_of(CLIENT), issuer=CLIENT)
    comment = "A valid neighbour signs the receipt in its own name."
    write_one("neighbour-signed", comment, "issuer_mismatch", neighbour)
    forged = changed(receipt_of(exchange()), naming.TYPE_RECEIPT, signers_of(CLIENT))
    write_one("neighbour-in-server-name", "A valid neighbour signs in the server's name.", "issuer_mismatch", forged)
    replica = receipt_of(exchange(server=peer_of(REPLICA)), signers=signers_of(REPLICA))
    comment = "Another replica of the same workload signs: another key than the statement's."
    write_one("replica-signed", comment, "key_mismatch", replica)
    comment = "The certificate that the receipt names is not the one that signed."
    write_one("server-thumbprint", comment, "key_mismatch", receipt_of(exchange(server=peer_of(REPLICA))))
    comment = "The audience of a statement."
    write_one("audience-statement", comment, "audience_mismatch", own(aud=[naming.AUDIENCE_STATEMENT]))


def write_times() -> None:
    """Time of issue, and the statement it refers to."""
    comment = "The statement was no longer valid when the receipt was issued."
    old = changed(
        statement_of().envelope, naming.TYPE_STATEMENT, signers_of(SERVER), nbf=IAT - 900, iat=IAT - 900, exp=IAT - 1
    )
    stale = own(iat=IAT + 60, svc__workloadStatementID=statement_id(old.payload))
    write_one("stale-statement", comment, "time_skew", stale, statement=old)
    other = changed(statement_of().envelope, naming.TYPE_STATEMENT, signers_of(SERVER), svc__node="n2")
    comment = "A receipt under the statement of an earlier generation."
    write_one("other-statement", comment, "statement_mismatch", receipt_of(exchange()), statement=other)
    write_one("iat-ahead", "Issued 61 s after now.", "time_skew", own(iat=IAT + 61))
    write_one("iat-leeway", "Issued 60 s after now.", "ok", own(iat=IAT + 60))
    write_one("iat-year-9999", "Issued in the last second of the year 9999.", "time_skew", own(iat=LAST_SECOND))
    endless = changed(statement_of().envelope, naming.TYPE_STATEMENT, signers_of(SERVER), exp=LAST_SECOND)
    late = own(svc__workloadStatementID=statement_id(endless.payload))
    comment = "Its statement ends in the last second of the year 9999."
    write_one("statement-year-9999", comment, "ok", late, statement=endless)
    write_one("iat-before-start", "Issued 61 s before the exchange began.", "time_skew", own(iat=IAT - 61))


def write_connection() -> None:
    """The facts about the connection."""
    comment = "An unsigned record that somebody signed."
    write_one("level-log", comment, "level_mismatch", own(svc__level="logRequest"))
    write_one("nonce-other", "The nonce of another request.", "nonce_mismatch", own(svc__nonce="A" * 22))
    comment = "The client's end of the connection is not the verifier's."
    write_one("client-other", comment, "request_mismatch{client}", receipt_of(exchange(client=peer_of(REPLICA))))
    downgraded = exchange(tls=TlsFacts("1.3", "X25519", "TLS_AES_256_GCM_SHA384", pq=False))
    comment = "The server saw another key exchange than the client: somebody stands between them."
    write_one("tls-other", comment, "request_mismatch{tls}", receipt_of(downgraded))
    write_one("outcome-unknown", "An outcome that is not known.", "malformed", own(svc__outcome="fine"))


def write_redactions() -> None:
    """Redacted values."""
    secret = exchange(request_headers=(*exchange().request_headers, (b"Authorization", b"Bearer s3cret")))
    agreed("redacted-authorization", "A redacted header, proved by its salt.", secret)
    receipt = receipt_of(secret)
    other = exchange(request_headers=(*exchange().request_headers, (b"Authorization", b"Bearer other")))
    reason = "request_mismatch{header:2}"
    write_one("redacted-authorization-other", "The client sent another value.", reason, receipt, seen=other)
    bare = Envelope(receipt.payload, receipt.signatures)
    write_one("redacted-no-salt", "Without its salt a digest proves nothing.", reason, bare, seen=secret)
    wrong = bare.with_extra(disclosures={"request": {"2": "A" * 22}})
    write_one("redacted-other-salt", "A salt that is not the one.", reason, wrong, seen=secret)
    odd = bare.with_extra(disclosures={"request": {"2": "AA"}})
    write_one("redacted-short-salt", "A salt of one octet.", "malformed", odd, seen=secret)
    salt = "A" * 22
    for name, comment, disclosures in (
        ("array", "Disclosures are an object.", []),
        ("side", "Salts of neither request nor response.", {"proxy": {"2": salt}}),
        ("clear", "A salt for a header that stands in clear.", {"request": {"0": salt, "2": salt}}),
        ("beyond", "A salt for a header that the receipt does not have.", {"request": {"3": salt}}),
        ("spelling", "The place of a header in another spelling.", {"request": {"02": salt}}),
        ("query", "A salt for a query that stands in clear.", {"request": {"query": salt}}),
        ("response", "A salt of the request on the side of the response.", {"response": {"2": salt}}),
        ("number", "A salt that is a number.", {"request": {"2": 1}}),
    ):
        write_one(f"disclosures-{name}", comment, "malformed", bare.with_extra(disclosures=disclosures), seen=secret)
    hidden = receipt_of(exchange(), redaction=Redaction(query=True))
    write_one("redacted-query", "A redacted query, proved by its salt.", "ok", hidden)
    reason = "request_mismatch{query}"
    write_one("redacted-query-other", "The client sent another query.", reason, hidden, seen=exchange(query="?x=2"))


def write_octets() -> None:
    """Which octets a receipt contains, and which not."""
    latin1 = exchange(path="/caf\xe9", request_headers=((b"X-Name", b"caf\xe9"),))
    agreed("latin1", "Octets beyond ASCII are the characters U+0080-00FF.", latin1)
    utf8 = exchange(path="/caf\xe9", request_headers=((b"X-Name", "café".encode()),))
    comment = "The server recorded the UTF-8 of the same word."
    write_one("latin1-as-utf8", comment, "request_mismatch{header:0}", receipt_of(utf8), seen=latin1)
    bare = exchange(query="?")
    agreed("empty-query", "A bare question mark is a query.", bare)
    comment = "The server dropped the bare question mark."
    write_one("empty-query-dropped", comment, "request_mismatch{query}", receipt_of(exchange(query="")), seen=bare)
    padded = exchange(response_headers=((b"X-Pad", b" \t value \t"), (b"X-Empty", b"  ")))
    trimmed = exchange(response_headers=((b"X-Pad", b"value"), (b"X-Empty", b"")))
    comment = "SP and HTAB at both ends of a value do not count."
    write_one("trailing-ows", comment, "ok", receipt_of(trimmed), seen=padded)
    hop = ((b"X-Hop", b"1"), (b"Connection", b"close, x-hop"))
    named = exchange(request_headers=(*exchange().request_headers, *hop))
    write_one("connection-named", "What Connection names is left out.", "ok", receipt_of(exchange()), seen=named)
    kept = exchange(request_headers=(*exchange().request_headers, (b"X-Hop", b"1")))
    comment = "The server recorded a header that Connection names."
    write_one("connection-named-kept", comment, "request_mismatch{header:2}", receipt_of(kept), seen=named)
    swapped = exchange(response_headers=tuple(reversed(exchange().response_headers)))
    comment = "The order of headers counts."
    write_one("header-order", comment, "response_mismatch{header:0}", receipt_of(swapped))
    twice = exchange(response_headers=(*exchange().response_headers, (b"X-A", b"1"), (b"X-A", b"1")))
    once = exchange(response_headers=(*exchange().response_headers, (b"X-A", b"1")))
    comment = "Duplicates count."
    write_one("header-twice", comment, "response_mismatch{header:3}", receipt_of(twice), seen=once)
    for part, field, value in (
        ("method", "method", "post"),
        ("authority", "authority", "API.pay:8443"),
        ("path", "path", "/v1/./transfer"),
    ):
        comment = f"The server recorded a normalised or altered {part}."
        receipt = receipt_of(exchange(**{field: value}))
        write_one(f"{part}-altered", comment, f"request_mismatch{{{part}}}", receipt)


def write_bodies() -> None:
    """Which octets of a body count."""
    empty: dict[str, Any] = {"request_body": EMPTY_BODY, "response_body": EMPTY_BODY}
    nothing: dict[str, Any] = {"request_body": b"", "response_body": b""}
    agreed("head", "An answer to HEAD announces a length and has no body.", exchange(method="HEAD", **empty), **nothing)
    agreed("not-modified", "So does 304.", exchange(method="GET", status=304, **empty), **nothing)
    announced = receipt_of(exchange(method="HEAD", **empty))
    digest = b64u_encode(BodySummary.of(RESPONSE_BODY).sha256)
    body = {"size": len(RESPONSE_BODY), "sha-256": digest, "complete": True}
    counted = changed(announced, naming.TYPE_RECEIPT, signers_of(SERVER), svc__response__body=body)
    comment = "The server counted the body that HEAD leaves out."
    head = exchange(method="HEAD", **empty)
    write_one("head-counted", comment, "response_mismatch{body}", counted, seen=head, **nothing)
    comment = "Octets arrived behind an answer that has no body, and no receipt attests them."
    write_one("head-with-body", comment, "response_mismatch{body}", announced, seen=head, request_body=b"")
    ranged = exchange(
        status=206,
        response_headers=((b"Content-Encoding", b"gzip"), (b"Content-Range", b"bytes 0-19/40")),
        response_body=BodySummary.of(COMPRESSED[:20]),
    )
    comment = "A range of a compressed body: the octets as transferred, never decompressed."
    agreed("206-gzip", comment, ranged, response_body=COMPRESSED[:20])
    unpacked = receipt_of(exchange(response_body=BodySummary.of(gzip.decompress(COMPRESSED))))
    comment = "The server digested the decompressed body."
    zipped = exchange(response_body=BodySummary.of(COMPRESSED))
    write_one("gzip-decompressed", comment, "response_mismatch{body}", unpacked, seen=zipped, response_body=COMPRESSED)


def write_ends() -> None:
    """Early responses, trailers and how an exchange ends."""
    early = exchange(status=413, request_body=BodySummary.of(REQUEST_BODY[:4], complete=False))
    agreed("early-413", "The server answered after 4 octets of the request body.", early)
    lied = exchange(status=413, request_body=BodySummary.of(b"none", complete=False))
    comment = "The first octets that the server names are not those that were sent."
    write_one("early-413-other", comment, "request_mismatch{body}", receipt_of(lied), seen=early)
    comment = "The server claims to have read more than was sent."
    more = exchange(status=413, request_body=BodySummary.of(REQUEST_BODY + b"x", complete=False))
    write_one("early-413-more", comment, "request_mismatch{body}", receipt_of(more), seen=early)
    trailers = exchange(request_trailers=((b"X-Sent", b"1"),), response_trailers=((b"X-Sum", b"2"), (b"Svc-X", b"3")))
    agreed("trailers", "Trailers of both sides are compared like headers.", trailers)
    comment = "A trailer did not arrive."
    lost = exchange(request_trailers=((b"X-Sent", b"1"),))
    write_one("trailers-lost", comment, "response_mismatch{trailer:0}", receipt_of(trailers), seen=lost)
    upgrade = ((b"Connection", b"upgrade"), (b"Upgrade", b"websocket"), (b"Sec-WebSocket-Version", b"13"))
    switched = exchange(
        method="GET",
        request_headers=upgrade,
        request_body=EMPTY_BODY,
        status=101,
        response_headers=upgrade[:2],
        response_body=EMPTY_BODY,
        outcome=ExchangeOutcome.UPGRADED,
    )
    comment = "The receipt covers the 101 exchange, not what follows."
    agreed("upgraded", comment, switched, request_body=b"", response_body=b"")
    cut = exchange(
        response_body=BodySummary.of(RESPONSE_BODY, complete=False), outcome=ExchangeOutcome.CREDENTIALS_EXPIRED
    )
    comment = "An endless stream was cut with its generation: the response is not whole."
    write_one("stream-cut", comment, "response_mismatch{body}", receipt_of(cut), response_complete="false")
    comment = "The server says the response was whole, the client saw it cut."
    write_one("response-cut", comment, "response_mismatch{body}", receipt_of(exchange()), response_complete="false")
    aborted = exchange(status=None, outcome=ExchangeOutcome.CLIENT_ABORTED)
    comment = "The server saw the client go before any answer, the client got one."
    write_one("unanswered", comment, "response_mismatch{status}", receipt_of(aborted))
    late = exchange(completed=NOW + timedelta(microseconds=999999))
    agreed("iat-floor", "iat is the floor of the end.", late)


def write_all() -> None:
    """Write all vectors of the folder."""
    write_signers()
    write_times()
    write_connection()
    write_redactions()
    write_octets()
    write_bodies()
    write_ends()

"""
The proxy's own answers: problem documents with constant reasons (RFC 9457).

Owns their octets. What a peer sent is never repeated to it, so that nothing leaks and nothing is reflected.
"""

from __future__ import annotations

from http import HTTPStatus

from svc.errors import SvcError
from svc.naming import MEDIA_TYPE_PROBLEM
from svc.notary.access import problem
from svc.proxy.errors import ProxyError
from svc.wire.fields import Field, encode_fields
from svc.wire.http1 import ResponseHead


def problem_body(error: SvcError, decision: str = "") -> bytes:
    """Write the problem document of an error, with the id of the decision that refused the request."""
    status, code = error.http_status, error.reason
    if not isinstance(error, ProxyError):
        return problem(code, status=status, retryable=False, decision=decision)[1]
    detail = str(error) if error.shows_detail else ""
    return problem(code, status=status, detail=detail, detail_reason=error.detail_reason, retryable=error.retryable)[1]


def problem_fields(error: SvcError) -> list[Field]:
    """Return the fields of an error's answer besides framing."""
    fields: list[Field] = [(b"Content-Type", MEDIA_TYPE_PROBLEM.encode("ascii"))]
    if error.http_status in (429, 503):
        fields.append((b"Retry-After", b"%d" % getattr(error, "retry_after", 1)))
    elif error.http_status == 405:
        fields.append((b"Allow", b"OPTIONS"))
    return fields


def own_head(status: int, fields: list[Field], length: int) -> ResponseHead:
    """Make the head of an answer, to be treated like one of the application."""
    return ResponseHead(
        version="1.1",
        fields=[*fields, (b"Content-Length", b"%d" % length)],
        options=frozenset(),
        keep_alive=True,
        length=length,
        chunked=False,
        upgrade=False,
        status=status,
        phrase=_phrase(status).encode("ascii"),
        until_close=False,
    )


def answer(status: int, fields: list[Field], body: bytes, *, head_only: bool, lines: bytes) -> bytes:
    """Write a complete answer; ``lines`` are further header lines, each with CRLF."""
    return b"HTTP/1.1 %d %b\r\n%bContent-Length: %d\r\n%b\r\n%b" % (
        status,
        _phrase(status).encode("ascii"),
        encode_fields(fields),
        len(body),
        lines,
        b"" if head_only else body,
    )


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"

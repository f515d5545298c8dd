"""
The heads that the proxy sends on, and how the body behind a response head is framed (RFC 9112 section 6).

Pure: from a parsed head to octets.
"""

from __future__ import annotations

from enum import Enum

from svc.wire.fields import encode_fields
from svc.wire.http1 import RequestHead, ResponseHead


class Framing(Enum):
    """What ends the body of a response on the client's connection."""

    NONE = "there is no body"
    LENGTH = "a number of octets"
    CHUNKED = "the last chunk"
    CLOSE = "the end of the connection"


# Looking up a member of an enum costs three times what comparing it does, and each response does so several times.
_NONE, _LENGTH, _CHUNKED, _CLOSE = Framing


def request_head(head: RequestHead, added: bytes) -> bytes:
    """
    Write the head of a request for the next hop.

    Args:
        head: as received; target, Host and the order of fields stay.
        added: the lines that the proxy adds, each with CRLF.

    Returns:
        The head with its empty line.
    """
    if head.chunked:
        added += b"Transfer-Encoding: chunked\r\n"
    if head.upgrade:
        added += b"Connection: upgrade\r\n" + encode_fields([(b"Upgrade", value) for value in head.values(b"upgrade")])
    elif b"te" in head.options and any(_names_trailers(value) for value in head.values(b"te")):
        added += b"TE: trailers\r\nConnection: te\r\n"
    return b"%b %b HTTP/1.1\r\n%b%b\r\n" % (head.method, head.target, head.end_to_end_lines, added)


def head_octets(head: RequestHead) -> int:
    """Count the octets of a request head as ``limits.head`` does."""
    line = len(head.method) + len(head.target) + len(b"  HTTP/1.1\r\n\r\n")
    return line + sum(len(name) + len(value) + len(b": \r\n") for name, value in head.fields)


def _names_trailers(value: bytes) -> bool:
    return any(part.split(b";")[0].strip().lower() == b"trailers" for part in value.split(b","))


def response_framing(head: ResponseHead, method: bytes, version: str) -> Framing:
    """
    Say what ends the body of a response on the client's connection.

    Args:
        head: as the application sent it.
        method: the method of the request.
        version: the client's HTTP version; 1.0 knows no chunks.

    Returns:
        The framing.
    """
    if method == b"HEAD" or head.status < 200 or head.status in (204, 304):
        return _NONE
    if head.chunked or head.until_close:
        return _CHUNKED if version == "1.1" else _CLOSE
    return _LENGTH if head.length else _NONE


def response_head(head: ResponseHead, framing: Framing, *, version: str, close: bool, added: bytes) -> bytes:
    """
    Write the head of a response for the client.

    Args:
        head: as the application sent it.
        framing: what ends its body.
        version: the client's HTTP version.
        close: whether the connection ends after this response.
        added: the lines that the proxy adds, each with CRLF.

    Returns:
        The head with its empty line.
    """
    if framing is _CHUNKED:
        added += b"Transfer-Encoding: chunked\r\n"
    if head.status == 101:
        added += b"Connection: upgrade\r\n" + encode_fields([(b"Upgrade", value) for value in head.values(b"upgrade")])
    elif close or framing is _CLOSE:
        added += b"Connection: close\r\n"
    elif version == "1.0":
        added += b"Connection: keep-alive\r\n"
    return b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (head.status, head.phrase, head.end_to_end_lines, added)


def interim_head(head: ResponseHead) -> bytes:
    """
    Write a 1xx response for the client.

    Args:
        head: as the application sent it.

    Returns:
        The head with its empty line, without reserved fields.
    """
    return b"HTTP/1.1 %d %b\r\n%b\r\n" % (head.status, head.phrase, head.end_to_end_lines)

"""
What is sent: method, fields and body of one request.

Owns the fields that are written in any case and those that nobody may give: none of the user's may frame the message or
be one that is reserved for the proxy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from svc import __version__, naming
from svc.client.errors import RequestInvalid
from svc.client.sending import RequestStream
from svc.client.target import Target
from svc.notary.exchange import BodySummary, prefix_digests, split_target
from svc.notary.level import Level
from svc.wire.fields import Field, classify, encode_fields, is_reserved
from svc.wire.http1 import is_token

#: The largest body that is sent from memory.
MAX_DATA: Final = 256 * 2**20
#: Fields that frame the message or belong to the connection; svc writes the ones it needs.
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"expect", b"keep-alive", b"http2-settings"})
#: Methods whose requests announce an empty body (RFC 9110 section 8.6).
_ANNOUNCE_EMPTY: Final = frozenset({"POST", "PUT", "PATCH"})
_HOST: Final = re.compile(rb"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?\Z")
_USER_AGENT: Final = f"svc/{__version__}".encode("ascii")
#: Methods of requests that may be sent again (RFC 9110 section 9.2.2).
_IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})


@dataclass(frozen=True, slots=True)
class Request:
    """
    One request: its fields in order, its body, and the level and the nonce that its fields ask for.

    Args:
        body: all of it, empty where it is streamed.
        stream: the body while it is sent.
    """

    target: Target
    method: str
    fields: tuple[Field, ...]
    body: bytes
    level: Level
    nonce: str
    stream: RequestStream | None = None

    def encoded(self) -> bytes:
        """All octets of the request before a streamed body."""
        start = b"%b %b HTTP/1.1\r\n" % (self.method.encode("ascii"), self.target.path.encode("ascii"))
        return start + encode_fields(self.fields) + b"\r\n" + self.body

    @property
    def authority(self) -> str:
        """The value of the Host field."""
        return next(value for name, value in self.fields if name.lower() == b"host").decode("latin-1")

    @property
    def split_path(self) -> tuple[str, str]:
        """Path and query, as a receipt holds them."""
        return split_target(self.target.path.encode("ascii"))

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again where a connection that was kept open turns out to be closed."""
        return self.stream is None and self.method in _IDEMPOTENT

    def sent_body(self) -> tuple[BodySummary, Callable[[int], bytes | None], bytes | None]:
        """Describe the body as sent: summary, digests of its beginnings, and its octets where they were kept."""
        if self.stream is None:
            return BodySummary.of(self.body), prefix_digests(self.body), self.body
        kept = self.stream.beginning
        summary = self.stream.summary()
        return summary, self.stream.prefix, kept if len(kept) == summary.size else None


def build_request(
    target: Target,
    *,
    method: str,
    fields: Sequence[Field],
    level: Level,
    nonce: str,
    body: bytes = b"",
    stream: RequestStream | None = None,
) -> Request:
    """
    Build a request of checked fields, with those that svc writes itself.

    Args:
        fields: of the user, as :func:`check_field` returns them.
        body: empty for none.
        nonce: 22 characters.

    Raises:
        RequestInvalid: a method that cannot be sent, or Host twice.
    """
    _check_method(method)
    whole = _with_defaults(fields, target.authority.encode("ascii"))
    length = len(body) if stream is None else stream.length
    if length is None:
        whole.append((b"Transfer-Encoding", b"chunked"))
    elif length or stream is not None or method in _ANNOUNCE_EMPTY:
        whole.append((b"Content-Length", b"%d" % length))
    whole.append((naming.HEADER_LEVEL.encode("ascii"), level.value.encode("ascii")))
    whole.append((naming.HEADER_NONCE.encode("ascii"), nonce.encode("ascii")))
    return Request(target, method, tuple(whole), body, level, nonce, stream)


def artifact_request(authority: str, path: str) -> bytes:
    """The octets of the request for an artifact, with the Host field of the exchange."""
    fields = (
        (b"Host", authority.encode("latin-1")),
        (b"User-Agent", _USER_AGENT),
        (b"Accept", naming.MEDIA_TYPE_ENVELOPE.encode("ascii")),
    )
    return b"GET %b HTTP/1.1\r\n" % path.encode("ascii") + encode_fields(fields) + b"\r\n"


def check_field(name: bytes, value: bytes) -> Field:
    """
    Check a field of the user.

    Raises:
        RequestInvalid: no name, a control character, a field that svc or the proxy writes itself.
    """
    shown = name.decode("utf-8", "backslashreplace")
    if not is_token(name):
        raise RequestInvalid(f'"{shown}" is no name of a header', "a name is a word such as Accept or X-Trace")
    if any((octet < 0x20 and octet != 0x09) or octet == 0x7F for octet in value):
        raise RequestInvalid(f"the value of the header {shown} holds a control character", "remove it")
    lower, connection = classify(name)
    if is_reserved(lower):
        raise RequestInvalid(f"the header {shown} is reserved for the proxy", "svc sends what the proxy needs itself")
    # Credentials for a proxy (RFC 9110 section 11.7.1) are hop-by-hop, but they frame nothing.
    if (connection and lower != b"proxy-authorization") or lower in _FRAMING:
        raise RequestInvalid(f"the header {shown} frames the message and is written by svc itself", "leave it out")
    if lower == b"host" and not _HOST.match(value):
        raise RequestInvalid("the value of the header Host is no host and port", "write Host: name:port")
    return name, value


def _check_method(method: str) -> None:
    if not method.isascii() or not is_token(method.encode("ascii")):
        raise RequestInvalid(f'"{method}" is no request method', "a method is a word such as GET or PUT")
    if method == "CONNECT":
        raise RequestInvalid("the method CONNECT opens a tunnel, not a request", "use another method")


def _with_defaults(given: Sequence[Field], authority: bytes) -> list[Field]:
    names = [name.lower() for name, _value in given]
    if names.count(b"host") > 1:
        raise RequestInvalid("the header Host was given twice", "give it once")
    host = next((value for name, value in given if name.lower() == b"host"), authority)
    fields: list[Field] = [(b"Host", host)]
    for name, value in ((b"User-Agent", _USER_AGENT), (b"Accept", b"*/*")):
        if name.lower() not in names:
            fields.append((name, value))
    return fields + [field for field in given if field[0].lower() != b"host"]

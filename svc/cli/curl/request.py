"""
What is sent: method, fields and body of one request.

Owns the rules of ``-X``, ``-H`` and ``-d`` with its variants. Non-empty data turns GET into POST and leaves another
method alone; data that is a JSON object or array gets a content type unless the user gave one; no field of the user's
may frame the message or be one that is reserved for the proxy. As with curl, several pieces of data are joined by ``&``
in the order of the command line, ``@FILE`` is the content of a file and ``@-`` standard input, of which ``-d`` removes
CR, LF and NUL; ``--data-raw`` is literal.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from svc import __version__, naming
from svc.cli.curl.target import Target
from svc.cli.errors import CliError, FileUnreadable, UsageRefused
from svc.cli.flags import DataPiece
from svc.notary.exchange import split_target
from svc.notary.level import Level
from svc.wire.fields import Field, classify, encode_fields, is_reserved
from svc.wire.http1 import is_token

#: The largest body that is sent: it is kept in memory, since its digest is compared with that of the receipt.
MAX_DATA: Final = 256 * 2**20
_STANDARD_INPUT: Final = "standard input"
_REMOVED: Final = b"\r\n\0"
#: Fields that frame the message or belong to the connection; svc writes the ones it needs.
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"expect", b"keep-alive", b"http2-settings"})
#: Methods whose requests announce an empty body (RFC 9110 section 8.6).
_ANNOUNCE_EMPTY: Final = frozenset({"POST", "PUT", "PATCH"})
_HOST: Final = re.compile(rb"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?\Z")
_USER_AGENT: Final = f"svc/{__version__}".encode("ascii")


class DataUnreadable(FileUnreadable):
    """{path} cannot be read: {detail}"""

    hint = "{flag} @FILE sends the content of a file, as with curl; --data-raw sends text that begins with @"


@dataclass(frozen=True, slots=True)
class Request:
    """One request: its fields in order, its whole body, and the level and the nonce that its fields ask for."""

    target: Target
    method: str
    fields: tuple[Field, ...]
    body: bytes
    level: Level
    nonce: str

    def encoded(self) -> bytes:
        """All octets of the request."""
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


def build_request(
    target: Target, *, method: str, headers: Sequence[str], body: bytes, level: Level, nonce: str
) -> Request:
    """
    Build a request of the values of ``-X``, ``-H`` and ``-d``.

    Args:
        body: empty for none.
        nonce: 22 characters.

    Raises:
        UsageRefused: a method or a field that cannot be sent.
    """
    chosen = "POST" if body and method == "GET" else method
    _check_method(chosen)
    given = [parse_header(text) for text in headers]
    fields = _with_defaults(given, target.authority.encode("ascii"))
    names = {name.lower() for name, _value in given}
    if body and b"content-type" not in names and _is_json(body):
        fields.append((b"Content-Type", b"application/json"))
    if body or chosen in _ANNOUNCE_EMPTY:
        fields.append((b"Content-Length", b"%d" % len(body)))
    fields.append((naming.HEADER_LEVEL.encode("ascii"), level.value.encode("ascii")))
    fields.append((naming.HEADER_NONCE.encode("ascii"), nonce.encode("ascii")))
    return Request(target, chosen, tuple(fields), body, level, nonce)


def artifact_request(authority: str, path: str) -> bytes:
    """The octets of the request for an artifact, with the Host field of the exchange."""
    fields = (
        (b"Host", authority.encode("latin-1")),
        (b"User-Agent", _USER_AGENT),
        (b"Accept", naming.MEDIA_TYPE_ENVELOPE.encode("ascii")),
    )
    return b"GET %b HTTP/1.1\r\n" % path.encode("ascii") + encode_fields(fields) + b"\r\n"


def parse_header(text: str) -> Field:
    """
    Parse the value of one ``-H``, ``Name: value``; the value may be empty.

    Raises:
        UsageRefused: no name, a control character, a field that svc or the proxy writes itself.
    """
    name_text, colon, value_text = text.partition(":")
    name, value = os.fsencode(name_text), os.fsencode(value_text).strip(b" \t")
    if not colon or not is_token(name):
        raise UsageRefused(f'-H "{text}" is no header', "write -H 'Name: value'")
    if any((octet < 0x20 and octet != 0x09) or octet == 0x7F for octet in value):
        raise UsageRefused(f"the value of the header {name_text} holds a control character", "remove it")
    lower, connection = classify(name)
    if is_reserved(lower):
        raise UsageRefused(f"the header {name_text} is reserved for the proxy", "svc sends what the proxy needs itself")
    # Credentials for a proxy (RFC 9110 section 11.7.1) are hop-by-hop, but they frame nothing.
    if (connection and lower != b"proxy-authorization") or lower in _FRAMING:
        raise UsageRefused(f"the header {name_text} frames the message and is written by svc itself", "leave it out")
    if lower == b"host" and not _HOST.match(value):
        raise UsageRefused("the value of the header Host is no host and port", "write -H 'Host: name:port'")
    return name, value


def read_data(pieces: Iterable[DataPiece], stdin: BinaryIO | None, limit: int = MAX_DATA) -> bytes:
    """
    Read the body of a request from the values of the data flags, in the order of the command line.

    Args:
        stdin: standard input; None where it is closed.
        limit: the most octets.
    """
    body = b""
    for flag, text in pieces:
        octets, source = os.fsencode(text), flag
        if text.startswith("@") and flag != "--data-raw":
            source = _STANDARD_INPUT if text == "@-" else text[1:]
            octets = _content(flag, source, stdin, limit)
        body = body + b"&" + octets if body else octets
        if len(body) > limit:
            raise CliError("data_too_large", path=source, limit=limit)
    return body


def _content(flag: str, source: str, stdin: BinaryIO | None, limit: int) -> bytes:
    try:
        if source is not _STANDARD_INPUT:
            with open(source, "rb") as file:
                octets = file.read(limit + 1)
        elif stdin is None:
            raise DataUnreadable(path=source, detail="it is closed", flag=flag)
        else:
            octets = stdin.read(limit + 1)
    except OSError as error:
        raise DataUnreadable(path=source, detail=(error.strerror or str(error)).lower(), flag=flag) from error
    if len(octets) > limit:
        raise CliError("data_too_large", path=source, limit=limit)
    return octets.translate(None, _REMOVED) if flag == "--data" else octets


def _check_method(method: str) -> None:
    if not method.isascii() or not is_token(method.encode("ascii")):
        raise UsageRefused(f'"{method}" is no request method', "a method is a word such as GET or PUT")
    if method == "CONNECT":
        raise UsageRefused("the method CONNECT opens a tunnel, not a request", "use another method")


def _with_defaults(given: list[Field], authority: bytes) -> list[Field]:
    names = [name.lower() for name, _value in given]
    if names.count(b"host") > 1:
        raise UsageRefused("the header Host was given twice", "give it once")
    host = next((value for name, value in given if name.lower() == b"host"), authority)
    fields: list[Field] = [(b"Host", host)]
    for name, value in ((b"User-Agent", _USER_AGENT), (b"Accept", b"*/*")):
        if name.lower() not in names:
            fields.append((name, value))
    return fields + [field for field in given if field[0].lower() != b"host"]


def _is_json(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict | list)
    except (ValueError, RecursionError):
        return False

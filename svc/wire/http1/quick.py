"""
Messages in their usual form, read at a glance.

Nearly every message comes whole in one read, in the form that RFC 9112 recommends to senders: one space behind each
colon, nothing behind a value, fields that frame nothing unusual. For these a regular expression says in one step what
llhttp says in one call for each field. Whatever is not exactly of that form is left to llhttp, which alone refuses:
this module accepts a part of what llhttp accepts and reads it as llhttp does, which tests hold it to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from svc.wire.errors import RemoteProtocolError
from svc.wire.fields import CLASSES, Field
from svc.wire.http1.framing import plain_length

# Every repetition is possessive: what does not match is known after one pass, however it was made to look alike.
_NAME: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_VALUE: Final = rb"[\x21-\x7e\x80-\xff]++(?:[\t ]++[\x21-\x7e\x80-\xff]++)*+"
_LINES: Final = re.compile(rb"(?:" + _NAME + rb": " + _VALUE + rb"\r\n)++\Z")
_FIELD: Final = re.compile(rb"(" + _NAME + rb"): (" + _VALUE + rb")\r\n")
#: Methods without a body, and the characters of RFC 3986 that a path and a query hold.
_REQUEST: Final = re.compile(rb"(GET|HEAD|DELETE|OPTIONS) (/[A-Za-z0-9/?:@\-._~!$&'()*+,;=%]*+) HTTP/1\.1\r\n")
_RESPONSE: Final = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9]) ([A-Za-z][A-Za-z' -]*+)\r\n")
_EMPTY_LINE: Final = b"\r\n\r\n"
_KEEP_ALIVE: Final = frozenset({b"keep-alive"})
_NO_OPTIONS: Final[frozenset[bytes]] = frozenset()
#: Status codes whose answers have no body, whatever their fields say.
_BODILESS: Final = frozenset({b"204", b"304"})
_PHRASES: Final = frozenset(status.phrase.encode("ascii") for status in HTTPStatus)


@dataclass(slots=True)
class FieldLines:
    """
    The field lines of a head in the usual form.

    Args:
        octets: as they came, each with CRLF.
        fields: names and values, in order.
        onward: the lines that are forwarded.
        whole: whether all are.
        options: what ``Connection`` names: ``keep-alive`` or nothing.
        host: the value of Host, where it stands once.
        length: Content-Length, where it stands once.
    """

    octets: bytes
    fields: list[Field]
    onward: bytes
    whole: bool
    options: frozenset[bytes]
    host: bytes | None
    length: int | None


def read_lines(octets: bytes, most: int) -> FieldLines | None:
    """
    Read field lines.

    Args:
        octets: the lines, each with CRLF, without the empty line.
        most: the most fields.

    Returns:
        The lines, or None where one is not in the usual form or says something that needs a closer look.
    """
    if _LINES.match(octets) is None:
        return None
    fields: list[Field] = _FIELD.findall(octets)
    if len(fields) > most:
        return None
    host: bytes | None = None
    length: int | None = None
    options = _NO_OPTIONS
    for name, value in fields:
        lower, _, telling = CLASSES[name]
        if not telling:
            continue
        if lower == b"host" and host is None:
            host = value
        elif lower == b"content-length" and length is None:
            try:
                length = plain_length(value)
            except RemoteProtocolError:
                return None
        elif lower == b"connection" and not options and value.lower() == b"keep-alive":
            options = _KEEP_ALIVE
        else:
            return None
    if not options:
        return FieldLines(octets, fields, octets, True, options, host, length)
    onward = b"".join([b"%b: %b\r\n" % field for field in fields if not CLASSES[field[0]][1]])
    return FieldLines(octets, fields, onward, False, options, host, length)


def split_request(data: bytes) -> tuple[bytes, bytes, bytes] | None:
    """
    Take a request without a body apart.

    Args:
        data: one read.

    Returns:
        Method, target and field lines, or None where it is not exactly one such request.
    """
    end = data.find(_EMPTY_LINE)
    if end < 0 or end + 4 != len(data):
        return None
    line = _REQUEST.match(data)
    if line is None:
        return None
    return line[1], line[2], data[line.end() : end + 2]


def split_response(data: bytes) -> tuple[int, bytes, bytes, bytes] | None:
    """
    Take a response apart.

    Args:
        data: one read.

    Returns:
        Status, reason phrase, field lines, and what follows the head; None where it is not of the usual form.
    """
    line = _RESPONSE.match(data)
    if line is None or line[1] in _BODILESS or line[2] not in _PHRASES:
        return None
    end = data.find(_EMPTY_LINE, line.end() - 2)
    if end < 0:
        return None
    return int(line[1]), line[2], data[line.end() : end + 2], data[end + 4 :]

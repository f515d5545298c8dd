"""
The field lines of messages in the common form, parsed without llhttp.

Nearly every message arrives whole in one read, in the form that RFC 9112 recommends to senders: one space after each
colon, nothing after a value, no unusual framing. For these one regular expression replaces a call of llhttp for each
field. Everything else is left to llhttp, which alone refuses: the fast path accepts a subset of what llhttp accepts and
gives the same events, which tests verify.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from svc.wire.errors import RemoteProtocolError
from svc.wire.fields import (
    CLIENT_FIELD_CLASSES,
    FIELD_CLASSES,
    Field,
    encode_fields,
    is_forwarding,
    is_reserved,
    own_name,
)
from svc.wire.http1.framing import parse_length

# Every repetition is possessive: a mismatch is found in one pass, whatever a peer sends.
_NAME: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_VALUE: Final = rb"[\x21-\x7e\x80-\xff]++(?:[\t ]++[\x21-\x7e\x80-\xff]++)*+"
_LINES: Final = re.compile(rb"(?:" + _NAME + rb": " + _VALUE + rb"\r\n)++\Z")
_FIELD: Final = re.compile(rb"(" + _NAME + rb"): (" + _VALUE + rb")\r\n")
_KEEP_ALIVE: Final = frozenset({b"keep-alive"})
_NO_OPTIONS: Final[frozenset[bytes]] = frozenset()


@dataclass(slots=True)
class FieldLines:
    """
    The field lines of a head in the common form.

    ``octets`` are all lines and ``end_to_end_lines`` the forwarded ones, each with CRLF; ``options`` are ``keep-alive``
    or none; ``reserved`` are the values of ``svc-*`` fields by name.
    """

    octets: bytes
    fields: list[Field]
    end_to_end_lines: bytes
    all_end_to_end: bool
    options: frozenset[bytes]
    host: bytes | None
    length: int | None
    reserved: dict[bytes, bytes]


def parse_lines(octets: bytes, limit: int, *, drop_forwarding: bool = False) -> FieldLines | None:
    """Parse up to ``limit`` field lines, without the empty line; None where llhttp must read them."""
    classes = CLIENT_FIELD_CLASSES if drop_forwarding else FIELD_CLASSES
    if _LINES.match(octets) is None:
        return None
    fields: list[Field] = _FIELD.findall(octets)
    if len(fields) > limit:
        return None
    host: bytes | None = None
    length: int | None = None
    options = _NO_OPTIONS
    reserved: dict[bytes, bytes] = {}
    all_end_to_end = True
    for name, value in fields:
        lower, _, interpreted = classes[name]
        if not interpreted:
            continue
        if lower == b"host" and host is None:
            host = value
        elif lower == b"content-length" and length is None:
            try:
                length = parse_length(value)
            except RemoteProtocolError:
                return None
        elif lower == b"connection" and not options and value.lower() == b"keep-alive":
            options = _KEEP_ALIVE
            all_end_to_end = False
        elif (own := own_name(lower)) is not None:
            if own in reserved:
                return None
            reserved[own] = value
            all_end_to_end = False
        elif is_reserved(lower) or is_forwarding(lower):
            all_end_to_end = False
        else:
            return None
    if all_end_to_end:
        return FieldLines(octets, fields, octets, True, options, host, length, reserved)
    lines = encode_fields([field for field in fields if not classes[field[0]][1]])
    return FieldLines(octets, fields, lines, False, options, host, length, reserved)

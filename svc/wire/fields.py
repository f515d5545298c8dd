"""
Which header fields may travel, and which words of them matter.

Owns the lists of hop-by-hop and reserved fields (RFC 9110 section 7.6.1) and what ``Connection`` may name. Knows
fields as pairs of octet strings; knows nothing of parsers and connections.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from svc.naming import HEADER_FORWARDED_CLIENT, HEADER_PREFIX
from svc.wire.errors import FieldRefused

Field = tuple[bytes, bytes]

HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

#: Fields that frame or route a message; a trailer must not carry them (RFC 9110 section 6.5.1).
FRAMING: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"content-encoding", b"content-type"})

_FORWARDED: Final = HEADER_FORWARDED_CLIENT.lower().encode("ascii")
_PREFIX: Final = HEADER_PREFIX.encode("ascii")
#: What ``Connection`` may never name: dropping these would change how the application reads the message.
_UNNAMEABLE: Final = FRAMING | {_FORWARDED}
#: Fields that are forwarded and still say something to the proxy.
_TELLING: Final = frozenset({b"host", b"content-length"})
#: The usual options, which need no closer look.
_USUAL: Final = frozenset({b"close", b"keep-alive", b"upgrade", b"te"})
#: What nearly all messages with a ``Connection`` field say there.
_USUAL_VALUES: Final = {
    value: frozenset({value.lower()}) for value in (b"close", b"Close", b"keep-alive", b"Keep-Alive")
}
#: Options that name no field but hop-by-hop ones: beyond those there is nothing to drop.
_HOP_BY_HOP_ALONE: Final = _USUAL - {b"close"}

#: Framing fields as a reader that maps ``-`` and ``_`` to the same variable sees them; never forwarded.
LOOKALIKES: Final = frozenset({b"content_length", b"transfer_encoding"})

_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")


def is_token(text: bytes) -> bool:
    """
    Tell whether octets are a token, such as a method or a field name (RFC 9110 section 5.6.2).

    Args:
        text: the octets.

    Returns:
        True for a non-empty token.
    """
    return _TOKEN.match(text) is not None


#: What some gateways make one character of, when they turn names into variables (RFC 3875, section 4.1.18): all of a
#: token that is neither letter nor digit.
_AS_HYPHEN: Final = bytes.maketrans(b"!#$%&'*+.^_`|~", b"-" * 14)


def is_reserved(lower_name: bytes) -> bool:
    """
    Tell whether a field belongs to the proxy alone.

    Args:
        lower_name: the name in lower case.

    Returns:
        True for ``svc-*`` and ``x-forwarded-client-cert``, ``_``, ``.`` and their like read as ``-`` (applications that
        follow CGI cannot tell them apart).
    """
    name = lower_name.translate(_AS_HYPHEN)
    return name.startswith(_PREFIX) or name == _FORWARDED


#: The name in lower case; whether the field is never forwarded; whether it says something to the proxy.
FieldClass = tuple[bytes, bool, bool]


class _Classes(dict[bytes, FieldClass]):
    """Classes by the name as it was spelled. Peers choose the names: their number and their length are bounded."""

    _MOST: Final = 4096
    _LONGEST: Final = 64

    def __missing__(self, name: bytes) -> FieldClass:
        lower = name.lower()
        kept_here = lower in HOP_BY_HOP or lower in LOOKALIKES or is_reserved(lower)
        known = (lower, kept_here, kept_here or lower in _TELLING)
        if len(name) <= self._LONGEST and len(self) < self._MOST:
            self[name] = known
        return known


#: The class of any name, as a mapping, because every field of every message is looked up.
CLASSES: Final = _Classes()


def classify(name: bytes) -> tuple[bytes, bool]:
    """
    Classify a field name.

    Args:
        name: as spelled on the wire.

    Returns:
        The name in lower case, and whether the field is hop-by-hop, reserved or a lookalike and so never forwarded.
    """
    return CLASSES[name][:2]


def connection_options(values: Sequence[bytes]) -> frozenset[bytes]:
    """
    Read the ``Connection`` fields of a message.

    Args:
        values: the values of all its ``Connection`` fields.

    Returns:
        The options in lower case.

    Raises:
        FieldRefused: one is no name, or names Host, a framing field or a field that the proxy adds.
    """
    if len(values) == 1 and (known := _USUAL_VALUES.get(values[0])) is not None:
        return known
    options = frozenset(word for value in values for part in value.split(b",") if (word := part.strip(b" \t").lower()))
    if options <= _USUAL:
        return options
    for option in options:
        if not is_token(option):
            raise FieldRefused(field="Connection", defect="it is no list of names")
        if option in _UNNAMEABLE or is_reserved(option):
            raise FieldRefused(field="Connection", defect=f"it names {option.decode('latin-1')}")
    return options


def passed_on(fields: Iterable[Field], named: frozenset[bytes]) -> list[Field]:
    """
    Select the fields of a head that are forwarded.

    Args:
        fields: as received.
        named: the options of the message's ``Connection`` fields.

    Returns:
        The rest, order, spelling and duplicates kept.
    """
    classes = CLASSES
    if named <= _HOP_BY_HOP_ALONE:
        return [field for field in fields if not classes[field[0]][1]]
    return [field for field in fields if not (known := classes[field[0]])[1] and known[0] not in named]


def passed_on_trailers(fields: Iterable[Field], named: frozenset[bytes]) -> list[Field]:
    """
    Select the trailer fields that are forwarded.

    Args:
        fields: as received.
        named: the options of the head's ``Connection`` fields.

    Returns:
        The rest; fields that frame, route or describe the content are left out too (RFC 9110 section 6.5.1).
    """
    return [field for field in passed_on(fields, named) if CLASSES[field[0]][0] not in FRAMING]


def joined(fields: Iterable[Field]) -> bytes:
    """
    Write field lines.

    Args:
        fields: pairs of name and value.

    Returns:
        One line each with CRLF; empty for none.
    """
    return b"".join([b"%b: %b\r\n" % field for field in fields])

"""
Header fields: which are forwarded, which the proxy interprets, what ``Connection`` may name (RFC 9110 section 7.6.1).

Works on pairs of names and values; independent of parsers and connections.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from svc.naming import HEADER_FORWARDED_CLIENT, HEADER_PREFIX
from svc.wire.errors import RemoteProtocolError

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
#: Forwarding fields: by these proxies describe the connection of their client to an application. ``Forwarded`` is RFC
#: 7239, ``Client-Cert`` RFC 9440; frameworks and libraries read the others, with whatever follows ``X-Forwarded``.
_FORWARDING_PREFIXES: Final = (b"forwarded", b"x-forwarded")
_FORWARDING: Final = frozenset(
    {
        b"client-cert",
        b"client-cert-chain",
        b"client-ip",
        b"true-client-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-real-ip",
    }
)
#: Fields that are forwarded and that the proxy interprets too.
_INTERPRETED: Final = frozenset({b"host", b"content-length", b"max-forwards"})
#: Options of ``Connection`` that need no check.
_COMMON_OPTIONS: Final = frozenset({b"close", b"keep-alive", b"upgrade", b"te"})
#: The options by the most common values of ``Connection``.
_COMMON_VALUES: Final = {
    value: frozenset({value.lower()}) for value in (b"close", b"Close", b"keep-alive", b"Keep-Alive")
}
#: Options that name hop-by-hop fields only, which are dropped in any case.
_HOP_BY_HOP_OPTIONS: Final = _COMMON_OPTIONS - {b"close"}

#: Framing fields in the spelling of readers that map ``-`` and ``_`` to the same variable; never forwarded.
LOOKALIKES: Final = frozenset({b"content_length", b"transfer_encoding"})

_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")


def is_token(text: bytes) -> bool:
    """
    Return whether bytes are a token, such as a method or a field name (RFC 9110 section 5.6.2).

    Args:
        text: the bytes.

    Returns:
        False also for no bytes.
    """
    return _TOKEN.match(text) is not None


#: Characters of a token that some gateways replace by one and the same character when they turn names into variables
#: (RFC 3875 section 4.1.18): all that are neither letter nor digit.
_TO_HYPHEN: Final = bytes.maketrans(b"!#$%&'*+.^_`|~", b"-" * 14)


def is_reserved(lower_name: bytes) -> bool:
    """
    Return whether only the proxy may set a field: ``svc-*`` and ``x-forwarded-client-cert``.

    Args:
        lower_name: the name in lower case.

    Returns:
        True also with ``_``, ``.`` and the like in place of ``-``, which CGI applications cannot distinguish.
    """
    name = lower_name.translate(_TO_HYPHEN)
    return name.startswith(_PREFIX) or name == _FORWARDED


def own_name(lower_name: bytes) -> bytes | None:
    """
    Return the one spelling of the name of a ``svc-*`` field.

    Args:
        lower_name: the name in lower case.

    Returns:
        The name with ``-`` for ``_``; None for other fields.
    """
    name = lower_name.replace(b"_", b"-")
    return name if name.startswith(_PREFIX) else None


def is_forwarding(lower_name: bytes) -> bool:
    """
    Return whether a proxy describes its client by a field: ``forwarded``, ``x-forwarded-*``, ``x-real-ip`` and others.

    Args:
        lower_name: the name in lower case.

    Returns:
        True also with ``_``, ``.`` and the like in place of ``-``; True for ``x-forwarded-client-cert``.
    """
    name = lower_name.translate(_TO_HYPHEN)
    return name.startswith(_FORWARDING_PREFIXES) or name in _FORWARDING


#: The name in lower case; whether the field is never forwarded; whether the proxy interprets it.
FieldClass = tuple[bytes, bool, bool]


class _FieldClasses(dict[bytes, FieldClass]):
    """A cache of classes by the name as spelled, bounded in number and length because peers choose the names."""

    _MAX_ENTRIES: Final = 4096
    _MAX_NAME: Final = 64

    def __init__(self, *, drop_forwarding: bool) -> None:
        super().__init__()
        self._drop_forwarding = drop_forwarding

    def __missing__(self, name: bytes) -> FieldClass:
        lower = name.lower()
        dropped = lower in HOP_BY_HOP or lower in LOOKALIKES or is_reserved(lower)
        dropped = dropped or (self._drop_forwarding and is_forwarding(lower))
        found = (lower, dropped, dropped or lower in _INTERPRETED)
        if len(name) <= self._MAX_NAME and len(self) < self._MAX_ENTRIES:
            self[name] = found
        return found


#: The class of any name; a mapping, because every field of every message is looked up.
FIELD_CLASSES: Final = _FieldClasses(drop_forwarding=False)
#: The same where forwarding fields are not forwarded: in requests of clients that are no proxy of the application.
CLIENT_FIELD_CLASSES: Final = _FieldClasses(drop_forwarding=True)


def classify(name: bytes) -> tuple[bytes, bool]:
    """Return the name in lower case, and whether the field is hop-by-hop, reserved or a lookalike: never forwarded."""
    return FIELD_CLASSES[name][:2]


def connection_options(values: Sequence[bytes]) -> frozenset[bytes]:
    """Return the options in all ``Connection`` fields of a message, in lower case; refuse names of framing fields."""
    if len(values) == 1 and (common := _COMMON_VALUES.get(values[0])) is not None:
        return common
    options = frozenset(name for value in values for part in value.split(b",") if (name := part.strip(b" \t").lower()))
    if options <= _COMMON_OPTIONS:
        return options
    for option in options:
        if not is_token(option):
            raise RemoteProtocolError("field_refused", field="Connection", defect="it is not a list of names")
        if option in _UNNAMEABLE or is_reserved(option):
            defect = f"it names {option.decode('latin-1')}"
            raise RemoteProtocolError("field_refused", field="Connection", defect=defect)
    return options


def end_to_end_fields(
    fields: Iterable[Field], named: frozenset[bytes], *, drop_forwarding: bool = False
) -> list[Field]:
    """
    Select the fields of a head that are forwarded.

    Args:
        fields: as received.
        named: the options of the message's ``Connection`` fields.
        drop_forwarding: whether forwarding fields are not among them, see :func:`is_forwarding`.

    Returns:
        The fields in the same order and spelling, duplicates included.
    """
    classes = CLIENT_FIELD_CLASSES if drop_forwarding else FIELD_CLASSES
    if named <= _HOP_BY_HOP_OPTIONS:
        return [field for field in fields if not classes[field[0]][1]]
    return [field for field in fields if not (found := classes[field[0]])[1] and found[0] not in named]


def end_to_end_trailers(
    fields: Iterable[Field], named: frozenset[bytes], *, drop_forwarding: bool = False
) -> list[Field]:
    """
    Select the trailer fields that are forwarded.

    Args:
        fields: as received.
        named: the options of the head's ``Connection`` fields.
        drop_forwarding: as in :func:`end_to_end_fields`.

    Returns:
        The fields without those that frame, route or describe the content (RFC 9110 section 6.5.1).
    """
    kept = end_to_end_fields(fields, named, drop_forwarding=drop_forwarding)
    return [field for field in kept if FIELD_CLASSES[field[0]][0] not in FRAMING]


def encode_fields(fields: Iterable[Field]) -> bytes:
    """Write field lines, each with CRLF."""
    return b"".join([b"%b: %b\r\n" % field for field in fields])

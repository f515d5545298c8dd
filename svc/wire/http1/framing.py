"""
What the fields of a head say about the message: where it ends, what the connection does next, who is asked.

Owns the one walk over the fields that both directions share (RFC 9112 sections 6 and 9) and refuses there what two
readers could read differently. Knows neither methods nor status codes.
"""

from __future__ import annotations

from typing import Final

from svc.naming import HEADER_PREFIX
from svc.wire.errors import FieldRefused, TransferCodingRefused
from svc.wire.fields import LOOKALIKES, FieldClass, connection_options

#: What a signed 64-bit counter holds; a reader with one would see another length beyond.
MAX_LENGTH: Final = 2**63 - 1

_PREFIX: Final = HEADER_PREFIX.encode("ascii")
_NO_OPTIONS: Final[frozenset[bytes]] = frozenset()


#: Content-Length or None; whether the body comes in chunks; what ``Connection`` names; the values of Upgrade; those of
#: Host; the values of ``svc-*`` by lower-case name, ``_`` read as ``-``, or None; whether all fields are forwarded. A
#: bare tuple: each head makes one.
Framing = tuple[
    int | None, bool, frozenset[bytes], tuple[bytes, ...], tuple[bytes, ...], dict[bytes, bytes] | None, bool
]


#: A field that says something to the proxy: its class, its name as spelled, its value.
Telling = tuple[FieldClass, bytes, bytes]


def read_framing(fields: list[Telling], version: str) -> Framing:
    """
    Walk over the fields of a head.

    Args:
        fields: those that say something to the proxy, in order.
        version: of the message.

    Returns:
        What they say, as :data:`Framing` lists it.

    Raises:
        FieldRefused: Content-Length is no plain number, a field looks like a framing field, ``svc-*`` stands twice,
            ``Connection`` is no list of names or names what it must not.
        TransferCodingRefused: anything but ``chunked`` once, in HTTP/1.1.
    """
    length: int | None = None
    chunked = False
    # Tuples and None, because most heads have none of these and every container is a cost per request.
    connection: tuple[bytes, ...] = ()
    upgrades: tuple[bytes, ...] = ()
    hosts: tuple[bytes, ...] = ()
    reserved: dict[bytes, bytes] | None = None
    travels_whole = True
    for (lower, special, _), name, value in fields:
        if lower == b"host":
            hosts += (value,)
        elif lower == b"content-length":
            length = plain_length(value)
        elif special:
            travels_whole = False
            if lower == b"connection":
                connection += (value,)
            elif lower == b"transfer-encoding":
                if value.lower() != b"chunked" or chunked or version == "1.0":
                    raise TransferCodingRefused()
                chunked = True
            elif lower == b"upgrade":
                upgrades += (value,)
            elif lower in LOOKALIKES:
                raise FieldRefused(
                    field=name.decode("latin-1"), defect="some readers take it for the one with a hyphen"
                )
            elif (canonical := lower.replace(b"_", b"-")).startswith(_PREFIX):
                if reserved is None:
                    reserved = {}
                elif canonical in reserved:
                    raise FieldRefused(field=name.decode("latin-1"), defect="it stands twice")
                reserved[canonical] = value
    options = connection_options(connection) if connection else _NO_OPTIONS
    return length, chunked, options, upgrades, hosts, reserved, travels_whole


def plain_length(value: bytes) -> int:
    """
    Read Content-Length.

    Args:
        value: its value.

    Returns:
        Octets.

    Raises:
        FieldRefused: it is no plain number up to 2^63-1.
    """
    # RFC 9110 section 8.6 allows leading zeros; readers that take them for octal exist, senders of them do not.
    if (
        len(value) < 20
        and value.isdigit()
        and (value[0] != 0x30 or value == b"0")
        and (length := int(value)) <= MAX_LENGTH
    ):
        return length
    raise FieldRefused(field="Content-Length", defect="it is no plain number up to 2^63-1")

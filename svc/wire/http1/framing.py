"""
The one pass over the interpreted fields of a head: body length, connection options, host (RFC 9112 sections 6 and 9).

Both directions share it. It refuses what two readers could interpret differently, and is independent of methods and
status codes.
"""

from __future__ import annotations

from typing import Final

from svc.wire.errors import RemoteProtocolError
from svc.wire.fields import LOOKALIKES, FieldClass, connection_options, own_name

#: The largest signed 64-bit integer: readers that use one would see another length beyond it.
MAX_LENGTH: Final = 2**63 - 1

_NO_OPTIONS: Final[frozenset[bytes]] = frozenset()


#: Content-Length or None; whether the body is chunked; the options of ``Connection``; the values of Upgrade; those of
#: Host; the values of ``svc-*`` by lower-case name, ``_`` read as ``-``, or None; whether all fields are end-to-end. A
#: bare tuple, because each head makes one.
Framing = tuple[
    int | None, bool, frozenset[bytes], tuple[bytes, ...], tuple[bytes, ...], dict[bytes, bytes] | None, bool
]


#: A field that the proxy interprets: its class, its name as spelled, its value.
InterpretedField = tuple[FieldClass, bytes, bytes]


def read_framing(fields: list[InterpretedField], version: str) -> Framing:
    """Evaluate the interpreted fields of a head, in order; refuse ambiguous lengths, codings and names."""
    length: int | None = None
    chunked = False
    # Tuples and None, because most heads have none of these and every container is a cost per request.
    connection: tuple[bytes, ...] = ()
    upgrades: tuple[bytes, ...] = ()
    hosts: tuple[bytes, ...] = ()
    reserved: dict[bytes, bytes] | None = None
    all_end_to_end = True
    for (lower, dropped, _), name, value in fields:
        if lower == b"host":
            hosts += (value,)
        elif lower == b"content-length":
            length = parse_length(value)
        elif dropped:
            all_end_to_end = False
            if lower == b"connection":
                connection += (value,)
            elif lower == b"transfer-encoding":
                if value.lower() != b"chunked" or chunked or version == "1.0":
                    raise RemoteProtocolError("transfer_coding_refused")
                chunked = True
            elif lower == b"upgrade":
                upgrades += (value,)
            elif lower in LOOKALIKES:
                raise _refused(name, "some readers take it for the one with a hyphen")
            elif (own := own_name(lower)) is not None:
                if reserved is None:
                    reserved = {}
                elif own in reserved:
                    raise _refused(name, "it occurs twice")
                reserved[own] = value
    options = connection_options(connection) if connection else _NO_OPTIONS
    return length, chunked, options, upgrades, hosts, reserved, all_end_to_end


def parse_length(value: bytes) -> int:
    """Return Content-Length, a plain decimal number of octets up to :data:`MAX_LENGTH`."""
    # RFC 9110 section 8.6 allows leading zeros; readers that take them for octal exist, senders of them do not.
    if (
        len(value) < 20
        and value.isdigit()
        and (value[0] != 0x30 or value == b"0")
        and (length := int(value)) <= MAX_LENGTH
    ):
        return length
    raise _refused(b"Content-Length", "it is not a plain number up to 2^63-1")


def _refused(name: bytes, defect: str) -> RemoteProtocolError:
    return RemoteProtocolError("field_refused", field=name.decode("latin-1"), defect=defect)

"""
Codecs without I/O: bytes in, events out.

``http1`` reads HTTP/1.1 with llhttp and further checks, ``fields`` selects the header fields that are forwarded,
``forwarded`` writes the Forwarded field, ``mqtt`` reads and writes MQTT 3.1.1 and 5.0, ``proxyprotocol`` reads PROXY
headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svc.lazy import exports

if TYPE_CHECKING:
    from svc.wire.errors import RemoteProtocolError
    from svc.wire.fields import end_to_end_fields, end_to_end_trailers, is_reserved
    from svc.wire.proxyprotocol import ProxyHeader, ProxyHeaderInvalid, ProxyHeaderParser
else:
    __getattr__ = exports(
        __name__,
        {
            "errors": "RemoteProtocolError",
            "fields": "end_to_end_fields end_to_end_trailers is_reserved",
            "proxyprotocol": "ProxyHeader ProxyHeaderInvalid ProxyHeaderParser",
        },
    )

__all__ = [
    "ProxyHeader",
    "ProxyHeaderInvalid",
    "ProxyHeaderParser",
    "RemoteProtocolError",
    "end_to_end_fields",
    "end_to_end_trailers",
    "is_reserved",
]

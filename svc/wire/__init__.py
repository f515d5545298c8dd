"""
Codecs without I/O: bytes in, events out.

``http1`` reads HTTP/1.1 messages through llhttp and adds what llhttp lets pass; ``fields`` knows which header fields
may travel. Nothing here knows a socket, a clock, an identity or a policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svc.lazy import exports

if TYPE_CHECKING:
    from svc.wire.errors import RemoteProtocolError
    from svc.wire.fields import is_reserved, passed_on, passed_on_trailers
    from svc.wire.proxyprotocol import ProxyHeader, ProxyHeaderInvalid, ProxyHeaderParser
else:
    __getattr__ = exports(
        __name__,
        {
            "errors": "RemoteProtocolError",
            "fields": "is_reserved passed_on passed_on_trailers",
            "proxyprotocol": "ProxyHeader ProxyHeaderInvalid ProxyHeaderParser",
        },
    )

__all__ = [
    "ProxyHeader",
    "ProxyHeaderInvalid",
    "ProxyHeaderParser",
    "RemoteProtocolError",
    "is_reserved",
    "passed_on",
    "passed_on_trailers",
]

"""
HTTP/1.1 requests whose responses are verified: shared by ``svc curl`` and by programs that embed.

Owns the connection, the order of an exchange and what is verified; not where trust and credentials come from, nor what
is done with a response. Programs use it through ``svc.embedding``; its errors are exported for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svc.lazy import exports

if TYPE_CHECKING:
    from svc.client.errors import (
        ConnectionLost,
        EvidenceExists,
        EvidenceNotSaved,
        ExchangeFailed,
        ProxyAnswered,
        ReceiptElsewhere,
        RefusedByServer,
        RequestInvalid,
    )
else:
    __getattr__ = exports(
        __name__,
        {
            "errors": "ConnectionLost EvidenceExists EvidenceNotSaved ExchangeFailed ProxyAnswered "
            "ReceiptElsewhere RefusedByServer RequestInvalid"
        },
    )

__all__ = [
    "ConnectionLost",
    "EvidenceExists",
    "EvidenceNotSaved",
    "ExchangeFailed",
    "ProxyAnswered",
    "ReceiptElsewhere",
    "RefusedByServer",
    "RequestInvalid",
]

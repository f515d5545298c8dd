"""
What a response names of the notary: the statement, the level, where its receipt is; and whether a receipt is pending.

The one reading of these headers, for clients and for proxies that verify their peer.
"""

from __future__ import annotations

from typing import Final

from svc import naming
from svc.envelope.ids import IdMalformed, parse_artifact_id
from svc.notary.access import receipt_location
from svc.notary.errors import ReceiptElsewhere, ReceiptRefused
from svc.wire.http1 import ResponseHead

_MAX_PAUSE: Final = 1.0
_MIN_PAUSE: Final = 0.05
_WORKLOAD_ID: Final = naming.HEADER_WORKLOAD_ID.lower().encode("ascii")
_LOCATION: Final = naming.HEADER_RECEIPT_LOCATION.lower().encode("ascii")
_LEVEL: Final = naming.HEADER_LEVEL.lower().encode("ascii")


def named_statement(head: ResponseHead) -> str | None:
    """The identifier of the statement that a response names; raises ``IdMalformed`` where it is none."""
    values = head.values(_WORKLOAD_ID)
    if not values:
        return None
    if len(values) > 1:
        raise IdMalformed(defect=f"{naming.HEADER_WORKLOAD_ID} appears {len(values)} times")
    return parse_artifact_id(values[0].decode("latin-1"))


def named_level(head: ResponseHead) -> str | None:
    """The level that a response names, None where it names none or several."""
    values = head.values(_LEVEL)
    return values[0].decode("latin-1") if len(values) == 1 else None


def named_receipt_path(head: ResponseHead, nonce: str) -> str:
    """
    The path of the receipt that a response names.

    Raises:
        ReceiptRefused: the response names none, or the receipt of another request.
        ReceiptElsewhere: it names one outside the notary.
    """
    values = head.values(_LOCATION)
    if not values:
        raise ReceiptRefused("receipt_missing")
    location = values[0].decode("latin-1")
    own = receipt_location(nonce)
    if len(values) == 1 and location == own:
        return own
    if not location.startswith(f"{naming.NOTARY_PATH}/"):
        raise ReceiptElsewhere(location=location)
    raise ReceiptRefused("nonce_mismatch")


def pending_pause(head: ResponseHead) -> float | None:
    """
    After how many seconds to ask for a receipt again; None where the response has it.

    Raises:
        ReceiptRefused: the notary has no such receipt, or does not answer as it must.
    """
    if head.status == 200:
        return None
    if head.status == 404:
        raise ReceiptRefused("receipt_missing")
    if head.status != 202:
        raise ReceiptRefused("fetch_failed", artifact="receipt", status=head.status)
    return retry_pause(head)


def retry_pause(head: ResponseHead) -> float:
    """The seconds of Retry-After (RFC 9110 section 10.2.3), bounded; a date or nothing means the longest pause."""
    values = head.values(b"retry-after")
    text = values[0].strip() if values else b""
    if not text.isdigit() or len(text) > 9:
        return _MAX_PAUSE
    return min(max(float(text), _MIN_PAUSE), _MAX_PAUSE)

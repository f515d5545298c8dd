"""
The points of a recorded exchange around the release of its response.

Receipts depend on their order: the record is durable before the last octet leaves. A program that builds the proxy may
observe each point; neither configuration nor environment nor a peer can.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class ReleasePoint(Enum):
    """A point that recorded exchanges pass, in this order; the first only where nothing was sent yet."""

    #: The response is complete and small, or has no body: nothing of it was sent, all of it waits for the record.
    HEAD_WITHHELD = "head.withheld"
    #: The record is made, and signed at the level ``signRequest``; it is not in the store yet. A signed one is reported
    #: on the thread that writes the database, when all of its group are signed.
    RECEIPT_SIGNED = "receipt.signed"
    #: The record is durable; the end of the response is still withheld.
    RECEIPT_COMMITTED = "receipt.committed"
    #: The end of the response was given to the transport, which may not have sent it yet.
    LAST_BYTE_WRITTEN = "last-byte.written"


#: Called at each point, on the reactor's thread unless the point says otherwise; must not raise.
ReleaseObserver = Callable[[ReleasePoint], object]


def unobserved(point: ReleasePoint) -> None:
    """Do nothing, by default."""

"""
How far a recorded exchange has come.

The order of these steps is what a receipt is worth: the record is durable before the last octet leaves. Whoever builds
the proxy may be told of each step; nobody is by default, and neither configuration nor environment nor a peer can
change that.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class ReleasePoint(Enum):
    """A point that recorded exchanges pass, in this order; the first only where the response has no body."""

    #: The response is complete and has no body: of it nothing was sent, its head waits for the record.
    HEAD_WITHHELD = "head.withheld"
    #: The record is made, and signed where the level says so; the store does not know it yet.
    RECEIPT_SIGNED = "receipt.signed"
    #: The record is durable; the end of the response is still withheld.
    RECEIPT_COMMITTED = "receipt.committed"
    #: The end of the response was given to the transport, which may not have sent it yet.
    LAST_BYTE_WRITTEN = "last-byte.written"


#: Is told of a step, on the reactor's thread, and must not raise.
ReleaseObserver = Callable[[ReleasePoint], object]


def unobserved(step: ReleasePoint) -> None:
    """Tell nobody."""

"""
Fetching the statement and the receipt that an answer names.

Owns where they are asked for, and how long a pending receipt is waited for. What is fetched is not judged here beyond
its place: only the notary's own path for this very request is ever followed.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from svc import naming
from svc.cli.exchange.line import Fetched, Line
from svc.notary.access import receipt_location, statement_path
from svc.notary.ids import IdMalformed, parse_artifact_id
from svc.notary.refusals import (
    FetchFailed,
    NonceMismatch,
    ReceiptMissing,
    ReceiptPending,
    ReceiptRefused,
    StatementMissing,
)
from svc.wire.http1 import ResponseHead

#: How long a receipt may be pending, in seconds.
PENDING: Final = 30.0
_LONGEST_PAUSE: Final = 1.0
_SHORTEST_PAUSE: Final = 0.05
_WORKLOAD_ID: Final = naming.HEADER_WORKLOAD_ID.lower().encode("ascii")
_LOCATION: Final = naming.HEADER_RECEIPT_LOCATION.lower().encode("ascii")
_LEVEL: Final = naming.HEADER_LEVEL.lower().encode("ascii")


class LocationRefused(ReceiptRefused):
    """the answer names {location} as the place of its receipt, which is not at the notary"""

    reason = "receipt_missing"
    hint = "only paths below /.well-known/svc-notary are followed"


def named_statement(head: ResponseHead) -> str | None:
    """
    Read which statement an answer names.

    Args:
        head: the head of the answer.

    Returns:
        The identifier, None where there is none.

    Raises:
        IdMalformed: it is no identifier, or more than one stands there.
    """
    values = head.values(_WORKLOAD_ID)
    if not values:
        return None
    if len(values) > 1:
        raise IdMalformed(defect=f"{naming.HEADER_WORKLOAD_ID} stands {len(values)} times")
    return parse_artifact_id(values[0].decode("latin-1"))


def named_level(head: ResponseHead) -> str | None:
    """
    Read which level an answer names.

    Args:
        head: the head of the answer.

    Returns:
        The word as it stands there, None where none or more than one does.
    """
    values = head.values(_LEVEL)
    return values[0].decode("latin-1") if len(values) == 1 else None


def receipt_place(head: ResponseHead, nonce: str) -> str:
    """
    Find out where the receipt of an exchange is.

    Args:
        head: the head of the answer.
        nonce: the nonce that was sent.

    Returns:
        The path to ask for.

    Raises:
        ReceiptMissing: the answer names no place.
        LocationRefused: it names one outside the notary.
        NonceMismatch: it names the receipt of another request.
    """
    values = head.values(_LOCATION)
    if not values:
        raise ReceiptMissing
    location = values[0].decode("latin-1")
    own = receipt_location(nonce)
    if len(values) == 1 and location == own:
        return own
    if not location.startswith(f"{naming.NOTARY_PATH}/"):
        raise LocationRefused(location=location)
    raise NonceMismatch


async def fetch_statement(line: Line, identifier: str | None) -> bytes:
    """
    Fetch the statement that an answer names.

    Args:
        line: the connection.
        identifier: as the answer names it; None where it names none.

    Returns:
        The envelope's octets.

    Raises:
        StatementMissing: the answer names none.
        FetchFailed: the notary answered anything but 200.
        NetworkError: no answer came.
    """
    if identifier is None:
        raise StatementMissing
    fetched = await line.fetch(statement_path(identifier))
    if fetched.head.status != 200:
        raise FetchFailed(status=fetched.head.status)
    return fetched.body


async def fetch_receipt(line: Line, path: str, clock: IReactorTime) -> bytes:
    """
    Fetch the receipt of the exchange, and wait for it while it is pending.

    Args:
        line: the connection.
        path: where it is.
        clock: tells and keeps the time.

    Returns:
        The envelope's octets.

    Raises:
        ReceiptMissing: the notary has none.
        ReceiptPending: it was not ready in time.
        FetchFailed: the notary answered anything else.
        NetworkError: no answer came.
    """
    deadline = clock.seconds() + PENDING
    while True:
        fetched = await line.fetch(path)
        status = fetched.head.status
        if status == 200:
            return fetched.body
        if status == 404:
            raise ReceiptMissing
        if status != 202:
            raise FetchFailed(status=status, artifact="receipt")
        pause = _pause(fetched)
        if clock.seconds() + pause > deadline:
            raise ReceiptPending(seconds=int(PENDING))
        await deferLater(clock, pause)


def _pause(fetched: Fetched) -> float:
    """Read Retry-After (RFC 9110 section 10.2.3) in seconds; a date or nothing means the longest pause."""
    values = fetched.head.values(b"retry-after")
    text = values[0].strip() if values else b""
    if not text.isdigit() or len(text) > 9:
        return _LONGEST_PAUSE
    return min(max(float(text), _SHORTEST_PAUSE), _LONGEST_PAUSE)

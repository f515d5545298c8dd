"""
How an interrupted transfer goes on, and when (OCI Distribution Specification 1.1; RFC 9110, sections 10.2.3 and 14).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Literal

_CONTENT_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)\Z", re.IGNORECASE)
_RECEIVED: Final = re.compile(r"(?:bytes=)?0-([0-9]{1,18})\Z")

#: What to do with the answer to a download: append its body, take it from the beginning, ask again without a part,
#: or nothing, since it is of other content.
Continuation = Literal["append", "whole", "anew", "refuse"]


def begin_of_download(on_disk: int, size: int) -> int:
    """
    Return from which octet a download goes on.

    Never from the end: Distribution 2.8 answers such a range with a length that its body does not have.

    Args:
        on_disk: how many octets of it there are.
        size: how many it has.

    Returns:
        ``size`` where all are there; 0 where there are too many.
    """
    return on_disk if on_disk <= size else 0


def continue_download(code: int, content_range: str, length: int | None, begin: int, size: int) -> Continuation:
    """
    Decide on the answer to a request for content.

    Args:
        code: its status: 200, 206 or 416.
        content_range: its ``Content-Range``.
        length: of its body, where it is known.
        begin: the first octet that was asked for; 0 for a request without a range.
        size: of the whole content.
    """
    if code == 200:
        return "whole" if length in (None, size) else "refuse"
    if begin == 0:
        return "refuse"
    found = _CONTENT_RANGE.match(content_range)
    if code != 206 or found is None:
        return "anew"
    first, last, total = int(found[1]), int(found[2]), found[3]
    if total not in ("*", str(size)):
        return "refuse"
    return "append" if first == begin and begin <= last < size else "anew"


def received(range_field: str, size: int) -> int | None:
    """
    Return how many octets of an upload the registry has.

    Args:
        range_field: ``Range`` of its answer. ``0-0`` is what Distribution says of none, so it counts as none.
        size: of the whole upload.

    Returns:
        From 0 to ``size``; None where the field is none.
    """
    found = _RECEIVED.match(range_field.strip())
    if found is None:
        return None
    last = int(found[1])
    count = 0 if last == 0 else last + 1
    return count if count <= size else None


def seconds_to_wait(retry_after: str, now: datetime) -> float:
    """
    Return how long a registry asks to wait.

    Args:
        retry_after: the value of ``Retry-After``: seconds, or a date.
        now: aware.

    Returns:
        Seconds; 0 where it says nothing that can be understood.
    """
    text = retry_after.strip()
    if re.fullmatch("[0-9]{1,9}", text):
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    aware = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return max(0.0, (aware - now).total_seconds())

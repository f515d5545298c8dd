"""
Limits records that anybody who can connect could cause without bound.

Libraries log a sentence for each connection while a process has no file descriptor left, Python's warnings come from
any library code, and a defect in the verification of a peer has a traceback. Each of them is written at most once in
ten seconds; the next one says how many were left out.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from twisted.logger import LogEvent

from svc.telemetry.records import KEY_ATTRIBUTES

#: Seconds in which the same sentence is written once.
INTERVAL: Final = 10.0
#: Sentences that are remembered; beyond it, the least recently written is forgotten.
MAX_SENTENCES: Final = 256

#: How the sentences of ``twisted.internet.tcp``, and ours about a defect in a handshake, begin.
_SENTENCES: Final = (
    "EMFILE encountered",
    "EMFILE recovery",
    "Re-reserving EMFILE",
    "Could not reserve EMFILE",
    "Could not re-reserve EMFILE",
    "Could not accept new connection",
    "the verification of a peer failed by a defect",
)
#: The format with which Twisted logs a warning of Python; each place in the code counts as a sentence of its own.
_WARNING: Final = "{filename}:{lineno}: {category}: {warning}"


class RecordLimiter:
    """
    Admits one record of each kind in an interval and counts the others.

    Args:
        interval: seconds.
        limit: kinds that are remembered; beyond it, the least recently admitted is forgotten.
    """

    def __init__(self, interval: float, limit: int) -> None:
        self._interval = interval
        self._limit = limit
        self._admitted: dict[Hashable, float] = {}
        self._left_out: dict[Hashable, int] = {}

    def admit(self, kind: Hashable, now: float) -> int | None:
        """
        Count a record at ``now`` seconds.

        Returns:
            How many of its kind were left out since the last one, if it is to be written; else None.
        """
        if 0 <= now - self._admitted.get(kind, now - self._interval) < self._interval:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return None
        # Moved behind the others: the first is the least recently admitted.
        self._admitted.pop(kind, None)
        self._admitted[kind] = now
        if len(self._admitted) > self._limit:
            oldest = next(iter(self._admitted))
            del self._admitted[oldest]
            self._left_out.pop(oldest, None)
        return self._left_out.pop(kind, 0)


class EventLimiter:
    """Limits the log events of libraries that a peer can cause."""

    def __init__(self, limit: int = MAX_SENTENCES) -> None:
        self._limiter = RecordLimiter(INTERVAL, limit)

    def admit(self, event: LogEvent) -> LogEvent | None:
        """The event to write, with the attribute ``repeated`` if others like it were left out, or None."""
        kind = _kind(event)
        if kind is None:
            return event
        left_out = self._limiter.admit(kind, event.get("log_time", 0.0))
        if left_out is None:
            return None
        return {**event, KEY_ATTRIBUTES: {"repeated": left_out}} if left_out else event


def _kind(event: LogEvent) -> str | None:
    """What makes an event the same as another one; None for an event that is always written."""
    sentence = event.get("log_format")
    if not isinstance(sentence, str):
        return None
    if sentence == _WARNING:
        place = (event.get("category"), event.get("filename"), event.get("lineno"))
        return " ".join(str(each) for each in place if type(each) in (str, int))
    return sentence if sentence.startswith(_SENTENCES) else None

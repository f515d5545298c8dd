"""
Rate limits of log records.

``DenialLimiter`` limits records of denials, ``RecordLimiter`` those of any kind, ``GroupedLimiter`` those of many kinds
that one peer can cause, ``EventLimiter`` what libraries log for each connection: at most one record of a kind in an
interval, and later how many were omitted. ``FailureStreak`` logs the failures of an endless retry less and less often.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import LogEvent

from svc.telemetry.records import KEY_ATTRIBUTES

#: The source under which denials are counted when ``limit`` sources are tracked already.
MANY_SOURCES: Final = "*"
#: Seconds in which the same log event of a library is written once.
INTERVAL: Final = 10.0
#: Log events of libraries that are tracked; beyond it, the least recently written is evicted.
MAX_EVENTS: Final = 256

_WITH_PORT: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\]]+):\d{1,5}\Z")
#: How the formats of ``twisted.internet.tcp``, and ours about a defect in a handshake, begin.
_FORMATS: Final = (
    "EMFILE encountered",
    "EMFILE recovery",
    "Re-reserving EMFILE",
    "Could not reserve EMFILE",
    "Could not re-reserve EMFILE",
    "Could not accept new connection",
    "the verification of a peer failed by a defect",
)
#: The format with which Twisted logs a warning of Python; limited for each line of code.
_WARNING: Final = "{filename}:{lineno}: {category}: {warning}"


class DenialLimiter:
    """
    Admits one denial of each reason and source in an interval, and reports how many others there were.

    Args:
        report: called with (reason, source, count) after an interval in which ``count`` denials were not logged.
        limit: sources and reasons that are tracked; further ones are counted under the source ``*``.
    """

    def __init__(
        self,
        clock: IReactorTime,
        report: Callable[[str, str, int], None],
        *,
        interval: float = 1.0,
        limit: int = 256,
    ) -> None:
        self._clock = clock
        self._report = report
        self._interval = interval
        self._limit = limit
        self._until: dict[tuple[str, str], float] = {}
        self._suppressed: dict[tuple[str, str], int] = {}
        self._timer: IDelayedCall | None = None

    def admit(self, reason: str, source: str) -> bool:
        """Whether to log a denial; ``source`` is an address, whose port is ignored, or a SPIFFE ID."""
        now = self._clock.seconds()
        key = (reason, without_port(source))
        until = self._until.get(key)
        if until is None and len(self._until) >= self._limit:
            key = (reason, MANY_SOURCES)
            until = self._until.get(key, now + self._interval)
            self._until.setdefault(key, until)
        if until is not None and now < until:
            self._suppressed[key] = self._suppressed.get(key, 0) + 1
            return False
        self._report_suppressed(key)
        self._until[key] = now + self._interval
        self._schedule()
        return True

    def close(self) -> None:
        """Report what is counted and stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for key in list(self._suppressed):
            self._report_suppressed(key)
        self._until.clear()

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = self._clock.callLater(self._interval, self._swept)

    def _swept(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        for key, until in list(self._until.items()):
            if until <= now:
                del self._until[key]
                self._report_suppressed(key)
        if self._until:
            self._schedule()

    def _report_suppressed(self, key: tuple[str, str]) -> None:
        count = self._suppressed.pop(key, 0)
        if count:
            self._report(key[0], key[1], count)


class FailureStreak:
    """
    Selects the failures of an endless retry that are logged: the first, the second, the fourth and so on.

    Attributes:
        count: consecutive failures with the same reason.
    """

    def __init__(self) -> None:
        self.count = 0
        self._reason = ""

    def failed(self, reason: str) -> bool:
        """Count a failure; returns whether to log it. Another reason starts a new count."""
        self.count = self.count + 1 if reason == self._reason else 1
        self._reason = reason
        return self.count & (self.count - 1) == 0

    def succeeded(self) -> None:
        self.count, self._reason = 0, ""


class RecordLimiter:
    """
    Admits one record of each kind in an interval of seconds and counts the others.

    ``limit`` kinds are tracked; beyond it, the least recently admitted is evicted.
    """

    def __init__(self, interval: float, limit: int) -> None:
        self._interval = interval
        self._limit = limit
        self._admitted: dict[Hashable, float] = {}
        self._omitted: dict[Hashable, int] = {}

    def admit(self, kind: Hashable, now: float) -> int | None:
        """How many of this kind were omitted since the last record, if this one is to be written; else None."""
        if 0 <= now - self._admitted.get(kind, now - self._interval) < self._interval:
            self._omitted[kind] = self._omitted.get(kind, 0) + 1
            return None
        # Moved behind the others: the first is the least recently admitted.
        self._admitted.pop(kind, None)
        self._admitted[kind] = now
        if len(self._admitted) > self._limit:
            oldest = next(iter(self._admitted))
            del self._admitted[oldest]
            self._omitted.pop(oldest, None)
        return self._omitted.pop(kind, 0)


class GroupedLimiter:
    """
    As ``RecordLimiter``, and of all kinds of one group at most ``share`` records in an interval.

    Whoever can make kinds up thus causes no more records by that.
    """

    def __init__(self, interval: float, limit: int, share: int) -> None:
        self._interval = interval
        self._limit = limit
        self._share = share
        self._kinds = RecordLimiter(interval, limit)
        #: When its interval began, how many were admitted in it, and how many omitted since the last one.
        self._groups: dict[Hashable, tuple[float, int, int]] = {}

    def admit(self, group: Hashable, kind: Hashable, now: float) -> int | None:
        """As :meth:`RecordLimiter.admit`; the number includes those of all kinds that were beyond the share."""
        began, admitted, omitted = self._groups.pop(group, (now, 0, 0))
        if not 0 <= now - began < self._interval:
            began, admitted = now, 0
        repeated = None
        if admitted >= self._share:
            omitted += 1
        elif (repeated := self._kinds.admit((group, kind), now)) is not None:
            admitted, repeated, omitted = admitted + 1, repeated + omitted, 0
        # Moved behind the others: the first is the one without a record for the longest time.
        self._groups[group] = (began, admitted, omitted)
        if len(self._groups) > self._limit:
            del self._groups[next(iter(self._groups))]
        return repeated


class EventLimiter:
    """Limits log events of libraries that a peer can cause."""

    def __init__(self, limit: int = MAX_EVENTS) -> None:
        self._limiter = RecordLimiter(INTERVAL, limit)

    def admit(self, event: LogEvent) -> LogEvent | None:
        """The event to write, with the attribute ``repeated`` if others of its kind were omitted, or None."""
        kind = _event_kind(event)
        if kind is None:
            return event
        omitted = self._limiter.admit(kind, event.get("log_time", 0.0))
        if omitted is None:
            return None
        return {**event, KEY_ATTRIBUTES: {"repeated": omitted}} if omitted else event


def source_fields(source: str) -> tuple[str | None, str | None]:
    """The SPIFFE ID and the address of a source of suppressed denials, at most one of them not None."""
    return (source, None) if source.startswith("spiffe://") else (None, source or None)


def without_port(source: str) -> str:
    """The host of an address, without brackets; what is no address with a port is returned as it is."""
    # Each connection of a peer has another port.
    match = _WITH_PORT.match(source)
    return match[1].strip("[]") if match is not None else source


def _event_kind(event: LogEvent) -> str | None:
    """The kind of an event that is limited; None for an event that is always written."""
    format_ = event.get("log_format")
    if not isinstance(format_, str):
        return None
    if format_ == _WARNING:
        location = (event.get("category"), event.get("filename"), event.get("lineno"))
        return " ".join(str(each) for each in location if type(each) in (str, int))
    return format_ if format_.startswith(_FORMATS) else None

"""
Keeps a flood of the same from becoming a flood of log lines.

At most one denial a second is logged for each (reason, source address); the rest is counted and told in one line when
the second is over. What fails again and again is told ever more seldom. Knows neither logs nor metrics: it is asked,
and reports to a function.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: Stands for all sources for which no entry was left.
MANY_SOURCES: Final = "*"
_WITH_PORT: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\]]+):\d{1,5}\Z")


class DenialLimiter:
    """
    Decides which denials are logged.

    Args:
        clock: measures the interval.
        report: called with (reason, source, count) once an interval is over in which ``count`` denials were not logged.
        interval: seconds in which one denial of a kind is logged.
        limit: the most kinds watched at a time; further ones are counted together under the source ``*``.
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
        self._sweep: IDelayedCall | None = None

    def admit(self, reason: str, source: str) -> bool:
        """
        Ask whether a denial is to be logged.

        Args:
            reason: why something was denied.
            source: the address that it came from; its port, if there is one, makes no other source.

        Returns:
            True for the first of its kind in an interval; False for one that is counted only.
        """
        now = self._clock.seconds()
        key = (reason, _host(source))
        until = self._until.get(key)
        if until is None and len(self._until) >= self._limit:
            key = (reason, MANY_SOURCES)
            until = self._until.get(key, now + self._interval)
            self._until.setdefault(key, until)
        if until is not None and now < until:
            self._suppressed[key] = self._suppressed.get(key, 0) + 1
            return False
        self._tell(key)
        self._until[key] = now + self._interval
        self._watch()
        return True

    def close(self) -> None:
        """Report what is counted and stop the timer."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for key in list(self._suppressed):
            self._tell(key)
        self._until.clear()

    def _watch(self) -> None:
        if self._sweep is None:
            self._sweep = self._clock.callLater(self._interval, self._swept)

    def _swept(self) -> None:
        self._sweep = None
        now = self._clock.seconds()
        for key, until in list(self._until.items()):
            if until <= now:
                del self._until[key]
                self._tell(key)
        if self._until:
            self._watch()

    def _tell(self, key: tuple[str, str]) -> None:
        count = self._suppressed.pop(key, 0)
        if count:
            self._report(key[0], key[1], count)


class FailureStreak:
    """
    Decides which failures of something that is tried for ever are logged: the first, the second, the fourth and so on.

    Attributes:
        count: how often it has failed with the same reason in a row.
    """

    def __init__(self) -> None:
        self.count = 0
        self._reason = ""

    def failed(self, reason: str) -> bool:
        """
        Count a failure.

        Args:
            reason: why it failed; another one than before begins anew.

        Returns:
            Whether it is to be logged.
        """
        self.count = self.count + 1 if reason == self._reason else 1
        self._reason = reason
        return self.count & (self.count - 1) == 0

    def succeeded(self) -> None:
        """Begin anew."""
        self.count, self._reason = 0, ""


def source_fields(source: str) -> tuple[str | None, str | None]:
    """
    Tell what the source of suppressed denials is: they are counted by identity where the peer is verified.

    Args:
        source: as :meth:`DenialLimiter.admit` got it.

    Returns:
        The SPIFFE ID and the source address; at most one of them is not None.
    """
    return (source, None) if source.startswith("spiffe://") else (None, source or None)


def _host(source: str) -> str:
    # Each connection of a peer comes from another port: with it every denial would be the first of its kind.
    match = _WITH_PORT.match(source)
    return match[1].strip("[]") if match is not None else source

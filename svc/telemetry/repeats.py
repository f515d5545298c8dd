"""
What libraries say once for each connection while a process has no descriptor left.

Anybody who may connect can cause it as often as he likes, so each sentence is written at most once in ten seconds, and
the next one says how many were left out. Knows the sentences; must not know who writes.
"""

from __future__ import annotations

from typing import Final

from twisted.logger import LogEvent

from svc.telemetry.records import KEY_ATTRIBUTES

#: Seconds for which a sentence that was written is not written again.
INTERVAL: Final = 10.0

#: How the sentences of ``twisted.internet.tcp`` begin.
_SENTENCES: Final = (
    "EMFILE encountered",
    "EMFILE recovery",
    "Re-reserving EMFILE",
    "Could not reserve EMFILE",
    "Could not re-reserve EMFILE",
    "Could not accept new connection",
)


class Repeats:
    """
    Leaves out what is repeated.

    Args:
        interval: seconds for which a sentence that was written is not written again.
    """

    def __init__(self, interval: float = INTERVAL) -> None:
        self._interval = interval
        self._written: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def judged(self, event: LogEvent) -> LogEvent | None:
        """
        Judge whether an event is written.

        Args:
            event: a log event of Twisted's logger.

        Returns:
            The event to write, which tells as the attribute ``repeated`` how many like it were not written since the
            last one, or None.
        """
        said = event.get("log_format")
        if not isinstance(said, str) or not said.startswith(_SENTENCES):
            return event
        now = event.get("log_time", 0.0)
        if 0 <= now - self._written.get(said, now - self._interval) < self._interval:
            self._left_out[said] = self._left_out.get(said, 0) + 1
            return None
        self._written[said] = now
        left_out = self._left_out.pop(said, 0)
        return {**event, KEY_ATTRIBUTES: {"repeated": left_out}} if left_out else event

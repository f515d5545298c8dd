"""
Times at which something is due, one for each key.

Pure. A time may be moved or dropped as often as one likes: what is held stays proportional to the number of keys.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

#: Entries out of date are swept out once they outnumber the others by this.
_SLACK: Final = 64


class Deadlines:
    """Keys, each with the time when it is due."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        """Tell the number of keys."""
        return len(self._due)

    @property
    def entries(self) -> int:
        """What is held, times that were replaced or dropped included."""
        return len(self._heap)

    def set(self, key: str, when: float) -> None:
        """
        Set when a key is due, in place of what was set before.

        Args:
            key: the key.
            when: the time.
        """
        if self._due.get(key) == when:
            return
        self._due[key] = when
        heapq.heappush(self._heap, (when, key))
        self._tidy()

    def drop(self, key: str) -> None:
        """
        Forget a key.

        Args:
            key: one that may be known or not.
        """
        if self._due.pop(key, None) is not None:
            self._tidy()

    def due(self, now: float) -> Iterator[str]:
        """
        Take out what is due.

        Args:
            now: the time.

        Yields:
            Keys in the order of their times; each may be set again meanwhile.
        """
        while self._heap and self._heap[0][0] <= now:
            when, key = heapq.heappop(self._heap)
            if self._due.get(key) == when:
                del self._due[key]
                yield key

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._heap = [(when, key) for key, when in self._due.items()]
            heapq.heapify(self._heap)

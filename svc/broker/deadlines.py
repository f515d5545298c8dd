"""Times at which something is due, one for each key. Pure; what is stored is proportional to the number of keys."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

#: Outdated entries are removed from the heap once they outnumber the others by this.
_SLACK: Final = 64


class Deadlines:
    """Keys, each with the time when it is due."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    @property
    def entries(self) -> int:
        """The number of stored entries, outdated ones included."""
        return len(self._heap)

    def set(self, key: str, when: float) -> None:
        """Set when a key is due, in place of what was set before."""
        if self._due.get(key) == when:
            return
        self._due[key] = when
        heapq.heappush(self._heap, (when, key))
        self._compact()

    def drop(self, key: str) -> None:
        """Remove a key, if it is set."""
        if self._due.pop(key, None) is not None:
            self._compact()

    def due(self, now: float) -> Iterator[str]:
        """Remove and yield the keys that are due, in the order of their times; each may be set again meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            when, key = heapq.heappop(self._heap)
            if self._due.get(key) == when:
                del self._due[key]
                yield key

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._heap = [(when, key) for key, when in self._due.items()]
            heapq.heapify(self._heap)

"""
Telling every open watch that something has changed.

Owns one counter and those who wait for it to move; knows nothing of what changed.
"""

from __future__ import annotations

import asyncio


class Changes:
    """A counter that coroutines of one event loop can wait for."""

    def __init__(self) -> None:
        self.number = 0
        self._waiting: set[asyncio.Event] = set()

    def bump(self) -> None:
        """Count a change and wake everyone who waits."""
        self.number += 1
        for event in self._waiting:
            event.set()

    async def beyond(self, number: int, seconds: float) -> bool:
        """
        Wait for a change.

        Args:
            number: the last number that the caller has seen.
            seconds: the longest wait.

        Returns:
            Whether the number has moved on; False after the wait.
        """
        if self.number != number:
            return True
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            await asyncio.wait_for(event.wait(), max(seconds, 0.0))
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(event)
        return True

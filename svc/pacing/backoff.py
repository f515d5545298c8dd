"""Pauses between attempts to reach a server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts: exponential with jitter; ``first`` and ``longest`` are upper bounds in seconds."""

    first: float = 0.1
    longest: float = 5.0

    def pause(self, failures: int, random: float) -> float:
        """
        The seconds to wait after ``failures`` failed attempts in a row, for a random number from 0 to 1.

        At least half of the current bound, so that attempts never become a busy loop.
        """
        bound = min(self.longest, self.first * 2.0 ** min(failures - 1, 16))
        return bound * (0.5 + random / 2)

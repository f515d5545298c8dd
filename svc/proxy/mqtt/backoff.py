"""Pauses between attempts to reach a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Doublings after which the bound grows no further, so that the power of two stays a small number.
_MAX_DOUBLINGS: Final = 32


def full_jitter(base: float, longest: float, failures: int, random: float) -> float:
    """
    A random pause in seconds, between nothing and a bound that doubles with each failure before this one.

    Args:
        base: the bound without a failure before.
        longest: bounds every pause.
        failures: consecutive ones before this one.
        random: a number from 0 to 1.
    """
    return random * min(longest, base * 2.0 ** min(failures, _MAX_DOUBLINGS))


class FullJitter:
    """
    Exponential backoff with full jitter: each pause is random, between nothing and a bound that doubles.

    Brokers that restart are thus reached by many proxies evenly over time.

    Args:
        base: seconds that bound the first pause.
        longest: seconds that bound every pause.
        random: returns numbers from 0 to 1.
    """

    def __init__(self, base: float, longest: float, random: Callable[[], float]) -> None:
        self._base = base
        self._longest = longest
        self._random = random
        #: Consecutive failures.
        self.failures = 0

    def pause(self) -> float:
        """Count a failed attempt and return the seconds until the next one."""
        pause = full_jitter(self._base, self._longest, self.failures, self._random())
        self.failures += 1
        return pause

    def succeeded(self) -> None:
        """Begin with short pauses again."""
        self.failures = 0

"""
Notarization levels: how much of an exchange is proven.

Owns their names, their order and which one is in force. Knows nothing of policies, headers or listeners.
"""

from __future__ import annotations

from enum import Enum

from svc.notary.errors import NotaryError
from svc.notary.refusals import LevelMismatch


class LevelUnknown(NotaryError):
    """{text} is no notarization level"""

    reason = "level_unknown"
    http_status = 400
    hint = "use workload, logRequest or signRequest"
    text: str


class Level(Enum):
    """
    A notarization level; the members are ordered from the weakest to the strongest.

    The value is the word used in headers, flags, configuration and payloads.
    """

    NONE = "none"
    WORKLOAD = "workload"
    LOG_REQUEST = "logRequest"
    SIGN_REQUEST = "signRequest"

    @classmethod
    def parse(cls, text: object) -> Level:
        """
        Read the word of a level; upper and lower case matter.

        Args:
            text: the word.

        Returns:
            The level.

        Raises:
            LevelUnknown: where it is none.
        """
        level = _BY_WORD.get(text) if isinstance(text, str) else None
        if level is None:
            raise LevelUnknown(text=text)
        return level

    @property
    def rank(self) -> int:
        """The place in the order, 0 for ``none``."""
        return _RANKS[self]

    @property
    def recorded(self) -> bool:
        """Whether an exchange at this level leaves a durable record."""
        return self.rank >= _RANKS[Level.LOG_REQUEST]

    def covers(self, other: Level) -> bool:
        """
        Compare two levels.

        Args:
            other: the level asked for.

        Returns:
            True where this level proves at least as much.
        """
        return self.rank >= other.rank

    def __str__(self) -> str:
        return self.value

    # There is one object of each member, and levels are looked up for every request: Enum's own hash is slower.
    __hash__ = object.__hash__


_BY_WORD: dict[str, Level] = {level.value: level for level in Level}
_RANKS: dict[Level, int] = {level: rank for rank, level in enumerate(Level)}


def level_in_force(*, demanded: Level, asked: Level, maximum: Level) -> Level:
    """
    Say which level an exchange gets.

    Args:
        demanded: what policy or the listener asks for.
        asked: what the client asks for.
        maximum: the strongest that the listener gives.

    Returns:
        The stronger wish, cut at the maximum.
    """
    return min(max(demanded, asked, key=_RANKS.__getitem__), maximum, key=_RANKS.__getitem__)


def check_level(asked: Level, answered: str | None) -> Level:
    """
    Judge the level that a response names; a stronger one than asked is welcome.

    Args:
        asked: what the client asked for.
        answered: the value of ``Svc-Notarization-Level`` in the response, None where it is absent.

    Returns:
        The level in force.

    Raises:
        LevelMismatch: where the header is absent, unknown or weaker than asked.
    """
    try:
        level = Level.parse(answered)
    except LevelUnknown as error:
        raise LevelMismatch(asked=asked, answered=answered) from error
    if not level.covers(asked):
        raise LevelMismatch(asked=asked, answered=level)
    return level

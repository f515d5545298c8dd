"""Notarization levels: how much of an exchange is proven, in their order, and which one applies."""

from __future__ import annotations

from enum import Enum

from svc.notary.errors import LevelMismatch, NotaryRefused


class LevelUnknown(NotaryRefused):
    """{text} is no notarization level"""

    reason = "level_unknown"
    http_status = 400
    hint = "use workload, logRequest or signRequest"
    text: str


class Level(Enum):
    """
    A notarization level, from the weakest to the strongest; the value is the word in headers, flags, configuration and
    payloads.
    """

    NONE = "none"
    WORKLOAD = "workload"
    LOG_REQUEST = "logRequest"
    SIGN_REQUEST = "signRequest"

    @classmethod
    def parse(cls, text: object) -> Level:
        """
        Read the word of a level, case-sensitively.

        Raises:
            LevelUnknown: for anything else.
        """
        level = _BY_WORD.get(text) if isinstance(text, str) else None
        if level is None:
            raise LevelUnknown(text=text)
        return level

    @property
    def rank(self) -> int:
        """The position in the order, 0 for ``none``."""
        return _RANKS[self]

    @property
    def recorded(self) -> bool:
        """Whether an exchange at this level leaves a durable record."""
        return self.rank >= _RANKS[Level.LOG_REQUEST]

    def covers(self, other: Level) -> bool:
        """Return whether this level proves at least as much as another."""
        return self.rank >= other.rank

    def __str__(self) -> str:
        return self.value

    # There is one object of each member, and levels are looked up for every request: Enum's own hash is slower.
    __hash__ = object.__hash__


_BY_WORD: dict[str, Level] = {level.value: level for level in Level}
_RANKS: dict[Level, int] = {level: rank for rank, level in enumerate(Level)}


def effective_level(*, demanded: Level, asked: Level, maximum: Level) -> Level:
    """Return the level of an exchange: the stronger of demanded and asked, limited by the listener's maximum."""
    return min(max(demanded, asked, key=_RANKS.__getitem__), maximum, key=_RANKS.__getitem__)


def check_level(asked: Level, answered: str | None) -> Level:
    """
    Check the level of a response, given as the value of ``Svc-Notarization-Level`` or None; a stronger one than asked
    is accepted.

    Returns:
        The level of the response.

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

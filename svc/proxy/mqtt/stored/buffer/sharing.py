"""
What of the buffer is shared by identity: sessions, octets of messages, and dead letters; the rule is svc.shares.

Who holds what is in the database with each session and dead letter, so that it is right after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from svc.proxy.mqtt.stored.buffer.limits import BufferLimits
from svc.proxy.mqtt.stored.buffer.records import LoadedSession, SessionKey
from svc.shares import Holdings, SharedRoom, one_fits


class BufferShares:
    """
    Who has how much of a buffer.

    Attributes:
        sessions: how many each has.
        messages: octets of messages that are stored.
        letters: how many dead letters each has.
        letter_octets: octets of these.
    """

    def __init__(self, limits: BufferLimits) -> None:
        self._limits = limits
        self.sessions: Final = Holdings[str]()
        self.messages: Final = SharedRoom(limits.octets)
        self.letters: Final = SharedRoom(limits.dead_letters)
        self.letter_octets: Final = SharedRoom(limits.dead_letter_octets)

    def restore(self, sessions: Iterable[LoadedSession]) -> None:
        """Count what is there at the start, whether it fits or not."""
        for each in sessions:
            self.sessions.change(each.session.key.holder, 1)
            self.messages.take(each.session.key.holder, each.octets)

    def session_fits(self, key: SessionKey) -> bool:
        """Whether there may be this session, too."""
        return one_fits(self.sessions, key.holder, self._limits.sessions)

    def message_fits(self, key: SessionKey, octets: int) -> bool:
        """Whether a message of a session may be stored."""
        return self.messages.fits(key.holder, octets)

    def letter_fits(self, key: SessionKey, octets: int) -> bool:
        """Whether a message of a session may become a dead letter."""
        return self.letters.fits(key.holder, 1) and self.letter_octets.fits(key.holder, octets)

    def change_letters(self, holder: str, letters: int, octets: int) -> None:
        """Count dead letters that one has more, or less."""
        self.letters.take(holder, letters)
        self.letter_octets.take(holder, octets)

"""How much a buffer stores; without the database, which the configuration does not need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Octets kept back on the disk for what runs when it becomes full: states and removals, which are small.
RESERVE_SIZE: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BufferLimits:
    """
    How much is stored; at a bound new messages are refused, since none that was acknowledged may be dropped.

    Args:
        octets: of all messages.
        sessions: that are remembered.
        session_octets: of the messages of one session.
        session_messages: of one session.
        session_age: seconds that the oldest message of a session may have waited while new ones are accepted, and that
            one which the broker refuses holds back the others.
        dead_letters: messages that the broker will not accept, which are kept for an operator.
        dead_letter_octets: of these.
    """

    octets: int = 1024 * 1024 * 1024
    sessions: int = 10_000
    session_octets: int = 64 * 1024 * 1024
    session_messages: int = 100_000
    session_age: float = 7 * 86400.0
    dead_letters: int = 10_000
    dead_letter_octets: int = 64 * 1024 * 1024

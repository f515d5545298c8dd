"""
For what the packets of a client wait: while anything of it is outstanding, none is handled and the client is not read.

Nothing else holds a client of a stored session, except a turn of the reactor and records that are being written. There
is one way to end a wait, and the end of the last one has the client go on.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final


class Wait(Enum):
    """What is outstanding."""

    CONNACK = auto()
    #: Of a message that is to be recorded.
    ADMISSION = auto()
    #: Of messages before one that is beyond the Receive Maximum.
    ACKNOWLEDGEMENTS = auto()
    #: The end of a client that is closed behind acknowledgements.
    END = auto()
    #: So many octets are not durable.
    DISK = auto()
    #: The connection to the broker is full.
    BROKER = auto()


#: What outlives a client.
_OF_SESSION: Final = frozenset({Wait.DISK, Wait.BROKER})


class ClientWaits:
    """
    What is outstanding for one session.

    Args:
        began: the first one began; called at once, it must not call back.
        ended: the last one ended, as ``began``; not called when the client leaves.
    """

    def __init__(self, began: Callable[[], None], ended: Callable[[], None]) -> None:
        self._began = began
        self._ended = ended
        self._outstanding: set[Wait] = set()

    def __bool__(self) -> bool:
        """Whether anything is outstanding."""
        return bool(self._outstanding)

    def __contains__(self, wait: Wait) -> bool:
        """Whether this is outstanding."""
        return wait in self._outstanding

    def begin(self, wait: Wait) -> None:
        """It is outstanding from now on."""
        first = not self._outstanding
        self._outstanding.add(wait)
        if first:
            self._began()

    def end(self, wait: Wait) -> None:
        """It is not outstanding, or no longer."""
        if wait in self._outstanding:
            self._outstanding.remove(wait)
            if not self._outstanding:
                self._ended()

    def client_left(self) -> None:
        """Forget what was outstanding for the client alone."""
        self._outstanding &= _OF_SESSION

"""
How long what one read of a connection brought may keep the reactor before other connections are served.

Owns the length of a turn and who goes on next. What is left of a read stays with its connection, which handles some of
it, asks whether its time is over, and then waits here, unread, for a later turn of the reactor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

#: Seconds of one reactor turn. With what is under way then, of up to 1.5 ms, a turn stays below 5 ms.
TURN_SECONDS: Final = 0.003

_log = Logger()


class UnfinishedRead(Protocol):
    """A connection with octets that are read and not handled; it is not read meanwhile."""

    def read_on(self) -> None:
        """Handle more; what is still left at the deadline waits again."""

    def abort_defective(self) -> None:
        """Drop the connection, in which a defect of this process left octets unhandled."""


class Turns:
    """
    Connections that have more to handle than a turn of the reactor allows: round robin, each with the same share.

    Args:
        clock: the reactor; its time is monotonic.
        seconds: of each reactor turn, for all that wait.
    """

    def __init__(self, clock: IReactorTime, seconds: float = TURN_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._waiting: dict[UnfinishedRead, None] = {}
        self._next: IDelayedCall | None = None

    def deadline(self) -> float:
        """Return until when a connection may handle what was read: a turn, or its share where others wait."""
        return self._clock.seconds() + self._seconds / (1 + len(self._waiting))

    def over(self, deadline: float) -> bool:
        """Whether a connection is to wait with what is left; asked after each message, or some that cost little."""
        return self._clock.seconds() >= deadline

    def take_slices(self, data: bytes, take: Callable[[bytes, int], int]) -> bytes:
        """
        Handle what was read in slices, until the turn is over.

        Args:
            data: what was read.
            take: handles the slice from an offset on, and returns where the next one begins; the length of the data
                where none follows.

        Returns:
            What is left for a later turn; the time is not looked at before the third slice.
        """
        begin, deadline = take(data, 0), None
        while begin < len(data):
            if deadline is None:
                deadline = self.deadline()
            elif self.over(deadline):
                return data[begin:]
            begin = take(data, begin)
        return b""

    def wait(self, connection: UnfinishedRead) -> None:
        """Let a connection read on in a later turn, behind all that wait."""
        self._waiting[connection] = None
        self._schedule()

    def discard(self, connection: UnfinishedRead) -> None:
        """Forget a connection that has nothing left, whether it waits or not."""
        self._waiting.pop(connection, None)
        call = self._next
        if not self._waiting and call is not None:
            self._next = None
            call.cancel()

    def _schedule(self) -> None:
        if self._next is None:
            self._next = self._clock.callLater(0, self._turn)

    def _turn(self) -> None:
        self._next = None
        end = self._clock.seconds() + self._seconds
        while self._waiting:
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            try:
                connection.read_on()
            except Exception:  # noqa: BLE001 (an error ends its connection, as in a read by the reactor)
                _log.failure("what a connection received could not be handled; it is dropped")
                connection.abort_defective()
            if self.over(end):
                break
        if self._waiting:
            self._schedule()

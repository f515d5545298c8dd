"""
Writes, and ends of connections, that wait for the end of the reactor's round.

In one round the reactor reads many connections, and each answers with a small write. Sent together at the end of the
round, those writes wake the processes at the other side once instead of once each, and the kernel's code and ours do
not drive each other out of the caches: a fifth of the cost of a small request. A connection that is closed with nothing
left to send need not be asked for its turn to write first. Owns who waits and how many may; knows nothing of sockets.
"""

from __future__ import annotations

from typing import Final, Protocol

#: Connections that wait at the most: the first of them waits for the work of this many, about a millisecond.
MOST_WAITING: Final = 32
#: Larger writes, and what would make more than this wait on one connection, are sent at once.
MOST_OCTETS: Final = 16 * 1024


class Waiting(Protocol):
    """A connection that has something to send."""

    def send_gathered(self) -> None:
        """Send it; never raises."""

    def close_gathered(self) -> None:
        """Close, where nothing is left to send; never raises."""


class SendRound:
    """
    The connections that have written, or were closed, in one round.

    Args:
        most: how many may wait.
    """

    __slots__ = ("_closing", "_most", "_waiting")

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._waiting: list[Waiting] = []
        self._closing: list[Waiting] = []

    def add(self, connection: Waiting) -> None:
        """
        Let a connection wait; with the last that may, all are sent.

        Args:
            connection: one that does not wait yet.
        """
        waiting = self._waiting
        waiting.append(connection)
        if len(waiting) >= self._most:
            self._send()

    def add_closing(self, connection: Waiting) -> None:
        """
        Let a connection wait for its end, which comes when no other connection is being read.

        Args:
            connection: one that reads no more.
        """
        self._closing.append(connection)

    def end(self) -> None:
        """Send what waits, in the order in which it was written, and close what waits for that; called once."""
        self._send()
        for connection in self._closing:
            connection.close_gathered()

    def _send(self) -> None:
        waiting = self._waiting
        if waiting:
            self._waiting = []
            for connection in waiting:
                connection.send_gathered()

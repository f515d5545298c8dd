"""
Small writes, and closes, that are deferred to the end of an iteration of the reactor.

In one iteration the reactor reads many connections, and each replies with a small write. Sent together at the end they
wake the processes at the other side once instead of once each, and kernel code and ours do not evict each other from
the CPU caches: a fifth of the cost of a small request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from svc.transport.fast.eager import EagerWrites

#: The most connections in a batch: the first of them waits for the work of this many, about a millisecond.
MAX_CONNECTIONS: Final = 32
#: A larger write, or one that would make the batched octets of a connection more than this, is sent at once.
MAX_OCTETS: Final = 16 * 1024


class WriteBatch:
    """The connections with batched writes or a batched close in one iteration of the reactor."""

    __slots__ = ("_closing", "_max_connections", "_writing")

    def __init__(self, max_connections: int = MAX_CONNECTIONS) -> None:
        self._max_connections = max_connections
        self._writing: list[EagerWrites] = []
        self._closing: list[EagerWrites] = []

    def add(self, connection: EagerWrites) -> None:
        """Add a connection that is not in the batch; at the maximum all are sent."""
        writing = self._writing
        writing.append(connection)
        if len(writing) >= self._max_connections:
            self._send()

    def add_closing(self, connection: EagerWrites) -> None:
        """Add a connection that reads no more, to be closed at the end of the iteration."""
        self._closing.append(connection)

    def end(self) -> None:
        """Send the batched writes in the order of their first write, then close; called once."""
        self._send()
        for connection in self._closing:
            connection.close_batched()

    def _send(self) -> None:
        writing = self._writing
        if writing:
            self._writing = []
            for connection in writing:
                connection.send_batched()

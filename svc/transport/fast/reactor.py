"""
An epoll reactor without a logging context for each event, and small writes that it sends at the end of an iteration.

Twisted's reactors enter a logging context around every read and write, a sixth of the cost of a small request; records
of this product carry their context themselves. In one iteration the reactor reads many connections, and each replies
with a small write. Sent together at the end they wake the processes at the other side once instead of once each, and
kernel code and ours do not evict each other from the CPU caches: a fifth of the cost of a small request.
"""

from __future__ import annotations

import errno
from select import EPOLLIN
from typing import Any, Final, Protocol

from twisted.internet.main import installReactor
from twisted.python import log

#: The private names of Twisted's epoll reactor that this one relies on.
REQUIRED_NAMES: Final = ("_poller", "_selectables", "_disconnectSelectable", "_doReadOrWrite", "doPoll")
#: The most connections in a batch: the first of them waits for the work of this many, about a millisecond.
MAX_CONNECTIONS: Final = 32
#: A larger write, or one that would make the batched octets of a connection more than this, is sent at once.
MAX_OCTETS: Final = 16 * 1024


class BatchedConnection(Protocol):
    """A connection whose small writes, and whose close, may wait for the end of an iteration."""

    def send_batched(self) -> None:
        """Send the batched data; never raises."""

    def close_batched(self) -> None:
        """Close, unless something was written since; an error of the protocol is logged."""


class WriteBatch:
    """The connections with batched writes or a batched close in one iteration of the reactor."""

    __slots__ = ("_closing", "_max_connections", "_writing")

    def __init__(self, max_connections: int = MAX_CONNECTIONS) -> None:
        self._max_connections = max_connections
        self._writing: list[BatchedConnection] = []
        self._closing: list[BatchedConnection] = []

    def add(self, connection: BatchedConnection) -> None:
        """Add a connection that is not in the batch; at the maximum all are sent."""
        writing = self._writing
        writing.append(connection)
        if len(writing) >= self._max_connections:
            self._send()

    def add_closing(self, connection: BatchedConnection) -> None:
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


def _reactor_class() -> type[Any] | None:
    try:
        from twisted.internet.epollreactor import EPollReactor
    except ImportError:
        return None

    class PlainEPollReactor(EPollReactor):
        """Twisted's epoll reactor without a log context for each event."""

        #: Where writes wait while events are handled; None otherwise.
        write_batch: WriteBatch | None = None

        def doPoll(self, timeout: float | None) -> None:
            """Wait ``timeout`` seconds at most for events, None without end, and handle them."""
            try:
                events = self._poller.poll(-1 if timeout is None else timeout, len(self._selectables))
            except OSError as error:
                if error.errno == errno.EINTR:
                    return
                raise
            selectables, handle = self._selectables, self._doReadOrWrite
            batch = self.write_batch = WriteBatch()
            try:
                for descriptor, event in events:
                    selectable = selectables.get(descriptor)
                    if selectable is None:
                        # An earlier event of this round has closed it.
                        continue
                    if event == EPOLLIN:
                        # Nearly all events are of this kind; Twisted does the same with more questions.
                        try:
                            why = selectable.doRead()
                        except BaseException as error:  # noqa: BLE001 (an error ends its connection, not the reactor)
                            log.err()
                            why = error
                        if why:
                            self._disconnectSelectable(selectable, why, True)
                    else:
                        handle(selectable, descriptor, event)
            finally:
                self.write_batch = None
                batch.end()

        doIteration = doPoll

    return PlainEPollReactor


def install() -> bool:
    """
    Install the reactor, before anything imports ``twisted.internet.reactor``.

    False where this Twisted lacks what it needs: Twisted then installs its default. Raises
    ``ReactorAlreadyInstalledError`` where a reactor is installed already.
    """
    kind = _reactor_class()
    if kind is None:
        return False
    reactor = kind()
    if not all(hasattr(reactor, name) for name in REQUIRED_NAMES):
        return False
    installReactor(reactor)
    return True

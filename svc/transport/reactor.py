"""
An epoll reactor that sets no log context for each event, and says when a round of events ends.

Twisted's reactors enter a logging context around every read and write, a sixth of the cost of a small request. Nothing
here logs by that context: records carry their own. Everything else is Twisted's reactor. Of transports it uses only
that those which answer within a round may wait for its end.
"""

from __future__ import annotations

import errno
from select import EPOLLIN
from typing import Any, Final

from twisted.internet.main import installReactor
from twisted.python import log

from svc.transport.fast.write_batching import WriteBatch

#: The private names of Twisted's epoll reactor that this one relies on.
REQUIRED_NAMES: Final = ("_poller", "_selectables", "_disconnectSelectable", "_doReadOrWrite", "doPoll")


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
            """
            Wait for events and handle them.

            Args:
                timeout: seconds to wait at most; None waits without end.
            """
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

    Returns:
        True when it is installed; False when this Twisted lacks what it needs: Twisted then installs its default.

    Raises:
        twisted.internet.error.ReactorAlreadyInstalledError: a reactor is installed already.
    """
    kind = _reactor_class()
    if kind is None:
        return False
    reactor = kind()
    if not all(hasattr(reactor, name) for name in REQUIRED_NAMES):
        return False
    installReactor(reactor)
    return True

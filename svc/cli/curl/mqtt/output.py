"""
A standard stream whose reader may be slow: the writer waits without blocking the reactor.

What a pipe or a terminal reports as writable takes ``PIPE_BUF`` octets at once (POSIX, write), so that no write blocks,
and the mode of a descriptor that other processes share is not changed.
"""

from __future__ import annotations

import select
from typing import Any, BinaryIO

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IWriteDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.cli.output import write_checked


@implementer(IWriteDescriptor)
class PacedOutput:
    """Writes to one stream, one caller at a time."""

    def __init__(self, stream: BinaryIO, reactor: Any) -> None:
        self._stream = stream
        self._reactor = reactor
        self._waiting: Deferred[None] | None = None

    async def write(self, data: bytes) -> None:
        """Write all octets; raises ``OutputFailed`` where the stream is closed or full."""
        for start in range(0, len(data), select.PIPE_BUF):
            await self.ready()
            write_checked(self._stream, data[start : start + select.PIPE_BUF])

    async def ready(self) -> None:
        """Wait until the stream takes ``PIPE_BUF`` octets; one that is closed, or is no stream of the system, does."""
        try:
            descriptor = self._stream.fileno()
        except (OSError, ValueError):
            return
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        if not poll.poll(0):
            self._waiting = Deferred(self._cancelled)
            self._reactor.addWriter(self)
            await self._waiting

    def _cancelled(self, _waiting: Deferred[None]) -> None:
        self._waiting = None
        self._reactor.removeWriter(self)

    def doWrite(self) -> None:
        """The stream became writable."""
        self._reactor.removeWriter(self)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    def connectionLost(self, reason: Failure) -> None:
        """The reader ended; the next write reports it."""
        self.doWrite()

    def fileno(self) -> int:
        """The descriptor, for the reactor."""
        return self._stream.fileno()

    def logPrefix(self) -> str:
        """The name in records of the reactor."""
        return "svc.cli"

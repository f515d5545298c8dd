"""
Two transports joined: octets pass both ways with back-pressure, and the end of each stream ends the other's.

The end of what one side sends is passed on as the end of what the other receives, while the other direction goes on:
FIN on a plain connection, close_notify under TLS. A stream that breaks off breaks off the other side, too, so that
neither can take a part for the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IHalfCloseableProtocol, IProtocol, IPushProducer
from twisted.python.failure import Failure
from zope.interface import implementer


@implementer(IProtocol, IHalfCloseableProtocol, IPushProducer)
class RelayEnd:
    """One of the two; the producer of the other's transport. Not read before it is joined."""

    transport: Any = None

    def __init__(self) -> None:
        self._other: RelayEnd | None = None
        #: What arrived before the other end was there: at most the rest of what one read decrypts.
        self._early: list[bytes] = []
        #: Where octets go: a transport drops what is written after its end.
        self._send: Callable[[bytes], object] = self._early.append
        self._read_ended = self._write_ended = False
        #: The transport is closed.
        self.gone = False
        #: Octets received.
        self.octets = 0

    @property
    def complete(self) -> bool:
        """Whether both streams of this end ended in order."""
        return self._read_ended and self._write_ended

    def join(self, other: RelayEnd) -> None:
        """Relay between both from now on."""
        self._other, other._other = other, self
        for end, source in ((self, other), (other, self)):
            if not end.gone:
                end.transport.registerProducer(source, True)
        self._begin(other)
        other._begin(self)

    def _begin(self, other: RelayEnd) -> None:
        self.resumeProducing()
        self._send = other.transport.write
        for data in self._early:
            self._send(data)
        self._early.clear()
        if self._read_ended:
            other.finish()

    def finish(self) -> None:
        """Send what was written, then the end of the stream; what this side sends is still relayed."""
        if self._write_ended or self.gone:
            return
        self._write_ended = True
        # First, since a transport with a paused producer does not end its stream.
        self.transport.unregisterProducer()
        self.transport.loseWriteConnection()
        if self._read_ended:
            self.transport.loseConnection()

    def break_off(self) -> None:
        """Drop the transport, so that its peer sees that something is missing."""
        if not self.gone and self.transport is not None:
            self.transport.abortConnection()

    def lost(self, reason: Failure) -> None:
        """The transport is closed; for subclasses."""

    # -- Twisted -----------------------------------------------------------------------------------------------------

    def makeConnection(self, transport: Any) -> None:
        """Attach the transport; small writes are sent at once."""
        self.transport = transport
        set_no_delay = getattr(transport, "setTcpNoDelay", None)
        if set_no_delay is not None:
            set_no_delay(True)
        transport.pauseProducing()
        self.connectionMade()

    def connectionMade(self) -> None:
        """For subclasses."""

    def dataReceived(self, data: bytes) -> None:
        """Pass octets on."""
        self.octets += len(data)
        self._send(data)

    def readConnectionLost(self) -> None:
        """The other side sends no more: neither does this proxy, in that direction."""
        if self._read_ended:
            return
        self._read_ended = True
        if self._other is not None:
            self._other.finish()
        if self._write_ended and not self.gone:
            self.transport.loseConnection()

    def writeConnectionLost(self) -> None:
        """The end of the stream is sent."""

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 (Twisted's signature)
        """The transport is closed: the other goes on only where all was relayed."""
        self.gone = True
        self.lost(reason)
        if self._other is not None and not self.complete:
            self._other.break_off()

    # The producer of the other's transport.

    def pauseProducing(self) -> None:
        """The other side reads slower than this one sends."""
        if not (self.gone or self._read_ended):
            self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        """The other side caught up."""
        if not (self.gone or self._read_ended):
            self.transport.resumeProducing()

    def stopProducing(self) -> None:
        """The other's transport is closed; its own protocol is called."""

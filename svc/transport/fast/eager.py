"""
TCP transports that send in ``write`` what the socket takes at once, and deliver reads without a copy.

Twisted's transports buffer each write and send it on the next iteration of the reactor. These call ``send`` in
``write`` when nothing is buffered, or at the end of the iteration where the write is small (``reactor``), and
leave the rest to Twisted's buffer. So order, back-pressure and error reporting stay Twisted's: an error of ``send`` is
never reported from inside ``write``, the reactor finds it on its next iteration.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, Final, TypeVar

from twisted.internet import abstract
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.python import log
from twisted.python.failure import Failure

from svc.transport.fast.reactor import MAX_OCTETS, WriteBatch

#: The size of one read. With its object it stays below 128 KiB, from which on the C library allocates and frees each
#: buffer by system calls.
READ_SIZE: Final = 128 * 1024 - 64
_DONE: Final = Failure(CONNECTION_DONE)

#: The private names of Twisted that ``EagerWrites`` relies on.
REQUIRED_DESCRIPTOR: Final = (
    "_tempDataBuffer",
    "_tempDataLen",
    "_writeDisconnected",
    "_writeDisconnecting",
    "dataBuffer",
    "disconnecting",
    "offset",
)
REQUIRED_CONNECTION: Final = ("_aborting", "TLS")
#: The methods that each read or write calls.
_FREQUENT: Final = ("write", "_send", "send_batched", "doRead")

T = TypeVar("T")


def with_own_methods(transport: type[T]) -> type[T]:
    """
    Give a transport class with both mixins its own copies of their frequent methods.

    CPython specializes the instructions of a function for the class that it meets (PEP 659). Called for servers and
    clients in turn, as a proxy does, they are specialized for neither, and each look-up of an attribute is a slow one.
    """
    for name in _FREQUENT:
        shared = getattr(transport, name)
        own = FunctionType(shared.__code__.replace(), shared.__globals__, name, shared.__defaults__, shared.__closure__)
        setattr(transport, name, own)
    return transport


class EagerWrites:
    """
    A mixin before ``tcp.Server`` or ``tcp.Client`` that sends from ``write`` when nothing is buffered.

    Pull producers and transports that were upgraded with ``startTLS`` keep Twisted's own path: the former are driven
    by the empty buffer, the latter do their own buffering.
    """

    # What the base class provides.
    socket: socket.socket
    connected: int
    dataBuffer: bytes
    producer: Any
    streamingProducer: bool
    TLS: bool
    _tempDataBuffer: list[bytes]
    _tempDataLen: int
    _writeDisconnected: bool
    _writeDisconnecting: bool
    _aborting: bool
    disconnecting: int
    reactor: Any
    startWriting: Callable[[], None]
    stopReading: Callable[[], None]
    connectionLost: Callable[[Failure], None]

    _batched = False
    """Whether Twisted's buffer holds data for :meth:`send_batched`, which the reactor must not send."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Each write reads these; Twisted leaves them on its classes, where a look-up costs more.
        self.TLS = self._aborting = self._batched = self._writeDisconnected = self._writeDisconnecting = False
        self.dataBuffer, self.disconnecting, self.producer, self.streamingProducer = b"", 0, None, False
        super().__init__(*args, **kwargs)

    def write(self, data: bytes) -> None:
        """Send or buffer octets; see ``ITransport.write``."""
        if self._batched and self._add_to_batch(data):
            return
        if (
            self._tempDataBuffer
            or self.dataBuffer
            or not self.connected
            or self._writeDisconnected
            or self.TLS
            or (self.producer is not None and not self.streamingProducer)
            or not data
        ):
            super().write(data)  # type: ignore[misc]
            return
        if self._aborting:
            return
        batch: WriteBatch | None = getattr(self.reactor, "write_batch", None)
        if batch is None or len(data) > MAX_OCTETS or type(data) is not bytes:
            self._send(data)
            return
        self._batched = True
        self._tempDataBuffer.append(data)
        self._tempDataLen = len(data)
        batch.add(self)

    def _add_to_batch(self, data: bytes) -> bool:
        """Append to the batched data where it fits, else send the batched data; returns whether it was appended."""
        size = self._tempDataLen + len(data)
        pulled = self.producer is not None and not self.streamingProducer
        if type(data) is bytes and size <= MAX_OCTETS and not (pulled or self.TLS):
            self._tempDataBuffer.append(data)
            self._tempDataLen = size
            return True
        self.send_batched()
        return False

    def _send(self, data: bytes) -> None:
        try:
            sent = self.socket.send(data)
        except OSError:
            # Full, or broken: the buffered path gets the same error on the next iteration and reports it there.
            sent = 0
        if sent != len(data):
            abstract.FileDescriptor.write(self, data[sent:] if sent else data)  # type: ignore[arg-type]

    def send_batched(self) -> None:
        """Send the batched data, unless Twisted's own path has taken it over meanwhile; never raises."""
        self._batched = False
        batched = self._tempDataBuffer
        if (
            not batched
            or self.dataBuffer
            or not self.connected
            or self.disconnecting
            or self._writeDisconnecting
            or self._writeDisconnected
            or self._aborting
        ):
            return
        self._tempDataBuffer = []
        self._tempDataLen = 0
        self._send(batched[0] if len(batched) == 1 else b"".join(batched))

    def loseConnection(self) -> None:
        """
        Close once everything is sent; see ``ITransport.loseConnection``.

        With nothing to send that is at the end of the iteration. Twisted closes when the socket is writable, which
        takes two calls of epoll, another iteration and an empty send.
        """
        batch: WriteBatch | None = getattr(self.reactor, "write_batch", None)
        if self._batched:
            self.send_batched()
        if batch is None or self._has_pending_output or self.disconnecting or not self.connected or self.TLS:
            super().loseConnection()  # type: ignore[misc]
            return
        self.stopReading()
        self.disconnecting = 1
        batch.add_closing(self)

    @property
    def _has_pending_output(self) -> bool:
        """Whether Twisted has something to do before the close."""
        return bool(
            self.dataBuffer
            or self._tempDataBuffer
            or self.producer is not None
            or self._writeDisconnecting
            or self._writeDisconnected
        )

    def close_batched(self) -> None:
        """Close, unless something was written since; an error of the protocol is logged, as Twisted's reactors do."""
        if self._has_pending_output:
            self.startWriting()
        elif self.connected and not self._aborting:
            try:
                self.connectionLost(_DONE)
            except BaseException:  # noqa: BLE001 (an error ends its connection, not the reactor)
                log.err()

    def abortConnection(self) -> None:
        """Drop the connection after sending the batched data, such as a TLS alert."""
        if self._batched:
            self.send_batched()
        super().abortConnection()  # type: ignore[misc]

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Send or buffer several pieces as one; see ``ITransport.writeSequence``."""
        self.write(b"".join(iovec))


class DirectReads:
    """A mixin before ``tcp.Server`` or ``tcp.Client`` that passes received data directly to the protocol."""

    # What the base class provides.
    socket: socket.socket
    protocol: Any

    def doRead(self) -> BaseException | None:
        """Read once; see ``IReadDescriptor.doRead``."""
        try:
            data = self.socket.recv(READ_SIZE)
        except BlockingIOError:
            return None
        except OSError:
            return CONNECTION_LOST
        if not data:
            return CONNECTION_DONE
        self.protocol.dataReceived(data)
        return None

"""
The TLS data path without the copies, exceptions and slices that Twisted's own path pays for each record.

``FastDataPath`` precedes ``TLSMemoryBIOProtocol`` and replaces reading and writing while a connection is open; the
handshake, closing, producers and every error stay Twisted's. One buffer serves the process: it holds data only between
two calls of OpenSSL, never while a protocol or a transport is called, so re-entry cannot corrupt it. Not thread-safe:
TLS runs on the reactor thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from OpenSSL import SSL
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from svc.transport.binding import ffi, lib
from svc.transport.keyupdates import KeyUpdates

if TYPE_CHECKING:
    from twisted.protocols.tls import TLSMemoryBIOProtocol as _Base
else:
    _Base = object

#: The private names that this path relies on, checked by ``selection``.
REQUIRED_BINDING: Final = (
    "SSL_read",
    "SSL_write",
    "SSL_get_error",
    "BIO_read",
    "BIO_write",
    "BIO_get_mem_data",
    "SSL_ERROR_WANT_READ",
)
REQUIRED_CONNECTION: Final = ("_ssl", "_into_ssl", "_from_ssl", "_raise_ssl_error")
REQUIRED_PROTOCOL: Final = (
    "_aborted",
    "_bufferedWrite",
    "_checkHandshakeStatus",
    "_flushReceiveBIO",
    "_flushSendBIO",
    "_handshakeDone",
    "_lostTLSConnection",
    "_shutdownTLS",
    "_tlsShutdownFinished",
    "_unbufferPendingWrites",
    "_write",
)

_names: list[Any] = [getattr(lib, name, None) for name in REQUIRED_BINDING]
_SSL_read, _SSL_write, _SSL_get_error, _BIO_read, _BIO_write, _BIO_get_mem_data, _WANT_READ = _names
_from_buffer: Any = ffi.from_buffer

#: Clear text sent at once; its records with their overhead (22 octets each, RFC 8446, 5.2) fit the buffer.
WRITE_SIZE: Final = 128 * 1024
#: Clear text encrypted at once, two records: OpenSSL keeps the memory of the largest such write for each connection.
ENCRYPT_SIZE: Final = 32 * 1024
BUFFER_SIZE: Final = 256 * 1024
_BUFFER: Any = ffi.new("char[]", BUFFER_SIZE)
_VIEW: Any = ffi.buffer(_BUFFER)
#: Where OpenSSL writes an address that nobody uses.
_POINTER: Any = ffi.new("char **")


class _OpenConnection:
    """What the data path uses of a connection; the objects of Twisted and pyOpenSSL look up each attribute slowly."""

    __slots__ = ("incoming", "key_updates", "outgoing", "ssl", "transport")

    def __init__(self, tls: FastDataPath) -> None:
        connection: Any = tls._tlsConnection
        self.ssl, self.incoming, self.outgoing = connection._ssl, connection._into_ssl, connection._from_ssl
        self.transport: Any = tls.transport
        self.key_updates = tls._key_updates


class FastDataPath(_Base):
    """Reading and writing of an open TLS connection through one preallocated buffer."""

    transport: Any
    _key_updates: KeyUpdates
    _got_key_updates: Callable[[], None]
    #: None in the handshake, while Twisted buffers writes, and from the first step of the end on.
    _open: _OpenConnection | None = None

    def dataReceived(self, data: bytes) -> None:
        """Decrypt received data, any split of records, and deliver it."""
        connection = self._open or self._opened()
        if connection is None:
            super().dataReceived(data)
            return
        length = len(data)
        written = _BIO_write(connection.incoming, data, length)
        if written != length:
            cast(Any, self._tlsConnection).bio_write(data[max(written, 0) :])
        size = _SSL_read(connection.ssl, _BUFFER, BUFFER_SIZE)
        if size > 0 and not _BIO_get_mem_data(connection.incoming, _POINTER):
            # Nearly every read is one record. The buffer holds more than the largest, so OpenSSL has nothing left.
            self.wrappedProtocol.dataReceived(_VIEW[:size])
            if connection.key_updates.uncounted:
                self._got_key_updates()
        else:
            self._deliver(connection, size)

    def _opened(self) -> _OpenConnection | None:
        if (
            self._handshakeDone
            and self.connected
            and not (self._appSendBuffer or self._lostTLSConnection or self._aborted or self.disconnecting)
        ):
            self._open = _OpenConnection(self)
        return self._open

    def _deliver(self, connection: _OpenConnection, got: int) -> None:
        """Deliver what the first of several reads returned, and what follows."""
        ssl, size = connection.ssl, 0
        while True:
            while got > 0:
                size += got
                if size == BUFFER_SIZE:
                    break
                got = _SSL_read(ssl, _BUFFER + size, BUFFER_SIZE - size)
            # OpenSSL's error queue belongs to the last call: read it before any other code runs.
            failure = None
            if got <= 0 and _SSL_get_error(ssl, got) != _WANT_READ:
                failure = self._read_failure(self._tlsConnection, got)
            if size:
                self.wrappedProtocol.dataReceived(_VIEW[:size])
            if connection.key_updates.uncounted:
                # OpenSSL keeps the reply until it is read, and a peer can request one before each record of data.
                self._got_key_updates()
            if failure is not None:
                if not self._lostTLSConnection:
                    self._end_reading(failure)
                return
            if got <= 0:
                return
            if self._open is not connection:
                self._flushReceiveBIO()
                return
            size, got = 0, _SSL_read(ssl, _BUFFER, BUFFER_SIZE)

    def _read_failure(self, connection: Any, result: int) -> Failure | None:
        try:
            connection._raise_ssl_error(connection._ssl, result)
        except SSL.WantReadError:
            return None
        except SSL.Error:
            return Failure()
        return None

    def _end_reading(self, failure: Failure) -> None:
        if failure.check(SSL.ZeroReturnError) is not None:
            # Each further read returns the peer's close_notify again (RFC 8446, 6.1): the stock path handles it.
            self._flushReceiveBIO()
        else:
            self._tlsShutdownFinished(failure)

    def _flushSendBIO(self) -> None:
        connection: Any = self._tlsConnection
        if connection is None:
            return
        size = _BIO_read(connection._from_ssl, _BUFFER, BUFFER_SIZE)
        while size > 0:
            self.transport.write(_VIEW[:size])
            size = _BIO_read(connection._from_ssl, _BUFFER, BUFFER_SIZE)

    def write(self, data: bytes) -> None:
        """Encrypt and send; see ``ITransport.write``."""
        connection = self._open or self._opened()
        if connection is None:
            super().write(data)
            return
        if not isinstance(data, bytes):
            raise TypeError(f"data must be bytes, not {type(data).__name__}")
        length = len(data)
        if not length:
            return
        if length > ENCRYPT_SIZE:
            self._write_pieces(connection, data)
            return
        written = _SSL_write(connection.ssl, data, length)
        if written != length:
            # An error, or a context that allows partial writes: the stock path deals with the rest.
            self._flushSendBIO()
            self._write(data[max(written, 0) :])
            return
        size = _BIO_read(connection.outgoing, _BUFFER, BUFFER_SIZE)
        connection.transport.write(_VIEW[:size])
        if size == BUFFER_SIZE:
            self._flushSendBIO()

    def _write_pieces(self, connection: _OpenConnection, data: bytes) -> None:
        with memoryview(data) as view:
            for start in range(0, len(view), WRITE_SIZE):
                piece = view[start : start + WRITE_SIZE]
                # While a piece is sent, the producer may close this connection, or Twisted begin to buffer.
                if self._open is connection:
                    self._encrypt(connection, piece)
                elif self._appSendBuffer:
                    self._bufferedWrite(bytes(piece))
                else:
                    self._write(bytes(piece))

    def _encrypt(self, connection: _OpenConnection, piece: memoryview) -> None:
        """Encrypt part by part, and send all parts as one write."""
        clear, size, length = _from_buffer(piece), 0, len(piece)
        for start in range(0, length, ENCRYPT_SIZE):
            wanted = min(ENCRYPT_SIZE, length - start)
            written = _SSL_write(connection.ssl, clear + start, wanted)
            size += max(_BIO_read(connection.outgoing, _BUFFER + size, BUFFER_SIZE - size), 0)
            if written != wanted:
                if size:
                    connection.transport.write(_VIEW[:size])
                self._flushSendBIO()
                self._write(bytes(piece[start + max(written, 0) :]))
                return
        connection.transport.write(_VIEW[:size])
        self._flushSendBIO()

    def writeSequence(self, iovec: Any) -> None:
        """Encrypt and send several pieces as one; see ``ITransport.writeSequence``."""
        self.write(b"".join(iovec))

    # Every way out of the open state; Twisted's own code does the rest.

    def loseConnection(self) -> None:
        """See ``ITransport.loseConnection``."""
        self._open = None
        super().loseConnection()

    def abortConnection(self) -> None:
        """See ``ITCPTransport.abortConnection``."""
        self._open = None
        super().abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The transport below is closed."""
        self._open = None
        super().connectionLost(reason)

    def _tlsShutdownFinished(self, reason: Failure | None) -> None:
        self._open = None
        super()._tlsShutdownFinished(reason)

    def _bufferedWrite(self, octets: bytes) -> None:
        self._open = None
        super()._bufferedWrite(octets)

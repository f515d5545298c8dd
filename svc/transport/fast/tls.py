"""
The TLS data path without the copies, exceptions and slices that Twisted's own path pays for each record.

``FastDataPath`` precedes ``TLSMemoryBIOProtocol`` and replaces reading and writing once the handshake is complete; the
handshake, closing, producers and every error stay Twisted's. One buffer serves the process: it holds data only between
two calls of OpenSSL, never while a protocol or a transport is called, so re-entry cannot corrupt it. Not thread-safe:
TLS runs on the reactor thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from OpenSSL import SSL
from twisted.python.failure import Failure

from svc.transport.binding import ffi, lib
from svc.transport.keyupdates import KeyUpdates

if TYPE_CHECKING:
    from twisted.protocols.tls import TLSMemoryBIOProtocol as _Base
else:
    _Base = object

#: The private names that this path relies on, checked by ``selection``.
REQUIRED_BINDING: Final = ("SSL_read", "SSL_write", "SSL_get_error", "BIO_read", "BIO_write", "SSL_ERROR_WANT_READ")
REQUIRED_CONNECTION: Final = ("_ssl", "_into_ssl", "_from_ssl", "_raise_ssl_error")
REQUIRED_PROTOCOL: Final = (
    "_aborted",
    "_bufferedWrite",
    "_checkHandshakeStatus",
    "_flushReceiveBIO",
    "_flushSendBIO",
    "_handshakeDone",
    "_lostTLSConnection",
    "_producer",
    "_shutdownTLS",
    "_tlsShutdownFinished",
    "_unbufferPendingWrites",
    "_write",
)

_names: list[Any] = [getattr(lib, name, None) for name in REQUIRED_BINDING]
_SSL_read, _SSL_write, _SSL_get_error, _BIO_read, _BIO_write, _WANT_READ = _names
_from_buffer: Any = ffi.from_buffer

#: Clear text sent at once; its records with their overhead (22 octets each, RFC 8446, 5.2) fit the buffer.
WRITE_SIZE: Final = 128 * 1024
#: Clear text encrypted at once, two records: OpenSSL keeps the memory of the largest such write for each connection.
ENCRYPT_SIZE: Final = 32 * 1024
BUFFER_SIZE: Final = 256 * 1024
_BUFFER: Any = ffi.new("char[]", BUFFER_SIZE)
_VIEW: Any = ffi.buffer(_BUFFER)


class FastDataPath(_Base):
    """Reading and writing of an established TLS connection through one preallocated buffer."""

    transport: Any
    _key_updates: KeyUpdates
    _got_key_updates: Callable[[], None]

    def dataReceived(self, data: bytes) -> None:
        """Decrypt received data, any split of records, and deliver it."""
        if not self._handshakeDone or self._appSendBuffer or self._lostTLSConnection:
            super().dataReceived(data)
            return
        connection: Any = self._tlsConnection
        if _BIO_write(connection._into_ssl, data, len(data)) != len(data):
            connection.bio_write(data)
        self._deliver(connection)

    def _deliver(self, connection: Any) -> None:
        ssl = connection._ssl
        while True:
            size = got = 0
            while size < BUFFER_SIZE:
                got = _SSL_read(ssl, _BUFFER + size, BUFFER_SIZE - size)
                if got <= 0:
                    break
                size += got
            # OpenSSL's error queue belongs to the last call: read it before any other code runs.
            failure = None
            if got <= 0 and _SSL_get_error(ssl, got) != _WANT_READ:
                failure = self._read_failure(connection, got)
            if size and not self._aborted:
                self.wrappedProtocol.dataReceived(_VIEW[:size])
            if self._key_updates.uncounted:
                # OpenSSL keeps the reply until it is read, and a peer can request one before each record of data.
                self._got_key_updates()
            if self._lostTLSConnection:
                return
            if failure is not None:
                self._end_reading(failure)
                return
            if got <= 0:
                return

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
        """Encrypt and send; see ``ITransport.write``. Dropped after ``loseConnection`` without a producer."""
        if not self._handshakeDone or self._appSendBuffer or self._lostTLSConnection:
            super().write(data)
            return
        if not data or (self.disconnecting and self._producer is None):
            return
        if not isinstance(data, bytes):
            raise TypeError(f"data must be bytes, not {type(data).__name__}")
        if len(data) <= WRITE_SIZE:
            self._encrypt(data)
            return
        with memoryview(data) as view:
            for start in range(0, len(view), WRITE_SIZE):
                self._write_piece(view[start : start + WRITE_SIZE])

    def _write_piece(self, piece: memoryview) -> None:
        # The transport may have closed this connection while it sent the piece before.
        if self._lostTLSConnection:
            return
        if self._appSendBuffer:
            self._bufferedWrite(bytes(piece))
        else:
            self._encrypt(piece)

    def _encrypt(self, piece: bytes | memoryview) -> None:
        connection: Any = self._tlsConnection
        if connection is None:
            return
        length = len(piece)
        if length > ENCRYPT_SIZE:
            self._encrypt_in_parts(connection, piece)
            return
        written = _SSL_write(connection._ssl, _from_buffer(piece), length)
        if written != length:
            # An error, or a context that allows partial writes: the stock path deals with the rest of the piece.
            self._flushSendBIO()
            self._write(bytes(piece[max(written, 0) :]))
            return
        size = _BIO_read(connection._from_ssl, _BUFFER, BUFFER_SIZE)
        if size > 0:
            self.transport.write(_VIEW[:size])
            if size == BUFFER_SIZE:
                self._flushSendBIO()

    def _encrypt_in_parts(self, connection: Any, piece: bytes | memoryview) -> None:
        """Encrypt as above, part by part, and send all parts as one write."""
        clear, size, length = _from_buffer(piece), 0, len(piece)
        for start in range(0, length, ENCRYPT_SIZE):
            wanted = min(ENCRYPT_SIZE, length - start)
            written = _SSL_write(connection._ssl, clear + start, wanted)
            size += max(_BIO_read(connection._from_ssl, _BUFFER + size, BUFFER_SIZE - size), 0)
            if written != wanted:
                if size:
                    self.transport.write(_VIEW[:size])
                self._flushSendBIO()
                self._write(bytes(piece[start + max(written, 0) :]))
                return
        if size:
            self.transport.write(_VIEW[:size])
        self._flushSendBIO()

    def writeSequence(self, iovec: Any) -> None:
        """Encrypt and send several pieces as one; see ``ITransport.writeSequence``."""
        self.write(b"".join(iovec))

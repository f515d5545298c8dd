"""
A server that stalls, resets and floods at a chosen moment; plain or behind mutual TLS, in threads of the test.

The first word of the path names what it does to the request. Where that is to happen on a used connection, the word
``used`` before it answers the first request and waits for the next one on the same connection.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from tests.peers.independent_clients import Credentials

_PIECE = 256 * 1024
_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"


class StallingServer:
    """
    The server.

    Args:
        stack: ends it.
        credentials: for mutual TLS; None serves plainly.

    Attributes:
        port: where it listens.
        seen: how often each (method, behaviour) was asked for.
        reset_next: whether the next connection is reset when it is accepted.
    """

    def __init__(self, stack: ExitStack, credentials: Credentials | None = None) -> None:
        self.seen: Counter[tuple[str, str]] = Counter()
        self.reset_next = False
        self._context = None if credentials is None else _server_context(credentials)
        self._open: set[socket.socket] = set()
        self._ended = threading.Event()
        self._listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        self.port: int = self._listening.getsockname()[1]
        stack.callback(self._end)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._open)

    def _end(self) -> None:
        self._ended.set()
        self._listening.close()
        for each in tuple(self._open):
            each.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                plain, _address = self._listening.accept()
            except OSError:
                return
            if self.reset_next:
                self.reset_next = False
                _reset(plain)
                continue
            threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = plain
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(plain, server_side=True)
            self._open.add(connection)
            _Visit(self, connection).serve()
        except OSError:
            # A client that is treated like this closes.
            pass
        finally:
            self._open.discard(connection)
            connection.close()


class _Visit:
    """One connection."""

    def __init__(self, server: StallingServer, connection: socket.socket) -> None:
        self._server = server
        self._socket = connection
        self._buffer = b""

    def serve(self) -> None:
        """Answer until it ends."""
        waiting: str | None = None
        while (asked := self._request()) is not None:
            method, words = asked
            behaviour = waiting or words[0]
            self._server.seen[method, behaviour] += 1
            if behaviour == "used":
                waiting = words[1]
                self._socket.sendall(_OK + b"Content-Length: 5\r\n\r\nfirst")
                continue
            act: Callable[[], bool | None] = getattr(self, f"do_{behaviour}")
            if not act():
                return

    def _request(self) -> tuple[str, list[str]] | None:
        head = self._until(b"\r\n\r\n")
        if head is None:
            return None
        start, *lines = head.decode("latin-1").split("\r\n")
        method, target, _version = start.split(" ")
        words = target.strip("/").split("/")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        missing = int(fields.get("content-length", "0")) - len(self._buffer)
        if words[0] != "early":
            while missing > 0:
                data = self._socket.recv(_PIECE)
                if not data:
                    return None
                missing -= len(data)
            self._buffer = b""
        return method, words

    def _until(self, mark: bytes) -> bytes | None:
        while mark not in self._buffer:
            data = self._socket.recv(_PIECE)
            if not data:
                return None
            self._buffer += data
        found, _, self._buffer = self._buffer.partition(mark)
        return found

    def _flood(self, start: bytes, pieces: Iterator[bytes]) -> None:
        self._socket.sendall(start)
        for piece in pieces:
            self._socket.sendall(piece)

    def _stall(self, said: bytes) -> None:
        self._socket.sendall(said)
        # Read nothing either: only the end of the connection is waited for.
        end = select.poll()
        end.register(self._socket, select.POLLRDHUP)
        end.poll(60_000)

    def _drop(self, said: bytes) -> None:
        self._socket.sendall(said)
        with contextlib.suppress(AttributeError):
            # Under TLS the socket below is what can be reset.
            self._socket = socket.socket(fileno=self._socket.detach())
        _reset(self._socket)

    # -- What can be asked for ----------------------------------------------------------------------------------------

    def do_normal(self) -> bool:
        """Answer."""
        self._socket.sendall(_OK + b"Content-Length: 6\r\n\r\nnormal")
        return True

    def do_silence(self) -> None:
        """Log nothing."""
        self._stall(b"")

    def do_silent_in_head(self) -> None:
        """Stop in the head."""
        self._stall(b"HTTP/1.1 200 OK\r\nContent-Le")

    def do_silent_after_head(self) -> None:
        """Stop behind the head."""
        self._stall(_OK + b"Content-Length: 10\r\n\r\n")

    def do_silent_in_body(self) -> None:
        """Stop in the body."""
        self._stall(_OK + b"Content-Length: 10\r\n\r\nhalf.")

    def do_silent_in_chunk(self) -> None:
        """Stop in the line of a chunk."""
        self._stall(_CHUNKED + b"5\r\nhalf.\r\n1")

    def do_reset(self) -> None:
        """Reset without an answer."""
        self._drop(b"")

    def do_reset_in_head(self) -> None:
        """Reset in the head."""
        self._drop(b"HTTP/1.1 200 OK\r\nContent-Le")

    def do_reset_after_head(self) -> None:
        """Reset behind the head."""
        self._drop(_OK + b"Content-Length: 10\r\n\r\n")

    def do_reset_in_body(self) -> None:
        """Reset in the body."""
        self._drop(_OK + b"Content-Length: 10\r\n\r\nhalf.")

    def do_reset_in_endless(self) -> None:
        """Reset in a body that the end of the connection would end."""
        self._drop(_OK + b"\r\nhalf.")

    def do_reset_in_chunk(self) -> None:
        """Reset between two chunks."""
        self._drop(_CHUNKED + b"5\r\nhalf.\r\n")

    def do_close(self) -> None:
        """Close without an answer."""

    def do_endless_head(self) -> None:
        """Send fields without end."""
        self._flood(_OK, iter(lambda: b"X-Field: " + b"y" * 100 + b"\r\n", None))

    def do_endless_field(self) -> None:
        """Send a field without end."""
        self._flood(_OK + b"X-Field: ", iter(lambda: b"y" * 4096, None))

    def do_endless_interim(self) -> None:
        """Send interim answers without end."""
        self._flood(b"", iter(lambda: b"HTTP/1.1 102 Processing\r\n\r\n", None))

    def do_endless_extension(self) -> None:
        """Send the extension of a chunk without end."""
        self._flood(_CHUNKED + b"5\r\nhalf.\r\n5;x=", iter(lambda: b"y" * 4096, None))

    def do_endless_trailers(self) -> None:
        """Send trailers without end."""
        self._flood(_CHUNKED + b"5\r\nhalf.\r\n0\r\n", iter(lambda: b"X-Field: " + b"y" * 100 + b"\r\n", None))

    def do_endless_body(self) -> None:
        """Send a body without end."""
        piece = b"%x\r\n%b\r\n" % (_PIECE, bytes(_PIECE))
        self._flood(_CHUNKED, iter(lambda: piece, None))

    def do_ten_times(self) -> bool:
        """Send ten times what the head says."""
        self._socket.sendall(_OK + b"Content-Length: 10\r\n\r\n" + b"0123456789" * 10)
        return True

    def do_early(self) -> None:
        """Answer and read no more."""
        self._stall(_OK + b"Content-Length: 5\r\n\r\nearly")


def _server_context(credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(credentials.certificate), str(credentials.key))
    context.load_verify_locations(str(credentials.roots))
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _reset(plain: socket.socket) -> None:
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    plain.close()

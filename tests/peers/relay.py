"""A TCP relay between a client and a server that can be slow, or a partition: nothing passes, and nobody is told."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from contextlib import ExitStack
from typing import Final

_PIECE: Final = 16384


class Relay:
    """
    One relay on loopback.

    Args:
        stack: ends it.
        port: of the server.

    Attributes:
        port: where it listens.
        passing: cleared while nothing passes in any direction; connections are accepted, and get no answer.
        rate: octets a second to the server on each connection; None without a limit.
    """

    def __init__(self, stack: ExitStack, port: int) -> None:
        self.passing = threading.Event()
        self.passing.set()
        self.rate: int | None = None
        self._server = port
        self._ended = False
        self._open: set[socket.socket] = set()
        # Small buffers: what a partition has swallowed is little.
        self._listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _PIECE)
        self.port: int = self._listening.getsockname()[1]
        stack.callback(self._end)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _address = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._open.add(client)
        self.passing.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self._server))
        except OSError:
            self._drop(client)
            return
        self._open.add(server)
        threading.Thread(target=self._copy, args=(server, client, False), daemon=True).start()
        self._copy(client, server, True)

    def _copy(self, source: socket.socket, sink: socket.socket, limited: bool) -> None:
        """Copy until one of them ends, and end both."""
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE):
                self.passing.wait()
                if self._ended:
                    break
                sink.sendall(data)
                if limited and self.rate:
                    time.sleep(len(data) / self.rate)
        self.passing.wait()
        self._drop(source)
        self._drop(sink)

    def _drop(self, connection: socket.socket) -> None:
        self._open.discard(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()

    def _end(self) -> None:
        self._ended = True
        self._listening.close()
        self.passing.set()
        for each in tuple(self._open):
            self._drop(each)

"""A plain server behind TCP listeners."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from contextlib import ExitStack

from tests.peers import webapp


class Octets:
    """
    A server on loopback that answers a whole stream with its digest, the length of a number with so many octets, and
    keeps each socket open that sends ``hold``.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.accepted = 0
        self.held: list[socket.socket] = []
        stack.callback(self._listening.close)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self.accepted += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            first = connection.recv(64)
            if first == b"hold":
                self.held.append(connection)
                return
            with connection:
                if first.startswith(b"get "):
                    connection.sendall(webapp.octets(int(first[4:])))
                    return
                digest = hashlib.sha256(first)
                while data := connection.recv(65536):
                    digest.update(data)
                connection.sendall(digest.hexdigest().encode())

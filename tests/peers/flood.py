"""Clients and servers that send without end, and how soon others are answered meanwhile."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from tests.peers.independent_clients import RawConnection
from tests.peers.waiting import eventually

#: Seconds. Promised are 0.05 on an idle machine; where each read was handled in one turn it took 0.3 to 2.6.
LONGEST: Final = 0.2
REQUESTS: Final = 30


class EndlessSender:
    """
    A server that answers what comes first on each connection, and then sends the same octets again and again.

    Args:
        stack: ends it.
        answer: the first octets.
        octets: the following ones; with none it only reads.
    """

    def __init__(self, stack: ExitStack, answer: bytes, octets: bytes) -> None:
        self._answer = answer
        self._octets = octets
        self._listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._listening.accept()[:1], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.recv(65536)
            connection.sendall(self._answer)
            threading.Thread(target=self._send, args=[connection], daemon=True).start()
            while connection.recv(1 << 20):
                pass

    def _send(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while self._octets:
                connection.sendall(self._octets)


class Flood:
    """Writes octets on connections of its own, again and again, and reads what comes."""

    def __init__(self, connections: list[RawConnection], octets: bytes) -> None:
        self._connections = connections
        self._octets = octets
        self._ended = False
        self.received = 0
        self._threads = [threading.Thread(target=self._run, args=[each], daemon=True) for each in connections]

    def __enter__(self) -> Flood:
        for each in self._threads:
            each.start()
        return self

    def _run(self, connection: RawConnection) -> None:
        connection.socket.setblocking(False)
        # A view, of which a part is no copy.
        unsent = memoryview(b"")
        while not self._ended:
            unsent = unsent or memoryview(self._octets)
            moved = 0
            with contextlib.suppress(OSError):
                moved = connection.socket.send(unsent)
                unsent = unsent[moved:]
            with contextlib.suppress(OSError):
                part = len(connection.socket.recv(1 << 20))
                self.received += part
                moved += part
            if not moved:
                time.sleep(0.001)

    def __exit__(self, *_error: object) -> None:
        self._ended = True
        for thread, each in zip(self._threads, self._connections, strict=True):
            thread.join()
            each.close()

    def assert_served(self, ask: Callable[[], object], moving: Callable[[], float] | None = None) -> None:
        """
        Let it flow while somebody else asks: each request of a series is answered soon.

        A busy machine gets another series.

        Args:
            ask: sends a request and takes its answer.
            moving: grows while it flows; by default what it receives.
        """
        grown = moving if moving is not None else lambda: self.received

        def series() -> bool:
            before, times = grown(), []
            for _ in range(REQUESTS):
                began = time.monotonic()
                ask()
                times.append(time.monotonic() - began)
            return max(times) < LONGEST and grown() > before

        with self:
            eventually(lambda: grown() > 0, what="a flood")
            eventually(series, what="a series of requests that are answered soon")

"""
An application that breaks every rule it can, on request; a process of its own.

``python -m tests.peers.misbehaving_application PORT``. The first word of the path names what it does, ``X-Request-Id``
the request; every octet of a body belongs to that name, so that a reader can assign it. What nobody asked for
carries another name, which begins with ``nobody``.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from contextlib import ExitStack

from tests.peers.waiting import free_port
from tests.peers.webapp import serve

#: Longer than the patience of the proxy in tests.
LATE = 8.0


def content(name: str, lines: int) -> bytes:
    """
    Make a body.

    Args:
        name: of the request.
        lines: how many.

    Returns:
        Lines that all say the name.
    """
    return f"{name}\n".encode() * lines


class Connection:
    """
    One connection of the proxy.

    Args:
        plain: the socket.
    """

    def __init__(self, plain: socket.socket) -> None:
        self.socket = plain
        self._input = plain.makefile("rb")
        self.name = ""
        self.method = ""
        self.lines = 0
        self.open = True

    def serve(self) -> None:
        """Serve until it ends."""
        try:
            while self.open and self._head():
                self._respond()
        except OSError:
            self.open = False
        finally:
            self._input.close()
            self.socket.close()

    def _respond(self) -> None:
        act = getattr(self, f"do_{self.behaviour}")
        if self.behaviour not in ("early", "early_close"):
            self._body()
        act()
        if self.behaviour == "early":
            self._body()

    def _head(self) -> bool:
        start = self._input.readline()
        if not start:
            return False
        self.method, target, _version = start.decode("latin-1").split()
        _, self.behaviour, lines = target.split("/")
        self.lines, self._length, self._chunked = int(lines), 0, False
        while (line := self._input.readline().strip()) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            if name.lower() == "x-request-id":
                self.name = value.strip()
            elif name.lower() == "content-length":
                self._length = int(value)
            elif name.lower() == "transfer-encoding":
                self._chunked = True
        return True

    def _body(self) -> None:
        while self._chunked:
            size = int(self._input.readline() or b"0", 16)
            self._input.read(size)
            self._input.readline()
            self._chunked = size > 0
        self._input.read(self._length)
        self._length = 0

    def _send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def _whole(self, name: str, *fields: str, cut: int | None = None) -> bytes:
        body = content(name, self.lines)
        more = "".join(f"{field}\r\n" for field in fields)
        head = f"HTTP/1.1 200 OK\r\nX-Request-Id: {name}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode()
        return head + (b"" if self.method == "HEAD" else body[:cut])

    def _answer(self, *fields: str, cut: int | None = None) -> None:
        self._send(self._whole(self.name, *fields, cut=cut))

    def _end(self, *, reset: bool = False) -> None:
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.open = False

    # -- What can be asked for ----------------------------------------------------------------------------------------

    def do_normal(self) -> None:
        """Answer as one should."""
        self._answer()

    def do_chunked(self) -> None:
        """Answer in chunks, slowly cut."""
        self._send(f"HTTP/1.1 200 OK\r\nX-Request-Id: {self.name}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        if self.method == "HEAD":
            return
        body = content(self.name, self.lines)
        for start in range(0, len(body), 700):
            piece = body[start : start + 700]
            self._send(b"%x\r\n" % len(piece))
            self._send(piece + b"\r\n")
        self._send(b"0\r\n\r\n")

    def do_interim(self) -> None:
        """Send hints first."""
        self._send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n")
        self._answer()

    def do_early(self) -> None:
        """Answer before the body is read."""
        self._answer()

    def do_early_close(self) -> None:
        """Answer before the body is read, and never read it."""
        self._answer("Connection: close")
        self._end()

    def do_close(self) -> None:
        """Say nothing and go."""
        self._end()

    def do_reset(self) -> None:
        """Say nothing and reset."""
        self._end(reset=True)

    def do_half(self) -> None:
        """Go in the middle of the body."""
        self._answer(cut=len(content(self.name, self.lines)) // 2)
        self._end()

    def do_half_reset(self) -> None:
        """Reset in the middle of the body."""
        self._answer(cut=len(content(self.name, self.lines)) // 2)
        self._end(reset=True)

    def do_half_head(self) -> None:
        """Go in the middle of the head."""
        self._send(f"HTTP/1.1 200 OK\r\nX-Request-Id: {self.name}\r\nContent-Le".encode())
        self._end()

    def do_until_close(self) -> None:
        """Let the end of the connection end the body."""
        self._send(f"HTTP/1.1 200 OK\r\nX-Request-Id: {self.name}\r\n\r\n".encode())
        if self.method != "HEAD":
            self._send(content(self.name, self.lines))
        self._end()

    def do_late(self) -> None:
        """Answer when nobody waits any more, and again."""
        time.sleep(LATE)
        self._send(self._whole(f"nobody-waits-for-{self.name}") * 2)

    def do_excess(self) -> None:
        """Let another answer follow at once; it is so small that both arrive together."""
        self.lines = min(self.lines, 50)
        self._send(self._whole(self.name) + self._whole(f"nobody-asked-beside-{self.name}"))

    def do_unasked(self) -> None:
        """
        Let another answer follow while the connection waits in the pool.

        Not for a busy connection: what arrives there when the next request is out is its answer, for every reader.
        """
        self._answer()
        time.sleep(0.2)
        self._send(self._whole(f"nobody-asked-after-{self.name}"))

    def do_closing(self) -> None:
        """Answer, keep the connection by word, and close it a little later."""
        self._answer()
        time.sleep(0.002)
        self._end()

    def do_garbage(self) -> None:
        """Answer with what is no HTTP."""
        self._send(b"this is not HTTP\r\n\r\n")
        self._end()

    def do_two_lengths(self) -> None:
        """Answer with a head that has two meanings."""
        self._answer("Content-Length: 1")


def start(stack: ExitStack) -> int:
    """
    Run it.

    Args:
        stack: ends it.

    Returns:
        Its port.
    """
    port = free_port()
    serve(stack, [sys.executable, "-m", "tests.peers.misbehaving_application", str(port)], port)
    return port


def _run(port: int) -> None:
    with socket.create_server(("127.0.0.1", port), backlog=512) as listening:
        while True:
            plain, _ = listening.accept()
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=Connection(plain).serve, daemon=True).start()


if __name__ == "__main__":
    _run(int(sys.argv[1]))

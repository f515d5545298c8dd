"""
An application that answers in HTTP/1.1 in every way that a proxy must carry; a process of its own.

``python -m tests.peers.webapp PORT`` serves: ``/bytes/N`` (N octets, ranges understood), ``/chunked/N`` (with a
trailer), ``/gzip/N``, ``/status/CODE``, ``/echo`` (the body back in chunks, with its trailers), ``/digest`` (size and
SHA-256 of the body as JSON), ``/head`` (the request's head as JSON), ``/slow/SECONDS``, ``/drip/N/SECONDS`` (N octets,
one at a time), ``/interim``, ``/socket`` (101, then every octet back). Each answer repeats ``X-Request-Id``.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.peers.daemon import environment
from tests.peers.waiting import answers, end_process, eventually, free_port

_BLOCK = hashlib.sha512(b"svc").digest() * 1024
PIECE = 64 * 1024


def pieces(size: int) -> Iterator[bytes]:
    """
    Make octets that everybody can make again.

    Args:
        size: how many.

    Yields:
        Pieces of 64 KiB.
    """
    for start in range(0, size, PIECE):
        yield _BLOCK[: min(PIECE, size - start)]


def octets(size: int) -> bytes:
    """
    Make the octets of ``/bytes/size``.

    Args:
        size: how many.

    Returns:
        The octets.
    """
    return b"".join(pieces(size))


def digest(size: int) -> str:
    """
    Hash the octets of ``/bytes/size``.

    Args:
        size: how many.

    Returns:
        SHA-256, hexadecimal.
    """
    found = hashlib.sha256()
    for piece in pieces(size):
        found.update(piece)
    return found.hexdigest()


class Answers(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "webapp"
    disable_nagle_algorithm = True

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        """Answer by the first word of the path."""
        words = urlsplit(self.path).path.strip("/").split("/")
        self.trailers: list[str] = []
        if words[0] not in ("echo", "digest"):
            self._drain()
        getattr(self, f"_{words[0]}", self._missing)(*words[1:])

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET

    def body(self) -> Iterator[bytes]:
        """Read the request's body piece by piece; keeps its trailers."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while (line := self.rfile.readline().strip()) != b"":
                self.trailers.append(line.decode("latin-1"))
            return
        left = int(self.headers.get("Content-Length", 0))
        while left:
            piece = self.rfile.read(min(PIECE, left))
            if not piece:
                raise ConnectionError("the body ended early")
            left -= len(piece)
            yield piece

    def _drain(self) -> None:
        for _piece in self.body():
            pass

    def _begin(self, status: int, *fields: tuple[str, str]) -> None:
        self.send_response(status)
        if "X-Request-Id" in self.headers:
            self.send_header("X-Request-Id", self.headers["X-Request-Id"])
        for name, value in fields:
            self.send_header(name, value)
        self.end_headers()

    def _whole(self, data: bytes, *fields: tuple[str, str], status: int = 200) -> None:
        self._begin(status, ("Content-Length", str(len(data))), *fields)
        if self.command != "HEAD":
            self.wfile.write(data)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _missing(self, *_words: str) -> None:
        self._whole(b"there is no such page\n", status=404)

    def _status(self, code: str) -> None:
        if code in ("204", "304"):
            self._begin(int(code))
        else:
            self._whole(b"as requested\n", status=int(code))

    def _bytes(self, size: str) -> None:
        total = int(size)
        wanted = self.headers.get("Range", "")
        if wanted.startswith("bytes="):
            first, _, last = wanted[6:].partition("-")
            start, end = int(first), min(int(last or total - 1), total - 1)
            data = octets(total)[start : end + 1]
            self._whole(data, ("Content-Range", f"bytes {start}-{end}/{total}"), status=206)
            return
        self._begin(200, ("Content-Length", size), ("Accept-Ranges", "bytes"))
        if self.command != "HEAD":
            for piece in pieces(total):
                self.wfile.write(piece)

    def _chunked(self, size: str) -> None:
        self._begin(200, ("Transfer-Encoding", "chunked"), ("Trailer", "X-Digest"))
        for piece in pieces(int(size)):
            self._chunk(piece)
        self.wfile.write(f"0\r\nX-Digest: {digest(int(size))}\r\n\r\n".encode())

    def _gzip(self, size: str) -> None:
        self._whole(gzip.compress(octets(int(size)), mtime=0), ("Content-Encoding", "gzip"))

    def _echo(self) -> None:
        self._begin(200, ("Transfer-Encoding", "chunked"))
        for piece in self.body():
            self._chunk(piece)
        trailers = "".join(f"{line}\r\n" for line in self.trailers)
        self.wfile.write(f"0\r\n{trailers}\r\n".encode("latin-1"))

    def _digest(self) -> None:
        found, size = hashlib.sha256(), 0
        for piece in self.body():
            found.update(piece)
            size += len(piece)
        self._whole(json.dumps({"size": size, "sha256": found.hexdigest(), "trailers": self.trailers}).encode())

    def _head(self, *_words: str) -> None:
        fields = [[name, value] for name, value in self.headers.items()]
        shown = {"method": self.command, "target": self.path, "version": self.request_version, "fields": fields}
        self._whole(json.dumps(shown).encode(), ("Content-Type", "application/json"))

    def _slow(self, seconds: str) -> None:
        time.sleep(float(seconds))
        self._whole(b"at last\n")

    def _drip(self, count: str, seconds: str) -> None:
        self._begin(200, ("Content-Length", count))
        for _number in range(int(count)):
            self.wfile.write(b".")
            self.wfile.flush()
            time.sleep(float(seconds))

    def _interim(self) -> None:
        self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\nSvc-Workload-ID: forged\r\n\r\n")
        self._whole(b"after the hints\n")

    def _socket(self) -> None:
        self.send_response(101)
        self.send_header("Upgrade", self.headers.get("Upgrade", ""))
        self.send_header("Connection", "Upgrade")
        self.end_headers()
        while data := self.rfile.read1(PIECE):
            self.wfile.write(data)
        self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512
    address_family = 2

    def handle_error(self, *_arguments: object) -> None:
        """Clients of tests go away as they like."""


def start(stack: ExitStack) -> int:
    """
    Run the application in a process of its own.

    Args:
        stack: ends it.

    Returns:
        Its port.
    """
    port = free_port()
    serve(stack, [sys.executable, "-m", "tests.peers.webapp", str(port)], port)
    return port


def start_file_server(stack: ExitStack, folder: Path) -> int:
    """
    Run the standard library's ``http.server`` over a folder.

    Args:
        stack: ends it.
        folder: what it serves.

    Returns:
        Its port.
    """
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(folder)]
    serve(stack, command, port)
    return port


def serve(stack: ExitStack, command: list[str], port: int, host: str = "127.0.0.1") -> subprocess.Popen[bytes]:
    """
    Run a server until the stack ends, and wait until it answers.

    Args:
        stack: ends it.
        command: the argument list.
        port: where it listens.
        host: the address, of this machine.

    Returns:
        The process.
    """
    process = subprocess.Popen(
        command, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    stack.callback(end_process, process)
    eventually(lambda: answers(port, host) or process.poll() is not None, 60, f"{command[0]} at {port}")
    if process.poll() is not None:
        raise AssertionError(f"{command} ended with status {process.returncode}")
    return process


if __name__ == "__main__":
    _Server(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()

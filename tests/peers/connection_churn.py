"""
Many connections that come and go, in processes of their own.

``python -m tests.peers.connection_churn PORT COUNT CHAIN KEY ROOTS`` makes so many connections to 127.0.0.1, a few at
once, and prints how they ended as JSON. Seven of ten ask one question and close; the others leave in the handshake: by
a reset in the middle of their ClientHello, by an end without a word, and by a reset right after it. A silence that
lasts is ``SilentConnections``, in the process of the test.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from tests.peers.daemon import environment
from tests.peers.independent_clients import Credentials
from tests.peers.waiting import TOP

_AT_ONCE = 8
_REQUEST = b"GET /bytes/10 HTTP/1.1\r\nHost: crowd\r\nConnection: close\r\n\r\n"
#: What a ClientHello begins with: a handshake record of 512 octets, of which most are missing.
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100)


def reset(plain: socket.socket) -> None:
    """
    End a connection by a TCP reset.

    Args:
        plain: the socket.
    """
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    plain.close()


def crowd(port: int, credentials: Credentials, count: int, processes: int = 2) -> Counter[str]:
    """
    Let a crowd come and go.

    Args:
        port: of the proxy.
        credentials: who they are.
        count: how many connections.
        processes: how many processes share them.

    Returns:
        How many ended in which way.
    """
    arguments = [str(port), str(count // processes), credentials.certificate, credentials.key, credentials.roots]
    command = [sys.executable, "-m", "tests.peers.connection_churn", *map(str, arguments)]
    running = [subprocess.Popen(command, cwd=TOP, env=environment(), stdout=subprocess.PIPE) for _ in range(processes)]
    found: Counter[str] = Counter()
    for each in running:
        output, _ = each.communicate(timeout=600)
        found.update(json.loads(output))
    return found


class SilentConnections:
    """
    Connections that say nothing, or the same few octets.

    Args:
        port: of the proxy.
        count: how many.
        source: the address that they come from.
        first: what each of them says first.
    """

    def __init__(self, port: int, count: int, *, source: str = "127.0.0.1", first: bytes = b"") -> None:
        self._address = ("127.0.0.1", port)
        self._count = count
        self._source = source
        self._first = first
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> SilentConnections:
        for _number in range(self._count):
            plain = socket.create_connection(self._address, timeout=60, source_address=(self._source, 0))
            self._sockets.append(plain)
            if self._first:
                try:
                    plain.sendall(self._first)
                except OSError:
                    # Turned away already.
                    continue
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for plain in self._sockets:
            plain.close()


class _Member:
    """Makes one connection after the other."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._address = ("127.0.0.1", port)
        self._context = context

    def come(self, number: int) -> str:
        """Make a connection of the kind that its number says."""
        plain = socket.create_connection(self._address, timeout=60)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        kind = number % 10
        if kind == 7:
            plain.sendall(HALF_HELLO)
            reset(plain)
            return "reset_in_hello"
        if kind == 8:
            plain.close()
            return "left_without_a_word"
        with self._context.wrap_socket(plain) as tls:
            if kind == 9:
                reset(socket.socket(fileno=tls.detach()))
                return "reset_after_handshake"
            tls.sendall(_REQUEST)
            answer = b""
            while data := tls.recv(65536):
                answer += data
        return "served" if answer.startswith(b"HTTP/1.1 200 ") else "refused"


def _main(arguments: Sequence[str]) -> None:
    port, count, chain, key, roots = arguments
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(roots)
    context.load_cert_chain(chain, key)
    member = _Member(int(port), context)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        print(json.dumps(Counter(threads.map(member.come, range(int(count))))))


if __name__ == "__main__":
    _main(sys.argv[1:])

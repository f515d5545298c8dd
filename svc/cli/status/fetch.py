"""
One request for the status of a process: plain HTTP with a limit on its time and on the size of the answer.

The whole answer is read before any of it is parsed, so that no server can make the command wait longer.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from typing import Any, Final

from svc.cli.errors import StatusUnavailable, StatusUnreachable
from svc.cli.status.addresses import AdminAddress
from svc.errors import printable

#: Seconds for everything: to connect, to send and to read.
SECONDS: Final = 2.0
MAX_DOCUMENT: Final = 1024 * 1024
_MAX_HEAD: Final = 64 * 1024
_CHUNK: Final = 64 * 1024

#: As :func:`socket.create_connection`.
Connect = Callable[[tuple[str, int], float], Any]


def fetch(
    address: AdminAddress,
    *,
    connect: Connect = socket.create_connection,
    seconds: Callable[[], float] = time.monotonic,
) -> bytes:
    """
    Request ``/status`` and return the body of the answer.

    Args:
        connect: opens a connection.
        seconds: the monotonic clock.

    Raises:
        StatusUnavailable: there is no answer, or none of a process of ours.
    """
    deadline = seconds() + SECONDS
    try:
        connection = connect(address, SECONDS)
    except TimeoutError as error:
        raise StatusUnavailable("status_late", address=address, seconds=SECONDS) from error
    except OSError as error:
        raise _unreachable(address, error) from error
    with connection:
        received = _exchange(connection, address, lambda: deadline - seconds())
    return _body(received, address)


def _exchange(connection: Any, address: AdminAddress, remaining: Callable[[], float]) -> bytes:
    """Send the request, and read until the other side closes."""
    host = AdminAddress(*connection.getpeername()[:2])
    request = f"GET /status HTTP/1.1\r\nHost: {host}\r\nAccept: application/json\r\nConnection: close\r\n\r\n"
    received = bytearray()
    try:
        connection.settimeout(max(remaining(), 0.001))
        connection.sendall(request.encode("ascii"))
        while len(received) <= MAX_DOCUMENT + _MAX_HEAD:
            left = remaining()
            if left <= 0:
                raise TimeoutError
            connection.settimeout(left)
            data = connection.recv(_CHUNK)
            if not data:
                return bytes(received)
            received += data
    except TimeoutError as error:
        raise StatusUnavailable("status_late", address=address, seconds=SECONDS) from error
    except OSError as error:
        raise _unreachable(address, error) from error
    raise foreign(address, f"its answer is larger than {MAX_DOCUMENT} octets")


def _body(received: bytes, address: AdminAddress) -> bytes:
    if not received:
        raise foreign(address, "it closed the connection without an answer")
    response = HTTPResponse(_Received(received), method="GET")  # type: ignore[arg-type]  # it needs makefile alone
    try:
        response.begin()
        body = response.read(MAX_DOCUMENT + 1)
    except (HTTPException, ValueError) as error:
        raise foreign(address, "it does not answer in HTTP") from error
    kind = response.headers.get_content_type()
    if response.status != 200 or kind != "application/json":
        raise foreign(address, f"GET /status is answered with {response.status} {response.reason} and {kind}")
    if len(body) > MAX_DOCUMENT:
        raise foreign(address, f"its answer is larger than {MAX_DOCUMENT} octets")
    if response.length:
        raise foreign(address, "its answer is cut off")
    return body


class _Received:
    """What was read from a socket, in its place."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def foreign(address: AdminAddress, defect: str) -> StatusUnavailable:
    """The error for an answer that no process of ours gives."""
    return StatusUnavailable("status_foreign", address=address, defect=printable(defect, 120))


def _unreachable(address: AdminAddress, error: OSError) -> StatusUnreachable:
    cause = error.strerror or str(error) or type(error).__name__
    return StatusUnreachable(address=address, cause=cause[:1].lower() + cause[1:])

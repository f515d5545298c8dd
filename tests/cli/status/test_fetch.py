"""Tests of svc.cli.status.fetch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.errors import StatusUnavailable, StatusUnreachable
from svc.cli.status.addresses import AdminAddress
from svc.cli.status.fetch import MAX_DOCUMENT, SECONDS, fetch
from tests.cli.status.documents import answer

ADDRESS = AdminAddress("proxy.example", 9902)


class Connection:
    """
    A connection whose other side sends some pieces, each after a time.

    Args:
        pieces: seconds before it, and its octets; a time-out where the seconds are more than the limit in force.
    """

    def __init__(self, clock: Clock, pieces: Sequence[tuple[float, bytes]]) -> None:
        self.sent = b""
        self.closed = False
        self._clock = clock
        self._pieces = list(pieces)
        self._limit = 0.0

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.closed = True

    def getpeername(self) -> tuple[str, int, int, int]:
        return "::1", 9902, 0, 0

    def settimeout(self, seconds: float) -> None:
        self._limit = seconds

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def recv(self, size: int) -> bytes:
        if not self._pieces:
            return b""
        seconds, data = self._pieces.pop(0)
        self._clock.advance(min(seconds, self._limit))
        if seconds > self._limit:
            raise TimeoutError
        if len(data) > size:
            self._pieces.insert(0, (0.0, data[size:]))
        return data[:size]


class FetchTests(SynchronousTestCase):
    """:func:`fetch`."""

    def fetch(self, *pieces: tuple[float, bytes]) -> bytes:
        clock = Clock()
        self.connection = Connection(clock, pieces)
        self.clock = clock
        return fetch(ADDRESS, connect=lambda address, seconds: self.connection, seconds=clock.seconds)

    def defect(self, *pieces: tuple[float, bytes]) -> str:
        """The sentence of the error; the connection is closed all the same."""
        text = str(self.assertRaises(StatusUnavailable, self.fetch, *pieces))
        self.assertTrue(self.connection.closed)
        return text

    def test_document(self) -> None:
        """The body of the answer, in whatever pieces it comes; the request names the address by its number."""
        whole = answer(b'{"v": 1}')
        self.assertEqual(b'{"v": 1}', self.fetch(*((0.0, bytes([octet])) for octet in whole)))
        self.assertEqual(
            b"GET /status HTTP/1.1\r\nHost: [::1]:9902\r\nAccept: application/json\r\nConnection: close\r\n\r\n",
            self.connection.sent,
        )
        chunked = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        self.assertEqual(b"{}", self.fetch((0.0, chunked + b"2\r\n{}\r\n0\r\n\r\n")))

    def test_not_reached(self) -> None:
        """The cause of the system is named; that nothing listens has a class of its own."""

        def refuse(address: object, seconds: float) -> Any:
            raise ConnectionRefusedError(111, "Connection refused")

        def hang(address: object, seconds: float) -> Any:
            raise TimeoutError("timed out")

        error = self.assertRaises(StatusUnreachable, fetch, ADDRESS, connect=refuse)
        self.assertEqual("proxy.example:9902 cannot be reached: connection refused", str(error))
        error = self.assertRaises(StatusUnavailable, fetch, ADDRESS, connect=hang)
        self.assertEqual("proxy.example:9902 has not answered within 2.0 s", str(error))

    def test_late(self) -> None:
        """The limit is for the whole exchange: a server that sends an octet now and then cannot extend it."""
        self.assertIn("has not answered within", self.defect((SECONDS + 1, b"HTTP/1.1")))
        self.assertIn("has not answered within", self.defect(*((0.3, b"x") for _each in range(100))))
        self.assertLessEqual(self.clock.seconds(), SECONDS)

    def test_size(self) -> None:
        """A document of the largest size is taken, a larger one is refused, also one without a length or an end."""
        self.assertEqual(MAX_DOCUMENT, len(self.fetch((0.0, answer(b" " * MAX_DOCUMENT)))))
        self.assertIn("larger than 1048576 octets", self.defect((0.0, answer(b" " * (MAX_DOCUMENT + 1)))))
        endless = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + b" " * (2 * MAX_DOCUMENT)
        self.assertIn("larger than 1048576 octets", self.defect((0.0, endless)))

    def test_foreign(self) -> None:
        """Another service is reported as such, with what it said and without control characters."""
        cases = (
            (b"", "it closed the connection without an answer"),
            (b"SSH-2.0-OpenSSH_9.2\r\n", "it does not answer in HTTP"),
            (answer(b"", status="404 Not Found"), "with 404 Not Found and application/json"),
            (answer(b"", status="200 \x1b[2J", kind="text/html"), "with 200 \\x1b[2J and text/html"),
            (answer(b"{}")[:-1], "its answer is cut off"),
        )
        for data, expected in cases:
            text = self.defect((0.0, data))
            self.assertIn("what listens at proxy.example:9902 shows no status", text)
            self.assertTrue(text.endswith(expected), text)

    @given(st.binary(max_size=80), st.booleans())
    def test_any_octets(self, data: bytes, after_head: bool) -> None:
        """Any answer gives a body or the typed error."""
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" if after_head else b""
        try:
            self.fetch((0.0, head + data))
        except StatusUnavailable as error:
            self.assertTrue(str(error).isprintable(), str(error))

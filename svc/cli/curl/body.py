"""
The body of a response while it arrives: kept back until it is verified, or written to standard output at once.

Owns where a body is kept (1 MiB in memory, more in a file without a name), its digest and its limit.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from typing import Final

from svc.cli.errors import NetworkError
from svc.cli.output import Console
from svc.errors import printable
from svc.notary.exchange import BodySummary
from svc.wire.http1 import ResponseHead

IN_MEMORY: Final = 1024 * 1024
_PIECE: Final = 128 * 1024


class BufferedBody:
    """
    Keeps a body back.

    Args:
        limit: the most octets accepted.
        in_memory: how many octets stay in memory before a file takes them.
    """

    def __init__(self, limit: int, in_memory: int = IN_MEMORY) -> None:
        self._limit = limit
        self._file = tempfile.SpooledTemporaryFile(max_size=in_memory)  # noqa: SIM115 - closed by close()
        self._digest = hashlib.sha256()
        self.size = 0

    def got_head(self, head: ResponseHead) -> None:
        """Nothing: the connection returns the head."""

    def got_body(self, data: bytes) -> None:
        """Store a piece; of a piece beyond the limit nothing is stored."""
        if self.size + len(data) > self._limit:
            raise NetworkError("body_too_large", limit=self._limit)
        try:
            self._file.write(data)
        except OSError as error:
            # Where no folder can be written, as with a read-only root, the module tempfile says so with ENOENT.
            detail = (error.strerror or str(error)).lower()
            if isinstance(error, FileNotFoundError):
                raise NetworkError("spool_missing", detail=detail) from error
            raise NetworkError("spool_failed", detail=detail) from error
        self._digest.update(data)
        self.size += len(data)

    def seen(self) -> BodySummary:
        """Size and digest, as complete."""
        return BodySummary(self.size, self._digest.digest())

    def pieces(self, at_most: int | None = None) -> Iterator[bytes]:
        """Read from the beginning; all octets by default."""
        self._file.seek(0)
        left = self.size if at_most is None else min(at_most, self.size)
        while left > 0:
            piece = self._file.read(min(_PIECE, left))
            left -= len(piece)
            yield piece

    def beginning(self, at_most: int) -> bytes:
        """The first octets."""
        return b"".join(self.pieces(at_most))

    def close(self) -> None:
        """Release the memory or the file."""
        self._file.close()


class StreamedBody:
    """
    Writes a response to standard output while it arrives.

    Args:
        keep: how many octets of the body are kept for :meth:`beginning`.
    """

    def __init__(self, console: Console, *, show_headers: bool, silent: bool, keep: int) -> None:
        self._console = console
        self._show_headers = show_headers
        self._silent = silent
        self._keep = keep
        self._beginning = bytearray()
        self._digest = hashlib.sha256()
        self._size = 0

    def got_head(self, head: ResponseHead) -> None:
        """Print the head where ``-i`` asks for it."""
        if self._show_headers:
            self._console.write(head_text(head, escape=self._console.terminal))
            self._console.flush()

    def got_body(self, data: bytes) -> None:
        """Print a piece."""
        self._digest.update(data)
        self._size += len(data)
        self._beginning += data[: self._keep - len(self._beginning)]
        if not self._silent:
            self._console.write(data)
            self._console.flush()

    def seen(self) -> BodySummary:
        """Size and digest, as complete."""
        return BodySummary(self._size, self._digest.digest())

    def beginning(self, at_most: int) -> bytes:
        """The first octets."""
        return bytes(self._beginning[:at_most])


def head_text(head: ResponseHead, *, escape: bool) -> bytes:
    """
    Format the head of a response for standard output.

    Args:
        escape: whether what could move the cursor of a terminal is escaped; a file gets the octets unchanged.
    """
    lines = [b"HTTP/%b %d %b" % (head.version.encode("ascii"), head.status, head.phrase)]
    lines += [b"%b: %b" % field for field in head.fields]
    if escape:
        lines = [printable(line.decode("utf-8", "backslashreplace"), 65536).encode("utf-8") for line in lines]
    return b"\r\n".join(lines) + b"\r\n\r\n"

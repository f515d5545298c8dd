"""
Where one request ends and the next begins in the bytes of a connection, and whether its request line is exact.

llhttp reports neither: it accepts several spaces for one, RTSP for HTTP and a lone LF for an empty line, and continues
with the next request in the same read. Other defects are left to llhttp.
"""

from __future__ import annotations

import re
from typing import Final

#: A request line by the exact grammar (RFC 9112 section 3).
_LINE: Final = re.compile(rb"[^\x00-\x20]++ [^\x00-\x20]++ HTTP/[0-9]\.[0-9]\r\n")
_CHUNK_SIZE: Final = re.compile(rb"[0-9A-Fa-f]++")
_LINE_END: Final = b"\r\n"
_EMPTY_LINE: Final = b"\r\n\r\n"


class MessageExtent:
    """Follows the requests of one connection, or the chunks of a response, piece by piece."""

    __slots__ = ("_chunked", "_in_trailers", "_line", "_line_ended", "_remaining", "_tail", "irregular")

    def __init__(self) -> None:
        #: The octets of a line that has not ended: the request line, a chunk's line, a trailer.
        self._line = bytearray()
        self.restart()

    def restart(self) -> None:
        """Begin the next request."""
        self._line_ended = self._chunked = self._in_trailers = False
        #: Whether the request line breaks the grammar; valid at the end of the head.
        self.irregular = False
        #: Missing octets of a body of known length, or of a chunk with its line end.
        self._remaining = 0
        #: The last octets of an incomplete head, in which its end may begin.
        self._tail = b""

    @property
    def at_start(self) -> bool:
        """Whether no octet of a request has been read since the last one ended; complete empty lines do not count."""
        return not (self._line or self._line_ended)

    @property
    def body_left(self) -> int:
        """How many octets are missing of a body of known length, or of a chunk with its line end."""
        return self._remaining

    def head_ended(self, length: int | None, *, chunked: bool) -> None:
        """Set the framing of the body that follows the head."""
        self._remaining, self._chunked = length or 0, chunked

    def end(self, data: bytes, begin: int, lines: int | None = None) -> int:
        """
        Return the offset after the head, after the body or after the whole read, whichever comes first.

        In a chunked body it is that after so many ``lines`` and the octets of the chunk behind them, if that is less.
        """
        if self._chunked:
            return self._end_of_chunks(data, begin, len(data) if lines is None else lines)
        if self._remaining:
            end = min(begin + self._remaining, len(data))
            self._remaining -= end - begin
            return end
        end = self._end_of_head(data, begin)
        if not self._line_ended:
            self._read_line(data, begin, end)
        return end

    def _end_of_head(self, data: bytes, begin: int) -> int:
        tail = self._tail
        if tail:
            found = (tail + data[begin : begin + 3]).find(_EMPTY_LINE)
            if found >= 0:
                return begin + found + 4 - len(tail)
        found = data.find(_EMPTY_LINE, begin)
        if found >= 0:
            return found + 4
        self._tail = (tail + data[max(begin, len(data) - 3) :])[-3:]
        return len(data)

    def _read_line(self, data: bytes, begin: int, end: int) -> None:
        """Check the request line; empty lines in front of it are skipped (RFC 9112 section 2.2)."""
        line = self._line
        if not line and _LINE.match(data, begin, end):
            self._line_ended = True
            return
        while begin < end:
            begin = self._extend_line(data, begin, end)
            if line.endswith(b"\n"):
                if line != _LINE_END:
                    self._line_ended, self.irregular = True, _LINE.fullmatch(line) is None
                    begin = end
                line.clear()

    def _end_of_chunks(self, data: bytes, begin: int, lines: int) -> int:
        """Skip chunks; the empty line after the last one is the end."""
        line, size = self._line, len(data)
        while begin < size:
            if self._remaining:
                passed = min(self._remaining, size - begin)
                self._remaining -= passed
                begin += passed
                continue
            if not lines:
                break
            lines -= 1
            begin = self._extend_line(data, begin, size)
            if not line.endswith(b"\n"):
                break
            if not self._in_trailers:
                number = _CHUNK_SIZE.match(line)
                octets = int(number[0], 16) if number is not None else 0
                self._remaining = octets + len(_LINE_END) if octets else 0
                self._in_trailers = not octets
            elif line == _LINE_END:
                line.clear()
                break
            line.clear()
        return begin

    def _extend_line(self, data: bytes, begin: int, end: int) -> int:
        """Add octets up to the next LF to the line."""
        end = data.find(b"\n", begin, end) + 1 or end
        self._line += data[begin:end]
        return end

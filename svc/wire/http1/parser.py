"""What the parsers of both directions share: collecting fields, counting octets and fields, closing at a defect."""

from __future__ import annotations

from typing import Final, NoReturn

import httptools

from svc.wire.errors import RemoteProtocolError
from svc.wire.fields import CLIENT_FIELD_CLASSES, FIELD_CLASSES, Field
from svc.wire.http1.framing import InterpretedField
from svc.wire.http1.messages import VERSIONS, Event, MessageLimits, MessageRefused

_SPACE: Final = 0x20
#: Octets around trailer fields: the line end of the last piece, the last chunk's line, the empty line.
LAST_CHUNK_SIZE: Final = len(b"\r\n0\r\n\r\n")
#: Lines of one slice. A line costs at most a field, half a chunk or a third of a request: a slice takes about 1 ms.
SLICE_LINES: Final = 128
#: A read of up to so many octets is one slice.
SLICE_OCTETS: Final = 1024
#: What llhttp reports before it has read a version.
_NO_VERSION: Final = "0.0"


class Parser:
    """
    The base of both parsers; llhttp calls its ``on_*`` methods.

    A head is checked when it is complete, so that the order in which defects are found does not depend on the split
    into reads; only its size is checked earlier.
    """

    def __init__(self, limits: MessageLimits, *, drop_forwarding: bool = False) -> None:
        self._limits = limits
        self._classes = CLIENT_FIELD_CLASSES if drop_forwarding else FIELD_CLASSES
        self._head_limit = limits.head
        self._fields_limit = limits.fields
        self._events: list[Event] = []
        self._fields: list[Field] = []
        #: Where fields are added: the fields of the head, or after it the trailers.
        self._collecting = self._fields
        self._interpreted: list[InterpretedField] = []
        #: Octets and fields of the message so far; its trailers count with its head.
        self._head_size = 0
        self._head_fields = 0
        self._octets_since_event = 0
        self._error: RemoteProtocolError | None = None
        self.closed = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one field of the head or of the trailers."""
        size = self._head_size + len(name) + len(value) + 4
        if size > self._head_limit:
            self._refuse(RemoteProtocolError("head_too_large", limit=self._head_limit))
        self._head_size = size
        if value and value[-1] <= _SPACE:
            # llhttp leaves the white space after a value, which is not part of it (RFC 9110 section 5.5). llhttp takes
            # a tab after the transfer coding for a part of the coding: it stays, and the coding is refused.
            value = value.rstrip(b" ") if name.lower() == b"transfer-encoding" else value.rstrip()
        self._collecting.append((name, value))
        found = self._classes[name]
        if found[2]:
            self._interpreted.append((found, name, value))

    def on_body(self, data: bytes) -> None:
        """Take one piece of a body, without chunk lines."""
        self._octets_since_event = 0
        self._events.append(data)

    def feed(self, data: bytes) -> list[Event]:
        """Read more bytes; see the parsers."""
        raise NotImplementedError

    def feed_slice(self, data: bytes, begin: int) -> tuple[list[Event], int]:
        """
        Read some of the bytes of a read, so few that their events are found in about a millisecond.

        Args:
            data: what was received.
            begin: the offset of the first byte that was not read yet.

        Returns:
            The events, and the offset of what is left for the next slice.
        """
        end = self._end_of_slice(data, begin)
        return self.feed(data if end - begin == len(data) else data[begin:end]), end

    def _end_of_slice(self, data: bytes, begin: int) -> int:
        """Return the end of a slice; a body of known length is one event, and may be a part of it whole."""
        raise NotImplementedError

    def _refuse(self, error: RemoteProtocolError) -> NoReturn:
        self._error = error
        raise error

    def _check_size(self, octets: int) -> None:
        """Check the complete head, or head and trailers, after adding octets that were not counted yet."""
        self._head_size += octets
        if self._head_size > self._head_limit:
            self._refuse(RemoteProtocolError("head_too_large", limit=self._head_limit))
        if self._head_fields + len(self._collecting) > self._fields_limit:
            self._refuse(RemoteProtocolError("too_many_fields", limit=self._fields_limit))

    def _feed(self, parser: httptools.HttpRequestParser | httptools.HttpResponseParser, data: bytes) -> int | None:
        """Feed llhttp; return the offset where it stopped for another protocol, else None."""
        self._octets_since_event += len(data)
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as stop:
            return int(stop.args[0])
        except httptools.HttpParserInvalidMethodError:
            self._close(RemoteProtocolError("method_unknown"))
        except httptools.HttpParserError as error:
            self._close(self._error or _error_of_llhttp(parser, error))
        else:
            # Whatever llhttp skips without an event (a partial head, a chunk extension, a trailer) stays bounded. One
            # read is added, because it may follow an event in the same read.
            if self._octets_since_event > self._head_limit + len(data):
                self._close(RemoteProtocolError("head_too_large", limit=self._head_limit))
        return None

    def _close(self, error: RemoteProtocolError) -> None:
        self.closed = True
        self._events.append(MessageRefused(error))

    def _take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _start_head(self) -> None:
        self._fields = self._collecting = []
        self._interpreted = []
        self._head_size = self._head_fields = 0

    def _finish_head(self) -> None:
        self._octets_since_event = 0
        self._head_fields = len(self._fields)
        self._collecting = []


def end_of_lines(data: bytes, begin: int) -> int:
    """Return the offset behind the CR of :data:`SLICE_LINES` lines, or the end; llhttp takes no line without CR."""
    # Up to the next CR it is one call of memchr, which is faster than to count them.
    for _ in range(SLICE_LINES):
        begin = data.find(b"\r", begin) + 1
        if not begin:
            return len(data)
    return begin


def _error_of_llhttp(
    parser: httptools.HttpRequestParser | httptools.HttpResponseParser, error: Exception
) -> RemoteProtocolError:
    # A head of another version is never accepted, so a version found here belongs to the line just read.
    version = parser.get_http_version()
    if version not in VERSIONS and version != _NO_VERSION:
        return RemoteProtocolError("version_refused", version=version)
    text = str(error.args[0]) if error.args else "not HTTP"
    return RemoteProtocolError("malformed_message", defect=text[:1].lower() + text[1:].rstrip("."))

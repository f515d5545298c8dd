"""
The responses on an upstream connection, one at a time.

Decides when a response ends (RFC 9112 section 6.3) and whether the connection can be used afterwards.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

import httptools

from svc.wire.errors import RemoteProtocolError
from svc.wire.fields import Field
from svc.wire.http1.extent import MessageExtent
from svc.wire.http1.fast_path import FieldLines, parse_lines
from svc.wire.http1.framing import read_framing
from svc.wire.http1.messages import MAX_INTERIM, VERSIONS, End, Event, Excess, Interim, MessageLimits, ResponseHead
from svc.wire.http1.parser import LAST_CHUNK_SIZE, SLICE_LINES, Parser, end_of_lines

_PROTOCOL: Final = b"HTTP/"
#: RFC 9112 section 4.
_PHRASE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*\Z")
_LINE_ENDS: Final = b"\r\n"
_EMPTY_LINE: Final = b"\r\n\r\n"
_RESPONSE: Final = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9]) ([A-Za-z][A-Za-z' -]*+)\r\n")
#: Status codes whose responses have no body, whatever their fields say.
_BODILESS: Final = frozenset({b"204", b"304"})
#: Those in which llhttp reads no body either, so that a length or chunks, which an upstream may not send with them, can
#: be ignored (RFC 9110 section 8.6).
_FRAMING_IGNORED: Final = frozenset({100, 102, 103, 204})
_CONTENT_LENGTH: Final = frozenset({b"content-length"})
_PHRASES: Final = frozenset(status.phrase.encode("ascii") for status in HTTPStatus)


def _split_response(data: bytes) -> tuple[int, bytes, bytes, bytes] | None:
    """Split a read into status, reason phrase, field lines and what follows the head; None for uncommon forms."""
    line = _RESPONSE.match(data)
    if line is None or line[1] in _BODILESS or line[2] not in _PHRASES:
        return None
    end = data.find(_EMPTY_LINE, line.end() - 2)
    if end < 0:
        return None
    return int(line[1]), line[2], data[line.end() : end + 2], data[end + 4 :]


class ResponseParser(Parser):
    """
    Reads the response to one request on an upstream connection, and after :meth:`expect` the response to the next.

    Args:
        method: the method of the request; the response to HEAD has no body.
        limits: what the response may use.
        upgrade: whether the request asked for another protocol.
    """

    def __init__(self, method: bytes, limits: MessageLimits | None = None, *, upgrade: bool = False) -> None:
        super().__init__(limits or MessageLimits())
        self._parser = self._new_llhttp()
        self._phrase = b""
        self._last_lines: FieldLines | None = None
        #: After a granted upgrade: the bytes of the other protocol.
        self.rest = b""
        self._start(method, upgrade)

    def expect(self, method: bytes, *, upgrade: bool = False) -> None:
        """
        Start the response to the next request. A parser that is closed stays closed.

        Args:
            method: the method of that request.
            upgrade: whether it asks for another protocol.

        Raises:
            ValueError: the response before it has not ended, which is a defect of the caller.
        """
        if not self._ended:
            raise ValueError("the response before has not ended")
        if not self._llhttp_complete:
            # llhttp does not see the end of a response to HEAD, or of one that ends with the connection.
            self._parser = self._new_llhttp()
        self._start(method, upgrade)

    def _new_llhttp(self) -> httptools.HttpResponseParser:
        llhttp = httptools.HttpResponseParser(self)
        # Without this it ends with a 1xx response that says "close"; what follows a final one is excess here.
        llhttp.set_dangerous_leniencies(lenient_keep_alive=True)
        return llhttp

    def _start(self, method: bytes, upgrade: bool) -> None:
        self._method = method
        self._upgrade = upgrade
        self._head: ResponseHead | None = None
        self._interim = 0
        #: Whether the connection ends with the final response, whatever that says.
        self._last = False
        self._ended = False
        self._llhttp_complete = False
        self._octets = 0
        self._tail = b""
        #: Missing octets of a body of known length.
        self._remaining: int | None = None
        #: Follows chunks, so that slices end where they do; None where they were not followed from the first one on.
        self._extent: MessageExtent | None = None

    @property
    def started(self) -> bool:
        """Whether any byte of the response has been read."""
        return self._octets > 0

    def feed(self, data: bytes) -> list[Event]:
        """
        Read more bytes.

        Args:
            data: what upstream sent.

        Returns:
            The events they complete. After a granted upgrade :attr:`rest` holds the bytes of the other protocol.
        """
        if self._extent is not None:
            self._extent.end(data, 0)
        return self._read(data)

    def _read(self, data: bytes, *, fast: bool = True) -> list[Event]:
        if self.closed or not data:
            return []
        if self._ended:
            self.closed = True
            return [Excess()]
        before = self._octets
        self._octets = before + len(data)
        if fast and not before:
            events = self._read_fast(data)
            if events is not None:
                return events
        if before < len(_PROTOCOL) and not _continues_protocol(before, data):
            # llhttp skips line ends in front of a response and accepts other protocols; neither belongs to a response.
            self._close(RemoteProtocolError("malformed_message", defect="a response begins with HTTP/"))
            return self._take_events()
        tail, self._tail = self._tail, (data[-5:] if len(data) > 4 else (self._tail + data)[-5:])
        remaining, in_head = self._remaining, self._head is None
        stopped_at = self._feed(self._parser, data)
        if stopped_at is not None:
            self.rest = data[stopped_at:]
            self.closed = True
        events, self._events = self._events, []
        if events and type(events[-1]) is End and self._line_ends_follow(events, tail, data, remaining):
            self.closed = True
            events.append(Excess())
        if in_head and self._head is not None and self._head.chunked and not self._ended:
            self._follow_chunks(data, events, first=not before)
        return events

    def _follow_chunks(self, data: bytes, events: list[Event], *, first: bool) -> None:
        """Follow the chunks behind a head, where it is certain with which octet they begin."""
        begin = len(data)
        if events[-1] is not self._head:
            begin = data.find(_EMPTY_LINE) + 4
            # llhttp takes a lone LF for the empty line.
            if not first or events[0] is not self._head or begin < 4 or data.find(b"\n\n", 0, begin) >= 0:
                return
        self._extent = MessageExtent()
        self._extent.head_ended(None, chunked=True)
        self._extent.end(data, begin)

    def feed_slice(self, data: bytes, begin: int) -> tuple[list[Event], int]:
        """See :meth:`Parser.feed_slice`; nothing is left behind the end of a response."""
        first = not (begin or self._octets or self.closed)
        if first:
            # Whatever its body contains, a whole response in the common form costs little.
            whole = self._read_fast(data)
            if whole is not None:
                self._octets = len(data)
                return whole, len(data)
        end = self._end_of_slice(data, begin)
        events = self._read(data if end - begin == len(data) else data[begin:end], fast=not first)
        if self._ended and end < len(data):
            if not self.closed:
                events += self._read(data[end:])
            elif self._head is not None and self._head.upgrade:
                self.rest += data[end:]
        return events, len(data) if self.closed else end

    def _end_of_slice(self, data: bytes, begin: int) -> int:
        if self._extent is not None:
            return self._extent.end(data, begin, SLICE_LINES // 2)
        if self._head is not None and self._head.until_close:
            return len(data)
        return end_of_lines(data, begin + (self._remaining or 0))

    def _read_fast(self, data: bytes) -> list[Event] | None:
        """Read one whole response in the common form without llhttp, which must be between two messages."""
        if self._upgrade or self._method == b"HEAD":
            return None
        parts = _split_response(data)
        if parts is None:
            return None
        status, phrase, octets, body = parts
        # In that form the size of a head is the number of its octets.
        if len(data) - len(body) > self._head_limit:
            return None
        lines = self._last_lines
        if lines is None or lines.octets != octets:
            lines = parse_lines(octets, self._fields_limit)
            if lines is None or lines.host is not None:
                return None
            self._last_lines = lines
        if lines.length != len(body):
            return None
        # By position, because each response makes one: in the order of Head and ResponseHead.
        head = ResponseHead("1.1", lines.fields, lines.options, True, lines.length, False, False, status, phrase, False)
        head.all_end_to_end = lines.all_end_to_end
        head.cached_lines = lines.end_to_end_lines
        self._head = head
        self._ended = self._llhttp_complete = True
        return [head, body, End()] if body else [head, End()]

    def feed_eof(self, *, clean: bool = True) -> list[Event]:
        """
        Process the end of the connection.

        Args:
            clean: whether it was closed in order; a reset never ends a body.

        Returns:
            End for a body that ends with the connection, MessageRefused in the middle of any other response, nothing
            after the end.
        """
        if self.closed or self._ended:
            return []
        if clean and self._head is not None and self._head.until_close:
            self._end()
        else:
            self._close(RemoteProtocolError("truncated"))
        self.closed = True
        return self._take_events()

    def on_message_begin(self) -> None:
        """Start a response; a second final one is excess."""
        if self._ended:
            self._excess()
        self._start_head()
        self._phrase = b""

    def on_status(self, data: bytes) -> None:
        """Take a piece of the reason phrase."""
        self._phrase += data
        self._head_size += len(data)
        if self._head_size > self._head_limit:
            self._refuse(RemoteProtocolError("head_too_large", limit=self._head_limit))

    def on_headers_complete(self) -> None:
        """Check the complete head."""
        if self._ended:
            self._excess()
        parser = self._parser
        # The rest of "HTTP/1.1 200 OK" and the line ends of that and of the empty line.
        self._check_size(17)
        try:
            head = self._response_head(
                parser.get_status_code(), parser.get_http_version(), self._fields, parser.should_keep_alive()
            )
        except RemoteProtocolError as error:
            self._refuse(error)
        self._finish_head()
        if self._last:
            head.keep_alive = False
        if head.status < 200 and head.status != 101:
            self._last = not head.keep_alive
            self._interim += 1
            if self._interim > MAX_INTERIM:
                self._refuse(RemoteProtocolError("too_many_interim", limit=MAX_INTERIM))
            self._events.append(Interim(head))
            return
        self._head = head
        self._events.append(head)
        if self._method == b"HEAD":
            self._end()
        elif head.length and not _bodiless(head.status):
            self._remaining = head.length

    def on_body(self, data: bytes) -> None:
        """Take one piece of the body."""
        if self._ended:
            self._excess()
        if self._remaining is not None:
            self._remaining -= len(data)
        super().on_body(data)

    def on_message_complete(self) -> None:
        """End the response or an interim one."""
        self._octets_since_event = 0
        head = self._head
        if head is None:
            return
        if not self._ended:
            if self._collecting:
                self._check_size(LAST_CHUNK_SIZE)
            self._llhttp_complete = True
            self._end()
        elif head.chunked and not _bodiless(head.status):
            # llhttp has no notion of HEAD and has read the chunks that the head announced.
            self._excess()

    def _end(self) -> None:
        self._ended = True
        # What follows the response to HEAD must not be added to these trailers.
        trailers, self._collecting = self._collecting, []
        self._events.append(End(trailers))

    def _excess(self) -> None:
        self._refuse(RemoteProtocolError("malformed_message", defect="bytes follow the response"))

    def _close(self, error: RemoteProtocolError) -> None:
        if self._ended:
            self.closed = True
            self._events.append(Excess())
            return
        super()._close(error)

    def _line_ends_follow(self, events: list[Event], before: bytes, data: bytes, remaining: int | None) -> bool:
        """
        Return whether line ends, which llhttp skips there, follow the response that just ended in ``data``.

        ``events`` resulted from ``data``, ``before`` are the last octets in front of it, and ``remaining`` octets were
        missing of a body of known length.
        """
        if self.closed:
            return False
        if self._remaining is None:
            # Without such a body an empty line is the end, after a line that is not empty.
            return not self._tail.endswith(_EMPTY_LINE) or self._tail[-5] in _LINE_ENDS
        if remaining is not None:
            return len(data) > remaining
        if data[-1] not in _LINE_ENDS:
            return False
        body = b"".join([event for event in events if type(event) is bytes])
        expected = _count_trailing_line_ends(body)
        if expected == len(body):
            expected += len(_EMPTY_LINE)
        return _count_trailing_line_ends(before + data) != expected

    def _response_head(self, status: int, version: str, fields: list[Field], keep_alive: bool) -> ResponseHead:
        if version not in VERSIONS:
            raise RemoteProtocolError("version_refused", version=version)
        if not 100 <= status <= 599:
            raise RemoteProtocolError("malformed_message", defect="its status is not between 100 and 599")
        if self._phrase not in _PHRASES and _PHRASE.match(self._phrase) is None:
            raise RemoteProtocolError("malformed_message", defect="its reason phrase holds a control character")
        length, chunked, options, upgrades, _hosts, _reserved, all_end_to_end = read_framing(self._interpreted, version)
        if status == 101 and not (
            self._upgrade and upgrades and b"upgrade" in options and self._parser.should_upgrade()
        ):
            # RFC 9110 section 7.8; llhttp must have recognized the upgrade too.
            raise RemoteProtocolError("malformed_message", defect="101 without a request for it")
        keep_alive = keep_alive and b"close" not in options
        if (status < 200 or status == 204) and (chunked or length is not None):
            # RFC 9112 section 6.1, RFC 9110 section 8.6. A reader that obeys the fields would wait for a body: they are
            # not forwarded, and the upstream, which may send that body, is not used again.
            if (chunked or length) and status not in _FRAMING_IGNORED:
                field = "Transfer-Encoding" if chunked else "Content-Length"
                raise RemoteProtocolError("field_refused", field=field, defect=f"a response {status} has no body")
            keep_alive = keep_alive and not (chunked or length)
            length, chunked, all_end_to_end = None, False, False
            options |= _CONTENT_LENGTH
        until_close = not (length is not None or chunked or self._method == b"HEAD" or _bodiless(status))
        # By position, because each response makes one: in the order of Head and ResponseHead.
        head = ResponseHead(
            version,
            fields,
            options,
            keep_alive,
            length,
            chunked,
            status == 101,
            status,
            self._phrase,
            until_close,
        )
        if all_end_to_end:
            head.all_end_to_end = True
        return head


def _continues_protocol(octets: int, data: bytes) -> bool:
    """Return whether a read continues ``HTTP/``, of which ``octets`` octets were read before."""
    if not octets and data.startswith(_PROTOCOL):
        return True
    return data.startswith(_PROTOCOL[octets:][: len(data)])


def _count_trailing_line_ends(octets: bytes) -> int:
    return len(octets) - len(octets.rstrip(_LINE_ENDS))


def _bodiless(status: int) -> bool:
    return status < 200 or status in (204, 304)

"""
The answers on an upstream connection, one at a time.

Owns when a response ends (RFC 9112 section 6.3) and what makes the connection unusable afterwards.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

import httptools

from svc.wire.errors import (
    FieldRefused,
    HeadTooLarge,
    MalformedMessage,
    RemoteProtocolError,
    TooManyInterim,
    Truncated,
    VersionRefused,
)
from svc.wire.fields import Field
from svc.wire.http1.framing import read_framing
from svc.wire.http1.messages import MAX_INTERIM, VERSIONS, End, Event, Excess, Interim, Limits, ResponseHead
from svc.wire.http1.parser import LAST_CHUNK, Parser
from svc.wire.http1.quick import FieldLines, read_lines, split_response

_PROTOCOL: Final = b"HTTP/"
#: RFC 9112 section 4.
_PHRASE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*\Z")
_PHRASES: Final = frozenset(status.phrase.encode("ascii") for status in HTTPStatus)
_LINE_ENDS: Final = b"\r\n"
_EMPTY_LINE: Final = b"\r\n\r\n"


class ResponseParser(Parser):
    """
    Reads the answer to one request on an upstream connection, and after :meth:`expect` the answer to the next.

    Args:
        method: the method of the request; the answer to HEAD has no body.
        limits: what the response may use.
        upgrade: whether the request asked for another protocol.
    """

    def __init__(self, method: bytes, limits: Limits | None = None, *, upgrade: bool = False) -> None:
        super().__init__(limits or Limits())
        self._parser = httptools.HttpResponseParser(self)
        self._phrase = b""
        self._lines: FieldLines | None = None
        self.rest = b""
        self._start(method, upgrade)

    def expect(self, method: bytes, *, upgrade: bool = False) -> None:
        """
        Go on to the answer to the next request. A parser that is closed stays closed.

        Args:
            method: the method of that request.
            upgrade: whether it asks for another protocol.

        Raises:
            ValueError: the answer before it has not ended, which is a defect of the caller.
        """
        if not self._ended:
            raise ValueError("the answer before has not ended")
        if not self._complete:
            # llhttp has not seen that end, behind an answer to HEAD or one that the connection's end would end.
            self._parser = httptools.HttpResponseParser(self)
        self._start(method, upgrade)

    def _start(self, method: bytes, upgrade: bool) -> None:
        self._method = method
        self._upgrade = upgrade
        self._head: ResponseHead | None = None
        self._interim = 0
        self._ended = False
        self._complete = False
        self._octets = 0
        self._tail = b""
        self._left: int | None = None

    @property
    def begun(self) -> bool:
        """Whether any octet of the answer has come."""
        return self._octets > 0

    def feed(self, data: bytes) -> list[Event]:
        """
        Read more octets.

        Args:
            data: what came from upstream.

        Returns:
            The events they complete. After a granted upgrade :attr:`rest` holds the octets of the other protocol.
        """
        if self.closed or not data:
            return []
        if self._ended:
            self.closed = True
            return [Excess()]
        before = self._octets
        self._octets = before + len(data)
        if not before:
            whole = self._at_a_glance(data)
            if whole is not None:
                return whole
        if before < len(_PROTOCOL) and not _goes_on(before, data):
            # llhttp skips line ends in front of a response and takes other protocols; neither belongs to a response.
            self._close(MalformedMessage(defect="an answer begins with HTTP/"))
            return self._taken()
        tail, self._tail = self._tail, (data if len(data) > 4 else (self._tail + data)[-5:])
        left = self._left
        stopped_at = self._feed(self._parser, data)
        if stopped_at is not None:
            self.rest = data[stopped_at:]
            self.closed = True
        events, self._events = self._events, []
        if events and type(events[-1]) is End and self._line_ends_follow(events, tail, data, left):
            self.closed = True
            events.append(Excess())
        return events

    def _at_a_glance(self, data: bytes) -> list[Event] | None:
        """Read one whole response in the usual form without llhttp, which stands between two messages."""
        if self._upgrade or self._method == b"HEAD":
            return None
        parts = split_response(data)
        if parts is None:
            return None
        status, phrase, octets, body = parts
        # In that form the size of a head is the number of its octets.
        if len(data) - len(body) > self._head_limit:
            return None
        lines = self._lines
        if lines is None or lines.octets != octets:
            lines = read_lines(octets, self._fields_limit)
            if lines is None or lines.host is not None:
                return None
            self._lines = lines
        if lines.length != len(body):
            return None
        # By position, because each response makes one: in the order of Head and ResponseHead.
        head = ResponseHead("1.1", lines.fields, lines.options, True, lines.length, False, False, status, phrase, False)
        head.travels_whole = lines.whole
        head.onward = lines.onward
        self._head = head
        self._ended = self._complete = True
        return [head, body, End()] if body else [head, End()]

    def feed_eof(self, *, clean: bool = True) -> list[Event]:
        """
        Say that the connection ended.

        Args:
            clean: whether it was closed in order; a reset never ends a body.

        Returns:
            End for a body that lasts until then, Refused in the middle of anything else, nothing after the end.
        """
        if self.closed or self._ended:
            return []
        if clean and self._head is not None and self._head.until_close:
            self._end()
        else:
            self._close(Truncated())
        self.closed = True
        return self._taken()

    def on_message_begin(self) -> None:
        """A response begins; a second final one is excess."""
        if self._ended:
            self._excess()
        self._start_head()
        self._phrase = b""

    def on_status(self, data: bytes) -> None:
        """A piece of the reason phrase."""
        self._phrase += data
        self._head_size += len(data)
        if self._head_size > self._head_limit:
            self._refuse(HeadTooLarge(limit=self._head_limit))

    def on_headers_complete(self) -> None:
        """The head is whole; judge it."""
        if self._ended:
            self._excess()
        parser = self._parser
        # The rest of "HTTP/1.1 200 OK" and the line ends of that and of the empty line.
        self._judge_size(17)
        try:
            head = self._judged(
                parser.get_status_code(), parser.get_http_version(), self._fields, parser.should_keep_alive()
            )
        except RemoteProtocolError as error:
            self._refuse(error)
        self._finish_head()
        if head.status < 200 and head.status != 101:
            self._interim += 1
            if self._interim > MAX_INTERIM:
                self._refuse(TooManyInterim(limit=MAX_INTERIM))
            self._events.append(Interim(head))
            return
        self._head = head
        self._events.append(head)
        if self._method == b"HEAD":
            self._end()
        elif head.length and not _bodiless(head.status):
            self._left = head.length

    def on_body(self, data: bytes) -> None:
        """One piece of the body."""
        if self._ended:
            self._excess()
        if self._left is not None:
            self._left -= len(data)
        super().on_body(data)

    def on_message_complete(self) -> None:
        """The response is whole, or an interim one is."""
        self._unaccounted = 0
        head = self._head
        if head is None:
            return
        if not self._ended:
            if self._gathered:
                self._judge_size(LAST_CHUNK)
            self._complete = True
            self._end()
        elif head.chunked and not _bodiless(head.status):
            # llhttp does not know of HEAD and read the chunks that the head told of.
            self._excess()

    def _end(self) -> None:
        self._ended = True
        # What comes behind the answer to HEAD is not to reach these trailers.
        trailers, self._gathered = self._gathered, []
        self._events.append(End(trailers))

    def _excess(self) -> None:
        self._refuse(MalformedMessage(defect="bytes follow the response"))

    def _close(self, error: RemoteProtocolError) -> None:
        if self._ended:
            self.closed = True
            self._events.append(Excess())
            return
        super()._close(error)

    def _line_ends_follow(self, events: list[Event], before: bytes, data: bytes, left: int | None) -> bool:
        """
        Tell whether line ends, which llhttp swallows there, follow the response that just ended in ``data``.

        ``events`` came from ``data``, ``before`` are the last octets in front of it, and ``left`` was missing of a body
        of known length.
        """
        if self.closed:
            return False
        if self._left is None:
            # Without such a body an empty line is the end, behind a line that is not empty.
            return not self._tail.endswith(_EMPTY_LINE) or self._tail[-5] in _LINE_ENDS
        if left is not None:
            return len(data) > left
        if data[-1] not in _LINE_ENDS:
            return False
        body = b"".join([event for event in events if type(event) is bytes])
        expected = _trailing(body)
        if expected == len(body):
            expected += len(_EMPTY_LINE)
        return _trailing(before + data) != expected

    def _judged(self, status: int, version: str, fields: list[Field], keep_alive: bool) -> ResponseHead:
        if version not in VERSIONS:
            raise VersionRefused(version=version)
        if not 100 <= status <= 599:
            raise MalformedMessage(defect="its status is not between 100 and 599")
        if self._phrase not in _PHRASES and _PHRASE.match(self._phrase) is None:
            raise MalformedMessage(defect="its reason phrase holds a control character")
        length, chunked, options, upgrades, _hosts, _reserved, whole = read_framing(self._telling, version)
        if status == 101 and not (
            self._upgrade and upgrades and b"upgrade" in options and self._parser.should_upgrade()
        ):
            # RFC 9110 section 7.8; llhttp must have seen the same.
            raise MalformedMessage(defect="101 without a request for it")
        if (status < 200 or status == 204) and (chunked or length):
            # RFC 9112 section 6.1, RFC 9110 section 8.6: a reader that believes the field waits for a body.
            field = "Transfer-Encoding" if chunked else "Content-Length"
            raise FieldRefused(field=field, defect=f"a response {status} has no body")
        keep_alive = keep_alive and b"close" not in options
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
        if whole:
            head.travels_whole = True
        return head


def _goes_on(octets: int, data: bytes) -> bool:
    """Tell whether a read goes on with the name of the protocol, of which some octets came before."""
    if not octets and data.startswith(_PROTOCOL):
        return True
    return data.startswith(_PROTOCOL[octets:][: len(data)])


def _trailing(octets: bytes) -> int:
    """Count the line ends that stand last."""
    return len(octets) - len(octets.rstrip(_LINE_ENDS))


def _bodiless(status: int) -> bool:
    return status < 200 or status in (204, 304)

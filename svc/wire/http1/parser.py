"""What both directions share: collecting fields, counting octets and fields, and closing at the first defect."""

from __future__ import annotations

from typing import Final, NoReturn

import httptools

from svc.wire.errors import (
    HeadTooLarge,
    MalformedMessage,
    MethodUnknown,
    RemoteProtocolError,
    TooManyFields,
    VersionRefused,
)
from svc.wire.fields import CLASSES, Field
from svc.wire.http1.framing import Telling
from svc.wire.http1.messages import VERSIONS, Event, Limits, Refused

_SPACE: Final = 0x20
#: Octets around trailer fields: the line end of the last piece, the last chunk's line, the empty line.
LAST_CHUNK: Final = len(b"\r\n0\r\n\r\n")


class Parser:
    """
    What both directions share: collecting fields, counting octets and fields, and closing at the first defect.

    A head is judged when it is whole, so that the order in which defects are found does not depend on how the octets
    were cut into reads; only its size is watched on the way.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._head_limit = limits.head
        self._fields_limit = limits.fields
        self._events: list[Event] = []
        self._fields: list[Field] = []
        #: Where fields go: to those of the head, or to the trailers behind it.
        self._gathered = self._fields
        #: Those of them that say something to the proxy.
        self._telling: list[Telling] = []
        self._head_size = 0
        self._unaccounted = 0
        self._defect: RemoteProtocolError | None = None
        self.closed = False

    # What httptools calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field, of the head or of the trailers."""
        size = self._head_size + len(name) + len(value) + 4
        if size > self._head_limit:
            self._refuse(HeadTooLarge(limit=self._head_limit))
        self._head_size = size
        if value and value[-1] <= _SPACE:
            # llhttp leaves the white space behind a value, which is no part of it (RFC 9110 section 5.5). A tab behind
            # the transfer coding makes another coding of it for llhttp: it stays and is refused.
            value = value.rstrip(b" ") if name.lower() == b"transfer-encoding" else value.rstrip()
        self._gathered.append((name, value))
        known = CLASSES[name]
        if known[2]:
            self._telling.append((known, name, value))

    def on_body(self, data: bytes) -> None:
        """One piece of a body, chunk lines removed."""
        self._unaccounted = 0
        self._events.append(data)

    # What the two directions use.

    def _refuse(self, error: RemoteProtocolError) -> NoReturn:
        self._defect = error
        raise error

    def _judge_size(self, octets: int) -> None:
        """Judge the size of the head or the trailers that are whole now, with octets that were not counted yet."""
        if self._head_size + octets > self._head_limit:
            self._refuse(HeadTooLarge(limit=self._head_limit))
        if len(self._gathered) > self._fields_limit:
            self._refuse(TooManyFields(limit=self._fields_limit))

    def _feed(self, parser: httptools.HttpRequestParser | httptools.HttpResponseParser, data: bytes) -> int | None:
        """Feed llhttp; tell the offset where it stopped for another protocol, else None."""
        self._unaccounted += len(data)
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as stop:
            return int(stop.args[0])
        except httptools.HttpParserInvalidMethodError:
            self._close(MethodUnknown())
        except httptools.HttpParserError as error:
            self._close(self._defect or _explained(parser, error))
        else:
            # Whatever llhttp holds back without an event (a half head, a chunk extension, a trailer) stays bounded. The
            # allowance is for what one read may bring behind an event.
            if self._unaccounted > self._head_limit + len(data):
                self._close(HeadTooLarge(limit=self._head_limit))
        return None

    def _close(self, error: RemoteProtocolError) -> None:
        self.closed = True
        self._events.append(Refused(error))

    def _taken(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _start_head(self) -> None:
        self._fields = self._gathered = []
        self._telling = []
        self._head_size = 0

    def _finish_head(self) -> None:
        self._unaccounted = 0
        self._head_size = 0
        self._gathered = []


def _explained(
    parser: httptools.HttpRequestParser | httptools.HttpResponseParser, error: Exception
) -> RemoteProtocolError:
    # No head of another version was ever let through, so one that stands here belongs to the line just read.
    version = parser.get_http_version()
    if version not in VERSIONS and version != _NO_VERSION:
        return VersionRefused(version=version)
    words = str(error.args[0]) if error.args else "not HTTP"
    return MalformedMessage(defect=words[:1].lower() + words[1:].rstrip("."))


#: What llhttp says before it read a version.
_NO_VERSION: Final = "0.0"

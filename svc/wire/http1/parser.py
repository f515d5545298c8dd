"""What both directions share: collecting fields, counting octets and fields, and closing at the first defect."""

from __future__ import annotations

from typing import NoReturn

import httptools

from svc.wire.errors import HeadTooLarge, MalformedMessage, MethodUnknown, RemoteProtocolError, TooManyFields
from svc.wire.fields import Field
from svc.wire.http1.messages import Event, Limits, Refused


class Parser:
    """What both directions share: collecting fields, counting octets and fields, and closing at the first defect."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._events: list[Event] = []
        self._fields: list[Field] = []
        self._trailers: list[Field] | None = None
        self._head_size = 0
        self._unaccounted = 0
        self._defect: RemoteProtocolError | None = None
        self.closed = False

    # What httptools calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field, of the head or of the trailers."""
        fields = self._fields if self._trailers is None else self._trailers
        fields.append((name, value))
        self._head_size += len(name) + len(value) + 4
        if len(fields) > self._limits.fields:
            self._refuse(TooManyFields(limit=self._limits.fields))
        if self._head_size > self._limits.head:
            self._refuse(HeadTooLarge(limit=self._limits.head))

    def on_body(self, data: bytes) -> None:
        """One piece of a body, chunk lines removed."""
        self._unaccounted = 0
        self._events.append(data)

    # What the two directions use.

    def _refuse(self, error: RemoteProtocolError) -> NoReturn:
        self._defect = error
        raise error

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
            self._close(self._defect or MalformedMessage(defect=_llhttp_words(error)))
        else:
            # Whatever llhttp holds back without an event (a half head, a chunk extension, a trailer) stays bounded. The
            # allowance is for what one read may bring behind an event.
            if self._unaccounted > self._limits.head + len(data):
                self._close(HeadTooLarge(limit=self._limits.head))
        return None

    def _close(self, error: RemoteProtocolError) -> None:
        self.closed = True
        self._events.append(Refused(error))

    def _taken(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _start_head(self) -> None:
        self._fields = []
        self._trailers = None
        self._head_size = 0

    def _finish_head(self) -> None:
        self._unaccounted = 0
        self._head_size = 0
        self._trailers = []


def _llhttp_words(error: Exception) -> str:
    words = str(error.args[0]) if error.args else "not HTTP"
    return words[:1].lower() + words[1:].rstrip(".")

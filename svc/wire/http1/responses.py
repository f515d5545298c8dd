"""
The answer to one request on an upstream connection.

Owns when a response ends (RFC 9112 section 6.3) and what makes the connection unusable afterwards.
"""

from __future__ import annotations

import httptools

from svc.wire.errors import (
    HeadTooLarge,
    MalformedMessage,
    RemoteProtocolError,
    TooManyInterim,
    TransferCodingRefused,
    Truncated,
    VersionRefused,
)
from svc.wire.fields import Field, classify, connection_options
from svc.wire.http1.messages import MAX_INTERIM, VERSIONS, End, Event, Excess, Interim, Limits, ResponseHead
from svc.wire.http1.parser import Parser


class ResponseParser(Parser):
    """
    Reads the answer to one request on an upstream connection.

    Args:
        method: the method of the request; the answer to HEAD has no body.
        limits: what the response may use.
        upgrade: whether the request asked for another protocol.
    """

    def __init__(self, method: bytes, limits: Limits | None = None, *, upgrade: bool = False) -> None:
        super().__init__(limits or Limits())
        self._parser = httptools.HttpResponseParser(self)
        self._method = method
        self._upgrade = upgrade
        self._phrase = b""
        self._head: ResponseHead | None = None
        self._interim = 0
        self._ended = False
        self._begun = False
        self.rest = b""

    @property
    def begun(self) -> bool:
        """Whether any octet of the answer has come."""
        return self._begun

    def feed(self, data: bytes) -> list[Event]:
        """
        Read more octets.

        Args:
            data: what came from upstream.

        Returns:
            The events they complete. After a granted upgrade :attr:`rest` holds the octets of the other protocol.
        """
        if self.closed:
            return []
        self._begun = True
        if self._ended:
            self.closed = True
            return [Excess()]
        stopped_at = self._feed(self._parser, data)
        if stopped_at is not None:
            self.rest = data[stopped_at:]
            self.closed = True
        return self._taken()

    def feed_eof(self) -> list[Event]:
        """
        Say that the connection ended.

        Returns:
            End for a body that lasts until then, Refused in the middle of anything else, nothing after the end.
        """
        if self.closed or self._ended:
            return []
        if self._head is not None and self._head.until_close:
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
        if self._head_size > self._limits.head:
            self._refuse(HeadTooLarge(limit=self._limits.head))

    def on_headers_complete(self) -> None:
        """The head is whole; judge it."""
        if self._ended:
            self._excess()
        parser = self._parser
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

    def on_body(self, data: bytes) -> None:
        """One piece of the body."""
        if self._ended:
            self._excess()
        super().on_body(data)

    def on_message_complete(self) -> None:
        """The response is whole, or an interim one is."""
        self._unaccounted = 0
        if self._head is not None and not self._ended:
            self._end()

    def _end(self) -> None:
        self._ended = True
        self._events.append(End(self._trailers or []))

    def _excess(self) -> None:
        self._refuse(MalformedMessage(defect="bytes follow the response"))

    def _close(self, error: RemoteProtocolError) -> None:
        if self._ended:
            self.closed = True
            self._events.append(Excess())
            return
        super()._close(error)

    def _judged(self, status: int, version: str, fields: list[Field], keep_alive: bool) -> ResponseHead:
        if version not in VERSIONS:
            raise VersionRefused(version=version)
        length: int | None = None
        connection: list[bytes] = []
        chunked = upgrade = False
        for name, value in fields:
            lower, special = classify(name)
            if lower == b"content-length":
                length = int(value)
            elif special:
                if lower == b"connection":
                    connection.append(value)
                elif lower == b"transfer-encoding":
                    if value.lower() != b"chunked" or chunked or version == "1.0":
                        raise TransferCodingRefused()
                    chunked = True
                elif lower == b"upgrade":
                    upgrade = True
        if status == 101 and not (self._upgrade and upgrade):
            raise MalformedMessage(defect="101 without a request for it")
        bodiless = self._method == b"HEAD" or status < 200 or status in (204, 304)
        return ResponseHead(
            version=version,
            fields=fields,
            options=connection_options(connection) if connection else frozenset(),
            keep_alive=keep_alive,
            length=length,
            chunked=chunked,
            upgrade=upgrade,
            status=status,
            phrase=self._phrase,
            until_close=not (bodiless or chunked or length is not None),
        )

"""
A response on its way to the client: its head, framed for the client's version (RFC 9112 section 6), and its body, whose
end is withheld where a record must be durable first.

Pure: events in, octets out. Withheld are at least the last octet of a body of known length, the last chunk, or the head
where no body follows. Where the end of the connection ends the body, the owner of the connection withholds that end.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from svc.proxy.http.recorder import BodyDigest, ExchangeDigests, Recorder
from svc.wire.fields import Field, encode_fields, end_to_end_trailers
from svc.wire.http1 import RequestHead, ResponseHead

#: Octets that are withheld beside the end of a response, so that it is one write in place of two.
MAX_WITHHELD: Final = 16 * 1024


class Framing(Enum):
    """What ends the body of a response on the client's connection."""

    NONE = "there is no body"
    LENGTH = "a number of octets"
    CHUNKED = "the last chunk"
    CLOSE = "the end of the connection"


#: Of which nothing is taken: never updated.
_NOTHING: Final = BodyDigest()

# Looking up a member of an enum costs three times what comparing it does, and each response does so several times.
_NONE, _LENGTH, _CHUNKED, _CLOSE = Framing


def response_framing(head: ResponseHead, method: bytes, version: str) -> Framing:
    """Return what ends the body on the connection of a client of this HTTP version; 1.0 has no chunks."""
    if method == b"HEAD" or head.status < 200 or head.status in (204, 304):
        return _NONE
    if head.chunked or head.until_close:
        return _CHUNKED if version == "1.1" else _CLOSE
    return _LENGTH if head.length else _NONE


def response_head(head: ResponseHead, framing: Framing, *, version: str, close: bool, added: bytes) -> bytes:
    """Write the head for the client, with its empty line; ``added`` are further lines, each with CRLF."""
    if framing is _CHUNKED:
        added += b"Transfer-Encoding: chunked\r\n"
    if head.status == 101:
        added += b"Connection: upgrade\r\n" + encode_fields([(b"Upgrade", value) for value in head.values(b"upgrade")])
    elif close or framing is _CLOSE:
        added += b"Connection: close\r\n"
    elif version == "1.0":
        added += b"Connection: keep-alive\r\n"
    return b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (head.status, head.phrase, head.end_to_end_lines, added)


def interim_head(head: ResponseHead) -> bytes:
    """Write a 1xx response for the client, without reserved fields."""
    return b"HTTP/1.1 %d %b\r\n%b\r\n" % (head.status, head.phrase, head.end_to_end_lines)


class ResponseWriter:
    """
    Writes one response; ``added`` are the lines that the proxy adds to its head, each with CRLF.

    Without a recorder nothing is recorded and nothing withheld.
    """

    __slots__ = (
        "_before",
        "_framing",
        "_given",
        "_options",
        "_recorder",
        "_remaining",
        "close",
        "first",
        "held",
        "octets",
    )

    def __init__(
        self, request: RequestHead, head: ResponseHead, *, close: bool, added: bytes, recorder: ExchangeDigests | None
    ) -> None:
        version = request.version
        self._framing = framing = response_framing(head, request.method, version)
        self._remaining = head.length or 0
        self._options = head.options
        self._recorder = recorder
        # The recorded body before what arrives now, and what the client has of it while its end is withheld: without
        # the withheld octet of a known length, or nothing of what arrived with the end.
        self._before = self._given = _NOTHING
        #: Whether the client's connection ends after it.
        self.close = close or framing is _CLOSE
        #: The octets to send at once, empty where nothing is sent before the record is durable.
        self.first = response_head(head, framing, version=version, close=close, added=added)
        #: Octets of the body so far.
        self.octets = 0
        #: The octets to send when the record is durable.
        self.held = b""
        if recorder is not None:
            recorder.begin_response(head)
            if framing is _NONE:
                self.first, self.held = b"", self.first

    def body(self, data: bytes) -> bytes:
        """Frame a piece of the body; return what may be sent now."""
        recorder = self._recorder
        self.octets += len(data)
        if recorder is not None and self._framing is _LENGTH:
            self._remaining -= len(data)
            if self._remaining <= 0:
                self.held, data = data[-1:], data[:-1]
                recorder.response.update(data)
                self._given = recorder.response.copy()
                recorder.response.update(self.held)
                return data
        if recorder is not None:
            recorder.response.update(data)
        if self._framing is _CHUNKED:
            return b"%x\r\n%b\r\n" % (len(data), data)
        return data

    def end(self, trailers: list[Field]) -> bytes:
        """End the body; return what may be sent now, nothing where the end is withheld."""
        last = b""
        kept: list[Field] = []
        if self._framing is _CHUNKED:
            kept = end_to_end_trailers(trailers, self._options)
            last = b"0\r\n%b\r\n" % encode_fields(kept)
        recorder = self._recorder
        if recorder is None:
            return last
        if self._framing is not _LENGTH:
            self._given = recorder.response.copy()
        recorder.end_response(trailers, kept)
        self.held += last
        return b""

    def withhold(self, out: list[bytes]) -> list[bytes]:
        """Withhold what has arrived together with the end too, unless it is much; return what may be sent now."""
        data = b"".join(out)
        if len(data) > MAX_WITHHELD:
            return [data]
        if self.first in out:
            self.first = b""
        self._given = self._before
        self.held = data + self.held
        return []

    def arrives(self) -> None:
        """More of a response arrives, which may be withheld as a whole."""
        if self._recorder is not None:
            self._before = self._recorder.response.copy()

    def cut(self, recorder: Recorder) -> None:
        """Never send what is withheld: the record has what the client was given."""
        recorder.cut_response(self._given if self.first else None)
        self.octets = recorder.response.size

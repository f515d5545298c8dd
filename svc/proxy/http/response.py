"""
A response on its way to the client: framed for the client's version, its end withheld where a record must come first.

Pure: events in, octets out. Withheld are the last octet of a body of known length, the last chunk, or the head where no
    body follows; where only the end of the connection ends the body, that end is withheld by whoever closes.
"""

from __future__ import annotations

from svc.proxy.http.heads import Framing, response_framing, response_head
from svc.proxy.http.recorder import Recorder
from svc.wire.fields import Field, encode_fields, end_to_end_trailers
from svc.wire.http1 import RequestHead, ResponseHead

_NONE, _LENGTH, _CHUNKED, _CLOSE = Framing


class ResponseWriter:
    """
    Writes one response.

    Args:
        request: what it answers.
        head: its head, as the application or the proxy made it.
        close: whether the client's connection ends after it.
        added: the lines that the proxy adds, each with CRLF.
        recorder: gathers what is released; None where nothing is recorded and nothing withheld.
    """

    __slots__ = ("_framing", "_options", "_recorder", "_remaining", "close", "first", "held", "octets", "status")

    def __init__(
        self, request: RequestHead, head: ResponseHead, *, close: bool, added: bytes, recorder: Recorder | None
    ) -> None:
        version = request.version
        self._framing = framing = response_framing(head, request.method, version)
        self._remaining = head.length or 0
        self._options = head.options
        self._recorder = recorder
        self.status = head.status
        self.close = close or framing is _CLOSE
        #: The octets to send at once.
        self.first = response_head(head, framing, version=version, close=close, added=added)
        #: Content that came so far.
        self.octets = 0
        #: The octets to send when the record is durable.
        self.held = b""
        if recorder is not None:
            recorder.status = head.status
            recorder.response_fields = head.end_to_end
            if framing is _NONE:
                self.first, self.held = b"", self.first

    def body(self, data: bytes) -> bytes:
        """
        Frame a piece of the body.

        Args:
            data: its octets.

        Returns:
            What may be sent now.
        """
        recorder = self._recorder
        self.octets += len(data)
        if recorder is not None:
            recorder.response.update(data)
        if self._framing is _CHUNKED:
            return b"%x\r\n%b\r\n" % (len(data), data)
        if recorder is not None and self._framing is _LENGTH:
            self._remaining -= len(data)
            if self._remaining <= 0:
                self.held, data = data[-1:], data[:-1]
        return data

    def end(self, trailers: list[Field]) -> bytes:
        """
        End the body.

        Args:
            trailers: as the application sent them.

        Returns:
            What may be sent now; nothing where it is withheld.
        """
        last = b""
        kept: list[Field] = []
        if self._framing is _CHUNKED:
            kept = end_to_end_trailers(trailers, self._options)
            last = b"0\r\n%b\r\n" % encode_fields(kept)
        recorder = self._recorder
        if recorder is None:
            return last
        recorder.response_trailers = kept
        recorder.response.complete = True
        self.held += last
        return b""

"""
One connection that carries requests one after the other: the I/O shell of ``svc curl``.

Owns when a request may follow on the same connection and what the end of a connection means for the answer that was
running. Parsing is done by :mod:`svc.wire.http1`; who the peer is, by the transport.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast
from typing import Protocol as Interface

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.cli.exchange.errors import AnswerRefused, ConnectionLost, RefusedByServer
from svc.errors import SvcError
from svc.telemetry.events import Severity
from svc.wire.fields import Field
from svc.wire.http1 import End, Event, Excess, Interim, Refused, ResponseHead, ResponseParser

_PERHAPS_TLS: Final = "does it speak TLS at this port? then use https://; else look at the log of the server"


@dataclass(frozen=True, slots=True)
class Answer:
    """
    The head and the end of an answer; its body went to the sink.

    Args:
        head: the final head.
        trailers: the fields behind a chunked body.
    """

    head: ResponseHead
    trailers: tuple[Field, ...]


class Sink(Interface):
    """Takes an answer while it arrives; what it raises ends the connection and fails the request."""

    def got_head(self, head: ResponseHead) -> None:
        """The final head is here."""

    def got_body(self, data: bytes) -> None:
        """A piece of the body is here."""


class HttpChannel(Protocol):
    """
    A client's end of one connection.

    Args:
        server: what errors call the other end.
    """

    _log = Logger(namespace="svc.cli")

    def __init__(self, server: str, *, secure: bool = True) -> None:
        self._server = server
        self._secure = secure
        self._parser: ResponseParser | None = None
        self._sink: Sink | None = None
        self._head: ResponseHead | None = None
        self._waiting: Deferred[Answer] | None = None
        self._lost = False
        self._spent = False

    @property
    def usable(self) -> bool:
        """Whether another request may be sent on this connection."""
        return not (self._lost or self._spent) and self._waiting is None

    @property
    def begun(self) -> bool:
        """Whether any octet of the last answer came."""
        return self._parser is not None and self._parser.begun

    def ask(self, method: str, request: bytes, sink: Sink) -> Deferred[Answer]:
        """
        Send a request and read its answer.

        Args:
            method: its method, which decides whether the answer has a body.
            request: all its octets.
            sink: takes the answer.

        Returns:
            A Deferred with the answer; cancelling it ends the connection.
        """
        if not self.usable or self.transport is None:
            return fail(ConnectionLost(server=self._server, moment="before the request was sent"))
        self._parser = ResponseParser(method.encode("ascii"))
        self._sink = sink
        self._head = None
        waiting: Deferred[Answer] = Deferred(self._forget)
        self._waiting = waiting
        self._log.debug("> {method} with {size} octets", method=method, size=len(request), svc_severity=Severity.TRACE)
        self.transport.write(request)
        return waiting

    def _forget(self, _waiting: Deferred[Answer]) -> None:
        self._waiting = None
        self.abort()

    def close(self) -> None:
        """End the connection in order."""
        self._spent = True
        if self.transport is not None and not self._lost:
            self.transport.loseConnection()

    def abort(self) -> None:
        """End the connection at once."""
        self._spent = True
        if self.transport is not None and not self._lost:
            cast(ITCPTransport, self.transport).abortConnection()

    def dataReceived(self, data: bytes) -> None:
        """Octets came."""
        if self._parser is None or self._waiting is None:
            self._spent = True  # nothing was asked, so nothing that comes can be trusted to answer the next request
            self.abort()
            return
        self._take(self._parser.feed(data))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The connection ended; only an orderly end may complete an answer (RFC 9112 section 9.8)."""
        self._lost = True
        if self._waiting is None or self._parser is None:
            return
        begun = self._parser.begun
        if isinstance(reason.value, SvcError):
            # The server's own judgement of us comes after our side of the handshake (RFC 8446 section 4.4.3).
            self._fail(RefusedByServer(server=self._server, cause=reason.value))
            return
        if reason.check(ConnectionDone) is not None and self._head is not None:
            self._take(self._parser.feed_eof(), ending=True)
        if self._waiting is not None:
            moment = "in the middle of its answer" if begun else "without an answer"
            told = {} if self._secure or begun else {"advice_text": _PERHAPS_TLS}
            self._fail(ConnectionLost(server=self._server, moment=moment, **told))

    def _take(self, events: list[Event], *, ending: bool = False) -> None:
        for event in events:
            if self._waiting is None:
                self._spent = self._spent or isinstance(event, Excess | Refused)
                continue
            try:
                self._took(event, ending)
            except SvcError as error:
                self._fail(error)

    def _took(self, event: Event, ending: bool) -> None:
        if self._sink is None:
            return
        if isinstance(event, bytes):
            self._sink.got_body(event)
        elif isinstance(event, ResponseHead):
            self._head = event
            names = ", ".join(name.decode("latin-1") for name, _value in event.fields)
            self._log.debug("< {status} with {names}", status=event.status, names=names, svc_severity=Severity.TRACE)
            self._sink.got_head(event)
        elif isinstance(event, Interim):
            self._log.debug("< {status}, interim", status=event.head.status, svc_severity=Severity.TRACE)
        elif isinstance(event, End):
            self._finished(event)
        elif isinstance(event, Refused) and not ending:
            raise AnswerRefused(server=self._server, cause=event.error)

    def _finished(self, end: End) -> None:
        waiting, self._waiting = self._waiting, None
        head = self._head
        if waiting is None or head is None:
            return
        if not head.keep_alive or head.until_close:
            self.close()
        waiting.callback(Answer(head, tuple(end.trailers)))

    def _fail(self, error: SvcError) -> None:
        waiting, self._waiting = self._waiting, None
        self.abort()
        if waiting is not None:
            waiting.errback(error)

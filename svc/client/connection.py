"""
The connection of an exchange: HTTP/1.1 requests one after the other, and when it is opened again.

Owns when a request may follow on the same connection, and what the end of a connection means for a response that is not
complete. An exchange uses one connection. Where the server ends it in order (``Connection: close``, as at 80 % of the
life of its credentials), an artifact may be fetched on a new one, to the same address and to no other identity than the
one that answered. Its key may be another one after a rotation: what is fetched there is verified against the connection
of the exchange, by its identifier and its signatures, never against the connection that carried it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast
from typing import Protocol as Interface

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IPushProducer, ITCPTransport
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.client import debug_log
from svc.client.errors import ConnectionLost, ExchangeFailed, RefusedByServer
from svc.client.request import Request, artifact_request
from svc.client.sending import RequestStream
from svc.client.target import Target
from svc.envelope.envelope import MAX_ENVELOPE
from svc.envelope.errors import EnvelopeError
from svc.errors import SvcError
from svc.telemetry.events.base import Severity
from svc.transport.addresses import TcpAddress
from svc.wire.fields import Field
from svc.wire.http1 import End, Event, Excess, Interim, MessageRefused, ResponseHead, ResponseParser

if TYPE_CHECKING:
    from svc.transport.evidence import PeerEvidence

_PERHAPS_TLS: Final = "does it serve TLS on this port? then use https://; else look at the log of the server"


@dataclass(frozen=True, slots=True)
class Response:
    """The final head and the trailers of a complete response; its body went to the sink."""

    head: ResponseHead
    trailers: tuple[Field, ...]


class ResponseSink(Interface):
    """Takes a response while it arrives; what it raises ends the connection and fails the request."""

    def got_head(self, head: ResponseHead) -> None:
        """The final head arrived."""

    def got_body(self, data: bytes) -> None:
        """A piece of the body arrived."""


class HttpChannel(Protocol):
    """
    The client's end of one connection.

    Args:
        server: host and port, for errors.
        secure: whether the connection is TLS.
    """

    _log = Logger(namespace="svc.cli")

    def __init__(self, server: str, *, secure: bool = True) -> None:
        self._server = server
        self._secure = secure
        self._parser: ResponseParser | None = None
        self._sink: ResponseSink | None = None
        self._head: ResponseHead | None = None
        self._waiting: Deferred[Response] | None = None
        self._stream: RequestStream | None = None
        self._paused = False
        self._lost = False
        self._ended = False

    @property
    def usable(self) -> bool:
        """Whether another request may be sent on this connection."""
        return not (self._lost or self._ended) and self._waiting is None

    @property
    def response_begun(self) -> bool:
        """Whether any octet of the last response arrived."""
        return self._parser is not None and self._parser.started

    def send(
        self, method: str, request: bytes, sink: ResponseSink, stream: RequestStream | None = None
    ) -> Deferred[Response]:
        """
        Send a request; the Deferred fires with its response, and cancelling it ends the connection.

        Args:
            method: decides whether the response has a body.
            request: all its octets, the first line included, up to a streamed body.
            stream: the body that follows.
        """
        if not self.usable or self.transport is None:
            return fail(ConnectionLost(server=self._server, moment="before the request was sent"))
        self._parser = ResponseParser(method.encode("ascii"))
        self._sink = sink
        self._head = None
        waiting: Deferred[Response] = Deferred(self._cancelled)
        self._waiting = waiting
        debug_log.request_sent(request, self.transport.getPeer())
        self.resume()
        self.transport.write(request)
        if stream is not None:
            self._stream = stream
            stream.send(self.transport).addErrback(self._sending_failed)
        return waiting

    def _cancelled(self, _waiting: Deferred[Response]) -> None:
        self._waiting = None
        self._stop_sending()
        self.abort()

    def _sending_failed(self, failure: Failure) -> None:
        if isinstance(failure.value, Exception):
            self._fail(failure.value)

    def _stop_sending(self) -> bool:
        """Stop a body that is still being sent; returns whether there was none."""
        stream, self._stream = self._stream, None
        if stream is None or stream.complete:
            return True
        stream.stop()
        return False

    def pause(self) -> None:
        """Read nothing more for now."""
        if self.transport is not None and not self._lost and not self._paused:
            self._paused = True
            cast(IPushProducer, self.transport).pauseProducing()

    def resume(self) -> None:
        """Read again."""
        if self.transport is not None and not self._lost and self._paused:
            self._paused = False
            cast(IPushProducer, self.transport).resumeProducing()

    def close(self) -> None:
        """End the connection in order."""
        self._ended = True
        if self.transport is not None and not self._lost:
            self.transport.loseConnection()

    def abort(self) -> None:
        """End the connection at once."""
        self._ended = True
        if self.transport is not None and not self._lost:
            cast(ITCPTransport, self.transport).abortConnection()

    def dataReceived(self, data: bytes) -> None:
        """Parse; octets without a request would be taken for the next response, so they end the connection."""
        if self._parser is None or self._waiting is None:
            self.abort()
            return
        self._handle(self._parser.feed(data))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Complete or fail the response; only an orderly end may complete one (RFC 9112 section 9.8)."""
        self._lost = True
        self._stop_sending()
        if self._waiting is None or self._parser is None:
            return
        begun = self._parser.started
        if isinstance(reason.value, SvcError):
            # A server verifies our certificate after our side of the handshake (RFC 8446 section 4.4.3).
            self._fail(RefusedByServer(server=self._server, cause=reason.value))
            return
        if reason.check(ConnectionDone) is not None and self._head is not None:
            self._handle(self._parser.feed_eof(), ending=True)
        if self._waiting is not None:
            moment = "in the middle of its answer" if begun else "without an answer"
            advice = {} if self._secure or begun else {"advice_text": _PERHAPS_TLS}
            self._fail(ConnectionLost(server=self._server, moment=moment, **advice))

    def _handle(self, events: list[Event], *, ending: bool = False) -> None:
        if any(isinstance(event, Excess) for event in events):
            # Before the response is complete, since the next request may be sent at once.
            self.close()
        for event in events:
            if self._waiting is None:
                self._ended = self._ended or isinstance(event, MessageRefused)
                continue
            try:
                self._handle_event(event, ending)
            except SvcError as error:
                self._fail(error)

    def _handle_event(self, event: Event, ending: bool) -> None:
        if self._sink is None:
            return
        if isinstance(event, bytes):
            self._sink.got_body(event)
        elif isinstance(event, ResponseHead):
            self._head = event
            debug_log.head_received(event.status, (name for name, _value in event.fields))
            self._sink.got_head(event)
        elif isinstance(event, Interim):
            self._log.debug("received: {status}, interim", status=event.head.status, svc_severity=Severity.TRACE)
        elif isinstance(event, End):
            self._complete(event)
        elif isinstance(event, MessageRefused) and not ending:
            raise ExchangeFailed("malformed_response", server=self._server, cause=event.error)

    def _complete(self, end: End) -> None:
        waiting, self._waiting = self._waiting, None
        head = self._head
        if waiting is None or head is None:
            return
        # A server may respond before it has read the request; the rest of it is not sent (RFC 9112 section 9.5).
        if not self._stop_sending() or not head.keep_alive or head.until_close:
            self.close()
        waiting.callback(Response(head, tuple(end.trailers)))

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, None
        self._stop_sending()
        self.abort()
        if waiting is not None:
            waiting.errback(error)


class ChannelFactory(Factory):
    """Makes the channel of a connection to a target."""

    noisy = False

    def __init__(self, target: Target) -> None:
        self._target = target

    def buildProtocol(self, addr: object) -> HttpChannel:
        return HttpChannel(self._target.server, secure=self._target.secure)


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """
    An open connection and the verified peer, which is None without TLS.

    Args:
        reused: whether it has carried an exchange before.
        statements: the envelope of the last statement that was verified for this peer, by its identifier.
    """

    channel: HttpChannel
    peer: PeerEvidence | None
    reused: bool = False
    statements: dict[str, bytes] = field(default_factory=dict, compare=False)


def address_of(target: Target, previous: OpenConnection | None) -> TcpAddress:
    """The address to connect to: that of the previous connection, so that a name with several stays at one."""
    if previous is not None and previous.channel.transport is not None:
        host = getattr(previous.channel.transport.getPeer(), "host", target.host)
        return TcpAddress(host, target.port)
    return TcpAddress(target.host, target.port)


@dataclass(frozen=True, slots=True)
class FetchedArtifact:
    """The whole response to the request for an artifact."""

    head: ResponseHead
    body: bytes


class _ArtifactBody:
    def __init__(self) -> None:
        self.data = bytearray()

    def got_head(self, head: ResponseHead) -> None:
        pass

    def got_body(self, data: bytes) -> None:
        self.data += data
        if len(self.data) > MAX_ENVELOPE:
            raise EnvelopeError("too_large", size=len(self.data), limit=MAX_ENVELOPE)


class ExchangeConnection:
    """
    Carries one exchange, then the requests for its artifacts.

    Args:
        dial: opens a connection; given the one of the exchange, only to the same address and the same identity.
        release: takes the open connection at the end; closes it by default.
    """

    def __init__(
        self,
        dial: Callable[[OpenConnection | None], Awaitable[OpenConnection]],
        request: Request,
        release: Callable[[OpenConnection], None] | None = None,
    ) -> None:
        self._dial = dial
        self._release = release
        self.request = request
        self._current: OpenConnection | None = None
        self._first: OpenConnection | None = None

    @property
    def peer(self) -> PeerEvidence | None:
        """The verified peer of the exchange, whatever connection is open now."""
        return None if self._first is None else self._first.peer

    async def open(self) -> OpenConnection:
        """Open the connection of the exchange; raises what the dialing raises."""
        self._first = self._current = await self._dial(None)
        return self._current

    async def exchange(self, sink: ResponseSink) -> Response:
        """Send the request of the exchange; raises ``ExchangeFailed`` where no complete response arrives."""
        request = self.request
        while True:
            connection = self._current or await self.open()
            try:
                return await connection.channel.send(request.method, request.encoded(), sink, request.stream)
            except ConnectionLost:
                # A server may close a connection that was kept open, at any time (RFC 9112 section 9.3.1).
                if not (connection.reused and request.repeatable) or connection.channel.response_begun:
                    raise
                self._current = None

    def known_statement(self, identifier: str) -> bytes | None:
        """The envelope of a statement that was verified before for the peer of the exchange."""
        return None if self._first is None else self._first.statements.get(identifier)

    def remember_statement(self, identifier: str, envelope: bytes) -> None:
        """Keep the envelope of a verified statement for the next exchange with this peer."""
        if self._first is not None and identifier not in self._first.statements:
            self._first.statements.clear()
            self._first.statements[identifier] = envelope

    async def fetch(self, path: str) -> FetchedArtifact:
        """
        Fetch an artifact of the exchange; a connection that was closed while idle is replaced once.

        Returns:
            The whole response, whatever its status.

        Raises:
            ExchangeFailed: no complete response arrived.
            EnvelopeError: the response is larger than an envelope may be.
        """
        try:
            return await self._fetch(path)
        except ConnectionLost:
            if self._current is not None and self._current.channel.response_begun:
                raise
        return await self._fetch(path)

    async def _fetch(self, path: str) -> FetchedArtifact:
        if self._current is None or not self._current.channel.usable:
            self._current = await self._dial(self._first)
        body = _ArtifactBody()
        response = await self._current.channel.send("GET", artifact_request(self.request.authority, path), body)
        return FetchedArtifact(response.head, bytes(body.data))

    def close(self) -> None:
        """Release the connection that is open."""
        if self._current is None:
            return
        if self._release is not None:
            self._release(self._current)
        else:
            self._current.channel.close()

"""
The request of an exchange on its way to the application.

Owns the connection to the application while the exchange has one, what waits until it is there, whose speed governs
whom, and the one repetition. Judges nothing, knows nothing of levels, and answers nobody.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from svc.proxy.errors import BodyTooLarge, ProxyError
from svc.proxy.http.heads import request_head
from svc.wire.fields import Field, encode_fields, end_to_end_trailers
from svc.wire.http1 import Event, RequestHead

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from svc.policy import Permit
    from svc.proxy.http.interfaces import ExchangeClient
    from svc.proxy.http.recorder import Recorder
    from svc.proxy.http.upstream import UpstreamConnection

#: Methods that may be sent again on a new connection when a pooled one turns out to be closed (RFC 9110 section 9.2.2).
_REPEATABLE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE"})


class ForwardedRequest(ABC):
    """
    The half of an exchange that faces the application; a subclass answers the client.

    Args:
        client: the client's connection.
        head: the request.
    """

    # What most exchanges never change stands here once.
    request_ended = False
    finished = False
    _permit: Permit | None = None
    _recorder: Recorder | None = None
    _attempt: Deferred[UpstreamConnection] | None = None
    _upstream: UpstreamConnection | None = None
    _retried = False
    _body_in = 0
    _streaming_down = False
    _response_ended = False

    def __init__(self, client: ExchangeClient, head: RequestHead) -> None:
        self._client = client
        self._context = context = client.context
        self.head = head
        self.started = self.request_ended_at = context.seconds()
        #: Whether the client's connection ends after this exchange.
        self.close = not head.keep_alive
        self._to_upstream: list[bytes] = []

    @abstractmethod
    def upstream_events(self, events: list[Event]) -> None:
        """See :class:`svc.proxy.http.upstream.UpstreamUser`."""

    @abstractmethod
    def upstream_lost(self, events: list[Event]) -> None:
        """See :class:`svc.proxy.http.upstream.UpstreamUser`."""

    @abstractmethod
    def _fail(self, error: ProxyError) -> None:
        """End for a fault on the way."""

    @abstractmethod
    def _answer_as_last(self) -> None:
        """Answer a request that may not be forwarded, because Max-Forwards is used up (RFC 9110 section 7.6.2)."""

    # -- The body ----------------------------------------------------------------------------------------------------

    def request_body(self, data: bytes) -> None:
        """
        Take a piece of the request body.

        Args:
            data: octets without chunk lines.
        """
        if self._response_ended or self.finished:
            return
        self._body_in += len(data)
        limit = self._context.limits.body
        if limit is not None and self._body_in > limit:
            self._fail(BodyTooLarge(limit=limit))
            return
        if self._recorder is not None:
            self._recorder.request.update(data)
        self._to_upstream.append(b"%x\r\n%b\r\n" % (len(data), data) if self.head.chunked else data)

    def request_end(self, trailers: list[Field]) -> None:
        """
        The request is whole.

        Args:
            trailers: its trailer fields.
        """
        self.request_ended = True
        self.request_ended_at = self._context.seconds()
        if self._response_ended or self.finished:
            return
        if self._recorder is not None:
            self._recorder.request.complete = True
            self._recorder.request_trailers = trailers
        if self.head.chunked:
            self._to_upstream.append(b"0\r\n%b\r\n" % encode_fields(end_to_end_trailers(trailers, self.head.options)))

    def flush(self) -> None:
        """Send on what the client's last octets gave; called once for each read."""
        upstream = self._upstream
        if upstream is None:
            if self._to_upstream and not self.finished and not self.request_ended:
                self._client.pause_for_exchange()
            return
        if self._to_upstream:
            data = self._to_upstream[0] if len(self._to_upstream) == 1 else b"".join(self._to_upstream)
            self._to_upstream.clear()
            self._client.sent_upstream(len(data))
            upstream.write(data)
        if not self.request_ended:
            upstream.feed_from(self._client)
        elif upstream.fed:
            self._stop_streaming_up()

    # -- The connection ----------------------------------------------------------------------------------------------

    def _forward(self) -> None:
        if self.head.max_forwards == 0:
            self._answer_as_last()
            return
        self._to_upstream.insert(0, self._head_onward())
        self._acquire()

    def _head_onward(self) -> bytes:
        client, head = self._client, self.head
        return request_head(head, client.caller.request_lines(head, client.random))

    def _acquire(self, *, fresh: bool = False) -> None:
        if self._permit is None:
            return
        self._attempt = self._context.pool.acquire(self._permit, self, fresh=fresh)
        if self._attempt is not None and self._attempt.called:
            self._attempt = None

    def upstream_ready(self, connection: UpstreamConnection) -> None:
        """See :class:`svc.proxy.http.upstream.UpstreamUser`."""
        self._attempt = None
        if self.finished:
            self._context.pool.put_back(connection)
            return
        self._upstream = connection
        connection.begin(self, self.head.method, upgrade=self.head.upgrade)
        if not self._client.pumping:
            self.flush()
        self._client.resume_for_exchange()

    def upstream_failed(self, error: ProxyError) -> None:
        """See :class:`svc.proxy.http.upstream.UpstreamUser`."""
        self._attempt = None
        if not self.finished:
            self._fail(error)
            self._client.resume_for_exchange()

    def _repeat(self, lost: UpstreamConnection) -> bool:
        """Send the request once more where a pooled connection ended without a word; says whether it does."""
        if (
            not lost.reused
            or self._retried
            or lost.answer_begun
            or self.head.has_body
            or self.head.method not in _REPEATABLE
        ):
            return False
        self._retried = True
        self._to_upstream = [self._head_onward()]
        self._acquire(fresh=True)
        return True

    def _stop_streaming_up(self) -> None:
        upstream = self._upstream
        if upstream is not None and upstream.fed:
            upstream.stop_feeding()
            self._client.resumeProducing()

    def _stop_streaming_down(self) -> None:
        if self._streaming_down:
            self._streaming_down = False
            self._client.stop_stream()
            if self._upstream is not None:
                self._upstream.resumeProducing()

    def _drop_upstream(self) -> None:
        if self._attempt is not None:
            self._context.pool.give_up(self._attempt)
            self._attempt = None
        self._stop_streaming_up()
        self._stop_streaming_down()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.release(reusable=False)

"""
A request on its way to the upstream: its head for the next hop, and the octets that wait for a connection.

It does not handle notarization levels and sends no responses to clients.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from twisted.internet.defer import Deferred

from svc.policy.engine import Permit
from svc.proxy.errors import ProxyError
from svc.proxy.http.upstream import ConnectionUser
from svc.wire.fields import Field, encode_fields, end_to_end_trailers
from svc.wire.http1 import RequestHead

if TYPE_CHECKING:
    from svc.proxy.http.caller import Caller
    from svc.proxy.http.context import HttpContext
    from svc.proxy.http.recorder import Observation
    from svc.proxy.http.upstream import UpstreamConnection

#: Methods that may be sent again on a new connection when a pooled one turns out to be closed (RFC 9110 section 9.2.2).
_REPEATABLE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE"})
#: The line of Host in lines as they are written: one space after the colon, nothing after the value.
_HOST_LINE: Final = re.compile(rb"^host: ([^\r]*)", re.IGNORECASE | re.MULTILINE)

#: The scheme and the authority of a target in absolute form.
_AUTHORITY: Final = re.compile(rb"\A([^:/?]+://)[^/?#]*")


def request_head(head: RequestHead, added: bytes, host: bytes | None = None, *, absent: bytes = b"") -> bytes:
    """
    Write the head of a request for the next hop, with its empty line.

    Target, Host and the order of fields stay; ``added`` are the lines that the proxy adds, each with CRLF. Where
    ``host`` is given it replaces the value of Host and the authority of a target in absolute form. A request of
    HTTP/1.0 without Host gets the first of ``host``, the authority of its target, and ``absent``.
    """
    target, lines = head.target, head.end_to_end_lines
    if host is not None:
        target, lines = _for_host(head, lines, host)
    if head.version == "1.0" and _HOST_LINE.search(lines) is None:
        lines = b"Host: %b\r\n%b" % (host or head.host or absent, lines)
    if head.chunked:
        added += b"Transfer-Encoding: chunked\r\n"
    if head.upgrade:
        added += b"Connection: upgrade\r\n" + encode_fields([(b"Upgrade", value) for value in head.values(b"upgrade")])
    elif b"te" in head.options and any(_names_trailers(value) for value in head.values(b"te")):
        added += b"TE: trailers\r\nConnection: te\r\n"
    return b"%b %b HTTP/1.1\r\n%b%b\r\n" % (head.method, target, lines, added)


def _for_host(head: RequestHead, lines: bytes, host: bytes) -> tuple[bytes, bytes]:
    """Return target and field lines with another Host; the authority of an absolute target is that of the old one."""
    target, line = head.target, _HOST_LINE.search(lines)
    if line is not None:
        lines = b"%b%b%b" % (lines[: line.start(1)], host, lines[line.end(1) :])
    if not target.startswith(b"/") and b"://" in target:
        target = _AUTHORITY.sub(lambda scheme: scheme[1] + host, target, count=1)
    return target, lines


def _names_trailers(value: bytes) -> bool:
    return any(part.split(b";")[0].strip().lower() == b"trailers" for part in value.split(b","))


class ForwardedExchange(ConnectionUser, Protocol):
    """The exchange of a request."""

    head: RequestHead
    request_ended: bool

    @property
    def finished(self) -> bool:
        """Whether it is over."""

    def upstream_connected(self) -> None:
        """The request has its connection."""

    def upstream_failed(self, error: ProxyError) -> None:
        """No connection could be made."""


class RequestingClient(Protocol):
    """What a request needs of the connection of its client, which is a push producer of its body."""

    context: HttpContext
    caller: Caller
    random: Callable[[int], bytes]
    #: Octets sent to the application that are not counted yet.
    octets_sent: int

    def stream_from(self, upstream: UpstreamConnection) -> None:
        """Let the client's speed control a response that does not fit one read."""

    def stop_stream(self) -> None:
        """The response is read to its end."""

    def pause_for_exchange(self) -> None:
        """Read no more until the exchange can accept more of the request."""

    def resumeProducing(self) -> None:
        """The application reads again."""


class UpstreamRequest:
    """
    The request of one exchange on its way to the upstream; without a permit there is none.

    Owns the exchange's connection, the octets that wait for it, back-pressure in both directions and the one repeat.
    """

    # What most requests never change is set here once.
    connection: UpstreamConnection | None = None
    _attempt: Deferred[UpstreamConnection] | None = None
    _dropped = False
    _repeated = False
    _streaming_response = False
    #: The header lines for the peer, where the exchange decides on them.
    lines: bytes | None = None
    #: Gets the head as it is sent, where the receipt of the exchange is compared with it.
    observation: Observation | None = None

    def __init__(self, exchange: ForwardedExchange, client: RequestingClient, permit: Permit) -> None:
        self._exchange = exchange
        self._client = client
        self._head = exchange.head
        self._permit = permit
        self._pending: list[bytes] = []

    @property
    def client_slow(self) -> bool:
        """Whether octets of the response wait for the client to read."""
        return self._streaming_response and self.connection is not None and self.connection.held

    # -- Towards the upstream ----------------------------------------------------------------------------------------

    def send(self, *, fresh: bool = False) -> None:
        """Acquire a connection; the head goes first, before body octets that have arrived already."""
        client, head = self._client, self._head
        caller = client.caller
        added = self.lines or caller.forwarded_lines or caller.request_lines(head, client.random)
        self._pending.insert(0, request_head(head, added, client.context.host, absent=client.context.upstream_host))
        if self.observation is not None:
            self.observation.head = self._pending[0]
        attempt = client.context.pool.acquire(self._permit, self, fresh=fresh)
        if attempt is not None and not attempt.called:
            self._attempt = attempt

    def body(self, data: bytes) -> None:
        """Add a piece of the body; :meth:`flush` sends it."""
        self._pending.append(b"%x\r\n%b\r\n" % (len(data), data) if self._head.chunked else data)

    def last_chunk(self, trailers: list[Field]) -> None:
        """End a chunked body; :meth:`flush` sends it."""
        head = self._head
        kept = end_to_end_trailers(trailers, head.options, drop_forwarding=head.drop_forwarding)
        if self.observation is not None:
            self.observation.request_trailers = kept
        self._pending.append(b"0\r\n%b\r\n" % encode_fields(kept))

    def flush(self) -> None:
        """Send the octets that the last read of the client gave; without a connection the client is paused."""
        connection, pending, exchange = self.connection, self._pending, self._exchange
        if connection is None:
            if pending and not exchange.request_ended and not exchange.finished:
                self._client.pause_for_exchange()
            return
        if pending:
            data = pending[0] if len(pending) == 1 else b"".join(pending)
            pending.clear()
            self._client.octets_sent += len(data)
            connection.transport.write(data)
        if not exchange.request_ended:
            connection.feed_from(self._client)
        elif connection.fed:
            self._stop_feeding(connection)

    def may_repeat(self, lost: UpstreamConnection) -> bool:
        """
        Whether the request may be sent once more, where a pooled connection ended without an octet of a response.

        Not where the peer is asked for a statement or receipt: the lost connection may have carried it already.
        """
        return not (
            self.lines is not None
            or not lost.reused
            or self._repeated
            or lost.answer_begun
            or self._head.has_body
            or self._head.method not in _REPEATABLE
        )

    def repeat(self) -> None:
        """Send the request once more, on a new connection."""
        self._repeated = True
        self._pending.clear()
        self.send(fresh=True)

    def upstream_ready(self, connection: UpstreamConnection) -> None:
        """The pool has a connection for this request alone."""
        self._attempt = None
        if self._dropped:
            self._client.context.pool.put_back(connection)
            return
        exchange, self.connection = self._exchange, connection
        connection.begin(exchange, self._head.method, upgrade=self._head.upgrade)
        exchange.upstream_connected()

    def upstream_failed(self, error: ProxyError) -> None:
        """The pool could make no connection."""
        self._attempt = None
        self._exchange.upstream_failed(error)

    # -- From the upstream -------------------------------------------------------------------------------------------

    def stream_response(self) -> None:
        """Let the client's speed control a response that does not fit one read."""
        if not self._streaming_response and self.connection is not None:
            self._streaming_response = True
            self._client.stream_from(self.connection)

    def detach(self) -> UpstreamConnection | None:
        """Give up a connection that is lost, and return it."""
        connection, self.connection = self.connection, None
        if connection is not None and connection.fed:
            self._stop_feeding(connection)
        return connection

    def pause_for_tunnel(self) -> None:
        """Keep the connection after a granted upgrade, unread until the tunnel reads it."""
        self._stop_streams()
        if self.connection is not None:
            self.connection.pauseProducing()

    def take_connection(self) -> UpstreamConnection | None:
        """Hand the connection over to a tunnel."""
        connection, self.connection = self.connection, None
        return connection

    def keep(self, *, reusable: bool) -> UpstreamConnection | None:
        """Keep the connection for the receipt of its response, where it may be used again."""
        connection = self.connection
        if not reusable or connection is None or connection.dead:
            self.release(reusable=False)
            return None
        self._stop_streams()
        return self.take_connection()

    def release(self, *, reusable: bool) -> None:
        """Give the connection back, to the pool where it may be used again."""
        connection = self.connection
        if connection is not None:
            if connection.fed or self._streaming_response:
                self._stop_streams()
            self.connection = None
            connection.release(reusable=reusable)
        elif self._streaming_response:
            self._stop_streams()

    def drop(self) -> None:
        """Abort the connection, or the attempt to make one."""
        attempt, self._attempt, self._dropped = self._attempt, None, True
        if attempt is not None:
            self._client.context.pool.give_up(attempt)
        self.release(reusable=False)

    def _stop_feeding(self, connection: UpstreamConnection) -> None:
        connection.stop_feeding()
        self._client.resumeProducing()

    def _stop_streams(self) -> None:
        connection = self.connection
        if connection is not None and connection.fed:
            self._stop_feeding(connection)
        if self._streaming_response:
            self._streaming_response = False
            self._client.stop_stream()
            if connection is not None:
                connection.resumeProducing()

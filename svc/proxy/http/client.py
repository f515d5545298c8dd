"""
One connection of a client: its requests in order, one exchange at a time.

Owns the queue of parsed requests that wait, why reading is paused, idle times, and how the connection ends: in order,
with a moment for what the client still sends, or at once. Request n+1 is not begun before response n is released, so
that no request is ever answered with the response to another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, cast, final

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IHalfCloseableProtocol, IProtocol, IPushProducer
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.errors import SvcError
from svc.identity import SpiffeID
from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from svc.proxy.errors import RequestRefused, RequestTimeout
from svc.proxy.evaluation import Kept, Refused
from svc.proxy.eviction import IdentityShare, IdleConnections
from svc.proxy.http.answers import answer, problem_body, problem_fields
from svc.proxy.http.caller import Caller, connected_caller
from svc.proxy.http.context import HttpContext
from svc.proxy.http.exchange import Exchange
from svc.proxy.http.notary_endpoint import ReservedPath
from svc.proxy.http.tunnel import Tunnel
from svc.proxy.http.upstream import UpstreamConnection
from svc.proxy.listener import Connection
from svc.proxy.reporter import ExchangeSummary
from svc.telemetry.labels import Cause
from svc.transport.errors import KeyUpdateLimitReached, PeerCredentialsEnded, TransportError
from svc.transport.fair_limiter import release_slot
from svc.wire.errors import RemoteProtocolError
from svc.wire.http1 import SLICE_OCTETS, End, Event, MessageRefused, RequestHead, RequestParser

_CLOSE_LINE: Final = b"Connection: close\r\n"
#: Seconds for which a closing connection still reads what the other side sends.
_LINGER: Final = 3.0
#: Unsent octets of responses beyond which no further request is begun: more than pause a streaming producer, so that
#: the transport reports when they are sent.
MOST_UNSENT: Final = 128 * 1024


@final
class _NoMore:
    """Behind everything that a client sends which has ended its stream."""


_NO_MORE: Final = _NoMore()


@final
class _Unparsed:
    """Octets of a read, of which those before ``begin`` are parsed."""

    __slots__ = ("begin", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.begin = 0


_Queued = Event | _NoMore | _Unparsed


class ReadPause:
    """Why a client is not read; bits, and reading goes on when none is set."""

    QUEUED: Final = 1
    UPSTREAM_SLOW: Final = 2
    EXCHANGE_WAITS: Final = 4
    UPGRADE_PENDING: Final = 8


@implementer(IPushProducer)
class _Backlog:
    """Waits until responses are sent that the client does not read; registered as the producer of its transport."""

    def __init__(self, transport: Any, sent: Callable[[], None]) -> None:
        self._transport = transport
        self._sent = sent
        transport.registerProducer(self, True)

    def forget(self) -> None:
        """Wait no longer, so that the transport can be closed."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.unregisterProducer()

    def pauseProducing(self) -> None:
        """Nothing is produced."""

    def resumeProducing(self) -> None:
        """The octets are sent."""
        if self._transport is not None:
            self.forget()
            self._sent()

    def stopProducing(self) -> None:
        """The connection ended; the protocol is called itself."""
        self._transport = None


@implementer(IProtocol, IHalfCloseableProtocol, IPushProducer)
class ClientConnection:
    """
    A client's connection, which adds itself to the ``registry`` of open connections and removes itself.

    A client that ends its stream, by FIN or under TLS by close_notify, still gets the responses to its requests.
    The ``endpoint`` answers the reserved path; None outbound where no receipts are collected.
    """

    transport: Any = None
    caller: Caller

    def __init__(
        self,
        context: HttpContext,
        endpoint: ReservedPath | None,
        random: Callable[[int], bytes],
        registry: set[Connection],
    ) -> None:
        self.context = context
        self.random = random
        self._endpoint = endpoint
        self._registry = registry
        # Clients of an inbound listener are no proxies of its application; behind an outbound one is the application.
        self._parser = RequestParser(context.message_limits, drop_forwarding=context.inbound)
        self._queue: deque[_Queued] = deque()
        self._pumping = False
        #: Whether it waits for a turn of the reactor to go on with the queue.
        self._awaits_turn = False
        self._paused = 0
        self._exchange: Exchange | None = None
        self._tunnel: Tunnel | None = None
        self._upgraded: Exchange | None = None
        self._head_since = 0.0
        self._activity = context.tick
        self._share: IdentityShare | None = None
        #: Where this connection is while it is idle.
        self._idle_in: IdleConnections = context.evictions.unpermitted
        self._received = 0
        #: Octets sent to the application that are not counted yet.
        self.octets_sent = 0
        #: Octets written to the client since its transport was asked what is unsent.
        self._written = 0
        self._backlog: _Backlog | None = None
        self._counted = False
        self._closing_until: float | None = None
        self._unsent = 0
        #: Whether the client has ended its stream.
        self._read_ended = False
        self.gone = False
        self._asked_to_end = False
        #: Whether the client has fetched from the notary, and how often it is going to while the process is leaving.
        self._stated, self._proofs = False, 0
        #: When an upgraded connection under a former SVID of this proxy is closed; None unless it is to end.
        self._drain_until: float | None = None

    # -- Twisted -----------------------------------------------------------------------------------------------------

    def makeConnection(self, transport: Any) -> None:
        """Attach the transport."""
        self.transport = transport
        self.connectionMade()

    def connectionMade(self) -> None:
        """Register the client; behind TLS it is verified already."""
        context = self.context
        self._registry.add(self)
        self._activity = context.tick
        context.metrics.active.inc()
        set_no_delay = getattr(self.transport, "setTcpNoDelay", None)
        if set_no_delay is not None:
            set_no_delay(True)
        self.caller = connected_caller(context, self.transport)
        if self.caller.evidence is not None:
            context.reauthorization.add(self)
        self._share = context.evictions.join(self, self.caller.identity)
        if not self.caller.same_identity(context.rotation.identity):
            # The identity ended while this connection was in its handshake.
            self.abort("identity_withdrawn")
        else:
            # The bundles may have changed during the handshake.
            self._refuse_or_drain()

    def dataReceived(self, data: bytes) -> None:
        """Parse octets from the client, or pass them through the tunnel."""
        self._received += len(data)
        self._activity = self.context.tick
        if self._tunnel is not None:
            self._tunnel.from_client(data)
        elif self._closing_until is None:
            if self._queue or len(data) > SLICE_OCTETS:
                self._queue.append(_Unparsed(data))
            else:
                if not self._parser.in_head:
                    self._head_since = self._activity
                self._queue.extend(self._parser.feed(data))
            self._pump()

    def readConnectionLost(self) -> None:
        """The client sends no more: what it has sent is answered, then the connection is closed."""
        if self._read_ended:
            return
        self._read_ended = True
        if self._tunnel is not None:
            self._end_tunnel(self._tunnel)
        elif self._closing_until is not None:
            self.transport.loseConnection()
        else:
            self._queue.append(_NO_MORE)
            self._pump()

    def writeConnectionLost(self) -> None:
        """The end of the responses is sent."""

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 (Twisted's signature)
        """End what is under way."""
        self.gone = True
        self._registry.discard(self)
        self.context.reauthorization.discard(self)
        if self._share is not None:
            self.context.evictions.leave(self, self._share)
        self._clear_queue()
        self.count_octets()
        self.context.metrics.active.dec()
        tunnel = self._tunnel
        if isinstance(reason.value, KeyUpdateLimitReached):
            self._count("key_update_limit")
        self._count("application" if tunnel is not None and tunnel.ended else "client")
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_lost()
        if tunnel is not None:
            tunnel.client_gone(complete=reason.check(ConnectionDone) is not None)
            if self._upgraded is not None:
                self._upgraded.tunnel_ended(tunnel.from_client_octets, tunnel.from_upstream_octets)

    def report_refused(self, error: SvcError, request: RequestHead | None = None, decision_id: str = "") -> None:
        """See :class:`svc.proxy.http.exchange.ExchangeClient`."""
        self.context.report_refused(error, self.address, self.caller.text, request, decision_id)

    @property
    def identity(self) -> SpiffeID | None:
        """The verified identity of the client; None outbound."""
        return self.caller.identity

    @property
    def address(self) -> str:
        """The host that the client connects from."""
        peer = self.transport.getPeer() if self.transport is not None else None
        return str(getattr(peer, "host", "") or "local")

    # -- The queue of requests ---------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Pass waiting events to the exchanges, one exchange at a time, until the turn is over."""
        if self._pumping or self._awaits_turn:
            return
        self._pumping = True
        queue, reauthorization = self._queue, self.context.reauthorization
        # Requests, and slices of octets; the time is not looked at before the second.
        steps, deadline = 0, 0.0
        try:
            while queue and self._closing_until is None and not self.gone:
                exchange = self._exchange
                if exchange is None:
                    if self._written > MOST_UNSENT and self._must_wait_for_client():
                        break
                    if reauthorization.running and reauthorization.decide(self):
                        break
                elif exchange.request_ended:
                    break
                elif type(queue[0]) is not _Unparsed:
                    self._feed(exchange, queue.popleft())  # type: ignore[arg-type]
                    continue
                if steps == 1:
                    deadline = self.context.turns.deadline()
                elif steps and self.context.turns.over(deadline):
                    self._awaits_turn = True
                    self.context.turns.wait(self)
                    break
                steps += 1
                event = queue[0]
                if type(event) is _Unparsed:
                    self._parse(event)
                else:
                    self._next(queue.popleft())  # type: ignore[arg-type]
        finally:
            self._pumping = False
        exchange = self._exchange
        if exchange is not None and exchange.upstream_request is not None:
            exchange.upstream_request.flush()
        if queue or self._paused:
            self._pause(ReadPause.QUEUED, bool(queue) and self._closing_until is None)

    def read_on(self) -> None:
        """See :class:`svc.pacing.turns.UnfinishedRead`."""
        self._awaits_turn = False
        self._pump()

    def _parse(self, octets: _Unparsed) -> None:
        """Put the events of a slice in front of the rest of the octets, which are the first of the queue."""
        queue, parser = self._queue, self._parser
        if not parser.in_head:
            self._head_since = self._activity
        events, octets.begin = parser.feed_slice(octets.data, octets.begin)
        if octets.begin == len(octets.data):
            queue.popleft()
        queue.extendleft(reversed(events))

    def _clear_queue(self) -> None:
        self._queue.clear()
        self._awaits_turn = False
        self.context.turns.discard(self)

    def _must_wait_for_client(self) -> bool:
        """Begin no further request while the client does not read the responses; asked while nothing streams to it."""
        if self._backlog is None:
            self._written = getattr(self.transport, "unsent", 0)
            if self._written <= MOST_UNSENT:
                return False
            self._backlog = _Backlog(self.transport, self._backlog_sent)
        return True

    def _backlog_sent(self) -> None:
        self._backlog = None
        self._written = 0
        self._pump()

    def _next(self, event: Event | _NoMore) -> None:
        if type(event) is RequestHead:
            self._idle_in.pop(self, None)
            self._exchange = Exchange(self, event)
            self._exchange.begin()
            if event.upgrade:
                self._pause(ReadPause.UPGRADE_PENDING, self._exchange is not None)
        elif type(event) is MessageRefused:
            self._refuse(event.error)
        elif event is _NO_MORE:
            self.close("client")
        # What is left of a request that was answered before it ended is dropped.

    def _feed(self, exchange: Exchange, event: Event | _NoMore) -> None:
        if type(event) is bytes:
            exchange.request_body(event)
        elif type(event) is End:
            exchange.request_end(event.trailers)
        elif type(event) is MessageRefused:
            self.context.reporter.exchange_failed(event.error.reason, self.caller.text, str(event.error))
            self._abort_exchange(exchange, "protocol")
        elif event is _NO_MORE:
            self._abort_exchange(exchange, "client")

    def _abort_exchange(self, exchange: Exchange, cause: Cause) -> None:
        """The rest of a request will not come."""
        self._exchange = None
        exchange.client_lost()
        self.abort(cause)

    def rest_at_hand(self) -> bool:
        """See :class:`svc.proxy.http.exchange.ExchangeClient`."""
        queue, turns = self._queue, self.context.turns
        if any(type(event) is End for event in queue):
            return True
        passed: list[_Queued] = []
        deadline = turns.deadline()
        while queue and type(queue[0]) is not End and not turns.over(deadline):
            event = queue[0]
            if type(event) is _Unparsed:
                self._parse(event)
            else:
                passed.append(queue.popleft())
        found = bool(queue) and type(queue[0]) is End
        queue.extendleft(reversed(passed))
        return found

    def exchange_finished(self, exchange: Exchange, tunnelled: UpstreamConnection | None) -> None:
        """See :class:`svc.proxy.http.exchange.ExchangeClient`."""
        if self._exchange is not exchange:
            return
        self._exchange = None
        context = self.context
        self._activity = self._head_since = context.tick
        if tunnelled is not None and not self.gone:
            self._upgraded = exchange
            self._start_tunnel(tunnelled)
        elif exchange.close or not (exchange.request_ended or self._skip_request()):
            self.close(
                "timeout" if exchange.timed_out else self._drain_cause or ("drain" if context.leaving else "served")
            )
        else:
            if self._idle_in is context.evictions.unpermitted and self._share is not None and self.caller.permitted:
                self._idle_in = self._share.idle
            self._idle_in[self] = None
            if exchange.head.upgrade:
                self._pause(ReadPause.UPGRADE_PENDING, False)
                # In front of the end of the client's stream.
                self._queue.extendleft(reversed(self._parser.resume()))
            if self._queue or self._paused:
                self._pause(ReadPause.EXCHANGE_WAITS, False)
                self._pump()

    def _skip_request(self) -> bool:
        """Drop the rest of an answered request where it is here."""
        if not self.rest_at_hand():
            return False
        while type(self._queue.popleft()) is not End:
            pass
        return True

    def _start_tunnel(self, upstream: UpstreamConnection) -> None:
        self._tunnel = tunnel = Tunnel(self.transport, upstream, self._count_tunnelled)
        rest = self._parser.take_rest()
        rest += b"".join([each.data[each.begin :] for each in self._queue if type(each) is _Unparsed])
        self._clear_queue()
        self._paused = 0
        self._resume_reading()
        tunnel.start(rest)
        if self._read_ended:
            self._end_tunnel(tunnel)

    def _end_tunnel(self, tunnel: Tunnel) -> None:
        """The client has ended an upgraded connection."""
        if not (self.gone or tunnel.ended):
            self._count("client")
            self._closing_until = self.context.seconds() + _LINGER
            tunnel.client_gone(complete=True)
            self.stop_stream()
            self.transport.loseConnection()

    def _count_tunnelled(self, count: int) -> None:
        self.octets_sent += count
        self._activity = self.context.tick

    def _refuse(self, error: RemoteProtocolError) -> None:
        """Answer a request that is no acceptable HTTP, and close."""
        self.context.reporter.exchange_failed(error.reason, self.caller.text, str(error))
        self._answer_and_close(error)

    def _answer_and_close(self, error: RemoteProtocolError | RequestTimeout) -> None:
        lines = self.caller.response_lines(Level.NONE, None, own=True) + _CLOSE_LINE
        body = problem_body(error)
        self.write(answer(error.http_status, problem_fields(error), body, head_only=False, lines=lines))
        context = self.context
        if context.reporter.every_exchange:
            context.reporter.exchange_ended(
                ExchangeSummary(
                    listener=context.name,
                    direction=context.metrics.direction,
                    peer=self.caller.text,
                    method=b"",
                    path=b"",
                    lookup=False,
                    status=error.http_status,
                    request_octets=0,
                    response_octets=len(body),
                    seconds=None,
                    level=Level.NONE,
                    recorded=False,
                    receipt_id=None,
                    outcome=ExchangeOutcome.COMPLETE,
                    decision=None,
                )
            )
        self.close("timeout" if isinstance(error, RequestTimeout) else "protocol")

    def serve_notary(self, exchange: Exchange) -> None:
        """See :class:`svc.proxy.http.exchange.ExchangeClient`."""
        self._stated = True
        if self._endpoint is None:
            exchange.answer_error(RequestRefused("not_found"))
        else:
            self._endpoint.serve(self, exchange)

    # -- Writing -----------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """See :class:`svc.proxy.http.exchange.ExchangeClient`."""
        self._activity = self.context.tick
        self._written += len(data)
        self.transport.write(data)

    def stream_from(self, upstream: UpstreamConnection) -> None:
        """See :class:`svc.proxy.http.upstream_request.RequestingClient`."""
        if not self.gone:
            self.transport.registerProducer(upstream, True)

    def stop_stream(self) -> None:
        """See :class:`svc.proxy.http.upstream_request.RequestingClient`."""
        if not self.gone:
            self.transport.unregisterProducer()

    # -- Reading and pausing -----------------------------------------------------------------------------------------

    def _pause(self, why: int, wanted: bool) -> None:
        before = self._paused
        self._paused = before | why if wanted else before & ~why
        if self.gone or bool(before) == bool(self._paused) or self._read_ended:
            return
        if self._paused:
            self.transport.pauseProducing()
        else:
            self.transport.resumeProducing()

    def _resume_reading(self) -> None:
        if not (self.gone or self._read_ended):
            self.transport.resumeProducing()

    def pause_for_exchange(self) -> None:
        """See :class:`svc.proxy.http.upstream_request.RequestingClient`."""
        self._pause(ReadPause.EXCHANGE_WAITS, True)

    def resume_for_exchange(self) -> None:
        """See :class:`svc.proxy.http.exchange.ExchangeClient`."""
        exchange = self._exchange
        if not self._pumping and exchange is not None and exchange.upstream_request is not None:
            exchange.upstream_request.flush()
        if self._paused:
            self._pause(ReadPause.EXCHANGE_WAITS, False)

    @property
    def held(self) -> bool:
        """See :class:`svc.proxy.http.exchange.ExchangeClient`."""
        return bool(self._paused & ReadPause.UPSTREAM_SLOW)

    def pauseProducing(self) -> None:
        """The application reads slower than the client sends."""
        self._pause(ReadPause.UPSTREAM_SLOW, True)

    def resumeProducing(self) -> None:
        """The application reads again."""
        self._pause(ReadPause.UPSTREAM_SLOW, False)

    def stopProducing(self) -> None:
        """The application's connection ended; its own protocol is called."""

    # -- The end -----------------------------------------------------------------------------------------------------

    def close(self, cause: Cause) -> None:
        """
        Close in order: what was written is delivered, what the client still sends is read and dropped for a moment.

        Requests that wait are not answered any more.
        """
        self._clear_queue()
        if self.caller.permitted:
            # Responses that the client has not read yet are still sent.
            self._idle_in.pop(self, None)
        elif not self.gone:
            self._idle_in[self] = None
        if self._closing_until is not None or self.gone:
            return
        self._count(cause)
        self._closing_until = self.context.seconds() + _LINGER
        self._paused = 0
        if self._backlog is not None:
            self._backlog.forget()
        self._resume_reading()
        # Over TLS close_notify leaves the other direction open for a moment anyway.
        half_close = getattr(self.transport, "loseWriteConnection", None) if self.caller.tls is None else None
        if half_close is None or self._read_ended:
            self.transport.loseConnection()
        else:
            half_close()

    def abort(self, cause: Cause) -> None:
        """Drop the connection, so that the client sees that something is missing."""
        if not self.gone:
            self._count(cause)
            self._closing_until = self.context.seconds() + _LINGER
            self.transport.abortConnection()

    def _count(self, cause: Cause) -> None:
        if not self._counted:
            self._counted = True
            self.caller.count()
            self.context.metrics.closed(cause)

    def count_octets(self) -> None:
        """Move the octets counted here to the metrics."""
        if self._received:
            self.context.metrics.bytes_received.inc(self._received)
            self._received = 0
        if self.octets_sent:
            self.context.metrics.bytes_sent.inc(self.octets_sent)
            self.octets_sent = 0

    @property
    def evictable(self) -> bool:
        """See :class:`svc.proxy.eviction.EvictableConnection`."""
        under_way = self._parser.in_head or bool(self._queue) or bool(getattr(self.transport, "unsent", 0))
        return not under_way

    def evict(self, error: SvcError) -> None:
        """Free the slot under the listener's limit at once, and close without waiting for the client."""
        self.context.reporter.evicted(error.reason, self.address, self.caller.text, str(error))
        if self.gone:
            return
        transport = self.transport
        self._count(cast(Cause, error.reason))
        self._closing_until = self.context.seconds() + _LINGER
        release_slot(transport)
        if getattr(transport, "unsent", 0):
            transport.abortConnection()
        else:
            getattr(transport, "close_without_reply", transport.loseConnection)()

    def must_close(self, answered: Exchange | None) -> bool:
        """
        See :class:`svc.proxy.http.exchange.ExchangeClient`.

        While the process is leaving clients are to look for another one. What proves a response is here alone: a
        client that asked for a level fetches the receipt where it is signed, and before its first one the statement.
        """
        if self._asked_to_end or not self.context.leaving:
            return self._asked_to_end
        if answered is None:
            self._proofs -= 1
        else:
            level = answered.level if answered.head.reserved else Level.NONE
            self._proofs = (level is Level.SIGN_REQUEST) + (level is not Level.NONE and not self._stated)
        return self._proofs <= 0

    @property
    def idle(self) -> bool:
        """Whether no request is in progress."""
        return self._exchange is None and self._tunnel is None and not self._queue

    def sweep(self, now: float, wall: datetime) -> None:
        """Check the time limits of this connection; called about twice a second."""
        self.count_octets()
        timeouts = self.context.timeouts
        if self._closing_until is not None:
            self._linger(now, self._closing_until)
        elif self._end_if_expired(wall):
            pass
        elif self._tunnel is not None:
            if now - self._activity >= timeouts.exchange:
                self.abort("idle")
            elif self._drain_until is not None and now >= self._drain_until:
                self.abort("rotation")
        elif self._exchange is not None:
            self._exchange.sweep(now, self._activity)
        elif self._parser.in_head:
            if now - self._head_since >= timeouts.header:
                self._answer_and_close(RequestTimeout())
        elif self._drain_cause is not None and not self._awaits_turn:
            self.close(self._drain_cause)
        elif now - self._activity >= timeouts.idle:
            self.close("idle")

    @property
    def _drain_cause(self) -> Cause | None:
        """Why the connection is to end in order; None unless it is."""
        return "drain" if self.context.draining else None if self._drain_until is None else "rotation"

    def _linger(self, now: float, until: float) -> None:
        """Abort a plain connection that the client does not close, unless it still reads. TLS limits its own end."""
        if self.caller.tls is not None or now < until or self.gone:
            return
        unsent = getattr(self.transport, "unsent", 0)
        if unsent and unsent != self._unsent:
            self._unsent = unsent
            self._closing_until = now + _LINGER
        else:
            self.transport.abortConnection()

    def _end_if_expired(self, wall: datetime) -> bool:
        """End the connection with the credentials of either side; ask clients to reconnect some time before."""
        self._asked_to_end = self._drain_cause is not None
        credentials, evidence = self.caller.newest_credentials(self._exchange), self.caller.evidence
        if credentials is not None and wall >= credentials.renew_connections_at:
            self._asked_to_end = True
            if wall >= credentials.close_at:
                self.end_now(ExchangeOutcome.CREDENTIALS_EXPIRED, "credentials_expired")
                return True
        if evidence is None or wall <= evidence.ends:
            return False
        try:
            evidence.verify_time(wall)
        except TransportError as error:
            self.report_refused(error)
            peers = isinstance(error, PeerCredentialsEnded)
            self.end_now(ExchangeOutcome.CREDENTIALS_EXPIRED, "peer_expired" if peers else "credentials_expired")
            return True
        return False

    def end_now(self, outcome: ExchangeOutcome, cause: Cause) -> None:
        """End at once, but in order where nothing is under way; ``outcome`` is for the record of a running exchange."""
        exchange = self._exchange
        if exchange is not None:
            self._count(cause)
            exchange.cut(outcome)
        elif self._tunnel is not None:
            self.abort(cause)
        else:
            self.close(cause)

    def cut(self, cause: Cause) -> None:
        """End at once, in order where nothing is under way; a running exchange is recorded as broken off."""
        self.end_now(ExchangeOutcome.SERVER_ABORTED, cause)

    def reauthorize(self) -> bool:
        """See :class:`svc.proxy.context.AuthorizedConnection`."""
        if self._closing_until is not None:
            return False
        refused = self._refuse_or_drain()
        if self._drain_until is not None and self.idle and not self._parser.in_head:
            self.close("rotation")
        return refused

    def abort_defective(self) -> None:
        """See :class:`svc.proxy.context.AuthorizedConnection`."""
        self.abort("defect")

    def _refuse_or_drain(self) -> bool:
        """End the connection where it would now be refused; ask a client to end one that is to drain."""
        exchange = self._upgraded if self._exchange is None else self._exchange
        under_way = exchange.head if exchange is not None and exchange.permitted else None
        context, caller = self.context, self.caller
        if caller.evidence is None:
            return False
        evaluation = context.evaluate(caller.evidence, lambda: caller.reauthorize(under_way))
        if isinstance(evaluation, Refused):
            self.report_refused(evaluation.error)
            self.cut(evaluation.cause)
        elif evaluation is Kept.DRAIN and self._drain_until is None:
            self._drain_until = context.seconds() + context.drain_seconds()
            self._asked_to_end = True
        return self._closing_until is not None

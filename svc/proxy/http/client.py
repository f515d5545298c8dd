"""
One connection of a client: its requests in order, one exchange at a time.

Owns the queue of parsed but waiting requests, idle times, and when a connection must not go on; how it is paused,
written to and ended is in :mod:`svc.proxy.http.wire`. Request n+1 is not begun before response n is released, so that
no request is ever answered with the response to another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Final, cast

from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.identity import BundleSet
from svc.identity.errors import SvidInvalid
from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from svc.policy import Denied
from svc.proxy.errors import IdentityGone, NotaryNotHere, RequestTimeout
from svc.proxy.eviction import IdentityShare, IdleConnections
from svc.proxy.http.answers import answer, problem_body, problem_fields
from svc.proxy.http.backlog import MOST_UNSENT
from svc.proxy.http.caller import Caller, PlainCaller, VerifiedCaller
from svc.proxy.http.context import ListenerContext
from svc.proxy.http.exchange import Exchange
from svc.proxy.http.interfaces import AnsweredExchange, FinishedExchange
from svc.proxy.http.notary_endpoint import NotaryEndpoint
from svc.proxy.http.summary import ExchangeSummary
from svc.proxy.http.tunnel import Tunnel
from svc.proxy.http.upstream import UpstreamConnection
from svc.proxy.http.wire import EXCHANGE_WAITS, QUEUED, UPGRADE_PENDING, ClientWire
from svc.telemetry.labels import Cause
from svc.transport.errors import KeyUpdateLimitReached, PeerCredentialsEnded, TransportError
from svc.transport.evidence import peer_evidence
from svc.wire.errors import RemoteProtocolError
from svc.wire.http1 import End, Event, MessageRefused, RequestHead, RequestParser

_CLOSE_LINE: Final = b"Connection: close\r\n"


class ClientConnection(ClientWire):
    """
    A client's connection.

    Args:
        context: what the listener's connections share.
        endpoint: answers the reserved path; None outbound.
        random: gives secure random octets.
        registry: the open connections of the listener; this one adds and removes itself.
    """

    def __init__(
        self,
        context: ListenerContext,
        endpoint: NotaryEndpoint | None,
        random: Callable[[int], bytes],
        registry: set[ClientConnection],
    ) -> None:
        super().__init__(context)
        self.random = random
        self._endpoint = endpoint
        self._registry = registry
        self._parser = RequestParser(context.message_limits)
        self._queue: deque[Event] = deque()
        self._exchange: Exchange | None = None
        self._tunnel: Tunnel | None = None
        self._upgraded: FinishedExchange | None = None
        self._head_since = 0.0
        self._share: IdentityShare | None = None
        #: Where this connection is while it is idle.
        self._idle_in: IdleConnections = context.evictions.unpermitted
        self.pumping = False
        self.must_close = False

    # -- Twisted -----------------------------------------------------------------------------------------------------

    def connectionMade(self) -> None:
        """The client is here; behind TLS it is verified already."""
        context = self.context
        self._registry.add(self)
        self._activity = context.tick
        context.metrics.active.inc()
        set_no_delay = getattr(self.transport, "setTcpNoDelay", None)
        if set_no_delay is not None:
            set_no_delay(True)
        self.caller = self._meet()
        self._share = context.evictions.join(self, self.caller.identity)
        if not self.caller.same_identity(context.rotation.identity):
            # The identity ended while this connection was in its handshake.
            self.abort("identity_withdrawn")

    def _meet(self) -> Caller:
        context = self.context
        if context.policy is None:
            return PlainCaller(lambda: context.rotation.identity)
        evidence = peer_evidence(self.transport)
        return VerifiedCaller(evidence, context.rotation.of_evidence(evidence), context.policy, context.metrics)

    def dataReceived(self, data: bytes) -> None:
        """Octets from the client."""
        self._received += len(data)
        self._activity = self.context.tick
        if self._tunnel is not None:
            self._tunnel.from_client(data)
        elif self._closing_until is None:
            if not self._parser.in_head:
                self._head_since = self._activity
            self._queue.extend(self._parser.feed(data))
            self._pump()

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 (Twisted's signature)
        """The client is gone."""
        self.gone = True
        self._registry.discard(self)
        if self._share is not None:
            self.context.evictions.leave(self, self._share)
        self._queue.clear()
        self.count_octets()
        metrics = self.context.metrics
        metrics.active.dec()
        tunnel = self._tunnel
        if isinstance(reason.value, KeyUpdateLimitReached):
            self._count("key_update_limit")
        self._count("application" if tunnel is not None and tunnel.ended else "client")
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_lost()
        if tunnel is not None:
            tunnel.client_gone()
            if self._upgraded is not None:
                self._upgraded.tunnel_ended(tunnel.from_client_octets, tunnel.from_upstream_octets)

    def denied(self, denied: Denied, request: RequestHead | None = None) -> None:
        """
        Count and report a denial.

        Args:
            denied: with the rule.
            request: what was denied; None where the connection is.
        """
        self.context.metrics.denied_policy.inc()
        self._report_denial(denied, request)

    def _report_denial(self, error: SvcError, request: RequestHead | None = None) -> None:
        context, peer = self.context, self.caller.text
        context.reporter.denied(error.reason, self.address, peer, str(error), listener=context.name, request=request)

    @property
    def address(self) -> str:
        """Where the client connects from."""
        peer = self.transport.getPeer() if self.transport is not None else None
        return str(getattr(peer, "host", "") or "local")

    # -- The queue of requests ---------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Feed waiting events to the exchanges, one exchange at a time."""
        if self.pumping:
            return
        self.pumping = True
        queue = self._queue
        try:
            while queue and self._closing_until is None and not self.gone:
                exchange = self._exchange
                if exchange is None:
                    if self._backlog.written > MOST_UNSENT and self._backlog.waits(self.transport, self._pump):
                        break
                    self._next(queue.popleft())
                elif exchange.request_ended:
                    break
                else:
                    self._feed(exchange, queue.popleft())
        finally:
            self.pumping = False
        if self._exchange is not None:
            self._exchange.flush()
        if queue or self._paused:
            self._pause(QUEUED, bool(queue) and self._closing_until is None)

    def _next(self, event: Event) -> None:
        if type(event) is RequestHead:
            self._idle_in.pop(self, None)
            self._exchange = Exchange(self, event)
            self._exchange.begin()
            if event.upgrade:
                self._pause(UPGRADE_PENDING, self._exchange is not None)
        elif type(event) is MessageRefused:
            self._refuse(event.error)
        # What is left of a request that was answered before it ended belongs to nobody.

    def _feed(self, exchange: Exchange, event: Event) -> None:
        if type(event) is bytes:
            exchange.request_body(event)
        elif type(event) is End:
            exchange.request_end(event.trailers)
        elif type(event) is MessageRefused:
            self.context.reporter.exchange_failed(event.error.reason, self.caller.text, str(event.error))
            self._exchange = None
            exchange.client_lost()
            self.abort("protocol")

    def rest_at_hand(self) -> bool:
        """
        Tell whether the rest of the current request is already here.

        Returns:
            True where its end waits in the queue, so that the connection can go on after an early answer.
        """
        return any(type(event) is End for event in self._queue)

    def exchange_finished(self, exchange: FinishedExchange, tunnelled: UpstreamConnection | None) -> None:
        """
        Go on after a released response.

        Args:
            exchange: the one that is over.
            tunnelled: the upstream connection after a granted upgrade.
        """
        if self._exchange is not exchange:
            return
        self._exchange = None
        context = self.context
        self._activity = self._head_since = context.tick
        if tunnelled is not None and not self.gone:
            self._upgraded = exchange
            self._start_tunnel(tunnelled)
        elif exchange.close or not (exchange.request_ended or self._skip_request()):
            self.close("timeout" if exchange.overdue else "drain" if context.draining else "served")
        else:
            if self._idle_in is context.evictions.unpermitted:
                self._note_permit()
            self._idle_in[self] = None
            if exchange.head.upgrade:
                self._pause(UPGRADE_PENDING, False)
                self._queue.extend(self._parser.resume())
            if self._queue or self._paused:
                self._pause(EXCHANGE_WAITS, False)
                self._pump()

    def _note_permit(self) -> None:
        if self._share is not None and self.caller.permitted:
            self._idle_in = self._share.idle

    def _skip_request(self) -> bool:
        """Drop the rest of an answered request where it is here."""
        while self._queue:
            if type(self._queue.popleft()) is End:
                return True
        return False

    def _start_tunnel(self, upstream: UpstreamConnection) -> None:
        self._tunnel = Tunnel(self.transport, upstream, self._count_sent)
        rest = self._parser.take_rest()
        self._paused = 0
        self._resume_reading()
        self._tunnel.start(rest)

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
                    direction="inbound" if context.inbound else "outbound",
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
                )
            )
        self.close("timeout" if isinstance(error, RequestTimeout) else "protocol")

    def serve_notary(self, exchange: AnsweredExchange) -> None:
        """
        Answer a request for the reserved path.

        Args:
            exchange: the request.
        """
        if self._endpoint is None:
            error = NotaryNotHere()
            exchange.answer(error.http_status, problem_fields(error), problem_body(error))
        else:
            self._endpoint.serve(self, exchange)

    # -- The end -----------------------------------------------------------------------------------------------------

    def close(self, cause: Cause) -> None:
        """
        Close in order; see :meth:`ClientWire.close`. What waits is not answered any more.

        Args:
            cause: for the metric.
        """
        self._queue.clear()
        if self.caller.permitted:
            # What the client has not read yet stays on its way.
            self._idle_in.pop(self, None)
        elif not self.gone:
            self._idle_in[self] = None
        super().close(cause)

    @property
    def evictable(self) -> bool:
        """See :class:`svc.proxy.eviction.Evictable`."""
        under_way = self._parser.in_head or bool(self._queue) or bool(getattr(self.transport, "unsent", 0))
        return not under_way

    def evict(self, error: SvcError) -> None:
        """See :class:`svc.proxy.eviction.Evictable`."""
        self.context.reporter.evicted(error.reason, self.address, self.caller.text, str(error))
        self._close_for_another(cast(Cause, error.reason))

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return self._exchange is None and self._tunnel is None and not self._queue

    def sweep(self, now: float, wall: datetime) -> None:
        """
        Judge the times of this connection; called about twice a second.

        Args:
            now: the monotonic time.
            wall: the wall clock.
        """
        self.count_octets()
        timeouts = self.context.timeouts
        if self._closing_until is not None:
            self._linger(now, self._closing_until)
            return
        if self._judge_credentials(wall):
            return
        if self._tunnel is not None:
            if now - self._activity >= timeouts.exchange:
                self.abort("idle")
        elif self._exchange is not None:
            self._exchange.sweep(now, self._activity)
        elif self._parser.in_head:
            if now - self._head_since >= timeouts.header:
                self._answer_and_close(RequestTimeout())
        elif self.context.draining:
            self.close("drain")
        elif now - self._activity >= timeouts.idle:
            self.close("idle")

    def _judge_credentials(self, wall: datetime) -> bool:
        self.must_close = self.context.draining
        credentials, evidence = self.caller.credentials, self.caller.evidence
        if credentials is not None and wall >= credentials.renew_connections_at:
            self.must_close = True
            if wall >= credentials.close_at:
                self.end_now(ExchangeOutcome.CREDENTIALS_EXPIRED, "credentials_expired")
                return True
        if evidence is None or wall <= evidence.ends:
            return False
        try:
            evidence.verify_time(wall)
        except TransportError as error:
            self._report_denial(error)
            peers = isinstance(error, PeerCredentialsEnded)
            self.end_now(ExchangeOutcome.CREDENTIALS_EXPIRED, "peer_expired" if peers else "credentials_expired")
            return True
        return False

    def end_now(self, outcome: ExchangeOutcome, cause: Cause) -> None:
        """
        End the connection for a reason of our own: at once, but in order where nothing is under way.

        Args:
            outcome: what the record of a running exchange says.
            cause: for the metric.
        """
        exchange = self._exchange
        if exchange is not None:
            self._count(cause)
            exchange.cut(outcome)
        elif self._tunnel is not None:
            self.abort(cause)
        else:
            self.close(cause)

    def reauthorize(self, bundles: BundleSet, wall: datetime) -> None:
        """
        Judge both sides again after a change, and end the connection where it would now be refused.

        Args:
            bundles: the bundles in force.
            wall: the time.
        """
        if self._closing_until is not None:
            return
        try:
            self.caller.reauthorize(bundles, wall, self.context.rotation.identity, self.context.policy)
        except IdentityGone:
            self.end_now(ExchangeOutcome.SERVER_ABORTED, "identity_withdrawn")
        except Denied as denied:
            self.denied(denied)
            self.end_now(ExchangeOutcome.SERVER_ABORTED, "reauthorization")
        except SvidInvalid as error:
            self.context.metrics.denied_svid.inc()
            self._report_denial(error)
            self.end_now(ExchangeOutcome.SERVER_ABORTED, "reauthorization")

"""
The connections to one upstream, and the pool that keeps idle ones.

Owns when a connection may be used again. It goes back to the pool only when its response was read to the end, the
request was sent to the end before that, nothing followed, and both sides want to keep it. It knows neither exchanges
nor clients: who uses a connection is a protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

from twisted.internet import error as twisted_errors
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IProtocol, IPushProducer, IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.errors import SvcError
from svc.policy.engine import Permit
from svc.proxy.errors import ProxyError, UpstreamUnreachable, upstream_error
from svc.proxy.evaluation import Evaluation, Kept, Refused
from svc.transport.errors import (
    ConnectFailed,
    OwnSvidRefused,
    PeerCredentialsEnded,
    PeerNotVerified,
    TransportError,
)
from svc.transport.evidence import PeerEvidence, peer_evidence
from svc.wire.http1 import SLICE_LINES, SLICE_OCTETS, Event, MessageLimits, ResponseParser

if TYPE_CHECKING:
    from svc.pacing.turns import Turns
    from svc.process.reauthorization import Reauthorization
    from svc.proxy.context import AuthorizedConnection
    from svc.proxy.peer_statement import PeerStatement

#: Seconds, several times as long as from one sweep to the next.
_SWEEPS: Final = 5.0
#: Seconds that a closing connection may take to send what was written.
_LINGER: Final = 10.0


class ConnectionRequest(Protocol):
    """Waits for a connection of the pool."""

    def upstream_ready(self, connection: UpstreamConnection) -> None:
        """The pool has a connection for this request alone."""

    def upstream_failed(self, error: ProxyError) -> None:
        """The pool could make no connection."""


class ConnectionUser(Protocol):
    """Gets what arrives on a connection between :meth:`UpstreamConnection.begin` and the end of its response."""

    def upstream_events(self, events: list[Event]) -> None:
        """A part of the response has arrived."""

    def upstream_lost(self, events: list[Event]) -> None:
        """The connection ended; ``events`` are those that it caused."""


class TunnelEnd(Protocol):
    """Gets what arrives on a connection after a granted upgrade."""

    def from_upstream(self, data: bytes) -> None:
        """Octets have arrived."""

    def upstream_gone(self, *, complete: bool) -> None:
        """The connection ended; ``complete`` where it ended in order."""


class StatementVerifier(Protocol):
    """Verifies the statements of peers."""

    def reverify(self, connection: UpstreamConnection) -> None:
        """Verify the statement of an open connection again, by what is in force now; raises ``ProxyError``."""


@implementer(IProtocol, IPushProducer)
class UpstreamConnection:
    """One connection to the upstream: the application, or the peer of an outbound listener."""

    transport: Any = None

    def __init__(self, pool: UpstreamPool, limits: MessageLimits) -> None:
        self._pool = pool
        self._limits = limits
        self._exchange: ConnectionUser | None = None
        self._parser: ResponseParser | None = None
        self._tunnel: TunnelEnd | None = None
        #: Octets of a response that are read and not parsed, while it waits for a turn of the reactor, unread.
        self._unparsed = b""
        self.dead = False
        #: Whether the upstream ended it in order.
        self.complete = False
        self.reused = False
        #: Whether a client streams a request into it.
        self.fed = False
        #: Whether it is not read because the client does not read the response.
        self.held = False
        self.idle_since = 0.0
        #: Since when it closes; what was written gets some time to be sent.
        self.closing_since = 0.0
        #: Which credentials it was made with, as the pool counts them.
        self.epoch = 0
        #: When it is closed where it is upgraded, since it was made under a former SVID; None unless it is to end.
        self.drain_until: float | None = None
        #: What the handshake proved; None where the upstream is an application without TLS.
        self.evidence: PeerEvidence | None = None
        #: Whether the peer may still refuse the SVID of this side, after the handshake (RFC 8446, section 4.4.2.4).
        self.may_refuse = False
        #: Until when that is valid, in seconds since 1970.
        self.ends = inf
        #: The verified statement of the peer, where the listener demands one.
        self.statement: PeerStatement | None = None
        #: Why it ended, where that is neither the upstream's doing nor that of the client.
        self.loss: ProxyError | None = None

    def makeConnection(self, transport: Any) -> None:
        """Attach the transport."""
        self.transport = transport
        self.connectionMade()

    def connectionMade(self) -> None:
        """Store what the handshake proved, and send small writes at once."""
        self._pool.connected(self)
        set_no_delay = getattr(self.transport, "setTcpNoDelay", None)
        if set_no_delay is not None:
            set_no_delay(True)

    def begin(self, exchange: ConnectionUser, method: bytes, *, upgrade: bool) -> None:
        """Start an exchange."""
        self._exchange = exchange
        if self._parser is None:
            self._parser = ResponseParser(method, self._limits, upgrade=upgrade)
        else:
            self._parser.expect(method, upgrade=upgrade)

    @property
    def tunnelled(self) -> bool:
        """Whether it has left HTTP."""
        return self._tunnel is not None

    @property
    def answer_begun(self) -> bool:
        """Whether an octet of the current response has arrived."""
        return self._parser is not None and self._parser.started

    def write(self, data: bytes) -> None:
        """Send octets."""
        self.transport.write(data)

    def feed_from(self, producer: Any) -> None:
        """Let the application's speed govern a request that does not fit one read."""
        if not self.fed:
            self.fed = True
            self.transport.registerProducer(producer, True)

    def stop_feeding(self) -> None:
        """The request is sent to its end, or given up."""
        if self.fed:
            self.fed = False
            if not self.dead:
                self.transport.unregisterProducer()

    def detach(self) -> None:
        """End the exchange, and leave the connection to its holder."""
        self._exchange = None

    def verify_time(self, now: datetime) -> None:
        """Verify that what both sides have shown is still valid; raises ``TransportError``."""
        if self.evidence is not None:
            self.evidence.verify_time(now)
        if self.statement is not None and now.timestamp() > self.ends:
            shown = self.statement.evidence
            raise PeerCredentialsEnded(spiffe_id=shown.subject, ended=shown.expires.isoformat(timespec="seconds"))

    def release(self, *, reusable: bool) -> None:
        """End the exchange."""
        self._exchange = None
        if reusable and not self.dead:
            self._pool.put_back(self)
        else:
            self.abort()

    def tunnel(self, end: TunnelEnd) -> bytes:
        """Leave HTTP after a granted upgrade."""
        rest = self._parser.rest if self._parser is not None else b""
        self._exchange = self._parser = None
        self._tunnel = end
        return rest

    def reauthorize(self) -> bool:
        """See :class:`svc.proxy.context.AuthorizedConnection`."""
        return self._pool.reauthorize(self)

    def abort_defective(self) -> None:
        """See :class:`svc.proxy.context.AuthorizedConnection` and :class:`svc.pacing.turns.UnfinishedRead`."""
        self._drop_unparsed()
        if self.dead:
            self._lost()
        else:
            self.transport.abortConnection()

    def cut(self, error: SvcError) -> None:
        """Drop the connection; its exchange gets ``upstream_lost`` and finds the cause in :attr:`loss`."""
        self.loss = self._pool.explained(error)
        self._drop_unparsed()
        if not self.dead:
            self.transport.abortConnection()

    def abort(self) -> None:
        """Drop the connection; no exchange is called."""
        self._exchange = None
        self._drop_unparsed()
        if not self.dead:
            self.transport.abortConnection()

    def close(self) -> None:
        """Close after what was written; the pool breaks off what takes too long."""
        if not self.dead:
            self._pool.closing(self)
            self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        """Octets from the application."""
        if self.may_refuse:
            self._pool.accepted(self)
        exchange = self._exchange
        if exchange is not None:
            if self._unparsed:
                self._unparsed += data
            elif len(data) > SLICE_OCTETS:
                self._deliver(data)
            else:
                exchange.upstream_events(self._parser.feed(data))  # type: ignore[union-attr]
        elif self._tunnel is not None:
            self._tunnel.from_upstream(data)
        else:
            # Octets without a request: what follows them could be taken for the response to another request.
            self.abort()

    def _deliver(self, data: bytes) -> None:
        """Deliver the events of octets, and keep what takes longer than a turn for a later one."""
        left = self._pool.turns.take_slices(data, self._take_slice)
        if left and self._exchange is not None:
            self._unparsed = left
            self.transport.pauseProducing()
            self._pool.turns.wait(self)

    def _take_slice(self, data: bytes, begin: int) -> int:
        exchange, parser = self._exchange, self._parser
        if exchange is None or parser is None:
            return len(data)
        events, begin = parser.feed_slice(data, begin)
        while begin < len(data) and len(events) < SLICE_LINES // 2:
            # Most slices are pieces of a large body, which are passed on as one.
            more, begin = parser.feed_slice(data, begin)
            events += more
        exchange.upstream_events(events)
        return begin

    def read_on(self) -> None:
        """See :class:`svc.pacing.turns.UnfinishedRead`."""
        data, self._unparsed = self._unparsed, b""
        self._deliver(data)
        if self._unparsed:
            return
        if self.dead:
            self._lost()
        elif not self.held:
            self.transport.resumeProducing()

    def _drop_unparsed(self) -> None:
        if self._unparsed:
            self._unparsed = b""
            self._pool.turns.discard(self)

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 (Twisted's signature)
        """The connection ended; what was read before is delivered first."""
        self.dead = True
        self.complete = reason.check(ConnectionDone) is not None
        self._pool.forget(self)
        if isinstance(reason.value, OwnSvidRefused):
            self.loss = self._pool.explained(reason.value)
        elif self.may_refuse:
            self._pool.accepted(self)
        if not self._unparsed:
            self._lost()

    def _lost(self) -> None:
        exchange, parser, tunnel = self._exchange, self._parser, self._tunnel
        self._exchange = self._tunnel = None
        if exchange is not None and parser is not None:
            exchange.upstream_lost(parser.feed_eof(clean=self.complete))
        elif tunnel is not None:
            tunnel.upstream_gone(complete=self.complete)

    # The producer of the client's transport.

    def pauseProducing(self) -> None:
        """The client reads slower than the application answers."""
        self.held = True
        if not self.dead:
            self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        """The client caught up."""
        self.held = False
        if not (self.dead or self._unparsed):
            self.transport.resumeProducing()

    def stopProducing(self) -> None:
        """The client is gone; its own protocol is called."""


class _UpstreamFactory(Factory):
    noisy = False

    def __init__(self, build: Callable[[], UpstreamConnection]) -> None:
        self._build = build

    def buildProtocol(self, addr: IAddress | None) -> UpstreamConnection:  # type: ignore[override]  # it needs no factory
        return self._build()


class UpstreamPool:
    """
    The connections to one upstream.

    ``name`` is what errors call it, such as ``the application at 127.0.0.1:8080``; ``connect_timeout`` is the limit of
    the endpoint. ``unreachable`` is called each time that no connection could be made at all; the endpoint reports
    failures of TLS itself. ``accepted`` is called once for each verified connection, unless the peer refuses the SVID
    of this side, and ``ended`` for each that is closed because the credentials of one side have ended. With ``peers``
    the connections of the endpoint have verified statements.
    """

    def __init__(
        self,
        endpoint: IStreamClientEndpoint,
        name: str,
        *,
        connect_timeout: float,
        limits: MessageLimits,
        max_idle: int,
        idle_timeout: float,
        seconds: Callable[[], float],
        wall: Callable[[], datetime],
        turns: Turns,
        unreachable: Callable[[], None] = lambda: None,
        accepted: Callable[[], None] = lambda: None,
        ended: Callable[[PeerEvidence, TransportError], None] = lambda _evidence, _error: None,
        peers: StatementVerifier | None = None,
    ) -> None:
        self._peers = peers
        self._endpoint = endpoint
        self._unreachable = unreachable
        self._accepted = accepted
        self._ended = ended
        self.name: Final = name
        self._connect_timeout = connect_timeout
        self._limits = limits
        #: Where its connections wait with octets that take longer than a turn of the reactor.
        self.turns: Final = turns
        self._max_idle = max_idle
        self._idle_timeout = idle_timeout
        #: When the last sweep was, or the start: exact enough for idle times.
        self._tick = seconds()
        self._wall = wall
        #: Connections whose credentials end later need no look at the clock before the next sweep.
        self._ending_soon = wall().timestamp() + _SWEEPS
        self._verified: set[UpstreamConnection] = set()
        self._epoch = 0
        self._idle: list[UpstreamConnection] = []
        self._closing: list[UpstreamConnection] = []
        self._all: set[UpstreamConnection] = set()
        self._connecting: set[Deferred[UpstreamConnection]] = set()
        self._closed = False
        self._evaluate: Callable[[PeerEvidence], Evaluation] = lambda _evidence: Kept.KEEP
        self._drain_seconds: Callable[[], float] = lambda: 0.0
        self._drained: Callable[[], None] = lambda: None
        self._reauthorization: Reauthorization[AuthorizedConnection] | None = None
        self._factory = _UpstreamFactory(self._build)

    @property
    def idle_count(self) -> int:
        """Connections that wait for an exchange."""
        return len(self._idle)

    @property
    def open_count(self) -> int:
        """All connections."""
        return len(self._all)

    def acquire(
        self, permit: Permit, request: ConnectionRequest, *, fresh: bool = False
    ) -> Deferred[UpstreamConnection] | None:
        """
        Give a request a connection: ``request.upstream_ready`` or ``upstream_failed`` is called, now or later.

        A ``fresh`` connection was never used before. Returns None where the request has its answer, else what
        :meth:`give_up` accepts.
        """
        if not isinstance(permit, Permit):
            raise TypeError("an upstream connection needs a permit")
        reauthorization = self._reauthorization
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.epoch != self._epoch:
                # All others are older.
                connection.close()
                break
            if reauthorization is not None and reauthorization.running and reauthorization.decide(connection):
                continue
            if connection.ends < self._ending_soon and self._ended_by_time(connection) is not None:
                connection.close()
            elif not connection.dead:
                connection.reused = True
                request.upstream_ready(connection)
                return None
        if self._closed:
            request.upstream_failed(UpstreamUnreachable(upstream=self.name, what="the listener has ended"))
            return None
        attempt: Deferred[UpstreamConnection] = self._endpoint.connect(self._factory)  # type: ignore[assignment]
        self._connecting.add(attempt)
        attempt.addBoth(self._attempted, attempt, self._epoch, self._changes)
        attempt.addCallbacks(request.upstream_ready, lambda failure: self._failed(failure, request))
        return attempt

    def give_up(self, attempt: Deferred[UpstreamConnection]) -> None:
        """Stop waiting for a connection."""
        if attempt in self._connecting:
            attempt.cancel()

    def put_back(self, connection: UpstreamConnection) -> None:
        """Keep a connection for the next exchange."""
        if self._closed or connection.epoch != self._epoch or len(self._idle) >= self._max_idle:
            connection.close()
            return
        connection.idle_since = self._tick
        self._idle.append(connection)

    def connected(self, connection: UpstreamConnection) -> None:
        """Take note of a connection that is made; what its handshake proved bounds how long it is used."""
        with suppress(PeerNotVerified):
            connection.evidence = peer_evidence(connection.transport)
            connection.ends = connection.evidence.ends.timestamp()
            connection.may_refuse = True
            self._verified.add(connection)
            if self._reauthorization is not None:
                self._reauthorization.add(connection)

    def accepted(self, connection: UpstreamConnection) -> None:
        """Take note of a peer that has answered, or has ended the connection without refusing the SVID of this side."""
        connection.may_refuse = False
        self._accepted()

    def closing(self, connection: UpstreamConnection) -> None:
        """Register a connection that closes."""
        connection.closing_since = self._tick
        self._closing.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        """Take note of a lost connection."""
        self._all.discard(connection)
        self._verified.discard(connection)
        if self._reauthorization is not None:
            self._reauthorization.discard(connection)
        for those in (self._idle, self._closing):
            if connection in those:
                those.remove(connection)

    def sweep(self, now: float) -> None:
        """
        Close what was idle too long, and break off what does not get closed; both lists are ordered by time. Where the
        credentials of one side have ended, an idle connection is closed and one in use is cut.
        """
        self._tick, self._ending_soon = now, self._wall().timestamp() + _SWEEPS
        for connection in list(self._verified):
            error = self._ended_by_time(connection)
            if error is None:
                if connection.tunnelled and connection.drain_until is not None and now >= connection.drain_until:
                    connection.drain_until = None
                    self._drained()
                    connection.abort()
                continue
            if connection in self._idle:
                self._idle.remove(connection)
                connection.close()
            else:
                connection.cut(error)
        while self._closing and now - self._closing[0].closing_since >= _LINGER:
            self._closing.pop(0).abort()
        while self._idle and now - self._idle[0].idle_since >= self._idle_timeout:
            self._idle.pop(0).close()

    def retire(self) -> None:
        """Let no later exchange use a connection that was made before now, so that each uses new credentials."""
        self._epoch += 1

    def flush(self) -> None:
        """The same, and close all idle ones at once."""
        self.retire()
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def reauthorize_by(
        self,
        evaluate: Callable[[PeerEvidence], Evaluation],
        reauthorization: Reauthorization[AuthorizedConnection],
        drain_seconds: Callable[[], float],
        drained: Callable[[], None],
    ) -> None:
        """
        Register verified connections, and decide on them again by ``evaluate`` after changes.

        It gets what the handshake of a connection proved. An upgraded one that is to end in order is closed after
        ``drain_seconds``, and ``drained`` called.
        """
        self._evaluate, self._reauthorization = evaluate, reauthorization
        self._drain_seconds, self._drained = drain_seconds, drained

    def reauthorize(self, connection: UpstreamConnection) -> bool:
        """Abort a connection that could not be made now, and close an idle one that no exchange may use any more."""
        refusal, idle = self._refusal(connection), connection in self._idle
        if idle and (refusal is not None or connection.epoch != self._epoch):
            self._idle.remove(connection)
            if refusal is None:
                connection.close()
        if refusal is not None:
            connection.cut(refusal)
        return refusal is not None

    @property
    def _changes(self) -> int:
        return 0 if self._reauthorization is None else self._reauthorization.changes

    def _ended_by_time(self, connection: UpstreamConnection) -> TransportError | None:
        """Return the error where the credentials of one side have ended; reported once for each connection."""
        evidence = connection.evidence
        if evidence is None or connection.ends >= self._ending_soon:
            return None
        try:
            connection.verify_time(self._wall())
        except TransportError as error:
            self._verified.discard(connection)
            self._ended(evidence, error)
            return error
        return None

    def _refusal(self, connection: UpstreamConnection) -> SvcError | None:
        if connection.evidence is None or connection.dead or connection.loss is not None:
            return None
        if self._peers is not None:
            try:
                self._peers.reverify(connection)
            except SvcError as error:
                return error
        evaluation = self._evaluate(connection.evidence)
        if isinstance(evaluation, Refused):
            return evaluation.error
        if evaluation is Kept.DRAIN and connection.drain_until is None:
            connection.drain_until = self._tick + self._drain_seconds()
        return None

    def close(self) -> None:
        """Close everything."""
        self._closed = True
        self.flush()
        for attempt in list(self._connecting):
            attempt.cancel()
        for connection in list(self._all):
            connection.abort()

    def _build(self) -> UpstreamConnection:
        connection = UpstreamConnection(self, self._limits)
        self._all.add(connection)
        return connection

    def _attempted(
        self, result: UpstreamConnection | Failure, attempt: Deferred[UpstreamConnection], epoch: int, changes: int
    ) -> UpstreamConnection | Failure:
        self._connecting.discard(attempt)
        if not isinstance(result, Failure):
            result.epoch = epoch
            refusal = self._refusal(result) if changes != self._changes else self._ended_by_time(result)
            if refusal is not None:
                result.cut(refusal)
                return Failure(refusal)
        return result

    def _failed(self, failure: Failure, request: ConnectionRequest) -> None:
        if failure.check(CancelledError, twisted_errors.ConnectingCancelledError):
            return
        if failure.check(ConnectFailed):
            self._unreachable()
        request.upstream_failed(self.explained(failure.value))

    def explained(self, error: BaseException | None) -> ProxyError:
        """Return what an error of a connection to this upstream means for a request."""
        return upstream_error(error, self.name, self._connect_timeout)

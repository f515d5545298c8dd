"""
Connections to the application: one exchange at a time on each, kept open between exchanges in a pool.

Owns when a connection may be used again. A connection goes back to the pool only when its response was read to the end,
the request was sent to the end before that, nothing followed, and both sides want to keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from math import inf
from typing import Any, Final
from typing import Protocol as Interface

from twisted.internet import error as twisted_errors
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IPushProducer, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.errors import SvcError
from svc.identity.errors import NotValidAtTime, SvidInvalid
from svc.policy import Permit
from svc.proxy.errors import (
    ConnectTimeout,
    IdentityGone,
    OwnIdentityEnded,
    OwnIdentityRefused,
    ProxyError,
    UpstreamIdentityRefused,
    UpstreamSvidInvalid,
    UpstreamSvidNotCurrent,
    UpstreamUnreachable,
)
from svc.transport.errors import (
    ConnectFailed,
    HandshakeTimeout,
    OwnCredentialsEnded,
    OwnSvidExpired,
    OwnSvidRefused,
    PeerCredentialsEnded,
    PeerDenied,
    PeerIdentityUnexpected,
    PeerNotVerified,
    PeerSvidInvalid,
    TransportError,
)
from svc.transport.errors import ConnectTimeout as TransportTimeout
from svc.transport.evidence import PeerEvidence, peer_evidence
from svc.wire.http1 import Event, MessageLimits, ResponseParser

#: Seconds, several times as long as from one sweep to the next.
_SWEEPS: Final = 5.0
#: Seconds that a closing connection may take to send what was written.
_LINGER: Final = 10.0


class UpstreamUser(Interface):
    """What an exchange offers to the upstream connection that serves it."""

    def upstream_ready(self, connection: UpstreamConnection) -> None:
        """A connection is there for this exchange alone."""

    def upstream_failed(self, error: ProxyError) -> None:
        """No connection could be made."""

    def upstream_events(self, events: list[Event]) -> None:
        """A part of the response came."""

    def upstream_lost(self, events: list[Event]) -> None:
        """The connection ended; the events say whether that ended the response too."""


class TunnelEnd(Interface):
    """What takes the octets of a connection that speaks another protocol now."""

    def from_upstream(self, data: bytes) -> None:
        """Octets came."""

    def upstream_gone(self) -> None:
        """The connection ended."""


@implementer(IPushProducer)
class UpstreamConnection(Protocol):
    """
    One connection to the upstream: the application, or the peer of an outbound listener.

    Args:
        pool: the pool that it belongs to.
        limits: what a response may use.
    """

    def __init__(self, pool: UpstreamPool, limits: MessageLimits) -> None:
        self._pool = pool
        self._limits = limits
        self._user: UpstreamUser | None = None
        self._parser: ResponseParser | None = None
        self._tunnel: TunnelEnd | None = None
        self.dead = False
        self.reused = False
        #: Whether a client streams a request into it.
        self.fed = False
        #: Whether it may read no more, because nobody takes what it answers.
        self.held = False
        self.idle_since = 0.0
        #: When it was told to close; it gets some time to send what was written.
        self.closing_since = 0.0
        #: Which credentials it was made with, as the pool counts them.
        self.epoch = 0
        #: What the handshake proved; None where the upstream is an application without TLS.
        self.evidence: PeerEvidence | None = None
        #: Whether the peer may still refuse the SVID of this side, after the handshake (RFC 8446, section 4.4.2.4).
        self.may_refuse = False
        #: Until when that is valid, in seconds since 1970.
        self.ends = inf
        #: Why it ended, where that is neither the upstream's doing nor that of the client.
        self.loss: ProxyError | None = None

    def connectionMade(self) -> None:
        """Remember who the peer is, and let small writes leave at once."""
        self._pool.connected(self)
        set_no_delay = getattr(self.transport, "setTcpNoDelay", None)
        if set_no_delay is not None:
            set_no_delay(True)

    def begin(self, user: UpstreamUser, method: bytes, *, upgrade: bool) -> None:
        """
        Start an exchange.

        Args:
            user: the exchange.
            method: its method.
            upgrade: whether it asks for another protocol.
        """
        self._user = user
        if self._parser is None:
            self._parser = ResponseParser(method, self._limits, upgrade=upgrade)
        else:
            self._parser.expect(method, upgrade=upgrade)

    @property
    def answer_begun(self) -> bool:
        """Whether an octet of the current answer has come."""
        return self._parser is not None and self._parser.started

    def write(self, data: bytes) -> None:
        """
        Send octets.

        Args:
            data: part of a request, or of the other protocol after an upgrade.
        """
        self.transport.write(data)  # type: ignore[union-attr]

    def feed_from(self, producer: Any) -> None:
        """
        Let the application's speed govern a request that does not fit one read.

        Args:
            producer: the client's connection, a push producer.
        """
        if not self.fed:
            self.fed = True
            self.transport.registerProducer(producer, True)  # type: ignore[union-attr]

    def stop_feeding(self) -> None:
        """The request is sent to its end, or given up."""
        if self.fed:
            self.fed = False
            if not self.dead:
                self.transport.unregisterProducer()  # type: ignore[union-attr]

    def release(self, *, reusable: bool) -> None:
        """
        End the exchange.

        Args:
            reusable: whether another request may follow on this connection.
        """
        self._user = None
        if reusable and not self.dead:
            self._pool.put_back(self)
        else:
            self.abort()

    def tunnel(self, end: TunnelEnd) -> bytes:
        """
        Leave HTTP after a granted upgrade.

        Args:
            end: who takes what comes from now on.

        Returns:
            The octets that already came behind the response.
        """
        rest = self._parser.rest if self._parser is not None else b""
        self._user = self._parser = None
        self._tunnel = end
        return rest

    def cut(self, error: SvcError) -> None:
        """
        Drop the connection; its user gets ``upstream_lost`` and finds the cause in :attr:`loss`.

        Args:
            error: why.
        """
        self.loss = self._pool.explained(error)
        if not self.dead:
            self.transport.abortConnection()  # type: ignore[union-attr]

    def abort(self) -> None:
        """Drop the connection without a word."""
        self._user = None
        if not self.dead:
            self.transport.abortConnection()  # type: ignore[union-attr]

    def close(self) -> None:
        """Close after what was written; the pool breaks off what takes too long."""
        if not self.dead:
            self._pool.closing(self)
            self.transport.loseConnection()  # type: ignore[union-attr]

    def dataReceived(self, data: bytes) -> None:
        """Octets from the application."""
        if self.may_refuse:
            self._pool.accepted(self)
        user = self._user
        if user is not None:
            user.upstream_events(self._parser.feed(data))  # type: ignore[union-attr]
        elif self._tunnel is not None:
            self._tunnel.from_upstream(data)
        else:
            # An application that speaks without being asked is out of step: its octets belong to no request.
            self.abort()

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 (Twisted's signature)
        """The connection ended."""
        self.dead = True
        self._pool.forget(self)
        if isinstance(reason.value, OwnSvidRefused):
            self.loss = self._pool.explained(reason.value)
        elif self.may_refuse:
            self._pool.accepted(self)
        user, parser, tunnel = self._user, self._parser, self._tunnel
        self._user = self._tunnel = None
        if user is not None and parser is not None:
            clean = reason.check(ConnectionDone) is not None
            user.upstream_lost(parser.feed_eof(clean=clean))
        elif tunnel is not None:
            tunnel.upstream_gone()

    # The producer of the client's transport.

    def pauseProducing(self) -> None:
        """The client reads slower than the application answers."""
        self.held = True
        if not self.dead:
            self.transport.pauseProducing()  # type: ignore[union-attr]

    def resumeProducing(self) -> None:
        """The client caught up."""
        self.held = False
        if not self.dead:
            self.transport.resumeProducing()  # type: ignore[union-attr]

    def stopProducing(self) -> None:
        """The client is gone; its connection says so itself."""


class _UpstreamFactory(Factory):
    noisy = False

    def __init__(self, build: Callable[[], UpstreamConnection]) -> None:
        self._build = build

    def buildProtocol(self, addr: IAddress | None) -> UpstreamConnection:
        return self._build()


class UpstreamPool:
    """
    The connections to one upstream.

    Args:
        endpoint: makes a connection; its own time limit ends the attempt.
        name: what errors call the upstream, such as ``the application at 127.0.0.1:8080``.
        connect_timeout: the endpoint's limit in seconds, for the error.
        limits: what a response may use.
        max_idle: idle connections kept at the most.
        idle_timeout: seconds that an idle connection is kept.
        seconds: the monotonic clock.
        wall: the wall clock, aware UTC.
        unreachable: called each time that no connection could be made at all; what fails in TLS is told elsewhere.
        accepted: called once for each verified connection, unless the peer refuses the SVID of this side.
        ended: called for each connection that is closed because the credentials of one side have ended, and with why.
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
        unreachable: Callable[[], None] = lambda: None,
        accepted: Callable[[], None] = lambda: None,
        ended: Callable[[PeerEvidence, TransportError], None] = lambda _evidence, _error: None,
    ) -> None:
        self._endpoint = endpoint
        self._unreachable = unreachable
        self._accepted = accepted
        self._ended = ended
        self.name: Final = name
        self._connect_timeout = connect_timeout
        self._limits = limits
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
        self._judge: Callable[[PeerEvidence], None] | None = None
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
        self, permit: Permit, user: UpstreamUser, *, fresh: bool = False
    ) -> Deferred[UpstreamConnection] | None:
        """
        Get a connection for one exchange; ``user`` is told when it is there or cannot be had.

        Args:
            permit: the evidence that the exchange was authorized; without it there is no connection.
            user: the exchange.
            fresh: never take a connection that was used before.

        Returns:
            None where the user was told at once, else what :meth:`give_up` takes.
        """
        if not isinstance(permit, Permit):
            raise TypeError("an upstream connection needs a permit")
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.ends < self._ending_soon and self._ended_by_time(connection) is not None:
                connection.close()
            elif not connection.dead:
                connection.reused = True
                user.upstream_ready(connection)
                return None
        if self._closed:
            user.upstream_failed(UpstreamUnreachable(upstream=self.name, what="the listener has ended"))
            return None
        attempt: Deferred[UpstreamConnection] = self._endpoint.connect(self._factory)  # type: ignore[assignment]
        self._connecting.add(attempt)
        attempt.addBoth(self._attempted, attempt, self._epoch)
        attempt.addCallbacks(user.upstream_ready, lambda failure: self._failed(failure, user))
        return attempt

    def give_up(self, attempt: Deferred[UpstreamConnection]) -> None:
        """
        Stop waiting for a connection.

        Args:
            attempt: what :meth:`acquire` returned.
        """
        if attempt in self._connecting:
            attempt.cancel()

    def put_back(self, connection: UpstreamConnection) -> None:
        """
        Keep a connection for the next exchange.

        Args:
            connection: one whose exchange is over.
        """
        if self._closed or connection.epoch != self._epoch or len(self._idle) >= self._max_idle:
            connection.close()
            return
        connection.idle_since = self._tick
        self._idle.append(connection)

    def connected(self, connection: UpstreamConnection) -> None:
        """
        Take note of a connection that is made; what its handshake proved bounds how long it is used.

        Args:
            connection: the new one.
        """
        with suppress(PeerNotVerified):
            connection.evidence = peer_evidence(connection.transport)
            connection.ends = connection.evidence.ends.timestamp()
            connection.may_refuse = True
            self._verified.add(connection)

    def accepted(self, connection: UpstreamConnection) -> None:
        """
        Take note of a peer that has answered, or has ended the connection without refusing the SVID of this side.

        Args:
            connection: the one to it.
        """
        connection.may_refuse = False
        self._accepted()

    def closing(self, connection: UpstreamConnection) -> None:
        """
        Take note of a connection that is told to close.

        Args:
            connection: one that may still have something to send.
        """
        connection.closing_since = self._tick
        self._closing.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        """
        Take note of a lost connection.

        Args:
            connection: the one that is gone.
        """
        self._all.discard(connection)
        self._verified.discard(connection)
        for those in (self._idle, self._closing):
            if connection in those:
                those.remove(connection)

    def sweep(self, now: float) -> None:
        """
        Close what was idle too long, and break off what does not get closed; both lists are ordered by time. Where the
        credentials of one side have ended, an idle connection is closed and one in use is cut.

        Args:
            now: the monotonic time.
        """
        self._tick, self._ending_soon = now, self._wall().timestamp() + _SWEEPS
        for connection in list(self._verified):
            error = self._ended_by_time(connection)
            if error is None:
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

    def flush(self) -> None:
        """Let no later exchange use a connection that was made before now, so that each uses new credentials."""
        self._epoch += 1
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def judge(self, judge: Callable[[PeerEvidence], None]) -> None:
        """
        Use new credentials from now on, and cut every connection that would now not be made.

        Args:
            judge: gets what the handshake of a connection proved; raises an ``SvcError`` to have it cut. It also judges
                the connections that are being made now.
        """
        self.flush()
        self._judge = judge
        for connection in list(self._all):
            refusal = self._refusal(connection)
            if refusal is not None:
                connection.cut(refusal)

    def _ended_by_time(self, connection: UpstreamConnection) -> TransportError | None:
        """Say whether the credentials of one side have ended; reported here, and once for each connection."""
        evidence = connection.evidence
        if evidence is None or connection.ends >= self._ending_soon:
            return None
        try:
            evidence.verify_time(self._wall())
        except TransportError as error:
            self._verified.discard(connection)
            self._ended(evidence, error)
            return error
        return None

    def _refusal(self, connection: UpstreamConnection) -> SvcError | None:
        if self._judge is None or connection.dead:
            return None
        try:
            self._judge(peer_evidence(connection.transport))
        except SvcError as error:
            return error
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
        self, result: UpstreamConnection | Failure, attempt: Deferred[UpstreamConnection], epoch: int
    ) -> UpstreamConnection | Failure:
        self._connecting.discard(attempt)
        if not isinstance(result, Failure):
            result.epoch = epoch
            refusal = self._refusal(result) if epoch != self._epoch else self._ended_by_time(result)
            if refusal is not None:
                result.cut(refusal)
                return Failure(refusal)
        return result

    def _failed(self, failure: Failure, user: UpstreamUser) -> None:
        if failure.check(CancelledError, twisted_errors.ConnectingCancelledError):
            return
        if failure.check(ConnectFailed):
            self._unreachable()
        user.upstream_failed(self._why_failed(failure))

    def _why_failed(self, failure: Failure) -> ProxyError:
        error = failure.value
        if isinstance(error, twisted_errors.TimeoutError):
            return ConnectTimeout(upstream=self.name, seconds=self._connect_timeout)
        if isinstance(error, SvcError):
            return self.explained(error)
        what = getattr(error, "osError", None) or failure.getErrorMessage()
        return UpstreamUnreachable(upstream=self.name, what=what)

    def explained(self, error: SvcError) -> ProxyError:
        """
        Say what an error of the transport means for a request.

        Args:
            error: why there is no connection, or why one ended.

        Returns:
            What the request is answered with.
        """
        if error.reason in ("credentials_missing", "identity_withdrawn"):
            return IdentityGone()
        if isinstance(error, OwnCredentialsEnded | OwnSvidExpired):
            return OwnIdentityEnded(what=str(error))
        if isinstance(error, OwnSvidRefused):
            return OwnIdentityRefused(what=str(error))
        if isinstance(error, PeerIdentityUnexpected):
            what = f"it is {error.spiffe_id}; expected {error.expected}"
            return UpstreamIdentityRefused(upstream=self.name, what=what, detail_reason=error.reason)
        if isinstance(error, PeerDenied):
            return UpstreamIdentityRefused(upstream=self.name, what=str(error), detail_reason=error.reason)
        cause = error.cause if isinstance(error, PeerSvidInvalid) else error
        if isinstance(cause, NotValidAtTime | PeerCredentialsEnded):
            return UpstreamSvidNotCurrent(upstream=self.name, what=str(cause), detail_reason=cause.reason)
        if isinstance(error, PeerSvidInvalid):
            return UpstreamSvidInvalid(upstream=self.name, what=str(cause), detail_reason=error.detail)
        if isinstance(cause, SvidInvalid):
            return UpstreamSvidInvalid(upstream=self.name, what=str(cause), detail_reason=cause.reason)
        if isinstance(error, TransportTimeout | HandshakeTimeout):
            return ConnectTimeout(upstream=self.name, seconds=self._connect_timeout)
        return UpstreamUnreachable(upstream=self.name, what=str(error))

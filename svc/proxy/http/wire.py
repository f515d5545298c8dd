"""
The side of a client's connection that faces its transport.

Owns what pauses reading, what is written and counted, and how the connection ends: in order, with a moment for what the
client still sends, or at once. Knows no requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Protocol
from zope.interface import implementer

from svc.proxy.http.backlog import Backlog
from svc.transport.fair_limiter import release_slot

if TYPE_CHECKING:
    from svc.proxy.http.caller import Caller
    from svc.proxy.http.context import ListenerContext
    from svc.proxy.http.upstream import UpstreamConnection
    from svc.telemetry.labels import Cause

#: Why reading is paused; reading goes on when no reason is left.
QUEUED: Final = 1
UPSTREAM_SLOW: Final = 2
EXCHANGE_WAITS: Final = 4
UPGRADE_PENDING: Final = 8

#: Seconds that a closing connection may take to hear the other side out.
_LINGER: Final = 3.0


@implementer(IPushProducer)
class ClientWire(Protocol):
    """
    A connection that is read, paused, written to and ended; a subclass says what is read.

    Args:
        context: what the listener's connections share.
    """

    caller: Caller

    def __init__(self, context: ListenerContext) -> None:
        self.context = context
        self._paused = 0
        self._activity = context.tick
        self._closing_until: float | None = None
        self._unsent = 0
        self._backlog = Backlog()
        self._received = 0
        self._sent = 0
        self._counted = False
        self.gone = False

    # -- Writing -----------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """
        Send octets to the client.

        Args:
            data: parts of responses.
        """
        self._activity = self.context.tick
        self._backlog.written += len(data)
        self.transport.write(data)  # type: ignore[union-attr]

    def sent_upstream(self, count: int) -> None:
        """
        Count octets sent to the application.

        Args:
            count: how many.
        """
        self._sent += count

    def _count_sent(self, count: int) -> None:
        self._sent += count
        self._activity = self.context.tick

    def stream_from(self, upstream: UpstreamConnection) -> None:
        """
        Let the client's speed govern a response that does not fit one read.

        Args:
            upstream: where it comes from.
        """
        if not self.gone:
            self.transport.registerProducer(upstream, True)  # type: ignore[union-attr]

    def stop_stream(self) -> None:
        """The response is read to its end."""
        if not self.gone:
            self.transport.unregisterProducer()  # type: ignore[union-attr]

    # -- Reading and pausing -----------------------------------------------------------------------------------------

    def _pause(self, why: int, wanted: bool) -> None:
        before = self._paused
        self._paused = before | why if wanted else before & ~why
        if self.gone or bool(before) == bool(self._paused):
            return
        if self._paused:
            self.transport.pauseProducing()  # type: ignore[union-attr]
        else:
            self.transport.resumeProducing()  # type: ignore[union-attr]

    def _resume_reading(self) -> None:
        if not self.gone:
            self.transport.resumeProducing()  # type: ignore[union-attr]

    def pause_for_exchange(self) -> None:
        """Read no more until the exchange can take it."""
        self._pause(EXCHANGE_WAITS, True)

    def resume_for_exchange(self) -> None:
        """The exchange can take more."""
        if self._paused:
            self._pause(EXCHANGE_WAITS, False)

    @property
    def held(self) -> bool:
        """Whether it may read no more, because the application takes nothing of the request."""
        return bool(self._paused & UPSTREAM_SLOW)

    def pauseProducing(self) -> None:
        """The application reads slower than the client sends."""
        self._pause(UPSTREAM_SLOW, True)

    def resumeProducing(self) -> None:
        """The application caught up."""
        self._pause(UPSTREAM_SLOW, False)

    def stopProducing(self) -> None:
        """The application's connection ended; its own protocol says so."""

    # -- The end -----------------------------------------------------------------------------------------------------

    def close(self, cause: Cause) -> None:
        """
        Close in order: what was written is delivered, what the client still sends is read and dropped for a moment.

        Args:
            cause: for the metric.
        """
        if self._closing_until is not None or self.gone:
            return
        self._count(cause)
        self._closing_until = self.context.seconds() + _LINGER
        self._paused = 0
        self._backlog.forget()
        self._resume_reading()
        half_close = getattr(self.transport, "loseWriteConnection", None)
        if self.context.inbound or half_close is None:
            self.transport.loseConnection()  # type: ignore[union-attr]
        else:
            half_close()

    def abort(self, cause: Cause) -> None:
        """
        Drop the connection, so that the client sees that something is missing.

        Args:
            cause: for the metric.
        """
        if not self.gone:
            self._count(cause)
            self._closing_until = self.context.seconds() + _LINGER
            self.transport.abortConnection()  # type: ignore[union-attr]

    def _close_for_another(self, cause: Cause) -> None:
        """Free the slot under the listener's limit at once, and close without waiting for the client."""
        if self.gone:
            return
        transport: Any = self.transport
        self._count(cause)
        self._closing_until = self.context.seconds() + _LINGER
        release_slot(transport)
        if getattr(transport, "unsent", 0):
            transport.abortConnection()
        else:
            getattr(transport, "close_without_reply", transport.loseConnection)()

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
        if self._sent:
            self.context.metrics.bytes_sent.inc(self._sent)
            self._sent = 0

    def _linger(self, now: float, until: float) -> None:
        """End a plain connection that nobody closes; a slow reader has the time it needs. TLS bounds its own end."""
        if self.context.inbound or now < until or self.gone:
            return
        unsent = getattr(self.transport, "unsent", 0)
        if unsent and unsent != self._unsent:
            self._unsent = unsent
            self._closing_until = now + _LINGER
        else:
            self.transport.abortConnection()  # type: ignore[union-attr]

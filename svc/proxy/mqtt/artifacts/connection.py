"""
An :class:`svc.proxy.mqtt.artifacts.session.ArtifactSession` on a transport.

Owns the times of one connection: opening, keep alive and close.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint, ITCPTransport
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.pacing.turns import Turns
from svc.proxy.mqtt.artifacts.session import (
    KEEP_ALIVE,
    ArtifactEvent,
    ArtifactSession,
    ArtifactsUnpublished,
    OlderServer,
    PublishingBegan,
    SessionFailed,
)

#: Until messages can be published: brokers answer at once, and may ask a service for the password first.
OPENING_SECONDS: Final = 10.0
#: A broker that answers PINGREQ is not silent for so long, whatever keep alive it sets.
MIN_SILENCE: Final = 20.0
#: Until what is sent with DISCONNECT has left.
CLOSE_SECONDS: Final = 2.0


class ArtifactConnection(Protocol):
    """
    One connection; ``got`` is called with the events of each read.

    Attributes:
        ended: fires once the connection is closed: with the reason, or None for a broker of MQTT 3.1.1 alone.
    """

    def __init__(
        self, session: ArtifactSession, clock: Any, turns: Turns, got: Callable[[Iterable[ArtifactEvent]], None]
    ) -> None:
        self.session = session
        self._turns = turns
        #: Octets that wait for a turn, and how the connection ended behind them.
        self._undecoded = b""
        self._paused = False
        self._loss: Failure | None = None
        self.ended: Deferred[ArtifactsUnpublished | None] = Deferred()
        self._clock = clock
        self._got = got
        self._last: OlderServer | SessionFailed | None = None
        self._timer: IDelayedCall | None = None
        self._pings = LoopingCall(self._keep_alive)
        self._pings.clock = clock
        self._last_received = 0.0
        self._silence = 0.0
        self._lost = False
        self._closed: list[Deferred[None]] = []

    @classmethod
    async def connect(
        cls,
        endpoint: IStreamClientEndpoint,
        session: ArtifactSession,
        clock: Any,
        turns: Turns,
        got: Callable[[Iterable[ArtifactEvent]], None],
    ) -> ArtifactConnection:
        """Open a connection; raises what the endpoint fails with."""
        factory = Factory.forProtocol(lambda: cls(session, clock, turns, got))
        factory.noisy = False
        return cast(ArtifactConnection, await endpoint.connect(factory))

    def connectionMade(self) -> None:
        """Send CONNECT."""
        self._timer = self._clock.callLater(OPENING_SECONDS, self._overdue, OPENING_SECONDS)
        self.flush()

    def dataReceived(self, data: bytes) -> None:
        """Read packets."""
        self._last_received = self._clock.seconds()
        if self._undecoded:
            self._undecoded += data
        else:
            self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        """Report the events of octets, and keep what takes longer than a turn for a later one."""
        self._undecoded = self._turns.take_slices(data, self._take_slice)
        if self._undecoded:
            if not self._lost:
                self._paused = True
                cast(Any, self.transport).pauseProducing()
            self._turns.wait(self)
        self.flush()

    def _take_slice(self, data: bytes, begin: int) -> int:
        events, begin = self.session.feed_slice(data, begin)
        for event in events:
            if isinstance(event, PublishingBegan):
                self._began(event)
            elif isinstance(event, OlderServer | SessionFailed):
                self._lose(event)
        self._got(events)
        return begin

    def read_on(self) -> None:
        """See :class:`svc.pacing.turns.UnfinishedRead`."""
        data, self._undecoded = self._undecoded, b""
        self._deliver(data)
        if self._undecoded:
            return
        if self._loss is not None:
            self._report_end(self._loss)
        else:
            self._resume()

    def _resume(self) -> None:
        if self._paused and not self._lost:
            self._paused = False
            cast(Any, self.transport).resumeProducing()

    def abort_defective(self) -> None:
        """See :class:`svc.pacing.turns.UnfinishedRead`."""
        if self._loss is not None:
            self._report_end(self._loss)
        else:
            cast(ITCPTransport, self.transport).abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Report the end, behind what was read before."""
        self._lost = True
        if self._undecoded:
            self._loss = reason
        else:
            self._report_end(reason)

    def _report_end(self, reason: Failure) -> None:
        self._stop_timers()
        last = self._last
        if last is None:
            last = self.session.connection_lost(str(reason.value) if isinstance(reason.value, SvcError) else "")
        self.ended.callback(last.error if isinstance(last, SessionFailed) else None)
        for each in self._closed:
            each.callback(None)

    def flush(self) -> None:
        """Write what the session has to send."""
        data = self.session.data_to_send()
        if data and not self._lost and self.transport is not None:
            self.transport.write(data)

    def close(self) -> Deferred[None]:
        """End the session in order, at once where the broker does not take the end; fires when it is closed."""
        if self._lost:
            return succeed(None)
        closed: Deferred[None] = Deferred()
        self._closed.append(closed)
        self.session.disconnect()
        self._lose(self._last)
        return closed

    def _began(self, event: PublishingBegan) -> None:
        self._stop_timers()
        period = min(event.keep_alive or KEEP_ALIVE, KEEP_ALIVE) / 2
        self._silence = max(2 * period, MIN_SILENCE)
        self._pings.start(period, now=False)

    def _keep_alive(self) -> None:
        if self._clock.seconds() - self._last_received > self._silence:
            self._overdue(self._silence)
            return
        self.session.ping()
        self.flush()

    def _overdue(self, seconds: float) -> None:
        self._timer = None
        self._lose(self.session.overdue(seconds))

    def _lose(self, last: OlderServer | SessionFailed | None) -> None:
        self._last = last
        self._stop_timers()
        self.flush()
        transport = cast(ITCPTransport, self.transport)
        self._timer = self._clock.callLater(CLOSE_SECONDS, self._abort)
        # A transport that is not read does not see the end of the other side.
        self._resume()
        transport.loseConnection()

    def _abort(self) -> None:
        self._timer = None
        cast(ITCPTransport, self.transport).abortConnection()

    def _stop_timers(self) -> None:
        if self._pings.running:
            self._pings.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

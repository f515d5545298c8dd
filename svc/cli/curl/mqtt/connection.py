"""
The connection to a broker: a :class:`svc.client.subscriber.Subscriber` on a transport.

Owns the times of a connection (opening, keep alive, close) and back-pressure: nothing is read while messages wait to be
printed, so that the broker's flow control takes effect. It never reconnects.
"""

from __future__ import annotations

import secrets
from collections import deque
from datetime import UTC, datetime
from typing import Any, Final, cast
from typing import Protocol as Interface

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IPushProducer, ITCPTransport
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.cli.curl.mqtt.plan import MqttPlan
from svc.cli.curl.network import CONNECT_SECONDS, connect_error
from svc.cli.output import Console
from svc.cli.trust import LocalTrust
from svc.client import debug_log
from svc.client.errors import BrokerFailed
from svc.client.subscriber import (
    KEEP_ALIVE,
    RECEIVE_MAXIMUM,
    Accepted,
    Arrival,
    Failed,
    Subscribed,
    Subscriber,
    SubscriberEvent,
    VersionRefused,
)
from svc.client.verification import Trust
from svc.errors import SvcError
from svc.telemetry.events.base import Severity
from svc.transport import errors as transport_errors
from svc.transport.certificates import CertificateClientCreator, tls_parameters
from svc.transport.endpoints import CertificateClientEndpoint, PlainClientEndpoint, TcpAddress
from svc.wire.mqtt import Version

#: From the first octet to the SUBACK; brokers answer at once, and may ask a service for the password first.
OPENING_SECONDS: Final = 10.0
#: A broker that answers PINGREQ is not silent for so long, whatever keep alive it sets.
MIN_SILENCE: Final = 20.0
#: Until what is sent with DISCONNECT has left.
CLOSE_SECONDS: Final = 2.0


class OlderBroker(Exception):
    """The broker does not support MQTT 5.0."""


class SubscriberConnection(Protocol):
    """
    One connection.

    Attributes:
        opened: fires once when the broker granted the subscription; fails with ``OlderBroker`` or ``BrokerFailed``.
        ended: why the broker ended the connection, in its words; empty where it gave no reason.
    """

    _log = Logger(namespace="svc.cli")

    def __init__(self, subscriber: Subscriber, server: str, clock: Any) -> None:
        self.opened: Deferred[None] = Deferred()
        self.ended = ""
        self._subscriber = subscriber
        self._server = server
        self._clock = clock
        self._arrivals: deque[Arrival] = deque()
        self._waiting: Deferred[Arrival | None] | None = None
        self._failure: Exception | None = None
        self._over = False
        self._paused = False
        self._last_received = 0.0
        self._silence = 0.0
        self._pings = LoopingCall(self._keep_alive)
        self._pings.clock = clock
        self._opening: Any = None
        self._closed: Deferred[None] = Deferred()

    @property
    def version(self) -> Version:
        """The version of MQTT."""
        return self._subscriber.version

    # --- for the consumer --------------------------------------------------------------------------------------------

    def next(self) -> Deferred[Arrival | None]:
        """The next message, None after the last; fails where the connection did."""
        if self._arrivals:
            arrival = self._arrivals.popleft()
            if not self._arrivals:
                self._resume()
            return succeed(arrival)
        if self._failure is not None:
            return fail(self._failure)
        if self._over:
            return succeed(None)
        self._waiting = Deferred(self._stop_waiting)
        return self._waiting

    def _stop_waiting(self, _waiting: Deferred[Arrival | None]) -> None:
        self._waiting = None

    def acknowledge(self, arrival: Arrival) -> None:
        """A message has been processed."""
        if arrival.packet_id:
            self._trace("PUBACK")
        self._subscriber.acknowledge(arrival)
        self._flush()

    def close(self) -> Deferred[None]:
        """End the connection in order, at once where the broker does not take the end; fires when it is closed."""
        self._finish()
        self._subscriber.disconnect()
        self._flush()
        self._arrivals.clear()
        self._resume()
        if self.transport is not None and not self._closed.called:
            overdue = self._clock.callLater(CLOSE_SECONDS, cast(ITCPTransport, self.transport).abortConnection)
            self._closed.addBoth(lambda _closed: overdue.cancel() if overdue.active() else None)
            self.transport.loseConnection()
        return self._closed

    # --- for Twisted -------------------------------------------------------------------------------------------------

    def connectionMade(self) -> None:
        """Send CONNECT."""
        self._last_received = self._clock.seconds()
        self._opening = self._clock.callLater(OPENING_SECONDS, self._silent, OPENING_SECONDS)
        self._trace("CONNECT")
        self._flush()

    def dataReceived(self, data: bytes) -> None:
        """Read packets; messages wait for the consumer."""
        self._last_received = self._clock.seconds()
        for event in self._subscriber.feed(data):
            self._got(event)
        self._flush()
        if len(self._arrivals) >= RECEIVE_MAXIMUM and not self._paused:
            self._paused = True
            cast(IPushProducer, self.transport).pauseProducing()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End the subscription; before the broker granted it, that is an error."""
        self._closed.callback(None)
        cause = reason.value if isinstance(reason.value, SvcError) else None
        if not self.opened.called:
            text = "" if cause is None else f": {cause}"
            self._finish(BrokerFailed("mqtt_broker_closed", server=self._server, cause=text))
        elif not self._over and cause is not None:
            self.ended = str(cause)
        self._finish()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _got(self, event: SubscriberEvent) -> None:
        if isinstance(event, Arrival):
            self._trace("PUBLISH {topic}, {size} octets", topic=event.topic, size=len(event.payload))
            if self._waiting is not None:
                waiting, self._waiting = self._waiting, None
                waiting.callback(event)
            else:
                self._arrivals.append(event)
        elif isinstance(event, Accepted):
            self._log.debug("the broker accepts the connection; keep alive {seconds} s", seconds=event.keep_alive)
            period = min(event.keep_alive or KEEP_ALIVE, KEEP_ALIVE) / 2
            self._silence = max(2 * period, MIN_SILENCE)
            self._pings.start(period, now=False)
        elif isinstance(event, Subscribed):
            self._opening.cancel()
            self._log.debug("the broker grants the topics")
            if not self.opened.called:
                self.opened.callback(None)
        elif isinstance(event, VersionRefused):
            self._finish(OlderBroker())
        elif isinstance(event, Failed):
            self._finish(event.error)
        else:
            self.ended = event.answer
            self._finish()

    def _finish(self, failure: Exception | None = None) -> None:
        """Stop the timers, and report the end once."""
        if self._over:
            return
        self._over, self._failure = True, failure
        if self._pings.running:
            self._pings.stop()
        if self._opening is not None and self._opening.active():
            self._opening.cancel()
        if failure is not None and not self.opened.called:
            self.opened.errback(failure)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None) if failure is None else waiting.errback(failure)

    def _keep_alive(self) -> None:
        if not self._paused and self._clock.seconds() - self._last_received > self._silence:
            self._silent(self._silence)
            return
        self._trace("PINGREQ")
        self._subscriber.ping()
        self._flush()

    def _silent(self, seconds: float) -> None:
        self._finish(BrokerFailed("mqtt_broker_silent", server=self._server, seconds=f"{seconds:g}"))

    def _resume(self) -> None:
        if self._paused:
            self._paused, self._last_received = False, self._clock.seconds()
            if not self._closed.called:
                cast(IPushProducer, self.transport).resumeProducing()

    def _flush(self) -> None:
        data = self._subscriber.data_to_send()
        if data and self.transport is not None and not self._closed.called:
            self.transport.write(data)

    def _trace(self, text: str, **facts: object) -> None:
        self._log.debug(text, svc_severity=Severity.TRACE, **facts)


class SubscriptionContext(Interface):
    """The outside world of a subscription."""

    clock: Any

    def now(self) -> datetime:
        """The time, aware."""

    async def trust(self) -> Trust:
        """The trust anchors that are in force now."""

    async def connect(self, version: Version) -> SubscriberConnection:
        """Open a connection and begin the subscription."""


class BrokerNetwork:
    """Implements :class:`SubscriptionContext` with a reactor."""

    _log = Logger(namespace="svc.cli")

    def __init__(self, reactor: Any, plan: MqttPlan, console: Console) -> None:
        self.clock = reactor
        self._plan = plan
        self._console = console
        self._trust = LocalTrust(reactor, plan.options.spiffe_socket, plan.demands.profile, plan.pq_bundle)

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def trust(self) -> Trust:
        return await self._trust.trust()

    async def close(self) -> None:
        """Stop the stream of the Workload API."""
        await self._trust.close()

    async def connect(self, version: Version) -> SubscriberConnection:
        broker = self._plan.broker
        address = TcpAddress(broker.host, broker.port)
        endpoint: Any
        if broker.secure:
            self._log.debug("connecting to {server} with TLS, expecting its certificate", server=broker.server)
            creator = CertificateClientCreator(broker.host)
            endpoint = CertificateClientEndpoint(self.clock, address, creator, connect_timeout=CONNECT_SECONDS)
        else:
            debug_log.connecting(broker.server, None)
            endpoint = PlainClientEndpoint(self.clock, address, timeout=CONNECT_SECONDS)
        try:
            connection: SubscriberConnection = await endpoint.connect(_Connections(self._plan, version, self.clock))
        except transport_errors.TransportError as error:
            raise _broker_error(error, self._plan) from error
        self._report(connection)
        return connection

    def _report(self, connection: SubscriberConnection) -> None:
        tls = tls_parameters(connection.transport)
        shown = "no TLS" if tls is None else f"TLS {tls.version}, {tls.group}, {tls.cipher}"
        self._log.debug("connected to {server}: {tls}", server=self._plan.broker.server, tls=shown)
        if tls is not None and not tls.post_quantum:
            self._console.warn(f"not post-quantum: the connection uses {tls.group}")


class _Connections(Factory):
    noisy = False

    def __init__(self, plan: MqttPlan, version: Version, clock: Any) -> None:
        self._plan = plan
        self._version = version
        self._clock = clock

    def buildProtocol(self, addr: object) -> SubscriberConnection:
        broker = self._plan.broker
        subscriber = Subscriber(
            self._version,
            self._plan.filters,
            server=broker.server,
            client_id=f"svccurl{secrets.token_hex(8)}",  # 23 letters and digits are the most that all brokers take
            username=broker.username,
            password=broker.password,
        )
        return SubscriberConnection(subscriber, broker.server, self._clock)


def _broker_error(error: transport_errors.TransportError, plan: MqttPlan) -> SvcError:
    if type(error) is transport_errors.HandshakeFailed:
        return BrokerFailed("mqtt_tls_failed", server=plan.broker.server, detail=error.detail)
    if isinstance(error, transport_errors.HandshakeTimeout):
        detail = f"the handshake was not complete after {error.seconds:g} s"
        return BrokerFailed("mqtt_tls_failed", server=plan.broker.server, detail=detail)
    return connect_error(error, plan.broker)

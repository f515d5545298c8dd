"""
A broker for any Twisted application: pass :meth:`Broker.factory` to an endpoint, and start the service.

Owns what turns the pure core into a running broker: time, ``$SYS`` topics, the set of connections, the orderly end.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger

from svc import __version__
from svc.broker.access import ClientName, Guard, Principal
from svc.broker.connection import (
    CLOSE_TIMEOUT,
    BrokerConnection,
    BrokerContext,
    ConnectionLimits,
    ConnectionReporter,
    SilentReporter,
)
from svc.broker.errors import StoreRefuses
from svc.broker.hub import Hub, HubLimits
from svc.broker.journal import Journal, NoJournal, RecoveredState
from svc.broker.logins import PasswordLogins
from svc.broker.message import Message
from svc.pacing.turns import Turns
from svc.process.reauthorization import Reauthorization, ReauthorizationSummary
from svc.transport.client_certificates import client_certificate
from svc.transport.evidence import peer_evidence
from svc.wire.mqtt import QoS, ReasonCode, name_defect
from svc.workload.interface import CredentialSource

TICK: Final = 1.0
#: Seconds between two rounds of ``$SYS`` messages, as in Mosquitto.
SYS_INTERVAL: Final = 10.0


def anonymous(listener: str = "") -> Callable[[Any], Principal]:
    """Make the argument of :meth:`Broker.factory` for clients without an identity; ``listener`` is a name for logs."""

    def identify(transport: Any) -> Principal:
        return Principal(None, _address(transport), listener)

    return identify


def verified(listener: str = "") -> Callable[[Any], Principal]:
    """
    Make the argument of :meth:`Broker.factory` for clients that are identified by their X.509-SVID.

    The endpoint must be a :class:`svc.transport.endpoints.MutualTlsServerEndpoint`; ``listener`` is a name for logs.
    """

    def identify(transport: Any) -> Principal:
        evidence = peer_evidence(transport)
        return Principal(evidence.svid.spiffe_id, _address(transport), listener, evidence)

    return identify


def certified(listener: str) -> Callable[[Any], Principal]:
    """Make the argument of :meth:`Broker.factory` for clients with an ordinary certificate."""

    def identify(transport: Any) -> Principal:
        certificate = client_certificate(transport)
        name = ClientName("certificate", certificate.name)
        return Principal(None, _address(transport), listener, certificate, name)

    return identify


def _address(transport: Any) -> str:
    peer = transport.getPeer()
    return f"{getattr(peer, 'host', '')}:{getattr(peer, 'port', '')}"


class _ConnectionFactory(Factory):
    noisy = False

    def __init__(self, build: Callable[[], BrokerConnection]) -> None:
        self._build = build

    def buildProtocol(self, addr: IAddress | None) -> BrokerConnection:
        return self._build()


class Broker(Service):
    """
    An MQTT broker.

    Args:
        reactor: the reactor.
        guard: authorizes clients.
        limits: of the broker and its sessions.
        connection_limits: of each connection.
        journal: records durable state; nothing by default.
        recovered: the state that the journal recovered.
        reporter: reports events of connections.
        wall: seconds since 1970 UTC.
        check: raises a ``BrokerError`` for a client, or the owner of a session, that is not accepted any more.

    Attributes:
        hub: the core.
    """

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        guard: Guard,
        *,
        limits: HubLimits | None = None,
        connection_limits: ConnectionLimits | None = None,
        journal: Journal | None = None,
        recovered: RecoveredState | None = None,
        reporter: ConnectionReporter | None = None,
        wall: Callable[[], float] = time.time,
        check: Callable[[Principal], None] = lambda principal: None,
    ) -> None:
        self._reactor = reactor
        self._connection_limits = connection_limits or ConnectionLimits()
        self._reporter: ConnectionReporter = reporter or SilentReporter()
        self._connections: Reauthorization[BrokerConnection] = Reauthorization(
            reactor, self._reauthorize, self._reauthorized
        )
        self._turns = Turns(reactor)
        #: The credentials and the time of the last reauthorization; None before the first.
        self._credentials: tuple[CredentialSource, datetime] | None = None
        #: Whether stored sessions are to be decided on by other rules, once all connections are.
        self._sessions_due = False
        self.hub: Final = Hub(
            now=wall,
            guard=guard,
            random_name=lambda: f"auto-{secrets.token_hex(16)}",
            call_soon=self._call_soon,
            limits=limits,
            journal=journal or NoJournal(),
            on_denied=self._reporter.denied,
            on_no_room=self._reporter.no_room,
            check=check,
        )
        if recovered is not None:
            self.hub.restore(recovered)
        self._ticking = LoopingCall(self._tick)
        self._ticking.clock = reactor
        self._publishing = LoopingCall(self._publish_statistics)
        self._publishing.clock = reactor
        self._started = 0.0

    @property
    def open_connections(self) -> int:
        """The number of connections, admitted or not."""
        return len(self._connections)

    def principals(self) -> Iterator[Principal]:
        """Who is at the other end of each open connection, admitted or not."""
        return (each.principal for each in self._connections)

    def factory(
        self,
        identify: Callable[[Any], Principal],
        logins: PasswordLogins | None = None,
        connections: int | None = None,
    ) -> Factory:
        """
        Make the protocol factory of one or more endpoints.

        Args:
            identify: returns the client of a transport; :func:`anonymous`, :func:`verified` or your own.
            logins: verifies the user names and passwords of the clients; None ignores them.
            connections: how many the endpoints accept; near that number identities share them.
        """
        context = BrokerContext(
            self.hub,
            self._connection_limits,
            self._reactor.seconds,
            self._turns,
            self._reporter,
            self._connections,
            connections,
        )
        return _ConnectionFactory(lambda: BrokerConnection(context, identify, logins))

    def _call_soon(self, call: Callable[[], None]) -> None:
        self._reactor.callLater(0, call)

    def publish(self, topic: str, payload: bytes, qos: QoS = 0, *, retain: bool = False) -> bool:
        """
        Publish a message from within the process; no access rule applies.

        Returns:
            Whether a subscription matched.

        Raises:
            ValueError: the topic name is not valid.
            StoreRefuses: the message has QoS above 0 or is to be retained, and cannot be made durable now.
        """
        if defect := name_defect(topic):
            raise ValueError(defect)
        if (qos or (retain and payload)) and not self.hub.journal.accepting:
            raise StoreRefuses
        return self.hub.publish(Message(topic, payload, qos, retain))

    def reauthorize(self, source: CredentialSource, now: datetime) -> None:
        """
        Verify all identified clients again; to be called when the broker's credentials or bundles have changed.

        It begins in the next turn of the reactor and takes 3 ms of each; octets of a client that is not reached yet are
        processed after it is. A client whose SVID would now be refused, or to which another identity than that of the
        source was presented, gets DISCONNECT 0x87.

        Args:
            source: the broker's credentials and the bundles in force.
            now: the time, aware.
        """
        self._credentials = (source, now)
        self._connections.begin()

    def _reauthorize(self, connection: BrokerConnection) -> bool:
        ended = connection.ended
        try:
            if self._credentials is not None:
                connection.reauthorize(*self._credentials)
            connection.rules_changed()
        except Exception:  # noqa: BLE001 (what cannot be decided is refused)
            self.log.failure("a connection could not be reauthorized; it is aborted")
            connection.abort()
        return connection.ended and not ended

    def end_expired(self, now: datetime) -> None:
        """End the connections of clients with an expired certificate; cheap, to be called about once a second."""
        self._for_each(lambda connection: connection.end_if_expired(now))

    def rules_changed(self) -> None:
        """
        Reauthorize open connections and stored sessions; to be called when the guard, or what ``check`` uses, changed.

        A client that is refused, or to which no rule applies, gets DISCONNECT 0x87, and its session ends unless it may
        be resumed: at another listener, or with other evidence. Subscriptions that are not allowed any more end.
        """
        self._sessions_due = True
        self._connections.begin()
        if not self._connections.running:
            self._decide_sessions()

    def _reauthorized(self, summary: ReauthorizationSummary) -> None:
        self._reporter.reauthorized(summary)
        self._decide_sessions()

    def _decide_sessions(self) -> None:
        """Decide on sessions whose connection has ended meanwhile, too."""
        due, self._sessions_due = self._sessions_due, False
        if due:
            self.hub.rules_changed()

    def startService(self) -> None:
        """Start the clock."""
        super().startService()
        self._started = self._reactor.seconds()
        self._ticking.start(TICK, now=False)
        self._publishing.start(SYS_INTERVAL, now=True)

    def stopService(self) -> Deferred[None]:
        """
        Close all connections; wills are published, persistent sessions stay.

        Returns:
            Fires when the connections are closed; those that do not close in time are aborted, and waited for a second.
        """
        super().stopService()
        for call in (self._ticking, self._publishing):
            if call.running:
                call.stop()
        self._connections.stop()
        for connection in list(self._connections):
            connection.close(ReasonCode.SERVER_SHUTTING_DOWN)
        return Deferred.fromCoroutine(self._connections_closed())

    async def _connections_closed(self) -> None:
        for seconds in (CLOSE_TIMEOUT, 1.0):
            until = self._reactor.seconds() + seconds
            while self._connections and self._reactor.seconds() < until:
                await deferLater(self._reactor, 0.05)
            for connection in list(self._connections):
                connection.abort()

    def _tick(self) -> None:
        try:
            self.hub.tick()
        except Exception:  # noqa: BLE001 (a defect in one message must not stop the clock)
            self.log.failure("processing due sessions and messages failed")
        now = self._reactor.seconds()
        self._for_each(lambda connection: connection.check_timeouts(now))

    def _for_each(self, call: Callable[[BrokerConnection], None]) -> None:
        for connection in list(self._connections):
            try:
                call(connection)
            except Exception:  # noqa: BLE001 (a defect in one connection must not stop the checks of all others)
                self.log.failure("checking a connection failed; it is aborted")
                connection.abort()

    def _publish_statistics(self) -> None:
        """Publish statistics below ``$SYS/broker``, retained, under the names that Mosquitto uses."""
        hub, counts = self.hub, self.hub.statistics
        values = {
            "version": f"svc {__version__}",
            "uptime": f"{int(self._reactor.seconds() - self._started)} seconds",
            "clients/connected": counts.connected,
            "clients/disconnected": len(hub.sessions) - counts.connected,
            "clients/total": len(hub.sessions),
            "subscriptions/count": len(hub.subscriptions),
            "retained messages/count": len(hub.retained),
            "publish/messages/received": counts.received,
            "publish/messages/sent": counts.messages_sent,
            "publish/messages/dropped": sum(counts.drops.values()),
            "publish/bytes/received": counts.received_octets,
            "publish/bytes/sent": counts.octets_sent,
        }
        try:
            for name, value in values.items():
                topic = f"$SYS/broker/{name}"
                old = hub.retained.get(topic)
                payload = str(value).encode()
                if old is None or old.payload != payload:
                    hub.publish(Message(topic, payload, 0, retain=True))
        except Exception:  # noqa: BLE001 (one failure must not stop the LoopingCall)
            self.log.failure("publishing statistics below $SYS failed")

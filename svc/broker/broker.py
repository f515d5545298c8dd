"""
A broker for any Twisted application: give :meth:`Broker.factory` to an endpoint, and start it.

Owns what turns the pure core into a running broker: time, ``$SYS`` topics, the set of connections, the end.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger

from svc import __version__
from svc.broker.access import Guard, Principal
from svc.broker.connection import (
    GOODBYE,
    BrokerConnection,
    ConnectionReporter,
    ConnectionTerms,
    SilentReporter,
    Surroundings,
)
from svc.broker.errors import StoreRefuses
from svc.broker.hub import Hub, HubLimits
from svc.broker.journal import Journal, NoJournal, Remains
from svc.broker.message import Message
from svc.transport.evidence import PeerEvidence, peer_evidence
from svc.wire.mqtt import QoS, ReasonCode, name_defect

TICK: Final = 1.0
#: Seconds between two rounds of ``$SYS`` messages, as Mosquitto has it.
SYS_INTERVAL: Final = 10.0


def anonymous(listener: str = "") -> Callable[[Any], Principal]:
    """
    Say that clients of an endpoint have no identity.

    Args:
        listener: the endpoint's name, for people.

    Returns:
        What :meth:`Broker.factory` takes.
    """

    def who(transport: Any) -> Principal:
        return Principal(None, _address(transport), listener)

    return who


def verified(listener: str = "") -> Callable[[Any], Principal]:
    """
    Say that clients of an endpoint are known by their X.509-SVID.

    Args:
        listener: the endpoint's name, for people.

    Returns:
        What :meth:`Broker.factory` takes, for a :class:`svc.transport.endpoints.MutualTlsServerEndpoint`.
    """

    def who(transport: Any) -> Principal:
        evidence = peer_evidence(transport)
        return Principal(evidence.svid.spiffe_id, _address(transport), listener, evidence)

    return who


def _address(transport: Any) -> str:
    peer = transport.getPeer()
    return f"{getattr(peer, 'host', '')}:{getattr(peer, 'port', '')}"


class _Clients(Factory):
    noisy = False

    def __init__(self, build: Callable[[], BrokerConnection]) -> None:
        self._build = build

    def buildProtocol(self, addr: IAddress | None) -> BrokerConnection:
        return self._build()


class Broker(Service):
    """
    A broker.

    Args:
        reactor: the reactor.
        guard: decides who may do what.
        limits: what is held.
        terms: what a connection may use.
        journal: records what must last; nothing by default.
        remains: what the journal kept from an earlier run.
        reporter: tells people about connections.
        wall: seconds since 1970 UTC.

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
        terms: ConnectionTerms | None = None,
        journal: Journal | None = None,
        remains: Remains | None = None,
        reporter: ConnectionReporter | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._reactor = reactor
        self._terms = terms or ConnectionTerms()
        self._reporter: ConnectionReporter = reporter or SilentReporter()
        self._connections: set[BrokerConnection] = set()
        self.hub: Final = Hub(
            now=wall,
            guard=guard,
            random_name=lambda: f"auto-{secrets.token_hex(16)}",
            soon=self._soon,
            limits=limits,
            journal=journal or NoJournal(),
            told=self._reporter.denied,
        )
        if remains is not None:
            self.hub.restore(remains)
        self._ticking = LoopingCall(self._tick)
        self._ticking.clock = reactor
        self._telling = LoopingCall(self._tell)
        self._telling.clock = reactor
        self._began = 0.0

    @property
    def open_connections(self) -> int:
        """The number of connections, admitted or not."""
        return len(self._connections)

    def factory(self, who: Callable[[Any], Principal]) -> Factory:
        """
        Make what an endpoint listens with.

        Args:
            who: says from its transport who a client is; :func:`anonymous`, :func:`verified` or your own.

        Returns:
            The factory; it may listen at several endpoints.
        """
        around = Surroundings(
            self.hub, self._terms, self._reactor.seconds, self._soon, self._reporter, self._connections
        )
        return _Clients(lambda: BrokerConnection(around, who))

    def _soon(self, turn: Callable[[], None]) -> None:
        self._reactor.callLater(0, turn)

    def publish(self, topic: str, payload: bytes, qos: QoS = 0, *, retain: bool = False) -> bool:
        """
        Publish a message from within the process; no rule of access is asked.

        Args:
            topic: a valid topic name.
            payload: its octets.
            qos: the quality of service.
            retain: whether it is retained.

        Returns:
            Whether anybody's subscription matched.

        Raises:
            ValueError: the topic name is not valid.
            StoreRefuses: the message has QoS above 0 or is to be retained, and that could not be made to last now.
        """
        if defect := name_defect(topic):
            raise ValueError(defect)
        if (qos or (retain and payload)) and not self.hub.journal.accepting:
            raise StoreRefuses
        return self.hub.publish(Message(topic, payload, qos, retain))

    def reauthorize(self, judge: Callable[[PeerEvidence], None]) -> None:
        """
        Judge all verified clients again; whoever would now be refused is told so (0x87) and closed.

        Args:
            judge: raises a :class:`~svc.errors.SvcError` for who is to go; see :class:`svc.broker.standing.Standing`.
        """
        self._each(lambda connection: connection.reauthorize(judge))

    def startService(self) -> None:
        """Begin to keep time."""
        super().startService()
        self._began = self._reactor.seconds()
        self._ticking.start(TICK, now=False)
        self._telling.start(SYS_INTERVAL, now=True)

    def stopService(self) -> Deferred[None]:
        """
        Say goodbye to all clients; their wills are published, sessions that last stay.

        Returns:
            Fires when the connections are closed, at the latest a second after those are cut that take no goodbye.
        """
        super().stopService()
        for call in (self._ticking, self._telling):
            if call.running:
                call.stop()
        for connection in list(self._connections):
            connection.close(ReasonCode.SERVER_SHUTTING_DOWN)
        return Deferred.fromCoroutine(self._closed())

    async def _closed(self) -> None:
        for seconds in (GOODBYE, 1.0):
            until = self._reactor.seconds() + seconds
            while self._connections and self._reactor.seconds() < until:
                await deferLater(self._reactor, 0.05)
            for connection in list(self._connections):
                connection.abort()

    def _tick(self) -> None:
        try:
            self.hub.tick()
        except Exception:  # noqa: BLE001 (one message that cannot be published must not stop the clock)
            self.log.failure("what was due could not be done")
        now = self._reactor.seconds()
        self._each(lambda connection: connection.judge(now))

    def _each(self, do: Callable[[BrokerConnection], None]) -> None:
        for connection in list(self._connections):
            try:
                do(connection)
            except Exception:  # noqa: BLE001 (a defect in one connection must not end the times of all others)
                self.log.failure("a connection could not be judged and is dropped")
                connection.abort()

    def _tell(self) -> None:
        """Publish the basics below ``$SYS/broker``; what goes wrong once must not end it for ever."""
        try:
            self._publish_basics()
        except Exception:  # noqa: BLE001 (as with the clock)
            self.log.failure("the basics below $SYS could not be published")

    def _publish_basics(self) -> None:
        """Publish them, retained, under the names that Mosquitto made usual."""
        hub, counts = self.hub, self.hub.statistics
        known = {
            "version": f"svc {__version__}",
            "uptime": f"{int(self._reactor.seconds() - self._began)} seconds",
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
        for name, value in known.items():
            topic = f"$SYS/broker/{name}"
            old = hub.retained.at(topic)
            payload = str(value).encode()
            if old is None or old.payload != payload:
                hub.publish(Message(topic, payload, 0, retain=True))

"""A TCP listener in memory, with transports that close one direction at a time."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.python.failure import Failure

from svc.identity import X509Svid
from svc.policyfiles.settings import Policies
from svc.proxy.connection_settings import LimitSettings, TimeoutSettings
from svc.proxy.listener import Connection, Listener
from svc.proxy.observers import ListenerObserver
from svc.proxy.relayed_context import RelayedContext
from svc.proxy.tcp.connection import TcpConnection
from tests.proxy.policies import admit_domain
from tests.proxy.rig import CALLER, Handle, Rig, Wire, evidence_of


class HalfWire(Wire):
    """A transport that records the end of its own stream, and whose peer reads when the test says so."""

    ended = False

    def loseWriteConnection(self) -> None:
        """Record the end."""
        assert self.producer is None, "Twisted's transports end their stream only without a producer"
        self.ended = True

    def write(self, data: bytes) -> None:
        """Refuse what a transport would drop."""
        assert not self.ended, data
        super().write(data)


class TcpRig(Rig):
    """One TCP listener with its collaborators; the upstream is that of the endpoint."""

    def __init__(
        self,
        *,
        inbound: bool = True,
        policies: Policies | None = None,
        timeouts: TimeoutSettings | None = None,
        limits: LimitSettings | None = None,
    ) -> None:
        super().__init__(inbound=inbound)
        self.endpoint.wire = HalfWire
        self.tcp_metrics = self.metrics.listener("tcp", "inbound" if inbound else "outbound")
        observer = ListenerObserver(self.tcp_metrics, cast(Any, self.reporter), "db")
        self.tcp = RelayedContext(
            name="db",
            inbound=inbound,
            policies=(policies or admit_domain()) if inbound else None,
            rotation=cast(Any, self.rotation),
            reauthorization=self.reauthorization,
            turns=self.turns,
            metrics=self.tcp_metrics,
            reporter=self.reporter,
            limits=limits or LimitSettings(),
            timeouts=timeouts or TimeoutSettings(),
            seconds=self.clock.seconds,
            wall=self.wall,
            endpoint=cast(Any, self.endpoint),
            upstream="the application at 127.0.0.1:5432",
            unreachable=observer.upstream_unreachable,
            accepted=observer.upstream_accepted,
            ended=observer.upstream_ended,
        )
        self.listener = Listener(self.tcp, cast(Any, None), lambda known: TcpConnection(self.tcp, known))
        self.known: set[Connection] = self.listener._connections

    def accept(self, svid: X509Svid = CALLER) -> tuple[TcpConnection, HalfWire]:
        """Accept a connection of a client."""
        wire = HalfWire(Handle(evidence_of(svid)) if self.tcp.inbound else None)
        client = TcpConnection(self.tcp, self.known)
        client.makeConnection(wire)
        return client, wire

    def far(self) -> tuple[Any, HalfWire]:
        """The newest connection to the upstream."""
        protocol, wire = self.endpoint.connections[-1]
        assert isinstance(wire, HalfWire)
        return protocol, wire

    def pass_time(self, seconds: float = 0.0) -> None:
        """Advance the clock and sweep, as the service does."""
        self.clock.advance(seconds)
        self.listener.sweep(self.clock.seconds(), self.wall())

    def value(self, name: str, **labels: str) -> float:
        """The value of a metric."""
        return self.registry.get_sample_value(name, labels) or 0.0

    def closed(self, cause: str) -> float:
        """How many connections were closed by a cause."""
        return self.value("svc_proxy_connections_closed_total", protocol="tcp", cause=cause)


def lose(end: Any, *, clean: bool = True) -> None:
    """Close the transport of one end, as Twisted does: its producer is stopped first."""
    if end.transport.producer is not None:
        end.transport.producer.stopProducing()
    end.connectionLost(Failure(ConnectionDone() if clean else ConnectionLost()))

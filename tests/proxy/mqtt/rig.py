"""An MQTT listener in memory, behind which a test is the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.python.failure import Failure

from svc.identity import X509Svid
from svc.notary.level import Level
from svc.policyfiles.settings import Policies
from svc.proxy.connection_settings import LimitSettings, OnRotation, TimeoutSettings
from svc.proxy.listener import Connection, Listener
from svc.proxy.mqtt.client_ids import ClientIdTemplate
from svc.proxy.mqtt.connection import MqttConnection
from svc.proxy.mqtt.context import MqttContext
from svc.proxy.mqtt.interfaces import MqttLimits, MqttSession
from svc.proxy.mqtt.passing.session import PassThroughSession
from svc.proxy.observers import ListenerObserver
from svc.wire.mqtt import Connack, Connect, Packet, PacketLimits, Version, encode
from tests.proxy.mqtt.sessions import Recorder, read
from tests.proxy.policies import admit_domain
from tests.proxy.rig import CALLER, Handle, Rig, Wire, evidence_of


class MqttWire(Wire):
    """A transport that does not close while it has a producer, as Twisted's do."""

    released = 0

    def release_slot(self) -> None:
        """Count the calls."""
        self.released += 1

    def loseConnection(self) -> None:
        """Close behind what was written."""
        assert self.producer is None
        super().loseConnection()

    @property
    def closed(self) -> bool:
        """Whether the proxy closed it, in order or not."""
        return self.disconnecting or self.aborted


class MqttRig(Rig):
    """One MQTT listener with its collaborators; the broker is that of the endpoint."""

    def __init__(
        self,
        *,
        inbound: bool = True,
        policies: Policies | None = None,
        timeouts: TimeoutSettings | None = None,
        limits: LimitSettings | None = None,
        client_ids: tuple[str, ...] = (),
        on_rotation: OnRotation = "keep",
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(inbound=inbound)
        self.endpoint.wire = MqttWire
        self.mqtt_metrics = self.metrics.listener("mqtt", "inbound" if inbound else "outbound")
        observer = ListenerObserver(self.mqtt_metrics, cast(Any, self.reporter), "iot")
        limits = limits or LimitSettings()

        def session(connection: MqttConnection) -> MqttSession:
            return PassThroughSession(
                connection,
                connection,
                MqttLimits(PacketLimits(packet=limits.packet), limits.clientID, limits.subscriptions),
                self.metrics.mqtt(),
                "the broker",
                peer_is_proxy=not inbound,
                recorder=recorder,
            )

        #: Makes the session of a connection.
        self.session: Callable[[MqttConnection], MqttSession] = session
        self.mqtt = MqttContext(
            name="iot",
            inbound=inbound,
            policies=(policies or admit_domain()) if inbound else None,
            rotation=cast(Any, self.rotation),
            reauthorization=self.reauthorization,
            turns=self.turns,
            metrics=self.mqtt_metrics,
            reporter=self.reporter,
            limits=limits,
            timeouts=timeouts or TimeoutSettings(),
            seconds=self.clock.seconds,
            wall=self.wall,
            on_rotation=on_rotation,
            endpoint=cast(Any, self.endpoint),
            upstream="the broker at 127.0.0.1:1883",
            unreachable=observer.upstream_unreachable,
            accepted=observer.upstream_accepted,
            ended=observer.upstream_ended,
            demanded=Level.NONE if recorder is None else Level.SIGN_REQUEST,
            maximum=Level.SIGN_REQUEST,
            client_ids=tuple(ClientIdTemplate.parse(each) for each in client_ids),
        )
        self.listener = Listener(self.mqtt, cast(Any, None), self.build_client)
        self.known: set[Connection] = self.listener._connections

    def build_client(self, known: set[Connection]) -> MqttConnection:
        """Build a connection of a client."""
        return MqttConnection(self.mqtt, known, self.session)

    def accept(self, svid: X509Svid = CALLER, version: Version = Version.V5) -> Device:
        """Accept a connection of a client."""
        wire = MqttWire(Handle(evidence_of(svid)) if self.mqtt.inbound else None)
        connection = self.build_client(self.known)
        connection.makeConnection(wire)
        return Device(self, connection, wire, version)

    def connect(self, svid: X509Svid = CALLER, version: Version = Version.V5, **more: Any) -> Device:
        """Accept a client and have the broker accept it, too."""
        device = self.accept(svid, version)
        device.send(Connect(more.pop("client_id", "c"), version, **more))
        device.broker_sends(Connack())
        device.take()
        device.broker_takes()
        return device

    def pass_time(self, seconds: float = 0.0) -> None:
        """Advance the clock and sweep, as the service does."""
        self.clock.advance(seconds)
        self.listener.sweep(self.clock.seconds(), self.wall())

    def apply(self, policies: Policies) -> None:
        """Put other policies into force."""
        self.listener.take_policies(policies)
        self.change()

    def value(self, name: str, **labels: str) -> float:
        """The value of a metric."""
        return self.registry.get_sample_value(name, labels) or 0.0

    def closed(self, cause: str) -> float:
        """How many connections were closed by a cause."""
        return self.value("svc_proxy_connections_closed_total", protocol="mqtt", cause=cause)

    def result(self, result: str) -> float:
        """How many connections have a result."""
        direction = "inbound" if self.mqtt.inbound else "outbound"
        return self.value("svc_proxy_connections_total", protocol="mqtt", direction=direction, result=result)


class Device:
    """A client, and its connection to the broker."""

    def __init__(self, rig: MqttRig, connection: MqttConnection, wire: MqttWire, version: Version) -> None:
        self.connection = connection
        self.wire = wire
        self._rig = rig
        self._version = version
        self._upstream: tuple[Any, Any] | None = None

    def _broker(self) -> tuple[Any, Any]:
        if self._upstream is None:
            self._upstream = next(
                each for each in reversed(self._rig.endpoint.connections) if each[0] is self.connection.upstream
            )
        return self._upstream

    @property
    def broker_wire(self) -> MqttWire:
        """The transport to the broker."""
        wire: MqttWire = self._broker()[1]
        return wire

    def send(self, *packets: Packet) -> None:
        """Send packets of the client."""
        self.connection.dataReceived(b"".join(encode(each, self._version, "client") for each in packets))

    def take(self) -> list[Packet]:
        """What the client got, and forget it."""
        return read(self.wire.take(), "server", self._version)

    def broker_sends(self, *packets: Packet) -> None:
        """Send packets of the broker."""
        self._broker()[0].dataReceived(b"".join(encode(each, self._version, "server") for each in packets))

    def broker_takes(self) -> list[Packet]:
        """What the broker got, and forget it."""
        return read(self.broker_wire.take(), "client", self._version)

    def leave(self, *, clean: bool = True) -> None:
        """The client's transport is closed."""
        lose(self.connection, self.wire, clean=clean)

    def broker_leaves(self, *, clean: bool = True) -> None:
        """The transport to the broker is closed."""
        lose(self._broker()[0], self.broker_wire, clean=clean)


def lose(end: Any, wire: MqttWire, *, clean: bool) -> None:
    """Close a transport as Twisted does: its producer is stopped first."""
    if wire.producer is not None:
        wire.producer.stopProducing()
    end.connectionLost(Failure(ConnectionDone() if clean else ConnectionLost()))

"""An MQTT listener with ``ack: middleware`` in memory: a real buffer, a manual clock, and a test that is the broker."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

from twisted.internet.defer import Deferred

from svc.identity import X509Svid
from svc.proxy.listener import Listener
from svc.proxy.mqtt.connection import MqttConnection
from svc.proxy.mqtt.interfaces import MqttLimits
from svc.proxy.mqtt.stored.forwarders import ForwardingListener, StoreAndForward
from svc.proxy.mqtt.stored.forwarding import ForwarderLimits
from svc.proxy.mqtt.stored.reports import BufferReports
from svc.proxy.mqtt.stored.session import BufferedMqttSession
from svc.telemetry.health import Health
from svc.wire.mqtt import Acknowledgement, Connack, Connect, Packet, PacketLimits, PacketType, Publish, Version, encode
from tests.proxy.mqtt.rig import Device, MqttRig, lose
from tests.proxy.mqtt.sessions import Recorder, read
from tests.proxy.mqtt.stored.buffering import OpenedBuffer
from tests.proxy.rig import CALLER

LIMITS = PacketLimits(packet=1024 * 1024)


class StoredRig(MqttRig):
    """
    One listener whose messages are stored in ``buffer``.

    ``sessions`` are those of the process, which outlive the listener; ``recorder`` records what clients publish.
    """

    def __init__(
        self,
        buffer: OpenedBuffer,
        *,
        inbound: bool = True,
        ack_upstream: Sequence[str] = (),
        sessions: StoreAndForward | None = None,
        limits: ForwarderLimits | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(inbound=inbound, recorder=recorder)
        self._recorder = recorder
        self.opened = buffer
        self.health = Health((), now=lambda: datetime(2026, 11, 21, tzinfo=UTC))
        reports = BufferReports(self.metrics.mqtt(), self.health, buffer.path, self.clock)
        self.sessions = sessions or StoreAndForward(
            buffer.make,
            limits or ForwarderLimits(),
            reports,
            clock=self.clock,
            wall=lambda: self.wall().timestamp(),
            random=lambda: 1.0,
        )
        self.mqtt.forwarding = forwarding = ForwardingListener(self.sessions, LIMITS, ack_upstream)
        forwarding.context = self.mqtt
        self.session = self._session
        self.listener = Listener(self.mqtt, cast(Any, None), self.build_client)
        self.known = self.listener._connections

    def _session(self, connection: MqttConnection) -> BufferedMqttSession:
        return BufferedMqttSession(
            connection,
            connection,
            MqttLimits(LIMITS, 256, 64),
            self.metrics.mqtt(),
            "the broker",
            lambda session, connect: self.sessions.attach(session, connect, connection),
            lambda: "assigned",
            receive_maximum=100,
            recorder=self._recorder,
        )

    def begin(self) -> None:
        """Open the buffer and the listener."""
        self.opened.result(Deferred.fromCoroutine(self.sessions.open()))
        self.mqtt.opened()
        self.settle()

    def settle(self, seconds: float = 0.0) -> None:
        """Let time pass and all work that waits be done."""
        self.clock.advance(seconds)
        for _turn in range(6):
            self.opened.step()
            self.clock.advance(0)

    def device(
        self, client_id: str = "c", version: Version = Version.V5, svid: X509Svid = CALLER, **more: Any
    ) -> Device:
        """A client that has sent CONNECT."""
        device = self.accept(svid, version)
        device.send(Connect(client_id, version, **more))
        self.settle()
        return device

    def close(self) -> None:
        """End the process in order."""
        self.opened.result(Deferred.fromCoroutine(self.sessions.close()))

    # -- The broker --------------------------------------------------------------------------------------------------

    @property
    def attempts(self) -> int:
        """How many connections to the broker were made."""
        return len(self.endpoint.connections)

    def broker_sends(self, *packets: Packet, number: int = -1, version: Version = Version.V5) -> None:
        """Send packets of the broker on one of its connections."""
        protocol, _wire = self.endpoint.connections[number]
        protocol.dataReceived(b"".join(encode(each, version, "server") for each in packets))
        self.settle()

    def broker_takes(self, number: int = -1, version: Version = Version.V5) -> list[Packet]:
        """What the broker got on one of its connections, and forget it."""
        return read(self.endpoint.connections[number][1].take(), "client", version)

    def broker_leaves(self, number: int = -1) -> None:
        """The broker closes one of its connections."""
        lose(*self.endpoint.connections[number], clean=True)  # type: ignore[arg-type]
        self.settle()

    def broker_accepts(self, *, present: bool = False) -> None:
        """The broker answers CONNECT of its newest connection."""
        self.broker_takes()
        self.broker_sends(Connack(present))

    def broker_acknowledges(self) -> list[Publish]:
        """Acknowledge the messages that the broker got with QoS 1; return them."""
        got = [each for each in self.broker_takes() if isinstance(each, Publish)]
        self.broker_sends(*(Acknowledgement(PacketType.PUBACK, each.packet_id) for each in got))
        return got

"""What all connections of one MQTT listener share."""

from __future__ import annotations

from dataclasses import dataclass

from svc.notary.level import Level
from svc.proxy.mqtt.artifacts.publisher import ArtifactPublisher
from svc.proxy.mqtt.client_ids import ClientIdTemplate
from svc.proxy.mqtt.interfaces import Forwarding
from svc.proxy.mqtt.recorder import PublishRecords
from svc.proxy.relayed_context import RelayedContext


@dataclass(slots=True, kw_only=True)
class MqttContext(RelayedContext):
    """As a TCP listener: each client has one connection to the upstream."""

    #: What client identifiers must match one of; empty for any.
    client_ids: tuple[ClientIdTemplate, ...] = ()
    #: The level that every message gets at least, and the strongest one.
    demanded: Level = Level.NONE
    maximum: Level = Level.NONE
    #: The records of messages; None where none is ever recorded.
    records: PublishRecords | None = None
    #: Publishes on the broker; None without ``artifacts`` in the configuration.
    artifacts: ArtifactPublisher | None = None
    #: Forwards what is stored; None with ``ack: upstream``.
    forwarding: Forwarding | None = None

    def opened(self) -> None:
        """Begin to publish and to forward."""
        if self.forwarding is not None:
            self.forwarding.begin()
        if self.artifacts is not None:
            self.artifacts.start()
            self.credentials_changed()

    def credentials_changed(self) -> None:
        """Publish new statements, and remove those of a former identity."""
        if self.artifacts is not None:
            self.artifacts.statements(each.statement for each in self.rotation.valid)

    def sweep(self, now: float) -> None:
        """Record what was not repeated in time; check the credentials of connections that forward stored messages."""
        if self.records is not None:
            self.records.sweep(now)
        if self.forwarding is not None:
            self.forwarding.sweep(self.wall())

    def close(self) -> None:
        """Record what is open and publish what waits; :class:`ArtifactPublishers` waits for the end of that."""
        if self.records is not None:
            self.records.close()
        if self.artifacts is not None:
            self.artifacts.stop()
        if self.forwarding is not None:
            self.forwarding.suspend()

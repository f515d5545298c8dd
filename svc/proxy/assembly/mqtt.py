"""From the configuration of an MQTT listener to the listener, and what all MQTT listeners share."""

from __future__ import annotations

import os
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING

from svc.notary.level import Level
from svc.process.clock import utc_now
from svc.proxy.assembly.endpoints import upstream_name
from svc.proxy.assembly.shared import ContextParts, ProxyParts, relayed_parts
from svc.proxy.config import ListenerSettings
from svc.proxy.listener import Listener
from svc.proxy.mqtt.artifacts.publisher import ArtifactPublisher, ArtifactPublishers
from svc.proxy.mqtt.artifacts.reports import ArtifactReports
from svc.proxy.mqtt.client_ids import ClientIdTemplate
from svc.proxy.mqtt.connection import MqttConnection
from svc.proxy.mqtt.context import MqttContext
from svc.proxy.mqtt.interfaces import MqttLimits, MqttSession
from svc.proxy.mqtt.passing.session import PassThroughSession
from svc.proxy.mqtt.recorder import PublishRecords
from svc.proxy.observers import ListenerObserver
from svc.wire.mqtt import PacketLimits

if TYPE_CHECKING:
    from svc.proxy.mqtt.stored.forwarders import ForwardingListener, StoreAndForward
    from svc.proxy.mqtt.stored.session import BufferedMqttSession


class MqttListeners:
    """Builds the MQTT listeners of one proxy."""

    def __init__(self, parts: ProxyParts) -> None:
        self._parts = parts
        #: Those of all listeners.
        self.publishers = ArtifactPublishers()
        #: The buffer of all listeners; None where none stores messages.
        self.stored = self._make_stored() if parts.settings.buffers else None
        self._artifact_reports: ArtifactReports | None = None

    def listener(self, settings: ListenerSettings, observer: ListenerObserver, shared: ContextParts) -> Listener:
        """Build a listener; nothing starts yet."""
        limits, metrics = settings.limits, self._parts.metrics.mqtt()
        session_limits = MqttLimits(
            PacketLimits(packet=limits.packet, filters=limits.subscriptions), limits.clientID, limits.subscriptions
        )

        forwarding = self._forwarding(settings, session_limits.packet)

        def session(connection: MqttConnection) -> MqttSession:
            if self.stored is not None and forwarding is not None:
                return self._buffered_session(self.stored, connection, session_limits, settings, records)
            return PassThroughSession(
                connection,
                connection,
                session_limits,
                metrics,
                upstream_name(settings),
                peer_is_proxy=settings.direction == "outbound",
                recorder=None if records is None else partial(connection.recorder, records),
            )

        inbound = settings.direction == "inbound"
        artifacts = self._artifact_publisher(settings, observer)
        records = self._publish_records(settings, artifacts)
        context = MqttContext(
            **relayed_parts(self._parts, settings, observer, shared),
            client_ids=tuple(ClientIdTemplate.parse(each) for each in settings.clientIDs),
            demanded=Level.parse(settings.notarization),
            maximum=Level.parse(settings.maxNotarization) if inbound else Level.NONE,
            records=records,
            artifacts=artifacts,
            forwarding=forwarding,
        )
        if forwarding is not None:
            forwarding.context = context
        evictions = context.evictions
        endpoint = self._parts.endpoints.server(
            settings, observer, (evictions.evict_closing, evictions.evict_unpermitted)
        )
        return Listener(context, endpoint, lambda connections: MqttConnection(context, connections, session))

    def _publish_records(
        self, settings: ListenerSettings, artifacts: ArtifactPublisher | None
    ) -> PublishRecords | None:
        if not settings.notarizes:
            return None
        return PublishRecords(
            self._parts.notarizer,
            self._parts.metrics.notary("mqtt"),
            self._parts.reports,
            settings.publish_bound(self._parts.notarizer.redaction),
            wall=utc_now,
            seconds=self._parts.reactor.seconds,
            listener=settings.name,
            stored=None if artifacts is None else artifacts.stored,
            released=self._parts.released,
        )

    def _forwarding(self, settings: ListenerSettings, packets: PacketLimits) -> ForwardingListener | None:
        if settings.ack != "middleware" or self.stored is None:
            return None
        from svc.proxy.mqtt.stored.forwarders import ForwardingListener

        return ForwardingListener(self.stored, packets, settings.ackUpstream)

    def _buffered_session(
        self,
        stored: StoreAndForward,
        connection: MqttConnection,
        limits: MqttLimits,
        settings: ListenerSettings,
        records: PublishRecords | None,
    ) -> BufferedMqttSession:
        from svc.proxy.mqtt.stored.session import BufferedMqttSession

        return BufferedMqttSession(
            connection,
            connection,
            limits,
            self._parts.metrics.mqtt(),
            upstream_name(settings),
            lambda session, connect: stored.attach(session, connect, connection),
            lambda: f"svc-{secrets.token_hex(8)}",
            receive_maximum=stored.limits.receive_maximum,
            peer_is_proxy=settings.direction == "outbound",
            recorder=None if records is None else partial(connection.recorder, records),
        )

    def _artifact_publisher(self, settings: ListenerSettings, observer: ListenerObserver) -> ArtifactPublisher | None:
        if settings.artifacts is None:
            return None
        if self._artifact_reports is None:
            self._artifact_reports = ArtifactReports(
                self._parts.metrics.mqtt(), self._parts.health, self._parts.reactor
            )
        publisher = ArtifactPublisher(
            settings.artifacts,
            listener=settings.name,
            upstream=str(settings.upstream),
            endpoint=self._parts.client_endpoint(settings, observer),
            clock=self._parts.reactor,
            turns=self._parts.turns,
            wall=utc_now,
            random=os.urandom,
            jitter=secrets.SystemRandom().random,
            observer=self._artifact_reports.listener(settings.name, settings.artifacts.prefix, str(settings.upstream)),
        )
        return self.publishers.add(publisher)

    def _make_stored(self) -> StoreAndForward:
        # Loaded here: a proxy without a buffer does not need sqlite3 for it.
        from svc.proxy.mqtt.stored.buffer.keys import BufferKeys
        from svc.proxy.mqtt.stored.buffer.store import MessageBuffer
        from svc.proxy.mqtt.stored.forwarders import StoreAndForward
        from svc.proxy.mqtt.stored.forwarding import ForwarderLimits
        from svc.proxy.mqtt.stored.reports import BufferReports

        settings = self._parts.settings.mqttBuffer
        reports = BufferReports(self._parts.metrics.mqtt(), self._parts.health, settings.path, self._parts.reactor)
        return StoreAndForward(
            lambda: MessageBuffer(
                settings.path,
                reactor=self._parts.reactor,
                keys=BufferKeys.read(settings.keys),
                encrypt_stored=settings.encryptStored,
                observer=reports,
                limits=settings.limits,
                reserve_size=settings.reserve,
            ),
            ForwarderLimits(when_full=settings.whenFull),
            reports,
            clock=self._parts.reactor,
            wall=time.time,
            random=secrets.SystemRandom().random,
        )

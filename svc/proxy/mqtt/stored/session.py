"""
A client's side of store-and-forward (``ack: middleware``), without I/O: what its packets may do.

Its messages, acknowledgements and the connection to the broker are those of a :class:`ClientForwarder`, which outlives
the client. Every packet is decoded; user properties, topics, filters and limits are as in
:mod:`svc.proxy.mqtt.passing.session`. Topic aliases end here in both directions, since connections to client and broker
do not begin and end together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from svc.errors import SvcError
from svc.naming import PROPERTY_NONCE
from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from svc.notary.publish import AckedBy
from svc.policy.engine import Denied
from svc.proxy.errors import ProxyError, PublishRefused
from svc.proxy.mqtt.admission import (
    MAX_ALIASES,
    admit,
    admitted,
    decide_again,
    filter_refusal,
    kept,
    last_disconnect,
    lowered,
    refusing_acknowledgement,
    refusing_connack,
    unreadable_connect,
    with_receipt,
)
from svc.proxy.mqtt.assigned_aliases import AssignedAliases
from svc.proxy.mqtt.errors import SessionNotStored, UpstreamSessionEnded
from svc.proxy.mqtt.interfaces import MqttLimits, RecordDemand, SessionEnds, TopicAuthorizer
from svc.proxy.mqtt.passing.session import OUTCOMES, Stage
from svc.proxy.mqtt.recorded import RecordedMessages
from svc.proxy.mqtt.recorder import PublishRecorder, publish_nonce
from svc.proxy.mqtt.stored.forwarding import AckSource, Admission
from svc.proxy.mqtt.subscribing import ClientFilters
from svc.telemetry.labels import Cause
from svc.telemetry.metrics import MqttMetrics
from svc.wire.mqtt import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Decoder,
    Disconnect,
    MqttError,
    Packet,
    PacketRefused,
    PacketType,
    ProtocolViolation,
    Publish,
    ReasonCode,
    ReturnCode,
    Suback,
    Subscribe,
    TopicAliasInvalid,
    Unsuback,
    Unsubscribe,
    Version,
    encode,
)

_V5: Final = Version.V5
#: Octets of a read that are decoded at once.
SLICE_OCTETS: Final = 1024
#: Topics of deliveries with a decision that is remembered.
MAX_DELIVERED: Final = 1024
#: Why a client is closed, by the reason that it gets; others are those of MQTT itself.
_CAUSES: Final[dict[int, Cause]] = {
    ReasonCode.QUOTA_EXCEEDED: "record",
    ReasonCode.SESSION_TAKEN_OVER: "client",
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: "upstream",
    ReasonCode.SERVER_SHUTTING_DOWN: "drain",
}


class ClientForwarder(Protocol):
    """The session of a client identifier; its calls back come before or after these return."""

    @property
    def waiting(self) -> bool:
        """
        Whether packets of the client wait and it is not read: :meth:`BufferedMqttSession.pace` is called when that
        begins, and :meth:`BufferedMqttSession.read_on` when it ends.
        """

    def client_connected(self, connect: Connect) -> None:
        """The client is admitted; CONNACK follows."""

    def client_packet(self, packet: Packet, demand: RecordDemand | None = None) -> None:
        """The client sent a packet that passes; ``demand`` is of a message that is to be recorded."""

    def publish_refused(self, refusal: Acknowledgement) -> None:
        """A PUBLISH does not pass, which the client is told by this PUBACK or PUBREC."""

    def admitted(self, client: BufferedMqttSession, *, admitted: bool) -> None:
        """What was to come ``LATER`` of :meth:`BufferedMqttSession.admit`."""

    def acknowledged(self, packet: Acknowledgement, source: AckSource, receipt: str) -> None:
        """PUBACK or PUBREC of a recorded message was sent; ``receipt`` may be empty."""

    def client_left(self, last: Disconnect | None) -> None:
        """The client sent DISCONNECT, or has gone otherwise, so that its will is published."""


class BufferedMqttSession:
    """
    See the module, and :class:`svc.proxy.mqtt.interfaces.MqttSession`.

    Args:
        attach: returns the session of a client identifier, which has no other client from then on; ClientIdRefused
            where it is that of another identity.
        assign: makes a client identifier.
        peer_is_proxy: whether the upstream is the proxy of a peer, which handles nonces.
        receive_maximum: messages with QoS above 0 that the client may send at once.
        recorder: makes the recorder of messages from version and client identifier; None without records.
    """

    def __init__(
        self,
        ends: SessionEnds,
        authorizer: TopicAuthorizer,
        limits: MqttLimits,
        metrics: MqttMetrics,
        upstream: str,
        attach: Callable[[BufferedMqttSession, Connect], ClientForwarder],
        assign: Callable[[], str],
        *,
        receive_maximum: int,
        peer_is_proxy: bool = False,
        recorder: Callable[[Version, str], PublishRecorder] | None = None,
    ) -> None:
        self._ends, self._authorizer = ends, authorizer
        self._limits, self._metrics = limits, metrics
        self._upstream_name = upstream
        self._attach = attach
        self._assign = assign
        self._receive_maximum = receive_maximum
        self._recorder = recorder
        self._records: RecordedMessages | None = None
        self._kept_of_messages = frozenset({PROPERTY_NONCE}) if peer_is_proxy else frozenset[str]()
        self._stage = Stage.CONNECT
        self._decoder = Decoder("client", limits=limits.packet)
        self._connect = Connect("")
        self._version = Version.V311
        self._v5 = self._held = self._reading = False
        #: Packets that were read and wait, and the octets behind them, from a position on.
        self._packets: deque[Packet | PacketRefused] = deque()
        self._undecoded, self._position = b"", 0
        self._assigned = ""
        self._forwarder: ClientForwarder | None = None
        self._aliases = AssignedAliases()
        self._aliases.maximum = MAX_ALIASES
        self._filters = ClientFilters(limits.subscriptions)
        #: Topics of messages that the client may get, where its subscriptions are from before this connection.
        self._delivered: set[str] | None = None
        self.keep_alive = 0

    @property
    def connect_received(self) -> bool:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`."""
        return self._stage is not Stage.CONNECT

    @property
    def connected(self) -> bool:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`."""
        return self._stage is Stage.OPEN

    @property
    def recording(self) -> bool:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`; what waits for the buffer alone is repeated."""
        return self._records is not None and self._records.waiting

    # -- The client --------------------------------------------------------------------------------------------------

    def client_received(self, data: bytes) -> None:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`."""
        if self._stage is Stage.ENDED:
            return
        if self._undecoded or len(data) > SLICE_OCTETS:
            self._undecoded, self._position = self._undecoded[self._position :] + data, 0
        else:
            self._packets.extend(self._decoder.feed(data))
        self.read_on()

    def read_on(self) -> None:
        """Go on with packets that wait, as far as they need not any more, until the turn is over."""
        if self._reading:
            return
        self._reading = True
        packets, steps, deadline = self._packets, 0, 0.0
        try:
            while packets or self._undecoded:
                if not packets:
                    self._decode_slice()
                    continue
                if self._waits(packets[0]):
                    break
                # The time is not looked at before the second packet.
                if steps == 1:
                    deadline = self._ends.turns.deadline()
                elif steps and self._ends.turns.over(deadline):
                    self._ends.client_waits()
                    break
                steps += 1
                packet = packets.popleft()
                if isinstance(packet, PacketRefused):
                    raise packet.error
                self._client_sent(packet)
        except MqttError as error:
            self._violated(error)
        finally:
            self._reading = False
        self.pace()

    def _decode_slice(self) -> None:
        events, self._position = self._decoder.feed_slice(self._undecoded, self._position)
        if self._position == len(self._undecoded):
            self._undecoded, self._position = b"", 0
        self._packets.extend(events)

    def _waits(self, packet: Packet | PacketRefused) -> bool:
        """Whether a packet of the client waits: for the forwarder, or a message for records."""
        if self._forwarder is not None and self._forwarder.waiting:
            return True
        return isinstance(packet, Publish) and self._records is not None and self._records.full

    def _client_sent(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self._publish(packet)
        elif isinstance(packet, Connect):
            self._begin(packet)
        elif isinstance(packet, Subscribe):
            self._subscribe(packet)
        elif isinstance(packet, Disconnect):
            self._leave(packet)
            self._finish("client")
        elif isinstance(packet, Auth):
            raise ProtocolViolation(packet="AUTH", defect="CONNECT named no authentication method")
        else:
            if isinstance(packet, Unsubscribe):
                self._filters.unsubscribing(packet)
            elif self._records is not None and packet.type is PacketType.PUBREL:
                self._records.released(packet.packet_id)
            if isinstance(packet, Acknowledgement | Unsubscribe):
                packet = replace(packet, properties=kept(packet.properties))
            self._forward(packet)

    def _forward(self, packet: Packet, demand: RecordDemand | None = None) -> None:
        if self._forwarder is not None:
            self._forwarder.client_packet(packet, demand)

    def _violated(self, error: MqttError) -> None:
        """The client broke MQTT; a first packet that is no CONNECT gets no answer [MQTT-3.1.4-1]."""
        if self._stage is not Stage.CONNECT:
            self.end("protocol", error.mqtt_reason, error)
            return
        if (connack := unreadable_connect(error)) is not None:
            self._write(connack)
        self._finish("protocol", error)

    def _begin(self, packet: Connect) -> None:
        self._connect, self._version = replace(packet, password=None), packet.version
        self._v5 = packet.version is _V5
        self._stage = Stage.CONNACK
        self.keep_alive = packet.keep_alive

        def decide() -> None:
            nonlocal packet
            admit(packet, self._limits.client_id, self._ends, self._authorizer)
            packet = self._forwarded(packet)
            self._forwarder = self._attach(self, packet)

        if admitted(self, self._ends, decide) and self._forwarder is not None:
            if self._recorder is not None:
                recorder = self._recorder(self._version, packet.client_id)
                self._receive_maximum = min(self._receive_maximum, recorder.limit)
                self._records = RecordedMessages(
                    recorder, self._receive_maximum, self._ends.write_client, self._recorded, self._record_failed
                )
            self._forwarder.client_connected(packet)

    def _forwarded(self, packet: Connect) -> Connect:
        """CONNECT as it is stored and sent to the broker."""
        if not packet.client_id:
            self._assigned = self._assign()
            self._authorizer.named(self._assigned)
            packet = replace(packet, client_id=self._assigned)
        if not self._v5:
            return packet
        properties = lowered(kept(packet.properties), self._limits.packet.packet).replace(topic_alias_maximum=None)
        will = packet.will and replace(packet.will, properties=kept(packet.will.properties))
        return replace(packet, properties=properties, will=will)

    def _publish(self, packet: Publish) -> None:
        alias = packet.properties.topic_alias
        if alias is not None and alias > MAX_ALIASES:
            raise TopicAliasInvalid(alias=alias)
        topic, demand = self._aliases.resolve(packet), None
        try:
            level = self._authorizer.publish(topic)
            if self._records is not None and level.recorded:
                demand = RecordDemand(level, publish_nonce(packet.properties))
            elif level is Level.WORKLOAD:
                self._metrics.at_workload.inc()
        except (Denied, PublishRefused) as error:
            self._ends.refused(error, "Publish", topic)
            if not self._v5:
                self._close_for(error)
            elif packet.qos and self._forwarder is not None:
                self._forwarder.publish_refused(refusing_acknowledgement(packet, error))
            return
        properties = packet.properties
        if properties.user:
            properties = kept(properties, self._kept_of_messages)
        if topic is not packet.topic or properties is not packet.properties:
            packet = replace(packet, topic=topic, properties=properties)
        self._forward(packet, demand)

    def _close_for(self, error: SvcError) -> None:
        """MQTT 3.1.1 has no reason code for a message that is refused: its client is closed."""
        self.end("policy_deny" if isinstance(error, Denied) else "record", ReasonCode.NOT_AUTHORIZED)

    def _subscribe(self, packet: Subscribe) -> None:
        codes = [
            filter_refusal(each.filter, self._filters, self._ends, self._authorizer, v5=self._v5)
            for each in packet.subscriptions
        ]
        if None not in codes:
            self._write(Suback(packet.packet_id, [code for code in codes if code is not None]))
            return
        if codes.count(None) < len(codes):
            self._filters.partly_refused(packet.packet_id, codes)
        passed = [each for each, code in zip(packet.subscriptions, codes, strict=True) if code is None]
        self._forward(replace(packet, subscriptions=passed, properties=kept(packet.properties)))

    # -- What the forwarder sends ------------------------------------------------------------------------------------

    def send(self, packet: Packet) -> None:
        """Send a packet of the forwarder or the broker; nothing where the session is over."""
        if self._stage is Stage.ENDED:
            return
        if isinstance(packet, Connack):
            packet = self._connack(packet)
        elif isinstance(packet, Publish):
            if not self._may_get(packet.topic):
                return
        elif isinstance(packet, Suback):
            try:
                packet = self._filters.merged(packet) or packet
            except ProtocolViolation as error:
                self.end("upstream", ReasonCode.SERVER_UNAVAILABLE, error)
                return
        elif isinstance(packet, Unsuback):
            self._filters.unsubscribed(packet)
        if isinstance(packet, Publish | Acknowledgement | Suback | Unsuback | Connack):
            properties = kept(packet.properties)
            if properties is not packet.properties:
                packet = replace(packet, properties=properties)
        self._write(packet)

    def admit(self, packet: Publish, demand: RecordDemand, *, stored: bool) -> Admission:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        records = self._records
        if records is None or self._stage is Stage.ENDED:
            return Admission.REFUSED
        results: list[ProxyError | None] = []
        later = False

        def begun(refusal: ProxyError | None) -> None:
            # The recorder has reported a refusal.
            if refusal is not None and stored:
                self._record_failed()
            elif refusal is not None:
                self._refuse_record(packet, refusal)
            if not later:
                results.append(refusal)
            elif self._forwarder is not None:
                self._forwarder.admitted(self, admitted=refusal is None)

        try:
            records.check(packet)
            records.begin(packet, demand.level, demand.nonce, begun)
        except MqttError as error:
            self._violated(error)
            return Admission.REFUSED
        if results:
            return Admission.ADMITTED if results[0] is None else Admission.REFUSED
        later = True
        return Admission.LATER

    def _refuse_record(self, packet: Publish, refusal: ProxyError) -> None:
        """As :meth:`svc.proxy.mqtt.passing.session.PassThroughSession`."""
        if not self._v5:
            self._close_for(refusal)
        elif packet.qos:
            self._write(refusing_acknowledgement(packet, refusal))
        elif refusal.retryable:
            self.end("record", refusal.mqtt_reason)

    def abandon(self, packet: Publish) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        if self._records is not None:
            self._records.abandon(packet)

    def handed_over(self) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        if self._records is not None:
            self._records.sent()

    def acknowledge(self, packet: Acknowledgement, source: AckSource, receipt: str, *, recorded: bool) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        if self._stage is not Stage.OPEN:
            return

        def encoded(made: str | None) -> bytes:
            if recorded and self._forwarder is not None:
                self._forwarder.acknowledged(packet, source, made or "")
            return encode(with_receipt(packet, made or receipt, self._connect), self._version, "server")

        if self._records is None:
            self._ends.write_client(encoded(None))
        else:
            self._records.responded(packet, encoded, AckedBy(source), recorded=recorded)

    def _recorded(self) -> None:
        """A record is durable, after which there may be room for others."""
        if self._records is not None and self._records.has_room:
            self.read_on()

    def _record_failed(self) -> None:
        """A record could not be made: the client is closed without an acknowledgement, and repeats the message."""
        if self._stage is not Stage.ENDED:
            self._leave(None)
            self._finish("record")

    def close(self, last: Connack | Disconnect | None, error: SvcError | None) -> None:
        """
        End the session for the forwarder, with this packet where the version has it; nothing is reported to it.

        CONNACK without an error is the broker's.
        """
        if self._stage is Stage.ENDED:
            return
        self._forwarder = None
        if isinstance(last, Connack):
            self._write(last)
            if error is not None:
                self._finish("record" if isinstance(error, SessionNotStored) else "protocol", error)
                return
            name = (ReasonCode if self._v5 else ReturnCode)(last.code).name.lower()
            refused = UpstreamSessionEnded("upstream_refused", upstream=self._upstream_name, what=name)
            self._finish("upstream", refused)
            return
        cause: Cause = "record" if last is None else _CAUSES.get(last.code, "protocol")
        if last is not None and self._v5 and self._stage is Stage.OPEN:
            self._write(last)
        self._finish(cause, error)

    def pace(self) -> None:
        """Read the client, or not; behind what is being handled."""
        if self._reading:
            return
        held = self._forwarder is not None and (self._forwarder.waiting or bool(self._packets))
        if held != self._held and self._stage is not Stage.ENDED:
            self._held = held
            self._ends.hold_client(held=held)

    def _connack(self, packet: Connack) -> Connack:
        self._stage = Stage.OPEN
        if packet.session_present:
            # The broker may have subscriptions that were permitted to an earlier connection and would be refused now.
            self._delivered = set()
        if not self._v5:
            return packet
        properties = lowered(packet.properties, self._limits.packet.packet).replace(
            topic_alias_maximum=MAX_ALIASES,
            receive_maximum=self._receive_maximum,
            assigned_client_id=self._assigned or None,
        )
        return replace(packet, properties=properties)

    def _may_get(self, topic: str) -> bool:
        if self._delivered is None or topic in self._delivered:
            return True
        try:
            self._authorizer.subscribe(topic)
        except Denied as denied:
            self._ends.refused(denied, "Subscribe", topic)
            self.end("reauthorization", ReasonCode.NOT_AUTHORIZED)
            return False
        if len(self._delivered) >= MAX_DELIVERED:
            self._delivered.clear()
        self._delivered.add(topic)
        return True

    # -- The end -----------------------------------------------------------------------------------------------------

    def client_lost(self) -> None:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`."""
        if self._stage is not Stage.ENDED:
            self._leave(None)
            self._finish("client")

    def upstream_opened(self) -> None:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`; the broker's connection is the forwarder's."""

    def upstream_received(self, data: bytes) -> None:
        """As :meth:`upstream_opened`."""

    def upstream_lost(self, error: ProxyError | None) -> None:
        """As :meth:`upstream_opened`."""

    def reauthorize(self) -> None:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`; what is stored was accepted."""
        if self._delivered is not None:
            self._delivered.clear()
        if self._stage in (Stage.CONNACK, Stage.OPEN):
            decide_again(self._connect, self._filters, self._authorizer)

    def end(self, cause: Cause, code: ReasonCode, error: SvcError | None = None, *, will: bool = True) -> None:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`."""
        if self._stage is Stage.ENDED:
            return
        if self._stage is Stage.CONNACK:
            self._write(refusing_connack(code, v5=self._v5))
        elif self._stage is Stage.OPEN and self._v5:
            self._write(last_disconnect(code))
        self._leave(None if will else Disconnect())
        self._finish(cause, error)

    def _leave(self, last: Disconnect | None) -> None:
        forwarder, self._forwarder = self._forwarder, None
        if forwarder is not None:
            forwarder.client_left(last)

    def _finish(self, cause: Cause, error: SvcError | None = None) -> None:
        self._stage = Stage.ENDED
        self._packets.clear()
        self._undecoded, self._position = b"", 0
        if self._records is not None:
            self._records.end(OUTCOMES.get(cause, ExchangeOutcome.SERVER_ABORTED))
        self._ends.close(cause, error)

    def _write(self, packet: Packet) -> None:
        self._ends.write_client(encode(packet, self._version, "server"))

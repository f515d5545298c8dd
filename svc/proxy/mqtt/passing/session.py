"""
A session that passes everything through, without I/O: which packets pass, which are refused, and what is sent instead.

Packet identifiers, session state, quotas, acknowledgements and the will are those of client and broker, and the proxy
keeps nothing that would have to outlive a connection. So what MQTT promises is what these two promise each other. The
octets of a packet pass as they are unless something in it must not.

What the proxy adds: a decision for the client, its will, each topic and each filter; ``svc-`` user properties are
removed; the limits of the proxy are lowered into CONNECT and CONNACK.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from svc.errors import SvcError
from svc.naming import PROPERTY_NONCE, PROPERTY_PREFIX, PROPERTY_RECEIPT_ID
from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from svc.policy.engine import Denied
from svc.proxy.errors import ProxyError, PublishRefused, UpstreamMalformed
from svc.proxy.mqtt.admission import (
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
from svc.proxy.mqtt.errors import UpstreamSessionEnded
from svc.proxy.mqtt.interfaces import MqttLimits, SessionEnds, TopicAuthorizer
from svc.proxy.mqtt.passing.packets import RUN_OCTETS, Framer, is_large, skip_run
from svc.proxy.mqtt.recorded import RecordedMessages
from svc.proxy.mqtt.recorder import PublishRecorder, publish_nonce
from svc.proxy.mqtt.subscribing import ClientFilters
from svc.telemetry.labels import Cause
from svc.telemetry.metrics import MqttMetrics
from svc.wire.mqtt import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    MqttError,
    Packet,
    PacketType,
    Publish,
    ReasonCode,
    ReturnCode,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Version,
    encode,
)
from svc.wire.mqtt.codes import Sender

#: Topics with a decision that is remembered, and the octets of the longest one.
MAX_TOPICS: Final = 1024
MAX_TOPIC_OCTETS: Final = 1024

_V5: Final = Version.V5
#: What others send under names of the proxy's own is removed.
_RESERVED: Final = PROPERTY_PREFIX.encode("ascii")
_DROPPED: Final = b""
_NOTHING: Final[frozenset[str]] = frozenset()
#: The packets of a client that pass before CONNACK; others wait for it.
_BEFORE_CONNACK: Final = (PacketType.CONNECT, PacketType.AUTH, PacketType.DISCONNECT)


#: How exchanges end whose connection ends by a cause, where it is not the proxy that ends them.
OUTCOMES: Final[dict[Cause, ExchangeOutcome]] = {
    "client": ExchangeOutcome.CLIENT_ABORTED,
    "timeout": ExchangeOutcome.TIMEOUT,
    "idle": ExchangeOutcome.TIMEOUT,
    "credentials_expired": ExchangeOutcome.CREDENTIALS_EXPIRED,
    "peer_expired": ExchangeOutcome.CREDENTIALS_EXPIRED,
}
#: The Receive Maximum of a broker that sends none.
_MOST_UNACKNOWLEDGED: Final = 65535

_WithProperties = Publish | Acknowledgement | Connack | Subscribe | Suback | Unsubscribe | Unsuback | Disconnect | Auth


class Stage(Enum):
    """Which packet a session waits for; OPEN: any."""

    CONNECT = auto()
    CONNACK = auto()
    OPEN = auto()
    ENDED = auto()


#: Looking up a member of an enumeration is a call each time.
_CONNECT, _CONNACK, _OPEN, _ENDED = Stage


class PassThroughSession:
    """
    See the module, and :class:`svc.proxy.mqtt.interfaces.MqttSession`.

    Args:
        ends: the two connections.
        authorizer: decides.
        limits: of the session.
        metrics: counts messages, and refusals of the broker.
        upstream: what errors call the broker.
        peer_is_proxy: whether the upstream is the proxy of a peer, which handles nonces and receipts.
        recorder: makes the recorder of messages from version and client identifier; None without records.
    """

    def __init__(
        self,
        ends: SessionEnds,
        authorizer: TopicAuthorizer,
        limits: MqttLimits,
        metrics: MqttMetrics,
        upstream: str,
        *,
        peer_is_proxy: bool = False,
        recorder: Callable[[Version, str], PublishRecorder] | None = None,
    ) -> None:
        self._ends = ends
        self._authorizer = authorizer
        self._limits = limits
        self._metrics = metrics
        self._upstream_name = upstream
        self._to_upstream_kept = frozenset({PROPERTY_NONCE}) if peer_is_proxy else _NOTHING
        self._to_client_kept = frozenset({PROPERTY_RECEIPT_ID}) if peer_is_proxy else _NOTHING
        self._recorder = recorder
        self._records: RecordedMessages | None = None
        #: Whether a message was recorded, or could be the repetition of one: every packet is looked at from then on.
        self._recording = False
        #: Messages with QoS 1 and 2 before that, which the broker has not acknowledged.
        self._unacknowledged = 0
        #: Whether the client is held until a message is admitted; a message that waits for the broker before that.
        self._admitting = False
        self._postponed: tuple[Publish, str] | None = None
        self._stage = _CONNECT
        self._from_client = Framer("client", None, limits.packet)
        self._from_upstream = Framer("server", None, limits.packet)
        self._connect = Connect("")
        self._version = Version.V311
        self._v5 = self._upstream_open = self._held = self._busy = False
        #: Octets that are sent at the end of a read.
        self._to_client: list[bytes] = []
        self._to_upstream: list[bytes] = []
        self._ending: tuple[Cause, SvcError | None] | None = None
        #: Until when what was read is handled; None at its beginning.
        self._deadline: float | None = None
        #: Encoded topic names to which the client may publish, and whether at the level ``workload``.
        self._topics: dict[bytes, bool] = {}
        #: The levels of topics, while messages are recorded.
        self._levels: dict[str, Level] = {}
        #: The same of which it may get messages, where these are decided on; see :meth:`_connack`.
        self._delivered: dict[bytes, bool] | None = None
        self._client_aliases = AssignedAliases()
        self._upstream_aliases = AssignedAliases()
        self._filters = ClientFilters(limits.subscriptions)
        self.keep_alive = 0

    @property
    def connect_received(self) -> bool:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`."""
        return self._stage is not _CONNECT

    @property
    def connected(self) -> bool:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`."""
        return self._stage is _OPEN

    @property
    def recording(self) -> bool:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`."""
        return self._records is not None and self._records.waiting

    # -- Octets of the client ----------------------------------------------------------------------------------------

    def client_received(self, data: bytes) -> None:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`."""
        framer, position = self._from_client, 0
        if framer.rest:
            data = framer.join(data)
        if not data or self._stage is _ENDED:
            return
        # User properties are looked at only where one of their names can be.
        without = _RESERVED if self._v5 and _RESERVED in data else b""
        if self._stage is _OPEN and not self._recording and not self._must_record():
            # Nearly every read ends here.
            position = self._skip_client(data, 0, without)
            if position == len(data):
                self._ends.write_upstream(data)
                return
        self._busy = True
        try:
            self._read_client(data, position, without)
        except MqttError as error:
            self._violated(error)
        finally:
            self._busy = False
        self._flush()
        if self._records is not None:
            self._records.sent()

    def _waits(self, kind: int) -> bool:
        """Whether a packet of the client waits: for CONNACK, for an admission, or for records."""
        if self._stage is _CONNACK:
            return kind not in _BEFORE_CONNACK
        if self._admitting or self._postponed is not None:
            return True
        return kind == PacketType.PUBLISH and self._records is not None and self._records.full

    def _read_on(self) -> None:
        """Read the client again where nothing holds it any more."""
        if self._busy or not self._held or self._stage is not _OPEN or self._admitting:
            return
        if self._postponed is not None:
            if self._unacknowledged > 0:
                return
            (packet, topic), self._postponed = self._postponed, None
            self._busy = True
            try:
                # The policies may have changed meanwhile.
                instead = self._record(packet, topic, self._authorizer.publish(topic))
            except Denied as denied:
                self._ends.refused(denied, "Publish", topic)
                instead = self._refuse_publish(packet, denied)
            except MqttError as error:
                self._violated(error)
                instead = _DROPPED
            self._forward_late(packet, instead)
        elif self._records is not None and not self._records.has_room:
            return
        if self._stage is _OPEN and not self._admitting:
            self._hold(held=False)
            self.client_received(b"")

    def _forward_late(self, packet: Publish, instead: bytes | None) -> None:
        """Send what the broker gets in place of a packet that has waited."""
        self._busy = False
        self._to_upstream.append(encode(packet, self._version, "client") if instead is None else instead)
        self._flush()
        if self._records is not None:
            self._records.sent()

    def _skip_client(self, data: bytes, position: int, without: bytes) -> int:
        if len(data) > RUN_OCTETS and not is_large(data, position):
            return self._skip_runs(data, position, lambda run: self._skip_client(run, 0, without))
        aliases = self._client_aliases.maximum > 0
        limit = self._from_client.limit
        position, publishes, _acknowledged, counted = skip_run(data, position, self._topics, limit, aliases, without)
        self._metrics.forwarded.inc(publishes)
        self._unacknowledged += publishes
        self._metrics.at_workload.inc(counted)
        return position

    def _skip_runs(self, data: bytes, position: int, skip: Callable[[bytes], int]) -> int:
        """Skip packets in runs, until one needs a closer look or the turn is over."""
        end, turns = len(data), self._ends.turns
        if self._deadline is None:
            self._deadline = turns.deadline()
        while position < end:
            passed = skip(data[position : position + RUN_OCTETS])
            position += passed
            if not passed or turns.over(self._deadline):
                return position
        self._deadline = None
        return position

    def _read_client(self, data: bytes, position: int, without: bytes) -> None:
        framer, out = self._from_client, self._to_upstream
        start, end = 0, len(data)
        try:
            while position < end and self._stage is not _ENDED:
                found = framer.find(data, position)
                if found is None:
                    break
                if (self._recording or self._stage is _CONNACK) and self._waits(data[position] >> 4):
                    self._hold(held=True)
                    break
                instead = self._client_sent(framer.decode(data, position, *found))
                if instead is not None:
                    if start < position:
                        out.append(data[start:position])
                    if instead:
                        out.append(instead)
                    start = found[1]
                position = found[1]
                if self._stage is _OPEN and not self._recording:
                    position = self._skip_client(data, position, without)
                if position < end and self._turn_over():
                    self._ends.client_waits()
                    break
        finally:
            # What came before a packet that is refused passes.
            if start < position:
                out.append(data[start:position])
        framer.keep(data, position)

    def _client_sent(self, packet: Packet) -> bytes | None:
        """Return what the broker gets in place of a packet; None to pass it on as it is."""
        if isinstance(packet, Publish):
            return self._publish(packet)
        if isinstance(packet, Subscribe):
            return self._subscribe(packet)
        if isinstance(packet, Unsubscribe):
            # To end a subscription takes no permission, and one that was refused does not exist at the broker.
            self._filters.unsubscribing(packet)
        elif isinstance(packet, Connect):
            return self._begin(packet)
        elif isinstance(packet, Disconnect):
            self._finish("client")
        elif self._recording and self._records is not None and packet.type is PacketType.PUBREL:
            self._records.released(packet.packet_id)
        if isinstance(packet, Acknowledgement | Unsubscribe | Disconnect | Auth):
            return self._passed(packet, "client")
        return None

    def _hold(self, *, held: bool) -> None:
        if held != self._held:
            self._held = held
            self._ends.hold_client(held=held)

    def _violated(self, error: MqttError) -> None:
        """The client broke MQTT; a first packet that is no CONNECT gets no answer [MQTT-3.1.4-1]."""
        if self._stage is not _CONNECT:
            self.end("protocol", error.mqtt_reason, error)
            return
        connack = unreadable_connect(error)
        if connack is not None:
            self._answer(encode(connack, Version.V311, "server"))
        self._finish("protocol", error)

    # -- The beginning -----------------------------------------------------------------------------------------------

    def _begin(self, packet: Connect) -> bytes:
        """Decide on CONNECT, which is sent when the broker is connected to."""
        self._connect, self._version = packet, packet.version
        self._v5 = packet.version is _V5
        self._from_client.open(packet.version)
        self._stage = _CONNACK
        self.keep_alive = packet.keep_alive
        if admitted(self, self._ends, lambda: admit(packet, self._limits.client_id, self._ends, self._authorizer)):
            self._hold(held=True)
            self._ends.open_upstream()
        return _DROPPED

    def upstream_opened(self) -> None:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`."""
        if self._stage is not _CONNACK:
            return
        packet, self._connect = self._connect, replace(self._connect, password=None)
        self._from_upstream = Framer("server", packet.version, self._limits.packet)
        if self._v5:
            properties = lowered(kept(packet.properties), self._limits.packet.packet)
            will = packet.will
            if will is not None:
                will = replace(will, properties=kept(will.properties))
            packet = replace(packet, properties=properties, will=will)
            self._upstream_aliases.maximum = properties.topic_alias_maximum or 0
        self._upstream_open = True
        self._ends.write_upstream(encode(packet, packet.version, "client"))
        self._hold(held=False)
        self.client_received(b"")

    def _connack(self, packet: Connack) -> bytes | None:
        if packet.code:
            reason = (ReasonCode if self._v5 else ReturnCode)(packet.code).name.lower()
            self._metrics.connack_rejected(reason)
            error = UpstreamSessionEnded("upstream_refused", upstream=self._upstream_name, what=reason)
            self._finish("upstream", error)
            return self._passed(packet, "server")
        self._from_upstream.open(self._version)
        self._stage = _OPEN
        if packet.session_present:
            # The broker may have subscriptions that were permitted to an earlier connection and would be refused now.
            self._delivered = {}
        properties = packet.properties
        receive_maximum = properties.receive_maximum or _MOST_UNACKNOWLEDGED
        most = self._begin_records(properties.assigned_client_id, receive_maximum)
        if not self._v5:
            return None
        if properties.server_keep_alive is not None:
            self.keep_alive = properties.server_keep_alive
        properties = lowered(kept(properties, self._to_client_kept), self._limits.packet.packet)
        if most < receive_maximum:
            properties = properties.replace(receive_maximum=most)
        self._client_aliases.maximum = properties.topic_alias_maximum or 0
        return encode(replace(packet, properties=properties), _V5, "server")

    def _begin_records(self, assigned: str | None, receive_maximum: int) -> int:
        """Begin to record, where that can be necessary; returns the Receive Maximum for the client."""
        if self._recorder is None:
            return receive_maximum
        recorder = self._recorder(self._version, self._connect.client_id or assigned or "")
        most = min(receive_maximum, recorder.limit)
        self._records = RecordedMessages(recorder, most, self._answer, self._read_on, lambda: self._finish("record"))
        return most

    # -- Messages of the client --------------------------------------------------------------------------------------

    def _publish(self, packet: Publish) -> bytes | None:
        topic = self._client_aliases.resolve(packet)
        level = self._levels.get(topic)
        try:
            if level is None:
                level = self._authorizer.publish(topic)
        except Denied as denied:
            self._ends.refused(denied, "Publish", topic)
            return self._refuse_publish(packet, denied)
        if not self._recording:
            if self._records is None or not level.recorded:
                if packet.topic:
                    _remember(self._topics, topic, counted=level is Level.WORKLOAD)
                return self._forward(packet, topic, level)
            self._record_all()
        if len(topic) <= MAX_TOPIC_OCTETS:
            if len(self._levels) >= MAX_TOPICS:
                self._levels.clear()
            self._levels[topic] = level
        return self._record(packet, topic, level)

    def _must_record(self) -> bool:
        """Whether the client may repeat or release a message of an earlier connection, which may end after CONNACK."""
        records = self._records
        if records is None or not records.may_repeat:
            return False
        self._record_all()
        return True

    def _record_all(self) -> None:
        """Look at every packet from now on."""
        self._recording = True
        self._topics.clear()

    def _record(self, packet: Publish, topic: str, level: Level) -> bytes | None:
        """Return what is sent to the broker now: nothing while the message waits for its admission."""
        records = self._records
        if records is None:
            raise TypeError("messages are recorded from CONNACK on")
        resolved = replace(packet, topic=topic)
        records.check(resolved)
        if not level.recorded:
            records.passed(resolved)
            return self._forward(packet, topic, level)
        if self._unacknowledged > 0:
            # Acknowledgements of earlier messages could not be told from that of this one.
            self._postponed = (packet, topic)
            self._hold(held=True)
            return _DROPPED
        try:
            nonce = publish_nonce(packet.properties)
        except PublishRefused as error:
            self._ends.refused(error, "Publish", topic)
            return self._refuse_publish(packet, error)
        results: list[ProxyError | None] = []

        def begun(refusal: ProxyError | None) -> None:
            if self._admitting:
                self._admitting = False
                self._busy = True
                self._forward_late(packet, self._begun(packet, topic, refusal))
                self._read_on()
            else:
                results.append(refusal)

        records.begin(resolved, level, nonce, begun)
        if results:
            return self._begun(packet, topic, results[0])
        self._admitting = True
        self._hold(held=True)
        return _DROPPED

    def _begun(self, packet: Publish, topic: str, refusal: ProxyError | None) -> bytes | None:
        # The recorder has reported a refusal of its own.
        return self._forward(packet, topic) if refusal is None else self._refuse_publish(packet, refusal)

    def _forward(self, packet: Publish, topic: str, level: Level | None = None) -> bytes | None:
        self._metrics.at_workload.inc(level is Level.WORKLOAD)
        if packet.qos:
            self._metrics.forwarded.inc()
            if not self._recording:
                self._unacknowledged += 1
        if self._client_aliases.passed(packet):
            packet = replace(packet, topic=topic)
            return encode(replace(packet, properties=kept(packet.properties, self._to_upstream_kept)), _V5, "client")
        return self._passed(packet, "client")

    def _refuse_publish(self, packet: Publish, error: SvcError) -> bytes:
        """MQTT 3.1.1 has no reason code for it, and QoS 0 of a message that might pass later: its client is closed."""
        self._client_aliases.refused(packet)
        if not self._v5:
            self.end("policy_deny" if isinstance(error, Denied) else "record", ReasonCode.NOT_AUTHORIZED)
        elif packet.qos:
            self._answer(encode(refusing_acknowledgement(packet, error), _V5, "server"))
        elif isinstance(error, ProxyError) and error.retryable:
            self.end("record", error.mqtt_reason)
        return _DROPPED

    # -- Subscriptions -----------------------------------------------------------------------------------------------

    def _subscribe(self, packet: Subscribe) -> bytes | None:
        codes = [
            filter_refusal(each.filter, self._filters, self._ends, self._authorizer, v5=self._v5)
            for each in packet.subscriptions
        ]
        if None not in codes:
            suback = Suback(packet.packet_id, [code for code in codes if code is not None])
            self._answer(encode(suback, self._version, "server"))
            return _DROPPED
        if codes.count(None) == len(codes):
            return self._passed(packet, "client")
        self._filters.partly_refused(packet.packet_id, codes)
        passed = [each for each, code in zip(packet.subscriptions, codes, strict=True) if code is None]
        packet = replace(packet, subscriptions=passed, properties=kept(packet.properties))
        return encode(packet, self._version, "client")

    # -- Octets of the broker ----------------------------------------------------------------------------------------

    def upstream_received(self, data: bytes) -> None:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`."""
        framer, position = self._from_upstream, 0
        if framer.rest:
            data = framer.join(data)
        if not data or self._stage is _ENDED:
            return
        without = _RESERVED if self._v5 and _RESERVED in data else b""
        if self._stage is _OPEN and not self._recording:
            position = self._skip_upstream(data, 0, without)
            if position == len(data):
                self._ends.write_client(data)
                return
        self._busy = True
        try:
            self._read_upstream(data, position, without)
        except MqttError as error:
            malformed = UpstreamMalformed(upstream=self._upstream_name, what=str(error))
            self.end("upstream", ReasonCode.SERVER_UNAVAILABLE, malformed)
        finally:
            self._busy = False
        self._flush()
        self._read_on()

    def _skip_upstream(self, data: bytes, position: int, without: bytes) -> int:
        if len(data) > RUN_OCTETS and not is_large(data, position):
            return self._skip_runs(data, position, lambda run: self._skip_upstream(run, 0, without))
        aliases = self._upstream_aliases.maximum > 0
        limit = self._from_upstream.limit
        position, _, acknowledged, _ = skip_run(data, position, self._delivered, limit, aliases, without)
        self._metrics.acknowledged.inc(acknowledged)
        self._unacknowledged -= acknowledged
        return position

    def _turn_over(self) -> bool:
        """Whether the rest of a read waits; asked after each packet, the clock is not read before the second."""
        if self._deadline is None:
            self._deadline = self._ends.turns.deadline()
            return False
        return self._ends.turns.over(self._deadline)

    def _read_upstream(self, data: bytes, position: int, without: bytes) -> None:
        framer, out = self._from_upstream, self._to_client
        start, end = 0, len(data)
        try:
            while position < end and self._stage is not _ENDED:
                found = framer.find(data, position)
                if found is None:
                    break
                octets = data[position : found[1]]
                instead = self._upstream_sent(framer.decode(data, position, *found), octets)
                if instead is not None:
                    if start < position:
                        out.append(data[start:position])
                    if instead:
                        out.append(instead)
                    start = found[1]
                position = found[1]
                if self._stage is _OPEN and not self._recording:
                    position = self._skip_upstream(data, position, without)
                if position < end and self._turn_over():
                    self._ends.upstream_waits()
                    break
        finally:
            if start < position:
                out.append(data[start:position])
        framer.keep(data, position)

    def _upstream_sent(self, packet: Packet, octets: bytes) -> bytes | None:
        """Return what the client gets in place of a packet; None to pass it on as it is."""
        if isinstance(packet, Acknowledgement):
            return self._acknowledged(packet, octets)
        if isinstance(packet, Publish):
            return self._deliver(packet)
        if isinstance(packet, Connack):
            return self._connack(packet)
        if isinstance(packet, Suback):
            merged = self._filters.merged(packet)
            if merged is not None:
                merged = replace(merged, properties=kept(packet.properties, self._to_client_kept))
                return encode(merged, self._version, "server")
        elif isinstance(packet, Unsuback):
            self._filters.unsubscribed(packet)
        elif isinstance(packet, Disconnect):
            self._finish("application")
        if isinstance(packet, Suback | Unsuback | Disconnect | Auth):
            return self._passed(packet, "server")
        return None

    def _acknowledged(self, packet: Acknowledgement, octets: bytes) -> bytes | None:
        if packet.type in (PacketType.PUBACK, PacketType.PUBREC):
            if packet.code < ReasonCode.UNSPECIFIED_ERROR:
                self._metrics.acknowledged.inc()
            untracked = self._records is None or not self._records.expects(packet.packet_id)
            if untracked and self._unacknowledged > 0:
                self._unacknowledged -= 1
            if self._recording and self._records is not None:
                passed = self._passed(packet, "server")
                octets = octets if passed is None else passed
                self._records.responded(packet, lambda receipt: self._with_receipt(packet, octets, receipt))
                return _DROPPED
        return self._passed(packet, "server")

    def _with_receipt(self, packet: Acknowledgement, octets: bytes, receipt: str | None) -> bytes:
        longer = with_receipt(packet, receipt, self._connect)
        return octets if longer is packet else encode(longer, _V5, "server")

    def _deliver(self, packet: Publish) -> bytes | None:
        if self._delivered is not None:
            topic = self._upstream_aliases.resolve(packet)
            try:
                self._authorizer.subscribe(topic)
            except Denied as denied:
                self._ends.refused(denied, "Subscribe", topic)
                self.end("reauthorization", ReasonCode.NOT_AUTHORIZED)
                return _DROPPED
            if packet.topic:
                _remember(self._delivered, topic, counted=False)
        return self._passed(packet, "server")

    # -- The end -----------------------------------------------------------------------------------------------------

    def client_lost(self) -> None:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`."""
        self._finish("client")

    def upstream_lost(self, error: ProxyError | None) -> None:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`."""
        if error is None:
            error = UpstreamSessionEnded("upstream_lost", upstream=self._upstream_name)
        cause: Cause = "application" if self._stage is _OPEN else "upstream"
        self.end(cause, ReasonCode.SERVER_UNAVAILABLE, error)

    def reauthorize(self) -> None:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`."""
        self._topics.clear()
        self._levels.clear()
        if self._delivered is not None:
            self._delivered.clear()
        if self._stage not in (_CONNACK, _OPEN):
            return
        decide_again(self._connect, self._filters, self._authorizer)

    def end(self, cause: Cause, code: ReasonCode, error: SvcError | None = None, *, will: bool = True) -> None:
        """See :class:`svc.proxy.mqtt.interfaces.MqttSession`."""
        if self._stage is _ENDED:
            return
        if self._stage is _CONNACK:
            self._to_client.append(encode(refusing_connack(code, v5=self._v5), self._version, "server"))
        elif self._stage is _OPEN and self._v5:
            self._to_client.append(encode(last_disconnect(code), _V5, "server"))
        if self._upstream_open and not will:
            self._to_upstream.append(encode(Disconnect(), self._version, "client"))
        self._finish(cause, error)

    def _finish(self, cause: Cause, error: SvcError | None = None) -> None:
        """End behind what is to be sent."""
        if self._stage is _ENDED:
            return
        self._stage = _ENDED
        self._ending = (cause, error)
        if self._records is not None:
            self._records.end(OUTCOMES.get(cause, ExchangeOutcome.SERVER_ABORTED))
        if not self._busy:
            self._flush()

    # -- Octets that are sent ----------------------------------------------------------------------------------------

    def _passed(self, packet: _WithProperties, sender: Sender) -> bytes | None:
        """Return a packet without user properties that do not pass; None where it has none."""
        names = _NOTHING
        if sender == "server":
            names = self._to_client_kept
        elif isinstance(packet, Publish):
            names = self._to_upstream_kept
        properties = kept(packet.properties, names)
        if properties is packet.properties:
            return None
        return encode(replace(packet, properties=properties), _V5, sender)

    def _answer(self, octets: bytes) -> None:
        """Send octets of the proxy's own to the client."""
        self._to_client.append(octets)
        if not self._busy:
            self._flush()

    def _flush(self) -> None:
        """Send what a read has led to, one write for each side."""
        to_client, to_upstream = self._to_client, self._to_upstream
        self._deadline = None
        if to_upstream:
            octets = to_upstream[0] if len(to_upstream) == 1 else b"".join(to_upstream)
            to_upstream.clear()
            self._ends.write_upstream(octets)
        if to_client:
            octets = to_client[0] if len(to_client) == 1 else b"".join(to_client)
            to_client.clear()
            self._ends.write_client(octets)
        ending, self._ending = self._ending, None
        if ending is not None:
            self._ends.close(*ending)


def _remember(topics: dict[bytes, bool], topic: str, *, counted: bool) -> None:
    encoded = topic.encode()
    if len(encoded) <= MAX_TOPIC_OCTETS:
        if len(topics) >= MAX_TOPICS:
            topics.clear()
        topics[encoded] = counted

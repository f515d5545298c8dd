"""
The packets of one connected client, and the responses to them.

Owns the state of a connection: its parameters and the topic aliases of the client. Pure. A :class:`Client` exists from
CONNACK on; see :func:`admit_client`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from svc.broker.access import Principal
from svc.broker.client_sink import ClientSink, ConnectParameters
from svc.broker.errors import AnswerTooLarge, BrokerError, StoreRefuses
from svc.broker.hub import Hub
from svc.broker.message import Message
from svc.broker.session import RECEIVE_TOLERANCE, Session
from svc.broker.subscriptions import CACHED_TOPIC_LENGTH
from svc.wire.mqtt import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Properties,
    ProtocolViolation,
    Publish,
    ReasonCode,
    Suback,
    Subscribe,
    Subscription,
    TopicAliasInvalid,
    Unsuback,
    Unsubscribe,
    Version,
    encode,
)
from svc.wire.mqtt.codes import SUBSCRIPTION_REFUSED
from svc.wire.mqtt.primitives import encode_variable
from svc.wire.mqtt.properties import NO_PROPERTIES

#: Access to a member of an enumeration is a function call each time, which is measurable for each packet.
_PUBREL: Final = PacketType.PUBREL
_SUCCESS: Final = ReasonCode.SUCCESS
#: Octets of the shortest CONNACK.
_SHORTEST: Final = 5
#: Topics for which it is cached whether a client may publish to them.
_CACHED_TOPICS: Final = 1000


def admit_client(
    hub: Hub,
    packet: Connect,
    principal: Principal,
    sink: ClientSink,
    on_admitted: Callable[[Client], None],
    *,
    packet_limit: int,
    keep_alive_limit: int,
) -> None:
    """
    Admit a client; CONNACK is sent once its session is durable.

    Args:
        hub: the core.
        packet: the first packet of the connection.
        principal: the client.
        sink: writes to it.
        on_admitted: called with the client after CONNACK; no packet may be processed before.
        packet_limit: octets of the largest packet that is accepted.
        keep_alive_limit: the longest keep alive in seconds; announced to clients of MQTT 5.0.

    Raises:
        BrokerError: the client is refused; nothing was sent.
    """
    keep_alive = packet.keep_alive
    if packet.version is Version.V5 and not 0 < keep_alive <= keep_alive_limit:
        keep_alive = keep_alive_limit
    if packet.properties.maximum_packet_size is not None:
        # Before any change: a client that cannot get its CONNACK is not admitted. Assigned identifiers have one length.
        client_id = packet.client_id or hub.random_name()
        _connack_properties(hub, packet, hub.expiry(packet), client_id, packet_limit, keep_alive)
    admission = hub.admit(packet, principal)

    def durable() -> None:
        session = admission.session
        if hub.sessions.get(session.client_id) is not session or session.admission is not admission:
            # A later connection was admitted to the session meanwhile.
            sink.close(ReasonCode.SESSION_TAKEN_OVER)
            return
        if sink.ended:
            hub.abandon(admission)
            return
        properties = _connack_properties(hub, packet, admission.expiry, session.client_id, packet_limit, keep_alive)
        sink.send(Connack(admission.present, 0, properties))
        client = Client(hub, session, admission.principal, sink, packet, keep_alive)
        # The session's messages come before the responses to what the client sent along with CONNECT.
        client.resume()
        on_admitted(client)

    if admission.recorded:
        hub.journal.when_durable(durable)
    else:
        durable()


def _connack_properties(
    hub: Hub, packet: Connect, expiry: int | None, client_id: str, packet_limit: int, keep_alive: int
) -> Properties:
    if packet.version is not Version.V5:
        return NO_PROPERTIES
    properties = Properties(
        session_expiry=None if expiry == (packet.properties.session_expiry or 0) else expiry,
        assigned_client_id=None if packet.client_id else client_id,
        server_keep_alive=None if keep_alive == packet.keep_alive else keep_alive,
        receive_maximum=hub.limits.session.received,
        topic_alias_maximum=hub.limits.session.aliases or None,
        maximum_packet_size=packet_limit,
    )
    largest = packet.properties.maximum_packet_size
    return properties if largest is None else _shorten(properties, largest)


def _shorten(properties: Properties, largest: int) -> Properties:
    """Leave topic aliases out of CONNACK where it is too large for the client otherwise [MQTT-3.1.2-24]."""
    # The other properties bind the client, so they cannot be left out.
    if _connack_size(properties) > largest:
        properties = properties.replace(topic_alias_maximum=None)
    octets = _connack_size(properties)
    if octets > largest:
        raise AnswerTooLarge(packet="CONNACK", octets=octets, limit=largest)
    return properties


def _connack_size(properties: Properties) -> int:
    return len(encode(Connack(properties=properties), Version.V5, "server"))


class Client:
    """
    One connection from CONNACK on.

    Attributes:
        keep_alive: the keep alive in force, in seconds; 0 is none.
    """

    def __init__(
        self, hub: Hub, session: Session, principal: Principal, sink: ClientSink, connect: Connect, keep_alive: int
    ) -> None:
        self.keep_alive: Final = keep_alive
        self.session: Final = session
        self.principal: Final = principal
        self._hub = hub
        self._sink = sink
        self._v5 = connect.version is Version.V5
        self._no_expiry_in_connect = not connect.properties.session_expiry
        self._aliases: dict[int, str] = {}
        self._may_publish_to: dict[str, bool] = {}
        properties = connect.properties
        self._largest = properties.maximum_packet_size
        parameters = ConnectParameters(
            connect.version,
            properties.receive_maximum or 65_535,
            properties.maximum_packet_size,
            min(properties.topic_alias_maximum or 0, hub.limits.session.aliases),
        )
        session.attach(sink, parameters)
        hub.statistics.accepted += 1
        hub.statistics.connected += 1

    def resume(self) -> None:
        """Send the session's messages to the client."""
        self.session.resume(self._hub.now())
        self._hub.feed.proceed(self.session)

    def on_writable(self) -> None:
        """Go on sending after congestion of the sink."""
        self.session.send_queued(self._hub.now())
        self._hub.feed.proceed(self.session)

    def rules_changed(self) -> None:
        """Apply changed access rules: end subscriptions that are not allowed any more."""
        self._may_publish_to.clear()
        self._hub.end_disallowed_subscriptions(self.session, self.principal)

    def connection_lost(self, *, with_will: bool = True) -> None:
        """End the connection; without publishing the will after a DISCONNECT with reason 0 [MQTT-3.14.4-3]."""
        self._hub.statistics.connected -= 1
        self._hub.connection_ended(self.session, self._sink, with_will=with_will)

    def received(self, packet: Packet) -> Disconnect | Publish | None:
        """
        Process any packet that the decoder accepts from a client.

        Returns:
            The DISCONNECT that ends the connection; a PUBLISH that was not processed, as acknowledgements must be
            written first: it is to be passed again when the journal is durable, before later packets; else None.

        Raises:
            MqttError: the client broke the protocol.
            BrokerError: the connection is to be ended.
        """
        if isinstance(packet, Publish):
            return self._publish(packet)
        if isinstance(packet, Acknowledgement):
            if packet.type is _PUBREL:
                self.session.on_pubrel(packet)
            else:
                self.session.on_acknowledgement(packet, self._hub.now())
                self._hub.feed.proceed(self.session)
        elif isinstance(packet, Subscribe):
            self._check_response_size("SUBACK", len(packet.subscriptions))
            self._subscribe(packet)
        elif isinstance(packet, Unsubscribe):
            self._check_response_size("UNSUBACK", len(packet.filters))
            self._unsubscribe(packet)
        elif isinstance(packet, Disconnect):
            return self._disconnect(packet)
        elif isinstance(packet, Auth):
            raise ProtocolViolation(packet="AUTH", defect="CONNECT had no authentication method")
        elif isinstance(packet, Pingreq):
            self._sink.send(Pingresp())
        return None

    def _check_response_size(self, packet: str, codes: int) -> None:
        """Refuse a request whose response would be too large for the client [MQTT-3.1.2-24]."""
        if self._largest is not None:
            rest = 3 + codes
            octets = 1 + len(encode_variable(rest)) + rest
            if octets > self._largest:
                raise AnswerTooLarge(packet=packet, octets=octets, limit=self._largest)

    def _publish(self, packet: Publish) -> Publish | None:
        hub, session = self._hub, self.session
        if session.pending_acks and packet.qos and session.receive_window_full:
            return packet
        topic = self._topic(packet)
        # A duplicate was authorized and published when it was received first.
        duplicate = packet.qos == 2 and session.is_duplicate(packet)
        allowed = duplicate or self._may_publish(topic)
        too_many = packet.qos == 2 and self._v5 and not duplicate and session.exceeds_receive_maximum
        if session.pending_acks and (too_many or (packet.qos and not allowed and not self._v5)):
            # It ends the connection. Without the pending acknowledgements the client would send the same messages
            # again.
            return packet
        hub.statistics.received += 1
        hub.statistics.received_octets += len(packet.payload)
        if too_many:
            raise BrokerError("mqtt_receive_maximum", limit=RECEIVE_TOLERANCE * hub.limits.session.received)
        if duplicate:
            session.acknowledge(packet, _SUCCESS)
            return None
        if not allowed:
            self._deny(packet)
            return None
        accepting = hub.journal.accepting
        if not packet.qos:
            hub.publish(self._message(packet, topic), may_retain=accepting)
            return None
        if not accepting:
            self._refuse_for_now(packet)
            return None
        session.accept(packet)
        matched = hub.publish(self._message(packet, topic))
        session.acknowledge(packet, _SUCCESS if matched else ReasonCode.NO_MATCHING_SUBSCRIBERS)
        return None

    def _message(self, packet: Publish, topic: str) -> Message:
        session = self.session
        return Message.from_publish(packet, topic, session.client_id, self._hub.now(), session.owner)

    def _topic(self, packet: Publish) -> str:
        alias = packet.properties.topic_alias
        if alias is None:
            return packet.topic
        if alias > self._hub.limits.session.aliases:
            raise TopicAliasInvalid(alias=alias)
        if packet.topic:
            self._aliases[alias] = packet.topic
            return packet.topic
        topic = self._aliases.get(alias)
        if topic is None:
            raise BrokerError("mqtt_alias_unknown", alias=alias)
        return topic

    def _may_publish(self, topic: str) -> bool:
        allowed = self._may_publish_to.get(topic)
        if allowed is None:
            allowed = self._hub.guard.may_publish(self.principal, topic)
            if len(topic) <= CACHED_TOPIC_LENGTH:
                if len(self._may_publish_to) >= _CACHED_TOPICS:
                    self._may_publish_to.clear()
                self._may_publish_to[topic] = allowed
        return allowed

    def _deny(self, packet: Publish) -> None:
        """Deny a message; MQTT 3.1.1 has no code for it, so its connection ends [MQTT-3.3.5-2]."""
        self._hub.denied(self.principal, self.session.client_id, "publish")
        if not packet.qos:
            return
        if not self._v5:
            raise BrokerError("mqtt_not_authorized", action="publish to this topic")
        self.session.reject(packet, ReasonCode.NOT_AUTHORIZED)

    def _refuse_for_now(self, packet: Publish) -> None:
        """Refuse a message that would not be durable; MQTT 3.1.1 has no code for it, so its connection ends."""
        if not self._v5:
            raise StoreRefuses
        self._hub.statistics.dropped("store_refuses")
        self.session.reject(packet, ReasonCode.QUOTA_EXCEEDED)

    def _subscribe(self, packet: Subscribe) -> None:
        hub, session = self._hub, self.session
        identifiers = packet.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else None
        codes: list[int] = []
        granted: list[tuple[Subscription, bool]] = []
        for subscription in packet.subscriptions:
            code = self._grant(subscription)
            codes.append(code)
            if code < 0x80:
                granted.append((subscription, hub.subscribe(session, subscription, identifier)))

        def durable() -> None:
            self._sink.send(Suback(packet.packet_id, codes))
            for subscription, new in granted:
                hub.send_retained(session, subscription, new=new)
            hub.feed.proceed(session)

        session.when_durable(durable)

    def _grant(self, subscription: Subscription) -> int:
        """Return the SUBACK code of one filter; MQTT 3.1.1 has one code for all refusals."""
        if not self._hub.guard.may_subscribe(self.principal, subscription.filter):
            self._hub.denied(self.principal, self.session.client_id, "subscribe")
            return ReasonCode.NOT_AUTHORIZED if self._v5 else SUBSCRIPTION_REFUSED
        if not self.session.subscriptions.has_room_for(subscription.filter):
            return ReasonCode.QUOTA_EXCEEDED if self._v5 else SUBSCRIPTION_REFUSED
        if self.session.persistent and not self._hub.journal.accepting:
            return ReasonCode.QUOTA_EXCEEDED if self._v5 else SUBSCRIPTION_REFUSED
        return subscription.qos

    def _unsubscribe(self, packet: Unsubscribe) -> None:
        found = [self._hub.unsubscribe(self.session, topic_filter) for topic_filter in packet.filters]
        codes: list[int] = [ReasonCode.SUCCESS if each else ReasonCode.NO_SUBSCRIPTION_EXISTED for each in found]
        self.session.when_durable(lambda: self._sink.send(Unsuback(packet.packet_id, codes if self._v5 else [])))

    def _disconnect(self, packet: Disconnect) -> Disconnect:
        expiry = packet.properties.session_expiry
        if expiry is not None:
            if expiry and self._no_expiry_in_connect:
                raise ProtocolViolation(packet="DISCONNECT", defect="the session expiry of CONNECT was 0")
            self.session.expiry = min(expiry, self._hub.limits.session_expiry)
        return packet


def refusal_connack(error: BrokerError, version: Version) -> Connack | None:
    """
    Make the CONNACK that refuses a connection.

    Returns:
        None where MQTT 3.1.1 has no code for the error [MQTT-3.2.2-6], or where the client accepts no CONNACK.
    """
    if isinstance(error, AnswerTooLarge) and error.limit < _SHORTEST:
        return None
    if version is Version.V5:
        return Connack(code=error.mqtt_reason)
    return None if error.return_code is None else Connack(code=error.return_code)

"""
What one connected client says, and what it is answered.

Owns what lasts as long as a connection: the terms, the aliases that the client gives to topics. Pure. Before CONNACK
there is no client: see :func:`greet`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from svc.broker.access import Principal
from svc.broker.errors import (
    AliasUnknown,
    AnswerTooLarge,
    BrokerError,
    NotAllowed,
    ReceiveMaximumExceeded,
    StoreRefuses,
)
from svc.broker.hub import Hub
from svc.broker.message import Message
from svc.broker.outlet import Outlet, Terms
from svc.broker.session import Session
from svc.broker.subscriptions import REMEMBERED_TOPIC
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
from svc.wire.mqtt.primitives import variable
from svc.wire.mqtt.properties import NONE

#: A member of an enumeration is looked up by a call each time, which shows where every packet does it.
_PUBREL: Final = PacketType.PUBREL
_SUCCESS: Final = ReasonCode.SUCCESS
#: Octets of the shortest CONNACK.
_SHORTEST: Final = 5


def greet(
    hub: Hub,
    packet: Connect,
    principal: Principal,
    outlet: Outlet,
    ready: Callable[[Client], None],
    *,
    packet_limit: int,
    keep_alive_limit: int,
) -> None:
    """
    Admit a client; CONNACK is sent once its session is safe.

    Args:
        hub: the broker.
        packet: the first packet of the connection.
        principal: who sent it.
        outlet: writes to it.
        ready: called with the client behind CONNACK; nothing of it may be read before.
        packet_limit: octets of the largest packet that is accepted.
        keep_alive_limit: the longest keep alive in seconds; a client of MQTT 5.0 is told.

    Raises:
        BrokerError: it is refused; nothing was sent.
    """
    keep_alive = packet.keep_alive
    if packet.version is Version.V5 and not 0 < keep_alive <= keep_alive_limit:
        keep_alive = keep_alive_limit
    if packet.properties.maximum_packet_size is not None:
        # Before anything has changed: one who cannot be told is not admitted. Given names are all of one length.
        _told(hub, packet, hub.expiry(packet), packet.client_id or hub.random_name(), packet_limit, keep_alive)
    admission = hub.admit(packet, principal)

    def safe() -> None:
        session = admission.session
        if hub.sessions.get(session.client_id) is not session or session.claim is not admission:
            # Another connection came for the session while this one waited; the last one has it.
            outlet.close(ReasonCode.SESSION_TAKEN_OVER)
            return
        if outlet.ended:
            hub.abandoned(admission)
            return
        properties = _told(hub, packet, admission.expiry, session.client_id, packet_limit, keep_alive)
        outlet.send(Connack(admission.present, 0, properties))
        client = Client(hub, session, principal, outlet, packet, keep_alive)
        # What the session has comes before anything that the client asked for along with CONNECT.
        client.resume()
        ready(client)

    if admission.recorded:
        hub.journal.safe(safe)
    else:
        safe()


def _told(
    hub: Hub, packet: Connect, expiry: int | None, client_id: str, packet_limit: int, keep_alive: int
) -> Properties:
    if packet.version is not Version.V5:
        return NONE
    properties = Properties(
        session_expiry=None if expiry == (packet.properties.session_expiry or 0) else expiry,
        assigned_client_id=None if packet.client_id else client_id,
        server_keep_alive=None if keep_alive == packet.keep_alive else keep_alive,
        receive_maximum=hub.limits.session.received,
        topic_alias_maximum=hub.limits.session.aliases or None,
        maximum_packet_size=packet_limit,
    )
    largest = packet.properties.maximum_packet_size
    return properties if largest is None else _shortened(properties, largest)


def _shortened(properties: Properties, largest: int) -> Properties:
    """Leave topic aliases out of CONNACK where the client does not accept its size otherwise [MQTT-3.1.2-24]."""
    # Anything else that it says binds the client, who would not keep what it was not told.
    if _connack_size(properties) > largest:
        properties = properties.replaced(topic_alias_maximum=None)
    octets = _connack_size(properties)
    if octets > largest:
        raise AnswerTooLarge(packet="CONNACK", octets=octets, limit=largest)
    return properties


def _connack_size(properties: Properties) -> int:
    return len(encode(Connack(properties=properties), Version.V5, "server"))


class Client:
    """
    One connection behind CONNACK.

    Args:
        hub: the broker.
        session: its session.
        principal: who it is.
        outlet: writes to it.
        connect: its CONNECT.
        keep_alive: seconds that are in force; 0 is never.

    Attributes:
        keep_alive: the same.
    """

    def __init__(
        self, hub: Hub, session: Session, principal: Principal, outlet: Outlet, connect: Connect, keep_alive: int
    ) -> None:
        self.keep_alive: Final = keep_alive
        self.session: Final = session
        self.principal: Final = principal
        self._hub = hub
        self._outlet = outlet
        self._v5 = connect.version is Version.V5
        self._began_without_expiry = not connect.properties.session_expiry
        self._aliases: dict[int, str] = {}
        self._allowed: dict[str, bool] = {}
        properties = connect.properties
        self._largest = properties.maximum_packet_size
        terms = Terms(
            connect.version,
            properties.receive_maximum or 65_535,
            properties.maximum_packet_size,
            min(properties.topic_alias_maximum or 0, hub.limits.session.aliases),
        )
        session.attach(outlet, terms)
        hub.statistics.accepted += 1
        hub.statistics.connected += 1

    def resume(self) -> None:
        """Send what the session has for the client."""
        self.session.resume(self._hub.now())
        self._hub.feed.go_on(self.session)

    def eased(self) -> None:
        """Go on after congestion of the outlet."""
        self.session.eased(self._hub.now())
        self._hub.feed.go_on(self.session)

    def lost(self, *, with_will: bool = True) -> None:
        """
        The connection is over.

        Args:
            with_will: False after a DISCONNECT with reason 0 [MQTT-3.14.4-3].
        """
        self._hub.statistics.connected -= 1
        self._hub.connection_ended(self.session, self._outlet, with_will=with_will)

    def received(self, packet: Packet) -> Disconnect | None:
        """
        Take a packet.

        Args:
            packet: any packet that the decoder lets a client send.

        Returns:
            The DISCONNECT that ends the connection, or None.

        Raises:
            MqttError: the client broke the protocol.
            BrokerError: the broker refuses to go on.
        """
        if isinstance(packet, Publish):
            self._publish(packet)
        elif isinstance(packet, Acknowledgement):
            if packet.type is _PUBREL:
                self.session.released(packet)
            else:
                self.session.acknowledged(packet, self._hub.now())
                self._hub.feed.go_on(self.session)
        elif isinstance(packet, Subscribe):
            self._judge_answer("SUBACK", len(packet.subscriptions))
            self._subscribe(packet)
        elif isinstance(packet, Unsubscribe):
            self._judge_answer("UNSUBACK", len(packet.filters))
            self._unsubscribe(packet)
        elif isinstance(packet, Disconnect):
            return self._disconnect(packet)
        elif isinstance(packet, Auth):
            raise ProtocolViolation(packet="AUTH", defect="no authentication method was agreed on")
        elif isinstance(packet, Pingreq):
            self._outlet.send(Pingresp())
        return None

    def _judge_answer(self, packet: str, codes: int) -> None:
        """Begin nothing that could not be answered [MQTT-3.1.2-24]."""
        if self._largest is not None:
            rest = 3 + codes
            octets = 1 + len(variable(rest)) + rest
            if octets > self._largest:
                raise AnswerTooLarge(packet=packet, octets=octets, limit=self._largest)

    def _publish(self, packet: Publish) -> None:
        hub, session = self._hub, self.session
        hub.statistics.received += 1
        hub.statistics.received_octets += len(packet.payload)
        topic = self._topic(packet)
        if not session.accepts(packet):
            raise ReceiveMaximumExceeded(limit=hub.limits.session.received)
        if session.knows(packet):
            # It was judged when it came for the first time, and what it caused is done.
            session.answer(packet, _SUCCESS)
            return
        if not self._may_publish(topic):
            self._refuse(packet)
            return
        accepting = hub.journal.accepting
        if not packet.qos:
            hub.publish(Message.from_publish(packet, topic, session.client_id, hub.now()), keep=accepting)
            return
        if not accepting:
            self._refuse_for_now(packet)
            return
        session.begin(packet)
        matched = hub.publish(Message.from_publish(packet, topic, session.client_id, hub.now()))
        session.answer(packet, _SUCCESS if matched else ReasonCode.NO_MATCHING_SUBSCRIBERS)

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
            raise AliasUnknown(alias=alias)
        return topic

    def _may_publish(self, topic: str) -> bool:
        known = self._allowed.get(topic)
        if known is None:
            known = self._hub.guard.may_publish(self.principal, topic)
            if len(topic) <= REMEMBERED_TOPIC:
                if len(self._allowed) >= 1000:
                    self._allowed.clear()
                self._allowed[topic] = known
        return known

    def _refuse(self, packet: Publish) -> None:
        """Refuse a message; MQTT 3.1.1 can only be told so by the end of its connection [MQTT-3.3.5-2]."""
        self._hub.denied(self.principal, self.session.client_id, "publish")
        if not packet.qos:
            return
        if not self._v5:
            raise NotAllowed(action="publish to this topic")
        self.session.refuse(packet, ReasonCode.NOT_AUTHORIZED)

    def _refuse_for_now(self, packet: Publish) -> None:
        """Take nothing that could be lost; MQTT 3.1.1 can only be told so by the end of its connection."""
        if not self._v5:
            raise StoreRefuses
        self._hub.statistics.dropped("store_refuses")
        self.session.refuse(packet, ReasonCode.QUOTA_EXCEEDED)

    def _subscribe(self, packet: Subscribe) -> None:
        hub, session = self._hub, self.session
        identifiers = packet.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else None
        codes: list[int] = []
        granted: list[tuple[Subscription, bool]] = []
        for subscription in packet.subscriptions:
            code = self._judged(subscription)
            codes.append(code)
            if code < 0x80:
                granted.append((subscription, hub.subscribe(session, subscription, identifier)))

        def safe() -> None:
            self._outlet.send(Suback(packet.packet_id, codes))
            for subscription, new in granted:
                hub.send_retained(session, subscription, new=new)
            hub.feed.go_on(session)

        session.when_kept(safe)

    def _judged(self, subscription: Subscription) -> int:
        """Decide about one filter; MQTT 3.1.1 has one code for every refusal."""
        if not self._hub.guard.may_subscribe(self.principal, subscription.filter):
            self._hub.denied(self.principal, self.session.client_id, "subscribe")
            return ReasonCode.NOT_AUTHORIZED if self._v5 else SUBSCRIPTION_REFUSED
        if not self.session.subscriptions.has_room_for(subscription.filter):
            return ReasonCode.QUOTA_EXCEEDED if self._v5 else SUBSCRIPTION_REFUSED
        if self.session.lasting and not self._hub.journal.accepting:
            return ReasonCode.QUOTA_EXCEEDED if self._v5 else SUBSCRIPTION_REFUSED
        return subscription.qos

    def _unsubscribe(self, packet: Unsubscribe) -> None:
        found = [self._hub.unsubscribe(self.session, topic_filter) for topic_filter in packet.filters]
        codes: list[int] = [ReasonCode.SUCCESS if each else ReasonCode.NO_SUBSCRIPTION_EXISTED for each in found]
        self.session.when_kept(lambda: self._outlet.send(Unsuback(packet.packet_id, codes if self._v5 else [])))

    def _disconnect(self, packet: Disconnect) -> Disconnect:
        expiry = packet.properties.session_expiry
        if expiry is not None:
            if expiry and self._began_without_expiry:
                raise ProtocolViolation(packet="DISCONNECT", defect="a session that was to end cannot be kept")
            self.session.expiry = min(expiry, self._hub.limits.session_expiry)
        return packet


def refusal(error: BrokerError, version: Version) -> Connack | None:
    """
    Say why a connection is refused.

    Args:
        error: why.
        version: what the client speaks.

    Returns:
        The CONNACK, or None where MQTT 3.1.1 has no code for it [MQTT-3.2.2-6], or where not even that fits.
    """
    if isinstance(error, AnswerTooLarge) and error.limit < _SHORTEST:
        return None
    if version is Version.V5:
        return Connack(code=error.mqtt_reason)
    return None if error.return_code is None else Connack(code=error.return_code)

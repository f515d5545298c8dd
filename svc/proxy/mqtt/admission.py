"""What both kinds of session decide and answer alike: CONNECT, filters, user properties, refusals, receipts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from svc.errors import SvcError
from svc.naming import PROPERTY_RECEIPT_ID
from svc.notary.publish import is_reserved_property
from svc.policy.engine import Denied
from svc.policy.rules import MqttAction
from svc.proxy.errors import ProxyError
from svc.proxy.mqtt.errors import ClientIdRefused
from svc.proxy.mqtt.interfaces import MqttSession, SessionEnds, TopicAuthorizer
from svc.proxy.mqtt.subscribing import ClientFilters
from svc.transport.errors import ConnectionLimitReached
from svc.wire.mqtt import (
    Acknowledgement,
    ClientIdInvalid,
    Connack,
    Connect,
    Disconnect,
    MqttError,
    PacketType,
    Properties,
    Publish,
    QuotaExceeded,
    ReasonCode,
    ReturnCode,
    Version,
    VersionUnsupported,
    encode,
)
from svc.wire.mqtt.codes import DISCONNECT_REASONS, REASONS, SUBSCRIPTION_REFUSED

#: Topic aliases in each direction, whatever client and broker offer.
MAX_ALIASES: Final = 64

#: Return codes of MQTT 3.1.1; others are "server unavailable".
_RETURN_CODES: Final = {
    ReasonCode.NOT_AUTHORIZED: ReturnCode.NOT_AUTHORIZED,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: ReturnCode.IDENTIFIER_REJECTED,
}


def unreadable_connect(error: MqttError) -> Connack | None:
    """CONNACK for a first packet that cannot be read; None for one that is no CONNECT [MQTT-3.1.4-1]."""
    # A client of another version can read at least that of MQTT 3.1.1.
    if isinstance(error, VersionUnsupported):
        return Connack(code=ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION)
    if isinstance(error, ClientIdInvalid):
        return Connack(code=ReturnCode.IDENTIFIER_REJECTED)
    return None


def admitted(session: MqttSession, ends: SessionEnds, decide: Callable[[], None]) -> bool:
    """Whether ``decide`` raised nothing of :func:`admit`; else the session is ended with the reason."""
    try:
        decide()
    except ClientIdRefused as denied:
        ends.refused(denied, "Connect", None)
        session.end("policy_deny", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
    except Denied:
        session.end("policy_deny", ReasonCode.NOT_AUTHORIZED)
    except ConnectionLimitReached as error:
        session.end("connection_limit", ReasonCode.SERVER_BUSY, error)
    except QuotaExceeded as error:
        session.end("protocol", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, error)
    else:
        return True
    return False


def admit(packet: Connect, limit: int, ends: SessionEnds, authorizer: TopicAuthorizer) -> None:
    """
    Decide on CONNECT; ``limit`` is that of the octets of a client identifier.

    Raises:
        QuotaExceeded: the identifier is longer.
        Denied: client or will are refused; it is reported, unless it is a ClientIdRefused.
        ConnectionLimitReached: the listener is full.
    """
    will = packet.will
    if len(packet.client_id.encode()) > limit:
        raise QuotaExceeded(packet="CONNECT", limit=limit, items="octets of a client identifier")
    authorizer.named(packet.client_id)
    action: MqttAction = "Publish"
    try:
        # First, since an admitted client may take the place of another.
        if will is not None:
            authorizer.publish(will.topic)
        action = "Connect"
        authorizer.connect(packet)
    except ClientIdRefused:
        raise
    except Denied as denied:
        ends.refused(denied, action, None if will is None or action == "Connect" else will.topic)
        raise


def decide_again(connect: Connect, filters: Iterable[str], authorizer: TopicAuthorizer) -> None:
    """Decide on an admitted client, its will and its filters, by the rules of now; raises Denied."""
    authorizer.reconnect(connect)
    if connect.will is not None:
        authorizer.publish(connect.will.topic)
    for topic_filter in filters:
        authorizer.subscribe(topic_filter)


def refusing_acknowledgement(packet: Publish, error: SvcError) -> Acknowledgement:
    """PUBACK or PUBREC of MQTT 5.0 that refuses a message for an error."""
    code = error.mqtt_reason if isinstance(error, ProxyError) else ReasonCode.UNSPECIFIED_ERROR
    if isinstance(error, Denied):
        code = ReasonCode.NOT_AUTHORIZED
    return Acknowledgement(PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC, packet.packet_id, code)


def with_receipt(packet: Acknowledgement, receipt: str | None, connect: Connect) -> Acknowledgement:
    """
    Add the identifier of a receipt to PUBACK or PUBREC; the same object where there is none, or where the client of
    ``connect`` accepts no user properties or no packet of this size.
    """
    accepted = connect.properties
    # A client may ask for none in acknowledgements [MQTT-3.1.2-29].
    if not receipt or connect.version is not Version.V5 or accepted.request_problem_information == 0:
        return packet
    properties = kept(packet.properties)
    properties = properties.replace(user=(*properties.user, (PROPERTY_RECEIPT_ID, receipt)))
    longer, most = replace(packet, properties=properties), accepted.maximum_packet_size
    return longer if most is None or len(encode(longer, Version.V5, "server")) <= most else packet


def filter_refusal(
    topic_filter: str, filters: ClientFilters, ends: SessionEnds, authorizer: TopicAuthorizer, *, v5: bool
) -> int | None:
    """Return the code by which a subscription is refused; None where it is passed on."""
    try:
        authorizer.subscribe(topic_filter)
    except Denied as denied:
        ends.refused(denied, "Subscribe", topic_filter)
        return ReasonCode.NOT_AUTHORIZED if v5 else SUBSCRIPTION_REFUSED
    if filters.add(topic_filter):
        return None
    return ReasonCode.QUOTA_EXCEEDED if v5 else SUBSCRIPTION_REFUSED


def kept(properties: Properties, names: frozenset[str] = frozenset()) -> Properties:
    """Return properties without reserved user properties other than these; the same object where it has none."""
    user = properties.user
    left = tuple(pair for pair in user if not is_reserved_property(pair[0]) or pair[0] in names)
    return properties if len(left) == len(user) else properties.replace(user=left)


def lowered(properties: Properties, most: int) -> Properties:
    """Lower what a side accepts to what the proxy does, with packets of at most so many octets."""
    return properties.replace(
        maximum_packet_size=min(properties.maximum_packet_size or most, most),
        topic_alias_maximum=min(properties.topic_alias_maximum or 0, MAX_ALIASES) or None,
    )


def refusing_connack(code: ReasonCode, *, v5: bool) -> Connack:
    """CONNACK with a reason, as the version has it."""
    if not v5:
        return Connack(code=_RETURN_CODES.get(code, ReturnCode.SERVER_UNAVAILABLE))
    return Connack(code=code if code in REASONS[PacketType.CONNACK] else ReasonCode.SERVER_UNAVAILABLE)


def last_disconnect(code: ReasonCode) -> Disconnect:
    """DISCONNECT of a server of MQTT 5.0 with a reason."""
    return Disconnect(code if code in DISCONNECT_REASONS["server"] else ReasonCode.SERVER_BUSY)

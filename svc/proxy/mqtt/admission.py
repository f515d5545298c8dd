"""What a client may do and which reason it gets, in both kinds of session: CONNECT, filters, user properties."""

from __future__ import annotations

from typing import Final

from svc.notary.publish import is_reserved_property
from svc.policy.engine import Denied
from svc.policy.rules import MqttAction
from svc.proxy.mqtt.errors import ClientIdRefused
from svc.proxy.mqtt.interfaces import SessionEnds, TopicAuthorizer
from svc.proxy.mqtt.subscribing import ClientFilters
from svc.wire.mqtt import Connack, Connect, Disconnect, PacketType, Properties, QuotaExceeded, ReasonCode, ReturnCode
from svc.wire.mqtt.codes import DISCONNECT_REASONS, REASONS, SUBSCRIPTION_REFUSED

#: Topic aliases in each direction, whatever client and broker offer.
MAX_ALIASES: Final = 64

#: Return codes of MQTT 3.1.1; others are "server unavailable".
_RETURN_CODES: Final = {
    ReasonCode.NOT_AUTHORIZED: ReturnCode.NOT_AUTHORIZED,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: ReturnCode.IDENTIFIER_REJECTED,
}


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

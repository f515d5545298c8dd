"""Errors of the broker, with the reason codes that MQTT clients receive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from svc.errors import Reason, SvcError
from svc.transport.errors import TransportError
from svc.wire.mqtt import ReasonCode, ReturnCode


@dataclass(frozen=True, slots=True)
class MqttReason(Reason):
    """A reason with the codes that a client is sent."""

    #: In CONNACK, DISCONNECT or an acknowledgement of MQTT 5.0.
    mqtt_reason: ReasonCode = ReasonCode.UNSPECIFIED_ERROR
    #: In CONNACK of MQTT 3.1.1; None closes the connection without CONNACK [MQTT-3.2.2-6].
    return_code: ReturnCode | None = None


class BrokerError(SvcError):
    """the broker refuses"""

    reason = "broker_refused"
    #: As in :class:`MqttReason`.
    mqtt_reason: ReasonCode = ReasonCode.UNSPECIFIED_ERROR
    return_code: ReturnCode | None = None
    reasons: ClassVar[Mapping[str, MqttReason]] = {
        "mqtt_authentication_method": MqttReason(
            "enhanced authentication is not supported: clients are identified by certificates or passwords",
            mqtt_reason=ReasonCode.BAD_AUTHENTICATION_METHOD,
            return_code=ReturnCode.NOT_AUTHORIZED,
        ),
        "mqtt_client_id_invalid": MqttReason(
            "the client identifier has {octets} octets, accepted are {limit}",
            mqtt_reason=ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
            return_code=ReturnCode.IDENTIFIER_REJECTED,
        ),
        "mqtt_session_owned": MqttReason(
            "the session of this client identifier belongs to another identity",
            mqtt_reason=ReasonCode.NOT_AUTHORIZED,
            return_code=ReturnCode.NOT_AUTHORIZED,
        ),
        "mqtt_not_authorized": MqttReason(
            "the access rules do not allow this identity to {action}",
            mqtt_reason=ReasonCode.NOT_AUTHORIZED,
            return_code=ReturnCode.NOT_AUTHORIZED,
        ),
        "mqtt_no_rule": MqttReason(
            "no access rule of the listener '{listener}' applies to {who}",
            "name it in `who` of a rule in listeners[].acl, or connect to the listener whose rules name it",
            mqtt_reason=ReasonCode.NOT_AUTHORIZED,
            return_code=ReturnCode.NOT_AUTHORIZED,
        ),
        "mqtt_login_refused": MqttReason(
            "the user name or the password is not right, or one of them is missing",
            "compare them with the password file; `svc broker passwd` sets another password",
            mqtt_reason=ReasonCode.BAD_USER_NAME_OR_PASSWORD,
            return_code=ReturnCode.BAD_USER_NAME_OR_PASSWORD,
        ),
        "mqtt_user_withdrawn": MqttReason(
            "the user {user} is not in the password file any more, or has another password there",
            "connect again with the password that is in force",
            mqtt_reason=ReasonCode.NOT_AUTHORIZED,
            return_code=ReturnCode.NOT_AUTHORIZED,
        ),
        "mqtt_certificate_withdrawn": MqttReason(
            "the certificate of {name} is not accepted any more: {cause}",
            "issue another one by an authority of tls.clientAuthorities",
            mqtt_reason=ReasonCode.NOT_AUTHORIZED,
            return_code=ReturnCode.NOT_AUTHORIZED,
        ),
        "mqtt_deny_list": MqttReason(
            "{who} is refused by the deny list {list}: {entry}",
            "remove the entry when the identity, or the holder of the certificate, is to be admitted again",
            mqtt_reason=ReasonCode.NOT_AUTHORIZED,
            return_code=ReturnCode.NOT_AUTHORIZED,
        ),
        "mqtt_session_limit": MqttReason(
            "{taken} of {limit} sessions are taken: {held} by this identity, and most, {most_held}, by {most}",
            "near the limit an identity with more than twice as many as are free gets no more: end sessions, let them"
            " expire sooner, or raise limits.sessions",
            mqtt_reason=ReasonCode.QUOTA_EXCEEDED,
            return_code=ReturnCode.SERVER_UNAVAILABLE,
        ),
        "mqtt_identity_session_limit": MqttReason(
            "this identity has {limit} sessions, which is its limit",
            "clients that invent identifiers leave sessions behind; limits.sessionsOfIdentity is the limit of each",
            mqtt_reason=ReasonCode.QUOTA_EXCEEDED,
            return_code=ReturnCode.SERVER_UNAVAILABLE,
        ),
        "mqtt_connection_share": MqttReason(
            "{taken} of {limit} connections of the listener are taken: {held} by this identity, and most, {most_held},"
            " by {most}",
            "near the limit an identity with more than twice as many as are free gets no more: close connections, or"
            " raise listeners[].connections",
            mqtt_reason=ReasonCode.QUOTA_EXCEEDED,
            return_code=ReturnCode.SERVER_UNAVAILABLE,
        ),
        "mqtt_receive_maximum": MqttReason(
            "the client has more than {limit} messages with QoS 2 that it did not release",
            mqtt_reason=ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
        ),
        "mqtt_alias_unknown": MqttReason(
            "the topic alias {alias} was not assigned to a topic",
            mqtt_reason=ReasonCode.PROTOCOL_ERROR,
        ),
        "restart_needed": MqttReason(
            "the new configuration changes what needs a restart: {keys}",
            "restart the broker, or undo these changes and reload again",
        ),
    }

    def __init__(self, reason: str | None = None, /, **evidence: object) -> None:
        super().__init__(reason, **evidence)
        if reason is not None:
            row = self.reasons[reason]
            self.mqtt_reason, self.return_code = row.mqtt_reason, row.return_code


class StoreRefuses(BrokerError):
    """the broker's database accepts no new data for now, so that nothing that must be durable can begin"""

    reason = "mqtt_store_refuses"
    hint = "try again later; /readyz and the log of the broker show what is wrong with its database"
    mqtt_reason = ReasonCode.SERVER_UNAVAILABLE
    return_code = ReturnCode.SERVER_UNAVAILABLE


class LoginLimitReached(BrokerError, TransportError):  # type: ignore[misc] # (it uses no table of reasons)
    """{limit} logins already wait for the verification of their passwords"""

    reason = "mqtt_login_limit"
    hint = "clients should try again later, each after another time; limits.logins is the limit"
    mqtt_reason = ReasonCode.QUOTA_EXCEEDED
    return_code = ReturnCode.SERVER_UNAVAILABLE
    limit: int


class AnswerTooLarge(BrokerError):
    """{packet} has {octets} octets here, and the client accepts packets of up to {limit}"""

    reason = "mqtt_answer_too_large"
    hint = "give the client a larger Maximum Packet Size, or fewer filters in one packet"
    mqtt_reason = ReasonCode.PACKET_TOO_LARGE
    limit: int


class ConnectionEnded(SvcError):
    """the client's connection was ended"""

    reason = "broker_refused"
    reasons: ClassVar[Mapping[str, Reason]] = {
        "mqtt_keep_alive": Reason(
            "nothing was received from the client for one and a half times its keep alive of {seconds} s"
        ),
        "mqtt_connect_timeout": Reason("no CONNECT was received within {seconds} s"),
        "mqtt_tls_at_plain_listener": Reason(
            "the client uses TLS, and this listener does not",
            "give the client the address of a listener with tls, or take TLS out of its options",
        ),
        "mqtt_http_at_listener": Reason(
            "the client sends an HTTP request ({method}), as for MQTT over WebSocket; this listener accepts MQTT only",
            "give the client an address with mqtt:// or mqtts:// in place of ws://, wss:// or http://",
        ),
    }

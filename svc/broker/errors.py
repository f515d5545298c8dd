"""What a broker refuses, one class a reason."""

from __future__ import annotations

from typing import ClassVar

from svc.errors import SvcError
from svc.wire.mqtt import ReasonCode, ReturnCode


class BrokerError(SvcError):
    """the broker refuses"""

    reason = "broker_refused"
    #: What CONNACK, DISCONNECT or an acknowledgement says in MQTT 5.0.
    mqtt_reason: ClassVar[ReasonCode] = ReasonCode.UNSPECIFIED_ERROR
    #: What CONNACK says in MQTT 3.1.1; None closes without a word [MQTT-3.2.2-6].
    return_code: ClassVar[ReturnCode | None] = None


class AuthenticationMethodRefused(BrokerError):
    """enhanced authentication is not offered: clients are known by their TLS identity"""

    reason = "mqtt_authentication_method"
    mqtt_reason = ReasonCode.BAD_AUTHENTICATION_METHOD
    return_code = ReturnCode.NOT_AUTHORIZED


class ClientIdRefused(BrokerError):
    """the client identifier has {octets} octets, accepted are {limit}"""

    reason = "mqtt_client_id_invalid"
    mqtt_reason = ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    return_code = ReturnCode.IDENTIFIER_REJECTED


class SessionOwned(BrokerError):
    """the session of this client identifier belongs to another identity"""

    reason = "mqtt_session_owned"
    mqtt_reason = ReasonCode.NOT_AUTHORIZED
    return_code = ReturnCode.NOT_AUTHORIZED


class NotAllowed(BrokerError):
    """the access rules do not allow this identity to {action}"""

    reason = "mqtt_not_authorized"
    mqtt_reason = ReasonCode.NOT_AUTHORIZED
    return_code = ReturnCode.NOT_AUTHORIZED


class TooManySessions(BrokerError):
    """the broker holds {limit} sessions and takes no more"""

    reason = "mqtt_session_limit"
    mqtt_reason = ReasonCode.QUOTA_EXCEEDED
    return_code = ReturnCode.SERVER_UNAVAILABLE


class TooManySessionsOfIdentity(BrokerError):
    """this identity has {limit} sessions and gets no more"""

    reason = "mqtt_identity_session_limit"
    hint = "clients that invent identifiers leave sessions behind; limits.sessionsOfIdentity says how many one may have"
    mqtt_reason = ReasonCode.QUOTA_EXCEEDED
    return_code = ReturnCode.SERVER_UNAVAILABLE


class StoreRefuses(BrokerError):
    """the broker's database takes nothing new for now, so that nothing that must last can begin"""

    reason = "mqtt_store_refuses"
    hint = "try again later; /readyz and the log of the broker say what is wrong with its database"
    mqtt_reason = ReasonCode.SERVER_UNAVAILABLE
    return_code = ReturnCode.SERVER_UNAVAILABLE


class ReceiveMaximumExceeded(BrokerError):
    """the client has more than {limit} messages in progress"""

    reason = "mqtt_receive_maximum"
    mqtt_reason = ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


class AliasUnknown(BrokerError):
    """the topic alias {alias} stands for no topic"""

    reason = "mqtt_alias_unknown"
    mqtt_reason = ReasonCode.PROTOCOL_ERROR


class AnswerTooLarge(BrokerError):
    """{packet} has {octets} octets here, and the client takes packets of up to {limit}"""

    reason = "mqtt_answer_too_large"
    hint = "give the client a larger Maximum Packet Size, or fewer filters in one packet"
    mqtt_reason = ReasonCode.PACKET_TOO_LARGE
    limit: int

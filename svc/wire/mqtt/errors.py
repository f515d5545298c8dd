"""What a peer can do wrong in MQTT; each class has the reason code that MQTT 5.0 defines for it."""

from __future__ import annotations

from typing import ClassVar

from svc.errors import SvcError
from svc.wire.errors import RemoteProtocolError
from svc.wire.mqtt.codes import ReasonCode


class MqttError(RemoteProtocolError):
    """the peer broke MQTT"""

    reason = "mqtt_protocol_error"
    #: The code in DISCONNECT, or in CONNACK before a session, of MQTT 5.0.
    mqtt_reason: ClassVar[ReasonCode] = ReasonCode.PROTOCOL_ERROR


class MalformedPacket(MqttError):
    """the packet {packet} is malformed: {defect}"""

    reason = "mqtt_malformed_packet"
    mqtt_reason = ReasonCode.MALFORMED_PACKET


class ProtocolViolation(MqttError):
    """the packet {packet} is not allowed: {defect}"""


class PacketTooLarge(MqttError):
    """the packet has {octets} octets, accepted are {limit}"""

    reason = "mqtt_packet_too_large"
    mqtt_reason = ReasonCode.PACKET_TOO_LARGE


class QuotaExceeded(MqttError):
    """the packet {packet} holds more than {limit} {items}"""

    reason = "mqtt_quota_exceeded"
    mqtt_reason = ReasonCode.QUOTA_EXCEEDED


class ReceiveMaximumExceeded(MqttError):
    """more than {limit} messages wait for their acknowledgement"""

    reason = "mqtt_receive_maximum_exceeded"
    mqtt_reason = ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


class VersionUnsupported(MqttError):
    """the client uses another protocol than MQTT 3.1.1 or 5.0"""

    reason = "mqtt_version_unsupported"
    mqtt_reason = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION


class ClientIdInvalid(MqttError):
    """a client of MQTT 3.1.1 without an identifier must ask for a clean session"""

    reason = "mqtt_client_id_invalid"
    mqtt_reason = ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


class TopicAliasInvalid(MqttError):
    """the topic alias {alias} is 0 or above the Topic Alias Maximum"""

    reason = "mqtt_topic_alias_invalid"
    mqtt_reason = ReasonCode.TOPIC_ALIAS_INVALID


class Unencodable(SvcError):
    """the packet {packet} cannot be encoded: {defect}"""

    reason = "mqtt_unencodable"

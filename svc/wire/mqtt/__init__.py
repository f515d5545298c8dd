"""
MQTT 3.1.1 and 5.0 from and to octets, without I/O.

``Decoder`` turns one side's octets into packets and never raises for what a peer sends: a defect is the event
``Refused``, always the last one, and its error carries the reason code that answers it. ``encode`` writes packets.
``walk`` finds packets by their fixed headers alone, for those who forward octets as they came. Limits are constructor
arguments, and judged before anything is buffered.

A connection's octets become, in this order::

    of a client:  Connect (Publish | Acknowledgement | Subscribe | Unsubscribe | Pingreq | Disconnect | Auth)* [Refused]
    of a server:  (Connack | Publish | Acknowledgement | Suback | Unsuback | Pingresp | Disconnect | Auth)* [Refused]

What a session makes of them (quotas, identifiers in use, the order of acknowledgements) is not known here.
"""

from svc.wire.mqtt.codes import PacketType, ReasonCode, ReturnCode, Sender, Version
from svc.wire.mqtt.encoding import checked, encode
from svc.wire.mqtt.errors import (
    ClientIdInvalid,
    MalformedPacket,
    MqttError,
    PacketTooLarge,
    ProtocolViolation,
    QuotaExceeded,
    TopicAliasInvalid,
    Unencodable,
    VersionUnsupported,
)
from svc.wire.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    QoS,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from svc.wire.mqtt.properties import NONE, Properties
from svc.wire.mqtt.reading import DEFAULT_LIMITS, Limits
from svc.wire.mqtt.scanner import DEFAULT_MAX_PACKET, Frame, frame_at, walk
from svc.wire.mqtt.stream import Decoder, Refused
from svc.wire.mqtt.topics import SharedFilter, filter_defect, matches, name_defect, shared

__all__ = [
    "DEFAULT_LIMITS",
    "DEFAULT_MAX_PACKET",
    "NONE",
    "Acknowledgement",
    "Auth",
    "ClientIdInvalid",
    "Connack",
    "Connect",
    "Decoder",
    "Disconnect",
    "Frame",
    "Limits",
    "MalformedPacket",
    "MqttError",
    "Packet",
    "PacketTooLarge",
    "PacketType",
    "Pingreq",
    "Pingresp",
    "Properties",
    "ProtocolViolation",
    "Publish",
    "QoS",
    "QuotaExceeded",
    "ReasonCode",
    "Refused",
    "ReturnCode",
    "Sender",
    "SharedFilter",
    "Suback",
    "Subscribe",
    "Subscription",
    "TopicAliasInvalid",
    "Unencodable",
    "Unsuback",
    "Unsubscribe",
    "Version",
    "VersionUnsupported",
    "Will",
    "checked",
    "encode",
    "filter_defect",
    "frame_at",
    "matches",
    "name_defect",
    "shared",
    "walk",
]

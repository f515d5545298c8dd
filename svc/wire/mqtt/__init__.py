"""
MQTT 3.1.1 and 5.0 from and to bytes, without I/O.

``Decoder`` turns the bytes of one side into packets and never raises for what a peer sends: a defect is the event
``PacketRefused``, always the last one, whose error has the reason code to respond with. ``encode`` writes packets.
Limits are constructor arguments and are checked before anything is buffered.

The bytes of a connection become, in this order::

    client:  Connect (Publish | Acknowledgement | Subscribe | Unsubscribe | Pingreq | Disconnect | Auth)*
    server:  (Connack | Publish | Acknowledgement | Suback | Unsuback | Pingresp | Disconnect | Auth)*
    either:  [PacketRefused] at the end

Session rules (quotas, packet identifiers in use, the order of acknowledgements) are not part of this package.
"""

from svc.wire.mqtt.codes import PacketType, ReasonCode, ReturnCode, Sender, Version
from svc.wire.mqtt.decoding import DEFAULT_LIMITS, DEFAULT_MAX_PACKET, PacketLimits
from svc.wire.mqtt.encoding import encode
from svc.wire.mqtt.errors import (
    ClientIdInvalid,
    MalformedPacket,
    MqttError,
    PacketTooLarge,
    ProtocolViolation,
    QuotaExceeded,
    ReceiveMaximumExceeded,
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
from svc.wire.mqtt.properties import NO_PROPERTIES, Properties
from svc.wire.mqtt.stream import Decoder, PacketRefused
from svc.wire.mqtt.topics import (
    SharedFilter,
    covers,
    filter_defect,
    intersection,
    intersects,
    matches,
    name_defect,
    split_shared,
)

__all__ = [
    "DEFAULT_LIMITS",
    "DEFAULT_MAX_PACKET",
    "NO_PROPERTIES",
    "Acknowledgement",
    "Auth",
    "ClientIdInvalid",
    "Connack",
    "Connect",
    "Decoder",
    "Disconnect",
    "MalformedPacket",
    "MqttError",
    "Packet",
    "PacketLimits",
    "PacketRefused",
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
    "ReceiveMaximumExceeded",
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
    "covers",
    "encode",
    "filter_defect",
    "intersection",
    "intersects",
    "matches",
    "name_defect",
    "split_shared",
]

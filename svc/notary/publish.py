"""
One PUBLISH of MQTT with its acknowledgement as a receipt describes them, and the payload of that receipt.

Owns the rules that proxy and verifier must apply alike: which properties are recorded, under which names and in which
order, and how the reason codes of acknowledgements are called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

from svc import naming
from svc.identity.spiffeid import SpiffeID
from svc.notary.exchange import BodySummary, ExchangeOutcome, Peer, TlsFacts, octets_as_text
from svc.notary.level import Level
from svc.notary.receipt import ReceiptDraft, Redaction, body_text, salted_digest, write_draft
from svc.strictjson import b64u_encode, dumps, quoted
from svc.wire.mqtt import Properties, QoS, ReasonCode, Version

#: The protocol version in a payload.
VERSIONS: Final = {Version.V311: "3.1.1", Version.V5: "5.0"}
#: The acknowledgement that each QoS has, None where there is none.
ACKNOWLEDGEMENTS: Final = {0: None, 1: "PUBACK", 2: "PUBREC"}
#: The reason codes of PUBACK and PUBREC with their names (MQTT 5.0, table 2-6).
REASON_NAMES: Final = {
    ReasonCode.SUCCESS: "Success",
    ReasonCode.NO_MATCHING_SUBSCRIBERS: "No matching subscribers",
    ReasonCode.UNSPECIFIED_ERROR: "Unspecified error",
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: "Implementation specific error",
    ReasonCode.NOT_AUTHORIZED: "Not authorized",
    ReasonCode.TOPIC_NAME_INVALID: "Topic Name invalid",
    ReasonCode.PACKET_IDENTIFIER_IN_USE: "Packet Identifier in use",
    ReasonCode.QUOTA_EXCEEDED: "Quota exceeded",
    ReasonCode.PAYLOAD_FORMAT_INVALID: "Payload format invalid",
}
#: The names of the standard (MQTT 5.0, table 2-4) in lower case with hyphens, in the order of the identifiers. The
#: order of properties of different identifiers has no meaning, that of user properties is kept (section 2.2.2.2).
PAYLOAD_FORMAT: Final = "payload-format-indicator"
MESSAGE_EXPIRY: Final = "message-expiry-interval"
CONTENT_TYPE: Final = "content-type"
RESPONSE_TOPIC: Final = "response-topic"
CORRELATION_DATA: Final = "correlation-data"
USER_PROPERTY: Final = "user-property"
PROPERTY_NAMES: Final = (
    PAYLOAD_FORMAT,
    MESSAGE_EXPIRY,
    CONTENT_TYPE,
    RESPONSE_TOPIC,
    CORRELATION_DATA,
    USER_PROPERTY,
)
#: What a text or binary property takes on the wire besides its value, and a user property besides name and value.
_TEXT_HEAD: Final = 3
_PAIR_HEAD: Final = 5

#: A property as it is recorded: a number, a text, octets, or name and value of a user property.
RecordedProperty = tuple[str, int | str | bytes | tuple[str, str]]


class AckedBy(Enum):
    """Who acknowledged a message first; the value is the word in the payload."""

    UPSTREAM = "upstream"
    MIDDLEWARE = "middleware"


@dataclass(frozen=True, slots=True)
class RecordedAcknowledgement:
    """The acknowledgement of a message with QoS 1 or 2: ``code`` is 0 in MQTT 3.1.1."""

    code: int
    by: AckedBy


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """
    A message as the client sent it. Packets of one exchange, of which one repeats the other, have the same.

    Attributes:
        client_id: the client identifier of the session; empty where the client left it empty and the broker named none.
        topic: the topic name, where an alias is resolved.
        packet_id: the client's, 0 with QoS 0.
        properties: without Topic Alias and what the proxy reserves, see :func:`recorded_properties`.
        nonce: the client's nonce, None where it sent none.
    """

    version: Version
    client_id: str
    topic: str
    qos: QoS
    retain: bool
    packet_id: int
    properties: tuple[RecordedProperty, ...]
    body: BodySummary
    nonce: str | None


@dataclass(slots=True)
class RecordedPublish:
    """
    One PUBLISH as the proxy recorded it, with its acknowledgement as the client gets it.

    Attributes:
        level: ``LOG_REQUEST`` or ``SIGN_REQUEST``.
        jti: the identifier of this exchange, 22 characters.
        client: the verified client, None on a listener without TLS.
        server: the identity that signs.
        tls: None on a listener without TLS.
        acknowledgement: None with QoS 0, and where the exchange ended without one.
        received: when the packet was complete.
        completed: when the exchange ended.
    """

    level: Level
    jti: str
    client: Peer | None
    server: Peer
    tls: TlsFacts | None
    message: PublishedMessage
    acknowledgement: RecordedAcknowledgement | None
    received: datetime
    completed: datetime
    outcome: ExchangeOutcome = ExchangeOutcome.COMPLETE


def is_reserved_property(name: str) -> bool:
    """Return whether a user property is one of the proxy's own, by its name; names differ in upper and lower case."""
    return name.startswith(naming.PROPERTY_PREFIX)


def recorded_properties(properties: Properties) -> tuple[RecordedProperty, ...]:
    """Turn the properties of a PUBLISH into the receipt's list: Topic Alias and ``svc-*`` are left out."""
    if not properties:
        return ()
    single = zip(
        PROPERTY_NAMES,
        (
            properties.payload_format,
            properties.message_expiry,
            properties.content_type,
            properties.response_topic,
            properties.correlation_data,
        ),
        strict=False,
    )
    return (
        *((name, value) for name, value in single if value is not None),
        *((USER_PROPERTY, pair) for pair in properties.user if not is_reserved_property(pair[0])),
    )


def publish_octets(topic: str, properties: tuple[RecordedProperty, ...]) -> int:
    """Count the octets that topic and recorded properties take on the wire; a record is bounded by them."""
    size = _text_octets(topic)
    for _name, value in properties:
        if isinstance(value, tuple):
            size += _PAIR_HEAD + _text_octets(value[0]) + _text_octets(value[1])
        elif isinstance(value, str | bytes):
            size += _TEXT_HEAD + (_text_octets(value) if isinstance(value, str) else len(value))
    return size


def publish_payload(
    publish: RecordedPublish,
    statement_id: str,
    issuer: SpiffeID,
    redaction: Redaction,
    random: Callable[[int], bytes],
) -> ReceiptDraft:
    """
    Build the payload of a receipt or of an unsigned record, as :class:`svc.notary.receipt.PayloadWriter` for HTTP.

    Raises:
        ValueError: for a level below ``logRequest``.
    """
    salts: dict[str, str] = {}
    request = _request(publish.message, redaction, random, salts)
    made = {"request": salts} if salts else {}
    return write_draft(publish, publish.message.nonce, statement_id, issuer, request, _response(publish), made)


def _request(
    message: PublishedMessage, redaction: Redaction, random: Callable[[int], bytes], salts: dict[str, str]
) -> str:
    properties: list[list[object]] = []
    for number, (name, value) in enumerate(message.properties):
        if isinstance(value, bytes):
            properties.append([name, b64u_encode(value)])
        elif isinstance(value, tuple):
            text: object = value[1]
            if redaction.covers(value[0].lower()):
                digest = salted_digest(octets_as_text(value[1].encode("utf-8")), str(number), salts, random)
                text = {"redacted": "sha-256", "digest": digest}
            properties.append([name, [value[0], text]])
        else:
            properties.append([name, value])
    return (
        f'{{"packet":"PUBLISH","version":"{VERSIONS[message.version]}","clientId":{quoted(message.client_id)},'
        f'"topic":{quoted(message.topic)},"qos":{message.qos},"retain":{"true" if message.retain else "false"},'
        f'"packetId":{message.packet_id or "null"},"properties":{dumps(properties).decode() if properties else "[]"},'
        f'"body":{body_text(message.body)}}}'
    )


def _response(publish: RecordedPublish) -> str:
    answer = publish.acknowledgement
    if answer is None:
        return "null"
    return (
        f'{{"packet":"{ACKNOWLEDGEMENTS[publish.message.qos]}","reasonCode":{int(answer.code)},'
        f'"reasonName":"{REASON_NAMES[ReasonCode(answer.code)]}","ackedBy":"{answer.by.value}"}}'
    )


def _text_octets(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8"))

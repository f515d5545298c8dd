"""
Reads the claims of a receipt for PUBLISH strictly; :mod:`svc.notary.receipt_claims` reads the rest of it.

A module of its own because only receipts of MQTT need the codec of MQTT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from svc.envelope.claims import Claims
from svc.envelope.errors import Malformed
from svc.notary.exchange import BodySummary, ExchangeOutcome, octets_as_text
from svc.notary.message_claims import ClaimedValue, read_body, read_value
from svc.notary.publish import (
    ACKNOWLEDGEMENTS,
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY,
    PAYLOAD_FORMAT,
    PROPERTY_NAMES,
    REASON_NAMES,
    RESPONSE_TOPIC,
    USER_PROPERTY,
    VERSIONS,
    AckedBy,
    PublishedMessage,
    is_reserved_property,
)
from svc.strictjson import Base64Refused, b64u_decode
from svc.wire.mqtt import Version, name_defect
from svc.wire.mqtt.primitives import MAX_TEXT, is_valid_text

_MAX_U32: Final = 2**32 - 1
_VERSIONS: Final[Mapping[str, Version]] = {text: version for version, text in VERSIONS.items()}


@dataclass(frozen=True, slots=True)
class PublishClaims:
    """``svc.request`` of a receipt for PUBLISH; of a user property the value may be a digest."""

    version: Version
    client_id: str
    topic: str
    qos: int
    retain: bool
    packet_id: int | None
    properties: tuple[tuple[str, int | str | bytes | tuple[str, ClaimedValue]], ...]
    body: BodySummary

    def redacted(self) -> frozenset[str]:
        """Return the keys of the redacted values, as disclosures name them."""
        return frozenset(
            str(number)
            for number, (_name, value) in enumerate(self.properties)
            if isinstance(value, tuple) and value[1].digest is not None
        )

    def describes(self, message: PublishedMessage, salts: Mapping[str, str]) -> bool:
        """Compare with a message; without its salt a redacted value matches nothing."""
        claimed = (
            self.version,
            self.client_id,
            self.topic,
            self.qos,
            self.retain,
            self.packet_id or 0,
            self.body,
            len(self.properties),
        )
        return claimed == (
            message.version,
            message.client_id,
            message.topic,
            message.qos,
            message.retain,
            message.packet_id,
            message.body,
            len(message.properties),
        ) and all(
            name == sent_name and _matches(value, sent, salts.get(str(number)))
            for number, ((name, value), (sent_name, sent)) in enumerate(
                zip(self.properties, message.properties, strict=True)
            )
        )


@dataclass(frozen=True, slots=True)
class AcknowledgementClaims:
    """``svc.response`` of a receipt for PUBLISH with QoS 1 or 2."""

    packet: str
    code: int
    acked_by: AckedBy

    def redacted(self) -> frozenset[str]:
        """Nothing of an acknowledgement is redacted."""
        return frozenset()


def read_publish(request: Claims) -> PublishClaims:
    """
    Read the message.

    Raises:
        Malformed: with the claim that is absent, of another type, or not possible in MQTT.
    """
    if request.text("packet") != "PUBLISH":
        raise _wrong(request, "packet", "PUBLISH")
    version = _VERSIONS.get(request.text("version"))
    if version is None:
        raise _wrong(request, "version", f"one of {', '.join(_VERSIONS)}")
    qos = _number(request, "qos", 0, 2)
    packet_id = _number(request, "packetId", 1, 0xFFFF) if qos else None
    if not qos and request.members.get("packetId", ...) is not None:
        raise _wrong(request, "packetId", "null, as for each message with QoS 0")
    properties = _read_properties(request)
    if version is Version.V311 and properties:
        raise _wrong(request, "properties", "an empty array, as MQTT 3.1.1 has none")
    body = read_body(request.member("body"))
    if not body.complete:
        raise _wrong(request, "body.complete", "true: a packet is read as a whole")
    return PublishClaims(
        version=version,
        client_id=_text(request, "clientId"),
        topic=_topic(request, "topic"),
        qos=qos,
        retain=request.flag("retain"),
        packet_id=packet_id,
        properties=properties,
        body=body,
    )


def read_acknowledgement(
    response: Claims | None, publish: PublishClaims, outcome: ExchangeOutcome
) -> AcknowledgementClaims | None:
    """
    Read the acknowledgement of a message.

    Raises:
        Malformed: as :func:`read_publish`, and for one that does not belong to the QoS of the message.
    """
    if outcome is ExchangeOutcome.UPGRADED:
        raise Malformed(where="payload.svc.outcome", defect="no exchange of MQTT is upgraded")
    expected = ACKNOWLEDGEMENTS[publish.qos]
    if response is None:
        if expected is not None and outcome is ExchangeOutcome.COMPLETE:
            raise Malformed(where="payload.svc.response", defect=f"a complete exchange has no {expected}")
        return None
    if expected is None:
        raise Malformed(where=response.where, defect="a message with QoS 0 has no acknowledgement")
    if response.text("packet") != expected:
        raise _wrong(response, "packet", f"{expected} for QoS {publish.qos}")
    code = _number(response, "reasonCode", 0, 0xFF)
    name = next((name for each, name in REASON_NAMES.items() if each == code), None)
    if name is None:
        raise _wrong(response, "reasonCode", f"a reason code of {expected}")
    if publish.version is Version.V311 and code:
        raise _wrong(response, "reasonCode", "0: MQTT 3.1.1 has no other")
    if response.text("reasonName") != name:
        raise _wrong(response, "reasonName", f"the name of the reason code, {name}")
    try:
        acked_by = AckedBy(response.text("ackedBy"))
    except ValueError as error:
        raise _wrong(response, "ackedBy", "upstream or middleware") from error
    return AcknowledgementClaims(expected, code, acked_by)


def _matches(
    claimed: int | str | bytes | tuple[str, ClaimedValue], sent: int | str | bytes | tuple[str, str], salt: str | None
) -> bool:
    if not (isinstance(claimed, tuple) and isinstance(sent, tuple)):
        return claimed == sent
    name, value = claimed
    text = sent[1] if value.digest is None else octets_as_text(sent[1].encode("utf-8"))
    return name == sent[0] and value.matches(text, salt)


def _read_properties(request: Claims) -> tuple[tuple[str, int | str | bytes | tuple[str, ClaimedValue]], ...]:
    found: list[tuple[str, int | str | bytes | tuple[str, ClaimedValue]]] = []
    last = -1
    for number, item in enumerate(request.array("properties")):
        where = f"properties[{number}]"
        if not isinstance(item, list) or len(item) != 2 or item[0] not in PROPERTY_NAMES:
            raise _wrong(request, where, "a pair of a property's name and its value")
        name, rank = item[0], PROPERTY_NAMES.index(item[0])
        if rank < last or (rank == last and name != USER_PROPERTY):
            raise _wrong(request, where, "properties in the order of their identifiers, each but user properties once")
        last = rank
        found.append((name, _READERS[name](Claims({where: item[1]}, request.where), where)))
    return tuple(found)


def _read_user_property(claims: Claims, where: str) -> tuple[str, ClaimedValue]:
    pair = claims.array(where)
    if len(pair) != 2:
        raise _wrong(claims, where, "name and value of a user property")
    name, value = Claims({"name": pair[0], "value": pair[1]}, f"{claims.where}.{where}"), pair[1]
    text = _text(name, "name")
    if is_reserved_property(text):
        raise _wrong(claims, where, "no property that the proxy reserves")
    if isinstance(value, str):
        _text(name, "value")
    return text, read_value(value, name, "value")


def _read_octets(claims: Claims, where: str) -> bytes:
    try:
        return b64u_decode(claims.text(where))
    except Base64Refused as error:
        raise claims.mistyped(where, "base64url") from error


def _topic(claims: Claims, name: str) -> str:
    topic = _text(claims, name)
    defect = name_defect(topic)
    if defect:
        raise Malformed(where=f"{claims.where}.{name}", defect=defect)
    return topic


def _text(claims: Claims, name: str) -> str:
    text = claims.text(name)
    if not is_valid_text(text) or len(text.encode("utf-8")) > MAX_TEXT:
        raise _wrong(claims, name, f"a text that MQTT allows, of at most {MAX_TEXT} octets")
    return text


def _number(claims: Claims, name: str, low: int, high: int) -> int:
    number = claims.integer(name)
    if not low <= number <= high:
        raise _wrong(claims, name, f"a number from {low} to {high}")
    return number


def _wrong(claims: Claims, name: str, expected: str) -> Malformed:
    return Malformed(where=f"{claims.where}.{name}", defect=f"expected {expected}")


_READERS: Final[Mapping[str, Callable[[Claims, str], int | str | bytes | tuple[str, ClaimedValue]]]] = {
    PAYLOAD_FORMAT: lambda claims, where: _number(claims, where, 0, 1),
    MESSAGE_EXPIRY: lambda claims, where: _number(claims, where, 0, _MAX_U32),
    CONTENT_TYPE: _text,
    RESPONSE_TOPIC: _topic,
    CORRELATION_DATA: _read_octets,
    USER_PROPERTY: _read_user_property,
}

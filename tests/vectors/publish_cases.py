"""
Writes the vectors of receipts for PUBLISH: ``publish/``.

Called by ``make_artifacts.py``, which documents how to run it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from svc import naming
from svc.envelope.envelope import Envelope
from svc.notary.artifact import BatchedReceipt
from svc.notary.exchange import BodySummary, ExchangeOutcome
from svc.notary.level import Level
from svc.notary.publish import (
    AckedBy,
    PublishedMessage,
    RecordedAcknowledgement,
    RecordedPublish,
    publish_payload,
    recorded_properties,
)
from svc.notary.receipt import Redaction, sign_receipt, with_disclosures
from svc.strictjson import b64u_encode, loads_object
from svc.wire.mqtt import Properties, ReasonCode, Version
from tests.vectors.artifact_scenario import (
    CLASSICAL,
    CLIENT,
    HYBRID,
    NONCE,
    NOW,
    REPLICA,
    SERVER,
    TLS,
    changed,
    exchange,
    peer_of,
    random_of,
    receipt_of,
    signers_of,
    statement_of,
    write,
)
from tests.vectors.batch_cases import batch_of, neighbours
from tests.vectors.material import seed

PAYLOAD = b"21.5"
PROPERTIES = Properties(
    payload_format=1,
    message_expiry=3600,
    content_type="text/plain",
    response_topic="meters/1/answers",
    correlation_data=b"\x00\xff",
    user=(("unit", "kW"), ("authorization", "Bearer s3cret"), ("unit", "kW")),
)


def message(**fields: Any) -> PublishedMessage:
    """A message with QoS 1 and every property."""
    found = PublishedMessage(
        version=Version.V5,
        client_id="meter-1",
        topic="meters/1/power",
        qos=1,
        retain=False,
        packet_id=7,
        properties=recorded_properties(PROPERTIES),
        body=BodySummary.of(PAYLOAD),
        nonce=NONCE,
    )
    return dataclasses.replace(found, **fields)


def publish(what: PublishedMessage | None = None, **fields: Any) -> RecordedPublish:
    """The message and its acknowledgement as the server recorded them."""
    what = what or message()
    found = RecordedPublish(
        level=Level.SIGN_REQUEST,
        jti=b64u_encode(seed("jti")[:16]),
        client=peer_of(CLIENT),
        server=peer_of(SERVER),
        tls=TLS,
        message=what,
        acknowledgement=RecordedAcknowledgement(0, AckedBy.UPSTREAM) if what.qos else None,
        received=NOW,
        completed=NOW,
    )
    return dataclasses.replace(found, **fields)


def publish_receipt(what: RecordedPublish, *, hybrid: bool = False) -> Envelope:
    """The receipt of a message."""
    statement = statement_of(hybrid=hybrid)
    draft = publish_payload(what, statement.id, SERVER.spiffe_id, Redaction(), random_of("salts"))
    return with_disclosures(sign_receipt(draft, signers_of(SERVER, hybrid=hybrid)), draft.disclosures)


def bent(what: RecordedPublish | None = None, /, **claims: object) -> Envelope:
    """A valid receipt with other claims, signed by the server, without disclosures."""
    found = changed(publish_receipt(what or publish()), naming.TYPE_RECEIPT, signers_of(SERVER), **claims)
    return Envelope(found.payload, found.signatures)


def write_one(
    name: str, comment: str, expect: str, receipt: Envelope | BatchedReceipt, *, hybrid: bool = False
) -> None:
    """Write one vector."""
    sections = {"statement": statement_of(hybrid=hybrid).envelope.serialize(), "receipt": receipt.serialize()}
    write(f"publish/{name}", comment, expect, HYBRID if hybrid else CLASSICAL, sections)


def write_all() -> None:
    """Write all vectors of the folder."""
    _write_good()
    _write_shapes()
    _write_messages()
    _write_acknowledgements()


def _write_good() -> None:
    for qos in (0, 1, 2):
        what = publish(message(qos=qos, packet_id=7 if qos else 0))
        write_one(f"qos-{qos}", f"A message with QoS {qos}.", "ok", publish_receipt(what))
    write_one("good-hybrid", "Both signatures.", "ok", publish_receipt(publish(), hybrid=True), hybrid=True)
    draft = publish_payload(publish(), statement_of().id, SERVER.spiffe_id, Redaction(), random_of("salts"))
    batched = batch_of([draft, *neighbours(2)])[0]
    write_one("batched", "Signed together with two others, without disclosures.", "ok", batched)
    old = message(version=Version.V311, properties=(), nonce=None)
    write_one("mqtt-3.1.1", "A message of MQTT 3.1.1 has no properties.", "ok", publish_receipt(publish(old)))
    write_one("no-disclosures", "As a broker delivers it.", "ok", bent())
    stored = publish(acknowledgement=RecordedAcknowledgement(0, AckedBy.MIDDLEWARE))
    write_one("middleware", "The server stored the message before the broker had it.", "ok", publish_receipt(stored))
    refused = publish(acknowledgement=RecordedAcknowledgement(ReasonCode.NOT_AUTHORIZED, AckedBy.UPSTREAM))
    write_one("refused", "The broker refused the message.", "ok", publish_receipt(refused))
    aborted = publish(acknowledgement=None, outcome=ExchangeOutcome.CLIENT_ABORTED)
    write_one("aborted", "The client left before the acknowledgement.", "ok", publish_receipt(aborted))
    write_one("unknown-members", "Members of a later version are ignored.", "ok", bent(svc__request__later=1))
    retained = message(retain=True, topic="zähler/1/leistung", client_id="")
    write_one(
        "retained", "A retained message, a topic beyond ASCII, no client identifier.", "ok", bent(publish(retained))
    )


def _write_shapes() -> None:
    http: Any = loads_object(receipt_of(exchange()).payload)["svc"]
    for name, comment, claims in (
        ("mixed-method", "A message with the method of a request.", {"request__method": "POST"}),
        ("mixed-path", "A message with the path of a request.", {"request__path": "/v1/transfer"}),
        ("mixed-status", "An acknowledgement with the status of a response.", {"response__status": 200}),
        ("mixed-response", "A message with a response of HTTP.", {"response": http["response"]}),
        ("mixed-request", "A request of HTTP with an acknowledgement.", {"request": http["request"]}),
        ("packet-subscribe", "Another packet.", {"request__packet": "SUBSCRIBE"}),
        ("packet-lower-case", "The packet in another spelling.", {"request__packet": "publish"}),
        ("version-5", "The version in another spelling.", {"request__version": "5"}),
        ("no-client-id", "No client identifier.", {"request__clientId": ...}),
        ("upgraded", "No exchange of MQTT is upgraded.", {"outcome": "upgraded"}),
        ("body-incomplete", "A packet is read as a whole.", {"request__body__complete": False}),
    ):
        write_one(name, comment, "malformed", bent(**{f"svc__{key}": value for key, value in claims.items()}))
    write_one("level-log", "An unsigned record that somebody signed.", "level_mismatch", bent(svc__level="logRequest"))
    comment = "The certificate that the receipt names is not the one that signed."
    write_one("server-thumbprint", comment, "key_mismatch", publish_receipt(publish(server=peer_of(REPLICA))))


def _write_messages() -> None:
    user = ["user-property", ["k", "v"]]
    for name, comment, claims in (
        ("topic-wildcard", "A topic with a wildcard.", {"topic": "meters/+/power"}),
        ("topic-empty", "A topic that an alias would replace.", {"topic": ""}),
        ("topic-control", "A topic with a control character.", {"topic": "meters\u0007"}),
        ("topic-long", "A topic of 65,536 octets.", {"topic": "a" * 65536}),
        ("qos-3", "A QoS that does not exist.", {"qos": 3}),
        ("qos-true", "A QoS that is no number.", {"qos": True}),
        ("retain-number", "The flag retain as a number.", {"retain": 0}),
        ("packet-id-0", "A packet identifier of 0.", {"packetId": 0}),
        ("packet-id-null", "No packet identifier with QoS 1.", {"packetId": None}),
        ("property-alias", "A topic alias, which is resolved.", {"properties": [["topic-alias", 1]]}),
        ("property-name", "The name of a property in another spelling.", {"properties": [["Content-Type", "x"]]}),
        ("property-order", "A property behind a user property.", {"properties": [user, ["content-type", "x"]]}),
        ("property-twice", "A property that occurs twice.", {"properties": [["content-type", "x"]] * 2}),
        ("property-reserved", "A property of the proxy.", {"properties": [["user-property", ["svc-nonce", "v"]]]}),
        ("property-flat", "A user property without brackets.", {"properties": [["user-property", "k", "v"]]}),
        ("correlation-padded", "Octets with padding.", {"properties": [["correlation-data", "AP8="]]}),
        ("response-topic", "A response topic with a wildcard.", {"properties": [["response-topic", "a/#"]]}),
        ("properties-3.1.1", "Properties in MQTT 3.1.1.", {"version": "3.1.1"}),
    ):
        write_one(name, comment, "malformed", bent(**{f"svc__request__{key}": value for key, value in claims.items()}))
    wrong = bent().with_extra(disclosures={"request": {"0": "A" * 22}})
    write_one("disclosures-clear", "A salt for a property that stands in clear.", "malformed", wrong)


def _write_acknowledgements() -> None:
    for name, comment, claims in (
        ("reason-name", "The name of another reason code.", {"reasonName": "Not authorized"}),
        ("reason-code", "The code of another name.", {"reasonCode": 0x87}),
        ("reason-unknown", "A reason code that PUBACK cannot have.", {"reasonCode": 0x88}),
        ("reason-spelling", "The name in another spelling.", {"reasonName": "success"}),
        ("pubrec-for-qos-1", "The acknowledgement of another QoS.", {"packet": "PUBREC"}),
        ("pubcomp", "No acknowledgement of a PUBLISH.", {"packet": "PUBCOMP"}),
        ("acked-by", "Somebody else acknowledged it.", {"ackedBy": "broker"}),
    ):
        write_one(name, comment, "malformed", bent(**{f"svc__response__{key}": value for key, value in claims.items()}))
    comment = "A complete exchange with QoS 1 has an acknowledgement."
    write_one("no-acknowledgement", comment, "malformed", bent(svc__response=None))
    puback = {"packet": "PUBACK", "reasonCode": 0, "reasonName": "Success", "ackedBy": "upstream"}
    nothing = publish(message(qos=0, packet_id=0))
    comment = "A message with QoS 0 is not acknowledged."
    write_one("qos-0-acknowledged", comment, "malformed", bent(nothing, svc__response=puback))
    comment = "A message with QoS 0 has no packet identifier."
    write_one("qos-0-packet-id", comment, "malformed", bent(nothing, svc__request__packetId=7))

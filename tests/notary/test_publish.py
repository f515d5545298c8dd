"""Receipts of PUBLISH: what is written, what is read, and what is refused."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.envelope.envelope import MAX_ENVELOPE, Envelope
from svc.envelope.errors import EnvelopeError
from svc.envelope.profile import Profile
from svc.notary.batch import BATCH_ROOM
from svc.notary.evidence import EvidenceFile, verify_offline
from svc.notary.exchange import BodySummary, ExchangeOutcome, Peer
from svc.notary.level import Level
from svc.notary.publish import (
    ACKNOWLEDGEMENTS,
    REASON_NAMES,
    AckedBy,
    PublishedMessage,
    RecordedAcknowledgement,
    RecordedPublish,
    publish_octets,
    recorded_properties,
)
from svc.notary.publish_claims import AcknowledgementClaims, PublishClaims
from svc.notary.receipt import Redaction
from svc.notary.receipt_claims import ReceiptClaims, read_disclosures
from svc.notary.receiptcheck import ReceiptEvidence, verify_receipt
from svc.notary.record_bound import PublishBound, largest_publish
from svc.strictjson import b64u_encode, dumps, loads_object
from svc.wire.mqtt import Connect, Decoder, PacketType, Properties, Publish, ReasonCode, Version, encode
from svc.wire.mqtt.codes import REASONS
from tests.notary.artifacts import NOW, REQUEST_BODY, Fixture, message_of, resigned, seen_of
from tests.notary.test_record_bound import LONGEST

FIXTURE = Fixture()
LATER = NOW.replace(second=40)
#: Texts that MQTT allows and that are long in JSON.
TEXTS = st.text(st.sampled_from('a"\\é€😀/ '), max_size=20)
TOPICS = TEXTS.filter(bool)
PROPERTIES = st.builds(
    Properties,
    payload_format=st.none() | st.integers(0, 1),
    message_expiry=st.none() | st.integers(0, 2**32 - 1),
    content_type=st.none() | TEXTS,
    response_topic=st.none() | TOPICS,
    correlation_data=st.none() | st.binary(max_size=20),
    user=st.lists(st.tuples(TEXTS | st.sampled_from(["cookie", "COOKIE", "svc-x"]), TEXTS), max_size=5).map(tuple),
)


def request_of(publish: RecordedPublish, **redaction: Any) -> dict[str, Any]:
    """``svc.request`` of a payload."""
    svc: Any = loads_object(FIXTURE.draft(publish, redaction=Redaction.of(**redaction)).payload)["svc"]
    found: dict[str, Any] = svc["request"]
    return found


def verified(receipt: Envelope | bytes, **changes: object) -> ReceiptEvidence:
    """Verify a receipt as one that a broker has delivered."""
    arguments: dict[str, object] = {
        "statement": FIXTURE.evidence,
        "profile": Profile.HYBRID,
        "anchors": FIXTURE.anchors,
        "now": LATER,
        "seen": None,
    }
    return verify_receipt(receipt, **{**arguments, **changes})  # type: ignore[arg-type]


def refusal(receipt: Envelope | bytes, **changes: object) -> str:
    """Return why a receipt is refused, or ``ok``."""
    try:
        verified(receipt, **changes)
    except EnvelopeError as error:
        return error.detail_reason
    return "ok"


def changed(publish: RecordedPublish | None = None, /, **claims: object) -> Envelope:
    """A receipt with other claims, signed by the server."""
    receipt = FIXTURE.receipt(publish or FIXTURE.publish())
    return resigned(receipt, naming.TYPE_RECEIPT, FIXTURE.credentials.signers, **claims)


def of_qos(qos: int, **changes: Any) -> RecordedPublish:
    """A message with this QoS and its acknowledgement."""
    answer = RecordedAcknowledgement(0, AckedBy.UPSTREAM) if qos else None
    message = message_of(qos=qos, packet_id=7 if qos else 0)
    return FIXTURE.publish(message=message, acknowledgement=answer, **changes)


class PayloadTests(SynchronousTestCase):
    """What a receipt says of a message."""

    def test_payload(self) -> None:
        """Every member, with the names of the standard; alias and reserved properties are left out."""
        draft = FIXTURE.draft(FIXTURE.publish())
        payload: Any = loads_object(draft.payload)
        digest = payload["svc"]["request"]["properties"][6][1][1]["digest"]
        salt = draft.disclosures["request"]["6"]  # type: ignore[index]
        self.assertEqual(22, len(salt))
        self.assertEqual(
            {
                "packet": "PUBLISH",
                "version": "5.0",
                "clientId": "meter-1",
                "topic": "meters/1/power",
                "qos": 1,
                "retain": False,
                "packetId": 7,
                "properties": [
                    ["payload-format-indicator", 1],
                    ["message-expiry-interval", 3600],
                    ["content-type", "application/json"],
                    ["response-topic", "meters/1/answers"],
                    ["correlation-data", "AP8"],
                    ["user-property", ["unit", "kW"]],
                    ["user-property", ["Authorization", {"redacted": "sha-256", "digest": digest}]],
                    ["user-property", ["unit", "kW"]],
                ],
                "body": {
                    "size": len(REQUEST_BODY),
                    "sha-256": b64u_encode(hashlib.sha256(REQUEST_BODY).digest()),
                    "complete": True,
                },
            },
            payload["svc"]["request"],
        )
        self.assertEqual(
            {"packet": "PUBACK", "reasonCode": 0, "reasonName": "Success", "ackedBy": "upstream"},
            payload["svc"]["response"],
        )
        http: Any = loads_object(FIXTURE.draft().payload)
        self.assertEqual([*http], [*payload])
        self.assertEqual([*http["svc"]], [*payload["svc"]])

    def test_acknowledgements(self) -> None:
        """Each QoS has its own; QoS 0 has neither identifier nor acknowledgement."""
        for qos, packet in ACKNOWLEDGEMENTS.items():
            svc: Any = loads_object(FIXTURE.draft(of_qos(qos)).payload)["svc"]
            self.assertEqual(7 if qos else None, svc["request"]["packetId"])
            self.assertEqual(packet, svc["response"] and svc["response"]["packet"])

    def test_reason_names(self) -> None:
        """Every code that PUBACK and PUBREC can have has a name."""
        self.assertEqual(REASONS[PacketType.PUBACK], set(REASON_NAMES))
        self.assertEqual(REASONS[PacketType.PUBREC], set(REASON_NAMES))

    def test_redaction(self) -> None:
        """Values of user properties are redacted by name, in any case, as headers are."""
        properties = recorded_properties(Properties(user=(("Cookie", "é"), ("Token", "x"), ("k", "v"))))
        publish = FIXTURE.publish(message=message_of(properties=properties))
        for names, kinds in (((), [dict, str, str]), (("token",), [dict, dict, str])):
            found = request_of(publish, headers=names)["properties"]
            self.assertEqual(kinds, [type(value) for _name, (_key, value) in found])

    def test_level(self) -> None:
        """A message below logRequest has no payload."""
        self.assertRaises(ValueError, FIXTURE.draft, FIXTURE.publish(level=Level.WORKLOAD))

    @given(TOPICS, PROPERTIES)
    def test_octets(self, topic: str, properties: Properties) -> None:
        """What is counted is what topic and properties take on the wire, but for numbers and reserved properties."""
        kept = properties.replace(
            payload_format=None,
            message_expiry=None,
            user=tuple(pair for pair in properties.user if not pair[0].startswith("svc-")),
        )
        packet = encode(Publish(topic, b"", properties=kept), Version.V5, "client")
        bare = encode(Publish("", b"", properties=Properties(topic_alias=1)), Version.V5, "client")
        counted = publish_octets(topic, recorded_properties(properties))
        # The fixed header, the lengths of topic and properties, and the alias without which no topic is empty.
        self.assertLessEqual(len(packet) - counted - len(bare), 0)
        self.assertGreaterEqual(len(packet) - counted, 5)


class BoundTests(SynchronousTestCase):
    """The arithmetic of the largest record against payloads."""

    def check(self, message: PublishedMessage, redaction: Redaction, bound: PublishBound | None = None) -> int:
        """Compare one payload with its bound; return how many octets it is smaller."""
        octets, count = publish_octets(message.topic, message.properties), len(message.properties)
        client_id = len(message.client_id.encode())
        bound = bound or PublishBound(octets, count, client_id, redaction)
        recorded = FIXTURE.publish(
            message=message,
            client=Peer(LONGEST, "x" * 43),
            server=Peer(LONGEST, "x" * 43),
            acknowledgement=RecordedAcknowledgement(0x83, AckedBy.MIDDLEWARE),
            outcome=ExchangeOutcome.CREDENTIALS_EXPIRED,
        )
        made = FIXTURE.draft(recorded, redaction=redaction)
        payload = made.payload.replace(str(FIXTURE.svid.spiffe_id).encode(), str(LONGEST).encode())
        salts = len(dumps({"disclosures": made.disclosures})) if made.disclosures else 0
        self.assertLessEqual(len(payload), bound.payload)
        self.assertLessEqual(salts, bound.salts)
        self.assertLessEqual(len(b64u_encode(payload)) + salts + BATCH_ROOM, bound.envelope(0))
        return bound.payload - len(payload)

    @given(TOPICS, PROPERTIES, TEXTS, st.sampled_from([Redaction(), Redaction.of(["a"])]))
    @example("t", Properties(user=(("a", ""),) * 50), "", Redaction.of(["a"]))
    @example("t", Properties(user=(("cookie", ""),) * 50), "", Redaction())
    @example('"' * 65535, Properties(correlation_data=b"\xff" * 65535), '"' * 65535, Redaction())
    def test_no_larger(self, topic: str, properties: Properties, client_id: str, redaction: Redaction) -> None:
        """Whatever a client publishes, its record is no larger than computed from its octets."""
        message = message_of(topic=topic, properties=recorded_properties(properties), client_id=client_id)
        self.check(message, redaction)

    def test_nearly_as_large(self) -> None:
        """The bound is used up but for a few hundred octets by the worst message of a listener."""
        bound = PublishBound(8192, 20, 64)
        pairs = (("cookie", ""),) * 20
        rest = 8192 - 20 * (5 + len("cookie"))
        message = message_of(
            topic='"' * rest,
            client_id='"' * 64,
            properties=recorded_properties(Properties(user=pairs)),
        )
        self.assertEqual(8192, publish_octets(message.topic, message.properties))
        self.assertLess(self.check(message, Redaction(), bound), 2048)

    def test_largest(self) -> None:
        """The largest limit fits and the next one does not; the longest topic fits by default."""
        bound = PublishBound(2**20, 100, 1024)
        self.assertFalse(bound.fits)
        largest = largest_publish(bound)
        self.assertGreater(largest, 65535)
        self.assertTrue(dataclasses.replace(bound, head=largest).fits)
        self.assertFalse(dataclasses.replace(bound, head=largest + 1).fits)
        self.assertEqual(0, largest_publish(PublishBound(2**20, 100, 100_000)))
        self.assertLess(PublishBound(4096, 10, 64).stored, PublishBound(4096, 10, 64).envelope())
        self.assertLessEqual(dataclasses.replace(bound, head=largest).envelope(), MAX_ENVELOPE)

    def test_signed(self) -> None:
        """The receipt of the largest message that is accepted is one that a verifier reads."""
        bound = PublishBound(2**20, 100, 1024)
        room = largest_publish(bound) - 65535
        pairs = (("cookie", ""),) * 99
        pairs = (*pairs, ("k", '"' * (room - publish_octets("", recorded_properties(Properties(user=pairs))) - 6)))
        message = message_of(
            topic='"' * 65535, client_id='"' * 1024, properties=recorded_properties(Properties(user=pairs))
        )
        self.assertEqual(largest_publish(bound), publish_octets(message.topic, message.properties))
        receipt = FIXTURE.receipt(FIXTURE.publish(message=message))
        self.assertEqual("ok", refusal(receipt.serialize()))
        self.assertEqual("ok", refusal(FIXTURE.batched(exchange=FIXTURE.publish(message=message)).serialize()))


class VerificationTests(SynchronousTestCase):
    """The one verifier with a message of MQTT."""

    def test_good(self) -> None:
        """A receipt of each QoS, alone and of a batch, with disclosures and without."""
        for qos in (0, 1, 2):
            receipt = FIXTURE.receipt(of_qos(qos))
            evidence = verified(receipt)
            claims = ReceiptClaims.read(evidence.claims)
            assert isinstance(claims.request, PublishClaims)
            self.assertEqual(("meters/1/power", qos), (claims.request.topic, claims.request.qos))
            self.assertEqual(qos > 0, isinstance(claims.response, AcknowledgementClaims))
            self.assertEqual(Level.SIGN_REQUEST, evidence.level)
            self.assertEqual("ok", refusal(Envelope(receipt.payload, receipt.signatures)))
            batched = FIXTURE.batched(exchange=of_qos(qos))
            self.assertEqual(1, verified(batched.serialize()).batch.index)

    def test_unsigned(self) -> None:
        """A record of level logRequest is no receipt."""
        self.assertEqual("level_mismatch", refusal(changed(svc__level="logRequest")))

    def test_aborted(self) -> None:
        """Without acknowledgement an exchange did not end as it should."""
        for outcome in ExchangeOutcome:
            found = refusal(FIXTURE.receipt(FIXTURE.publish(acknowledgement=None, outcome=outcome)))
            malformed = outcome in (ExchangeOutcome.COMPLETE, ExchangeOutcome.UPGRADED)
            self.assertEqual("malformed" if malformed else "ok", found, outcome)

    def test_not_an_exchange_of_http(self) -> None:
        """A client of HTTP that gets the receipt of a message is told so."""
        receipt = FIXTURE.receipt(FIXTURE.publish())
        self.assertEqual("request_mismatch{method}", refusal(receipt, seen=seen_of(FIXTURE.exchange())))

    def test_mixed(self) -> None:
        """A payload has the members of one protocol alone."""
        for name, value in (
            ("request__method", "POST"), ("request__path", "/"), ("request__headers", []), ("request__status", 200),
            ("response__status", 200), ("response__headers", []), ("response__trailers", []),
        ):  # fmt: skip
            self.assertEqual("malformed", refusal(changed(**{f"svc__{name}": value})), name)
        http = FIXTURE.receipt()
        for name, value in (
            ("request__topic", "a"), ("request__qos", 0), ("request__packet", "PUBLISH"), ("request__properties", []),
            ("response__packet", "PUBACK"), ("response__ackedBy", "upstream"), ("response__reasonCode", 0),
        ):  # fmt: skip
            mixed = resigned(http, naming.TYPE_RECEIPT, FIXTURE.credentials.signers, **{f"svc__{name}": value})
            self.assertEqual("malformed", refusal(mixed), name)
        response = loads_object(http.payload)["svc"]["response"]  # type: ignore[index]
        self.assertEqual("malformed", refusal(changed(svc__response=response)))
        self.assertEqual("ok", refusal(changed(svc__request__later=1, svc__response__later=1)))

    def test_malformed(self) -> None:
        """Every claim of another type or value is malformed, and so is one that is absent."""
        user = ["user-property", ["k", "v"]]
        for claims in (
            {"request__packet": "SUBSCRIBE"}, {"request__packet": None}, {"request__packet": "publish"},
            {"request__version": "5"}, {"request__version": 5}, {"request__clientId": None},
            {"request__clientId": "x" * 65536}, {"request__topic": ""}, {"request__topic": "a/+"},
            {"request__topic": "a/#"}, {"request__topic": "a\0"}, {"request__topic": "é" * 32768},
            {"request__topic": None}, {"request__qos": 3}, {"request__qos": True}, {"request__qos": "1"},
            {"request__retain": 0}, {"request__packetId": 0}, {"request__packetId": 65536},
            {"request__packetId": None}, {"request__packetId": ...}, {"request__body__complete": False},
            {"request__body": ...}, {"request__body__size": -1}, {"request__properties": None},
            {"request__properties": ...}, {"request__properties": [["topic-alias", 1]]},
            {"request__properties": [["Content-Type", "x"]]}, {"request__properties": ["content-type"]},
            {"request__properties": [[["content-type"], "x"]]}, {"request__properties": [["content-type", 1]]},
            {"request__properties": [["content-type", "x"], ["content-type", "x"]]},
            {"request__properties": [user, ["content-type", "x"]]},
            {"request__properties": [["payload-format-indicator", 2]]},
            {"request__properties": [["message-expiry-interval", 2**32]]},
            {"request__properties": [["response-topic", "a/#"]]}, {"request__properties": [["correlation-data", "A="]]},
            {"request__properties": [["correlation-data", "AB"]]}, {"request__properties": [["user-property", "k"]]},
            {"request__properties": [["user-property", ["k"]]]}, {"request__properties": [["user-property", [1, "v"]]]},
            {"request__properties": [["user-property", ["svc-nonce", "v"]]]},
            {"request__properties": [["user-property", ["k", "\x07"]]]},
            {"request__properties": [["user-property", ["k", {"redacted": "md5", "digest": "x"}]]]},
            {"request__version": "3.1.1"}, {"response__packet": "PUBREC"}, {"response__packet": "PUBCOMP"},
            {"response__reasonCode": 1}, {"response__reasonCode": 0x87}, {"response__reasonCode": "0"},
            {"response__reasonName": "success"}, {"response__reasonName": "Not authorized"},
            {"response__ackedBy": "broker"}, {"response__ackedBy": ...}, {"response": ...}, {"outcome": "upgraded"},
        ):  # fmt: skip
            receipt = changed(**{f"svc__{name}": value for name, value in claims.items()})
            receipt = Envelope(receipt.payload, receipt.signatures)
            self.assertEqual("malformed", refusal(receipt), claims)

    def test_qos_0(self) -> None:
        """A message with QoS 0 has neither packet identifier nor acknowledgement."""
        answer = {"packet": "PUBACK", "reasonCode": 0, "reasonName": "Success", "ackedBy": "upstream"}
        for claims in ({"request__packetId": 7}, {"request__packetId": ...}, {"response": answer}):
            receipt = changed(of_qos(0), **{f"svc__{name}": value for name, value in claims.items()})
            self.assertEqual("malformed", refusal(receipt), claims)

    def test_every_code(self) -> None:
        """A code is accepted with its own name; MQTT 3.1.1 has Success alone."""
        for code, name in REASON_NAMES.items():
            receipt = changed(svc__response__reasonCode=int(code), svc__response__reasonName=name)
            self.assertEqual("ok", refusal(receipt))
            old = message_of(version=Version.V311, properties=())
            answer = RecordedAcknowledgement(code, AckedBy.UPSTREAM)
            found = refusal(FIXTURE.receipt(FIXTURE.publish(message=old, acknowledgement=answer)))
            self.assertEqual("malformed" if code else "ok", found)

    def test_disclosures(self) -> None:
        """A salt belongs to a redacted user property, by its index."""
        receipt = FIXTURE.receipt(FIXTURE.publish())
        self.assertEqual(
            {"request": {"6"}},
            {side: {*salts} for side, salts in dict(receipt.extra["disclosures"]).items()},  # type: ignore[call-overload]
        )
        self.assertEqual("ok", refusal(receipt))
        bare = Envelope(receipt.payload, receipt.signatures)
        for disclosures in ({"request": {"5": "A" * 22}}, {"request": {"6": "AA"}}, {"response": {"0": "A" * 22}}):
            self.assertEqual("malformed", refusal(bare.with_extra(disclosures=disclosures)))

    def test_describes(self) -> None:
        """A payload is compared with a message by all that it says, redacted values with their salts."""
        draft = FIXTURE.draft(FIXTURE.publish())
        claims = ReceiptClaims.read(loads_object(draft.payload))
        request = claims.request
        assert isinstance(request, PublishClaims)
        salts = read_disclosures({"disclosures": draft.disclosures}, claims)["request"]
        message = message_of()
        self.assertTrue(request.describes(message, salts))
        self.assertFalse(request.describes(message, {}))
        changes: dict[str, object] = {
            "version": Version.V311, "client_id": "x", "topic": "x", "qos": 2, "retain": True, "packet_id": 8,
            "properties": message.properties[:-1], "body": BodySummary.of(b"x"),
        }  # fmt: skip
        for name, value in changes.items():
            self.assertFalse(request.describes(message_of(**{name: value}), salts), name)
        for number, each in enumerate(message.properties):
            other: Any = (each[0], ("unit", "W")) if isinstance(each[1], tuple) else (each[0], b"other")
            properties = (*message.properties[:number], other, *message.properties[number + 1 :])
            self.assertFalse(request.describes(message_of(properties=properties), salts), each)

    @given(
        st.sampled_from(["packet", "version", "clientId", "topic", "qos", "retain", "packetId", "properties", "body"]),
        st.recursive(
            st.none() | st.booleans() | st.integers(-1, 70000) | TEXTS | st.sampled_from(["user-property", "PUBLISH"]),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("redacted"), inner, max_size=1),
            max_leaves=6,
        ),
    )
    def test_any_claim(self, name: str, value: object) -> None:
        """Any value of a claim gives claims or a typed error."""
        payload: Any = loads_object(FIXTURE.draft(FIXTURE.publish()).payload)
        payload["svc"]["request"][name] = value
        try:
            self.assertIsInstance(ReceiptClaims.read(payload).request, PublishClaims)
        except EnvelopeError as error:
            self.assertEqual("malformed", error.reason)

    @given(
        TOPICS,
        PROPERTIES,
        st.sampled_from([0, 1, 2]),
        st.booleans(),
        st.integers(1, 65535),
        st.binary(max_size=50),
        st.sampled_from([*REASON_NAMES]),
    )
    def test_whatever_is_published(
        self,
        topic: str,
        properties: Properties,
        qos: Any,
        retain: bool,
        packet_id: int,
        body: bytes,
        code: ReasonCode,
    ) -> None:
        """What the decoder accepts has a record that the verifier reads back to the same message."""
        sent = Publish(topic, body, qos, retain, False, packet_id if qos else 0, properties)
        decoder = Decoder("client")
        _connect, packet = decoder.feed(b"".join(encode(each, Version.V5, "client") for each in (Connect("x"), sent)))
        assert isinstance(packet, Publish)
        message = PublishedMessage(
            version=Version.V5,
            client_id="é",
            topic=packet.topic,
            qos=packet.qos,
            retain=packet.retain,
            packet_id=packet.packet_id,
            properties=recorded_properties(packet.properties),
            body=BodySummary.of(packet.payload),
            nonce=None,
        )
        answer = RecordedAcknowledgement(code, AckedBy.MIDDLEWARE) if qos else None
        draft = FIXTURE.draft(FIXTURE.publish(message=message, acknowledgement=answer))
        claims = ReceiptClaims.read(loads_object(draft.payload))
        extra = {"disclosures": draft.disclosures} if draft.disclosures else {}
        salts = read_disclosures(extra, claims).get("request", {})
        assert isinstance(claims.request, PublishClaims)
        self.assertTrue(claims.request.describes(message, salts))


class EvidenceTests(SynchronousTestCase):
    """Evidence files with the receipt of a message."""

    def result(self, **bodies: bytes) -> str:
        """Verify a file with these bodies offline."""
        file = EvidenceFile(FIXTURE.credentials.statement.envelope, FIXTURE.receipt(FIXTURE.publish()), **bodies)
        try:
            parsed = EvidenceFile.parse(file.serialize())
            self.assertTrue(verify_offline(parsed, profile=Profile.HYBRID, anchors=FIXTURE.anchors, now=LATER).ok)
        except EnvelopeError as error:
            return error.detail_reason
        return "ok"

    def test_bodies(self) -> None:
        """The payload of the message is compared with its digest; an acknowledgement has no body."""
        self.assertEqual("ok", self.result())
        self.assertEqual("ok", self.result(request_body=REQUEST_BODY))
        self.assertEqual("request_mismatch{body}", self.result(request_body=REQUEST_BODY + b" "))
        self.assertEqual("response_mismatch{body}", self.result(request_body=REQUEST_BODY, response_body=b""))

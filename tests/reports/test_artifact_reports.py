"""Tests of :mod:`svc.reports.artifact_reports` and of how reports are written."""

from __future__ import annotations

import json
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.envelope.ids import printed_id
from svc.envelope.profile import Profile
from svc.notary.evidence import TIME_ASSERTED
from svc.notary.exchange import BodySummary
from svc.notary.facts import Container, WorkloadFacts
from svc.notary.receipt import Redaction
from svc.notary.receiptcheck import ReceiptEvidence, verify_receipt
from svc.reports.artifact_reports import receipt_report, statement_report, stored_report, unverified_statement_report
from svc.reports.lines import MAX_BODY_TEXT, raw_claims
from svc.reports.report import Part, Report
from tests.notary import test_statement
from tests.notary.artifacts import NOW, REQUEST_BODY, RESPONSE_BODY, Fixture, message_of, seen_of

FIXTURE = Fixture()
#: Characters that move a cursor, reorder a line or end one.
HOSTILE = "\x1b[2J\r\n\x7f\x9b\u202e\u2066\u2028\u2029\x00"


def checked(**changes: object) -> ReceiptEvidence:
    """The evidence of a receipt about an exchange with other fields."""
    exchange = FIXTURE.exchange(**changes)
    return verify_receipt(
        FIXTURE.receipt(exchange, redaction=Redaction(query="query" in changes)),
        statement=FIXTURE.evidence,
        profile=Profile.HYBRID,
        anchors=FIXTURE.anchors,
        now=NOW + timedelta(seconds=2),
        seen=seen_of(exchange),
    )


def checked_batch() -> ReceiptEvidence:
    """The evidence of a receipt that was signed together with two others, as the second of three."""
    return verify_receipt(
        FIXTURE.batched(),
        statement=FIXTURE.evidence,
        profile=Profile.HYBRID,
        anchors=FIXTURE.anchors,
        now=NOW + timedelta(seconds=2),
        seen=None,
        at_iat=True,
    )


def labels(report: Report, depth: int = 0) -> list[str]:
    """The labels of one depth, in order."""
    return [line.label for line in report.lines if line.depth == depth and line.label]


def value_of(report: Report, label: str) -> str:
    """The value of the first line with this label."""
    return next(line.value for line in report.lines if line.label == label)


class StatementReportTests(SynchronousTestCase):
    """A statement as people read it."""

    def test_fields(self) -> None:
        """The report starts with the fields of the specification, in its words and order, and ends with the claims."""
        report = statement_report(FIXTURE.evidence)
        wanted = ["Trust Domain", "SPIFFE ID", "Namespace", "Service Account", "Pod Name", "Pod UID",
                  "Container Images", "Labels", "Annotations"]  # fmt: skip
        self.assertEqual(wanted, labels(report)[: len(wanted)])
        self.assertEqual("Raw Claims (JSON)", labels(report)[-1])
        text = report.render()
        self.assertTrue(text.startswith(f"Workload Identity Statement {printed_id(FIXTURE.evidence.id)}\n"))
        self.assertIn(f"- api: reg/pay/api:1.4 sha256:{'ab' * 32}\n", text)
        self.assertIn("- mls.svc.internal/level: de:s\n", text)
        self.assertIn("- mls.svc.internal/compartment: de:alpha\n", text)

    def test_checks(self) -> None:
        """The report names the valid signatures, whether they are post-quantum, and the issuer."""
        report = statement_report(FIXTURE.evidence)
        self.assertEqual("ES256 valid, ML-DSA-65 valid", value_of(report, "Signatures"))
        self.assertEqual("yes", value_of(report, "Post-Quantum"))
        self.assertIn("Issuer: spiffe://prod.example.org/ns/pay/sa/api (self-issued)\n", str(report))
        self.assertNotIn(TIME_ASSERTED, str(report))
        offline = str(statement_report(FIXTURE.evidence, time_asserted=True))
        self.assertIn(TIME_ASSERTED, offline)
        self.assertIn("Bound To Connection: yes\n", str(report))
        self.assertIn("Bound To Connection: yes (verified offline)\n", offline)

    def test_self_asserted(self) -> None:
        """Pod facts of a self-issued statement are marked, SPIFFE ID and trust domain are not."""
        report = statement_report(FIXTURE.evidence)
        marked = {line.label for line in report.lines if line.mark == "self-asserted"}
        self.assertEqual(
            {"Namespace", "Service Account", "Pod Name", "Pod UID", "Container Images", "Labels", "Annotations"}, marked
        )

    def test_central(self) -> None:
        """Facts of a central issuer are not marked."""
        evidence = test_statement.FIXTURE.verified_statement(test_statement.central())
        report = statement_report(evidence)
        self.assertNotIn("self-asserted", str(report))
        self.assertIn("(central issuer)", str(report))

    def test_classical(self) -> None:
        """Under the profile classical the report does not claim to be post-quantum."""
        evidence = FIXTURE.verified_statement(FIXTURE.credentials.statement.envelope, profile=Profile.CLASSICAL)
        self.assertEqual("no", value_of(statement_report(evidence), "Post-Quantum"))

    def test_absent(self) -> None:
        """What is absent is a dash, and named."""
        statement = FIXTURE.credentials_of(FIXTURE.svid, facts=WorkloadFacts.explicit(host_name="h")).statement
        report = statement_report(FIXTURE.verified_statement(statement.envelope))
        self.assertEqual(["-"] * 3, [value_of(report, name) for name in ("Namespace", "Container Images", "Labels")])
        self.assertIn("\n  Pod UID: -\n  Container Images: -\n", str(report))
        self.assertEqual(
            "namespace, serviceAccount, podUID, node, containers, labels, annotations",
            value_of(report, "Absent Or Withheld"),
        )

    def test_host_name(self) -> None:
        """A host name in place of a pod name is marked as one and not listed as absent; without it the name is."""
        for host, line, listed in (
            ("h", "  Pod Name: h (self-asserted, host name)\n", False),
            ("", "  Pod Name: -\n", True),
        ):
            statement = FIXTURE.credentials_of(FIXTURE.svid, facts=WorkloadFacts.explicit(host_name=host)).statement
            report = statement_report(FIXTURE.verified_statement(statement.envelope))
            self.assertIn(line, str(report))
            self.assertEqual(listed, "podName" in value_of(report, "Absent Or Withheld"))
        self.assertIn("Pod Name: api-7c (self-asserted)\n", str(statement_report(FIXTURE.evidence)))

    def test_hostile_values(self) -> None:
        """No value moves the cursor, reorders a line or makes one of its own."""
        facts = WorkloadFacts.explicit(
            namespace=f"pay{HOSTILE}Trust Domain: evil",
            containers=[Container(HOSTILE, HOSTILE)],
            annotations={naming.ANNOTATION_LEVEL: HOSTILE},
        )
        text = str(
            statement_report(
                FIXTURE.verified_statement(FIXTURE.credentials_of(FIXTURE.svid, facts=facts).statement.envelope)
            )
        )
        self.assertFalse(set(HOSTILE.replace("[2J", "").replace("\n", "")) & set(text))
        self.assertEqual(1, sum(line.strip().startswith("Trust Domain:") for line in text.split("\n")))


class ReceiptReportTests(SynchronousTestCase):
    """A receipt as people read it."""

    def test_fields(self) -> None:
        """The report has the fields of the specification, in its words and order."""
        evidence = checked()
        report = receipt_report(evidence, request_body=REQUEST_BODY, response_body=RESPONSE_BODY)
        wanted = ["Issuer", "Audience", "Issued At", "Workload Statement ID", "HTTP Request", "HTTP Response"]
        self.assertEqual(wanted, labels(report)[: len(wanted)])
        self.assertEqual("Raw Claims (JSON)", labels(report)[-1])
        self.assertEqual(
            ["Method", "Path", "Authority", "Headers", "Body", "Status Code", "Headers", "Body"], labels(report, 1)
        )
        self.assertEqual(f"Signed Request Receipt {printed_id(evidence.id)}", report.title)
        self.assertTrue(report.title.endswith("="))
        self.assertEqual("2026-11-21T00:25:32Z", value_of(report, "Issued At"))
        self.assertEqual(printed_id(evidence.statement_id), value_of(report, "Workload Statement ID"))
        self.assertIn("  Audience:\n    - https://svc.internal/receipt\n", str(report))

    def test_signed_together(self) -> None:
        """A receipt of a batch says so, with its place; one that was signed alone says nothing of it."""
        text = str(receipt_report(checked_batch(), time_asserted=True))
        self.assertIn("  Signed Together: receipt 2 of 3 in a batch issued at 2026-11-21T00:25:32Z\n", text)
        self.assertNotIn("Signed Together", str(receipt_report(checked())))

    def test_bodies(self) -> None:
        """A body is its count of bytes and, where the caller has it, its beginning as text."""
        text = str(receipt_report(checked(), request_body=REQUEST_BODY, response_body=None))
        self.assertIn('    Body: 13 bytes\n      {"amount":12}\n', text)
        self.assertIn("    Body: 11 bytes\n  Outcome", text)

    def test_long_and_binary_bodies(self) -> None:
        """Long text is cut, also inside a character; binary data is not shown; line ends are escaped."""
        for body, shown in (
            (b"a" * MAX_BODY_TEXT, "a" * MAX_BODY_TEXT),
            (b"a" * (MAX_BODY_TEXT + 1), "a" * MAX_BODY_TEXT + "…"),
            (b"a" * (MAX_BODY_TEXT - 1) + "é".encode(), "a" * (MAX_BODY_TEXT - 1) + "…"),
            (b"\xff\xfe\0", "(binary data)"),
            (b"a" * (MAX_BODY_TEXT - 1) + b"\xff", "(binary data)"),
            (b"one\ntwo\x1b[0m", "one\\x0atwo\\x1b[0m"),
        ):
            report = receipt_report(checked(response_body=BodySummary.of(body)), response_body=body)
            self.assertIn(f"      {shown}\n  Outcome", str(report), body[-4:])

    def test_attested_octets_alone(self) -> None:
        """Nothing of a body is shown beyond the octets that the receipt attests."""
        early = checked(request_body=BodySummary.of(REQUEST_BODY[:4], complete=False))
        text = str(receipt_report(early, request_body=REQUEST_BODY, response_body=RESPONSE_BODY + b" and more"))
        self.assertIn('    Body: 4 bytes (incomplete)\n      {"am\n  HTTP Response', text)
        self.assertIn('    Body: 11 bytes\n      {"ok":true}\n  Outcome', text)
        none = checked(request_body=BodySummary.of(b"", complete=False))
        self.assertIn("    Body: 0 bytes (incomplete)\n  HTTP Response", str(receipt_report(none, request_body=b"x")))
        long = b"a" * MAX_BODY_TEXT
        at_limit = checked(response_body=BodySummary.of(long))
        self.assertIn(f"      {long.decode()}\n  Outcome", str(receipt_report(at_limit, response_body=long + b"b")))

    def test_redacted(self) -> None:
        """Redacted values show their digest and never the value."""
        text = str(receipt_report(checked(query="?token=geheim")))
        self.assertIn("authorization: [redacted, sha-256 ", text)
        self.assertIn("Path: /v1/transfer (query [redacted, sha-256 ", text)
        self.assertNotIn("geheim", text)

    def test_incomplete(self) -> None:
        """A body that was not read completely is marked."""
        early = checked(request_body=BodySummary.of(REQUEST_BODY[:3], complete=False))
        self.assertIn("Body: 3 bytes (incomplete)", str(receipt_report(early)))

    def test_trailers(self) -> None:
        """Trailers are shown where there are any."""
        self.assertNotIn("Trailers", str(receipt_report(checked())))
        self.assertIn("Trailers:\n      x-sum: 1", str(receipt_report(checked(response_trailers=((b"X-Sum", b"1"),)))))

    def test_hostile_header(self) -> None:
        """Header octets cannot act on a terminal."""
        text = str(receipt_report(checked(response_headers=((b"X", b"\x1b]0;x\x07\x9b\x85\r"),))))
        self.assertFalse({"\x1b", "\x07", "\x9b", "\x85", "\r"} & set(text))


class MessageReportTests(SynchronousTestCase):
    """The receipt of a message of MQTT."""

    def report(self, **changes: object) -> Report:
        """The report of a verified receipt with these fields changed."""
        evidence = verify_receipt(
            FIXTURE.receipt(FIXTURE.publish(**changes)),  # type: ignore[arg-type]
            statement=FIXTURE.evidence,
            profile=Profile.HYBRID,
            anchors=FIXTURE.anchors,
            now=NOW + timedelta(seconds=2),
            seen=None,
        )
        return receipt_report(evidence, request_body=REQUEST_BODY)

    def test_fields(self) -> None:
        """Message and acknowledgement take the place of request and response; a secret property shows its digest."""
        report = self.report()
        wanted = ["Workload Statement ID", "MQTT Message", "MQTT Acknowledgement", "Outcome", "Notarization Level"]
        self.assertEqual(wanted, labels(report)[3:8])
        text = str(report)
        for line in (
            "    Packet: PUBLISH\n", "    Topic: meters/1/power\n", "    QoS: 1\n", "    Retain: no\n",
            "    Packet Identifier: 7\n", "    Client Identifier: meter-1\n", "    MQTT Version: 5.0\n",
            "      content-type: application/json\n", "      correlation-data: AP8\n", "      unit: kW\n",
            "      Authorization: [redacted, sha-256 ", '    Body: 13 bytes\n      {"amount":12}\n',
            "    Reason: Success (0x00)\n", "    Acknowledged By: upstream\n",
        ):  # fmt: skip
            self.assertIn(line, text)
        self.assertNotIn("geheim", text)
        self.assertNotIn("HTTP", text)

    def test_absent(self) -> None:
        """A message with QoS 0 has neither packet identifier nor acknowledgement."""
        message = message_of(qos=0, packet_id=0, properties=(), client_id="")
        text = str(self.report(message=message, acknowledgement=None))
        self.assertIn("    Packet Identifier: -\n    Client Identifier: -\n", text)
        self.assertIn("    Properties: -\n", text)
        self.assertIn("  MQTT Acknowledgement:\n    Packet: -\n    Reason: - (-)\n", text)


class RenderTests(SynchronousTestCase):
    """Reports can be styled by their caller."""

    def test_style(self) -> None:
        """Title, labels, values and marks reach the style apart; without one there is no escape sequence."""
        seen: set[Part] = set()

        def style(part: Part, text: str) -> str:
            seen.add(part)
            return f"<{part.value}>{text}"

        text = statement_report(FIXTURE.evidence).render(style)
        self.assertEqual(set(Part), seen)
        self.assertIn("<label>Namespace: <value>pay <mark>(self-asserted)\n", text)

    def test_raw_claims(self) -> None:
        """Raw claims are ASCII JSON of the payload, members in its order."""
        claims = {"b": "é\u202e\x7f\x9b", "a": [1, {"c": None}]}
        text = raw_claims(claims)
        self.assertTrue(text.replace("\n", "").isprintable() and text.isascii())
        self.assertEqual(claims, json.loads(text))
        self.assertEqual(["b", "a"], list(json.loads(text)))


_CONTROLS = {character for character in HOSTILE if not (character.isascii() and character.isprintable())}
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5) | st.just(HOSTILE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_NAMES = st.sampled_from(
    [
        "iss", "sub", "aud", "iat", "exp", "svc", "containers", "labels", "truncated", "request", "response", "packet",
        "topic", "properties", "reasonCode", "ackedBy",
    ]
)  # fmt: skip
_CLAIMS = st.dictionaries(_NAMES, _JSON | st.dictionaries(_NAMES, _JSON, max_size=4), max_size=6)


class UnverifiedReportTests(SynchronousTestCase):
    """Artifacts of which nothing was verified, so that their claims may be anything."""

    def test_fields(self) -> None:
        """The fields are those of a verified statement; the checks say that there were none."""
        verified = FIXTURE.evidence
        report = unverified_statement_report(verified.claims, verified.id)
        self.assertEqual(statement_report(verified).title, report.title)
        self.assertEqual("NOT VERIFIED", value_of(report, "Signatures"))
        self.assertEqual(value_of(statement_report(verified), "Valid Until"), value_of(report, "Valid Until"))
        self.assertNotIn("Post-Quantum", labels(report))
        self.assertNotIn("Bound To Connection", labels(report))

    @given(_CLAIMS)
    def test_any_claims(self, claims: dict[str, object]) -> None:
        """Whatever the claims are, there is a report, and no character of it moves a cursor or forges a line."""
        for report in (unverified_statement_report(claims, "x"), stored_report(claims, "x", signed=True)):
            lines = str(report).split("\n")
            self.assertEqual(len(report.lines) + 2, len(lines))
            self.assertFalse(_CONTROLS & set("".join(lines)))

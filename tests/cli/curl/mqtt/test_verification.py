"""Tests of ``svc.cli.curl.mqtt.verification``: what ``--verify`` accepts, refuses and waits for."""

from __future__ import annotations

from datetime import timedelta

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.curl.mqtt.verification import Artifact, ArtifactVerifier, Verified
from svc.client.subscriber import Arrival
from svc.client.verification import Demands, Trust
from svc.envelope.envelope import Envelope
from svc.envelope.errors import detail_reason
from svc.envelope.ids import receipt_id
from svc.naming import ARTIFACT_PREFIX, TYPE_RECEIPT
from svc.wire.mqtt import Publish
from tests.cli.curl.mqtt.broker import RECEIPTS, STATEMENTS, fixture, receipt_message, statement_message
from tests.notary.artifacts import COMPLETED, NO_ANCHORS, Fixture, resigned, spiffe_id


def artifact(message: Publish) -> Artifact:
    """A message as it arrives."""
    return Artifact.of(Arrival(message.topic, message.payload, message.packet_id, message.retain), ARTIFACT_PREFIX)


class VerifierTests(SynchronousTestCase):
    """Statements and receipts in any order."""

    def setUp(self) -> None:
        self.statement, self.receipt = artifact(statement_message()), artifact(receipt_message())
        self.verifier = self.make()
        self.trust = Trust(fixture().anchors)
        self.now = COMPLETED

    def make(self, demands: Demands | None = None, **limits: int) -> ArtifactVerifier:
        """A verifier without TLS connections to workloads."""
        return ArtifactVerifier(demands or Demands(validate=False), **limits)

    def verify(self, *artifacts: Artifact, verifier: ArtifactVerifier | None = None) -> list[Verified]:
        """All results, in their order."""
        chosen = verifier or self.verifier
        return [found for each in artifacts for found in chosen.verify(each, self.trust, self.now)]

    def reasons(self, *artifacts: Artifact, verifier: ArtifactVerifier | None = None) -> list[str]:
        """The reasons of all results; empty for success."""
        found = self.verify(*artifacts, verifier=verifier)
        return ["" if each.result.error is None else detail_reason(each.result.error) for each in found]

    def test_verified(self) -> None:
        """A statement by its identifier, and a receipt against it; neither is bound to a connection or an exchange."""
        statement, receipt = self.verify(self.statement, self.receipt)
        assert statement.result.statement is not None
        assert receipt.result.receipt is not None
        self.assertEqual((False, True), (statement.result.statement.bound, statement.result.statement.post_quantum))
        self.assertEqual(self.statement.identifier, receipt.result.receipt.statement_id)
        self.assertFalse(receipt.result.receipt.compared)
        self.assertTrue(statement.result.ok and receipt.result.ok)
        self.assertEqual([], self.verifier.end())

    def test_one_batch(self) -> None:
        """The envelope of a batch is verified once, however many of its receipts arrive."""
        batched = fixture().batched()
        identifier = receipt_id(batched.payload)
        receipt = Artifact(False, f"{RECEIPTS}/{identifier}", identifier, batched.serialize())
        _statement, first, second = self.verify(self.statement, receipt, receipt)
        assert first.result.receipt is not None
        assert second.result.receipt is not None
        self.assertIs(
            first.result.receipt.envelope_evidence.classical, second.result.receipt.envelope_evidence.classical
        )

    def test_receipt_first(self) -> None:
        """A receipt waits for its statement, whose arrival gives both results."""
        self.assertEqual([], self.verify(self.receipt))
        found = self.verify(self.statement)
        self.assertEqual([self.statement, self.receipt], [each.artifact for each in found])
        self.assertTrue(all(each.result.ok for each in found))

    def test_no_statement(self) -> None:
        """A receipt whose statement never arrives, or is not verified, fails at the end."""
        wrong = Artifact(True, self.statement.topic, "x" * 43, self.statement.envelope)
        self.assertEqual(["id_mismatch"], self.reasons(self.receipt, wrong))
        [absent] = self.verifier.end()
        self.assertIs(self.receipt, absent.artifact)
        self.assertEqual("statement_missing", detail_reason(absent.result.error or Exception()))
        self.assertIn(self.statement.identifier, str(absent.result.error))
        self.assertEqual([], self.verifier.end())

    def test_waiting_is_bounded(self) -> None:
        """As many receipts wait as the limit says; with one more the first fails."""
        verifier = self.make(max_waiting=2)
        receipts = [Artifact(False, f"{RECEIPTS}/{n}", str(n), self.receipt.envelope) for n in range(3)]
        self.assertEqual([], self.verify(*receipts[:2], verifier=verifier))
        [dropped] = self.verify(receipts[2], verifier=verifier)
        self.assertIs(receipts[0], dropped.artifact)
        self.assertEqual(receipts[1:], [each.artifact for each in verifier.end()])

    def test_statements_are_bounded(self) -> None:
        """Of more statements than the limit the least recently used is forgotten."""
        others = [Fixture() for _ in range(2)]
        made = fixture()
        bundles = made.anchors
        for other in others:
            other.authority, other.pq_authority = made.authority, made.pq_authority
            other.svid = made.authority.svid("/ns/pay/sa/other")
        verifier = self.make(max_statements=2)
        self.trust = Trust(bundles)
        first, second = (artifact(statement_message(other)) for other in others)
        self.assertEqual(
            ["", "", "", "", ""],
            self.reasons(self.statement, first, self.receipt, second, self.receipt, verifier=verifier),
        )
        self.assertEqual([""], self.reasons(first, verifier=verifier))
        self.assertEqual([""], self.reasons(second, verifier=verifier))
        self.assertEqual([], self.verify(self.receipt, verifier=verifier))

    def test_refused(self) -> None:
        """What the notary's verifier refuses is refused here, with its reason."""
        for changed, reason in (
            (Artifact(True, "", self.statement.identifier, b"nothing"), "malformed"),
            (Artifact(False, "", self.receipt.identifier, b"{}"), "malformed"),
            (Artifact(True, "", self.statement.identifier, b"x" * (256 * 1024 + 1)), "too_large"),
            (Artifact(True, "", "x", self.statement.envelope), "id_mismatch"),
            (Artifact(True, "", self.receipt.identifier, self.receipt.envelope), "id_mismatch"),
        ):
            self.assertEqual([reason], self.reasons(changed))
        self.verify(self.statement)
        self.assertEqual(["id_mismatch"], self.reasons(Artifact(False, "", "x", self.receipt.envelope)))
        self.now = COMPLETED + timedelta(days=2)
        self.assertEqual(["certificate_not_valid_at_time"], self.reasons(self.statement))
        self.now = COMPLETED
        self.trust = Trust(NO_ANCHORS)
        self.assertEqual(["trust_domain_unknown"], self.reasons(self.statement))

    def test_receipt_of_another(self) -> None:
        """A receipt that another workload signed, for this statement, is refused."""
        made = fixture()
        other = made.credentials_of(made.authority.svid("/ns/pay/sa/other"))
        envelope = resigned(
            Envelope.parse(self.receipt.envelope),
            TYPE_RECEIPT,
            tuple(other.signers),
            iss=str(spiffe_id("/ns/pay/sa/other")),
        )
        identifier = receipt_id(envelope.payload)
        forged = Artifact(False, f"{RECEIPTS}/{identifier}", identifier, envelope.serialize())
        self.assertEqual(["", "issuer_mismatch"], self.reasons(self.statement, forged))

    def test_demands(self) -> None:
        """Expected identities and central issuers are demanded as over HTTP."""
        for demands, reason in (
            (Demands(validate=False, expected=(spiffe_id("/other"),)), "identity_unexpected"),
            (Demands(validate=False, issuers=(spiffe_id("/svc/manager"),)), "issuer_not_authorised"),
            (Demands(validate=False, expected=(fixture().svid.spiffe_id,)), ""),
        ):
            self.assertEqual([reason], self.reasons(self.statement, verifier=self.make(demands)))

    def test_topics(self) -> None:
        """The kind and the identifier of an artifact are those of its topic."""
        for topic, expected in (
            (f"{STATEMENTS}/x", (True, "x")),
            (f"{RECEIPTS}/x/y", (False, "x/y")),
            (STATEMENTS, (True, "")),
        ):
            found = Artifact.of(Arrival(topic, b"", 0, False), ARTIFACT_PREFIX)
            self.assertEqual(expected, (found.is_statement, found.identifier))
        self.assertEqual("receipt a\\x1b", str(Artifact(False, "", "a\x1b", b"")))

"""Tests of :mod:`svc.notary.evidence`."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.envelope.envelope import Envelope
from svc.envelope.errors import EnvelopeError
from svc.envelope.profile import Profile
from svc.identity import BundleSet
from svc.notary.errors import EvidenceInvalid, ReceiptRefused
from svc.notary.evidence import MAX_BODY, MAX_EVIDENCE, EvidenceFile, VerificationResult, verify_offline
from svc.notary.exchange import BodySummary
from svc.notary.facts import FactsInvalid
from svc.notary.verification import Anchors
from svc.strictjson import MAX_NODES, dumps, loads_object
from tests.notary.artifacts import NO_ANCHORS, NOW, REQUEST_BODY, RESPONSE_BODY, Fixture, resigned, spiffe_id
from tests.refusals import assert_refused

FIXTURE = Fixture()
LATER = NOW + timedelta(days=400)


def saved(**changes: object) -> EvidenceFile:
    """The evidence of the fixture's exchange."""
    right: dict[str, object] = {
        "statement": FIXTURE.credentials.statement.envelope,
        "receipt": FIXTURE.receipt(),
        "request_body": REQUEST_BODY,
        "response_body": RESPONSE_BODY,
    }
    return EvidenceFile(**{**right, **changes})  # type: ignore[arg-type]


def verify(evidence: EvidenceFile, **changes: object) -> VerificationResult:
    """Verify offline, long after everything expired."""
    right: dict[str, object] = {"profile": Profile.HYBRID, "anchors": FIXTURE.anchors, "now": LATER}
    return verify_offline(evidence, **{**right, **changes})  # type: ignore[arg-type]


def _nodes(value: object) -> int:
    """How many values and member names there are."""
    if isinstance(value, dict):
        return 1 + sum(1 + _nodes(item) for item in value.values())
    return 1 + (sum(map(_nodes, value)) if isinstance(value, list) else 0)


def refusal(evidence: EvidenceFile, **changes: object) -> str:
    """The precise reason for which evidence is refused."""
    try:
        verify(evidence, **changes)
    except EnvelopeError as error:
        return error.detail_reason
    return "ok"


class FileTests(SynchronousTestCase):
    """The file svc-evidence/1."""

    def test_round_trip(self) -> None:
        """What is written is read back."""
        batched = saved(receipt=FIXTURE.batched())
        for evidence in (saved(), batched, saved(receipt=None, request_body=None, response_body=b"")):
            read = EvidenceFile.parse(evidence.serialize())
            self.assertEqual(evidence.serialize(), read.serialize())
            self.assertEqual((evidence.request_body, evidence.response_body), (read.request_body, read.response_body))

    def test_members(self) -> None:
        """The file names its type and version; absent parts are left out."""
        members = loads_object(saved(receipt=None, request_body=None, response_body=None).serialize())
        self.assertEqual({"type": "svc-evidence/1", "v": 1, "statement": members["statement"]}, members)

    def test_large_bodies(self) -> None:
        """A body at the limit is kept, a larger one is left out, and refused in a file."""
        kept = EvidenceFile.parse(saved(response_body=b"a" * MAX_BODY).serialize())
        self.assertEqual(MAX_BODY, len(kept.response_body or b""))
        self.assertIsNone(EvidenceFile.parse(saved(response_body=b"a" * (MAX_BODY + 1)).serialize()).response_body)

    def test_malformed(self) -> None:
        """What is not such a file is malformed or of an unsupported version."""
        right = loads_object(saved().serialize())
        for reason, changes in (
            ("malformed", {"type": "x"}),
            ("malformed", {"v": "1"}),
            ("malformed", {"v": True}),
            ("unsupported_version", {"v": 2}),
            ("unsupported_version", {"type": "svc-evidence/2"}),
            ("malformed", {"statement": None}),
            ("malformed", {"statement": "x"}),
            ("malformed", {"statement": {}}),
            ("malformed", {"receipt": []}),
            ("malformed", {"receipt": {}}),
            ("malformed", {"receipt": {**FIXTURE.batched().to_object(), "signatures": []}}),
            ("malformed", {"request": "x"}),
            ("malformed", {"request": {}}),
            ("malformed", {"response": {"body": "a"}}),
            ("malformed", {"response": {"body": "a-_="}}),
        ):
            error = self.assertRaises(EnvelopeError, EvidenceFile.parse, dumps({**right, **changes}))
            self.assertEqual(reason, error.detail_reason, changes)

    def test_body_beyond_the_limit(self) -> None:
        """A file with a body that is too large is refused."""
        body = base64.b64encode(b"a" * (MAX_BODY + 1)).decode("ascii")
        document = {**loads_object(saved().serialize()), "response": {"body": body}}
        self.assertRaises(EvidenceInvalid, EvidenceFile.parse, dumps(document))

    def test_nodes(self) -> None:
        """The number of values and names in a file is limited, also in a file of four million octets."""
        right = loads_object(saved().serialize())
        room = MAX_NODES - _nodes(right) - 2
        EvidenceFile.parse(dumps({**right, "later": [0] * room}))
        error = self.assertRaises(EvidenceInvalid, EvidenceFile.parse, dumps({**right, "later": [0] * (room + 1)}))
        self.assertIn(f"more than {MAX_NODES} values", str(error))
        self.assertRaises(EvidenceInvalid, EvidenceFile.parse, b"[" + b"[]," * (MAX_EVIDENCE // 3 - 1) + b"0]")

    def test_payload_without_time(self) -> None:
        """A payload without a time of issue is refused with its own reason."""
        payload = Envelope(b"[]", FIXTURE.credentials.statement.envelope.signatures)
        self.assertEqual("malformed", refusal(saved(statement=payload)))

    @given(st.binary(max_size=80) | st.sampled_from([b"{}", b'{"type":"svc-evidence/1","v":1}']))
    def test_any_octets(self, octets: bytes) -> None:
        """Any octets are a typed error or evidence."""
        error = self.assertRaises(EnvelopeError, EvidenceFile.parse, octets)
        self.assertIn(error.detail_reason, ("malformed", "unsupported_version"))


class OfflineTests(SynchronousTestCase):
    """Evidence is verified at its own time with anchors from outside."""

    def test_good(self) -> None:
        """Evidence outlives its certificates, and its time is only asserted."""
        result = verify(saved())
        self.assertTrue(result.ok and result.post_quantum)
        self.assertEqual({"ok": True, "detail_reason": None, "postQuantum": True, "time": "asserted"}, result.to_json())

    def test_statement_alone(self) -> None:
        """A statement without a receipt is evidence too."""
        result = verify(saved(receipt=None, request_body=None, response_body=None))
        self.assertIsNone(result.receipt)
        self.assertTrue(result.ok)

    def test_bodies_without_receipt(self) -> None:
        """A body that no receipt attests is refused."""
        self.assertEqual("malformed", refusal(saved(receipt=None, request_body=None)))
        self.assertEqual("malformed", refusal(saved(receipt=None, request_body=b"", response_body=None)))

    def test_no_anchor(self) -> None:
        """Without anchors nothing is verified, and the sentence says that none are taken from the file."""
        for anchors in (None, NO_ANCHORS):
            error: Any = assert_refused(self, "no_anchor", verify, saved(), anchors=anchors)
            self.assertEqual(("no_anchor", 1), (error.detail_reason, error.exit_status))
            self.assertIn("none are taken from the file", str(error))

    def test_pq_alone(self) -> None:
        """Under the profile pq the post-quantum bundle is anchor enough."""
        anchors = Anchors(spiffe=BundleSet.of(), pq=FIXTURE.pq_authority.bundles())
        self.assertEqual("ok", refusal(saved(), anchors=anchors, profile=Profile.PQ))

    def test_retired_root(self) -> None:
        """A root is trusted within its window only."""
        for first, last, reason in (
            (None, NOW + timedelta(seconds=5), "ok"),
            (None, NOW - timedelta(seconds=5), "certificate_not_valid_at_time"),
            (NOW + timedelta(seconds=5), None, "certificate_not_valid_at_time"),
        ):
            bundle = FIXTURE.authority.bundle(first_seen=first, last_seen=last)
            anchors = Anchors(spiffe=BundleSet.of(bundle), pq=FIXTURE.pq_authority.bundles())
            self.assertEqual(reason, refusal(saved(), anchors=anchors))

    def test_trusted_time(self) -> None:
        """A trusted time can be required, and nothing here has one; another defect is named first."""
        self.assertEqual("time_unproven", refusal(saved(), require_trusted_time=True))
        self.assertEqual("request_mismatch{body}", refusal(saved(request_body=b"x"), require_trusted_time=True))

    def test_bodies(self) -> None:
        """The bodies in the file are those of the receipt."""
        self.assertEqual("request_mismatch{body}", refusal(saved(request_body=REQUEST_BODY + b"x")))
        self.assertEqual("response_mismatch{body}", refusal(saved(response_body=b"")))
        early = FIXTURE.receipt(FIXTURE.exchange(request_body=BodySummary.of(REQUEST_BODY[:4], complete=False)))
        self.assertEqual("ok", refusal(saved(receipt=early)))
        self.assertEqual("request_mismatch{body}", refusal(saved(receipt=early, request_body=b"none of it")))
        unanswered = FIXTURE.receipt(FIXTURE.exchange(status=None))
        self.assertEqual("response_mismatch{body}", refusal(saved(receipt=unanswered)))

    def test_cut_response(self) -> None:
        """A response body matches no receipt of an incomplete one, however many octets the file has."""
        cut = FIXTURE.receipt(FIXTURE.exchange(response_body=BodySummary.of(RESPONSE_BODY[:4], complete=False)))
        for body in (b"", RESPONSE_BODY[:3], RESPONSE_BODY[:4], RESPONSE_BODY, RESPONSE_BODY + b" and more"):
            self.assertEqual("response_mismatch{body}", refusal(saved(receipt=cut, response_body=body)), body)
        self.assertEqual("ok", refusal(saved(receipt=cut, response_body=None)))

    def test_no_body(self) -> None:
        """A response that has no body has none in the file either."""
        head = FIXTURE.receipt(FIXTURE.exchange(method="HEAD"))
        self.assertEqual("response_mismatch{body}", refusal(saved(receipt=head)))
        self.assertEqual("ok", refusal(saved(receipt=head, response_body=b"")))

    def test_disclosures(self) -> None:
        """The salts in the file are those of values that the receipt redacts."""
        receipt = FIXTURE.receipt()
        bare = Envelope(receipt.payload, receipt.signatures)
        self.assertEqual("ok", refusal(saved(receipt=bare)))
        for disclosures in ([], None, {"request": {"0": "A" * 22}}, {"request": {"1": "A"}}, {"else": {}}):
            odd = bare.with_extra(disclosures=disclosures)
            self.assertEqual("malformed", refusal(saved(receipt=odd)), disclosures)

    def test_mixed(self) -> None:
        """Statement and receipt of different workloads do not make evidence."""
        other_workload = FIXTURE.credentials_of(FIXTURE.client_svid).statement.envelope
        self.assertEqual("issuer_mismatch", refusal(saved(statement=other_workload)))

    def test_rules(self) -> None:
        """Issuer and identity rules hold offline too."""
        self.assertEqual("issuer_not_authorised", refusal(saved(), issuers=[spiffe_id("/svc/manager")]))
        self.assertEqual("identity_unexpected", refusal(saved(), expectations=[spiffe_id("/else")]))

    def test_from_the_future(self) -> None:
        """Evidence cannot be from after now."""
        ahead = int(LATER.timestamp()) + 900
        receipt = resigned(FIXTURE.receipt(), naming.TYPE_RECEIPT, FIXTURE.credentials.signers, iat=ahead)
        self.assertNotEqual("ok", refusal(saved(receipt=receipt)))
        self.assertEqual("ok", refusal(saved(), now=NOW + timedelta(seconds=1)))
        self.assertNotEqual("ok", refusal(saved(), now=NOW - timedelta(seconds=61)))


class VerificationTests(SynchronousTestCase):
    """The result for people and programs."""

    def test_failure(self) -> None:
        """A failure carries its precise reason and claims nothing."""
        result = VerificationResult(
            statement=FIXTURE.evidence, error=ReceiptRefused("request_mismatch", part="header:3")
        )
        expected = {"ok": False, "detail_reason": "request_mismatch{header:3}", "postQuantum": False}
        self.assertEqual(expected, result.to_json())

    def test_other_failures(self) -> None:
        """A failure of another package has its reason, an exception that is not ours is internal."""
        for error, reason in (
            (FactsInvalid(name="a", defect="b"), "workload_facts_invalid"),
            (OSError(), "internal_error"),
        ):
            self.assertEqual(reason, VerificationResult(error=error).to_json()["detail_reason"])

    def test_live(self) -> None:
        """A live result has no remark on its time; a result without a statement is not ok."""
        live = VerificationResult(statement=FIXTURE.evidence)
        self.assertEqual({"ok": True, "detail_reason": None, "postQuantum": True}, live.to_json())
        self.assertFalse(VerificationResult().ok)

    def test_post_quantum_is_all(self) -> None:
        """One artifact without a post-quantum signature makes the result not post-quantum."""
        classical = FIXTURE.verified_statement(FIXTURE.credentials.statement.envelope, profile=Profile.CLASSICAL)
        receipt = verify(saved()).receipt
        self.assertFalse(VerificationResult(statement=classical, receipt=receipt).post_quantum)

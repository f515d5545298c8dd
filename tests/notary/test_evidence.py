"""Tests of :mod:`svc.notary.evidence`."""

from __future__ import annotations

import base64
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.identity import BundleSet
from svc.notary.envelope import Envelope
from svc.notary.errors import NotaryError
from svc.notary.evidence import MAX_BODY, EvidenceFile, Verification, verify_offline
from svc.notary.exchange import BodySeen
from svc.notary.facts import FactsInvalid
from svc.notary.profile import Profile
from svc.notary.refusals import EvidenceMalformed, NoAnchor, RequestMismatch
from svc.notary.verification import Anchors
from svc.strictjson import dumps, loads_object
from tests.notary.artifacts import NO_ANCHORS, NOW, REQUEST_BODY, RESPONSE_BODY, World, resigned, spiffe_id

WORLD = World()
LATER = NOW + timedelta(days=400)


def saved(**changes: object) -> EvidenceFile:
    """The evidence of the world's exchange."""
    right: dict[str, object] = {
        "statement": WORLD.generation.statement.envelope,
        "receipt": WORLD.receipt(),
        "request_body": REQUEST_BODY,
        "response_body": RESPONSE_BODY,
    }
    return EvidenceFile(**{**right, **changes})  # type: ignore[arg-type]


def judge(evidence: EvidenceFile, **changes: object) -> Verification:
    """Verify offline, long after everything expired."""
    right: dict[str, object] = {"profile": Profile.HYBRID, "anchors": WORLD.anchors, "now": LATER}
    return verify_offline(evidence, **{**right, **changes})  # type: ignore[arg-type]


def refusal(evidence: EvidenceFile, **changes: object) -> str:
    """The precise reason for which evidence is refused."""
    try:
        judge(evidence, **changes)
    except NotaryError as error:
        return error.detail_reason
    return "ok"


class FileTests(SynchronousTestCase):
    """The file svc-evidence/1."""

    def test_round_trip(self) -> None:
        """What is written is read back."""
        for evidence in (saved(), saved(receipt=None, request_body=None, response_body=b"")):
            read = EvidenceFile.parse(evidence.serialize())
            self.assertEqual(evidence.serialize(), read.serialize())
            self.assertEqual((evidence.request_body, evidence.response_body), (read.request_body, read.response_body))

    def test_members(self) -> None:
        """The file names its type and version; absent parts are left out."""
        members = loads_object(saved(receipt=None, request_body=None, response_body=None).serialize())
        self.assertEqual({"type": "svc-evidence/1", "v": 1, "statement": members["statement"]}, members)

    def test_large_bodies(self) -> None:
        """A body at the limit is kept, a larger one is left out, and one that somebody wrote in is refused."""
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
            ("malformed", {"request": "x"}),
            ("malformed", {"request": {}}),
            ("malformed", {"response": {"body": "a"}}),
            ("malformed", {"response": {"body": "a-_="}}),
        ):
            error = self.assertRaises(NotaryError, EvidenceFile.parse, dumps({**right, **changes}))
            self.assertEqual(reason, error.detail_reason, changes)

    def test_body_beyond_the_limit(self) -> None:
        """A body that is too large is refused also where somebody wrote it in."""
        body = base64.b64encode(b"a" * (MAX_BODY + 1)).decode("ascii")
        document = {**loads_object(saved().serialize()), "response": {"body": body}}
        self.assertRaises(EvidenceMalformed, EvidenceFile.parse, dumps(document))

    def test_payload_without_time(self) -> None:
        """A payload that has no time to be judged at is refused for what it is."""
        payload = Envelope(b"[]", WORLD.generation.statement.envelope.signatures)
        self.assertEqual("malformed", refusal(saved(statement=payload)))

    @given(st.binary(max_size=80) | st.sampled_from([b"{}", b'{"type":"svc-evidence/1","v":1}']))
    def test_any_octets(self, octets: bytes) -> None:
        """Any octets are a typed error or evidence."""
        error = self.assertRaises(NotaryError, EvidenceFile.parse, octets)
        self.assertIn(error.detail_reason, ("malformed", "unsupported_version"))


class OfflineTests(SynchronousTestCase):
    """Evidence is judged at its own time with anchors from outside."""

    def test_good(self) -> None:
        """Evidence outlives its certificates, and its time is only asserted."""
        result = judge(saved())
        self.assertTrue(result.ok and result.post_quantum)
        self.assertEqual({"ok": True, "detail_reason": None, "postQuantum": True, "time": "asserted"}, result.to_json())

    def test_statement_alone(self) -> None:
        """A statement without a receipt is evidence too."""
        result = judge(saved(receipt=None, request_body=None, response_body=None))
        self.assertIsNone(result.receipt)
        self.assertTrue(result.ok)

    def test_no_anchor(self) -> None:
        """Without anchors nothing is judged, and the sentence says that none come from the file."""
        for anchors in (None, NO_ANCHORS):
            error = self.assertRaises(NoAnchor, judge, saved(), anchors=anchors)
            self.assertEqual(("no_anchor", 1), (error.detail_reason, error.exit_status))
            self.assertIn("none are taken from the file", str(error))

    def test_pq_alone(self) -> None:
        """Under the profile pq the post-quantum bundle is anchor enough."""
        anchors = Anchors(spiffe=BundleSet.of(), pq=WORLD.pq_authority.bundles())
        self.assertEqual("ok", refusal(saved(), anchors=anchors, profile=Profile.PQ))

    def test_retired_root(self) -> None:
        """A root counts within its window and nowhere else."""
        for first, last, reason in (
            (None, NOW + timedelta(seconds=5), "ok"),
            (None, NOW - timedelta(seconds=5), "certificate_not_valid_at_time"),
            (NOW + timedelta(seconds=5), None, "certificate_not_valid_at_time"),
        ):
            bundle = WORLD.authority.bundle(first_seen=first, last_seen=last)
            anchors = Anchors(spiffe=BundleSet.of(bundle), pq=WORLD.pq_authority.bundles())
            self.assertEqual(reason, refusal(saved(), anchors=anchors))

    def test_trusted_time(self) -> None:
        """A trusted time can be required, and nothing here has one; another defect is named first."""
        self.assertEqual("time_unproven", refusal(saved(), require_trusted_time=True))
        self.assertEqual("request_mismatch{body}", refusal(saved(request_body=b"x"), require_trusted_time=True))

    def test_bodies(self) -> None:
        """The bodies in the file are those of the receipt."""
        self.assertEqual("request_mismatch{body}", refusal(saved(request_body=REQUEST_BODY + b"x")))
        self.assertEqual("response_mismatch{body}", refusal(saved(response_body=b"")))
        early = WORLD.receipt(WORLD.exchange(request_body=BodySeen.of(REQUEST_BODY[:4], complete=False)))
        self.assertEqual("ok", refusal(saved(receipt=early)))
        self.assertEqual("request_mismatch{body}", refusal(saved(receipt=early, request_body=b"none of it")))
        unanswered = WORLD.receipt(WORLD.exchange(status=None))
        self.assertEqual("response_mismatch{body}", refusal(saved(receipt=unanswered)))

    def test_mixed(self) -> None:
        """Statement and receipt of different workloads do not make evidence."""
        neighbour = WORLD.generation_of(WORLD.client_svid).statement.envelope
        self.assertEqual("issuer_mismatch", refusal(saved(statement=neighbour)))

    def test_rules(self) -> None:
        """Issuer and identity rules hold offline too."""
        self.assertEqual("issuer_not_authorised", refusal(saved(), issuers=[spiffe_id("/svc/manager")]))
        self.assertEqual("identity_unexpected", refusal(saved(), expectations=[spiffe_id("/else")]))

    def test_from_the_future(self) -> None:
        """Evidence cannot be from after now."""
        ahead = int(LATER.timestamp()) + 900
        receipt = resigned(WORLD.receipt(), naming.TYPE_RECEIPT, WORLD.generation.signers, iat=ahead)
        self.assertNotEqual("ok", refusal(saved(receipt=receipt)))
        self.assertEqual("ok", refusal(saved(), now=NOW + timedelta(seconds=1)))
        self.assertNotEqual("ok", refusal(saved(), now=NOW - timedelta(seconds=61)))


class VerificationTests(SynchronousTestCase):
    """The result for people and programs."""

    def test_failure(self) -> None:
        """A failure carries its precise reason and claims nothing."""
        result = Verification(statement=WORLD.evidence, error=RequestMismatch(part="header:3"))
        expected = {"ok": False, "detail_reason": "request_mismatch{header:3}", "postQuantum": False}
        self.assertEqual(expected, result.to_json())

    def test_other_failures(self) -> None:
        """A failure of another package has its reason, one that is nobody's is internal."""
        for error, reason in (
            (FactsInvalid(name="a", defect="b"), "workload_facts_invalid"),
            (OSError(), "internal_error"),
        ):
            self.assertEqual(reason, Verification(error=error).to_json()["detail_reason"])

    def test_live(self) -> None:
        """A live result has no remark on its time; nothing verified is not ok."""
        live = Verification(statement=WORLD.evidence)
        self.assertEqual({"ok": True, "detail_reason": None, "postQuantum": True}, live.to_json())
        self.assertFalse(Verification().ok)

    def test_post_quantum_is_all(self) -> None:
        """One artefact without a post-quantum signature is enough to say no."""
        classical = WORLD.verified_statement(WORLD.generation.statement.envelope, profile=Profile.CLASSICAL)
        receipt = judge(saved()).receipt
        self.assertFalse(Verification(statement=classical, receipt=receipt).post_quantum)

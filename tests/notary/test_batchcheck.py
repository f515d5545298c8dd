"""The verification of receipts of a batch beyond the vectors, and the cache of verified batches."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.envelope import Envelope
from svc.envelope.errors import EnvelopeError
from svc.envelope.profile import Profile
from svc.identity import BundleSet, TrustAnchor, X509Bundle
from svc.notary.artifact import BatchedReceipt
from svc.notary.batch import sign_batch
from svc.notary.batchcheck import BatchPlace, VerifiedBatchCache
from svc.notary.receiptcheck import ReceiptEvidence, verify_receipt
from svc.notary.verification import Anchors
from tests.notary.artifacts import NOW, Fixture, counting_random, seen_of

FIXTURE = Fixture()
EXCHANGE = FIXTURE.exchange()
BATCHED = FIXTURE.batched()
SECOND = timedelta(seconds=1)


def verify(receipt: BatchedReceipt | bytes = BATCHED, **changes: Any) -> ReceiptEvidence:
    """Verify a receipt as the client of the exchange does, with these arguments changed."""
    arguments: dict[str, Any] = {
        "statement": FIXTURE.evidence,
        "profile": Profile.HYBRID,
        "anchors": FIXTURE.anchors,
        "now": NOW + 2 * SECOND,
        "seen": seen_of(EXCHANGE),
    }
    return verify_receipt(receipt, **{**arguments, **changes})


def flipped(receipt: BatchedReceipt) -> BatchedReceipt:
    """Change one bit of the last signature of the batch."""
    *others, last = receipt.batch.signatures
    broken = dataclasses.replace(last, signature=last.signature[:-1] + bytes((last.signature[-1] ^ 1,)))
    return dataclasses.replace(receipt, batch=dataclasses.replace(receipt.batch, signatures=(*others, broken)))


class EvidenceTests(SynchronousTestCase):
    """What a verified receipt of a batch says."""

    def test_evidence(self) -> None:
        """Identifier, claims and comparison are those of the receipt, signatures those of the batch."""
        alone, found = (
            verify_receipt(
                FIXTURE.receipt(),
                statement=FIXTURE.evidence,
                profile=Profile.HYBRID,
                anchors=FIXTURE.anchors,
                now=NOW + 2 * SECOND,
                seen=seen_of(EXCHANGE),
            ),
            verify(),
        )
        for name in (
            "id",
            "issuer",
            "statement_id",
            "level",
            "outcome",
            "issued",
            "post_quantum",
            "compared",
            "claims",
        ):
            self.assertEqual(getattr(alone, name), getattr(found, name), name)
        self.assertIsNone(alone.batch)
        self.assertEqual(BatchPlace(1, 3, alone.issued), found.batch)
        self.assertEqual(BATCHED.batch.payload, found.envelope_evidence.payload)

    def test_octets(self) -> None:
        """The octets of the artifact give the same evidence; the identifier is compared before anything else."""
        self.assertEqual(verify(), verify(BATCHED.serialize()))
        self.assertEqual(verify().id, verify(expected_id=verify().id).id)
        error = self.assertRaises(EnvelopeError, verify, flipped(BATCHED), expected_id="A" * 43)
        self.assertEqual("id_mismatch", error.reason)

    def test_every_place(self) -> None:
        """A receipt is verified at every place of batches of 2, 5 and 256."""
        for size, places in ((2, range(2)), (5, range(5)), (256, (0, 1, 127, 128, 254, 255))):
            for index in places:
                found = verify(FIXTURE.batched(size=size, index=index))
                self.assertEqual((index, size), found.batch and (found.batch.index, found.batch.size))

    def test_order(self) -> None:
        """The envelope of the batch comes before its claims, these before the path, and the path before the receipt."""
        place = BATCHED.inclusion
        outside = dataclasses.replace(place, size=9)
        moved = dataclasses.replace(place, blind=bytes(32))
        other = dataclasses.replace(BATCHED, payload=b"{}")
        for receipt, reason in (
            (dataclasses.replace(flipped(BATCHED), inclusion=outside), "signature_invalid{ML-DSA-65}"),
            (dataclasses.replace(other, inclusion=outside), "batch_mismatch{size}"),
            (dataclasses.replace(other, inclusion=moved), "inclusion_invalid"),
            (other, "inclusion_invalid"),
        ):
            error = self.assertRaises(EnvelopeError, verify, receipt, statement=None)
            self.assertEqual(reason, error.detail_reason)

    def test_payload_that_is_no_receipt(self) -> None:
        """A batch may sign anything; what is not the payload of a receipt is refused."""
        credentials, draft = FIXTURE.credentials, FIXTURE.draft()
        for payload, reason in (
            (b"1", "malformed"),
            (b"{}", "malformed"),
            (b'{"svc":{"v":2}}', "unsupported_version"),
            (credentials.statement.payload, "malformed"),
        ):
            drafts = [draft, dataclasses.replace(draft, payload=payload)]
            signed = sign_batch(drafts, credentials.spiffe_id, credentials.signers, draft.issued_at, counting_random())
            receipt = BatchedReceipt(payload, signed.inclusions[1], Envelope.parse(signed.envelope))
            self.assertEqual(reason, self.assertRaises(EnvelopeError, verify, receipt).reason)


class CacheTests(SynchronousTestCase):
    """The cache gives what a verification would give."""

    def setUp(self) -> None:
        self.cache = VerifiedBatchCache()

    def verify(self, receipt: BatchedReceipt = BATCHED, **changes: Any) -> ReceiptEvidence:
        return verify(receipt, batches=self.cache, **changes)

    def chain(self, receipt: BatchedReceipt = BATCHED, **changes: Any) -> object:
        """Verify; another object than before shows that the envelope was verified again."""
        return self.verify(receipt, **changes).envelope_evidence.classical

    def test_same_batch(self) -> None:
        """Another receipt of a batch needs no verification of its envelope, and gives the evidence of one."""
        first = self.chain()
        self.assertEqual(verify(), self.verify())
        later = NOW + 30 * SECOND
        self.assertEqual(later, self.verify(now=later).envelope_evidence.verified_at)
        self.assertIs(first, self.chain(now=later))
        self.assertIs(first, self.chain(BATCHED.with_extra(later=1)))
        noted = dataclasses.replace(BATCHED, batch=BATCHED.batch.with_extra(later=1))
        self.assertIs(first, self.chain(noted))

    def test_receipt_is_checked(self) -> None:
        """Place, path and claims of each receipt are checked, also beside a batch that is cached."""
        self.verify()
        moved = dataclasses.replace(BATCHED, inclusion=dataclasses.replace(BATCHED.inclusion, index=0))
        self.assertEqual("inclusion_invalid", self.assertRaises(EnvelopeError, self.verify, moved).reason)
        seen = seen_of(FIXTURE.exchange(path="/other"))
        self.assertEqual("request_mismatch", self.assertRaises(EnvelopeError, self.verify, seen=seen).reason)

    def test_refusals_are_not_cached(self) -> None:
        """A batch whose signature is wrong is refused each time, before and after the right one."""
        for _ in range(2):
            error = self.assertRaises(EnvelopeError, self.verify, flipped(BATCHED))
            self.assertEqual("signature_invalid{ML-DSA-65}", error.detail_reason)
            self.verify()

    def test_profile_and_anchors(self) -> None:
        """Another profile or other anchors need another verification; equal anchors do not."""
        first = self.chain()
        self.assertIsNot(first, self.chain(profile=Profile.CLASSICAL))
        self.assertIs(first, self.chain())
        same = Anchors(BundleSet(dict(FIXTURE.anchors.spiffe.bundles)), FIXTURE.anchors.pq)
        self.assertIs(first, self.chain(anchors=same))
        other = Anchors(FIXTURE.anchors.spiffe, Fixture().anchors.pq)
        self.assertEqual("chain_untrusted", self.assertRaises(EnvelopeError, self.verify, anchors=other).reason)
        self.assertIsNot(first, self.chain())

    def test_validity(self) -> None:
        """At a time at which a certificate is not valid a cached batch is refused."""
        self.verify()
        chains = (FIXTURE.svid.chain, FIXTURE.credentials.pq_leaf.chain) if FIXTURE.credentials.pq_leaf else ()
        start = max(chain[0].not_valid_before_utc for chain in chains)
        end = min(chain[0].not_valid_after_utc for chain in chains)
        for moment in (start - SECOND, end + SECOND):
            error = self.assertRaises(EnvelopeError, self.verify, now=moment)
            self.assertEqual("certificate_not_valid_at_time", error.reason)

    def test_window_of_a_root(self) -> None:
        """A root that is trusted for a window does not verify a cached batch outside of it."""
        bundle = next(iter(FIXTURE.anchors.pq))
        end = NOW + 10 * SECOND
        limited = BundleSet.of(X509Bundle(bundle.trust_domain, (TrustAnchor(bundle.certificates[0], NOW, end),)))
        anchors = Anchors(FIXTURE.anchors.spiffe, limited)
        self.assertIs(self.chain(anchors=anchors), self.chain(anchors=anchors, now=end))
        error = self.assertRaises(EnvelopeError, self.verify, anchors=anchors, now=end + SECOND)
        self.assertEqual("certificate_not_valid_at_time", error.reason)

    def test_limit(self) -> None:
        """The least recently used batch is dropped."""
        self.cache = VerifiedBatchCache(limit=2)
        first, second, third = (FIXTURE.batched(size=size) for size in (2, 3, 4))
        chains = [self.chain(first), self.chain(second)]
        self.assertIs(chains[0], self.chain(first))
        self.chain(third)
        self.assertIs(chains[0], self.chain(first))
        self.assertIsNot(chains[1], self.chain(second))

"""
Verifies that a receipt is in a signed batch: the envelope of the batch, its claims, and the path to its root.

Owns the order of these checks, which end where the claims of the receipt begin, and the cache of verified batches.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from svc import naming
from svc.envelope.claims import Claims, utc_seconds
from svc.envelope.envelope import Envelope
from svc.envelope.profile import Profile
from svc.notary.artifact import BatchedReceipt
from svc.notary.batch import MAX_DELAY, batch_hash, receipt_leaf
from svc.notary.errors import ReceiptRefused
from svc.notary.merkle import HASH_FUNCTIONS, root_of_path
from svc.notary.statement import CLOCK_LEEWAY, verification_time
from svc.notary.verification import Anchors, EnvelopeEvidence, read_payload, verify_envelope
from svc.strictjson import b64u_encode

#: Batches of a few servers that a client calls at the same time; each takes 20 to 50 KB.
MAX_CACHED: Final = 32


class VerifiedBatchCache:
    """
    Caches batches whose envelope was verified, since each of up to 256 receipts brings the same one.

    A batch is verified again under another profile, with other anchors, at a time at which a certificate or a root is
    not valid, or after ``limit`` other batches. Refusals are not cached.
    """

    def __init__(self, limit: int = MAX_CACHED) -> None:
        self._limit = limit
        self._anchors: Anchors | None = None
        self._verified: OrderedDict[tuple[Envelope, Profile], _Verified] = OrderedDict()

    def verify(self, batch: Envelope, *, profile: Profile, anchors: Anchors, now: datetime) -> EnvelopeEvidence:
        """Verify the envelope of a batch, as :func:`svc.notary.verification.verify_envelope` does."""
        if anchors != self._anchors:
            self._verified.clear()
            self._anchors = anchors
        key = replace(batch, extra={}), profile
        cached = self._verified.get(key)
        if cached is None or not cached.not_before <= now <= cached.not_after:
            cached = _Verified.of(_verify_uncached(batch, profile=profile, anchors=anchors, now=now), anchors)
        self._verified[key] = cached
        self._verified.move_to_end(key)
        if len(self._verified) > self._limit:
            self._verified.popitem(last=False)
        return replace(cached.evidence, verified_at=now)


@dataclass(frozen=True, slots=True)
class _Verified:
    """A verified envelope, and the times between which the same certificates and roots verify it."""

    evidence: EnvelopeEvidence
    not_before: datetime
    not_after: datetime

    @classmethod
    def of(cls, evidence: EnvelopeEvidence, anchors: Anchors) -> _Verified:
        chains = [chain for chain in (evidence.classical, evidence.pq) if chain is not None]
        starts = [chain.chain_not_before for chain in chains]
        ends = [chain.chain_not_after for chain in chains]
        roots = {chain.anchor for chain in chains}
        for bundles in (anchors.spiffe, anchors.pq):
            bundle = bundles.bundles.get(evidence.issuer.trust_domain)
            for anchor in bundle.anchors if bundle is not None else ():
                if anchor.certificate in roots:
                    starts += [anchor.first_seen] if anchor.first_seen is not None else []
                    ends += [anchor.last_seen] if anchor.last_seen is not None else []
        return cls(evidence, max(starts), min(ends))


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """The verified place of a receipt in its batch; ``issued`` is ``iat`` of the batch."""

    index: int
    size: int
    issued: datetime


@dataclass(frozen=True, slots=True)
class BatchedEvidence:
    """What a batch proves of one receipt: who signed it, its claims, and its place."""

    signed: EnvelopeEvidence
    claims: Mapping[str, object] = field(repr=False, hash=False)
    place: BatchPlace


def verify_batched(
    receipt: BatchedReceipt,
    *,
    profile: Profile,
    anchors: Anchors,
    now: datetime,
    at_iat: bool,
    cache: VerifiedBatchCache | None = None,
) -> BatchedEvidence:
    """
    Verify the batch of a receipt, and that the receipt is in it; the first failure counts.

    Args:
        receipt: what was fetched.
        profile: the local profile.
        anchors: the local trust anchors.
        now: the time, aware.
        at_iat: verify the chains at ``iat`` of the batch and at that of the receipt (evidence) instead of ``now``.
        cache: of batches that were verified before.

    Raises:
        EnvelopeError: with the reason.
    """
    verify = _verify_uncached if cache is None else cache.verify
    moment = verification_time(receipt.batch, now) if at_iat else now
    signed = verify(receipt.batch, profile=profile, anchors=anchors, now=moment)
    issued = _check_claims(receipt, signed)
    claims = read_payload(receipt.payload, naming.TYPE_RECEIPT)
    issuer, receipt_issued = claims.spiffe_id("iss"), claims.time("iat")
    if issuer != signed.issuer:
        raise ReceiptRefused("batch_mismatch", part="iss", found=signed.issuer, expected=issuer)
    if not timedelta() <= issued - receipt_issued <= timedelta(seconds=MAX_DELAY):
        expected = f"at most {MAX_DELAY} s after {utc_seconds(receipt_issued)}"
        raise ReceiptRefused("batch_mismatch", part="iat", found=utc_seconds(issued), expected=expected)
    if at_iat and receipt_issued != issued:
        verify(receipt.batch, profile=profile, anchors=anchors, now=min(receipt_issued, now + CLOCK_LEEWAY))
    place = BatchPlace(receipt.inclusion.index, receipt.inclusion.size, issued)
    return BatchedEvidence(signed, claims.members, place)


def _verify_uncached(batch: Envelope, *, profile: Profile, anchors: Anchors, now: datetime) -> EnvelopeEvidence:
    return verify_envelope(batch, typ=naming.TYPE_BATCH, profile=profile, anchors=anchors, now=now)


def _check_claims(receipt: BatchedReceipt, signed: EnvelopeEvidence) -> datetime:
    """Check the claims of the batch and the path to its root; return its ``iat``."""
    claims = Claims(signed.claims, "batch")
    svc = claims.member("svc")
    audience, issued, _jti = claims.text("aud"), claims.time("iat"), claims.nonce("jti")
    alg, size, root = svc.text("alg"), svc.integer("size"), svc.text("root")
    inclusion, expected_alg = receipt.inclusion, batch_hash(header.alg for header in receipt.batch.headers)
    for part, found, expected in (
        ("aud", audience, naming.AUDIENCE_BATCH),
        ("alg", alg, expected_alg),
        ("size", size, inclusion.size),
    ):
        if found != expected:
            raise ReceiptRefused("batch_mismatch", part=part, found=found, expected=expected)
    if inclusion.index >= size:
        raise ReceiptRefused("batch_mismatch", part="size", found=size, expected=f"above the index {inclusion.index}")
    new_hash = HASH_FUNCTIONS[alg]
    leaf = receipt_leaf(inclusion.blind, receipt.payload, new_hash)
    found_root = root_of_path(leaf, inclusion.index, size, inclusion.path, new_hash)
    # As text: base64url that is not canonical is no root either.
    if found_root is None or b64u_encode(found_root) != root:
        raise ReceiptRefused("inclusion_invalid", index=inclusion.index, size=size)
    return issued

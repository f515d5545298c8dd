"""
A receipt as it is fetched, kept and exported: an envelope of its own, or a payload with its place in a signed batch.

Owns the shape of both forms and how they are told apart. :mod:`svc.notary.receiptcheck` verifies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from svc.envelope.envelope import FLATTENED, MAX_ENVELOPE, Envelope, read_document, refuse_members, required_octets
from svc.envelope.errors import EnvelopeError, Malformed
from svc.notary.batch import Inclusion, batch_artifact
from svc.notary.receipt import Disclosures
from svc.strictjson import b64u_encode, dumps

_MEMBERS: Final = frozenset({"payload", "inclusion", "batch"})


@dataclass(frozen=True)
class BatchedReceipt:
    """
    A receipt of a batch, not verified.

    Attributes:
        payload: of the receipt, which the root of the batch covers.
        inclusion: its place in the batch.
        batch: the envelope that all receipts of the batch share.
        extra: other top-level members, which no signature covers.
    """

    payload: bytes = field(repr=False)
    inclusion: Inclusion
    batch: Envelope
    extra: Mapping[str, object] = field(default_factory=dict, hash=False)

    def with_extra(self, **members: object) -> BatchedReceipt:
        """Return a copy with more top-level members, as :meth:`svc.envelope.envelope.Envelope.with_extra` does."""
        return replace(self, extra={**self.extra, **members})

    def to_object(self) -> dict[str, object]:
        """Return the members ``payload``, ``inclusion`` and ``batch``, then the extra ones."""
        return {
            "payload": b64u_encode(self.payload),
            "inclusion": self.inclusion.to_object(),
            "batch": self.batch.to_object(),
            **self.extra,
        }

    def serialize(self) -> bytes:
        """
        Write compact JSON that :func:`parse_receipt` reads back to an equal receipt.

        Raises:
            EnvelopeError: for more octets than a verifier reads.
        """
        data = dumps(self.to_object())
        if len(data) > MAX_ENVELOPE:
            raise EnvelopeError("too_large", size=len(data), limit=MAX_ENVELOPE)
        return data


#: Both have ``payload``, ``extra``, ``with_extra``, ``to_object`` and ``serialize``.
ReceiptArtifact = Envelope | BatchedReceipt


def parse_receipt(data: bytes) -> ReceiptArtifact:
    """
    Read a receipt of either form: its size, its JSON and its shape, in this order.

    Raises:
        EnvelopeError: for more octets than a receipt has.
        Malformed: as :meth:`svc.envelope.envelope.Envelope.parse`, and for members of both forms or of neither.
    """
    return receipt_from_object(read_document(data, MAX_ENVELOPE))


def receipt_from_object(document: Mapping[str, object]) -> ReceiptArtifact:
    """
    Read a receipt that is a member of another JSON document, which a strict parser with limits has read.

    Raises:
        Malformed: as in :func:`parse_receipt`.
    """
    batch = document.get("batch")
    if ("batch" in document) == ("signatures" in document):
        raise Malformed(where="the document", defect="it has not exactly one of the members signatures and batch")
    if ("inclusion" in document) != ("batch" in document):
        raise Malformed(where="the document", defect="it has only one of the members inclusion and batch")
    if "batch" not in document:
        return Envelope.from_object(document)
    refuse_members(document, FLATTENED, "the document")
    payload = required_octets(document.get("payload"), "payload")
    inclusion = Inclusion.from_object(document.get("inclusion"))
    if not isinstance(batch, dict):
        raise Malformed(where="batch", defect="not an object")
    extra = {name: value for name, value in document.items() if name not in _MEMBERS}
    return BatchedReceipt(payload, inclusion, Envelope.from_object(batch), extra)


def stored_artifact(
    payload: bytes,
    envelope: bytes | None,
    batch: bytes | None,
    inclusion: bytes | None,
    disclosures: Disclosures | None = None,
) -> bytes | None:
    """
    Write a receipt as it is served, by joining what a notary stores of it; None for an unsigned record.

    Args:
        payload: of the receipt.
        envelope: its own, as it was signed; None in a batch.
        batch: the envelope of its batch.
        inclusion: as :meth:`svc.notary.batch.Inclusion.to_octets` wrote it.
        disclosures: the salts, None where there are none or where they may not be sent.

    Raises:
        Malformed: for an inclusion that was altered.
        EnvelopeError: for a receipt of a batch with more octets than a verifier reads.
    """
    if batch is not None and inclusion is not None:
        return batch_artifact(payload, Inclusion.from_octets(inclusion), batch, disclosures)
    if envelope is None or not disclosures:
        return envelope
    return b'%b,"disclosures":%b}' % (envelope.removesuffix(b"}"), dumps(disclosures))

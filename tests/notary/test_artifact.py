"""Receipts of both forms: how they are told apart, read and written."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.envelope import MAX_ENVELOPE, Envelope
from svc.envelope.errors import EnvelopeError, Malformed
from svc.notary.artifact import BatchedReceipt, parse_receipt, receipt_from_object
from svc.notary.batch import MAX_PATH, Inclusion, batch_artifact
from svc.notary.receipt import with_disclosures
from svc.strictjson import dumps
from tests.notary.artifacts import Fixture

FIXTURE = Fixture()
ALONE = FIXTURE.receipt()
BATCHED = FIXTURE.batched()
#: Values for members, of every kind and nearly right.
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 300),
    st.sampled_from(["", "A" * 43, "A" * 42 + "B", "A" * 64, "e30"]),
    st.lists(st.sampled_from(["A" * 43, "A" * 64, "x", 1]), max_size=MAX_PATH + 2),
    st.just({}),
)
OWN = {**ALONE.to_object(), **BATCHED.to_object()}


class ShapeTests(SynchronousTestCase):
    """What is read, and as which form."""

    def test_forms(self) -> None:
        """An envelope with signatures, and a payload with inclusion and batch, are read back equal."""
        self.assertEqual(ALONE, parse_receipt(ALONE.serialize()))
        self.assertEqual(BATCHED, parse_receipt(BATCHED.serialize()))
        self.assertEqual((3, 1), (BATCHED.inclusion.size, BATCHED.inclusion.index))

    def test_members(self) -> None:
        """Exactly one of signatures and batch, and an inclusion beside a batch alone, whatever their values are."""
        for names in (
            (), ("signatures", "batch"), ("signatures", "batch", "inclusion"), ("signatures", "inclusion"),
            ("batch",), ("inclusion",),
        ):  # fmt: skip
            for value in (None, ...):
                document = {"payload": OWN["payload"], **{name: OWN[name] if value is ... else value for name in names}}
                self.assertRaises(Malformed, receipt_from_object, document)

    def test_values(self) -> None:
        """Payload, inclusion and batch have one type each; the flattened serialization is refused."""
        right = BATCHED.to_object()
        for name, value, where in (
            ("payload", None, "payload"),
            ("payload", "A", "payload"),
            ("inclusion", [], "inclusion"),
            ("batch", [], "batch"),
            ("batch", {"payload": ""}, "signatures"),
            ("protected", "e30", "the document"),
        ):
            error = self.assertRaises(Malformed, receipt_from_object, {**right, name: value})
            self.assertEqual(where, error.where)

    def test_size(self) -> None:
        """A receipt of either form has at most 256 KiB, when it is read and when it is written."""
        for receipt in (ALONE, BATCHED):
            room = MAX_ENVELOPE - len(receipt.with_extra(note="").serialize())
            largest = receipt.with_extra(note="n" * room).serialize()
            self.assertEqual(MAX_ENVELOPE, len(largest))
            self.assertEqual("n" * room, parse_receipt(largest).extra["note"])
            error = self.assertRaises(EnvelopeError, parse_receipt, largest + b" ")
            self.assertEqual("too_large", error.reason)
            error = self.assertRaises(EnvelopeError, receipt.with_extra(note="n" * (room + 1)).serialize)
            self.assertEqual("too_large", error.reason)

    def test_served_text(self) -> None:
        """What the notary joins as text is what a reader writes again."""
        batch = BATCHED.batch.serialize()
        for salts in (None, {"request": {"1": "A" * 22}}):
            served = batch_artifact(BATCHED.payload, BATCHED.inclusion, batch, salts)
            bare = dataclasses.replace(BATCHED, extra={})
            self.assertEqual(with_disclosures(bare, salts).serialize(), served)
            self.assertEqual(served, parse_receipt(served).serialize())


class PropertyTests(SynchronousTestCase):
    """Any members give a receipt or a typed error."""

    @given(
        st.dictionaries(st.sampled_from([*OWN, "protected", "later"]), VALUES | st.none(), max_size=4),
        st.dictionaries(st.sampled_from(["index", "size", "blind", "path", "later"]), VALUES, max_size=3),
        st.sets(st.sampled_from(sorted(OWN))),
    )
    def test_any_members(self, members: dict[str, object], inclusion: dict[str, object], absent: set[str]) -> None:
        """What is read is of one form and is read back equal."""
        place = BATCHED.inclusion.to_object()
        document = {**OWN, "inclusion": {**place, **inclusion}, **members}
        for name in absent:
            document.pop(name, None)
        try:
            receipt = parse_receipt(dumps(document))
        except EnvelopeError:
            return
        self.assertEqual("signatures" in document, isinstance(receipt, Envelope))
        self.assertEqual("batch" in document, isinstance(receipt, BatchedReceipt))
        self.assertEqual(receipt, parse_receipt(receipt.serialize()))

    @given(st.data())
    def test_any_inclusion(self, data: st.DataObject) -> None:
        """An inclusion that is read has a size, an index and nodes within the limits of the format."""
        place = BATCHED.inclusion.to_object()
        name = data.draw(st.sampled_from(sorted(place)))
        try:
            found = Inclusion.from_object({**place, name: data.draw(VALUES)})
        except Malformed:
            return
        self.assertTrue(2 <= found.size <= 256 and found.index >= 0 and len(found.path) <= MAX_PATH)
        self.assertTrue({len(node) for node in found.path} <= {32, 48} and len(found.blind) == 32)

    @given(st.binary(max_size=64))
    def test_any_octets(self, noise: bytes) -> None:
        """Octets that are put into a receipt are refused, or give a receipt that is read back equal."""
        whole = dataclasses.replace(BATCHED, extra={}).serialize()
        for data in (noise, whole[:200] + noise + whole[200:], whole + noise):
            try:
                receipt = parse_receipt(data)
            except EnvelopeError:
                continue
            self.assertEqual(receipt, parse_receipt(receipt.serialize()))

"""Tests of reading what an answer names, and of the faults that are made here."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.exchange.artifacts import LocationRefused, _pause, named_level, named_statement, receipt_place
from svc.cli.exchange.faults import with_broken_signature
from svc.cli.exchange.line import Fetched
from svc.notary.access import receipt_location
from svc.notary.envelope import Envelope
from svc.notary.errors import NotaryError
from svc.notary.ids import IdMalformed
from svc.notary.profile import Profile
from svc.notary.refusals import NonceMismatch, ReceiptMissing
from svc.wire.http1 import ResponseHead
from tests.cli.doubles import right_world

NONCE = "AAECAwQFBgcICQoLDA0ODw"
ID = "A" * 43


def head_with(*fields: tuple[bytes, bytes]) -> ResponseHead:
    return ResponseHead("1.1", list(fields), frozenset(), True, 0, False, False, 200, b"OK", False)


class NamedTests(SynchronousTestCase):
    """What an answer names."""

    def test_statement(self) -> None:
        """One canonical identifier, or none; anything else is malformed."""
        self.assertIsNone(named_statement(head_with()))
        self.assertEqual(named_statement(head_with((b"SVC-workload-id", ID.encode()))), ID)
        for value in (b"", ID.encode() + b"=", b"A" * 42 + b"B", b"\xff", b"../../etc/passwd"):
            self.assertRaises(IdMalformed, named_statement, head_with((b"Svc-Workload-ID", value)))
        twice = head_with((b"Svc-Workload-ID", ID.encode()), (b"svc-workload-id", ID.encode()))
        self.assertRaises(IdMalformed, named_statement, twice)

    def test_level(self) -> None:
        """One level, or none."""
        self.assertIsNone(named_level(head_with()))
        self.assertEqual(named_level(head_with((b"Svc-Notarization-Level", b"workload"))), "workload")
        level = (b"Svc-Notarization-Level", b"workload")
        self.assertIsNone(named_level(head_with(level, level)))

    def test_place(self) -> None:
        """Only the notary's path for this very request is a place."""
        own = receipt_location(NONCE)
        self.assertEqual(receipt_place(head_with((b"Svc-Receipt-Location", own.encode())), NONCE), own)
        self.assertRaises(ReceiptMissing, receipt_place, head_with(), NONCE)
        for value, error in (
            (f"https://evil.test{own}", LocationRefused),
            (f"//evil.test{own}", LocationRefused),
            ("/other", LocationRefused),
            (f"/x/..{own}", LocationRefused),
            (f"{own}?x", NonceMismatch),
            (f"{own}/../x", NonceMismatch),
            (own[:-1] + "A", NonceMismatch),
        ):
            self.assertRaises(error, receipt_place, head_with((b"Svc-Receipt-Location", value.encode())), NONCE)

    @given(st.binary(max_size=20))
    def test_any_place(self, value: bytes) -> None:
        """Whatever stands there, nothing but the own path comes out."""
        try:
            place = receipt_place(head_with((b"Svc-Receipt-Location", value)), NONCE)
        except NotaryError:
            return
        self.assertEqual(place, receipt_location(NONCE))

    @given(st.binary(max_size=12))
    def test_any_pause(self, value: bytes) -> None:
        """Whatever Retry-After says, the pause stays between a twentieth of a second and a second."""
        self.assertTrue(0.05 <= _pause(Fetched(head_with((b"Retry-After", value)), b"")) <= 1.0)

    def test_pause(self) -> None:
        """Seconds count, a date or nothing means a second."""
        for value, pause in ((b"0", 0.05), (b"1", 1.0), (b"99", 1.0), (b"Sat, 21 Nov 2026 09:00:00 GMT", 1.0)):
            self.assertEqual(_pause(Fetched(head_with((b"Retry-After", value)), b"")), pause)
        self.assertEqual(_pause(Fetched(head_with(), b"")), 1.0)


class FaultTests(SynchronousTestCase):
    """The fault bad-workload-statement."""

    def test_one_bit(self) -> None:
        """Exactly one bit of one signature changes: one that the profile checks."""
        data = right_world().generation.statement.envelope.serialize()
        before = Envelope.parse(data)
        for profile, index in ((Profile.HYBRID, 0), (Profile.CLASSICAL, 0), (Profile.PQ, 1)):
            after = Envelope.parse(with_broken_signature(data, profile))
            self.assertEqual(after.payload, before.payload)
            self.assertEqual(after.headers, before.headers)
            for place, (old, new) in enumerate(zip(before.signatures, after.signatures, strict=True)):
                flipped = int.from_bytes(old.signature) ^ int.from_bytes(new.signature)
                self.assertEqual(flipped, 1 if place == index else 0)

    def test_no_envelope(self) -> None:
        """What is no envelope is left to the verification."""
        self.assertEqual(with_broken_signature(b"no json", Profile.HYBRID), b"no json")

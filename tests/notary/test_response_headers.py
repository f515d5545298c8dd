"""What responses name of the notary, in any spelling."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.errors import EnvelopeError
from svc.envelope.ids import IdMalformed
from svc.notary.access import receipt_location
from svc.notary.response_headers import (
    named_level,
    named_receipt_path,
    named_statement,
    pending_pause,
    retry_pause,
)
from svc.wire.http1 import ResponseHead
from tests.refusals import assert_refused

ID = "A" * 43
NONCE = "AAECAwQFBgcICQoLDA0ODw"


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

    def test_location(self) -> None:
        """Only the notary's path for this very request is accepted."""
        own = receipt_location(NONCE)
        self.assertEqual(named_receipt_path(head_with((b"Svc-Receipt-Location", own.encode())), NONCE), own)
        assert_refused(self, "receipt_missing", named_receipt_path, head_with(), NONCE)
        for value, reason in (
            (f"https://evil.test{own}", "receipt_missing"),
            (f"//evil.test{own}", "receipt_missing"),
            ("/other", "receipt_missing"),
            (f"/x/..{own}", "receipt_missing"),
            (f"{own}?x", "nonce_mismatch"),
            (f"{own}/../x", "nonce_mismatch"),
            (own[:-1] + "A", "nonce_mismatch"),
        ):
            head = head_with((b"Svc-Receipt-Location", value.encode()))
            assert_refused(self, reason, named_receipt_path, head, NONCE)

    @given(st.binary(max_size=20))
    def test_any_location(self, value: bytes) -> None:
        """Whatever the header contains, only the own path is returned."""
        try:
            path = named_receipt_path(head_with((b"Svc-Receipt-Location", value)), NONCE)
        except EnvelopeError:
            return
        self.assertEqual(path, receipt_location(NONCE))

    @given(st.binary(max_size=12))
    def test_any_pause(self, value: bytes) -> None:
        """Whatever Retry-After says, the pause stays between a twentieth of a second and a second."""
        self.assertTrue(0.05 <= retry_pause(head_with((b"Retry-After", value))) <= 1.0)

    def test_pause(self) -> None:
        """Seconds count, a date or nothing means a second."""
        for value, pause in ((b"0", 0.05), (b"1", 1.0), (b"99", 1.0), (b"Sat, 21 Nov 2026 09:00:00 GMT", 1.0)):
            self.assertEqual(retry_pause(head_with((b"Retry-After", value))), pause)
        self.assertEqual(retry_pause(head_with()), 1.0)

    def test_pending(self) -> None:
        """200 is the receipt, 202 is asked again after the pause, anything else is a refusal with its reason."""
        head = head_with((b"Retry-After", b"0"))
        self.assertIsNone(pending_pause(head))
        head.status = 202
        self.assertEqual(pending_pause(head), 0.05)
        for status, reason in ((404, "receipt_missing"), (500, "fetch_failed"), (301, "fetch_failed")):
            head.status = status
            assert_refused(self, reason, pending_pause, head)

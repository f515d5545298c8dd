"""Tests of :mod:`svc.envelope.ids`."""

from __future__ import annotations

import base64
import hashlib

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.ids import (
    IdMalformed,
    NonceMalformed,
    identifies,
    new_nonce,
    parse_artifact_id,
    parse_nonce,
    parse_typed_id,
    printed_id,
    receipt_id,
    record_id,
    statement_id,
)
from svc.strictjson import b64u_decode, b64u_encode


class ArtifactIdTests(SynchronousTestCase):
    """Identifiers follow from the payload and have one spelling."""

    def test_statement_id(self) -> None:
        """A statement's identifier is the prefixed SHA-256 of its payload in base64url."""
        digest = hashlib.sha256(b"svc-statement/1\0{}").digest()
        self.assertEqual(base64.urlsafe_b64encode(digest).decode().rstrip("="), statement_id(b"{}"))

    def test_receipt_id(self) -> None:
        """A receipt of the same octets has another identifier, because its prefix differs."""
        digest = hashlib.sha256(b"svc-receipt/1\0{}").digest()
        self.assertEqual(b64u_encode(digest), receipt_id(b"{}"))
        self.assertNotEqual(statement_id(b"{}"), receipt_id(b"{}"))

    def test_record_id(self) -> None:
        """That of an unsigned record begins with its time, and belongs to its payload whatever the time."""
        name = record_id(b"{}", 1_795_220_732_999)
        octets = b64u_decode(name)
        self.assertEqual(1_795_220_732_999, int.from_bytes(octets[:6], "big"))
        self.assertEqual(hashlib.sha256(b"svc-record/1\0{}").digest()[:26], octets[6:])
        self.assertTrue(identifies(name, b"{}"))
        self.assertTrue(identifies(receipt_id(b"{}"), b"{}"))
        for other in (b"{ }", b""):
            self.assertFalse(identifies(name, other))
            self.assertFalse(identifies(receipt_id(b"{}"), other))
        self.assertFalse(identifies("a", b"{}"))

    def test_canonical_only(self) -> None:
        """Headers and paths accept the canonical spelling and no other."""
        identifier = statement_id(b"x3")
        self.assertEqual(identifier, parse_artifact_id(identifier))
        standard = printed_id(identifier)
        wrong = [f"{identifier}=", standard, identifier[:-1], identifier + "A", "", " " + identifier, None, 7]
        wrong.append(identifier[:-1] + chr(ord(identifier[-1]) + 1))
        for text in wrong:
            self.assertRaises(IdMalformed, parse_artifact_id, text)

    @given(st.binary(min_size=32, max_size=32))
    def test_what_people_type(self, octets: bytes) -> None:
        """Arguments of the command line may be standard or URL-safe base64, padded or not."""
        identifier = b64u_encode(octets)
        standard = base64.b64encode(octets).decode()
        for text in (identifier, identifier + "=", standard, standard.rstrip("="), f" {standard}\n"):
            self.assertEqual(identifier, parse_typed_id(text))
        self.assertEqual(standard, printed_id(identifier))

    def test_printing_what_is_none(self) -> None:
        """A text that is no identifier is printed as it is."""
        self.assertEqual("not one!", printed_id("not one!"))

    @given(st.text())
    def test_any_text(self, text: str) -> None:
        """Any text is an identifier or a typed error."""
        for parse in (parse_artifact_id, parse_typed_id):
            try:
                found = parse(text)
            except IdMalformed as error:
                self.assertEqual("id_malformed", error.detail_reason)
            else:
                self.assertEqual(43, len(found))


class NonceTests(SynchronousTestCase):
    """Nonces are exactly 22 canonical characters."""

    def test_round_trip(self) -> None:
        """Sixteen octets become a nonce that is accepted."""
        nonce = new_nonce(bytes(range(16)))
        self.assertEqual(22, len(nonce))
        self.assertEqual(nonce, parse_nonce(nonce))

    def test_refused(self) -> None:
        """Padding, other lengths and spare bits are refused with status 400."""
        nonce = new_nonce(bytes(16))
        for text in (nonce + "==", nonce[:-1], nonce + "A", nonce[:-1] + "B", "", None):
            error = self.assertRaises(NonceMalformed, parse_nonce, text)
            self.assertEqual(400, error.http_status)

    def test_wrong_octets(self) -> None:
        """A nonce is never made of another number of octets."""
        self.assertRaises(NonceMalformed, new_nonce, bytes(15))

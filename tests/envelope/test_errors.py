"""The reasons of the envelope: each has a sentence and a hint, and some a parameter."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.errors import EnvelopeError, Malformed, detail_reason


class ReasonTests(SynchronousTestCase):
    """The table of the base class."""

    def test_sentences(self) -> None:
        """Each sentence is one line, in lower case, without a full stop, and each reason has a hint."""
        for reason, row in EnvelopeError.reasons.items():
            self.assertNotIn("\n", row.sentence, reason)
            self.assertFalse(row.sentence[0].isupper() or row.sentence.endswith("."), reason)
            self.assertTrue(row.hint, reason)

    def test_parameter(self) -> None:
        """A reason with a parameter is written as the formats write it; one that is no error of svc has none."""
        for error, expected in (
            (EnvelopeError("signature_invalid", alg="ES256"), "signature_invalid{ES256}"),
            (EnvelopeError("wrong_type", found="a", expected="b"), "wrong_type"),
            (Malformed(where="payload", defect="no object"), "malformed"),
        ):
            self.assertEqual((error.detail_reason, detail_reason(error)), (expected, expected))
        self.assertEqual(detail_reason(ValueError("x")), "internal_error")

    def test_status(self) -> None:
        """A row of the table may set another status than 400."""
        self.assertEqual(EnvelopeError("wrong_type", found="a", expected="b").http_status, 400)
        self.assertEqual(EnvelopeError("too_large", size=2, limit=1).http_status, 413)

    def test_hostile_evidence(self) -> None:
        """Control characters of a message from outside do not reach the terminal."""
        error = EnvelopeError("wrong_type", found="\x1b[2J", expected="b")
        self.assertEqual(str(error), "the envelope is of type \\x1b[2J, expected was b")

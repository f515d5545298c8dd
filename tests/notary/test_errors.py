"""
The reasons: each has its own class, a sentence and a hint.
"""

from __future__ import annotations

import string

from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.notary import errors
from svc.notary.errors import ChainUntrusted, NotaryError, SignatureInvalid, WrongType

CLASSES = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, NotaryError) and each is not NotaryError
]


class ReasonTests(SynchronousTestCase):
    """All classes of the module."""

    def test_one_reason_each(self) -> None:
        """No two classes share a reason, and all are told apart from the root."""
        reasons = [each.reason for each in (NotaryError, *CLASSES)]
        self.assertEqual(len(set(reasons)), len(reasons))

    def test_sentences(self) -> None:
        """Each sentence is one line, in lower case, without a full stop, and each class says what to do."""
        for each in CLASSES:
            sentence = (each.__doc__ or "").strip()
            self.assertNotIn("\n", sentence, each)
            self.assertFalse(sentence[0].isupper() or sentence.endswith("."), each)
            self.assertTrue(each.hint, each)

    def test_filled(self) -> None:
        """With its evidence each sentence and hint is filled completely."""
        for each in CLASSES:
            names = {
                name
                for text in (each.__doc__ or "", each.hint)
                for _, name, _, _ in string.Formatter().parse(text)
                if name
            }
            error = each(**dict.fromkeys(names | ({each.parameter} if each.parameter else set()), "x"))
            self.assertNotIn("{", str(error) + error.advice(), each)

    def test_parameter(self) -> None:
        """A reason with a parameter is written as the format writes it."""
        self.assertEqual(SignatureInvalid(alg="ES256").detail_reason, "signature_invalid{ES256}")
        untrusted = ChainUntrusted(chain="pq", issuer="x", cause="y")
        self.assertEqual(untrusted.detail_reason, "chain_untrusted{pq}")
        self.assertEqual(WrongType(found="a", expected="b").detail_reason, "wrong_type")

    def test_hostile_evidence(self) -> None:
        """Control characters of a message from outside do not reach the terminal."""
        self.assertEqual(
            str(WrongType(found="\x1b[2J", expected="b")), "the envelope is of type \\x1b[2J, expected was b"
        )
        self.assertTrue(issubclass(WrongType, SvcError))
